// The README shows the true output of the demo.

#include <gtest/gtest.h>

#include <cstdio>
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

TEST(ReadmeRelease, demo_prints_what_the_readme_shows) {
  const std::string readme = text_of(LONGHAUL_SOURCE_DIR "/README.md");
  const std::size_t about = readme.find("`tools/demo` plans");
  ASSERT_NE(about, std::string::npos) << "the README says nothing of the demo";
  const std::string fence = "```text\n";
  const std::size_t begin = readme.find(fence, about) + fence.size();
  const std::string shown = readme.substr(begin, readme.find("```", begin) - begin);

  std::FILE* pipe =
      popen("LONGHAUL=" LONGHAUL_BINARY " " LONGHAUL_SOURCE_DIR "/tools/demo 2>/dev/null", "r");
  ASSERT_NE(pipe, nullptr);
  std::string printed;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof buffer, pipe))
    printed.append(buffer, size);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(printed, shown);
}

}  // namespace
