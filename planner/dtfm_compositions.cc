#include "planner/dtfm_compositions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kCostToGoEntries = 4'000'000;
constexpr double kCostToGoOperations = 6e7;
constexpr std::size_t kMergedCompositions = 1'000;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// All ways to take `replicas` devices, in ascending order of the tallies.
void enumerate(const DtfmCounts& counts, int type, int wanted, DtfmTally& tally,
               std::vector<DtfmTally>& all) {
  const int available = counts.devices[index(type)];
  const bool last = type + 1 == counts.types();
  if (last && available < wanted) return;
  for (int take = last ? wanted : 0; take <= std::min(wanted, available); ++take) {
    tally[index(type)] = static_cast<std::uint16_t>(take);
    if (last) {
      all.push_back(tally);
    } else {
      enumerate(counts, type + 1, wanted - take, tally, all);
    }
  }
  tally[index(type)] = 0;
}

double exchange_of(const DtfmCounts& counts, const DtfmTally& tally) {
  const auto types = index(counts.types());
  double worst = 0;
  for (std::size_t r = 0; r < types; ++r) {
    if (tally[r] == 0) continue;
    double sum = 0;
    for (std::size_t s = 0; s < types; ++s) {
      const int peers = tally[s] - (r == s ? 1 : 0);
      if (peers > 0) sum += peers * counts.exchange_s[r * types + s];
    }
    worst = std::max(worst, sum);
  }
  return worst;
}

}  // namespace

DtfmCounts DtfmCounts::of(const DtfmTypes& types) {
  DtfmCounts counts;
  counts.stages = types.stages;
  counts.replicas = types.replicas;
  for (const std::vector<int>& members : types.members) {
    counts.devices.push_back(static_cast<int>(members.size()));
  }
  counts.hop_s = types.hop_s;
  counts.exchange_s = types.exchange_s;
  return counts;
}

DtfmCounts DtfmCounts::merged(std::span<const int> label, int count) const {
  const auto width = index(count);
  DtfmCounts out;
  out.stages = stages;
  out.replicas = replicas;
  out.devices.assign(width, 0);
  out.hop_s.assign(width * width, kInfinity);
  out.exchange_s.assign(width * width, kInfinity);
  for (std::size_t r = 0; r < devices.size(); ++r) {
    out.devices[index(label[r])] += devices[r];
    for (std::size_t s = 0; s < devices.size(); ++s) {
      if (r == s && devices[r] < 2) continue;  // a device is never its own peer
      const std::size_t to = index(label[r]) * width + index(label[s]);
      out.hop_s[to] = std::min(out.hop_s[to], hop_s[r * devices.size() + s]);
      out.exchange_s[to] = std::min(out.exchange_s[to], exchange_s[r * devices.size() + s]);
    }
  }
  std::ranges::replace(out.exchange_s, kInfinity, 0.0);
  return out;
}

double DtfmCompositions::count(int types, int replicas) {
  double ways = 1;
  for (int t = 1; t < types && ways < 1e15; ++t) ways = ways * (replicas + t) / t;
  return ways;
}

std::optional<DtfmCompositions> DtfmCompositions::of(const DtfmCounts& counts, std::size_t limit) {
  if (counts.types() > kDtfmTypesExact || counts.replicas > std::numeric_limits<short>::max() ||
      counts.stages * counts.replicas > std::numeric_limits<short>::max() ||
      count(counts.types(), counts.replicas) > 64 * static_cast<double>(limit)) {
    return std::nullopt;
  }
  DtfmCompositions out;
  out.counts_ = counts;
  std::vector<DtfmTally> all;
  DtfmTally tally{};
  enumerate(counts, 0, counts.replicas, tally, all);
  if (all.size() > limit) return std::nullopt;
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t c = 0; c < all.size(); ++c) order.emplace_back(exchange_of(counts, all[c]), c);
  std::ranges::sort(order);
  for (const auto& [exchange, c] : order) {
    out.tally_.push_back(all[c]);
    out.exchange_s_.push_back(exchange);
  }

  for (const double price : counts.hop_s) {
    if (price < kInfinity) out.prices_.push_back(price);
  }
  std::ranges::sort(out.prices_);
  const auto repeated = std::ranges::unique(out.prices_);
  out.prices_.erase(repeated.begin(), repeated.end());
  const auto types = index(counts.types());
  for (const double price : out.prices_) {
    for (std::size_t r = 0; r < types; ++r) {
      std::uint32_t reached = 0;
      for (std::size_t s = 0; s < types; ++s) {
        if (counts.hop_s[r * types + s] <= price) reached |= 1u << s;
      }
      out.reached_.push_back(reached);
    }
  }
  const std::size_t size = all.size();
  out.devices_in_.assign(size << types, 0);
  for (std::size_t set = 1; set < std::size_t{1} << types; ++set) {
    const auto type = index(std::countr_zero(set));
    const std::size_t rest = set & (set - 1);
    for (std::size_t c = 0; c < size; ++c) {
      out.devices_in_[set * size + c] =
          static_cast<std::uint16_t>(out.devices_in_[rest * size + c] + out.tally_[c][type]);
    }
  }
  return out;
}

int DtfmCompositions::within(double seconds) const {
  return static_cast<int>(std::ranges::upper_bound(exchange_s_, seconds) - exchange_s_.begin());
}

void DtfmCompositions::price_hops(int a, int prices_max, std::span<std::uint16_t> price) {
  // Hall (1935): a perfect matching within a price exists if and only if the devices of every set
  // of types of `a` reach at least as many devices of `b`.
  const auto types = index(counts_.types());
  const std::size_t size = tally_.size();
  const DtfmTally& from = tally(a);
  std::uint32_t present = 0;
  for (std::size_t t = 0; t < types; ++t) present |= from[t] > 0 ? 1u << t : 0u;
  std::ranges::fill(price, std::uint16_t{0});
  too_dear_.resize(price.size());
  std::vector<std::uint16_t> wanted(std::size_t{1} << types);
  for (int p = 0; p < prices_max; ++p) {
    std::ranges::fill(wanted, std::uint16_t{0});
    for (std::uint32_t set = present; set != 0; set = (set - 1) & present) {
      std::uint32_t reached = 0;
      for (std::uint32_t left = set; left != 0; left &= left - 1) {
        reached |= reached_[index(p) * types + index(std::countr_zero(left))];
      }
      wanted[reached] = std::max(wanted[reached], devices_in_[set * size + index(a)]);
    }
    std::ranges::fill(too_dear_, std::uint16_t{0});
    for (std::size_t reached = 0; reached + 1 < wanted.size(); ++reached) {
      const std::uint16_t least = wanted[reached];
      if (least == 0) continue;
      const std::uint16_t* has = &devices_in_[reached * size];
      for (std::size_t b = 0; b < price.size(); ++b) {
        too_dear_[b] = static_cast<std::uint16_t>(too_dear_[b] | (has[b] < least ? 1 : 0));
      }
    }
    // Prices ascend, so the number of prices that are too low is the index of the first that does.
    for (std::size_t b = 0; b < price.size(); ++b) {
      price[b] = static_cast<std::uint16_t>(price[b] + too_dear_[b]);
    }
  }
}

std::size_t DtfmCostToGo::number_of(const DtfmTally& tally) const {
  std::size_t number = 0;
  for (std::size_t t = 0; t < tally.size(); ++t) number += tally[t] * stride_[t];
  return number;
}

std::optional<DtfmCostToGo> DtfmCostToGo::of(const DtfmCounts& real, std::span<const int> label,
                                             int merged_types) {
  const DtfmCounts counts = real.merged(label, merged_types);
  std::optional<DtfmCompositions> merged = DtfmCompositions::of(counts, kMergedCompositions);
  if (!merged) return std::nullopt;
  DtfmCostToGo out(std::move(*merged));
  out.label_.assign(label.begin(), label.end());
  out.width_ = index(out.merged_.size());

  std::size_t states = 1;
  for (std::size_t t = 0; t < index(merged_types); ++t) {
    out.stride_[t] = states;
    states *= index(counts.devices[t]) + 1;
    if (states * out.width_ > kCostToGoEntries) return std::nullopt;
  }
  // What can be left at a stage boundary: any tally whose total is a whole number of stages.
  out.lefts_.resize(index(counts.stages) + 1);
  std::size_t boundaries = 0;
  for (std::size_t state = 0; state < states; ++state) {
    DtfmTally left{};
    std::size_t total = 0;
    for (std::size_t t = 0; t < index(merged_types); ++t) {
      const std::size_t devices = state / out.stride_[t] % (index(counts.devices[t]) + 1);
      left[t] = static_cast<std::uint16_t>(devices);
      total += devices;
    }
    if (total % index(counts.replicas) != 0) continue;
    out.lefts_[total / index(counts.replicas)].push_back(left);
    ++boundaries;
  }
  out.operations_ = static_cast<double>(boundaries) * static_cast<double>(out.width_ * out.width_);
  if (out.operations_ > kCostToGoOperations) return std::nullopt;
  out.table_.resize(states * out.width_);

  for (std::size_t c = 0; c < out.width_; ++c) {
    out.merged_number_.push_back(out.number_of(out.merged_.tally(static_cast<int>(c))));
  }
  for (std::size_t t = 0; t < index(merged_types); ++t) {
    out.full_ += index(counts.devices[t]) * out.stride_[t];
  }
  out.hop_s_.assign(out.width_ * out.width_, kInfinity);
  std::vector<std::uint16_t> price(out.width_);
  const auto prices = static_cast<int>(out.merged_.prices().size());
  for (std::size_t from = 0; from < out.width_; ++from) {
    out.merged_.price_hops(static_cast<int>(from), prices, price);
    for (std::size_t to = 0; to < out.width_; ++to) {
      if (price[to] < prices) out.hop_s_[to * out.width_ + from] = out.merged_.prices()[price[to]];
    }
  }
  return out;
}

void DtfmCostToGo::attach(const DtfmCompositions& real) {
  std::map<std::size_t, std::size_t> merged_index;  // by number, which tells compositions apart
  for (std::size_t c = 0; c < width_; ++c) merged_index[merged_number_[c]] = c;
  for (int c = 0; c < real.size(); ++c) {
    std::size_t number = 0;
    for (std::size_t t = 0; t < label_.size(); ++t) {
      number += real.tally(c)[t] * stride_[index(label_[t])];
    }
    number_of_.push_back(number);
    merged_of_.push_back(merged_index.at(number));
  }
}

void DtfmCostToGo::solve(double exchange_max_s) {
  const auto allowed = index(merged_.within(exchange_max_s));
  std::ranges::fill(table_, kInfinity);
  for (std::size_t last = 0; last < allowed; ++last) table_[last] = 0;  // nothing left
  for (std::size_t stages = 1; stages < lefts_.size(); ++stages) {
    for (const DtfmTally& left : lefts_[stages]) {
      const std::size_t state = number_of(left);
      double* after = &table_[state * width_];
      for (std::size_t next = 0; next < allowed; ++next) {
        if (!fits(merged_.tally(static_cast<int>(next)), left)) continue;
        const double rest = table_[(state - merged_number_[next]) * width_ + next];
        if (rest == kInfinity) continue;
        const double* hop = &hop_s_[next * width_];
        for (std::size_t last = 0; last < allowed; ++last) {
          after[last] = std::min(after[last], rest + hop[last]);
        }
      }
    }
  }
  whole_s_ = kInfinity;
  for (std::size_t first = 0; first < allowed; ++first) {
    whole_s_ = std::min(whole_s_, table_[(full_ - merged_number_[first]) * width_ + first]);
  }
}

}  // namespace longhaul
