#include "planner/pipeline_time.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/rng.h"
#include "netsim/cluster_file.h"
#include "netsim/step_simulation.h"
#include "planner/dtfm_objective.h"
#include "planner/policies.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

std::vector<StageTime> equal_stages(int count, double forward, double backward) {
  return std::vector<StageTime>(static_cast<std::size_t>(count), {forward, backward});
}

TEST(PipelineTime, fill_is_one_micro_batch_through_all_stages_and_back) {
  // Three stages of 1 + 2, two hops of 0.5 + 0.25 each way: 3 x 3 + 2 x 1.5 = 12.
  const std::vector<HopTime> hops(2, {0.5, 0.25, 0.5, 0.25});
  EXPECT_DOUBLE_EQ(pipeline_fill(equal_stages(3, 1, 2), hops), 12);
}

TEST(PipelineTime, one_forward_one_backward_pays_half_a_round_trip_a_micro_batch) {
  // Two stages of f = 1, b = w = 2, that is t = 3; latency 3 and serialisation 0.05 each way, so
  // RTT = 6.1. K = (2, 1): the cycle through both stages has (3 + 3 + 6.1) / (2 - 1 + 1) = 6.05.
  const std::vector<HopTime> hops = {{0.05, 3, 0.05, 3}};
  EXPECT_NEAR(pipeline_period(equal_stages(2, 1, 2), hops, std::vector{2, 1}, 32), 6.05, 1e-12);
  // K_0 = 4 hides the trip: (12.1) / 4 = 3.025; K_0 = 5 leaves the stage's own 3.
  EXPECT_NEAR(pipeline_period(equal_stages(2, 1, 2), hops, std::vector{4, 1}, 32), 3.025, 1e-12);
  EXPECT_NEAR(pipeline_period(equal_stages(2, 1, 2), hops, std::vector{5, 1}, 32), 3, 1e-12);
}

TEST(PipelineTime, serialisation_bounds_the_period) {
  const std::vector<HopTime> hops = {{7, 0, 1, 0}};
  EXPECT_DOUBLE_EQ(pipeline_period(equal_stages(2, 1, 2), hops, std::vector{32, 32}, 32), 7);
}

TEST(PipelineTime, recursion_gives_the_published_makespans) {
  // P = 8, M = 32, f = 1, b + w = 2, serialisation 0.05, one hop in the middle of latency L. From
  // an independent event simulation: GPipe 117.7 (L = 0) and 123.7 (L = 3), 1F1B 120.4 and 209.4.
  for (const auto& [latency, gpipe, one_f_one_b] :
       {std::tuple{0.0, 117.7, 120.4}, std::tuple{3.0, 123.7, 209.4}}) {
    std::vector<HopTime> hops(7, {0.05, 0, 0.05, 0});
    hops[3].forward_latency = hops[3].backward_latency = latency;
    const std::vector<StageTime> stages = equal_stages(8, 1, 2);
    EXPECT_NEAR(pipeline_recursion(stages, hops, std::vector<int>(8, 32), 32).front(), gpipe, 1e-9);
    EXPECT_NEAR(pipeline_recursion(stages, hops, std::vector{8, 7, 6, 5, 4, 3, 2, 1}, 32).front(),
                one_f_one_b, 1e-9);
  }
}

struct RandomPipeline {
  std::vector<StageTime> stages;
  std::vector<HopTime> hops;
  std::vector<int> in_flight;
  int micro_batches = 1;
};

/// Sizes up to 6 stages and 12 micro-batches; a valid random in-flight vector.
RandomPipeline random_pipeline(Rng& rng) {
  RandomPipeline random;
  const std::size_t stages = 1 + rng.index(6);
  random.micro_batches = 1 + static_cast<int>(rng.below(12));
  for (std::size_t i = 0; i < stages; ++i) {
    random.stages.push_back({0.1 + rng.uniform(), 0.1 + 2 * rng.uniform()});
    random.in_flight.push_back(
        1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(random.micro_batches))));
    if (i > 0)
      random.hops.push_back({rng.uniform(), 3 * rng.uniform(), rng.uniform(), 3 * rng.uniform()});
  }
  std::sort(random.in_flight.rbegin(), random.in_flight.rend());
  return random;
}

TEST(PipelineTime, gpipe_closed_form_equals_the_recursion) {
  Rng rng("gpipe closed form", 1);
  for (int i = 0; i < 300; ++i) {
    const RandomPipeline random = random_pipeline(rng);
    const std::vector<int> all(random.stages.size(), random.micro_batches);
    const double exact =
        pipeline_recursion(random.stages, random.hops, all, random.micro_batches).front();
    EXPECT_NEAR(pipeline_closed_form(random.stages, random.hops, all, random.micro_batches), exact,
                1e-9 * exact);
  }
}

TEST(PipelineTime, period_is_the_growth_of_the_recursion) {
  // Far from both ends every further micro-batch costs one period. Growth is periodic with at most
  // K_0 micro-batches, so over 400 of them it is off by less than K_0 / 400 periods.
  Rng rng("in-order period", 1);
  for (int i = 0; i < 100; ++i) {
    const RandomPipeline random = random_pipeline(rng);
    const auto end = [&](int micro_batches) {
      return pipeline_recursion(random.stages, random.hops, random.in_flight, micro_batches)
          .front();
    };
    const double period = pipeline_period(random.stages, random.hops, random.in_flight, 800);
    EXPECT_NEAR((end(800) - end(400)) / 400, period, period * random.in_flight.front() / 400);
  }
}

/// When a tasklet ends its last backward in a simulated step.
double backward_end(const StepResult& step, std::size_t cell) {
  const TaskletTimes& times = step.tasklets[cell];
  return (times.compute + times.transfer + times.bubble).value();
}

TEST(PipelineTime, simulated_in_order_schedules_equal_the_recursion) {
  // The same pipeline as a topology: one site a stage, whose device has its own speed, and links
  // with their own latency and rate each way. Three layers a stage so that b = 2 f exactly.
  Rng rng("simulated pipeline", 1);
  for (int i = 0; i < 200; ++i) {
    const auto stages = static_cast<int>(1 + rng.below(6));
    const auto micro_batches = static_cast<int>(1 + rng.below(12));
    std::vector<int> sites;
    for (int s = 0; s < stages; ++s) sites.push_back(s);
    Topology topology = unit_topology(sites);
    const Job job = unit_job(stages, micro_batches);
    Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, stages, {micro_batches});
    for (int& depth : plan.in_flight)
      depth = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(micro_batches)));
    std::sort(plan.in_flight.rbegin(), plan.in_flight.rend());

    std::vector<StageTime> stage_times;
    std::vector<HopTime> hop_times;
    const std::vector<StageShape> shapes = stage_shapes(plan.layers);
    for (int s = 0; s < stages; ++s) {
      DeviceKind& kind = topology.kinds[static_cast<std::size_t>(s)];
      kind.rate.fill(flops_per_second(4 + 40 * rng.uniform()));
      kind.overhead = Seconds(0.1 * rng.uniform());
      const StageWork work = stage_work(job.model, shapes[static_cast<std::size_t>(s)], 1);
      stage_times.push_back({compute_time(kind, job.precision, work.forward).value(),
                             compute_time(kind, job.precision, work.backward).value()});
      if (s == 0) continue;
      HopTime hop;
      for (const bool forward : {true, false}) {
        Link& link = forward ? link_of(topology, s - 1, s) : link_of(topology, s, s - 1);
        link.rate = bytes_per_second(4 / (0.01 + rng.uniform()));  // 4 bytes a boundary tensor
        link.latency = Seconds(3 * rng.uniform());
        (forward ? hop.forward_send : hop.backward_send) = (Bytes(4) / link.rate).value();
        (forward ? hop.forward_latency : hop.backward_latency) = link.latency.value();
      }
      hop_times.push_back(hop);
    }
    const std::vector<double> exact =
        pipeline_recursion(stage_times, hop_times, plan.in_flight, micro_batches);
    const Result<StepResult> step = simulate_step(topology, job, plan);
    ASSERT_TRUE(step) << step.error().text();
    for (std::size_t s = 0; s < exact.size(); ++s)
      EXPECT_NEAR(backward_end(*step, s), exact[s], 1e-9);
  }
}

/// One micro-batch, no compute, wire factor 1, no window: what is left is DT-FM's pipeline term.
struct DtfmCase {
  Topology topology;
  Job job;
  Plan plan;
  DtfmInstance instance;
};

DtfmCase dtfm_case(const std::string& cluster, int stages, int pipelines, Rng& rng) {
  DtfmCase out;
  out.topology = *load_cluster(LONGHAUL_SOURCE_DIR "/configs/clusters/" + cluster);
  for (DeviceKind& kind : out.topology.kinds) {
    kind.rate.fill(FlopsPerSecond::infinity());
    kind.overhead = Seconds(0);
    kind.memory_rate = BytesPerSecond::infinity();
  }
  out.job = *load_job(LONGHAUL_SOURCE_DIR "/configs/jobs/gpt3-xl.yaml");
  out.job.global_batch = 61 * pipelines;
  std::vector<int> devices;
  for (int d = 0; d < out.topology.device_count(); ++d) devices.push_back(d);
  rng.shuffle(std::span(devices));
  devices.resize(static_cast<std::size_t>(stages * pipelines));
  out.instance = dtfm_instance(out.topology, out.job, devices, stages);
  out.plan.layers.assign(static_cast<std::size_t>(stages), out.job.model.layers / stages);
  for (int d = 0; d < pipelines; ++d) {
    const auto first = devices.begin() + d * stages;
    out.plan.devices.emplace_back(first, first + stages);
    out.plan.micro_batches.push_back(1);
  }
  out.plan.micro_batch = 61;
  out.plan.in_flight.assign(static_cast<std::size_t>(stages), 1);
  return out;
}

TEST(PipelineTime, one_micro_batch_without_compute_costs_twice_the_dtfm_path) {
  Rng rng("dtfm pipeline", 1);
  for (const char* cluster :
       {"dtfm-1-datacenter.yaml", "dtfm-2-spot.yaml", "dtfm-3-multi-datacenter.yaml",
        "dtfm-4-regional.yaml", "dtfm-5-worldwide.yaml"}) {
    for (int i = 0; i < 5; ++i) {
      const DtfmCase one = dtfm_case(cluster, 8, 1, rng);
      DtfmPartition partition;
      for (int s = 0; s < 8; ++s) partition.push_back({s});
      const double pipeline_s = evaluate_dtfm_in_order(one.instance, partition).pipeline_s;
      const Result<StepResult> step = simulate_step(one.topology, one.job, one.plan);
      ASSERT_TRUE(step) << step.error().text();
      EXPECT_NEAR(backward_end(*step, 0), pipeline_s, 1e-9) << cluster;
    }
  }
}

TEST(PipelineTime, several_pipelines_cost_the_slowest_and_never_more_than_the_dtfm_path) {
  constexpr int kStages = 8;
  constexpr int kPipelines = 8;
  Rng rng("dtfm pipelines", 1);
  for (const char* cluster : {"dtfm-2-spot.yaml", "dtfm-5-worldwide.yaml"}) {
    for (int i = 0; i < 5; ++i) {
      DtfmCase many = dtfm_case(cluster, kStages, kPipelines, rng);
      // Groups in the order given, pipelines by DT-FM's bottleneck matchings.
      DtfmPartition groups(kStages);
      for (int n = 0; n < kStages * kPipelines; ++n) {
        groups[static_cast<std::size_t>(n % kStages)].push_back(n);
      }
      const std::vector<int> path = {0, 1, 2, 3, 4, 5, 6, 7};
      const DtfmPartition pipelines = arrange_dtfm(many.instance, groups, path);
      const std::vector<std::vector<int>> drawn = many.plan.devices;
      double slowest = 0;
      for (std::size_t d = 0; d < kPipelines; ++d) {
        double sum = 0;
        for (std::size_t s = 0; s < kStages; ++s) {
          const int device = pipelines[s][d];
          many.plan.devices[d][s] = drawn[static_cast<std::size_t>(device / kStages)]
                                         [static_cast<std::size_t>(device % kStages)];
          if (s == 0) continue;
          const int previous = pipelines[s - 1][d];
          sum += many.instance.activation_hop_s(previous, device) +
                 many.instance.activation_hop_s(device, previous);
        }
        slowest = std::max(slowest, sum);
      }
      const Result<StepResult> step = simulate_step(many.topology, many.job, many.plan);
      ASSERT_TRUE(step) << step.error().text();
      double last = 0;
      for (std::size_t d = 0; d < kPipelines; ++d)
        last = std::max(last, backward_end(*step, d * kStages));
      EXPECT_NEAR(last, slowest, 1e-9) << cluster;
      EXPECT_LE(last, evaluate_dtfm_in_order(many.instance, pipelines).pipeline_s + 1e-9)
          << cluster;
    }
  }
}

}  // namespace
}  // namespace longhaul
