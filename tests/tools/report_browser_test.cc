// The page in a real browser: nothing is refused by its policy, nothing is on the console, and
// something is seen, in light and dark, wide and narrow. Needs Debian's package `chromium`.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"
#include "tools/report/assets.h"

namespace longhaul {
namespace {

std::string chromium() {
  for (const char* const path : {"/usr/bin/chromium", "/usr/bin/chromium-browser"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

/// stdout of a shell command and stderr after it.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  char buffer[65536];
  while (pipe != nullptr) {
    const std::size_t got = fread(buffer, 1, sizeof buffer, pipe);
    if (got == 0) break;
    text.append(buffer, got);
  }
  if (pipe != nullptr) EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

class ReportBrowserSlowRelease : public testing::Test {
 protected:
  void SetUp() override {
    if (chromium().empty()) GTEST_SKIP() << "chromium is not here: tools/setup --slow-tests";
    folder_.write_samples();
    std::filesystem::create_directory(folder_ / "run");
    folder_.write("run/run.json", "{}");
    folder_.write("run/plan.yaml",
                  edited(edited(kPlanText, "file: cluster.yaml", "file: ../cluster.yaml"),
                         "file: job.yaml", "file: ../job.yaml"));
    folder_.write("run/job.yaml", kJobText);
    folder_.write("run/result.json",
                  R"({"schema":"longhaul/result/1","steps":300,"parameters":10,"loss_first":5,
"loss_last":4,"validation_loss":3,"bigram_loss":2.5,"tokens_per_s":100,"step_predicted_s":1,
"step_measured_s":1.1,"late_fraction":null,"links":[]})");
    std::string metrics;
    for (int i = 0; i < 300; ++i) {
      metrics += "{\"step\":" + std::to_string(i) + ",\"loss\":" + std::to_string(5 - 0.01 * i) +
                 ",\"step_s\":1,\"tokens_per_s\":9,\"compute\":1}\n";
    }
    folder_.write("run/metrics.jsonl", metrics);
    const RunResult run = run_longhaul({"report", "run"}, folder_.path());
    ASSERT_EQ(run.status, 0) << run.err;
    // A window is never as narrow as a telephone, but a frame is.
    folder_.write("narrow.html",
                  "<!DOCTYPE html><body><iframe width=360 height=1500 "
                  "src=\"run/report.html\"></iframe>");
  }

  /// Runs the browser on a page; answers what it said.
  std::string browse(const std::string& page, bool is_dark, int width,
                     const std::string& what) const {
    // Its sandbox needs rights that root does not have; the page is ours.
    return output_of("cd '" + folder_.path() + "' && HOME='" + folder_.path() + "' timeout 60 " +
                     chromium() +
                     " --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
                     " --hide-scrollbars --no-first-run --enable-logging=stderr --v=0"
                     " --user-data-dir='" +
                     folder_.path() + "/profile' --virtual-time-budget=2000" +
                     " --blink-settings=preferredColorScheme=" + (is_dark ? "0" : "1") +
                     " --window-size=" + std::to_string(width) + ",1500 " + what + " 'file://" +
                     folder_.path() + "/" + page + "'");
  }

  static void expect_quiet(const std::string& said) {
    for (const std::string_view word : {"CONSOLE", "Refused to", "Uncaught", "violates"})
      EXPECT_FALSE(said.contains(word)) << said;
  }

  const TemporaryFolder folder_;
};

TEST_F(ReportBrowserSlowRelease, nothing_is_refused_and_something_is_seen_in_every_shape) {
  std::set<std::string> seen;
  for (const bool is_dark : {false, true}) {
    for (const bool is_narrow : {false, true}) {
      const std::string said = browse(is_narrow ? "narrow.html" : "run/report.html", is_dark,
                                      is_narrow ? 520 : 1600, "--screenshot=shot.png");
      expect_quiet(said);
      const std::string png = read_text(folder_ / "shot.png");
      EXPECT_TRUE(png.starts_with("\x89PNG")) << said;
      // A blank page of this size is some kilobytes; this one has hundreds of colours and letters.
      EXPECT_GT(png.size(), 40'000u);
      seen.insert(png);
    }
  }
  EXPECT_EQ(seen.size(), 4u);  // light and dark, wide and narrow differ
}

TEST_F(ReportBrowserSlowRelease, long_series_are_drawn_by_the_chart_library) {
  if (chart_library().script.empty()) GTEST_SKIP() << "this build has no uPlot: tools/setup";
  const std::string said = browse("run/report.html", false, 1600, "--dump-dom");
  expect_quiet(said);
  EXPECT_TRUE(said.contains("class=\"card has-plot\" id=\"loss-card\"")) << said.substr(0, 2000);
  EXPECT_TRUE(said.contains("<canvas"));
}

}  // namespace
}  // namespace longhaul
