#include "planner/dtfm_bounds.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <optional>
#include <ranges>
#include <utility>

#include "core/rng.h"
#include "planner/dtfm_compositions.h"
#include "planner/dtfm_exact.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kCompositionsMax = 7'000;  // 8 types and 8 replicas have 6,435
constexpr int kSlices = 16;
constexpr double kRelativeTolerance = 1e-10;
constexpr double kFirstWork = 2e7;
constexpr double kQuestionWork = 2e5;  // whatever is asked
constexpr double kCompositionWork = 5e3;
constexpr int kMergedOneByOne = 64;
constexpr int kMergings = 6;
constexpr double kOperationWork = 0.5;  // ns of DtfmCostToGo::operations
constexpr std::size_t kGuides = 3;
constexpr int kRefinements = 2;
constexpr std::size_t kRefined = 8;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// What a pair of devices weighs in the objective, roughly; infinite if there is no such pair.
double pair_weight(const DtfmCounts& counts, int r, int s) {
  if (r == s && counts.devices[index(r)] < 2) return kInfinity;
  const std::size_t entry = index(r) * counts.devices.size() + index(s);
  return 2 * (counts.stages - 1) * counts.hop_s[entry] +
         (counts.replicas - 1) * counts.exchange_s[entry];
}

/// What becomes cheaper when two types become one, over all pairs of devices.
double merging_loss(const DtfmCounts& counts, int a, int b) {
  const double pairs_inside[] = {pair_weight(counts, a, a), pair_weight(counts, a, b),
                                 pair_weight(counts, b, a), pair_weight(counts, b, b)};
  const double least = *std::ranges::min_element(pairs_inside);
  const double of_a = counts.devices[index(a)];
  const double of_b = counts.devices[index(b)];
  const double devices[] = {of_a * of_a, of_a * of_b, of_a * of_b, of_b * of_b};
  double loss = 0;
  for (int k = 0; k < 4; ++k) {
    if (pairs_inside[k] < kInfinity) loss += devices[k] * (pairs_inside[k] - least);
  }
  for (int other = 0; other < counts.types(); ++other) {
    if (other == a || other == b) continue;
    const double there = pair_weight(counts, a, other) - pair_weight(counts, b, other);
    const double back = pair_weight(counts, other, a) - pair_weight(counts, other, b);
    loss += counts.devices[index(other)] * ((there > 0 ? of_a : of_b) * std::abs(there) +
                                            (back > 0 ? of_a : of_b) * std::abs(back));
  }
  return loss;
}

/// A division of the types into merged ones.
struct Division {
  std::vector<int> label;
  int count = 0;
  double score = 0;  // what it says about a few slices
};

bool fit_for_exact_work(int types, int replicas) {
  return types == 1 || (types <= kDtfmTypesExact && DtfmCompositions::count(types, replicas) <=
                                                        static_cast<double>(kCompositionsMax));
}

/// Where there are very many types, leaders far from each other take the types nearest to them.
Division around_leaders(const DtfmCounts& all) {
  Division division{std::vector<int>(all.devices.size(), 0), 1, 0};
  std::vector<double> distance(all.devices.size(), kInfinity);
  for (int leader = 0;; ++division.count) {
    for (int t = 0; t < all.types(); ++t) {
      const double to_leader = t == leader ? 0 : pair_weight(all, leader, t);
      if (!(to_leader < distance[index(t)])) continue;
      distance[index(t)] = to_leader;
      division.label[index(t)] = division.count - 1;
    }
    if (division.count == kMergedOneByOne) return division;
    leader = static_cast<int>(std::ranges::max_element(distance) - distance.begin());
    if (distance[index(leader)] == 0) return division;  // all the others cost nothing to reach
  }
}

/// Merges the types that differ least until exact work is possible. Variants above 0 weigh the
/// differences at random: which merging says most is not the same for all exchanges.
Division few_types(const DtfmCounts& all, int variant) {
  Rng rng("merging of types", static_cast<std::uint64_t>(variant));
  Division division{std::vector<int>(all.devices.size()), all.types(), 0};
  std::iota(division.label.begin(), division.label.end(), 0);
  if (all.types() > kMergedOneByOne) division = around_leaders(all);
  while (!fit_for_exact_work(division.count, all.replicas)) {
    const DtfmCounts counts = all.merged(division.label, division.count);
    double least = kInfinity;
    std::pair<int, int> merge;
    for (int a = 0; a < counts.types(); ++a) {
      for (int b = a + 1; b < counts.types(); ++b) {
        const double weight = variant == 0 ? 1 : 0.3 + rng.uniform();
        const double loss = weight * merging_loss(counts, a, b);
        if (!(loss < least)) continue;
        least = loss;
        merge = {a, b};
      }
    }
    for (int& label : division.label) {
      if (label == merge.second) label = merge.first;
      label -= label > merge.second ? 1 : 0;
    }
    --division.count;
  }
  return division;
}

/// Placements whose exchange lies between two times.
struct Slice {
  double start_s;
  double end_s;
  double path_s;             // no path over stages that exchange within the end is cheaper
  double work = kFirstWork;  // to spend on the next try
  bool exhausted = false;    // the problem at hand has no more to say
};

Division common_refinement(const Division& a, const Division& b) {
  Division out{{}, 0, 0};
  std::vector<int> seen(index(a.count * b.count), -1);
  for (std::size_t t = 0; t < a.label.size(); ++t) {
    int& name = seen[index(a.label[t] * b.count + b.label[t])];
    if (name < 0) name = out.count++;
    out.label.push_back(name);
  }
  return out;
}

/// What is known so far, shared by the problems that bound the slices in turn.
struct Ledger {
  const DtfmBoundOptions* options;
  double known_s;
  double path_floor_s;
  std::vector<Slice> slices;
  double work = 0;

  double below(const Slice& slice) const {
    return (known_s * (1 - kRelativeTolerance) - slice.start_s) / 2;
  }
  double bound(const Slice& slice) const {
    return std::min(known_s, slice.start_s + 2 * slice.path_s);
  }
  bool closed(const Slice& slice) const { return !(slice.path_s < below(slice)); }
  /// The slice whose bound is the bound of all; none if nothing can cost less than what is known.
  Slice* weakest();
  double least_s() const;
  bool limited() const {
    return work > options->work || (options->should_stop && options->should_stop());
  }
};

Slice* Ledger::weakest() {
  Slice* weakest = nullptr;
  for (Slice& slice : slices) {
    if (closed(slice)) continue;
    if (weakest == nullptr || bound(slice) < bound(*weakest)) weakest = &slice;
  }
  return weakest;
}

double Ledger::least_s() const {
  double least = known_s;
  for (const Slice& slice : slices) least = std::min(least, bound(slice));
  return least;
}

/// The real problem, or one with merged types.
class Bounder {
 public:
  Bounder(DtfmCompositions compositions, bool real, Ledger& ledger);

  /// Raises the weakest slice until another one is that has no more to gain here, or work ends.
  void run();
  /// The path that costs ledger.known_s, if it was found here.
  const std::vector<int>& cheaper() const { return cheaper_; }
  const DtfmCompositions& compositions() const { return compositions_; }

 private:
  void choose_guides();
  bool try_out(Division& division);
  void solve_guides(int allowed);
  void refine(Slice& slice);
  void split(Slice& slice, const DtfmPathAnswer& answer);

  DtfmCompositions compositions_;
  bool real_;
  Ledger* ledger_;
  std::vector<int> cheaper_;
  std::vector<DtfmCostToGo> guides_;
  int solved_for_ = -1;  // allowed compositions for which the guides hold the table
  std::optional<DtfmPathSearch> search_;
};

Bounder::Bounder(DtfmCompositions compositions, bool real, Ledger& ledger)
    : compositions_(std::move(compositions)), real_(real), ledger_(&ledger) {
  ledger.work += kCompositionWork * compositions_.size();
  if (real_) {
    // The exchange is a composition's.
    for (Slice& slice : ledger.slices) {
      const int next = compositions_.within(std::nextafter(slice.start_s, 0.0));
      if (next < compositions_.size()) {
        slice.start_s = std::max(slice.start_s, compositions_.exchange_s(next));
      }
      if (slice.start_s > slice.end_s) slice.path_s = kInfinity;
    }
  }
  choose_guides();
  double dearest = 0;
  double end_s = 0;
  for (Slice& slice : ledger.slices) {
    const int allowed = compositions_.within(slice.end_s);
    if (allowed == 0) slice.path_s = kInfinity;
    if (ledger.closed(slice)) continue;
    solve_guides(allowed);
    for (const DtfmCostToGo& guide : guides_) {
      slice.path_s = std::max(slice.path_s, guide.whole_s());
    }
    dearest = std::max(dearest, ledger.below(slice));
    end_s = std::max(end_s, slice.end_s);
  }
  const double cheapest = compositions_.prices().empty() ? 0 : compositions_.prices().front();
  search_.emplace(compositions_, compositions_.within(end_s),
                  dearest - (compositions_.counts().stages - 2) * cheapest);
}

bool Bounder::try_out(Division& division) {
  std::optional<DtfmCostToGo> guide =
      DtfmCostToGo::of(compositions_.counts(), division.label, division.count);
  if (!guide) return false;
  // A few slices stand for all.
  const std::vector<Slice>& slices = ledger_->slices;
  for (std::size_t s = 0; s < slices.size(); s += std::max<std::size_t>(1, slices.size() / 4)) {
    guide->solve(slices[s].end_s);
    ledger_->work += kOperationWork * guide->operations();
    division.score += std::min(guide->whole_s(), ledger_->below(slices[s]));
  }
  return true;
}

/// Each guide starts from the division into two that says most among those that tell types apart
/// which no guide before it does, and is refined by other such divisions while that says more.
void Bounder::choose_guides() {
  const int types = compositions_.counts().types();
  std::vector<Division> halves;
  for (unsigned half = 0; half < 1u << (types - 1); ++half) {
    Division division{{}, half == 0 ? 1 : 2, 0};
    for (int t = 0; t < types; ++t) {
      division.label.push_back(static_cast<int>(half >> (types - 1 - t) & 1u));
    }
    if (try_out(division)) halves.push_back(std::move(division));
  }
  std::ranges::sort(halves, {}, [](const Division& division) {
    return std::pair(-division.score, division.label);
  });
  Division all{std::vector<int>(index(types), 0), 1, 0};  // the refinement of all guides
  for (const Division& half : halves) {
    if (guides_.size() == kGuides) break;
    const Division more = common_refinement(all, half);
    if (more.count == all.count && !guides_.empty()) continue;
    Division best = half;
    for (int round = 0; round < kRefinements; ++round) {
      const Division base = best;
      for (std::size_t other = 0; other < std::min(halves.size(), kRefined); ++other) {
        Division refined = common_refinement(base, halves[other]);
        if (refined.count == base.count || !try_out(refined)) continue;
        if (refined.score > best.score) best = std::move(refined);
      }
    }
    all = common_refinement(all, best);
    guides_.push_back(*DtfmCostToGo::of(compositions_.counts(), best.label, best.count));
    guides_.back().attach(compositions_);
  }
}

void Bounder::solve_guides(int allowed) {
  if (solved_for_ == allowed) return;
  solved_for_ = allowed;
  for (DtfmCostToGo& guide : guides_) {
    guide.solve(compositions_.exchange_s(allowed - 1));
    ledger_->work += kOperationWork * guide.operations();
  }
}

void Bounder::refine(Slice& slice) {
  const int allowed = compositions_.within(slice.end_s);
  if (allowed == 0) {
    slice.path_s = kInfinity;
    return;
  }
  solve_guides(allowed);
  const double before = search_->work();
  const double below = ledger_->below(slice);
  const DtfmPathAnswer answer = search_->ask(
      {allowed, below, std::min(slice.work, ledger_->options->work - ledger_->work)}, guides_);
  ledger_->work += kQuestionWork + search_->work() - before;
  slice.path_s = std::max(slice.path_s, std::min(answer.least_s, below));
  slice.work *= 4;
  if (!answer.path.empty()) split(slice, answer);
}

void Bounder::split(Slice& slice, const DtfmPathAnswer& answer) {
  const double exchange = compositions_.exchange_s(*std::ranges::max_element(answer.path));
  const double total = std::max(exchange, slice.start_s) + 2 * answer.least_s;
  if (real_ && total < ledger_->known_s * (1 - kRelativeTolerance)) {
    ledger_->known_s = total;
    cheaper_ = answer.path;
  }
  // Where the exchange takes what this path's takes or longer, nothing here is cheaper than it.
  slice.exhausted = true;
  if (!(slice.start_s < exchange)) return;
  Slice faster = slice;
  faster.end_s = std::nextafter(exchange, 0.0);
  faster.exhausted = false;
  slice.start_s = exchange;
  ledger_->slices.push_back(faster);
}

void Bounder::run() {
  for (Slice& slice : ledger_->slices) {
    slice.exhausted = false;
    slice.work = kFirstWork;
  }
  while (!ledger_->limited()) {
    Slice* weakest = ledger_->weakest();
    if (weakest == nullptr || weakest->exhausted) return;
    refine(*weakest);
  }
}

/// Cuts the useful exchanges into slices: beyond the last even the cheapest path costs too much.
void cut(Ledger& ledger, double floor_s) {
  const double last_s = ledger.known_s - 2 * ledger.path_floor_s;
  const double width = (last_s - floor_s) / kSlices;
  for (int k = 0; k < kSlices && width >= 0; ++k) {
    const double end_s = k + 1 == kSlices ? last_s : floor_s + width * (k + 1);
    ledger.slices.push_back({floor_s + width * k, end_s, ledger.path_floor_s});
  }
}

}  // namespace

double dtfm_exchange_floor(const DtfmInstance& instance) {
  double floor = 0;
  std::vector<double> partners;
  for (int i = 0; i < instance.devices; ++i) {
    partners.clear();
    for (int j = 0; j < instance.devices; ++j) {
      if (j != i) partners.push_back(instance.gradient_exchange_s(i, j));
    }
    const auto nearest = partners.begin() + (instance.replicas - 1);
    if (nearest != partners.end()) std::ranges::nth_element(partners, nearest);
    floor = std::max(floor, std::accumulate(partners.begin(), nearest, 0.0));
  }
  return floor;
}

double dtfm_forest_floor(const DtfmInstance& instance) {
  // Prim's tree; its lightest edges are the lightest forest.
  std::vector<double> reach(index(instance.devices), kInfinity);
  std::vector<bool> joined(index(instance.devices), false);
  std::vector<double> edges;
  int newest = 0;
  for (int k = 1; k < instance.devices; ++k) {
    joined[index(newest)] = true;
    int nearest = -1;
    for (int j = 0; j < instance.devices; ++j) {
      if (joined[index(j)]) continue;
      reach[index(j)] = std::min({reach[index(j)], instance.activation_hop_s(newest, j),
                                  instance.activation_hop_s(j, newest)});
      if (nearest < 0 || reach[index(j)] < reach[index(nearest)]) nearest = j;
    }
    edges.push_back(reach[index(nearest)]);
    newest = nearest;
  }
  std::ranges::sort(edges);
  const auto used = edges.begin() + (instance.devices - instance.replicas);
  return std::accumulate(edges.begin(), used, 0.0) / instance.replicas;
}

DtfmBound dtfm_lower_bound(const DtfmInstance& instance, const DtfmBoundOptions& options) {
  const DtfmCounts all = DtfmCounts::of(DtfmTypes::of(instance));
  DtfmBound out;
  out.types = all.types();
  out.types_used = few_types(all, 0).count;
  const double exchange_floor = dtfm_exchange_floor(instance);
  double cheapest = kInfinity;
  for (const double hop : all.hop_s) cheapest = std::min(cheapest, hop);
  const double path_floor =
      instance.stages < 2 ? 0
                          : std::max(dtfm_forest_floor(instance), (instance.stages - 1) * cheapest);
  out.seconds = std::min(options.known_s, exchange_floor + 2 * path_floor);
  Ledger ledger{&options, options.known_s, path_floor, {}};
  cut(ledger, exchange_floor);
  const bool real = out.types_used == out.types;
  std::deque<Bounder> bounders;  // they stay where they are: their searches point to them
  std::vector<std::vector<int>> tried;
  for (int variant = 0; variant < (real ? 1 : kMergings); ++variant) {
    if (ledger.weakest() == nullptr || (variant > 0 && ledger.limited())) break;
    const Division division = few_types(all, variant);
    if (std::ranges::find(tried, division.label) != tried.end()) continue;
    tried.push_back(division.label);
    auto compositions =
        DtfmCompositions::of(all.merged(division.label, division.count), kCompositionsMax);
    if (!compositions) break;  // more devices than a tally can hold
    bounders.emplace_back(std::move(*compositions), real, ledger);
    bounders.back().run();
  }
  // What one problem raised may leave another one's slice the weakest.
  for (double before = -1; before < ledger.least_s() && bounders.size() > 1;) {
    before = ledger.least_s();
    for (Bounder& bounder : bounders) bounder.run();
  }
  out.seconds = std::max(out.seconds, ledger.least_s());
  out.binding = ledger.limited() ? "work limit" : "merged types";
  if (real && !bounders.empty()) {
    for (const int c : bounders.front().cheaper()) {
      const DtfmTally& tally = bounders.front().compositions().tally(c);
      out.cheaper.emplace_back(tally.begin(), tally.begin() + out.types);
    }
  }
  const double known = ledger.known_s;
  out.exact = out.seconds >= known * (1 - kRelativeTolerance);
  if (out.exact) {
    out.seconds = known;
    out.binding = "exact";
  }
  return out;
}

}  // namespace longhaul
