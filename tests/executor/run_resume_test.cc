// A run that was stopped and resumed, on the same plan or another, equals one that was not.

#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

struct World : RunWorld {
  using RunWorld::RunWorld;

  /// Runs it to its end.
  RunOutcome run(const RunOptions& on, const RunSpec& spec, std::uint64_t stop_after = 0) {
    SimRun run(on, spec, train, validation, disks);
    run.on_committed = [&](const JournalEntry& entry) {
      if (entry.step + 1 == stop_after) run.processes[0].coordinator->request_stop();
    };
    EXPECT_TRUE(run.run_until_ended());
    EXPECT_TRUE(run.ending && run.ending->ending.clean())
        << (run.ending ? run.ending->ending.text() : "no ending");
    EXPECT_FALSE(run.ending && run.ending->checkpoint_error);
    kept_steps = run.kept_steps;
    if (!::testing::Test::HasFailure()) run.collect_weights();
    return run.outcome;
  }

  std::vector<std::uint64_t> kept_steps;
};

void expect_continues(const RunOutcome& whole, const RunOutcome& first, const RunOutcome& second) {
  std::vector<double> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(losses, whole.losses);
  ASSERT_EQ(second.weights.size(), whole.weights.size());
  for (const auto& [name, weight] : whole.weights) {
    EXPECT_TRUE(same_bits(second.weights.at(name), weight)) << name;
  }
}

TEST(RunResume, resumed_run_equals_the_uninterrupted_one_bit_for_bit) {
  const RunOptions options = {.layers = {1, 2, 1}, .micro_batches = {3, 5}, .steps = 30};
  World uninterrupted(options);
  const RunOutcome whole = uninterrupted.run(options, uninterrupted.spec());

  World world(options);
  const RunOutcome first = world.run(options, world.spec(), 13);
  ASSERT_EQ(first.losses.size(), 13u);
  EXPECT_EQ(world.kept_steps, std::vector<std::uint64_t>{13});
  const RunOutcome second = world.run(options, world.resumed(options, 2));
  ASSERT_EQ(second.losses.size(), 17u);
  expect_continues(whole, first, second);
}

TEST(RunResume, another_plan_resumes_a_checkpoint_with_the_same_bits) {
  // One pipeline each, so that the sums are the same whatever the cut.
  const RunOptions one = {.layers = {1, 2, 1}, .steps = 24};
  const RunOptions other = {.layers = {2, 2}, .steps = 24};
  World uninterrupted(one);
  const RunOutcome whole = uninterrupted.run(one, uninterrupted.spec());

  World world(one);
  const RunOutcome first = world.run(one, world.spec(), 10);
  // The new workers sit on other disks: they fetch what they have not.
  const RunOutcome second = world.run(other, world.resumed(other, 2));
  expect_continues(whole, first, second);
}

TEST(RunResume, damaged_file_of_a_worker_is_fetched_again) {
  const RunOptions options = {.layers = {2, 2}, .steps = 12};
  World uninterrupted(options);
  const RunOutcome whole = uninterrupted.run(options, uninterrupted.spec());

  World world(options);
  const RunOutcome first = world.run(options, world.spec(), 6);
  const std::string file =
      checkpoints_root("run") + "/" + folder_name({1, 6}) + "/layer-0001.safetensors";
  ASSERT_TRUE(world.disks.of(1).has(file));
  world.disks.of(1).flip_bit(file, 500, 3);
  const RunOutcome second = world.run(options, world.resumed(options, 2));
  expect_continues(whole, first, second);
}

TEST(RunResume, checkpoints_come_when_due_and_only_the_newest_stay) {
  const RunOptions options = {.layers = {2, 2}, .steps = 10, .checkpoint_every = 3};
  World world(options);
  world.run(options, world.spec());
  EXPECT_EQ(world.kept_steps, (std::vector<std::uint64_t>{3, 6, 9, 10}));
  for (const int rank : {0, 1, 2}) {  // the coordinator and both writers
    const auto ids = list_checkpoints(world.disks.of(rank), checkpoints_root("run"), false);
    ASSERT_TRUE(ids);
    EXPECT_EQ(*ids, (std::vector<CheckpointId>{{1, 9}, {1, 10}})) << "rank " << rank;
  }
}

TEST(RunResume, skipped_steps_do_not_count_as_updates) {
  // A run that resumes uses the manifest's count: AdamW's bias correction depends on it.
  const RunOptions options = {.layers = {2, 2}, .steps = 6, .checkpoint_every = 3};
  World world(options);
  world.run(options, world.spec());
  const auto manifest =
      read_manifest(world.disks.of(0), checkpoints_root("run"), CheckpointId{1, 6});
  ASSERT_TRUE(manifest) << manifest.error().text();
  EXPECT_EQ(manifest->updates, 6u);
  EXPECT_EQ(manifest->data.sequences, 48u);  // 6 steps of 8
}

TEST(RunSpecText, comes_back_as_it_was) {
  const RunOptions options = {.layers = {1, 3}, .micro_batches = {2, 6}, .steps = 9};
  World world(options);
  RunSpec spec = world.spec();
  spec.resume = ResumePoint{{2, 4}, {{"head.safetensors", 12, ContentHash{1, 2}}}};
  spec.first_step = 4;
  spec.updates = 3;
  spec.timeline_step = 5;
  spec.emulation = EmulationSpec{"page", 1.5, {{1, 2, 3, 4}, {1, 2, 3, 4}, {5, 6, 7, 8}, {}}};
  const std::string text = run_spec_text(spec);
  const auto read = parse_run_spec(text);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(run_spec_text(*read), text);
  EXPECT_EQ(read->resume->files[0].hash, (ContentHash{1, 2}));
  EXPECT_EQ(read->emulation->devices[2].recompute_s, 6);
  EXPECT_EQ(read->ranks[2].name, "n1/0");
}

TEST(RunSpecText, what_does_not_fit_together_is_refused) {
  const RunOptions options = {.layers = {1, 3}, .micro_batches = {2, 6}, .steps = 9};
  World world(options);
  const auto message = [&](const std::function<void(RunSpec&)>& change) {
    RunSpec spec = world.spec();
    change(spec);
    const auto read = parse_run_spec(run_spec_text(spec));
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(message([](RunSpec&) {}), "");
  EXPECT_NE(message([](RunSpec& s) { s.plan.layers = {1, 2}; }), "");
  EXPECT_NE(message([](RunSpec& s) { s.ranks.pop_back(); }), "");
  EXPECT_NE(message([](RunSpec& s) { s.first_step = 9; }), "");
  EXPECT_NE(message([](RunSpec& s) { s.last_step = 10; }), "");
  EXPECT_NE(message([](RunSpec& s) { s.plan.micro_batches = {2, 5}; }), "");
  EXPECT_NE(message([](RunSpec& s) { s.train.context = 9; }), "");
  EXPECT_NE(message([](RunSpec& s) { s.emulation = EmulationSpec{"page", 1, {}}; }), "");
  EXPECT_NE(message([](RunSpec& s) { s.job_text = "schema: longhaul/job/1\n"; }), "");
  EXPECT_NE(parse_run_spec("{}").has_value(), true);
  EXPECT_NE(parse_run_spec("nonsense").has_value(), true);
}

TEST(RunCodecs, lossy_links_still_learn_and_replicas_stay_equal) {
  RunOptions options = {.layers = {2, 2}, .micro_batches = {4, 4}, .steps = 50};
  options.activations = Codec::kInt8;
  options.gradients = Codec::kInt8;
  World world(options);
  const RunOutcome run = world.run(options, world.spec());
  options.activations = options.gradients = Codec::kNone;
  World exact_world(options);
  const RunOutcome exact = exact_world.run(options, exact_world.spec());
  EXPECT_NE(run.losses, exact.losses);
  EXPECT_GT(run.losses.front() - run.losses.back(), 1);
  EXPECT_NEAR(run.losses.back(), exact.losses.back(), 0.1);
}

TEST(RunCodecs, a_resumed_run_begins_without_residuals_and_ends_near_the_undisturbed_one) {
  const RunOptions options = {.layers = {2},
                              .micro_batches = {4, 4},
                              .width = 64,
                              .gradients = Codec::kInt4,
                              .steps = 100,
                              .train_tokens = 8 * 8 * 100 + 1};
  const auto mean = [](std::span<const double> losses) {
    return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  };
  World uninterrupted(options);
  const RunOutcome whole = uninterrupted.run(options, uninterrupted.spec());
  const std::span<const double> second_half = std::span(whole.losses).last(50);

  World world(options);
  world.run(options, world.spec(), 50);
  const RunOutcome second = world.run(options, world.resumed(options, 2));
  ASSERT_EQ(second.losses.size(), 50u);
  EXPECT_EQ(second.losses[0], second_half[0]);  // the weights are the same
  EXPECT_NE(second.losses[1], second_half[1]);  // what 4 bits took from step 49 is lost
  EXPECT_NEAR(mean(second.losses), mean(second_half), 0.03 * mean(second_half));
}

}  // namespace
}  // namespace longhaul
