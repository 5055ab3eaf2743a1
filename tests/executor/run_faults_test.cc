// Runs in a hostile world: delays, tasks in another order, broken connections, killed and hung
// workers, full disks. Each ends with the right weights, or with a clean stop that names the first
// cause, and nobody ever has a step that the journal lacks.
//
// A seed that fails is repeated with --gtest_filter='*RunFaults*/SEED'.

#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

RunOptions small_run(std::uint64_t seed) {
  return {.layers = {2, 2},
          .micro_batches = {3, 5},
          .steps = 12,
          .validation_every = 5,
          .checkpoint_every = 4,
          .seed = seed,
          .jitter = 0.5};
}

struct World {
  explicit World(const RunOptions& options)
      : train(learnable_tokens(options.train_tokens, 1), 8),
        validation(learnable_tokens(8 * 8 + 1, 2), 8),
        spec(spec_of(options, train.identity(), validation.identity())),
        run(options, spec, train, validation, disks) {
    // Each direction of each pair has a latency of its own, 0.5 to 40 ms.
    Rng rng("latencies", options.seed);
    for (int a = 0; a <= spec.cells(); ++a) {
      for (int b = 0; b <= spec.cells(); ++b) {
        if (a == b) continue;
        run.network.set_link(
            fmt::format("h{}", a), fmt::format("h{}", b),
            {Seconds(0.0005 + 0.04 * rng.uniform()), BytesPerSecond(1e5 + 1e7 * rng.uniform())});
      }
    }
  }

  MemorySequences train, validation;
  RunSpec spec;
  Disks disks;
  SimRun run;
};

const RunOutcome& undisturbed() {
  static const RunOutcome outcome = [] {
    RunOptions options = small_run(0);
    options.jitter = 0;
    World world(options);
    EXPECT_TRUE(world.run.run_until_ended());
    world.run.collect_weights();
    return world.run.outcome;
  }();
  return outcome;
}

/// Steps that a disk's journal has.
std::vector<JournalEntry> journal_of(World& world) {
  SimStorage& disk = world.disks.of(kCoordinatorRank);
  if (!disk.has("run/journal")) return {};
  const auto read = parse_journal(disk.bytes("run/journal"), "journal", world.spec.id);
  EXPECT_TRUE(read);
  return read ? read->entries : std::vector<JournalEntry>();
}

class RunFaults : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RunFaults, without_faults_the_weights_are_those_of_the_undisturbed_run) {
  World world(small_run(GetParam()));
  ASSERT_TRUE(world.run.run_until_ended());
  ASSERT_TRUE(world.run.ending->ending.clean()) << world.run.ending->ending.text();
  world.run.collect_weights();
  EXPECT_EQ(world.run.outcome.losses, undisturbed().losses);
  EXPECT_EQ(world.run.outcome.validations, undisturbed().validations);
  for (const auto& [name, weight] : undisturbed().weights) {
    EXPECT_TRUE(same_bits(world.run.outcome.weights.at(name), weight)) << name;
  }
  EXPECT_EQ(world.run.kept_steps, (std::vector<std::uint64_t>{4, 8, 12}));
}

TEST_P(RunFaults, a_fault_ends_in_the_right_weights_or_a_named_stop) {
  const std::uint64_t seed = GetParam();
  World world(small_run(seed));
  Rng rng("faults", seed);
  const auto draw = [&rng](int below) { return static_cast<int>(rng.uniform() * below); };
  const int victim = 1 + draw(world.spec.cells());
  const int other = (victim + 1 + draw(world.spec.cells())) % (world.spec.cells() + 1);
  const std::string host = fmt::format("h{}", victim);
  const std::string other_host = fmt::format("h{}", other);
  const int kind = static_cast<int>(seed % 6);
  std::string what;
  std::optional<Seconds> struck;
  // Some time in the run: it takes about 12 steps of half a second.
  world.run.loop.after(Seconds(0.3 + 3.5 * rng.uniform()), [&] {
    if (world.run.ending) return;
    struck = world.run.loop.now();
    switch (kind) {
      case 0:
        what = "killed " + host;
        return world.run.kill(victim);
      case 1:
        what = "cut " + host + " from " + other_host;
        return world.run.network.cut(host, other_host);
      case 2:
        what = "black hole between " + host + " and the coordinator";
        return world.run.network.black_hole(host, "h0");
      case 3:
        what = "corrupt frame from " + host;
        return world.run.network.corrupt_next(host, other_host);
      case 4:
        what = "killed the coordinator";
        return world.run.kill(kCoordinatorRank);
      default:
        what = "full disks";
        for (int rank = 0; rank <= world.spec.cells(); ++rank) {
          world.disks.of(rank).set_capacity(world.disks.of(rank).used() + 100);
        }
    }
  });
  const auto over = [&] {
    for (std::size_t r = 1; r < world.run.processes.size(); ++r) {
      if (!world.run.processes[r].ending && !world.run.processes[r].killed) return false;
    }
    return world.run.ending || world.run.processes[0].killed;
  };
  while (!over() && world.run.loop.now() < Seconds(400)) {
    if (!world.run.loop.step()) break;
  }
  SCOPED_TRACE(what);
  ASSERT_TRUE(over()) << "the run hangs";

  // Nobody has a step that is not in the journal, and losses are those of the undisturbed run.
  const std::vector<JournalEntry> journal = journal_of(world);
  for (std::size_t s = 0; s < journal.size(); ++s) {
    EXPECT_EQ(journal[s].loss, undisturbed().losses[s]);
  }
  for (const auto& process : world.run.processes) {
    if (process.ending) EXPECT_LE(process.ending->committed, journal.size());
  }
  // Any checkpoint that exists is whole.
  SimStorage& disk = world.disks.of(kCoordinatorRank);
  disk.set_capacity(0);
  const auto ids = list_checkpoints(disk, checkpoints_root("run"), true);
  ASSERT_TRUE(ids);
  for (const CheckpointId& id : *ids) {
    const auto manifest = read_manifest(disk, checkpoints_root("run"), id);
    ASSERT_TRUE(manifest) << manifest.error().text();
    EXPECT_TRUE(verify_all_files(disk, checkpoints_root("run") + "/" + folder_name(id), *manifest));
  }

  if (!world.run.ending) {  // killed: everybody says that the coordinator is lost
    for (std::size_t r = 1; r < world.run.processes.size(); ++r) {
      EXPECT_NE(world.run.processes[r].ending->reason.find("coordinator"), std::string::npos);
    }
    return;
  }
  const Ending& ending = world.run.ending->ending;
  if (ending.clean()) {
    EXPECT_EQ(world.run.outcome.losses, undisturbed().losses);
    world.run.collect_weights();
    for (const auto& [name, weight] : undisturbed().weights) {
      EXPECT_TRUE(same_bits(world.run.outcome.weights.at(name), weight)) << name;
    }
    return;
  }
  EXPECT_FALSE(ending.cause->message.empty());
  if (kind == 0) {
    EXPECT_NE(ending.text().find(fmt::format("rank {} ", victim)), std::string::npos)
        << ending.text();
  }
  if (kind < 4 && ending.cause->rank != kNobody) {
    EXPECT_TRUE(ending.cause->rank == victim || ending.cause->rank == other) << ending.text();
  }
  // Named within 5 s, with at most one exception: a full disk waits for the next write.
  EXPECT_TRUE(kind == 5 || world.run.loop.now() - *struck < Seconds(5)) << ending.text();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RunFaults, ::testing::Range<std::uint64_t>(1, 21),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(RunFaultsAtStart, hung_worker_is_named) {
  World world(small_run(3));
  world.run.network.black_hole("h2", "h0");
  ASSERT_TRUE(!world.run.run_until_ended(Seconds(60)));
  ASSERT_TRUE(world.run.processes[0].error);
  EXPECT_NE(world.run.processes[0].error->message.find("2"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
