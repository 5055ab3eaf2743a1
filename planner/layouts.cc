#include "planner/layouts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace longhaul {
namespace {

constexpr std::size_t kStartsMax = 12;  // sites that chains start from
constexpr std::size_t kStartsFew = 4;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Sites that have usable devices, each next one the nearest not yet visited.
std::vector<int> site_chain(const Problem& problem, int start) {
  const Topology& topology = problem.topology();
  std::vector<char> left(topology.sites.size(), 0);
  for (const int device : problem.usable()) left[at(problem.site(device))] = 1;
  std::vector<int> chain;
  int here = start;
  while (here >= 0) {
    chain.push_back(here);
    left[at(here)] = 0;
    int next = -1;
    double nearest = std::numeric_limits<double>::infinity();
    for (int s = 0; s < topology.site_count(); ++s) {
      const double there = problem.site_latency(here, s) + problem.site_latency(s, here);
      if (left[at(s)] != 0 && there < nearest) {
        nearest = there;
        next = s;
      }
    }
    here = next;
  }
  return chain;
}

/// Usable devices in the order of a chain of sites, node by node, faster kinds, then larger nodes
/// and faster NICs first. With `slow_nics_last` NICs count before sizes, and nodes whose NIC is far
/// slower than their site's fastest come after the others there.
std::vector<int> devices_along(const Problem& problem, const std::vector<int>& chain,
                               bool slow_nics_last) {
  constexpr double kSlow = 0.2;
  std::vector<int> position(problem.topology().sites.size(), 0);
  for (std::size_t i = 0; i < chain.size(); ++i) position[at(chain[i])] = static_cast<int>(i);
  std::vector<double> fastest(position.size(), 0);
  std::vector<int> size(problem.topology().nodes.size(), 0);
  for (const int device : problem.usable()) {
    ++size[at(problem.node(device))];
    double& here = fastest[at(problem.site(device))];
    here = std::max(here, problem.nic(problem.node(device)));
  }
  std::vector<int> devices = problem.usable();
  std::sort(devices.begin(), devices.end(), [&](int a, int b) {
    const auto key = [&](int device) {
      const double nic = problem.nic(problem.node(device));
      const std::size_t site = at(problem.site(device));
      const int on_node = slow_nics_last ? 0 : size[at(problem.node(device))];
      return std::tuple(position[site], slow_nics_last && nic < kSlow * fastest[site],
                        problem.seconds_per_flop(device), -on_node, -nic, problem.node(device),
                        device);
    };
    return key(a) < key(b);
  });
  return devices;
}

/// Usable devices of a node, as most of them have it.
int common_node_size(const Problem& problem) {
  std::map<int, int> devices_on;
  for (const int device : problem.usable()) ++devices_on[problem.node(device)];
  std::map<int, int> nodes_of;
  for (const auto& [node, devices] : devices_on) ++nodes_of[devices];
  return std::max_element(nodes_of.begin(), nodes_of.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

Layouts::Layouts(const Problem& problem) {
  const std::vector<int>& usable = problem.usable();
  rank_.assign(problem.topology().devices.size(), 0);
  for (std::size_t i = 0; i < usable.size(); ++i) rank_[at(usable[i])] = static_cast<int>(i);
  // Chains start from the sites with the highest joint speed.
  std::map<int, double> speed;
  for (const int device : usable)
    speed[problem.site(device)] += 1 / problem.seconds_per_flop(device);
  std::vector<std::pair<double, int>> starts;
  for (const auto& [site, sum] : speed) starts.emplace_back(-sum, site);
  std::sort(starts.begin(), starts.end());
  if (starts.size() > kStartsMax) starts.resize(kStartsMax);
  for (const auto& [sum, site] : starts) {
    const std::vector<int> chain = site_chain(problem, site);
    starts_.push_back({devices_along(problem, chain, false)});
    std::vector<int> by_nic = devices_along(problem, chain, true);
    if (by_nic != starts_.back().front()) starts_.back().push_back(std::move(by_nic));
  }
  const int size = common_node_size(problem);
  for (int stages = 1; stages <= size; ++stages) {
    if (size % stages == 0) blocks_.push_back({stages, size / stages});
  }
}

std::vector<Scored> Layouts::candidates(Evaluator& evaluator, std::size_t keep,
                                        Breadth breadth) const {
  const int stages = evaluator.grid().stages;
  const int pipelines = evaluator.grid().pipelines;
  const std::size_t cells = at(stages * pipelines);
  std::vector<Scored> population;
  const auto add = [&](const std::vector<int>& order, const Block& block, bool stages_along) {
    const auto [length, width] = block;
    Scored scored;
    scored.candidate.cells.resize(cells);
    std::size_t next = 0;
    const auto fill = [&](int first_stage, int first_pipeline) {
      for (int d = first_pipeline; d < std::min(first_pipeline + width, pipelines); ++d) {
        for (int i = first_stage; i < std::min(first_stage + length, stages); ++i) {
          scored.candidate.cells[at(d * stages + i)] = order[next++];
        }
      }
    };
    if (stages_along) {
      for (int i = 0; i < stages; i += length) {
        for (int d = 0; d < pipelines; d += width) fill(i, d);
      }
    } else {
      for (int d = 0; d < pipelines; d += width) {
        for (int i = 0; i < stages; i += length) fill(i, d);
      }
    }
    std::vector<int> reversed = scored.candidate.cells;
    const auto judge = [&](Scored one) {
      place_pins(evaluator, one.candidate.cells);
      one.candidate.layers = evaluator.split_layers(one.candidate.cells);
      one.value = evaluator.evaluate(one.candidate);
      add_to_population(population, std::move(one), keep);
    };
    judge(std::move(scored));
    // Who is last has the head: where the ends differ, the other way round as well.
    const Problem& problem = evaluator.problem();
    if (problem.seconds_per_flop(reversed.front()) ==
        problem.seconds_per_flop(reversed[at(stages - 1)])) {
      return;
    }
    for (auto row = reversed.begin(); row != reversed.end(); row += stages) {
      std::reverse(row, row + stages);
    }
    judge({{std::move(reversed), {}}, 0});
  };
  const bool looks_at_all = breadth == Breadth::kAll;
  const std::size_t starts = looks_at_all ? starts_.size() : std::min(kStartsFew, starts_.size());
  for (std::size_t s = 0; s < starts; ++s) {
    for (const std::vector<int>& nearest : starts_[s]) {
      std::vector<int> fastest;
      std::copy_if(nearest.begin(), nearest.end(), std::back_inserter(fastest),
                   [&](int device) { return rank_[at(device)] < static_cast<int>(cells); });
      std::vector<Block> seen;  // as large as they are in this grid
      for (const Block& whole : blocks_) {
        // At the first look: blocks of one stage or of one pipeline, the fastest devices once.
        if (!looks_at_all && whole.stages > 1 && whole.pipelines > 1) continue;
        const Block block{std::min(whole.stages, stages), std::min(whole.pipelines, pipelines)};
        if (std::ranges::find(seen, block) != seen.end()) continue;
        seen.push_back(block);
        for (const bool stages_along : {false, true}) {
          // With one block along or across both are the same.
          if (stages_along && (block.stages == stages || block.pipelines == pipelines)) continue;
          if (looks_at_all || (s == 0 && &nearest == &starts_[s].front())) {
            add(fastest, block, stages_along);
          }
          if (nearest.size() > cells) add(nearest, block, stages_along);
        }
      }
    }
  }
  return population;
}

}  // namespace longhaul
