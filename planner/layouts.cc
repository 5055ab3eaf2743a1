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

/// Usable devices in the order of a chain of sites, node by node, faster kinds first.
std::vector<int> devices_along(const Problem& problem, const std::vector<int>& chain) {
  std::vector<int> position(problem.topology().sites.size(), 0);
  for (std::size_t i = 0; i < chain.size(); ++i) position[at(chain[i])] = static_cast<int>(i);
  std::vector<int> devices = problem.usable();
  std::sort(devices.begin(), devices.end(), [&](int a, int b) {
    const auto key = [&](int device) {
      return std::tuple(position[at(problem.site(device))], problem.seconds_per_flop(device),
                        problem.node(device), device);
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
    orders_.push_back(devices_along(problem, site_chain(problem, site)));
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
    const int length = std::min(block.stages, stages);
    const int width = std::min(block.pipelines, pipelines);
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
    place_pins(evaluator, scored.candidate.cells);
    scored.candidate.layers = evaluator.split_layers(scored.candidate.cells);
    scored.value = evaluator.evaluate(scored.candidate);
    add_to_population(population, std::move(scored), keep);
  };
  const std::size_t starts =
      breadth == Breadth::kAll ? orders_.size() : std::min(kStartsFew, orders_.size());
  for (std::size_t s = 0; s < starts; ++s) {
    const std::vector<int>& nearest = orders_[s];
    const bool looks_at_all = breadth == Breadth::kAll;
    std::vector<int> fastest;
    std::copy_if(nearest.begin(), nearest.end(), std::back_inserter(fastest),
                 [&](int device) { return rank_[at(device)] < static_cast<int>(cells); });
    for (const Block& block : blocks_) {
      // At the first look: blocks of one stage or of one pipeline, the fastest devices once.
      if (!looks_at_all && block.stages > 1 && block.pipelines > 1) continue;
      for (const bool stages_along : {false, true}) {
        if (looks_at_all || s == 0) add(fastest, block, stages_along);
        if (nearest.size() > cells) add(nearest, block, stages_along);
      }
    }
  }
  return population;
}

}  // namespace longhaul
