#include "planner/dtfm_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "planner/dtfm_breeding.h"
#include "planner/dtfm_placement.h"
#include "planner/parallel.h"

namespace longhaul {
namespace {

constexpr int kIslands = 8;  // a constant: the answer must not depend on the threads
constexpr std::size_t kPopulation = 24;
constexpr std::size_t kElitesOfIsland = 6;
constexpr std::int64_t kClimb = 3'000;  // evaluations that improve one candidate
constexpr std::size_t kHistory = 30;    // length of late acceptance's memory
constexpr int kExactPathInSearch = 10;  // stages up to which a climb ends with Held-Karp

struct Candidate {
  double total = 0;
  double spread = 0;
  std::uint64_t signature = 0;
  DtfmStages stages;

  bool better_than(const Candidate& other) const {
    if (total != other.total) return total < other.total;
    if (spread != other.spread) return spread < other.spread;
    return signature < other.signature;
  }
};

Candidate candidate_of(const DtfmPlacement& placement) {
  return {placement.total(), placement.spread(), placement.signature(), placement.stages()};
}

/// Best first, at most `limit`, one of each total: on a plateau its best spread stands for all,
/// or copies of one layout would crowd out every other.
void keep_best(std::vector<Candidate>& candidates, std::size_t limit) {
  std::ranges::sort(candidates,
                    [](const Candidate& a, const Candidate& b) { return a.better_than(b); });
  const auto same = std::ranges::unique(
      candidates, [](const Candidate& a, const Candidate& b) { return a.total == b.total; });
  candidates.erase(same.begin(), same.end());
  if (candidates.size() > limit) candidates.resize(limit);
}

/// A type that stage `s` has, each device as likely as another.
int random_type(const DtfmPlacement& placement, int s, int replicas, Rng& rng) {
  auto device = static_cast<int>(rng.index(static_cast<std::size_t>(replicas)));
  int type = 0;
  while (device >= placement.count(s, type)) device -= placement.count(s, type++);
  return type;
}

/// Draws changes of a placement. Each returns false when what it drew changes nothing.
class Mover {
 public:
  Mover(const DtfmTypes& types, Rng& rng)
      : stages_(types.stages), replicas_(types.replicas), types_(types.count), rng_(&rng) {}

  bool propose(DtfmPlacement& placement) {
    const std::uint64_t draw = rng_->below(16);
    if (types_ == 1 || draw < 2) return draw == 0 ? swap_stages(placement) : reverse(placement);
    if (draw < 7) return trade(placement);
    if (draw < 11) return imitate(placement);
    return trade_runs(placement);
  }

 private:
  int random_stage() { return static_cast<int>(rng_->index(static_cast<std::size_t>(stages_))); }

  bool swap_stages(DtfmPlacement& placement) {
    const int s = random_stage();
    const int t = random_stage();
    if (s == t) return false;
    placement.swap_stages(s, t);
    return true;
  }

  bool reverse(DtfmPlacement& placement) {
    const auto [first, last] = std::minmax({random_stage(), random_stage()});
    if (first == last) return false;
    placement.reverse(first, last + 1);
    return true;
  }

  /// Devices of one stage for as many of another.
  bool trade(DtfmPlacement& placement) {
    const int s = random_stage();
    const int t = random_stage();
    const int given = random_type(placement, s, replicas_, *rng_);
    const int taken = random_type(placement, t, replicas_, *rng_);
    if (s == t || given == taken) return false;
    const int most = std::min(placement.count(s, given), placement.count(t, taken));
    placement.trade(s, t, given, taken, amount(most));
    return true;
  }

  /// Makes a stage more like a neighbour: it gets devices that the neighbour has more of, for ones
  /// that it has more of itself, from any third stage.
  bool imitate(DtfmPlacement& placement) {
    const int s = random_stage();
    const int neighbour = rng_->chance(0.5) ? s + 1 : s - 1;
    const int t = random_stage();
    if (neighbour < 0 || neighbour >= stages_ || t == s || t == neighbour) return false;
    const int given = random_type(placement, s, replicas_, *rng_);
    const int taken = random_type(placement, neighbour, replicas_, *rng_);
    if (given == taken) return false;
    const int most = std::min({placement.count(s, given) - placement.count(neighbour, given),
                               placement.count(neighbour, taken) - placement.count(s, taken),
                               placement.count(t, taken)});
    if (most < 1) return false;
    placement.trade(s, t, given, taken, amount(most));
    return true;
  }

  /// The same trade between a run of stages and as many others that follow each other once the
  /// run is left out. One trade alone would break runs of equal stages, and lose, where the trade
  /// of all of them gains.
  bool trade_runs(DtfmPlacement& placement) {
    int first = random_stage();
    int end = first + 1;
    if (rng_->chance(0.5)) {
      while (first > 0 && placement.stage(first - 1) == placement.stage(first)) --first;
      while (end < stages_ && placement.stage(end) == placement.stage(first)) ++end;
    } else {
      end = std::min(stages_, end + random_stage());
    }
    const int length = end - first;
    if (length < 2 || 2 * length > stages_) return false;
    const int start =
        static_cast<int>(rng_->index(static_cast<std::size_t>(stages_ - 2 * length + 1)));
    const auto partner = [&](int k) { return start + k < first ? start + k : start + k + length; };
    const int given = random_type(placement, first, replicas_, *rng_);
    const int taken = random_type(placement, partner(0), replicas_, *rng_);
    if (given == taken) return false;
    int most = replicas_;
    for (int k = 0; k < length; ++k) {
      most =
          std::min({most, placement.count(first + k, given), placement.count(partner(k), taken)});
    }
    if (most < 1) return false;
    const int devices = amount(most);
    for (int k = 0; k < length; ++k) {
      placement.trade(first + k, partner(k), given, taken, devices);
    }
    return true;
  }

  /// Between 1 and `most`: small steps refine, the largest ones move whole sites.
  int amount(int most) {
    if (most == 1 || rng_->chance(0.5)) return 1;
    return rng_->chance(0.5) ? most
                             : 1 + static_cast<int>(rng_->index(static_cast<std::size_t>(most)));
  }

  int stages_;
  int replicas_;
  int types_;
  Rng* rng_;
};

/// Puts the stages into a cheaper path order, the cheapest one where `exact`.
void shorten_path(DtfmPlacement& placement, bool exact) {
  const std::vector<double> hops = placement.hop_matrix();
  const auto stages = static_cast<int>(placement.stages().size());
  std::vector<int> path(placement.stages().size());
  std::iota(path.begin(), path.end(), 0);
  if (exact) {
    path = shortest_open_path(hops, stages);
  } else {
    polish_open_path(hops, stages, path);
  }
  DtfmPlacement reordered = placement;
  reordered.reorder(path);
  if (reordered.total() < placement.total()) placement = std::move(reordered);
}

struct Climb {
  std::int64_t evaluations;
  double spread_weight;  // how much of the tie-breaking spread is added to the objective
};

/// Late acceptance: a change is taken if it is no worse than now or than `kHistory` steps ago.
/// Returns the best placement seen and adds the evaluations done to `evaluations`.
Candidate climb(DtfmPricer& pricer, const DtfmStages& start, const Climb& options, Rng& rng,
                std::int64_t& evaluations) {
  const bool exact_path = pricer.types().stages <= kExactPathInSearch;
  DtfmPlacement placement(pricer, start);
  shorten_path(placement, exact_path);
  const auto score_of = [&](const DtfmPlacement& p) {
    return p.total() + options.spread_weight * p.spread();
  };
  Mover mover(pricer.types(), rng);
  Candidate best = candidate_of(placement);
  double score = score_of(placement);
  std::vector<double> history(kHistory, score);
  std::int64_t done = 1;
  std::size_t slot = 0;
  // Many draws change nothing; their number is limited too, for where nothing can be changed.
  for (std::int64_t draw = 0; done < options.evaluations && draw < 8 * options.evaluations;
       ++draw) {
    if (!mover.propose(placement)) continue;
    ++done;
    placement.settle();
    const double changed = score_of(placement);
    double& remembered = history[slot];
    slot = slot + 1 < kHistory ? slot + 1 : 0;
    if (changed <= score || changed <= remembered) {
      placement.keep();
      score = changed;
      if (placement.total() < best.total ||
          (placement.total() == best.total && placement.spread() < best.spread)) {
        best = candidate_of(placement);
      }
    } else {
      placement.undo();
    }
    remembered = std::min(remembered, score);
  }
  evaluations += done;
  DtfmPlacement shortened(pricer, best.stages);
  shorten_path(shortened, exact_path);
  return candidate_of(shortened);
}

struct Island {
  DtfmPricer pricer;
  std::vector<Candidate> elites;
  std::int64_t evaluations = 0;
};

/// One round of one island: breeds and climbs until its share of the evaluations is used up.
void run_island(Island& island, int index, int round, const DtfmSearchOptions& options,
                const std::vector<DtfmStages>& layouts, const std::vector<Candidate>& population) {
  const DtfmTypes& types = island.pricer.types();
  Rng rng(fmt::format("dtfm search, round {}, island {}", round, index), options.seed);
  // Islands differ in how much they look at the tie-breaker, which misleads on some networks.
  constexpr std::array<double, 4> kSpreadWeights = {0.02, 0.002, 0.1, 0.0};
  const double spread_weight =
      kSpreadWeights[static_cast<std::size_t>(index) % kSpreadWeights.size()];
  const std::int64_t budget = std::max<std::int64_t>(1, options.evaluations_per_round / kIslands);
  const auto layout_count = static_cast<int>(layouts.size());

  std::int64_t used = 0;  // as planned: a climb that runs out of useful draws spends its share too
  island.elites.clear();
  for (int turn = 0; used < budget; ++turn) {
    const int layout = index + turn * kIslands;
    DtfmStages start;
    if (round == 0 && layout < layout_count) {
      start = layouts[static_cast<std::size_t>(layout)];
    } else if (population.empty() || rng.chance(0.15)) {
      start = random_runs(types, rng);
    } else {
      // Half of the parents come from this island's own young, so that a round is several
      // generations deep.
      const auto parent = [&]() -> const DtfmStages& {
        const bool young = !island.elites.empty() && rng.chance(0.5);
        const std::vector<Candidate>& pool = young ? island.elites : population;
        return pool[std::min(rng.index(pool.size()), rng.index(pool.size()))].stages;
      };
      const DtfmStages& donor = parent();
      start = cross(types, donor, parent(), rng);
    }
    const std::int64_t evaluations = std::min(kClimb, budget - used);
    island.elites.push_back(
        climb(island.pricer, start, {evaluations, spread_weight}, rng, island.evaluations));
    used += evaluations;
    keep_best(island.elites, kElitesOfIsland);
  }
}

}  // namespace

DtfmSearchResult dtfm_search(const DtfmInstance& instance, const DtfmSearchOptions& options) {
  const DtfmTypes types = DtfmTypes::of(instance);
  const std::vector<DtfmStages> layouts = structured_layouts(types);
  std::vector<Island> islands;
  for (int i = 0; i < kIslands; ++i) islands.push_back({DtfmPricer(types), {}, 0});
  std::vector<Candidate> population;
  DtfmSearchResult result;
  int rounds_without_gain = 0;
  std::optional<double> lower_bound;
  while (result.rounds < std::max(1, options.rounds)) {
    parallel_for(kIslands, options.threads, [&](int i) {
      run_island(islands[static_cast<std::size_t>(i)], i, result.rounds, options, layouts,
                 population);
    });
    const double before = population.empty() ? 0 : population.front().total;
    const bool first = population.empty();
    result.evaluations = 0;
    for (Island& island : islands) {
      std::ranges::move(island.elites, std::back_inserter(population));
      result.evaluations += island.evaluations;
    }
    keep_best(population, kPopulation);
    ++result.rounds;
    rounds_without_gain = first || population.front().total < before ? 0 : rounds_without_gain + 1;
    if (options.on_round) {
      options.on_round({result.rounds, result.evaluations, population.front().total});
    }
    if (options.lower_bound && first) {
      lower_bound = options.lower_bound(population.front().total);
    }
    if (lower_bound && population.front().total <= *lower_bound) break;
    if (options.patience > 0 && rounds_without_gain >= options.patience) break;
    if (options.should_stop && options.should_stop()) break;
  }

  DtfmPlacement best(islands.front().pricer, population.front().stages);
  shorten_path(best, types.stages <= kExactPathStages);
  const DtfmPartition partition = partition_of(types, best.stages());
  std::vector<int> in_order(partition.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  result.partition = arrange_dtfm(instance, partition, in_order);
  result.cost = evaluate_dtfm_in_order(instance, result.partition);
  return result;
}

}  // namespace longhaul
