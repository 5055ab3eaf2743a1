// From the measurements of all files to one trace.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/quantity.h"
#include "netsim/import/importer.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxPlaces = 1024;  // as a trace

enum class Quantity { kLatency, kRate };

/// What one file says of one quantity of one pair: a single measurement, or points of a series.
struct Group {
  std::vector<std::size_t> members;
  bool in_series = false;
  std::optional<double> newest_s;
};
using Key = std::tuple<std::string, std::string, Quantity>;

class Merger {
 public:
  Merger(std::vector<Measurement>& measurements, std::vector<std::string>& conflicts)
      : all_(measurements), conflicts_(conflicts) {}

  void merge() {
    std::map<Key, std::map<std::size_t, Group>> groups;  // by file
    for (std::size_t i = 0; i < all_.size(); ++i) {
      for (const Quantity quantity : {Quantity::kLatency, Quantity::kRate}) {
        if (!has(all_[i], quantity)) continue;
        Group& group = groups[{all_[i].from, all_[i].to, quantity}][all_[i].file];
        group.members.push_back(i);
        group.in_series = all_[i].in_series;
        group.newest_s = std::max(group.newest_s, all_[i].unix_s);  // nullopt is least
      }
    }
    for (auto& [key, by_file] : groups) {
      const Quantity quantity = std::get<Quantity>(key);
      for (auto& [file, group] : by_file) keep_newest_of_singles(group, quantity);
      if (by_file.size() > 1) keep_newest_file(by_file, quantity);
    }
    std::erase_if(all_, [](const Measurement& one) { return !one.latency && !one.rate; });
  }

 private:
  static bool has(const Measurement& one, Quantity quantity) {
    return quantity == Quantity::kLatency ? one.latency.has_value() : one.rate.has_value();
  }

  void keep_newest_of_singles(Group& group, Quantity quantity) {
    if (group.in_series) return;
    std::size_t best = group.members.front();
    for (const std::size_t other : group.members) {
      if (other == best) continue;
      // Without times, what stands further down is taken for the newer.
      const bool is_newer =
          !all_[other].unix_s || !all_[best].unix_s || *all_[other].unix_s >= *all_[best].unix_s;
      drop(is_newer ? best : other, is_newer ? other : best, quantity);
      if (is_newer) best = other;
    }
    group.members = {best};
  }

  void keep_newest_file(std::map<std::size_t, Group>& by_file, Quantity quantity) {
    if (std::ranges::all_of(by_file, [](const auto& entry) { return entry.second.in_series; })) {
      return;
    }
    const bool dated = std::ranges::all_of(
        by_file, [](const auto& entry) { return entry.second.newest_s.has_value(); });
    std::size_t best = by_file.begin()->first;
    for (const auto& [file, group] : by_file) {
      if (!dated || *group.newest_s >= *by_file[best].newest_s) best = file;
    }
    for (const auto& [file, group] : by_file) {
      if (file == best || (group.in_series && by_file[best].in_series)) continue;
      for (const std::size_t loser : group.members) {
        drop(loser, by_file[best].members.back(), quantity);
      }
    }
  }

  void drop(std::size_t loser_index, std::size_t winner_index, Quantity quantity) {
    Measurement& loser = all_[loser_index];
    const Measurement& winner = all_[winner_index];
    const auto text = [quantity](const Measurement& one) {
      return fmt::format("{} of {}",
                         quantity == Quantity::kLatency ? format_duration(*one.latency)
                                                        : format_bit_rate(*one.rate),
                         one.source);
    };
    const bool differs = quantity == Quantity::kLatency ? loser.latency != winner.latency
                                                        : loser.rate != winner.rate;
    if (differs) {
      conflicts_.push_back(fmt::format("{} -> {}: {} {} replaces {}", loser.from, loser.to,
                                       quantity == Quantity::kLatency ? "one-way latency" : "rate",
                                       text(winner), text(loser)));
    }
    if (quantity == Quantity::kRate) {
      loser.rate.reset();
    } else {
      loser.latency.reset();
      loser.loss.reset();
      loser.jitter.reset();
    }
  }

  std::vector<Measurement>& all_;
  std::vector<std::string>& conflicts_;
};

}  // namespace

Result<ImportedTrace> Importer::finish() {
  if (measurements_.empty()) {
    return invalid("there is no measurement in what was read",
                   "rows without numbers, and those that failed, are left out");
  }
  Merger(measurements_, result_.conflicts).merge();
  std::optional<double> start;
  for (const Measurement& one : measurements_) {
    if (one.in_series && one.unix_s) start = std::min(start.value_or(*one.unix_s), *one.unix_s);
  }
  const auto undated = std::ranges::find_if(
      measurements_, [](const Measurement& one) { return one.trace_s.has_value(); });
  if (start && undated != measurements_.end()) {
    return invalid(fmt::format("the times of {} have no date, those of other files have",
                               files_[undated->file]),
                   "a line `# time 0 of the trace is 2026-11-29 12:00:00 UTC` says when it began");
  }
  if (start) {
    start = std::floor(*start);  // so that the sentence says it exactly
    result_.assumptions.push_back(fmt::format("time 0 of the trace is {}", format_time(*start)));
  }
  Trace& trace = result_.trace;
  std::map<std::string, int> places;
  for (const Measurement& one : measurements_) {
    TraceRow row;
    for (const auto& [name, index] :
         {std::pair(&one.from, &row.from), std::pair(&one.to, &row.to)}) {
      const auto [place, is_new] = places.emplace(*name, static_cast<int>(places.size()));
      if (is_new) trace.places.push_back(*name);
      *index = place->second;
    }
    if (one.in_series && one.unix_s) row.time_s = *one.unix_s - *start;
    if (one.trace_s) row.time_s = one.trace_s;
    row.scope = one.scope;
    row.latency = one.latency;
    row.basis = one.basis;
    row.rate = one.rate;
    row.streams = one.streams;
    row.loss = one.loss;
    row.jitter = one.jitter;
    row.origin = one.origin;
    row.source = one.source;
    row.line = one.line;
    trace.rows.push_back(std::move(row));
  }
  if (places.size() > kMaxPlaces) {
    return invalid(fmt::format("{} places; a trace has at most {}", places.size(), kMaxPlaces),
                   "import the part that you need");
  }
  return std::move(result_);
}

}  // namespace longhaul
