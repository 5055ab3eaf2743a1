// A pipeline of any shape leaves the bits of the single stage, keeps its schedule's order, and
// overlaps what may overlap.

#include "executor/pipeline/pipeline_step.h"

#include "tests/executor/pipeline_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// A pipeline in virtual time.
struct World {
  explicit World(const PipelineOptions& options, double jitter = 0)
      : pipeline(loop, options, simulated_devices(loop, options.seed, jitter)) {
    pipeline.network.jitter = jitter;
  }

  void run_steps(int steps) {
    for (int s = 0; s < steps; ++s) {
      pipeline.start(static_cast<std::uint32_t>(s));
      while (!pipeline.all_done()) ASSERT_TRUE(loop.step()) << "nothing more happens";
      pipeline.collect();
      pipeline.expect_times_keep_the_schedule();
    }
    pipeline.collect_weights();
  }

  InstructionTimes time_of(std::size_t cell, Op op, int micro_batch) const {
    const auto& list = pipeline.schedule.tasklets[cell].instructions;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].op == op && list[i].micro_batch == micro_batch) {
        return (*pipeline.cells[cell]->result)->times[i];
      }
    }
    ADD_FAILURE() << "not in the list";
    return {};
  }

  SimEventLoop loop;
  Pipeline pipeline;
};

struct Case {
  std::vector<int> layers;
  int micro_batches;
  std::vector<int> in_flight;
  std::vector<std::string> orders = {};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{5}, 1, {1}},
      {{5}, 4, {1}},
      {{5}, 4, {4}},                    // GPipe on one stage
      {{3, 2}, 5, {5, 5}},              // GPipe
      {{1, 4}, 5, {2, 1}},              // 1F1B
      {{4, 1}, 5, {4, 2}},              // eager
      {{4, 1}, 5, {1, 1}},              // one at a time
      {{1, 2, 1, 1}, 6, {6, 6, 6, 6}},  // GPipe
      {{2, 1, 1, 1}, 6, {4, 3, 2, 1}},  // 1F1B
      {{1, 1, 1, 2}, 6, {6, 5, 3, 1}},  // eager
      {{1, 1, 1, 2}, 2, {2, 2, 2, 1}},  // fewer micro-batches than stages
      // Split backwards: right away, as late as can be, and as greedy schedules have them.
      {{5}, 3, {1}, {"F0 B0 W0 F1 B1 W1 F2 B2 W2"}},
      {{5}, 3, {3}, {"F0 F1 F2 B0 B1 B2 W0 W1 W2"}},
      {{3, 2},
       4,
       {3, 3},
       {"F0 F1 F2 B0 W0 F3 B1 B2 W1 W2 B3 W3", "F0 B0 F1 B1 W0 F2 B2 W1 F3 W2 B3 W3"}},
      {{1, 1, 1, 2},
       5,
       {4, 4, 4, 2},
       {"F0 F1 F2 F3 B0 W0 F4 B1 B2 W1 W2 B3 W3 B4 W4",
        "F0 F1 F2 B0 F3 W0 B1 F4 B2 B3 W1 W2 W3 B4 W4",
        "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 F4 W2 B4 W3 W4",
        "F0 B0 F1 W0 B1 W1 F2 B2 W2 F3 B3 F4 W3 B4 W4"}},
  };
  return all;
}

std::string text_of(const PipelineOptions& o) {
  std::string text = "layers";
  for (const int n : o.layers) text += " " + std::to_string(n);
  text += ", K";
  for (const int k : o.in_flight) text += " " + std::to_string(k);
  return text + (o.tied ? ", tied" : "") + (o.recompute ? ", recompute" : "") + ", seed " +
         std::to_string(o.seed);
}

TEST(PipelineStep, any_cut_and_schedule_have_the_bits_of_one_stage) {
  for (const Case& c : cases()) {
    for (const bool tied : {false, true}) {
      for (const bool recompute : {false, true}) {
        const PipelineOptions options = {c.layers, c.micro_batches, c.in_flight, tied, recompute,
                                         0,        c.orders};
        SCOPED_TRACE(text_of(options));
        World world(options);
        world.pipeline.network.send_time = milliseconds(300);
        world.pipeline.network.latency = milliseconds(700);
        world.run_steps(1);
        expect_same(world.pipeline.outcome, run_single(options, 1));
        EXPECT_EQ(world.pipeline.network.early(), 0) << "a receive was posted too late";
        EXPECT_EQ(world.pipeline.network.waiting(), 0u);
      }
    }
  }
}

TEST(PipelineStep, delays_change_no_bit_over_three_steps) {
  for (const bool recompute : {false, true}) {
    PipelineOptions options = {{1, 1, 2, 1}, 6, {5, 3, 2, 1}, true, recompute, 0};
    const Outcome reference = run_single(options, 3);
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      options.seed = seed;
      SCOPED_TRACE(text_of(options));
      World world(options, 1);
      world.pipeline.network.send_time = milliseconds(500);
      world.pipeline.network.latency = seconds(3);
      world.pipeline.tokens.delay = seconds(9);
      world.run_steps(3);
      expect_same(world.pipeline.outcome, reference);
      EXPECT_EQ(world.pipeline.network.early(), 0) << "a receive was posted too late";
      if (HasFailure()) return;
    }
  }
}

TEST(PipelineStep, bf16_travels_in_two_bytes_an_element_and_keeps_the_bits) {
  PipelineOptions options = {{1, 2, 1}, 4, {3, 2, 1}, true, true, 0};
  options.precision = Precision::kBf16;
  EXPECT_EQ(PlainBoundary(options.precision).wire_bytes_max(Op::kSendGradient, 0, 100), 200u);
  World world(options);
  world.run_steps(2);
  expect_same(world.pipeline.outcome, run_single(options, 2));
  options.precision = Precision::kFp32;
  EXPECT_NE(world.pipeline.outcome.losses, run_single(options, 2).losses);
}

// Forward 1 s, backward 2 s, messages free, two stages, 1F1B with K = 2, 1.
//   stage 0   F0 0-1   F1 1-2            B0 4-6   B1 7-9
//   stage 1            F0 1-2   B0 2-4   F1 4-5   B1 5-7
TEST(PipelineStep, times_of_1f1b_are_those_of_the_closed_form) {
  World world({{1, 1}, 2, {2, 1}, false, false, 0});
  world.run_steps(1);
  const auto expect = [&](std::size_t cell, Op op, int micro_batch, double start, double end) {
    const InstructionTimes time = world.time_of(cell, op, micro_batch);
    EXPECT_NEAR(time.start.value(), start, 0.01) << cell << name_of(op) << micro_batch;
    EXPECT_NEAR(time.end.value(), end, 0.01) << cell << name_of(op) << micro_batch;
  };
  expect(0, Op::kForward, 0, 0, 1);
  expect(0, Op::kForward, 1, 1, 2);
  expect(1, Op::kForward, 0, 1, 2);
  expect(1, Op::kBackward, 0, 2, 4);
  expect(1, Op::kForward, 1, 4, 5);
  expect(1, Op::kBackward, 1, 5, 7);
  expect(0, Op::kBackward, 0, 4, 6);
  expect(0, Op::kBackward, 1, 7, 9);
}

// GPipe, two stages, a message holds its link for 1 s. Activations leave while the next forward
// runs, so stage 1 forwards without a gap: F0 2-3, F1 3-4, F2 4-5. Were each message waited for
// before the next forward, F2 of stage 0 would end at 5, not 3.
TEST(PipelineStep, messages_travel_while_the_next_micro_batch_computes) {
  World world({{1, 1}, 3, {3, 3}, false, false, 0});
  world.pipeline.network.send_time = seconds(1);
  world.run_steps(1);
  EXPECT_NEAR(world.time_of(0, Op::kForward, 2).end.value(), 3, 0.01);
  for (int m = 0; m < 3; ++m) {
    EXPECT_NEAR(world.time_of(0, Op::kSendActivation, m).start.value(), 1 + m, 0.01);
    EXPECT_NEAR(world.time_of(1, Op::kForward, m).start.value(), 2 + m, 0.01);
  }
}

// Three stages, K = 4, 3, 1, twelve micro-batches. The middle one has K = 3 micro-batches of
// storage, and at most 4 + 3 + 3 + 4 message buffers by the table in the header.
TEST(PipelineStep, storage_is_bounded_by_k_and_reused_from_step_to_step) {
  for (const bool recompute : {false, true}) {
    World world({{1, 1, 1}, 12, {4, 3, 1}, true, recompute, 0});
    world.pipeline.network.send_time = milliseconds(200);
    world.pipeline.network.latency = seconds(2);
    const StageStorage& storage = *world.pipeline.cells[1]->storage;
    world.pipeline.start(0);
    EXPECT_EQ(storage.messages_made(), 7u) << "4 + 3 receives are posted at the start";
    EXPECT_EQ(world.pipeline.tokens.requests, 7) << "K + 1 by the first and by the last stage";
    while (!world.pipeline.all_done()) ASSERT_TRUE(world.loop.step());
    const std::size_t wires = storage.messages_made();
    EXPECT_EQ(storage.micro_batches_made(), recompute ? 1u : 3u);
    EXPECT_LE(wires, 14u);
    world.pipeline.collect();
    world.pipeline.start(1);
    while (!world.pipeline.all_done()) ASSERT_TRUE(world.loop.step());
    EXPECT_EQ(storage.messages_made(), wires);
    EXPECT_EQ(storage.micro_batches_made(), recompute ? 1u : 3u);
  }
}

// Each order of a greedy schedule is what the compute lane runs, in simulated time. Forward, input
// gradient and weight gradient 1 s each, messages free.
//   stage 0   F0 0-1   F1 1-2   idle     B0 3-4   W0 4-5   B1 5-6   W1 6-7
//   stage 1            F0 1-2   B0 2-3   F1 3-4   B1 4-5   W0 5-6   W1 6-7
TEST(PipelineStep, times_of_a_split_backward_are_those_of_its_order) {
  World world({{1, 1}, 2, {2, 2}, false, false, 0, {"F0 F1 B0 W0 B1 W1", "F0 B0 F1 B1 W0 W1"}});
  world.run_steps(1);
  const auto expect = [&](std::size_t cell, Op op, int micro_batch, double start) {
    const InstructionTimes time = world.time_of(cell, op, micro_batch);
    EXPECT_NEAR(time.start.value(), start, 0.01) << cell << name_of(op) << micro_batch;
    EXPECT_NEAR(time.end.value(), start + 1, 0.01) << cell << name_of(op) << micro_batch;
  };
  expect(1, Op::kBackwardInput, 0, 2);
  expect(0, Op::kBackwardInput, 0, 3);
  expect(0, Op::kBackwardWeight, 0, 4);
  expect(1, Op::kBackwardInput, 1, 4);
  expect(0, Op::kBackwardInput, 1, 5);
  expect(1, Op::kBackwardWeight, 0, 5);
  expect(1, Op::kBackwardWeight, 1, 6);
  expect(0, Op::kBackwardWeight, 1, 6);
}

// Stage 0 holds F0 to F2 at once, its cap; recomputing it holds what is between B and W, two, and
// one that runs forward: F3 runs when B0 and B1 wait for their W.
TEST(PipelineStep, a_split_backward_keeps_storage_until_the_weight_gradient) {
  for (const bool recompute : {false, true}) {
    World world({{1, 1},
                 5,
                 {4, 2},
                 true,
                 recompute,
                 0,
                 {"F0 F1 F2 B0 B1 F3 W0 W1 B2 W2 F4 B3 W3 B4 W4",
                  "F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4"}});
    const StageStorage& storage = *world.pipeline.cells[0]->storage;
    world.run_steps(2);
    EXPECT_EQ(storage.micro_batches_made(), recompute ? 3u : 4u);
    // Messages go by forwards minus input gradients, 3 at most: as many each way.
    EXPECT_LE(storage.messages_made(), 6u);
  }
}

TEST(PipelineStep, a_validation_of_a_split_backward_only_runs_forward) {
  const PipelineOptions options = {
      {1, 1}, 2, {2, 2}, true, false, 0, {"F0 F1 B0 W0 B1 W1", "F0 B0 F1 B1 W0 W1"}};
  World world(options);
  for (auto& cell : world.pipeline.cells) {
    std::ranges::fill(cell->stage.gradients(), 0.25f);
    cell->context.hooks = {};
    cell->step = std::make_unique<PipelineStep>(
        cell->context, PipelineStep::Options{.step = 0, .is_validation = true});
  }
  int done = 0;
  std::vector<float> losses;
  for (auto& cell : world.pipeline.cells) {
    cell->step->start([&](Result<PipelineResult> result) {
      ASSERT_TRUE(result) << result.error().text();
      ++done;
      losses.insert(losses.end(), result->losses.begin(), result->losses.end());
    });
  }
  while (done < 2) ASSERT_TRUE(world.loop.step()) << "nothing more happens";
  EXPECT_TRUE(same_floats(losses, run_single(options, 1).losses[0]));
  for (auto& cell : world.pipeline.cells) {
    EXPECT_EQ(std::ranges::count(cell->stage.gradients(), 0.25f),
              std::ssize(cell->stage.gradients()));
  }
}

// K = 2, 1; a message arrives at once, but its memory is free 100 s later only. Stage 0 has two
// buffers for activations: F0 0-1 and F1 1-2 fill them, B0 is 4-6, and F2 must wait for the `sent`
// of the first at 1 + 100. Meanwhile the second has not begun to leave: a lane is in order.
TEST(PipelineStep, unsent_results_are_never_more_than_k) {
  World world({{1, 1}, 4, {2, 1}, false, false, 0});
  world.pipeline.network.sent_lag = seconds(100);
  world.run_steps(1);
  EXPECT_NEAR(world.time_of(0, Op::kBackward, 0).end.value(), 6, 0.01);
  EXPECT_NEAR(world.time_of(0, Op::kForward, 2).start.value(), 101, 0.01);
  EXPECT_NEAR(world.time_of(0, Op::kSendActivation, 1).start.value(), 101, 0.01);
}

// What a list of several pipelines has besides: REDUCE between the last BWD and PREPARE.
TEST(PipelineStep, reduce_finds_the_whole_gradient_and_what_it_leaves_is_used) {
  const PipelineOptions options = {{2}, 3, {1}, true, false, 0};
  World world(options);
  auto& list = world.pipeline.schedule.tasklets[0].instructions;
  ASSERT_EQ(list.size(), 8u);  // three times FWD and BWD, PREPARE, UPDATE
  list.insert(list.begin() + 6,
              {.op = Op::kReduce, .micro_batch = -1, .peer = -1, .after = {5, -1}});
  list[7].after[0] = 6;
  list[8].after[0] = 7;
  int reductions = 0;
  ModelStage& stage = world.pipeline.cells[0]->stage;
  const Outcome reference = run_single(options, 1);
  world.pipeline.cells[0]->context.hooks.reduce = [&](PipelineHooks::Done done) {
    ++reductions;
    for (const ModelParameter& parameter : stage.parameters()) {
      EXPECT_TRUE(same_floats(stage.gradient(parameter), reference.gradients.at(parameter.name)[0]))
          << parameter.name;
    }
    std::ranges::fill(stage.gradients(), 0.5f);
    done({});
  };
  world.run_steps(1);
  EXPECT_EQ(reductions, 1);
  EXPECT_EQ(world.pipeline.outcome.gradients.at("wpe.weight")[0][0], 0.5f);
}

TEST(PipelineStep, hooks_run_in_list_order_and_hold_up_what_is_after_them) {
  World world({{1, 1}, 2, {2, 1}, true, false, 0});
  std::vector<std::string> calls;
  auto& hooks = world.pipeline.cells[1]->context.hooks;
  hooks.prepare = [&](PipelineHooks::Done done) {
    calls.push_back("prepare");
    world.loop.after(seconds(100), [&, done = std::move(done)]() mutable {
      calls.push_back("committed");
      done({});
    });
  };
  hooks.tied_reduce = [&, inner = hooks.tied_reduce](PipelineHooks::Done done) {
    calls.push_back("tied");
    inner(std::move(done));
  };
  hooks.update = [&, inner = hooks.update](PipelineHooks::Done done) {
    calls.push_back("update");
    inner(std::move(done));
  };
  world.run_steps(1);
  EXPECT_EQ(calls, (std::vector<std::string>{"tied", "prepare", "committed", "update"}));
  // The last backward of stage 0 ends at 9 s, both ends of the tied embedding meet there.
  EXPECT_NEAR(world.time_of(1, Op::kTiedReduce, -1).end.value(), 9, 0.01);
  EXPECT_NEAR(world.time_of(1, Op::kPrepare, -1).end.value(), 109, 0.01);
}

}  // namespace
}  // namespace longhaul
