// What one end of a boundary remembers of the activations that cross it: for each sample its
// *history* m, bf16, which the next visit's delta is taken against (AQ-SGD). Sender and receiver
// have a store each, and what both hold of a sample is equal bit for bit.
//
//   auto history = store.find(sample);                  // null: nothing to be trusted
//   const auto change = store.begin_change(*history);   // from here on nobody trusts the values
//   ... write store.values(change), piece by piece ...
//   store.end_change(change, {...});                    // and now they are the new history
//
// A change that is never ended (a step that was given up, a frame that was damaged) costs the
// history, and no more: both ends notice that it is gone and heal (aq_boundary.h).
//
// All histories of a store have one size, so its capacity is a number of samples. A sample keeps
// its place as long as it is remembered: the first `in_memory` places are RAM, the others lie on
// disk (Storage::scratch). Every sample is visited once an epoch, so keeping the latest ones in RAM
// would evict each just before it is needed; with fixed places as many visits as can be hit RAM.
//
// The *rolling hash* (next_history_hash) names a history by all that it was made of. Equal hashes
// at both ends mean equal values. Values on disk are checked against their CRC when they are found;
// rotten ones are dropped, and heal.
//
// Belongs to one thread. What admits no sample allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// Names no history.
inline constexpr std::uint64_t kNoHash = 0;

/// What is known of one sample's history beside its values.
struct History {
  std::uint64_t sample = 0;
  std::uint64_t hash = kNoHash;  // rolling
  std::uint64_t base = kNoHash;  // its hash before the last change
  std::uint64_t frame = 0;       // names the frame that made the last change; of receivers
  std::uint32_t values_crc = 0;  // CRC-32C of the values as they lie in memory
  std::uint32_t visits = 0;      // that changed it
  std::uint32_t step = 0;        // of the last one
  bool operator==(const History&) const = default;
};

class HistoryStore {
 public:
  struct Options {
    std::size_t elements = 0;   // of one history
    std::size_t capacity = 0;   // histories
    std::size_t in_memory = 0;  // of them, at most, in RAM
    std::string folder;         // on the disk for the others
  };
  static constexpr std::size_t kCapacityMax = std::size_t{1} << 31;

  /// Reserves all memory and disk space; without enough of either, that is the error.
  static Result<HistoryStore> open(Storage& storage, const Options& options);

  std::size_t elements() const { return elements_; }
  std::size_t capacity() const { return entries_.size(); }
  /// Histories, those in the midst of a change included.
  std::size_t size() const { return places_.size(); }

  /// Null when there is none that can be trusted; one whose change was not ended or whose values
  /// rotted is dropped. Stays until the sample is dropped.
  History* find(std::uint64_t sample);
  std::span<std::uint16_t> values(const History& history) { return values_at(place_of(history)); }

  /// What would be given up first: the one visited longest ago, unless it is in the midst of a
  /// change. Null when there is none. Its values have not been checked.
  const History* oldest() const;
  /// A place for a sample that has none; null where all are taken. The values are undefined.
  History* admit(std::uint64_t sample);
  /// Forgets a sample, if it is remembered.
  void drop(std::uint64_t sample);
  void clear();

  struct Change {
    std::uint32_t place = 0;
    std::uint64_t serial = 0;
  };
  Change begin_change(History& history);
  std::span<std::uint16_t> values(const Change& change) { return values_at(change.place); }
  struct Outcome {
    std::uint64_t hash = kNoHash;
    std::uint64_t base = kNoHash;
    std::uint64_t frame = 0;
    std::uint32_t values_crc = 0;
    std::uint32_t visits = 0;
    std::uint32_t step = 0;
  };
  /// The history becomes the last visited. Does nothing if it was dropped or changed again since.
  void end_change(const Change& change, const Outcome& outcome);
  /// It will not be ended: the history is gone, and its place free. Does nothing if it was ended,
  /// or the history dropped or changed again since.
  void give_up(const Change& change);
  /// The values were not touched: the history is what it was.
  void cancel_change(const Change& change);

  /// These will be found soon. Those on disk begin to be read; unknown ones and -1 are passed over.
  void prefetch(std::span<const std::int64_t> samples);

  /// Histories that can be trusted, in the order in which they were last visited.
  std::vector<const History*> by_last_visit() const;

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  /// A place, and its links in the order of last visits (or, when free, in the list of those).
  struct Entry {
    History history;
    std::uint64_t serial = 0;  // counts everything that makes an old Change void
    std::uint32_t before = kNowhere;
    std::uint32_t after = kNowhere;
    bool is_changing = false;
  };
  struct FreeMemory {
    void operator()(std::uint16_t* values) const;
  };

  HistoryStore() = default;
  std::span<std::uint16_t> values_at(std::uint32_t place);
  std::uint32_t place_of(const History& history) const;
  bool is_on_disk(std::uint32_t place) const { return place >= in_memory_; }
  void unlink(std::uint32_t place);
  void link_last(std::uint32_t place);

  std::size_t elements_ = 0;
  std::size_t stride_ = 0;  // elements from one history to the next: whole cache lines
  std::size_t in_memory_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::uint64_t, std::uint32_t> places_;  // looked up only, never walked
  std::uint32_t first_ = kNowhere;                           // visited longest ago
  std::uint32_t last_ = kNowhere;
  std::uint32_t free_ = kNowhere;
  std::unique_ptr<std::uint16_t[], FreeMemory> memory_;
  std::unique_ptr<ScratchMemory> disk_;
};

}  // namespace longhaul
