#include "planner/refinement.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "planner/parallel.h"

namespace longhaul {
namespace {

constexpr int kBatch = 16;
/// Batches without success, a cell each, after which no neighbour is expected to be better.
constexpr int kFailures = 4;

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
                         : dice < 65 ? move_layer(next)
                         : dice < 80 ? move_micro_batches(next)
                         : dice < 95 ? change_depth(next)
                                     : move_coordinator(next);
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

  /// In-order depths stay non-increasing: a rise takes the stages before along, a fall those after.
  bool change_depth(Plan& next) {
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

JudgedPlan refine(const Problem& problem, JudgedPlan start, const RefinementOptions& options) {
  JudgedPlan best = std::move(start);
  Rng rng(options.name, options.seed);
  const int patience = kFailures * best.plan.stages() * best.plan.pipelines();
  double transfers = 0;
  int failures = 0;
  while (failures < patience && transfers < options.transfers) {
    if (options.interrupted && options.interrupted()) break;
    Neighbours neighbours(problem, best.plan, rng);
    std::vector<Plan> drawn;
    for (int i = 0; i < kBatch; ++i) {
      if (std::optional<Plan> plan = neighbours.draw()) drawn.push_back(std::move(*plan));
    }
    for (const Plan& plan : drawn) transfers += transfers_of(plan);
    ++failures;
    // A neighbour whose step cannot be simulated is none.
    std::vector<std::optional<Result<StepResult>>> steps(drawn.size());
    parallel_for(static_cast<int>(drawn.size()), options.threads, [&](int p) {
      steps[at(p)] = simulate_step(problem.topology(), problem.job(), drawn[at(p)]);
    });
    for (std::size_t p = 0; p < drawn.size(); ++p) {
      if (!*steps[p]) continue;
      JudgedPlan judged{std::move(drawn[p]), std::move(**steps[p]), best.closed_form_s};
      if (value_of(judged, problem.goal()) >= value_of(best, problem.goal())) continue;
      best = std::move(judged);
      failures = 0;
    }
  }
  return best;
}

}  // namespace longhaul
