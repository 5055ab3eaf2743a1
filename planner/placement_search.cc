#include "planner/placement_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace longhaul {
namespace {

constexpr std::size_t kHistory = 64;  // late acceptance: compare with the cost so many moves ago

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// A candidate being changed in place: knows its idle devices and can undo one move.
class Climber {
 public:
  Climber(Evaluator& evaluator, Candidate candidate, Rng& rng)
      : evaluator_(evaluator), candidate_(std::move(candidate)), rng_(rng) {
    std::vector<char> used(evaluator.problem().topology().devices.size(), 0);
    for (const int device : candidate_.cells) used[at(device)] = 1;
    for (const int device : evaluator.problem().usable()) {
      if (used[at(device)] == 0) idle_.push_back(device);
    }
    // Devices of one node stand together, to be taken together.
    std::sort(idle_.begin(), idle_.end());
    idle_at_.resize(evaluator.problem().topology().sites.size());
    for (std::size_t i = 0; i < idle_.size(); ++i) {
      idle_at_[at(evaluator.problem().site(idle_[i]))].push_back(i);
    }
  }

  const Candidate& candidate() const { return candidate_; }

  /// Makes a random move; false when it would have changed nothing.
  bool move() {
    saved_ = Move::kNone;
    const std::uint64_t dice = rng_.below(100);
    if (dice < 45) return swap_cells();
    if (dice < 55) return swap_runs();
    if (dice < 70) return swap_idle();
    if (dice < 85) return move_layer();
    if (dice < 90) return reverse_stages();
    if (dice < 97) return swap_pipelines_of_stage();
    return rematch();
  }

  void undo() {
    switch (saved_) {
      case Move::kSwapCells:
        swap_range(candidate_.cells, b_);
        break;
      case Move::kSwapIdle:
        swap_range(idle_, b_);
        break;
      case Move::kLayer:
        ++candidate_.layers[a_];
        --candidate_.layers[b_];
        break;
      case Move::kReverse:
        reverse(a_, b_);
        break;
      case Move::kRematch:
        candidate_.cells = saved_cells_;
        break;
      case Move::kNone:
        break;
    }
  }

 private:
  enum class Move { kNone, kSwapCells, kSwapIdle, kLayer, kReverse, kRematch };

  bool swap_at(std::size_t a, std::size_t b) {
    const int first = candidate_.cells[a];
    const int second = candidate_.cells[b];
    if (first == second || evaluator_.problem().same(first, second)) return false;
    a_ = a;
    b_ = b;
    length_ = 1;
    swap_range(candidate_.cells, b_);
    saved_ = Move::kSwapCells;
    return true;
  }

  /// Exchanges `length_` cells from a_ on with as many of `other` from `b` on.
  void swap_range(std::vector<int>& other, std::size_t b) {
    const auto first = candidate_.cells.begin() + static_cast<std::ptrdiff_t>(a_);
    std::swap_ranges(first, first + static_cast<std::ptrdiff_t>(length_),
                     other.begin() + static_cast<std::ptrdiff_t>(b));
  }

  /// The same stages of two pipelines.
  bool swap_runs() {
    const std::size_t stages = at(evaluator_.grid().stages);
    const std::size_t pipelines = at(evaluator_.grid().pipelines);
    const std::size_t first = rng_.index(pipelines);
    const std::size_t second = rng_.index(pipelines);
    if (first == second) return false;
    const std::size_t begin = rng_.index(stages);
    length_ = 1 + rng_.index(stages - begin);
    a_ = first * stages + begin;
    b_ = second * stages + begin;
    swap_range(candidate_.cells, b_);
    saved_ = Move::kSwapCells;
    return true;
  }

  bool swap_cells() {
    return swap_at(rng_.index(candidate_.cells.size()), rng_.index(candidate_.cells.size()));
  }

  bool swap_pipelines_of_stage() {
    const std::size_t stages = at(evaluator_.grid().stages);
    const std::size_t stage = rng_.index(stages);
    const std::size_t pipelines = at(evaluator_.grid().pipelines);
    return swap_at(rng_.index(pipelines) * stages + stage, rng_.index(pipelines) * stages + stage);
  }

  bool swap_idle() {
    if (idle_.empty()) return swap_cells();
    a_ = rng_.index(candidate_.cells.size());
    b_ = rng_.index(idle_.size());
    // Half of the time one of a site that the plan uses: of many sites most are none.
    const int here = candidate_.cells[rng_.index(candidate_.cells.size())];
    const std::vector<std::size_t>& near = idle_at_[at(evaluator_.problem().site(here))];
    if (!near.empty() && rng_.chance(0.5)) b_ = near[rng_.index(near.size())];
    const std::size_t stages = at(evaluator_.grid().stages);
    const std::size_t most = std::min(stages - a_ % stages, idle_.size() - b_);
    length_ = rng_.chance(0.5) ? 1 : 1 + rng_.index(most);
    if (length_ == 1 && evaluator_.problem().same(candidate_.cells[a_], idle_[b_])) return false;
    swap_range(idle_, b_);
    saved_ = Move::kSwapIdle;
    return true;
  }

  bool move_layer() {
    if (evaluator_.problem().rules().expressible.equal_layers) return swap_cells();
    a_ = rng_.index(candidate_.layers.size());
    b_ = rng_.index(candidate_.layers.size());
    if (a_ == b_ || candidate_.layers[a_] == 1) return false;
    --candidate_.layers[a_];
    ++candidate_.layers[b_];
    saved_ = Move::kLayer;
    return true;
  }

  bool reverse_stages() {
    a_ = rng_.index(candidate_.layers.size());
    b_ = rng_.index(candidate_.layers.size());
    if (a_ == b_) return false;
    if (a_ > b_) std::swap(a_, b_);
    reverse(a_, b_);
    saved_ = Move::kReverse;
    return true;
  }

  /// Which device of a stage continues which pipeline: the shortest hops first. The stages after it
  /// go along.
  bool rematch() {
    const std::size_t stages = at(evaluator_.grid().stages);
    const std::size_t pipelines = at(evaluator_.grid().pipelines);
    if (stages == 1 || pipelines == 1) return false;
    const std::size_t stage = 1 + rng_.index(stages - 1);
    struct Hop {
      double seconds;
      std::size_t from, to;
    };
    std::vector<Hop> hops;
    for (std::size_t from = 0; from < pipelines; ++from) {
      const int device = candidate_.cells[from * stages + stage - 1];
      for (std::size_t to = 0; to < pipelines; ++to) {
        const int next = candidate_.cells[to * stages + stage];
        hops.push_back({evaluator_.hop_seconds(device, next), from, to});
      }
    }
    std::sort(hops.begin(), hops.end(), [](const Hop& a, const Hop& b) {
      return std::tie(a.seconds, a.from, a.to) < std::tie(b.seconds, b.from, b.to);
    });
    saved_cells_ = candidate_.cells;
    std::vector<char> is_from(pipelines, 0), is_to(pipelines, 0);
    for (const Hop& hop : hops) {
      if (is_from[hop.from] != 0 || is_to[hop.to] != 0) continue;
      is_from[hop.from] = is_to[hop.to] = 1;
      const auto first = saved_cells_.begin() + static_cast<std::ptrdiff_t>(hop.to * stages);
      std::copy(first + static_cast<std::ptrdiff_t>(stage),
                first + static_cast<std::ptrdiff_t>(stages),
                candidate_.cells.begin() + static_cast<std::ptrdiff_t>(hop.from * stages + stage));
    }
    saved_ = Move::kRematch;
    return candidate_.cells != saved_cells_;
  }

  void reverse(std::size_t first, std::size_t last) {
    const std::size_t stages = candidate_.layers.size();
    const auto flip = [&](std::vector<int>& row, std::size_t offset) {
      const auto begin = row.begin() + static_cast<std::ptrdiff_t>(offset);
      std::reverse(begin + static_cast<std::ptrdiff_t>(first),
                   begin + static_cast<std::ptrdiff_t>(last) + 1);
    };
    flip(candidate_.layers, 0);
    for (std::size_t row = 0; row < candidate_.cells.size(); row += stages)
      flip(candidate_.cells, row);
  }

  Evaluator& evaluator_;
  Candidate candidate_;
  Rng& rng_;
  std::vector<int> idle_;
  std::vector<std::vector<std::size_t>> idle_at_;  // by site: where in idle_ its devices began
  std::vector<int> saved_cells_;
  Move saved_ = Move::kNone;
  std::size_t a_ = 0;
  std::size_t b_ = 0;
  std::size_t length_ = 1;
};

}  // namespace

void place_pins(const Evaluator& evaluator, std::vector<int>& cells) {
  const std::size_t stages = at(evaluator.grid().stages);
  const std::span<const Pin> pins = evaluator.pins();
  const auto is_kept = [&](std::size_t cell) {
    return std::ranges::any_of(pins, [&](const Pin& pin) {
      return pin.device == cells[cell] && at(pin.stage) == cell % stages;
    });
  };
  for (const Pin& pin : pins) {
    const auto found = std::ranges::find(cells, pin.device);
    const bool is_idle = found == cells.end();
    const auto from = static_cast<std::size_t>(found - cells.begin());
    if (!is_idle && is_kept(from)) continue;
    std::size_t to = cells.size();
    bool is_near = false;
    for (std::size_t cell = at(pin.stage); cell < cells.size(); cell += stages) {
      if (is_kept(cell)) continue;
      const bool near =
          is_idle ? evaluator.problem().site(cells[cell]) == evaluator.problem().site(pin.device)
                  : cell / stages == from / stages;
      if (to < cells.size() && (is_near || !near)) continue;
      to = cell;
      is_near = near;
    }
    LH_CHECK(to < cells.size(), "a grid has room for all pins of a stage");
    if (is_idle) {
      cells[to] = pin.device;
    } else {
      std::swap(cells[from], cells[to]);
    }
  }
}

void add_to_population(std::vector<Scored>& population, Scored scored, std::size_t limit) {
  const auto place =
      std::lower_bound(population.begin(), population.end(), scored,
                       [](const Scored& a, const Scored& b) { return a.value < b.value; });
  if (place != population.end() && place->value == scored.value) return;
  population.insert(place, std::move(scored));
  if (population.size() > limit) population.pop_back();
}

Scored climb(Evaluator& evaluator, const Scored& start, int evaluations, Rng& rng,
             const std::function<bool()>& interrupted) {
  Scored best = start;
  Climber climber(evaluator, start.candidate, rng);
  double current = start.value;
  std::vector<double> history(kHistory, current);
  for (int i = 0; i < evaluations; ++i) {
    constexpr int kAsked = 256;  // evaluations; a few milliseconds
    if (i % kAsked == 0 && interrupted && interrupted()) break;
    if (!climber.move()) continue;
    const double value = evaluator.evaluate(climber.candidate());
    double& then = history[static_cast<std::size_t>(i) % kHistory];
    if (value <= current || value <= then) {
      current = value;
      if (value < best.value) best = {climber.candidate(), value};
    } else {
      climber.undo();
    }
    then = std::min(then, current);
  }
  return best;
}

Scored cross(Evaluator& evaluator, const Scored& mother, const Scored& father, Rng& rng) {
  const std::size_t stages = at(evaluator.grid().stages);
  const std::size_t cells = mother.candidate.cells.size();
  constexpr int kNobody = -1;
  Scored child;
  child.candidate.cells.assign(cells, kNobody);
  child.candidate.layers = rng.chance(0.5) ? mother.candidate.layers : father.candidate.layers;
  std::vector<char> used(evaluator.problem().topology().devices.size(), 0);
  std::vector<char> from_mother(stages, 0);
  for (char& flag : from_mother) flag = rng.chance(0.5) ? 1 : 0;
  const auto take = [&](std::size_t cell, int device) {
    if (child.candidate.cells[cell] != kNobody || used[at(device)] != 0) return;
    child.candidate.cells[cell] = device;
    used[at(device)] = 1;
  };
  for (std::size_t c = 0; c < cells; ++c) {
    if (from_mother[c % stages] != 0) take(c, mother.candidate.cells[c]);
  }
  for (std::size_t c = 0; c < cells; ++c) take(c, father.candidate.cells[c]);
  std::size_t next = 0;
  const std::vector<int>& usable = evaluator.problem().usable();
  for (std::size_t c = 0; c < cells; ++c) {
    while (child.candidate.cells[c] == kNobody) take(c, usable[next++]);
  }
  place_pins(evaluator, child.candidate.cells);
  child.value = evaluator.evaluate(child.candidate);
  return child;
}

}  // namespace longhaul
