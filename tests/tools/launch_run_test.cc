// `longhaul launch --local` and `--emulate` from the start to the end: what is trained, kept,
// printed, refused and resumed. Deaths are in launch_death_test.cc.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "tests/tools/launch_fixtures.h"

namespace longhaul {
namespace {

using fixtures::LaunchFolder;
using fixtures::plan_of;

void expect_refused(const RunResult& run, int status, std::string_view says) {
  EXPECT_EQ(run.status, status) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.contains(says)) << run.err;
}

TEST(Launch, stages_train_to_the_same_bits_and_pipelines_to_the_same_loss) {
  const LaunchFolder folder;
  for (const std::string grid : {"1x1", "1x2", "2x2"}) {
    const RunResult run = folder.launch({grid + ".yaml", "--local", "--name", grid});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(run.out.contains("run         runs/" + grid)) << run.out;
  }
  const std::vector<double> alone = folder.losses("1x1");
  const std::vector<double> pipelines = folder.losses("2x2");
  ASSERT_EQ(alone.size(), 12u);
  ASSERT_EQ(pipelines.size(), 12u);
  EXPECT_NEAR(alone.front(), std::log(256), 0.1);  // it knows nothing yet
  EXPECT_LT(alone.back(), 5.0);
  EXPECT_EQ(folder.losses("1x2"), alone);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(pipelines[i], alone[i], 1e-5) << i;
}

TEST(Launch, a_run_leaves_all_that_tells_of_it_in_its_folder) {
  const LaunchFolder folder;
  const RunResult run = folder.launch({"2x2.yaml", "--local"});
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* name :
       {"run.json", "plan.yaml", "job.yaml", "journal", "metrics.jsonl", "timeline.json",
        "result.json", "agent.log", "worker-1.log", "worker-4.log",
        "checkpoints/term-000001-step-000000008", "checkpoints/term-000001-step-000000012"}) {
    EXPECT_TRUE(folder.has(std::string("runs/tiny-1/") + name)) << name;
  }
  EXPECT_FALSE(folder.has("runs/tiny-1/checkpoints/term-000001-step-000000004"));  // two are kept
  struct stat join{};
  ASSERT_EQ(stat((folder / "runs/tiny-1/join.json").c_str(), &join), 0);
  EXPECT_EQ(join.st_mode & 0777, 0600u);
  // Its copy of the plan can be launched, too, and the next free name is taken.
  const RunResult again = folder.launch({"runs/tiny-1/plan.yaml", "--local", "--steps", "2"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(folder.has("runs/tiny-2/run.json"));
  EXPECT_TRUE(again.out.contains("timeline    runs/tiny-2/timeline.json")) << again.out;

  expect_refused(folder.launch({"2x2.yaml", "--local", "--name", "tiny-1"}), 2,
                 "runs/tiny-1 is there already");
}

TEST(Launch, an_emulated_run_trains_to_the_same_bits) {
  const LaunchFolder folder;
  for (const std::string where : {"local", "emulate"}) {
    const RunResult run = folder.launch({"2x2.yaml", "--" + where, "--name", where});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  EXPECT_EQ(folder.losses("emulate"), folder.losses("local"));
}

TEST(Launch, a_greedy_plan_trains_to_the_bits_of_one_stage) {
  const LaunchFolder folder;
  folder.write(
      "greedy.yaml",
      edited(plan_of("tiny.yaml", "[1, 1]", "[[d/0, r/0]]", "[8]", "[4, 4]"),
             "schedule: {family: 1f1b, in_flight: [4, 4]}",
             "schedule:\n"
             "  family: greedy\n"
             "  in_flight: [4, 4]\n"
             "  orders:\n"
             "    - F0 F1 F2 F3 B0 W0 B1 F4 B2 W1 B3 F5 W2 B4 F6 W3 F7 B5 W4 W5 B6 W6 B7 W7\n"
             "    - F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 W2 F5 B5 W3 F6 B6 F7 B7 W4 W5 W6 W7"));
  const RunResult plain = folder.launch({"1x1.yaml", "--local", "--name", "plain"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  for (const std::string where : {"local", "emulate"}) {
    const RunResult run = folder.launch({"greedy.yaml", "--" + where, "--name", where});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(folder.losses(where), folder.losses("plain"));
  }
}

TEST(Launch, shares_of_the_plans_choice_train_to_the_same_bits) {
  const LaunchFolder folder;
  const std::string even =
      plan_of("tiny.yaml", "[1, 1]", "[[d/0, d/1], [r/0, o/0]]", "[4, 4]", "[2, 1]");
  folder.write("uneven.yaml", even +
                                  "reductions:\n"
                                  "  - {stage: 0, shares: [0.9, 0.1]}\n"
                                  "  - {stage: 1, shares: [0, 1]}\n"
                                  "  - {tied: true, shares: [0.5, 0, 0, 0.5]}\n");
  const RunResult plain = folder.launch({"2x2.yaml", "--local", "--name", "even"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  const RunResult run = folder.launch({"uneven.yaml", "--local", "--name", "uneven"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.err.contains("gradients of stage 0: sharded, shares 0.9 0.1")) << run.err;
  EXPECT_EQ(folder.losses("uneven"), folder.losses("even"));
}

TEST(Launch, a_stopped_run_goes_on_where_it_was_and_on_another_plan) {
  const LaunchFolder folder;
  // Its rate is constant, so that its end says nothing of its steps.
  folder.write("alone.yaml", plan_of("endless.yaml", "[2]", "[[d/0]]", "[8]", "[1]"));
  folder.write("two.yaml", plan_of("endless.yaml", "[1, 1]", "[[d/0, r/0]]", "[8]", "[2, 1]"));
  Process process({"launch", "two.yaml", "--local", "--name", "parts"}, folder.path());
  ASSERT_TRUE(process.wait_for_error_text("step 1/"));
  process.send(SIGINT);
  const RunResult stopped = process.wait();
  ASSERT_EQ(stopped.status, 128 + SIGINT) << stopped.err;
  EXPECT_TRUE(
      stopped.err.contains("go on with: longhaul launch two.yaml --resume runs/parts "
                           "--local"))
      << stopped.err;
  EXPECT_TRUE(stopped.out.contains("checkpoint  runs/parts/checkpoints/term-000001-step-"))
      << stopped.out;
  const std::size_t done = folder.losses("parts").size();
  ASSERT_GE(done, 1u);

  // One stage instead of two computes the same bits.
  const std::string middle = fmt::format("{}", done + 5), end = fmt::format("{}", done + 10);
  const RunResult resumed =
      folder.launch({"alone.yaml", "--local", "--resume", "runs/parts", "--steps", middle});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const RunResult last =
      folder.launch({"two.yaml", "--local", "--resume", "runs/parts", "--steps", end});
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_TRUE(folder.has("runs/parts/plan-term-2.yaml"));
  EXPECT_TRUE(folder.has("runs/parts/plan-term-3.yaml"));

  const RunResult whole = folder.launch({"two.yaml", "--local", "--name", "whole", "--steps", end});
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(folder.losses("parts"), folder.losses("whole"));

  expect_refused(folder.launch({"two.yaml", "--local", "--resume", "runs/parts", "--steps", end}),
                 2, fmt::format("the run has done {} of {} steps already", end, end));
}

TEST(Launch, a_folder_that_a_launch_works_in_is_left_alone) {
  const LaunchFolder folder;
  Process process({"launch", "long.yaml", "--local", "--name", "one"}, folder.path());
  ASSERT_TRUE(process.wait_for_error_text("step 1/"));
  expect_refused(folder.launch({"long.yaml", "--local", "--resume", "runs/one"}), 1,
                 "another launch is at work in runs/one");
  process.send(SIGINT);
  EXPECT_EQ(process.wait().status, 128 + SIGINT);
}

TEST(Launch, what_cannot_be_run_is_refused_with_its_reason_and_leaves_no_folder) {
  const LaunchFolder folder;
  const std::string tiny(fixtures::kTinyJobText);
  struct Case {
    const char* what;
    std::string job;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"no training", tiny.substr(0, tiny.find("training:")), "has no `training` section"},
      {"fp16", edited(tiny, "fp32", "fp16"), "the CPU kernels compute in fp32"},
      {"no data", edited(tiny, "data: data", "data: elsewhere"), "the job's data"},
      {"vocabulary", edited(tiny, "vocabulary: 256", "vocabulary: 255"),
       "tokens of a vocabulary of 256 do not fit the model's 255"},
      {"batch", edited(tiny, "global: 8", "global: 10"), "the job's global batch is 10"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    folder.write("tiny.yaml", each.job);
    expect_refused(folder.launch({"1x1.yaml", "--local"}), 2, each.says);
  }
  folder.write("tiny.yaml", tiny);
  folder.write("ring.yaml", plan_of("tiny.yaml", "[2]", "[[d/0], [r/0]]", "[4, 4]", "[1]") +
                                "reductions: [{stage: 0, shape: ring}]\n");
  expect_refused(folder.launch({"ring.yaml", "--local"}), 2,
                 "ring.yaml: the executor does not run the ring all-reduce yet");
  expect_refused(folder.launch({"none.yaml", "--local"}), 2, "none.yaml");
  expect_refused(folder.launch({"1x1.yaml"}), 2, "where do the plan's nodes reach this machine?");
  expect_refused(folder.launch({"1x1.yaml", "--local", "--resume", "runs/none"}), 2,
                 "runs/none is no run's folder");
  expect_refused(folder.launch({"1x1.yaml", "--listen", "127.0.0.1:nonsense"}), 1,
                 "cannot listen on 127.0.0.1:nonsense");
  EXPECT_FALSE(folder.has("runs"));
}

TEST(Launch, nodes_that_do_not_come_are_named_at_the_deadline) {
  const LaunchFolder folder;
  const RunResult run =
      folder.launch({"2x2.yaml", "--listen", "127.0.0.1:0", "--wait", "1", "--name", "lonely"});
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(run.err.contains("longhaul agent --join 127.0.0.1:")) << run.err;
  EXPECT_TRUE(run.err.contains("after 1 s these nodes have not joined: d, r, o")) << run.err;
}

// ---- disks

/// A small file system of its own for a test; gone with the process. Needs root.
class OwnMount {
 public:
  OwnMount(std::string at, const char* options, unsigned long flags = 0) : at_(std::move(at)) {
    std::filesystem::create_directories(at_);
    stands_ = unshare(CLONE_NEWNS) == 0 &&
              mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
              mount("tmpfs", at_.c_str(), "tmpfs", flags, options) == 0;
  }
  ~OwnMount() {
    if (stands_) umount2(at_.c_str(), MNT_DETACH);
  }
  OwnMount(const OwnMount&) = delete;
  OwnMount& operator=(const OwnMount&) = delete;
  bool stands() const { return stands_; }

 private:
  std::string at_;
  bool stands_ = false;
};

TEST(Launch, a_disk_that_is_full_ends_the_run_with_its_name) {
  const LaunchFolder folder;
  const OwnMount disk(folder / "runs", "size=128k");
  if (!disk.stands()) GTEST_SKIP() << "needs root, to mount a small file system";
  // A line of metrics and one of the journal for each step fill 128 KiB within a hundred.
  const RunResult run = folder.launch({"long.yaml", "--local", "--name", "full"});
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_TRUE(run.err.contains("first cause: ")) << run.err;
  EXPECT_TRUE(run.err.contains("No space left on device")) << run.err;
  EXPECT_TRUE(folder.is_everybody_gone());
}

TEST(Launch, a_place_that_cannot_be_written_is_named_before_anything_starts) {
  const LaunchFolder folder;
  const OwnMount disk(folder / "runs", "size=256k", MS_RDONLY);
  if (!disk.stands()) GTEST_SKIP() << "needs root, to mount a file system that is read only";
  expect_refused(folder.launch({"1x1.yaml", "--local", "--name", "a"}), 1, "Read-only file system");
}

}  // namespace
}  // namespace longhaul
