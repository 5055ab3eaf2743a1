// The state that the DT-FM search moves through: a placement of device types, not of devices.
//
// Devices whose rows and columns are equal are interchangeable, so a stage is described by how
// many devices of each type it has (its composition), and every term of the cost depends on
// compositions alone. A placement keeps the price of every stage and of every hop between
// neighbouring stages; a change reprices only what it touches, through a table of prices already
// worked out. After any sequence of changes total() equals a fresh evaluation.
//
// Besides the objective (largest exchange + 2 x sum of largest hops) a placement has a `spread`:
// the same terms with means in place of maxima. The objective is flat almost everywhere on some
// networks; the spread says which of two equal placements is closer to an improvement.
//
// A DtfmPricer and the placements that use it belong to one thread at a time. DtfmTypes is
// read-only after construction and shared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/dtfm_objective.h"

namespace longhaul {

/// Devices grouped into types, ordered by their first device.
struct DtfmTypes {
  int stages = 0;
  int replicas = 0;
  int count = 0;
  std::vector<int> type_of;               // by device
  std::vector<std::vector<int>> members;  // by type, ascending devices
  std::vector<double> hop_s;              // e by [from type][to type]; infinite if never used
  std::vector<double> exchange_s;         // x by [type][type]; 0 if never used
  std::vector<std::uint64_t> signature;   // by type; a composition's is the sum over its devices

  static DtfmTypes of(const DtfmInstance& instance);
};

struct DtfmPrice {
  double worst = 0;  // the objective's term
  double mean = 0;   // the same with a mean in place of the max
};

/// How many devices of each type a stage has.
using DtfmComposition = std::vector<std::uint16_t>;

/// Prices of stages and hops, with a table of the recent ones (a pure cache: it changes no price).
class DtfmPricer {
 public:
  explicit DtfmPricer(const DtfmTypes& types);

  const DtfmTypes& types() const { return *types_; }
  DtfmPrice stage(const DtfmComposition& stage, std::uint64_t signature);
  DtfmPrice hop(const DtfmComposition& from, std::uint64_t from_signature,
                const DtfmComposition& to, std::uint64_t to_signature);

 private:
  struct Entry {
    std::uint64_t key = 0;
    DtfmPrice price;
  };
  struct Share {
    int type;
    int devices;
  };
  DtfmPrice work_out_stage(const DtfmComposition& stage);
  DtfmPrice work_out_hop(const DtfmComposition& from, const DtfmComposition& to);
  double bottleneck(double threshold);

  const DtfmTypes* types_;
  std::vector<Entry> stages_;
  std::vector<Entry> hops_;
  // Scratch of work_out_hop: what is left to send and to take, and what flows between, at the
  // current threshold.
  std::vector<Share> from_;
  std::vector<Share> to_;
  std::vector<int> unsent_;
  std::vector<int> untaken_;
  std::vector<int> flow_;
  std::vector<double> cost_;
  std::vector<int> from_reached_by_;
  std::vector<int> to_reached_by_;
  std::vector<int> queue_;
};

class DtfmPlacement {
 public:
  /// One composition a stage, in path order, together using every device of every type.
  DtfmPlacement(DtfmPricer& pricer, std::vector<DtfmComposition> stages);

  double total() const { return total_; }
  double spread() const { return spread_; }
  const std::vector<DtfmComposition>& stages() const { return stages_; }
  const DtfmComposition& stage(int s) const { return stages_[static_cast<std::size_t>(s)]; }
  int count(int s, int type) const { return stage(s)[static_cast<std::size_t>(type)]; }
  std::uint64_t signature() const;

  /// Stage `s` gives devices of type `given` to stage `t` and gets as many of type `taken`.
  /// Changes are priced together by settle(); until then total() and spread() are stale.
  void trade(int s, int t, int given, int taken, int devices = 1);
  /// Reverses the order of stages [first, end).
  void reverse(int first, int end);
  void swap_stages(int s, int t);
  void settle();
  /// Takes back everything since the last keep(). Call after settle().
  void undo();
  void keep();
  /// Puts the stages into the given order and settles; nothing may be pending.
  void reorder(std::span<const int> path);
  /// Prices of all hops between any two stages, row = from.
  std::vector<double> hop_matrix();

 private:
  struct Change {
    enum Kind { kTrade, kReverse } kind;
    int a, b, given, taken, devices;
  };
  struct OldPrice {
    bool is_hop;
    int index;
    DtfmPrice price;
  };
  void apply(const Change& change);
  void touch_stage(int s);
  void touch_hop(int s);  // between s and s + 1
  void add_up();

  DtfmPricer* pricer_;
  std::vector<DtfmComposition> stages_;
  std::vector<std::uint64_t> signatures_;
  std::vector<DtfmPrice> stage_prices_;
  std::vector<DtfmPrice> hop_prices_;
  double total_ = 0;
  double spread_ = 0;
  double old_total_ = 0;
  double old_spread_ = 0;
  std::vector<Change> changes_;
  std::vector<OldPrice> old_prices_;
  std::vector<int> stale_stages_;
  std::vector<int> stale_hops_;
  std::vector<char> stage_is_stale_;
  std::vector<char> hop_is_stale_;
};

}  // namespace longhaul
