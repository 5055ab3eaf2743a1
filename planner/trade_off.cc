#include "planner/trade_off.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace longhaul {
namespace {

constexpr int kPrices = 4;  // steps of price from the cheapest plan to the fastest

std::pair<double, double> time_and_price(const JudgedPlan& judged) {
  return {judged.step.step.value(), judged.step.usd};
}

}  // namespace

bool has_prices(const Topology& topology, const DeviceLimits& limits) {
  const Result<std::vector<char>> admitted = admitted_devices(topology, limits);
  for (int d = 0; admitted && d < topology.device_count(); ++d) {
    if ((*admitted)[static_cast<std::size_t>(d)] == 0) continue;
    const Site& site = topology.sites[static_cast<std::size_t>(topology.site_of(d))];
    if (topology.kind_of(d).usd_per_hour > 0 || site.egress_usd_per_byte > 0) return true;
  }
  return false;
}

std::vector<std::string> kinds_without_price(const Topology& topology, const DeviceLimits& limits) {
  const Result<std::vector<char>> admitted = admitted_devices(topology, limits);
  std::set<std::string> kinds;
  for (int d = 0; admitted && d < topology.device_count(); ++d) {
    const DeviceKind& kind = topology.kind_of(d);
    if ((*admitted)[static_cast<std::size_t>(d)] != 0 && kind.usd_per_hour == 0)
      kinds.insert(kind.name);
  }
  return {kinds.begin(), kinds.end()};
}

Result<SearchResult> search_trade_offs(const Topology& topology, const Job& job,
                                       const SearchOptions& options) {
  LH_ASSIGN(SearchResult found, search_plan(topology, job, options));
  const auto add = [&found](SearchResult more) {
    found.evaluations += more.evaluations;
    found.simulations += more.simulations;
    std::move(more.judged.begin(), more.judged.end(), std::back_inserter(found.judged));
    if (time_and_price(more.best) < time_and_price(found.best)) found.best = std::move(more.best);
  };
  SearchOptions other = options;
  other.goal.cost = true;
  LH_ASSIGN(SearchResult cheapest, search_plan(topology, job, other));
  const double least = cheapest.best.step.usd;
  const double most = found.best.step.usd;
  add(std::move(cheapest));
  other.goal.cost = false;
  for (int i = 1; i < kPrices && least < most; ++i) {
    other.goal.usd_max = least + (most - least) * i / kPrices;
    // A price that the closed form takes for possible may not be: then there is nothing to add.
    if (Result<SearchResult> between = search_plan(topology, job, other)) add(std::move(*between));
  }
  // Where a price is set, the searches have also simulated dearer plans.
  std::erase_if(found.judged,
                [&](const JudgedPlan& judged) { return judged.step.usd > options.goal.usd_max; });
  return found;
}

std::vector<const JudgedPlan*> non_dominated(const std::vector<JudgedPlan>& judged) {
  std::vector<const JudgedPlan*> order;
  for (const JudgedPlan& plan : judged) order.push_back(&plan);
  std::stable_sort(order.begin(), order.end(), [](const JudgedPlan* a, const JudgedPlan* b) {
    return time_and_price(*a) < time_and_price(*b);
  });
  std::vector<const JudgedPlan*> front;
  for (const JudgedPlan* plan : order) {
    if (front.empty() || plan->step.usd < front.back()->step.usd) front.push_back(plan);
  }
  return front;
}

int knee_of(const std::vector<const JudgedPlan*>& front) {
  int knee = -1;
  double farthest = 0;
  if (front.size() < 3) return knee;
  const auto [time_min, usd_max] = time_and_price(*front.front());
  const auto [time_max, usd_min] = time_and_price(*front.back());
  for (std::size_t i = 1; i + 1 < front.size(); ++i) {
    const auto [time, usd] = time_and_price(*front[i]);
    const double below =
        1 - (time - time_min) / (time_max - time_min) - (usd - usd_min) / (usd_max - usd_min);
    if (below <= farthest) continue;
    farthest = below;
    knee = static_cast<int>(i);
  }
  return knee;
}

std::vector<const JudgedPlan*> alternatives(const SearchResult& found, const Goal& goal,
                                            std::size_t most) {
  const auto grid_of = [](const JudgedPlan& judged) {
    return std::pair(judged.plan.stages(), judged.plan.pipelines());
  };
  const auto value_of = [&](const JudgedPlan& judged) {
    return goal.cost ? judged.step.usd : judged.step.step.value();
  };
  std::vector<const JudgedPlan*> order;
  for (const JudgedPlan& judged : found.judged) {
    if (judged.step.usd <= goal.usd_max) order.push_back(&judged);
  }
  std::stable_sort(order.begin(), order.end(), [&](const JudgedPlan* a, const JudgedPlan* b) {
    return value_of(*a) < value_of(*b);
  });
  std::vector<const JudgedPlan*> others;
  for (const JudgedPlan* judged : order) {
    const auto same = [&](const JudgedPlan* other) { return grid_of(*other) == grid_of(*judged); };
    if (others.size() == most) break;
    if (grid_of(*judged) == grid_of(found.best)) continue;
    if (std::none_of(others.begin(), others.end(), same)) others.push_back(judged);
  }
  return others;
}

}  // namespace longhaul
