#include "netsim/timeline.h"

#include "core/file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using fixtures::set_link;
using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;
using nlohmann::json;

/// Two pipelines of two stages over two sites, tied, slow enough links that everything takes time.
struct Scene {
  Topology topology = unit_topology({0, 1, 0, 1});
  Job job = unit_job(2, 5, true);
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {3, 2});

  Scene() {
    set_link(topology, 0, 0, seconds(0.01), bytes_per_second(100));
    set_link(topology, 1, 1, seconds(0.01), bytes_per_second(100));
    set_link(topology, 0, 1, seconds(0.2), bytes_per_second(3));
  }
  std::string text() const {
    const StepResult result = simulate_step(topology, job, plan, {.timeline = true}).value();
    return timeline_json(result, topology, plan);
  }
};

TEST(Timeline, is_a_chrome_trace_with_a_process_a_site_and_a_thread_a_lane) {
  const json trace = json::parse(Scene().text());
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::map<std::string, int> slices;
  for (const json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "X") {
      ++slices[std::string(event.at("cat"))];
      EXPECT_TRUE(threads.contains({event.at("pid"), event.at("tid")})) << event;
      EXPECT_GE(event.at("ts").get<double>(), 0);
      EXPECT_GE(event.at("dur").get<double>(), 0);
      continue;
    }
    ASSERT_EQ(phase, "M");
    const std::string name = event.at("args").at("name");
    if (event.at("name") == "process_name") {
      processes[event.at("pid")] = name;
    } else {
      EXPECT_EQ(event.at("name"), "thread_name");
      const bool is_new = threads.emplace(std::pair(event.at("pid"), event.at("tid")), name).second;
      EXPECT_TRUE(is_new) << event;
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{1, "a"}, {2, "b"}}));
  EXPECT_EQ(threads.size(), 4u * 4);  // compute, activations, gradients, reductions of four devices
  EXPECT_EQ(threads.at({1, 1}), "pipeline 0 stage 0 a-1/0");
  // Five micro-batches, two stages: 20 passes and 4 updates; one hop, two ways: 10 transfers; each
  // tasklet reduces, and with both stages at the ends each also exchanges the embedding.
  EXPECT_EQ(slices, (std::map<std::string, int>{{"compute", 24}, {"transfer", 10}, {"reduce", 8}}));
}

TEST(Timeline, the_halves_of_a_backward_are_bars_of_the_compute_lane) {
  Scene scene;
  scene.plan.family = ScheduleFamily::kGreedy;
  scene.plan.orders = {parse_order("F0 F1 B0 W0 F2 B1 B2 W1 W2").value(),
                       parse_order("F0 B0 W0 F1 B1 W1 F2 B2 W2").value()};
  std::map<std::string, int> bars;
  for (const json& event : json::parse(scene.text()).at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("cat") != "compute") continue;
    const std::string name = event.at("name");
    ++bars[name.substr(0, name.find(' '))];
  }
  // Five micro-batches, two stages; four updates.
  EXPECT_EQ(bars, (std::map<std::string, int>{
                      {"BWD_INPUT", 10}, {"BWD_WEIGHT", 10}, {"FWD", 10}, {"UPDATE", 4}}));
}

TEST(Timeline, times_are_microseconds_of_simulated_time) {
  // The first forward takes 1 s; stage 0's first send starts then and carries 4 bytes at 3 bytes/s.
  const json trace = json::parse(Scene().text());
  int found = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("pid") != 1) continue;
    if (event.at("name") == "FWD 0" && event.at("tid") == 1) {
      EXPECT_EQ(event.at("ts"), 0);
      EXPECT_EQ(event.at("dur"), 1e6);
      ++found;
    }
    if (event.at("name") == "SEND_ACT 0" && event.at("tid") == 2) {
      EXPECT_EQ(event.at("ts"), 1e6);
      EXPECT_NEAR(event.at("dur").get<double>(), 4e6 / 3, 1e-6);
      EXPECT_EQ(event.at("args").at("to"), "b-1/0");
      ++found;
    }
  }
  EXPECT_EQ(found, 2);
}

TEST(Timeline, slices_of_one_lane_never_overlap) {
  const json trace = json::parse(Scene().text());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double start = event.at("ts");
    lanes[{event.at("pid"), event.at("tid")}].emplace_back(start,
                                                           start + event.at("dur").get<double>());
  }
  EXPECT_GT(lanes.size(), 8u);
  for (auto& [lane, slices] : lanes) {
    std::sort(slices.begin(), slices.end());
    for (std::size_t i = 1; i < slices.size(); ++i) {
      EXPECT_LE(slices[i - 1].second, slices[i].first + 1e-6) << lane.first << " " << lane.second;
    }
  }
}

TEST(Timeline, groups_have_processes_of_their_own) {
  const Scene scene;
  const StepResult result =
      simulate_step(scene.topology, scene.job, scene.plan, {.timeline = true}).value();
  const std::vector<TimelineSlice> first_only(result.timeline.begin(), result.timeline.begin() + 1);
  const TimelineGroup groups[] = {{"all", result.timeline}, {"one", first_only}};
  const json trace = json::parse(timeline_json(groups, scene.topology, scene.plan));
  std::map<int, std::string> processes;
  std::map<bool, int> threads, slices;  // of the second group?
  for (const json& event : trace.at("traceEvents")) {
    const int process = event.at("pid");
    if (event.at("ph") == "X") {
      ++slices[process > 2];
    } else if (event.at("name") == "process_name") {
      processes[process] = event.at("args").at("name");
    } else {
      ++threads[process > 2];
    }
  }
  EXPECT_EQ(processes,
            (std::map<int, std::string>{{1, "all a"}, {2, "all b"}, {3, "one a"}, {4, "one b"}}));
  EXPECT_EQ(threads, (std::map<bool, int>{{false, 16}, {true, 16}}));
  EXPECT_EQ(slices, (std::map<bool, int>{{false, 42}, {true, 1}}));  // 24 + 10 + 8, as above
}

TEST(Timeline, is_the_same_every_time) {
  EXPECT_EQ(Scene().text(), Scene().text());
}

TEST(Timeline, names_with_signs_of_json_stay_names) {
  Scene scene;
  scene.topology.sites[0].name = "St. \"J\" \\ two\nlines\ttab \x01 São";
  scene.topology.devices[1].name = "\"/0";
  const json trace = json::parse(scene.text());
  std::set<std::string> names;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") names.insert(std::string(event.at("args").at("name")));
    if (event.at("ph") == "X" && event.at("args").contains("to")) {
      names.insert(std::string(event.at("args").at("to")));
    }
  }
  EXPECT_TRUE(names.contains(scene.topology.sites[0].name));
  EXPECT_TRUE(names.contains("\"/0"));
  EXPECT_TRUE(names.contains("pipeline 0 stage 1 \"/0 reduces"));
}

// ---- Writing files.

class WriteFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              (std::string("write_file_") +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      out.insert(entry.path().filename().string());
    }
    return out;
  }

  fs::path folder_;
};

TEST_F(WriteFile, leaves_the_whole_text_and_nothing_else) {
  const std::string text("two\nlines\0and a zero", 20);
  const Result<void> done = write_file((folder_ / "t.json").string(), text);
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(contents(folder_ / "t.json"), text);
  EXPECT_EQ(names(), std::set<std::string>{"t.json"});
}

TEST_F(WriteFile, replaces_what_was_there) {
  const std::string path = (folder_ / "t.json").string();
  ASSERT_TRUE(write_file(path, "a longer text"));
  ASSERT_TRUE(write_file(path, "short"));
  EXPECT_EQ(contents(path), "short");
  ASSERT_TRUE(write_file(path, ""));
  EXPECT_EQ(contents(path), "");
}

TEST_F(WriteFile, makes_missing_folders) {
  ASSERT_TRUE(write_file((folder_ / "new/deep/t.json").string(), "x"));
  EXPECT_EQ(contents(folder_ / "new/deep/t.json"), "x");
}

TEST_F(WriteFile, a_path_that_cannot_be_written_is_named_with_the_reason) {
  // A file stands where a folder is needed.
  ASSERT_TRUE(write_file((folder_ / "file").string(), "x"));
  const std::string below = (folder_ / "file/t.json").string();
  const Result<void> done = write_file(below, "x");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kFailed);
  EXPECT_EQ(done.error().message, "cannot write " + below + ": Not a directory");
}

TEST_F(WriteFile, a_folder_under_the_name_is_kept_and_no_part_is_left) {
  fs::create_directories(folder_ / "t.json");
  const Result<void> done = write_file((folder_ / "t.json").string(), "x");
  ASSERT_FALSE(done);
  EXPECT_TRUE(done.error().message.contains("t.json"));
  EXPECT_EQ(names(), std::set<std::string>{"t.json"});
  EXPECT_TRUE(fs::is_directory(folder_ / "t.json"));
}

TEST_F(WriteFile, a_full_disk_is_reported) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  // The temporary file is a link to the device that is always full.
  fs::create_symlink("/dev/full", folder_ / "t.json.part");
  const Result<void> done = write_file((folder_ / "t.json").string(), std::string(1 << 20, 'x'));
  ASSERT_FALSE(done);
  EXPECT_TRUE(done.error().message.contains("No space left on device")) << done.error().message;
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace longhaul
