#include "planner/dtfm_objective.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(int row, int column, int width) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
         static_cast<std::size_t>(column);
}

/// DP: equation 1.
double data_parallel_time(const DtfmInstance& instance, const DtfmPartition& partition) {
  double worst = 0;
  for (const std::vector<int>& group : partition) {
    for (const int i : group) {
      double sum = 0;
      for (const int j : group) {
        if (j != i) sum += instance.gradient_exchange_s(i, j);
      }
      worst = std::max(worst, sum);
    }
  }
  return worst;
}

BottleneckMatching match_groups(const DtfmInstance& instance, const std::vector<int>& from,
                                const std::vector<int>& to) {
  std::vector<double> cost;
  cost.reserve(from.size() * to.size());
  for (const int i : from) {
    for (const int j : to) cost.push_back(instance.activation_hop_s(i, j));
  }
  return bottleneck_matching(cost, static_cast<int>(from.size()));
}

double path_length(std::span<const double> cost, int nodes, std::span<const int> path) {
  double sum = 0;
  for (std::size_t k = 1; k < path.size(); ++k) sum += cost[at(path[k - 1], path[k], nodes)];
  return sum;
}

/// Held and Karp (1962): best[set][last] = shortest path over `set` that ends in `last`.
std::vector<int> exact_path(std::span<const double> cost, int nodes) {
  const std::uint32_t all = (1u << nodes) - 1;
  std::vector<double> best((static_cast<std::size_t>(all) + 1) * static_cast<std::size_t>(nodes),
                           kInfinity);
  const auto cell = [&](std::uint32_t set, int last) -> double& {
    return best[static_cast<std::size_t>(set) * static_cast<std::size_t>(nodes) +
                static_cast<std::size_t>(last)];
  };
  for (int start = 0; start < nodes; ++start) cell(1u << start, start) = 0;
  for (std::uint32_t set = 1; set <= all; ++set) {
    for (int last = 0; last < nodes; ++last) {
      const double length = cell(set, last);
      if (length == kInfinity) continue;
      for (int next = 0; next < nodes; ++next) {
        if ((set >> next & 1u) != 0) continue;
        double& entry = cell(set | 1u << next, next);
        entry = std::min(entry, length + cost[at(last, next, nodes)]);
      }
    }
  }
  std::vector<int> path;
  int last = 0;
  for (int node = 1; node < nodes; ++node) {
    if (cell(all, node) < cell(all, last)) last = node;
  }
  for (std::uint32_t set = all;;) {
    path.push_back(last);
    set &= ~(1u << last);
    if (set == 0) break;
    int best_previous = -1;
    double best_length = kInfinity;
    for (int previous = 0; previous < nodes; ++previous) {
      if ((set >> previous & 1u) == 0) continue;
      const double length = cell(set, previous) + cost[at(previous, last, nodes)];
      if (best_previous >= 0 && !(length < best_length)) continue;
      best_previous = previous;
      best_length = length;
    }
    last = best_previous;
  }
  std::ranges::reverse(path);
  return path;
}

std::vector<int> nearest_neighbour_path(std::span<const double> cost, int nodes, int start) {
  std::vector<int> path = {start};
  std::vector<bool> used(static_cast<std::size_t>(nodes), false);
  used[static_cast<std::size_t>(start)] = true;
  for (int k = 1; k < nodes; ++k) {
    int nearest = -1;
    for (int next = 0; next < nodes; ++next) {
      if (used[static_cast<std::size_t>(next)]) continue;
      if (nearest < 0 ||
          cost[at(path.back(), next, nodes)] < cost[at(path.back(), nearest, nodes)]) {
        nearest = next;
      }
    }
    path.push_back(nearest);
    used[static_cast<std::size_t>(nearest)] = true;
  }
  return path;
}

std::vector<int> heuristic_path(std::span<const double> cost, int nodes) {
  constexpr int kPolishEveryStart = 64;  // above, polishing all starts would take minutes
  std::vector<int> best;
  double best_length = kInfinity;
  for (int start = 0; start < nodes; ++start) {
    std::vector<int> path = nearest_neighbour_path(cost, nodes, start);
    if (nodes <= kPolishEveryStart) polish_open_path(cost, nodes, path);
    const double length = path_length(cost, nodes, path);
    if (best.empty() || length < best_length) {
      best_length = length;
      best = std::move(path);
    }
  }
  if (nodes > kPolishEveryStart) polish_open_path(cost, nodes, best);
  return best;
}

}  // namespace

double DtfmInstance::activation_hop_s(int from, int to) const {
  const std::size_t k = at(from, to, devices);
  return latency_s[k] + activation_gb * 8 / gbit_per_s[k];
}

double DtfmInstance::gradient_exchange_s(int from, int to) const {
  const std::size_t k = at(from, to, devices);
  return 2 * (latency_s[k] + gradient_gb * 8 / (gbit_per_s[k] * replicas));
}

Result<void> check_dtfm_instance(const DtfmInstance& instance) {
  const int n = instance.devices;
  if (instance.stages < 1 || instance.replicas < 1 ||
      static_cast<std::int64_t>(instance.stages) * instance.replicas != n) {
    return invalid(fmt::format("{} devices cannot form {} stages of {} replicas", n,
                               instance.stages, instance.replicas),
                   "devices = stages x replicas, and both are at least 1");
  }
  const std::size_t entries = at(n, 0, n);
  if (instance.latency_s.size() != entries || instance.gbit_per_s.size() != entries) {
    return invalid(fmt::format("{} devices need matrices of {} entries, not {} and {}", n, entries,
                               instance.latency_s.size(), instance.gbit_per_s.size()));
  }
  for (const double amount : {instance.gradient_gb, instance.activation_gb}) {
    if (!std::isfinite(amount) || amount < 0) {
      return invalid(fmt::format("an amount of data cannot be {} GB", amount));
    }
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      if (i == j) continue;
      const double latency = instance.latency_s[at(i, j, n)];
      const double rate = instance.gbit_per_s[at(i, j, n)];
      if (!std::isfinite(latency) || latency < 0) {
        return invalid(
            fmt::format("the latency from device {} to {} cannot be {} s", i, j, latency));
      }
      if (!std::isfinite(rate) || rate <= 0) {
        return invalid(
            fmt::format("the rate from device {} to {} cannot be {} Gbit/s", i, j, rate));
      }
    }
  }
  return {};
}

Result<void> check_dtfm_partition(const DtfmInstance& instance, const DtfmPartition& partition) {
  if (static_cast<int>(partition.size()) != instance.stages) {
    return invalid(
        fmt::format("{} groups where {} stages are wanted", partition.size(), instance.stages));
  }
  std::vector<bool> seen(static_cast<std::size_t>(instance.devices), false);
  for (std::size_t s = 0; s < partition.size(); ++s) {
    if (static_cast<int>(partition[s].size()) != instance.replicas) {
      return invalid(fmt::format("group {} has {} devices where {} replicas are wanted", s,
                                 partition[s].size(), instance.replicas));
    }
    for (const int device : partition[s]) {
      if (device < 0 || device >= instance.devices) {
        return invalid(fmt::format("group {} names device {} of {}", s, device, instance.devices));
      }
      if (seen[static_cast<std::size_t>(device)]) {
        return invalid(fmt::format("device {} is placed twice", device));
      }
      seen[static_cast<std::size_t>(device)] = true;
    }
  }
  return {};
}

DtfmCost evaluate_dtfm(const DtfmInstance& instance, const DtfmPartition& partition) {
  const int stages = instance.stages;
  std::vector<double> hop(at(stages, 0, stages), 0.0);
  for (int a = 0; a < stages; ++a) {
    for (int b = a + 1; b < stages; ++b) {
      // Equation 2. Both directions of a pair get what is read from the group listed first.
      hop[at(a, b, stages)] = hop[at(b, a, stages)] =
          match_groups(instance, partition[static_cast<std::size_t>(a)],
                       partition[static_cast<std::size_t>(b)])
              .worst;
    }
  }
  DtfmCost cost;
  cost.data_parallel_s = data_parallel_time(instance, partition);
  cost.path = shortest_open_path(hop, stages);
  cost.pipeline_s = 2 * path_length(hop, stages, cost.path);  // equation 3, both directions
  cost.total_s = cost.data_parallel_s + cost.pipeline_s;      // equation 4
  return cost;
}

DtfmCost evaluate_dtfm_in_order(const DtfmInstance& instance, const DtfmPartition& partition) {
  DtfmCost cost;
  cost.data_parallel_s = data_parallel_time(instance, partition);
  double sum = 0;
  for (std::size_t s = 1; s < partition.size(); ++s) {
    sum += match_groups(instance, partition[s - 1], partition[s]).worst;
  }
  cost.pipeline_s = 2 * sum;
  cost.total_s = cost.data_parallel_s + cost.pipeline_s;
  cost.path.resize(partition.size());
  std::iota(cost.path.begin(), cost.path.end(), 0);
  return cost;
}

DtfmPartition arrange_dtfm(const DtfmInstance& instance, const DtfmPartition& partition,
                           std::span<const int> path) {
  DtfmPartition arranged;
  for (const int index : path) {
    const std::vector<int>& group = partition[static_cast<std::size_t>(index)];
    if (arranged.empty()) {
      arranged.push_back(group);
      continue;
    }
    const BottleneckMatching matching = match_groups(instance, arranged.back(), group);
    std::vector<int> members;
    for (const int column : matching.column_of) {
      members.push_back(group[static_cast<std::size_t>(column)]);
    }
    arranged.push_back(std::move(members));
  }
  return arranged;
}

BottleneckMatching bottleneck_matching(std::span<const double> cost, int size) {
  // Rows are added one by one. Among the augmenting paths of a new row one with the smallest
  // largest entry is taken, found like Dijkstra's with max in place of plus; the bottleneck of
  // the rows so far never falls when a row is added, so entries up to it are free (Derigs and
  // Zimmermann, 1978).
  const auto count = static_cast<std::size_t>(size);
  std::vector<int> row_of(count, -1);
  std::vector<int> reached_from(count);
  std::vector<double> reach(count);
  std::vector<bool> done(count);
  BottleneckMatching matching;
  matching.column_of.assign(count, -1);
  double worst = size > 0 ? -kInfinity : 0;
  for (int new_row = 0; new_row < size; ++new_row) {
    std::ranges::fill(reach, kInfinity);
    std::fill(done.begin(), done.end(), false);
    std::ranges::fill(reached_from, new_row);
    int row = new_row;
    int end = -1;
    while (end < 0) {
      int nearest = -1;
      for (int column = 0; column < size; ++column) {
        const auto c = static_cast<std::size_t>(column);
        if (done[c]) continue;
        const double through = std::max(worst, cost[at(row, column, size)]);
        if (through < reach[c]) {
          reach[c] = through;
          reached_from[c] = row;
        }
        if (nearest < 0 || reach[c] < reach[static_cast<std::size_t>(nearest)]) nearest = column;
      }
      const auto n = static_cast<std::size_t>(nearest);
      done[n] = true;
      worst = std::max(worst, reach[n]);
      if (row_of[n] < 0) {
        end = nearest;
      } else {
        row = row_of[n];
      }
    }
    // Flip the path: each column on it goes to the row that reached it, which gives up its own.
    int owner = -1;
    do {
      const auto e = static_cast<std::size_t>(end);
      owner = row_of[e] = reached_from[e];
      std::swap(matching.column_of[static_cast<std::size_t>(owner)], end);
    } while (owner != new_row);
  }
  matching.worst = worst;
  return matching;
}

std::vector<int> shortest_open_path(std::span<const double> cost, int nodes, int exact_limit) {
  LH_CHECK(cost.size() == at(nodes, 0, nodes), "the matrix is square");
  if (nodes == 0) return {};
  if (nodes <= std::min(exact_limit, kExactPathStages)) return exact_path(cost, nodes);
  return heuristic_path(cost, nodes);
}

void polish_open_path(std::span<const double> cost, int nodes, std::vector<int>& path) {
  // Takes the first change that helps. Lengths are summed afresh: a reversed segment costs
  // something else when the matrix is not symmetric.
  double length = path_length(cost, nodes, path);
  const auto keep_if_shorter = [&](std::vector<int>&& changed) {
    const double changed_length = path_length(cost, nodes, changed);
    if (!(changed_length < length)) return false;
    path = std::move(changed);
    length = changed_length;
    return true;
  };
  bool improved = true;
  while (improved) {
    improved = false;
    for (int first = 0; first < nodes; ++first) {
      for (int end = first + 1; end <= nodes; ++end) {
        std::vector<int> reversed = path;
        std::reverse(reversed.begin() + first, reversed.begin() + end);
        improved |= keep_if_shorter(std::move(reversed));
        if (end - first > 3) continue;  // Or-opt: segments of one to three
        for (int target = 0; target + (end - first) <= nodes; ++target) {
          std::vector<int> moved = path;
          const std::vector<int> segment(moved.begin() + first, moved.begin() + end);
          moved.erase(moved.begin() + first, moved.begin() + end);
          moved.insert(moved.begin() + target, segment.begin(), segment.end());
          improved |= keep_if_shorter(std::move(moved));
        }
      }
    }
  }
}

}  // namespace longhaul
