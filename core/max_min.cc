#include "core/max_min.h"

#include <algorithm>
#include <limits>

#include "core/result.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Shares that differ by less than this are one level: they would be equal without rounding, and
// flows in equal positions then get equal bits.
constexpr double kTie = 1e-13;

constexpr std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

// Progressive filling. The common level of all open flows rises until the first of two things:
// flows reach their caps (fixed at the cap), or a resource is full (its open flows are fixed at the
// level). Every round fixes at least one flow, and closes resources for good in the second case.
void MaxMinSolver::solve(std::span<const double> capacities,
                         std::span<const std::int32_t> path_begin,
                         std::span<const std::int32_t> path, std::span<const double> caps,
                         std::span<double> rates) {
  if (ones_.size() < caps.size()) ones_.resize(caps.size(), 1.0);
  solve(capacities, path_begin, path, caps, std::span(ones_).first(caps.size()), rates);
}

void MaxMinSolver::solve(std::span<const double> capacities,
                         std::span<const std::int32_t> path_begin,
                         std::span<const std::int32_t> path, std::span<const double> caps,
                         std::span<const double> weights, std::span<double> rates) {
  const std::size_t flows = caps.size();
  LH_CHECK(path_begin.size() == flows + 1 && rates.size() == flows && weights.size() == flows,
           "one path, weight and rate a flow");
  index_flows(capacities, path_begin, path, weights);
  fixed_.assign(flows, 0);
  open_flows_.resize(flows);
  open_count_ = flows;
  open_cap_min_ = kInfinity;
  for (std::size_t f = 0; f < flows; ++f) {
    open_flows_[f] = static_cast<std::int32_t>(f);
    open_cap_min_ = std::min(open_cap_min_, caps[f] / weights[f]);
  }

  double level = 0;
  while (open_count_ > 0) {
    // Levels never fall; only rounding can make a share look lower than the level before.
    const double share = std::max(lowest_share(), level);
    if (open_cap_min_ <= share) {
      // All caps up to the share can be fixed at once: taking a flow of no more than its share
      // away from a resource does not lower the share of those that stay.
      fix_capped(path_begin, path, caps, weights, share, rates);
    } else {
      level = share;
      fix_crossing_full(path_begin, path, weights, level, rates);
    }
    refresh_touched_shares();
  }
}

/// Fills everything that is kept by resource, among it the list of the flows that cross it.
void MaxMinSolver::index_flows(std::span<const double> capacities,
                               std::span<const std::int32_t> path_begin,
                               std::span<const std::int32_t> path,
                               std::span<const double> weights) {
  const std::size_t resources = capacities.size();
  const std::size_t flows = path_begin.size() - 1;
  const std::span<const std::int32_t> used =
      path.subspan(at(path_begin[0]), at(path_begin[flows] - path_begin[0]));
  left_.assign(capacities.begin(), capacities.end());
  crossing_.assign(resources, 0);
  weight_.assign(resources, 0);
  taken_.assign(resources, 0);
  for (const std::int32_t r : used) ++crossing_[at(r)];
  list_end_.resize(resources);
  share_.resize(resources);
  open_resources_.clear();
  touched_.clear();
  std::int32_t begin = 0;
  for (std::size_t r = 0; r < resources; ++r) {
    list_end_[r] = begin;
    begin += crossing_[r];
    if (crossing_[r] > 0 && capacities[r] != kInfinity) {
      open_resources_.push_back(static_cast<std::int32_t>(r));
    }
  }
  flows_of_.resize(used.size());
  for (std::size_t f = 0; f < flows; ++f) {
    for (std::int32_t i = path_begin[f]; i < path_begin[f + 1]; ++i) {
      const std::size_t r = at(path[at(i)]);
      flows_of_[at(list_end_[r]++)] = static_cast<std::int32_t>(f);
      weight_[r] += weights[f];
    }
  }
  for (const std::int32_t r : open_resources_) share_[at(r)] = left_[at(r)] / weight_[at(r)];
}

/// Infinite when no open flow crosses a finite resource.
double MaxMinSolver::lowest_share() {
  double lowest = kInfinity;
  std::size_t kept = 0;
  for (const std::int32_t r : open_resources_) {
    if (crossing_[at(r)] == 0) continue;
    lowest = std::min(lowest, share_[at(r)]);
    open_resources_[kept++] = r;
  }
  open_resources_.resize(kept);
  return lowest;
}

void MaxMinSolver::fix_capped(std::span<const std::int32_t> path_begin,
                              std::span<const std::int32_t> path, std::span<const double> caps,
                              std::span<const double> weights, double level,
                              std::span<double> rates) {
  std::size_t kept = 0;
  open_cap_min_ = kInfinity;
  for (const std::int32_t f : open_flows_) {
    if (fixed_[at(f)]) continue;
    const double cap = caps[at(f)];
    if (const double reached_at = cap / weights[at(f)]; reached_at > level) {
      open_cap_min_ = std::min(open_cap_min_, reached_at);
      open_flows_[kept++] = f;
      continue;
    }
    fixed_[at(f)] = 1;
    rates[at(f)] = cap;
    for (std::int32_t i = path_begin[at(f)]; i < path_begin[at(f) + 1]; ++i) {
      const std::size_t r = at(path[at(i)]);
      left_[r] -= cap;
      weight_[r] -= weights[at(f)];
      --crossing_[r];
      touched_.push_back(path[at(i)]);
    }
  }
  open_flows_.resize(kept);
  open_count_ = kept;
}

void MaxMinSolver::fix_crossing_full(std::span<const std::int32_t> path_begin,
                                     std::span<const std::int32_t> path,
                                     std::span<const double> weights, double level,
                                     std::span<double> rates) {
  const double limit = level * (1 + kTie);
  for (const std::int32_t full : open_resources_) {
    if (share_[at(full)] > limit) continue;
    const std::int32_t begin = full == 0 ? 0 : list_end_[at(full) - 1];
    for (std::int32_t k = begin; k < list_end_[at(full)]; ++k) {
      const std::size_t f = at(flows_of_[at(k)]);
      if (fixed_[f]) continue;
      fixed_[f] = 1;
      --open_count_;
      rates[f] = level * weights[f];
      for (std::int32_t i = path_begin[f]; i < path_begin[f + 1]; ++i) {
        const std::size_t r = at(path[at(i)]);
        --crossing_[r];
        if (taken_[r] == 0) touched_.push_back(path[at(i)]);
        taken_[r] += weights[f];
      }
    }
  }
  // One product for the whole round, so that the order of the flows does not matter.
  for (const std::int32_t r : touched_) {
    left_[at(r)] -= taken_[at(r)] * level;
    weight_[at(r)] -= taken_[at(r)];
    taken_[at(r)] = 0;
  }
}

void MaxMinSolver::refresh_touched_shares() {
  for (const std::int32_t r : touched_) {
    const std::size_t i = at(r);
    share_[i] = crossing_[i] > 0 ? std::max(left_[i], 0.0) / weight_[i] : kInfinity;
  }
  touched_.clear();
}

}  // namespace longhaul
