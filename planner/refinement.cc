#include "planner/refinement.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "planner/greedy_schedule.h"
#include "planner/parallel.h"
#include "planner/schedule_choice.h"

namespace longhaul {
namespace {

constexpr int kBatch = 16;
/// Batches without success, a cell each, after which no neighbour is expected to be better.
constexpr int kFailures = 4;
constexpr int kVariants = 3;  // of the greedy rule, for each neighbour
/// What a greedy schedule must gain to be taken: its plan is longer, and the head's logits, which
/// a split backward may compute again, are not priced.
constexpr double kGreedyGain = 0.01;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Draws neighbours of a plan.
class Neighbours {
 public:
  Neighbours(const Problem& problem, const Plan& plan, Rng& rng)
      : problem_(problem), plan_(plan), rng_(rng) {
    std::vector<char> used(problem.topology().devices.size(), 0);
    for (const std::vector<int>& row : plan.devices) {
      for (const int device : row) used[at(device)] = 1;
    }
    for (const int device : problem.usable()) {
      if (used[at(device)] == 0) idle_.push_back(device);
    }
    std::sort(idle_.begin(), idle_.end());
  }

  /// Nothing when the draw would change nothing or the plan would not fit its memory.
  std::optional<Plan> draw() {
    Plan next = plan_;
    const std::uint64_t dice = rng_.below(100);
    const bool changed = dice < 25   ? swap_devices(next)
                         : dice < 45 ? replace_devices(next)
                         : dice < 60 ? move_layer(next)
                         : dice < 75 ? move_micro_batches(next)
                         : dice < 87 ? change_depth(next)
                         : dice < 97 ? change_all_reduce(next)
                                     : move_coordinator(next);
    if (changed && next.family == ScheduleFamily::kGreedy) {
      const int longest = *std::max_element(next.micro_batches.begin(), next.micro_batches.end());
      for (int& cap : next.in_flight) cap = std::min(cap, longest);
      if (!make_greedy(problem_, next, std::vector<int>(next.in_flight), kVariants)) return {};
    }
    if (!changed || !check_memory(next, problem_.topology(), problem_.job())) return std::nullopt;
    return next;
  }

 private:
  int& cell(Plan& plan, std::size_t index) const {
    const std::size_t stages = at(plan.stages());
    return plan.devices[index / stages][index % stages];
  }
  std::size_t cells() const { return at(plan_.stages() * plan_.pipelines()); }

  bool swap_devices(Plan& next) {
    int& first = cell(next, rng_.index(cells()));
    int& second = cell(next, rng_.index(cells()));
    if (problem_.same(first, second)) return false;
    std::swap(first, second);
    return true;
  }

  bool replace_devices(Plan& next) {
    if (idle_.empty()) return swap_devices(next);
    std::vector<int>& row = next.devices[rng_.index(next.devices.size())];
    const std::size_t begin = rng_.index(row.size());
    const std::size_t idle = rng_.index(idle_.size());
    const std::size_t most = std::min(row.size() - begin, idle_.size() - idle);
    const std::size_t length = rng_.chance(0.5) ? 1 : 1 + rng_.index(most);
    if (length == 1 && problem_.same(row[begin], idle_[idle])) return false;
    std::copy_n(idle_.begin() + static_cast<std::ptrdiff_t>(idle), length,
                row.begin() + static_cast<std::ptrdiff_t>(begin));
    return true;
  }

  bool move_layer(Plan& next) {
    const std::size_t from = rng_.index(next.layers.size());
    const std::size_t to = rng_.index(next.layers.size());
    if (from == to || next.layers[from] == 1) return false;
    --next.layers[from];
    ++next.layers[to];
    return true;
  }

  bool move_micro_batches(Plan& next) {
    const std::size_t from = rng_.index(next.micro_batches.size());
    const std::size_t to = rng_.index(next.micro_batches.size());
    if (from == to || next.micro_batches[from] == 1) return false;
    const int most = next.micro_batches[from] - 1;
    const int moved = rng_.chance(0.5) ? 1 : 1 + static_cast<int>(rng_.index(at(most))) / 8;
    next.micro_batches[from] -= moved;
    next.micro_batches[to] += moved;
    const int longest = *std::max_element(next.micro_batches.begin(), next.micro_batches.end());
    for (int& depth : next.in_flight) depth = std::min(depth, longest);
    return true;
  }

  /// Caps of a greedy schedule rise and fall alone.
  bool change_cap(Plan& next) {
    const int most = *std::max_element(next.micro_batches.begin(), next.micro_batches.end());
    int& cap = next.in_flight[rng_.index(next.in_flight.size())];
    const int before = cap;
    const int step = 1 + static_cast<int>(rng_.below(3));
    cap = std::clamp(rng_.chance(0.5) ? cap + step : cap - step, 1, most);
    return cap != before;
  }

  /// In-order depths stay non-increasing: a rise takes the stages before along, a fall those after.
  bool change_depth(Plan& next) {
    if (next.family == ScheduleFamily::kGreedy) return change_cap(next);
    const int most = *std::max_element(next.micro_batches.begin(), next.micro_batches.end());
    const std::size_t stage = rng_.index(next.in_flight.size());
    const int step = 1 + static_cast<int>(rng_.below(2));
    if (rng_.chance(0.1)) {
      std::fill(next.in_flight.begin(), next.in_flight.end(), most);
    } else if (rng_.chance(0.5)) {
      const int depth = std::min(next.in_flight[stage] + step, most);
      for (std::size_t i = 0; i <= stage; ++i) {
        next.in_flight[i] = std::max(next.in_flight[i], depth);
      }
    } else {
      const int depth = std::max(next.in_flight[stage] - step, 1);
      for (std::size_t i = stage; i < next.in_flight.size(); ++i) {
        next.in_flight[i] = std::min(next.in_flight[i], depth);
      }
    }
    return next.in_flight != plan_.in_flight;
  }

  /// Of one exchange the share of a member or of all members at its site, or the shape.
  bool change_all_reduce(Plan& next) {
    const Job& job = problem_.job();
    std::vector<Reduction> reductions = reductions_of(next, job);
    const int exchange = static_cast<int>(rng_.index(reductions.size()));
    const std::vector<int> members = reduction_devices(next, exchange);
    if (members.size() == 1 || problem_.rules().expressible != Expressible{}) {
      return swap_devices(next);
    }
    next.reductions = std::move(reductions);
    Reduction& reduction = next.reductions[at(exchange)];
    if (problem_.rules().any_all_reduce && rng_.chance(0.3)) {
      constexpr ReduceShape kShapes[] = {ReduceShape::kSharded, ReduceShape::kRing,
                                         ReduceShape::kHierarchical};
      reduction = {.shape = kShapes[rng_.index(std::size(kShapes))], .codec = reduction.codec};
    } else {
      reduction = {.shares = change_shares(reduction.shares, members), .codec = reduction.codec};
    }
    return reduction != reduction_of(plan_, job, exchange);
  }

  std::vector<double> change_shares(std::vector<double> shares, const std::vector<int>& members) {
    const double even = 1 / static_cast<double>(members.size());
    if (shares.empty()) shares.assign(members.size(), even);
    const std::size_t chosen = rng_.index(members.size());
    const bool whole_site = rng_.chance(0.5);
    const double factor = rng_.chance(1.0 / 3) ? 0 : rng_.chance(0.5) ? 0.6 : 1.6;
    double sum = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const bool same_site = problem_.site(members[i]) == problem_.site(members[chosen]);
      if (i == chosen || (whole_site && same_site)) {
        shares[i] = shares[i] == 0 && factor > 1 ? even : shares[i] * factor;
      }
      sum += shares[i];
    }
    if (sum == 0) return {};
    // Four digits for people; the largest takes what rounding leaves.
    constexpr double kDigits = 1e4;
    double rounded = 0;
    for (double& share : shares) rounded += share = std::round(share / sum * kDigits) / kDigits;
    double& largest = *std::ranges::max_element(shares);
    largest = std::round((largest + 1 - rounded) * kDigits) / kDigits;
    return shares;
  }

  bool move_coordinator(Plan& next) {
    next.coordinator_site = problem_.site(cell(next, rng_.index(cells())));
    return next.coordinator_site != plan_.coordinator_site;
  }

  const Problem& problem_;
  const Plan& plan_;
  Rng& rng_;
  std::vector<int> idle_;
};

}  // namespace

namespace {

/// The plan with greedy schedules: at the depths that it has, at twice those, and at what memory
/// allows.
std::vector<Plan> greedy_plans(const Problem& problem, const Plan& plan, int threads) {
  if (plan.stages() == 1 || plan.family == ScheduleFamily::kGreedy) return {};
  const std::vector<int> most = memory_caps(problem, plan);
  std::vector<std::vector<int>> tried;
  for (const int factor : {1, 2, 1 << 20}) {
    std::vector<int> caps;
    for (std::size_t i = 0; i < most.size(); ++i) {
      caps.push_back(static_cast<int>(
          std::min<std::int64_t>(std::int64_t{factor} * plan.in_flight[i], most[i])));
    }
    if (tried.empty() || tried.back() != caps) tried.push_back(std::move(caps));
  }
  std::vector<std::optional<Plan>> made(tried.size());
  parallel_for(static_cast<int>(tried.size()), threads, [&](int t) {
    Plan greedy = plan;
    if (!make_greedy(problem, greedy, tried[at(t)], kAllGreedyVariants)) return;
    if (check_memory(greedy, problem.topology(), problem.job())) made[at(t)] = std::move(greedy);
  });
  std::vector<Plan> plans;
  for (std::optional<Plan>& each : made) {
    if (each) plans.push_back(*std::move(each));
  }
  return plans;
}

}  // namespace

Refinement refine(const Problem& problem, JudgedPlan start, const RefinementOptions& options) {
  JudgedPlan best = std::move(start);
  Rng rng(options.name, options.seed);
  const int patience = kFailures * std::max(8, best.plan.stages() * best.plan.pipelines());
  double transfers = 0;
  int failures = 0;
  const auto take_better = [&](std::vector<Plan> plans, double gain) {
    std::erase_if(plans,
                  [&](const Plan& plan) { return !keeps(problem.rules(), plan, problem.job()); });
    for (const Plan& plan : plans) transfers += transfers_of(plan);
    // A neighbour whose step cannot be simulated is none.
    std::vector<Result<StepResult>> steps =
        simulate_all(problem.topology(), problem.job(), plans, options.threads);
    for (std::size_t p = 0; p < plans.size(); ++p) {
      if (!steps[p]) continue;
      JudgedPlan judged{std::move(plans[p]), *std::move(steps[p]), best.closed_form_s};
      auto [value, other] = value_of(judged, problem.goal());
      if (std::pair(value / (1 - gain), other) >= value_of(best, problem.goal())) continue;
      best = std::move(judged);
      failures = 0;
    }
  };
  const auto climb = [&](double most) {
    failures = 0;
    while (failures < patience && transfers < most) {
      if (options.interrupted && options.interrupted()) break;
      Neighbours neighbours(problem, best.plan, rng);
      std::vector<Plan> drawn;
      for (int i = 0; i < kBatch; ++i) {
        if (std::optional<Plan> plan = neighbours.draw()) drawn.push_back(std::move(*plan));
      }
      ++failures;
      take_better(std::move(drawn), 0);
    }
  };
  climb(options.greedy ? options.transfers / 2 : options.transfers);
  if (options.greedy) {
    const ScheduleFamily before = best.plan.family;
    take_better(greedy_plans(problem, best.plan, options.threads), kGreedyGain);
    if (best.plan.family != before || failures < patience) climb(options.transfers);
  }
  return {std::move(best), transfers};
}

}  // namespace longhaul
