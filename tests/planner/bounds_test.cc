#include "planner/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "core/rng.h"
#include "netsim/cluster_file.h"
#include "netsim/step_simulation.h"
#include "planner/cost_model.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

Topology shipped_cluster(const std::string& name) {
  return *load_cluster(LONGHAUL_SOURCE_DIR "/configs/clusters/" + name + ".yaml");
}
Job shipped_job(const std::string& name) {
  return *load_job(LONGHAUL_SOURCE_DIR "/configs/jobs/" + name + ".yaml");
}

int between(Rng& rng, int low, int high) {
  return low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1)));
}

/// Forwards run `ahead` of the input gradients, those `lag` ahead of the weight gradients.
StageOrder split_order(int count, int ahead, int lag) {
  StageOrder order;
  int weights = 0;
  for (int m = 0; m < std::min(ahead, count); ++m) order.push_back(Pass::kForward);
  for (int m = 0; m < count; ++m) {
    order.push_back(Pass::kBackwardInput);
    if (m >= lag) {
      order.push_back(Pass::kBackwardWeight);
      ++weights;
    }
    if (m + ahead < count) order.push_back(Pass::kForward);
  }
  for (; weights < count; ++weights) order.push_back(Pass::kBackwardWeight);
  return order;
}

/// A random schedule for a plan: 1F1B, eager, GPipe, or with a split backward.
void draw_schedule(Rng& rng, Plan& plan) {
  const int stages = plan.stages();
  const int most = *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end());
  plan.orders.clear();
  plan.family = ScheduleFamily::kOneForwardOneBackward;
  plan.in_flight = default_in_flight(plan.family, stages, most);
  const int extra = between(rng, 0, 8);
  switch (rng.below(4)) {
    case 0:
      return;
    case 1:
      for (int& depth : plan.in_flight) depth = std::min(depth + extra, most);
      return;
    case 2:
      plan.family = ScheduleFamily::kGpipe;
      plan.in_flight.assign(static_cast<std::size_t>(stages), most);
      return;
    default:
      plan.family = ScheduleFamily::kGreedy;
      for (int i = 0; i < stages; ++i) {
        plan.orders.push_back(split_order(most, stages - i + extra, between(rng, 0, 3)));
        plan.in_flight[static_cast<std::size_t>(i)] = peaks_of(plan.orders.back()).in_flight;
      }
  }
}

/// Each exchange equally sharded, with random shares, some of nothing, or a ring; or hierarchical
/// where the rules allow any.
void draw_exchanges(const Problem& problem, Rng& rng, Plan& plan) {
  plan.reductions = reductions_of(plan, problem.job());
  for (std::size_t i = 0; i < plan.reductions.size(); ++i) {
    Reduction& reduction = plan.reductions[i];
    const std::uint64_t dice = rng.below(problem.rules().any_all_reduce ? 4 : 3);
    if (dice == 1) {
      double sum = 0;
      for (const int device : reduction_devices(plan, static_cast<int>(i))) {
        const bool owns = rng.chance(0.6) || device == plan.devices.front().front();
        reduction.shares.push_back(owns ? rng.uniform() : 0);
        sum += reduction.shares.back();
      }
      for (double& share : reduction.shares) share /= sum;
      if (!(sum > 0)) reduction.shares.clear();
    } else if (dice > 1) {
      reduction.shape = dice == 2 ? ReduceShape::kRing : ReduceShape::kHierarchical;
    }
  }
}

/// A random plan of a random grid; any shares, or those that let all pipelines end together.
bool draw_plan(const Problem& problem, Rng& rng, Grid& grid, Plan& plan) {
  const auto devices = static_cast<int>(problem.usable().size());
  const Job& job = problem.job();
  grid.stages = between(rng, 1, std::min({devices, 8, job.model.layers}));
  grid.pipelines = between(rng, 1, devices / grid.stages);
  grid.micro_batch = 1 << rng.below(3);
  if (job.global_batch % grid.micro_batch != 0) return false;
  const auto batches = static_cast<int>(job.global_batch) / grid.micro_batch;
  if (batches < grid.pipelines) return false;
  Candidate candidate;
  candidate.cells = problem.usable();
  if (rng.chance(0.7)) rng.shuffle(std::span(candidate.cells));
  candidate.cells.resize(static_cast<std::size_t>(grid.stages * grid.pipelines));
  Evaluator evaluator(problem, grid);
  candidate.layers = evaluator.split_layers(candidate.cells);
  if (evaluator.evaluate(candidate) >= Evaluator::kOverflow) return false;
  plan = evaluator.finish(candidate);
  if (rng.chance(0.3)) {
    plan.micro_batches.assign(static_cast<std::size_t>(grid.pipelines), 1);
    for (int left = batches - grid.pipelines; left > 0; --left) {
      ++plan.micro_batches[rng.index(plan.micro_batches.size())];
    }
  }
  const Plan found = plan;
  draw_schedule(rng, plan);
  if (!check_memory(plan, problem.topology(), job)) plan = found;
  if (rng.chance(0.7)) draw_exchanges(problem, rng, plan);
  return check_memory(plan, problem.topology(), job).has_value();
}

void expect_below_the_simulation(const Topology& topology, const Job& job, Rng& rng, int plans,
                                 const PlanRules& rules = {}) {
  const Problem problem(topology, job, {}, {}, rules);
  const Bounds bounds(problem);
  for (int i = 0, tried = 0; i < 20 * plans && tried < plans; ++i) {
    Grid grid;
    Plan plan;
    if (!draw_plan(problem, rng, grid, plan)) continue;
    ++tried;
    const Result<StepResult> step = simulate_step(topology, job, plan);
    ASSERT_TRUE(step) << step.error().text();
    for (const Bound& bound : bounds.all(grid)) {
      EXPECT_LE(bound.seconds, step->step.value() * (1 + 1e-9))
          << topology.name << " " << grid.stages << " x " << grid.pipelines << " x "
          << grid.micro_batch << ": " << bound.name;
    }
  }
}

/// 2 to 12 devices of up to three kinds, one to three a node, in one to four sites; each direction
/// of a link its own; some links, uplinks and NICs shared, some without limit.
Topology random_topology(Rng& rng, int devices_max) {
  const int sites = between(rng, 1, 4);
  std::vector<int> site_of_node;
  for (int s = 0; s < sites; ++s) site_of_node.push_back(s);
  while (rng.chance(0.6) && site_of_node.size() < 6)
    site_of_node.push_back(between(rng, 0, sites - 1));
  Topology topology = unit_topology(site_of_node);
  topology.devices.clear();
  topology.kinds.clear();
  const auto rate = [&](double most) { return BytesPerSecond(most * (0.05 + rng.uniform())); };
  for (int k = 0; k < 3; ++k) {
    DeviceKind kind = unit_kind("kind-" + std::to_string(k));
    kind.rate.fill(flops_per_second(8 + 24 * rng.uniform()));
    kind.overhead = Seconds(rng.chance(0.5) ? 0.2 * rng.uniform() : 0);
    kind.memory_rate = BytesPerSecond(1000 + 20000 * rng.uniform());
    // A bucket a peer, and so little besides that it limits layers and depth.
    if (rng.chance(0.4)) {
      kind.memory = Bytes(kBucketBytes * between(rng, 0, 3) + 500 + 4000 * rng.uniform());
    }
    topology.kinds.push_back(kind);
  }
  const auto nodes = static_cast<int>(topology.nodes.size());
  for (int n = 0; n < nodes; ++n) {
    Node& node = topology.nodes[static_cast<std::size_t>(n)];
    if (rng.chance(0.5)) node.nic = rate(200);
    node.inside_rate = rate(1000);
    node.inside_latency = Seconds(0.01 * rng.uniform());
    const int here = between(rng, 1, 3);
    for (int d = 0; d < here && static_cast<int>(topology.devices.size()) < devices_max; ++d) {
      topology.devices.push_back(
          {node.name + "/" + std::to_string(d), n, node.site, between(rng, 0, 2)});
    }
  }
  for (Site& site : topology.sites) {
    if (rng.chance(0.3)) site.uplink = rate(100);
    if (rng.chance(0.3)) site.downlink = rate(100);
  }
  for (Link& link : topology.links) {
    link.latency = Seconds(rng.uniform());
    if (rng.chance(0.8)) link.rate = rate(100);
    if (rng.chance(0.3)) link.scope = LinkScope::kSitePair;
  }
  return topology;
}

Job random_job(Rng& rng, int layers_max, int batch_max) {
  Job job = unit_job(between(rng, 1, layers_max), between(rng, 1, batch_max), rng.chance(0.5));
  job.recompute = rng.chance(0.3) ? Recompute::kYes : Recompute::kNo;
  constexpr Codec codecs[] = {Codec::kNone, Codec::kBf16,      Codec::kInt8,
                              Codec::kInt6, Codec::kHadamard4, Codec::kAqInt3};
  job.gradients = codecs[rng.below(5)];
  job.activations = codecs[rng.below(6)];
  job.activations_auto = rng.chance(0.2);
  if (has_history(job.activations)) {
    job.history = {
        .memory = bytes(between(rng, 0, 64)), .disk = bytes(8), .samples = between(rng, 1, 40)};
  }
  if (rng.chance(0.2)) job.activation_gradients = codecs[rng.below(5)];
  job.model.vocabulary = between(rng, 1, 12);
  return job;
}

TEST(Bounds, none_is_above_a_simulated_step) {
  Rng rng("bounds", 1);
  for (const char* cluster : {"eight-cities", "ten-cities", "dtfm-1-datacenter", "dtfm-2-spot",
                              "dtfm-3-multi-datacenter", "dtfm-4-regional", "dtfm-5-worldwide"}) {
    expect_below_the_simulation(shipped_cluster(cluster), shipped_job("gpt3-xl"), rng, 12);
  }
  expect_below_the_simulation(shipped_cluster("eight-servers"), shipped_job("demo-gpt"), rng, 60);
}

TEST(Bounds, none_is_above_a_simulated_step_of_random_clusters) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Rng rng("bounds of random clusters", seed);
    const Topology topology = random_topology(rng, 12);
    const Job job = random_job(rng, 8, 24);
    expect_below_the_simulation(topology, job, rng, 10);
    expect_below_the_simulation(topology, job, rng, 5, {.any_all_reduce = true});
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

/// Calls `visit` with every way to write `total` as `parts` numbers of at least 1.
void each_composition(int total, int parts, std::vector<int>& so_far,
                      const std::function<void(const std::vector<int>&)>& visit) {
  if (parts == 1) {
    so_far.push_back(total);
    visit(so_far);
    so_far.pop_back();
    return;
  }
  for (int first = 1; first <= total - parts + 1; ++first) {
    so_far.push_back(first);
    each_composition(total - first, parts - 1, so_far, visit);
    so_far.pop_back();
  }
}

/// The best simulated step of all placements, layers, shares and coordinators, with depths of 1F1B
/// and GPipe and split backwards.
double best_of_all(const Topology& topology, const Job& job, const Grid& grid) {
  double best = std::numeric_limits<double>::infinity();
  const auto batches = static_cast<int>(job.global_batch) / grid.micro_batch;
  std::vector<int> devices(topology.devices.size());
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<std::vector<int>> layer_splits, share_splits;
  std::vector<int> scratch;
  each_composition(job.model.layers, grid.stages, scratch,
                   [&](const std::vector<int>& split) { layer_splits.push_back(split); });
  each_composition(batches, grid.pipelines, scratch,
                   [&](const std::vector<int>& split) { share_splits.push_back(split); });
  std::vector<int> last;
  do {
    // Every order of the devices that are used, once.
    const std::vector<int> used(devices.begin(), devices.begin() + grid.stages * grid.pipelines);
    if (used == last) continue;
    last = used;
    for (const std::vector<int>& layers : layer_splits) {
      for (const std::vector<int>& shares : share_splits) {
        Plan plan;
        plan.layers = layers;
        plan.micro_batches = shares;
        plan.micro_batch = grid.micro_batch;
        for (int d = 0; d < grid.pipelines; ++d) {
          plan.devices.emplace_back(used.begin() + d * grid.stages,
                                    used.begin() + (d + 1) * grid.stages);
        }
        plan.coordinator_site = topology.site_of(used.front());
        const int most = *std::max_element(shares.begin(), shares.end());
        for (int schedule = 0; schedule < 3; ++schedule) {
          plan.orders.clear();
          plan.family = schedule == 0   ? ScheduleFamily::kGpipe
                        : schedule == 1 ? ScheduleFamily::kOneForwardOneBackward
                                        : ScheduleFamily::kGreedy;
          plan.in_flight = default_in_flight(plan.family, grid.stages, most);
          for (int i = 0; i < grid.stages && schedule == 2; ++i) {
            plan.orders.push_back(split_order(most, grid.stages - i + 1, i > 0 ? most : 0));
            plan.in_flight[static_cast<std::size_t>(i)] = peaks_of(plan.orders.back()).in_flight;
          }
          if (!check_memory(plan, topology, job)) continue;
          best = std::min(best, simulate_step(topology, job, plan)->step.value());
        }
      }
    }
  } while (std::next_permutation(devices.begin(), devices.end()));
  return best;
}

TEST(Bounds, none_is_above_the_best_of_all_plans) {
  double ratios = 0;
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Rng rng("bounds by brute force", seed);
    const Topology topology = random_topology(rng, 4);
    const Job job = random_job(rng, 4, 5);
    const Problem problem(topology, job);
    const Bounds bounds(problem);
    const auto devices = static_cast<int>(problem.usable().size());
    for (int stages = 1; stages <= std::min(devices, job.model.layers); ++stages) {
      for (int pipelines = 1; pipelines <= devices / stages; ++pipelines) {
        const Grid grid{stages, pipelines, 1};
        if (job.global_batch < pipelines) continue;
        const double best = best_of_all(topology, job, grid);
        const Bound bound = bounds.lower(grid);
        EXPECT_LE(bound.seconds, best * (1 + 1e-9))
            << "seed " << seed << ": " << stages << " x " << pipelines << ", " << bound.name;
        if (!std::isfinite(best)) continue;
        ratios += bound.seconds / best;
        ++count;
      }
    }
  }
  EXPECT_GT(ratios / count, 0.7);  // nor are they far below
}

double simulated(const Topology& topology, const Job& job, const Plan& plan) {
  return simulate_step(topology, job, plan)->step.value();
}
/// What a bound may lie below what it could be: how finely it is searched for.
constexpr double kShare = 2.5e-3;

TEST(Bounds, is_tight_for_one_device) {
  // All work on one device, nothing else: the bound is the step.
  const Topology topology = unit_topology({0});
  const Job job = unit_job(3, 5);
  const Problem problem(topology, job);
  const Bound bound = lower_bound(problem, {1, 1, 1});
  EXPECT_NEAR(bound.seconds, Evaluator(problem, {1, 1, 1}).evaluate({{0}, {3}}), 1e-9);
  EXPECT_EQ(bound.name, "compute in whole layers and micro-batches on 1 device of a");
}

TEST(Bounds, layers_are_whole) {
  // Of three layers one of two stages has two, 6 s a micro-batch: 24 s for four, where all work at
  // the speed of both, 9.375 s a micro-batch, is done in 18.75 s.
  const Topology topology = unit_topology({0, 0});
  const Job job = unit_job(3, 4);
  const Problem problem(topology, job);
  const Bound bound = lower_bound(problem, {2, 1, 1});
  EXPECT_NEAR(bound.seconds, 24, 24 * kShare);
  EXPECT_EQ(bound.name, "compute in whole layers and micro-batches on 2 devices of a");
  Plan plan = unit_plan(ScheduleFamily::kGpipe, 2, {4});
  plan.layers = {2, 1};
  // And two forwards of the first stage's later end, 4 s, are the last stage's to wait for.
  EXPECT_LE(bound.seconds, simulated(topology, job, plan));
}

TEST(Bounds, micro_batches_are_whole) {
  // Three micro-batches of 3.375 s for two replicas: one has two.
  const Topology topology = unit_topology({0, 0});
  const Job job = unit_job(1, 3);
  const Problem problem(topology, job);
  EXPECT_NEAR(lower_bound(problem, {1, 2, 1}).seconds, 6.75, 6.75 * kShare);
}

TEST(Bounds, gradients_cross_to_the_other_site) {
  // 21 parameters, 84 bytes, 4 s on a link of 21 bytes/s. After 3.375 s of work the last replica
  // sends the other its part of a shard and the sum of its own, all of it with one latency; the
  // commit takes a second to the replica that is not at the coordinator's site.
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(1), BytesPerSecond(21));
  const Job job = unit_job(1, 2);
  const Problem problem(topology, job);
  const Bound bound = lower_bound(problem, {1, 2, 1});
  const double bounded = 3.375 + 4 + 1 + 1;
  EXPECT_NEAR(bound.seconds, bounded, bounded * kShare);
  EXPECT_EQ(bound.name, "compute, and all gradients between a and b");
  // In the simulation PREPARED takes that second as well.
  EXPECT_NEAR(simulated(topology, job, unit_plan(ScheduleFamily::kGpipe, 1, {1, 1})), 11.375, 1e-6);
}

TEST(Bounds, activations_cross_for_every_micro_batch) {
  // 4 bytes at 1 byte/s: 4 s for each of ten micro-batches, more than the 30 s of a stage. The last
  // of them, or the first, also goes through both stages, which takes 5.5 s with the first stage's
  // weights, back over the link in 4 s, and twice 0.5 s of latency; 0.5 s for the commit.
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(0.5), BytesPerSecond(1));
  const Job job = unit_job(2, 10);
  const Problem problem(topology, job);
  const Bound bound = lower_bound(problem, {2, 1, 1});
  const StageWork layer = stage_work(job.model, {1, false, false}, 1);
  const StageWork head = stage_work(job.model, {0, false, true}, 1);
  const double path = (2 * (layer.forward + layer.backward_input) + head.forward +
                       head.backward_input + layer.backward_weight)
                          .value() /
                      16;
  EXPECT_DOUBLE_EQ(path, 5.5);
  const double bounded = 40 + path + 4 + 2 * 0.5 + 0.5;
  EXPECT_NEAR(bound.seconds, bounded, bounded * kShare);
  EXPECT_EQ(bound.name, "compute, and all activations between a and b");
  EXPECT_LE(bound.seconds, simulated(topology, job, unit_plan(ScheduleFamily::kGpipe, 2, {10})));
}

TEST(Bounds, few_micro_batches_in_flight_wait_for_the_round_trip) {
  // Memory for one micro-batch at the first stage: each of ten occupies it for both layers' 3 s,
  // the head's 0.25 s and 2 s on the way. The head's weights, 0.125 s, need not be waited for, nor
  // the last stage's, 1 s.
  Topology topology = unit_topology({0, 0});
  link_of(topology, 0, 0).latency = Seconds(1);
  const Job job = unit_job(2, 10);
  const auto need = [&](bool first, int in_flight) {
    MemoryQuestion question;
    question.stage = {1, first, !first};
    question.in_flight = in_flight;
    return memory_use(job, DeviceKind{}, question).total();
  };
  for (DeviceKind& kind : topology.kinds) {
    kind.memory = std::max(need(true, 1), need(false, 1));
  }
  ASSERT_GT(need(true, 2), topology.kinds.front().memory);
  const Problem problem(topology, job);
  const StageWork layer = stage_work(job.model, {1, false, false}, 1);
  const StageWork head = stage_work(job.model, {0, false, true}, 1);
  const double later =
      (layer.forward + layer.backward_input + head.forward + head.backward_input).value() / 16;
  const Bound bound = lower_bound(problem, {2, 1, 1});
  EXPECT_NEAR(bound.seconds, 10 * (3 + later + 2) + 2, bound.seconds * kShare);
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {10});
  plan.in_flight = {1, 1};
  ASSERT_TRUE(check_memory(plan, topology, job));
  EXPECT_LE(bound.seconds, simulated(topology, job, plan));
}

TEST(Bounds, what_fits_no_memory_takes_for_ever) {
  Topology topology = unit_topology({0, 0});
  for (DeviceKind& kind : topology.kinds) kind.memory = Bytes(100);
  const Job job = unit_job(2, 2);
  const Problem problem(topology, job);
  const Bound bound = lower_bound(problem, {2, 1, 1});
  EXPECT_EQ(bound.seconds, std::numeric_limits<double>::infinity());
  EXPECT_EQ(bound.name, "the memory of 2 devices");
}

TEST(Bounds, of_many_grids_the_least_is_found_without_a_close_look_at_each) {
  const Topology topology = shipped_cluster("ten-cities");
  Job job = shipped_job("gpt3-xl");
  job.model.layers = 96;
  const Problem problem(topology, job);
  const Bounds bounds(problem);
  std::vector<Grid> grids;
  for (int repeat = 0; repeat < 30; ++repeat) {
    for (int stages = 1; stages <= 12; ++stages) {
      for (int pipelines = 1; pipelines * stages <= 64; ++pipelines) {
        grids.push_back({stages, pipelines, 1});
      }
    }
  }
  ASSERT_GT(grids.size(), 4000u);
  const std::vector<Bound> all = bounds.of_each(grids, 2);
  double least = all.front().seconds;
  double closely = std::numeric_limits<double>::infinity();
  const std::size_t once = grids.size() / 30;
  for (std::size_t g = 0; g < grids.size(); ++g) least = std::min(least, all[g].seconds);
  for (std::size_t g = 0; g < once; ++g) {
    const double highest = bounds.lower(grids[g]).seconds;
    closely = std::min(closely, highest);
    EXPECT_LE(all[g].seconds, highest * (1 + 1e-12));
  }
  // No more than what a close look at all would give, and no less than compute alone.
  EXPECT_LE(least, closely * (1 + 1e-12));
  EXPECT_GE(least, bounds.compute({1, 64, 1}).seconds * 0.5);
}

}  // namespace
}  // namespace longhaul
