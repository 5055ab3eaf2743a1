// The README shows what the demo's plan and simulation print.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What a command prints, run in the source folder, as the demo is.
std::string output_of(const std::string& command) {
  std::FILE* pipe =
      popen(("cd " LONGHAUL_SOURCE_DIR " && " + command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string printed;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof buffer, pipe)) {
    printed.append(buffer, size);
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  return printed;
}

TEST(ReadmeRelease, shows_what_the_demo_plans_and_simulates) {
  const std::string readme = text_of(LONGHAUL_SOURCE_DIR "/README.md");
  const std::string demo = text_of(LONGHAUL_SOURCE_DIR "/tools/demo");
  // The commands are those of the demo, with their output elsewhere: a demo may be running.
  const std::string folder = testing::TempDir() + "longhaul_readme";
  std::filesystem::create_directories(folder);
  EXPECT_NE(demo.find("\"$longhaul\" plan --cluster \"$cluster\" --job \"$job\" --baselines"),
            std::string::npos);
  EXPECT_NE(demo.find("cluster=configs/clusters/eight-servers.yaml"), std::string::npos);
  EXPECT_NE(demo.find("job=configs/jobs/demo-gpt.yaml"), std::string::npos);
  const auto as_in_the_demo = [&folder](std::string text) {
    for (std::size_t at; (at = text.find(folder)) != std::string::npos;) {
      text.replace(at, folder.size(), "build/demo");
    }
    return text;
  };
  const std::string plan = output_of(LONGHAUL_BINARY
                                     " plan --cluster configs/clusters/eight-servers.yaml --job "
                                     "configs/jobs/demo-gpt.yaml --baselines -o " +
                                     folder + "/plan.yaml");
  ASSERT_GT(plan.size(), 500u);
  EXPECT_NE(readme.find(as_in_the_demo(plan)), std::string::npos) << as_in_the_demo(plan);
  const std::string step = output_of(LONGHAUL_BINARY " simulate " + folder +
                                     "/plan.yaml --timeline " + folder + "/timeline.json");
  ASSERT_GT(step.size(), 500u);
  EXPECT_NE(readme.find(as_in_the_demo(step)), std::string::npos) << as_in_the_demo(step);
}

}  // namespace
