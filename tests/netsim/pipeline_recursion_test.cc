// The simulator against an independent answer: the times of one pipeline as the least solution of
// max-plus inequalities over all its instructions, found by repeating them until nothing changes,
// in whole picoseconds. It knows no lists, lanes, events or flows: only what must come before what.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/rng.h"
#include "netsim/step_simulation.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::unit_job;
using fixtures::unit_topology;
using Ticks = std::int64_t;  // picoseconds

/// One pipeline, every time in whole picoseconds.
struct Instance {
  int stages = 0;
  int micro_batches = 0;
  bool recompute = false;
  std::vector<int> layers;
  std::vector<int> in_flight;
  std::vector<Ticks> flop, overhead;        // by stage: of one FLOP, of one pass
  std::vector<Ticks> wire_act, wire_grad;   // by hop: serialisation of an activation, a gradient
  std::vector<std::vector<Ticks>> latency;  // by pair of stages, each at a site of its own
  int coordinator = 0;                      // the stage at whose site it is

  // The unit model: 16 FLOP a layer, 2 the head; backward twice that; recompute without the head.
  Ticks head(int i) const { return i + 1 == stages ? 2 : 0; }
  Ticks pass(int i, Ticks work) const { return at(flop, i) * work + at(overhead, i); }
  Ticks forward(int i) const { return pass(i, 16 * at(layers, i) + head(i)); }
  Ticks backward(int i) const { return pass(i, 2 * (16 * at(layers, i) + head(i))); }
  Ticks again(int i) const { return recompute ? pass(i, 16 * at(layers, i)) : 0; }

  template <class T>
  static const T& at(const std::vector<T>& values, int i) {
    return values[static_cast<std::size_t>(i)];
  }
  Ticks between(int from, int to) const { return at(at(latency, from), to); }
};

/// Ends of everything, by stage and micro-batch.
struct Ends {
  std::array<std::array<Ticks, 8>, 6> forward{}, again{}, backward{}, act_left{}, grad_left{};
};

Ends least_solution(const Instance& in) {
  Ends ends;
  bool changed = true;
  const auto raise = [&](Ticks& end, Ticks value) {
    if (value <= end) return;
    end = value;
    changed = true;
  };
  while (changed) {
    changed = false;
    for (int stage = 0; stage < in.stages; ++stage) {
      const auto i = static_cast<std::size_t>(stage);
      const int k = Instance::at(in.in_flight, stage);
      for (int micro_batch = 0; micro_batch < in.micro_batches; ++micro_batch) {
        const auto m = static_cast<std::size_t>(micro_batch);
        // Forward m: after forward m - 1 and, since at most K are in flight, after backward m - K.
        Ticks start = 0;
        if (m > 0) start = std::max(start, ends.forward[i][m - 1]);
        if (micro_batch >= k)
          start = std::max(start, ends.backward[i][m - static_cast<std::size_t>(k)]);
        if (i > 0) start = std::max(start, ends.act_left[i - 1][m] + in.between(stage - 1, stage));
        raise(ends.forward[i][m], start + in.forward(stage));
        // Backward m: after backward m - 1 and after as many forwards as may be in flight.
        start =
            ends.forward[i]
                        [static_cast<std::size_t>(std::min(micro_batch + k, in.micro_batches) - 1)];
        if (m > 0) start = std::max(start, ends.backward[i][m - 1]);
        raise(ends.again[i][m], start + in.again(stage));
        start = ends.again[i][m];
        if (stage + 1 < in.stages) {
          start = std::max(start, ends.grad_left[i + 1][m] + in.between(stage + 1, stage));
        }
        raise(ends.backward[i][m], start + in.backward(stage));
        // Messages to one peer go one after another.
        if (stage + 1 < in.stages) {
          const Ticks ready = std::max(ends.forward[i][m], m > 0 ? ends.act_left[i][m - 1] : 0);
          raise(ends.act_left[i][m], ready + Instance::at(in.wire_act, stage));
        }
        if (i > 0) {
          const Ticks ready = std::max(ends.backward[i][m], m > 0 ? ends.grad_left[i][m - 1] : 0);
          raise(ends.grad_left[i][m], ready + Instance::at(in.wire_grad, stage - 1));
        }
      }
    }
  }
  return ends;
}

Instance random_instance(Rng& rng) {
  const auto ticks = [&](std::uint64_t bound) { return static_cast<Ticks>(rng.below(bound)); };
  Instance in;
  in.stages = 1 + static_cast<int>(rng.below(6));
  in.micro_batches = 1 + static_cast<int>(rng.below(8));
  in.recompute = rng.chance(0.3);
  in.coordinator = static_cast<int>(rng.index(static_cast<std::size_t>(in.stages)));
  // Non-increasing along the pipeline, at least 1.
  int deepest = in.micro_batches;
  for (int i = 0; i < in.stages; ++i) {
    in.layers.push_back(1 + static_cast<int>(rng.below(3)));
    deepest = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(deepest)));
    in.in_flight.push_back(deepest);
    in.flop.push_back(1 + ticks(10'000'000'000));  // up to 0.01 s
    in.overhead.push_back(ticks(100'000'000'000));
  }
  for (int i = 0; i + 1 < in.stages; ++i) {
    in.wire_act.push_back(1 + ticks(1'000'000'000'000));
    in.wire_grad.push_back(1 + ticks(1'000'000'000'000));
  }
  in.latency.resize(static_cast<std::size_t>(in.stages));
  for (auto& row : in.latency) {
    for (int i = 0; i < in.stages; ++i) row.push_back(ticks(500'000'000'000));
  }
  return in;
}

Seconds seconds_of(Ticks ticks) {
  return seconds(static_cast<double>(ticks) / 1e12);
}

StepResult simulated(const Instance& in) {
  std::vector<int> sites;
  Plan plan;
  plan.devices.emplace_back();
  int layers = 0;
  for (int i = 0; i < in.stages; ++i) {
    sites.push_back(i);
    plan.devices[0].push_back(i);
    layers += Instance::at(in.layers, i);
  }
  plan.layers = in.layers;
  plan.micro_batches = {in.micro_batches};
  plan.in_flight = in.in_flight;
  plan.coordinator_site = in.coordinator;
  Topology topology = unit_topology(sites);
  for (int i = 0; i < in.stages; ++i) {
    DeviceKind& kind = topology.kinds[static_cast<std::size_t>(i)];
    kind.rate.fill(flops(1) / seconds_of(Instance::at(in.flop, i)));
    kind.overhead = seconds_of(Instance::at(in.overhead, i));
    for (int j = 0; j < in.stages; ++j) {
      link_of(topology, i, j).latency = seconds_of(in.between(i, j));
    }
  }
  for (int i = 0; i + 1 < in.stages; ++i) {
    // A boundary tensor of the unit model has 4 bytes.
    link_of(topology, i, i + 1).rate = bytes(4) / seconds_of(Instance::at(in.wire_act, i));
    link_of(topology, i + 1, i).rate = bytes(4) / seconds_of(Instance::at(in.wire_grad, i));
  }
  Job job = unit_job(layers, in.micro_batches);
  job.recompute = in.recompute ? Recompute::kYes : Recompute::kNo;
  return simulate_step(topology, job, plan, {.timeline = true}).value();
}

TEST(PipelineRecursion, the_simulator_agrees_on_random_pipelines) {
  constexpr std::uint64_t kInstances = 300;
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= kInstances; ++seed) {
    Rng rng("pipeline recursion test", seed);
    const Instance in = random_instance(rng);
    SCOPED_TRACE(fmt::format("seed {}: {} stages, {} micro-batches, K {}", seed, in.stages,
                             in.micro_batches, in.in_flight[0]));
    const Ends ends = least_solution(in);
    const StepResult result = simulated(in);
    for (const TimelineSlice& slice : result.timeline) {
      if (slice.micro_batch < 0) continue;
      const auto& table = slice.op == Op::kForward          ? ends.forward
                          : slice.op == Op::kBackward       ? ends.backward
                          : slice.op == Op::kRecompute      ? ends.again
                          : slice.op == Op::kSendActivation ? ends.act_left
                                                            : ends.grad_left;
      const Ticks expected =
          table[static_cast<std::size_t>(slice.cell)][static_cast<std::size_t>(slice.micro_batch)];
      ASSERT_NEAR(slice.end.seconds().value(), seconds_of(expected).value(), 1e-9)
          << name_of(slice.op) << " " << slice.micro_batch << " of stage " << slice.cell;
      ++checked;
    }
    // Commit barrier: the last PREPARE at the coordinator, then the farthest commit (no updates).
    Ticks prepared = 0;
    Ticks committed = 0;
    for (int i = 0; i < in.stages; ++i) {
      const Ticks end = ends.backward[static_cast<std::size_t>(i)]
                                     [static_cast<std::size_t>(in.micro_batches) - 1];
      prepared = std::max(prepared, end + in.between(i, in.coordinator));
      committed = std::max(committed, in.between(in.coordinator, i));
    }
    ASSERT_NEAR(result.step.value(), seconds_of(prepared + committed).value(), 1e-9);
  }
  EXPECT_GT(checked, 5000);
}

}  // namespace
}  // namespace longhaul
