// Tables for exact work on DT-FM's objective: what every composition of a stage costs, which
// composition can follow which at what price, and how cheaply a path can be finished.
//
// Merging types (taking the cheapest of their members' hops and exchanges) turns a placement into
// one that costs no more, so the merged problem's optimum is a lower bound for the real one. The
// costs to go come from such merged problems, small enough to be solved for every state.
//
// At most kDtfmTypesExact types. Everything belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/dtfm_placement.h"

namespace longhaul {

inline constexpr int kDtfmTypesExact = 8;

/// Device types by number alone: what remains of DtfmTypes once nobody asks for names.
struct DtfmCounts {
  int stages = 0;
  int replicas = 0;
  std::vector<int> devices;        // by type
  std::vector<double> hop_s;       // by [from type][to type]; infinite if never used
  std::vector<double> exchange_s;  // by [type][type]

  bool operator==(const DtfmCounts&) const = default;
  int types() const { return static_cast<int>(devices.size()); }
  static DtfmCounts of(const DtfmTypes& types);
  /// label[type] is the merged type, 0 to `count` - 1, each used at least once.
  DtfmCounts merged(std::span<const int> label, int count) const;
};

/// Devices by type; unused types have none. A fixed width, so that comparing is a vector operation.
using DtfmTally = std::array<std::uint16_t, kDtfmTypesExact>;

inline bool fits(const DtfmTally& part, const DtfmTally& whole) {
  bool ok = true;
  for (std::size_t t = 0; t < part.size(); ++t) ok &= part[t] <= whole[t];
  return ok;
}

/// All compositions of a stage, cheapest exchange first.
class DtfmCompositions {
 public:
  /// Nothing if there are more than `limit`.
  static std::optional<DtfmCompositions> of(const DtfmCounts& counts, std::size_t limit);
  /// How many there would be were every type abundant; at most about 1e15.
  static double count(int types, int replicas);

  const DtfmCounts& counts() const { return counts_; }
  int size() const { return static_cast<int>(tally_.size()); }
  const DtfmTally& tally(int c) const { return tally_[static_cast<std::size_t>(c)]; }
  double exchange_s(int c) const { return exchange_s_[static_cast<std::size_t>(c)]; }
  /// How many compositions exchange within `seconds`.
  int within(double seconds) const;

  /// The distinct prices of a hop, ascending.
  const std::vector<double>& prices() const { return prices_; }
  /// price[b] = index of the price of the hop from composition `a` to `b`, for the first
  /// `price.size()` compositions; prices_max if it is that or dearer.
  void price_hops(int a, int prices_max, std::span<std::uint16_t> price);

 private:
  DtfmCounts counts_;
  std::vector<DtfmTally> tally_;
  std::vector<double> exchange_s_;
  std::vector<double> prices_;
  std::vector<std::uint32_t> reached_;  // by [price][type]: set of types within that price
  // By [set of types][composition]: how many devices of the set it has.
  std::vector<std::uint16_t> devices_in_;
  std::vector<std::uint16_t> too_dear_;  // scratch
};

/// For every number of devices left and every last stage, the price of the cheapest way on in a
/// merged problem: never more than in the real one.
class DtfmCostToGo {
 public:
  /// Nothing if the table or the work for it would be too large.
  static std::optional<DtfmCostToGo> of(const DtfmCounts& real, std::span<const int> label,
                                        int merged_types);
  /// Needed before number() and after_s(), not before solve().
  void attach(const DtfmCompositions& real);

  /// Works the table out for stages that exchange within `exchange_max_s`.
  void solve(double exchange_max_s);
  /// The cheapest whole path; infinite if there is none.
  double whole_s() const { return whole_s_; }
  /// Of one solve().
  double operations() const { return operations_; }

  /// States are numbered so that using up a composition subtracts its number.
  std::size_t full() const { return full_; }
  std::size_t number(int real_composition) const {
    return number_of_[static_cast<std::size_t>(real_composition)];
  }
  double after_s(std::size_t left, int real_composition) const {
    return table_[left * width_ + merged_of_[static_cast<std::size_t>(real_composition)]];
  }

 private:
  explicit DtfmCostToGo(DtfmCompositions merged) : merged_(std::move(merged)) {}
  std::size_t number_of(const DtfmTally& tally) const;

  DtfmCompositions merged_;
  std::vector<int> label_;
  std::size_t width_ = 0;  // merged compositions
  std::size_t full_ = 0;
  std::array<std::size_t, kDtfmTypesExact> stride_{};
  std::vector<std::vector<DtfmTally>> lefts_;  // by stages left
  std::vector<std::size_t> merged_number_;     // by merged composition
  std::vector<std::size_t> number_of_;         // by real composition
  std::vector<std::size_t> merged_of_;         // by real composition
  std::vector<double> hop_s_;                  // by [to][from], merged
  std::vector<double> table_;                  // by [left][last]
  double whole_s_ = 0;
  double operations_ = 0;
};

}  // namespace longhaul
