// Whole runs whose activations have histories (AQ): as the workers of a run set them up, over
// epochs, pipelines, recomputation, checkpoints and the loss of one end's memory.

#include <numeric>

#include "executor/history/history_files.h"
#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

struct World : RunWorld {
  using RunWorld::RunWorld;

  RunOutcome run(const RunSpec& of, std::uint64_t stop_after = 0) {
    SimRun run(options, of, train, validation, disks);
    run.on_committed = [&](const JournalEntry& entry) {
      if (entry.step + 1 == stop_after) run.processes[0].coordinator->request_stop();
    };
    EXPECT_TRUE(run.run_until_ended());
    EXPECT_FALSE(run.error()) << run.error()->text();
    EXPECT_TRUE(run.ending && run.ending->ending.clean())
        << (run.ending ? run.ending->ending.text() : "no ending");
    if (::testing::Test::HasFailure()) return {};
    run.collect_weights();
    sent.clear();
    for (const Measured::Sent& to : run.measured[0].sent) sent[to.peer] = to.bytes;
    histories = run.histories;
    return run.outcome;
  }
  /// Of what a rank's disk has beside the checkpoint of a step.
  std::string history_file(std::uint64_t step, HistoryEnd end) {
    return checkpoints_root("run") + "/" + folder_name({1, step}) + "/" +
           history_file_name(0, 2, end);
  }

  std::map<int, std::uint64_t> sent;     // by cell 0 in the last step, by rank
  std::vector<HistoryVisits> histories;  // of cell 0, by step
};

/// Two stages on two sites; 160 sequences, 20 steps an epoch, two epochs and a half.
RunOptions aq(const std::string& history) {
  return {.layers = {2, 2},
          .micro_batches = {4},
          .micro_batch = 2,
          .tied = false,
          .activations = Codec::kAqInt4,
          .history = history};
}

double last_ten(const RunOutcome& outcome) {
  return std::accumulate(outcome.losses.end() - 10, outcome.losses.end(), 0.0) / 10;
}

// A sequence is 8 x 16 numbers. Its first frame has two headers of 64 bytes, 256 of bf16 and a
// checksum of 4, padded to 448; a delta 4 bf16 scales, padded to 64, and 64 bytes of codes: 260,
// padded to 320. A step has eight. The other way, gradients of 8 bits.
TEST(RunHistories, later_epochs_send_deltas_and_learn_as_an_exact_run_does) {
  World world(aq("memory: 1 MiB, disk: 0 B"));
  const RunOutcome coarse = world.run(world.spec());
  ASSERT_EQ(coarse.losses.size(), 50u);
  EXPECT_EQ(world.sent.at(2), 8u * 320u);
  ASSERT_EQ(world.histories.size(), 50u);
  for (std::size_t step = 0; step < 50; ++step) {
    const HistoryVisits& use = world.histories[step];
    const bool is_first_epoch = step < 20;
    EXPECT_EQ(use.step, step);
    EXPECT_EQ(use.first, is_first_epoch ? 8u : 0u) << step;
    EXPECT_EQ(use.deltas, is_first_epoch ? 0u : 8u) << step;
    EXPECT_EQ(use.whole + use.healed, 0u) << step;
  }
  RunOptions exactly = world.options;
  exactly.activations = Codec::kNone;
  exactly.history = "";
  World plain(exactly);
  const RunOutcome exact = plain.run(plain.spec());
  EXPECT_NE(coarse.losses, exact.losses);
  EXPECT_NEAR(last_ten(coarse), last_ten(exact), 0.05 * last_ten(exact));

  RunOptions first_epoch = world.options;
  first_epoch.steps = 20;
  World short_run(first_epoch);
  short_run.run(short_run.spec());
  EXPECT_EQ(short_run.sent.at(2), 8u * 448u);
}

TEST(RunHistories, recomputation_and_the_disk_change_no_bit) {
  World world(aq("memory: 1 MiB, disk: 0 B"));
  const RunOutcome in_memory = world.run(world.spec());
  RunOptions other = aq("memory: 0 B, disk: 1 MiB");
  other.recompute = true;
  World on_disk(other);
  const RunOutcome recomputed = on_disk.run(on_disk.spec());
  EXPECT_EQ(recomputed.losses, in_memory.losses);
  EXPECT_EQ(recomputed.validations, in_memory.validations);
}

TEST(RunHistories, replicas_hold_the_same_bits) {
  RunOptions options = aq("memory: 1 MiB");
  options.micro_batches = {3, 2};
  options.train_tokens = 8 * 33 + 1;  // a partial last batch
  World world(options);
  const RunOutcome outcome = world.run(world.spec());  // collect_weights compares them
  EXPECT_GT(outcome.losses.front() - last_ten(outcome), 1);
}

TEST(RunHistories, a_run_resumed_with_them_equals_the_uninterrupted_one_bit_for_bit) {
  const RunOptions options = aq("memory: 1 MiB, checkpoint: true");
  World uninterrupted(options);
  const RunOutcome whole = uninterrupted.run(uninterrupted.spec());
  // Both ends' files are there; the sender's alone; none.
  for (const int kept : {2, 1, 0}) {
    SCOPED_TRACE(kept);
    World world(options);
    const RunOutcome first = world.run(world.spec(), 33);
    ASSERT_EQ(first.losses.size(), 33u);
    const std::string sender = world.history_file(33, HistoryEnd::kSender);
    const std::string receiver = world.history_file(33, HistoryEnd::kReceiver);
    ASSERT_TRUE(world.disks.of(1).has(sender));
    ASSERT_TRUE(world.disks.of(2).has(receiver));
    if (kept < 1) ASSERT_TRUE(world.disks.of(1).remove(sender).has_value());
    if (kept < 2) ASSERT_TRUE(world.disks.of(2).remove(receiver).has_value());
    const RunOutcome second = world.run(world.resumed(options, 2));
    ASSERT_EQ(second.losses.size(), 17u);
    // In the 7 steps that are left of the second epoch no sequence comes twice.
    for (std::size_t step = 0; step < 7; ++step) {
      EXPECT_EQ(world.histories[step].healed, kept == 1 ? 8u : 0u) << step;
      EXPECT_EQ(world.histories[step].deltas, kept >= 1 ? 8u : 0u) << step;
    }
    // What the receiver has lost the sender sends again; what the sender has lost begins anew.
    const std::vector<double> rest(whole.losses.begin() + 33, whole.losses.end());
    if (kept >= 1) EXPECT_EQ(second.losses, rest);
    EXPECT_NEAR(last_ten(second), last_ten(whole), 0.03 * last_ten(whole));
  }
}

// The worker of the second stage dies after step 27. The checkpoint of step 20 has the histories of
// that moment on both disks, so the steps from there on are what they were.
TEST(RunHistories, a_killed_run_goes_on_from_its_checkpoint_with_the_same_bits) {
  RunOptions options = aq("memory: 1 MiB, checkpoint: true");
  options.checkpoint_every = 20;
  World uninterrupted(options);
  const RunOutcome whole = uninterrupted.run(uninterrupted.spec());
  World world(options);
  {
    const RunSpec spec = world.spec();
    SimRun run(options, spec, world.train, world.validation, world.disks);
    run.on_committed = [&](const JournalEntry& entry) {
      if (entry.step == 27) run.loop.post([&run] { run.kill(2); });
    };
    ASSERT_TRUE(run.run_until_ended());
    EXPECT_FALSE(run.ending->ending.clean());
  }
  const RunSpec rest = world.resumed(options, 2);
  ASSERT_EQ(rest.first_step, 20u);
  const RunOutcome second = world.run(rest);
  EXPECT_EQ(second.losses, std::vector<double>(whole.losses.begin() + 20, whole.losses.end()));
}

}  // namespace
}  // namespace longhaul
