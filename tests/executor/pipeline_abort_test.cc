// How a step ends before its time: it waits without being busy, lets go of everything when it is
// told to, and reports the first failure once.

#include "executor/pipeline/pipeline_step.h"
#include "tests/executor/piece_boundary.h"
#include "tests/executor/pipeline_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

struct World {
  explicit World(const PipelineOptions& options, const Pipeline::MakeFormat& make_format = nullptr)
      : pipeline(loop, options, simulated_devices(loop, options.seed, 0), make_format) {
    pipeline.network.send_time = milliseconds(400);
    pipeline.network.latency = milliseconds(800);
  }

  int run_until_idle() {
    int tasks = 0;
    while (tasks < 100000 && loop.step()) ++tasks;
    return tasks;
  }

  SimEventLoop loop;
  Pipeline pipeline;
};

std::unique_ptr<BoundaryFormat> in_pieces(int) {
  return std::make_unique<PieceBoundary>(kSequences);
}

PieceBoundary& pieces_of(World& world, std::size_t cell) {
  return dynamic_cast<PieceBoundary&>(*world.pipeline.format_of_cell[cell]);
}

const PipelineOptions kThreeStages = {{1, 1, 2}, 4, {3, 2, 1}, true, false, 1};

// Stage 0 is rank 2. Its four activations are lost, so that stage 1 never gets a gradient back.
// Stage 0 does its K = 3 forwards and sends; the others do nothing. That is some ten tasks.
TEST(PipelineAbort, a_step_whose_peer_is_silent_waits_without_tasks) {
  World world(kThreeStages);
  world.pipeline.network.mute = {2};
  world.pipeline.start(0);
  EXPECT_LT(world.run_until_idle(), 50);
  for (const auto& cell : world.pipeline.cells) EXPECT_FALSE(cell->result.has_value());

  int released = 0;
  world.pipeline.abort(released);
  EXPECT_EQ(released, 0) << "in a task of its own";
  EXPECT_LT(world.run_until_idle(), 50);
  EXPECT_EQ(released, 3);
  for (const auto& cell : world.pipeline.cells) EXPECT_FALSE(cell->result.has_value());
}

// Stops after any number of tasks; what was under way arrives afterwards, into buffers that no step
// has any more. Then the next term runs a whole step with the same stages and storage.
TEST(PipelineAbort, after_an_abort_at_any_moment_the_next_term_is_undisturbed) {
  for (const auto& [recompute, format] : {std::pair<bool, Pipeline::MakeFormat>{false, nullptr},
                                          {true, nullptr},
                                          {true, in_pieces}}) {
    PipelineOptions options = kThreeStages;
    options.recompute = recompute;
    const Outcome reference = run_single(options, 1, 1);
    for (int tasks = 0;; ++tasks) {
      SCOPED_TRACE("after tasks: " + std::to_string(tasks));
      World world(options, format);
      auto& pipeline = world.pipeline;
      std::vector<PipelineHooks::Hook> updates;
      for (auto& cell : pipeline.cells)
        updates.push_back(std::exchange(cell->context.hooks.update, {}));
      pipeline.start(0);
      int ran = 0;
      while (ran < tasks && world.loop.step()) ++ran;
      if (ran < tasks) break;

      int released = 0;
      pipeline.abort(released);
      if (tasks % 2 == 0) {
        for (auto& cell : pipeline.cells) pipeline.network.mesh(2 - cell->context.cell).set_term(2);
      }
      world.run_until_idle();
      ASSERT_EQ(released, 3);
      for (std::size_t c = 0; c < updates.size(); ++c) {
        pipeline.cells[c]->context.hooks.update = updates[c];
      }
      pipeline.start(1);
      while (!pipeline.all_done()) ASSERT_TRUE(world.loop.step()) << "nothing more happens";
      pipeline.collect();
      pipeline.collect_weights();
      expect_same(pipeline.outcome, reference);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(PipelineAbort, a_step_may_be_destroyed_at_any_moment) {
  for (int tasks = 0;; ++tasks) {
    World world(kThreeStages, in_pieces);
    world.pipeline.start(0);
    int ran = 0;
    while (ran < tasks && world.loop.step()) ++ran;
    if (ran < tasks) break;
    world.pipeline.cells[1]->step.reset();
    world.run_until_idle();
    EXPECT_FALSE(world.pipeline.cells[1]->result && !world.pipeline.cells[1]->result->has_value());
  }
}

void expect_failure(World& world, std::size_t cell, const std::string& message) {
  world.pipeline.start(0);
  EXPECT_LT(world.run_until_idle(), 500);
  for (std::size_t c = 0; c < world.pipeline.cells.size(); ++c) {
    EXPECT_EQ(world.pipeline.cells[c]->result.has_value(), c == cell) << c;
  }
  const auto& result = world.pipeline.cells[cell]->result;
  ASSERT_TRUE(result.has_value());
  ASSERT_FALSE(result->has_value());
  EXPECT_EQ(result->error().message, message);
  int released = 0;
  world.pipeline.abort(released);
  world.run_until_idle();
  EXPECT_EQ(released, 3) << "a failed step can be aborted too";
}

// Stage 0 forwards 0, 1 and 2 (K = 3), and stage 1 decodes them as they come.
TEST(PipelineAbort, a_tensor_that_does_not_decode_ends_the_step) {
  World world(kThreeStages, in_pieces);
  pieces_of(world, 1).decode_fails_at = 2;
  expect_failure(world, 1, "RECV_ACT 2: the scales are not finite");
}

TEST(PipelineAbort, tokens_that_do_not_come_end_the_step) {
  World world(kThreeStages);
  TinyTokens tokens(world.loop);
  tokens.fails_at = 2;
  world.pipeline.cells[0]->context.tokens = &tokens;
  expect_failure(world, 0, "tokens: the shard is unreadable");
}

TEST(PipelineAbort, a_hook_that_fails_ends_the_step) {
  World world({{1, 1, 2}, 4, {3, 2, 1}, false, false, 1});
  for (auto& cell : world.pipeline.cells) cell->context.hooks.prepare = [](PipelineHooks::Done) {};
  world.pipeline.cells[2]->context.hooks.prepare = [](PipelineHooks::Done done) {
    done(failed("the coordinator is gone"));
  };
  expect_failure(world, 2, "PREPARE: the coordinator is gone");
}

}  // namespace
}  // namespace longhaul
