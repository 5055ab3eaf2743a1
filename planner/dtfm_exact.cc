#include "planner/dtfm_exact.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kGuidesMax = 4;
constexpr std::int64_t kEntriesMax = 30'000'000;  // 120 MB of followers

constexpr std::size_t kLabelsMax = 3'000'000;  // 300 MB
// Nanoseconds, roughly.
constexpr double kExtendWork = 20;
constexpr double kLabelWork = 250;
constexpr double kFollowersWork = 10;
constexpr double kRounding = 1e-12;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

struct Label {
  double cost;
  int last;
  int parent;  // -1: the path starts here
  int stages;
  DtfmTally left;
  std::array<std::size_t, kGuidesMax> state;  // `left` by each guide's numbering
};

}  // namespace

DtfmPathSearch::DtfmPathSearch(DtfmCompositions& compositions, int useful, double dearest_hop_s)
    : compositions_(&compositions), followers_(index(useful)), price_(index(useful)) {
  const DtfmCounts& counts = compositions.counts();
  for (std::size_t r = 0; r < counts.devices.size(); ++r) {
    for (std::size_t s = 0; s < r; ++s) {
      symmetric_ &= counts.hop_s[r * counts.devices.size() + s] ==
                    counts.hop_s[s * counts.devices.size() + r];
    }
  }
  const std::vector<double>& prices = compositions.prices();
  const auto within = std::ranges::upper_bound(prices, dearest_hop_s) - prices.begin();
  prices_max_ = static_cast<int>(within);
}

const DtfmPathSearch::Followers& DtfmPathSearch::followers(int composition) {
  Followers& list = followers_[index(composition)];
  if (!list.start.empty()) return list;
  compositions_->price_hops(composition, prices_max_, price_);
  DtfmTally others{};
  for (std::size_t t = 0; t < compositions_->counts().devices.size(); ++t) {
    others[t] = static_cast<std::uint16_t>(compositions_->counts().devices[t] -
                                           compositions_->tally(composition)[t]);
  }
  // Sorted by price through counting; compositions stay in their order within a price.
  const auto too_dear = static_cast<std::uint16_t>(prices_max_);
  std::vector<int> end(std::size_t{too_dear} + 1, 0);
  for (std::size_t b = 0; b < price_.size(); ++b) {
    if (!fits(compositions_->tally(static_cast<int>(b)), others)) price_[b] = too_dear;
    ++end[price_[b]];
  }
  list.start.assign(1, 0);
  for (std::size_t p = 0; p < too_dear; ++p) list.start.push_back(list.start[p] + index(end[p]));
  list.composition.resize(list.start.back());
  std::vector<std::size_t> next = list.start;
  for (std::size_t b = 0; b < price_.size(); ++b) {
    if (price_[b] < too_dear) list.composition[next[price_[b]]++] = static_cast<int>(b);
  }
  entries_ += static_cast<std::int64_t>(list.composition.size());
  work_ += kFollowersWork * static_cast<double>(price_.size());
  return list;
}

DtfmPathAnswer DtfmPathSearch::ask(const DtfmPathQuestion& question,
                                   const std::vector<DtfmCostToGo>& guides) {
  const DtfmCounts& counts = compositions_->counts();
  const std::vector<double>& prices = compositions_->prices();
  const std::size_t guide_count = std::min(guides.size(), kGuidesMax);
  const double cheapest = prices.empty() ? 0 : prices.front();
  // Where a path costs the same in both directions, one direction is enough: the one whose first
  // half costs no more than its last half, which therefore costs twice its first half and more.
  const int half = symmetric_ ? (counts.stages - 1) / 2 : 0;  // in hops
  const double middle = (counts.stages - 1 - 2 * half) * cheapest;
  // Labels whose number of a state would overflow cannot be told apart.
  std::uint64_t states = static_cast<std::uint64_t>(compositions_->size());
  std::array<std::uint64_t, kDtfmTypesExact> stride{};
  for (std::size_t t = 0; t < counts.devices.size(); ++t) {
    stride[t] = states;
    const auto choices = static_cast<std::uint64_t>(counts.devices[t]) + 1;
    if (states > std::numeric_limits<std::uint64_t>::max() / choices) return {};
    states *= choices;
  }

  std::vector<Label> labels;
  std::unordered_map<std::uint64_t, int> best;  // label of a state; only looked up
  // Least promise first; the longest path among equals, then the oldest label.
  using Entry = std::tuple<double, int, int>;  // promise, stages to go, label
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  double work = 0;
  const double work_before = work_;

  const auto state_of = [&](const Label& label) {
    auto number = static_cast<std::uint64_t>(label.last);
    for (std::size_t t = 0; t < counts.devices.size(); ++t) number += stride[t] * label.left[t];
    return number;
  };
  /// Opens the label that puts `next` behind `label`, unless it leads nowhere.
  const auto extend = [&](const Label& from, int parent, int next, double hop) {
    work += kExtendWork;
    const double cost = from.cost + hop;
    double promise = cost;
    std::array<std::size_t, kGuidesMax> state{};
    for (std::size_t g = 0; g < guide_count; ++g) {
      state[g] = from.state[g] - guides[g].number(next);
      promise = std::max(promise, cost + guides[g].after_s(state[g], next));
      if (!(promise < question.below_s)) return;
    }
    if (from.stages <= half) {  // hops, with this one
      const double first_half = cost + (half - from.stages) * cheapest;
      promise = std::max(promise, (2 * first_half + middle) * (1 - kRounding));
      if (!(promise < question.below_s)) return;
    }
    Label label{cost, next, parent, from.stages + 1, from.left, state};
    const DtfmTally& used = compositions_->tally(next);
    for (std::size_t t = 0; t < used.size(); ++t) {
      label.left[t] = static_cast<std::uint16_t>(label.left[t] - used[t]);
    }
    const auto id = static_cast<int>(labels.size());
    const auto [known, is_new] = best.try_emplace(state_of(label), id);
    if (!is_new) {
      if (!(label.cost < labels[static_cast<std::size_t>(known->second)].cost)) return;
      known->second = id;
    }
    work += kLabelWork;
    labels.push_back(label);
    open.emplace(promise, counts.stages - label.stages, id);
  };

  Label nothing{0, -1, -1, 0, {}, {}};
  for (std::size_t t = 0; t < counts.devices.size(); ++t) {
    nothing.left[t] = static_cast<std::uint16_t>(counts.devices[t]);
  }
  for (std::size_t g = 0; g < guide_count; ++g) nothing.state[g] = guides[g].full();
  for (int first = 0; first < question.allowed; ++first) extend(nothing, -1, first, 0);

  DtfmPathAnswer answer;
  answer.complete = true;
  answer.least_s = kInfinity;
  while (!open.empty()) {
    const auto [promise, to_go, id] = open.top();
    if (to_go == 0) {
      answer.least_s = labels[static_cast<std::size_t>(id)].cost;
      for (int at = id; at >= 0; at = labels[static_cast<std::size_t>(at)].parent) {
        answer.path.push_back(labels[static_cast<std::size_t>(at)].last);
      }
      std::ranges::reverse(answer.path);
      break;
    }
    if (work + work_ - work_before > question.work_max || entries_ > kEntriesMax ||
        labels.size() > kLabelsMax) {
      answer.complete = false;
      answer.least_s = promise;
      break;
    }
    open.pop();
    const Label label = labels[static_cast<std::size_t>(id)];
    if (best.at(state_of(label)) != id) continue;  // a cheaper way to the same state came later
    // The hops after this one cost at least the cheapest price each.
    const double hop_max = question.below_s - label.cost - cheapest * (to_go - 1);
    const Followers& list = followers(label.last);
    for (std::size_t p = 0; p < index(prices_max_) && prices[p] < hop_max; ++p) {
      for (std::size_t k = list.start[p]; k < list.start[p + 1]; ++k) {
        const int next = list.composition[k];
        if (next >= question.allowed) break;
        if (fits(compositions_->tally(next), label.left)) extend(label, id, next, prices[p]);
      }
    }
  }
  work_ += work;
  return answer;
}

}  // namespace longhaul
