// The real libraries judge what we write and compute: each script of tests/judges in the Python
// environment that tools/judges makes. Skipped, with the reason, where that cannot be had; golden
// files made by the same libraries are the check there.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <array>
#include <string>
#include <utility>

#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

/// Exit status and what was printed.
std::pair<int, std::string> shell(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

/// The interpreter of the judges, or why there is none.
const std::pair<int, std::string>& python() {
  static const auto found = [] {
    auto answer = shell(fmt::format("'{}/tools/judges'", LONGHAUL_SOURCE_DIR));
    // Its last line is the path; before it stands what it did.
    while (answer.second.ends_with('\n')) answer.second.pop_back();
    if (answer.first == 0) answer.second.erase(0, answer.second.rfind('\n') + 1);
    return answer;
  }();
  return found;
}

class JudgesSlowRelease : public testing::Test {
 protected:
  void SetUp() override {
    if (python().first == 3) GTEST_SKIP() << python().second;
    ASSERT_EQ(python().first, 0) << python().second;
  }
  /// Runs tests/judges/`script` BINARY FOLDER `arguments`, FOLDER being an empty one.
  void judge(const std::string& script, const std::string& arguments = "") {
    const auto [status, output] = shell(
        fmt::format("HF_HUB_OFFLINE=1 '{}' '{}/tests/judges/{}' '{}' '{}' {}", python().second,
                    LONGHAUL_SOURCE_DIR, script, LONGHAUL_BINARY, folder_.path(), arguments));
    EXPECT_EQ(status, 0) << output;
    fmt::print("{}", output);
  }
  TemporaryFolder folder_;
};

TEST_F(JudgesSlowRelease, transformers_reads_what_model_export_writes_without_a_warning) {
  judge("hugging_face.py");
}

TEST_F(JudgesSlowRelease, tokenizers_give_the_ids_of_hugging_faces_library) {
  judge("tokenizer_judge.py", "--megabytes 10");
}

class ModelJudgesSlowRelease : public JudgesSlowRelease,
                               public testing::WithParamInterface<const char*> {};

TEST_P(ModelJudgesSlowRelease, trains_as_transformers_do_and_is_read_by_them) {
  judge("models_judge.py", GetParam());
}

INSTANTIATE_TEST_SUITE_P(, ModelJudgesSlowRelease,
                         testing::Values("gpt2", "gpt2-untied", "llama", "llama-tied", "llama3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

class GenerateJudgesSlowRelease : public JudgesSlowRelease,
                                  public testing::WithParamInterface<const char*> {};

TEST_P(GenerateJudgesSlowRelease, continues_texts_as_transformers_do) {
  judge("generate_judge.py", GetParam());
}

INSTANTIATE_TEST_SUITE_P(, GenerateJudgesSlowRelease, testing::Values("gpt2", "llama", "trained"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(JudgesSlowRelease, tensorboard_reads_event_files) {
  judge("tensorboard_judge.py");
}

TEST_F(JudgesSlowRelease, prometheus_reads_the_metrics) {
  judge("prometheus_judge.py");
}

}  // namespace
}  // namespace longhaul
