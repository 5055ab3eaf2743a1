#include "executor/history/history_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/quantity.h"
#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

constexpr std::align_val_t kCacheLine{64};
constexpr std::size_t kLineElements = 64 / sizeof(std::uint16_t);
/// More than any machine has; sizes beyond it are refused in words and not by the allocator.
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 46;

}  // namespace

void HistoryStore::FreeMemory::operator()(std::uint16_t* values) const {
  ::operator delete(values, kCacheLine);
}

Result<HistoryStore> HistoryStore::open(Storage& storage, const Options& options) {
  LH_CHECK(options.elements > 0 && options.elements <= 0xffffffffu, "a history has a size");
  LH_CHECK(options.capacity <= kCapacityMax, "places are numbered by 32 bits");
  HistoryStore store;
  store.elements_ = options.elements;
  store.stride_ = (options.elements + kLineElements - 1) / kLineElements * kLineElements;
  store.in_memory_ = std::min(options.in_memory, options.capacity);
  const std::uint64_t bytes_each = store.stride_ * sizeof(std::uint16_t);
  const auto bytes_of = [&](std::size_t histories) {
    const std::uint64_t most = kBytesMax / bytes_each;
    return histories > most ? kBytesMax : histories * bytes_each;
  };
  const auto shown = [](std::uint64_t bytes) {
    return format_size(Bytes(static_cast<double>(bytes)));
  };
  if (const std::uint64_t bytes = bytes_of(store.in_memory_); bytes > 0) {
    // Not touched here: what no sample needs yet costs nothing.
    void* const memory =
        bytes < kBytesMax ? ::operator new(bytes, kCacheLine, std::nothrow) : nullptr;
    if (memory == nullptr) {
      return failed(fmt::format("no memory for {} histories of activations, {}", store.in_memory_,
                                shown(bytes)),
                    "give histories less memory (compression: history: memory)");
    }
    store.memory_.reset(static_cast<std::uint16_t*>(memory));
  }
  const std::size_t on_disk = options.capacity - store.in_memory_;
  if (const std::uint64_t bytes = bytes_of(on_disk); bytes > 0) {
    auto disk = storage.scratch(options.folder, bytes);
    if (!disk) {
      return within(
          fmt::format("{} histories of activations need {} on disk", on_disk, shown(bytes)),
          std::move(disk).error());
    }
    store.disk_ = std::move(*disk);
  }
  store.entries_.resize(options.capacity);
  store.places_.reserve(options.capacity);
  store.clear();
  return store;
}

void HistoryStore::clear() {
  places_.clear();
  first_ = last_ = kNowhere;
  // The lowest place is handed out first: RAM before disk.
  free_ = kNowhere;
  for (std::size_t i = entries_.size(); i-- > 0;) {
    Entry& entry = entries_[i];
    entry.history = {};
    entry.is_changing = false;
    ++entry.serial;
    entry.before = kNowhere;
    entry.after = std::exchange(free_, static_cast<std::uint32_t>(i));
  }
}

std::uint32_t HistoryStore::place_of(const History& history) const {
  const auto at = places_.find(history.sample);
  LH_CHECK(at != places_.end() && &entries_[at->second].history == &history,
           "a history belongs to its store");
  return at->second;
}

std::span<std::uint16_t> HistoryStore::values_at(std::uint32_t place) {
  std::uint16_t* const begin =
      is_on_disk(place)
          ? reinterpret_cast<std::uint16_t*>(disk_->bytes().data()) + (place - in_memory_) * stride_
          : memory_.get() + place * stride_;
  return {begin, elements_};
}

History* HistoryStore::find(std::uint64_t sample) {
  const auto at = places_.find(sample);
  if (at == places_.end()) return nullptr;
  Entry& entry = entries_[at->second];
  const bool is_sound = !entry.is_changing &&
                        (!is_on_disk(at->second) ||
                         crc32c(std::as_bytes(values(entry.history))) == entry.history.values_crc);
  if (is_sound) return &entry.history;
  drop(sample);
  return nullptr;
}

const History* HistoryStore::oldest() const {
  for (std::uint32_t place = first_; place != kNowhere; place = entries_[place].after) {
    if (!entries_[place].is_changing) return &entries_[place].history;
  }
  return nullptr;
}

History* HistoryStore::admit(std::uint64_t sample) {
  LH_CHECK(!places_.contains(sample), "a sample has one history");
  if (free_ == kNowhere) return nullptr;
  const std::uint32_t place = free_;
  Entry& entry = entries_[place];
  free_ = entry.after;
  places_.emplace(sample, place);
  entry.history = {.sample = sample};
  ++entry.serial;
  // Its values are nobody's yet; begin_change says the same once more.
  entry.is_changing = true;
  link_last(place);
  return &entry.history;
}

void HistoryStore::drop(std::uint64_t sample) {
  const auto at = places_.find(sample);
  if (at == places_.end()) return;
  const std::uint32_t place = at->second;
  places_.erase(at);
  unlink(place);
  Entry& entry = entries_[place];
  entry.history = {};
  entry.is_changing = false;
  ++entry.serial;
  entry.after = std::exchange(free_, place);
}

HistoryStore::Change HistoryStore::begin_change(History& history) {
  const std::uint32_t place = place_of(history);
  entries_[place].is_changing = true;
  return {place, ++entries_[place].serial};
}

void HistoryStore::end_change(const Change& change, const Outcome& outcome) {
  Entry& entry = entries_[change.place];
  if (entry.serial != change.serial) return;
  LH_CHECK(outcome.hash != kNoHash, "a history that is there has a name");
  entry.history = {.sample = entry.history.sample,
                   .hash = outcome.hash,
                   .base = outcome.base,
                   .frame = outcome.frame,
                   .values_crc = outcome.values_crc,
                   .visits = outcome.visits,
                   .step = outcome.step};
  entry.is_changing = false;
  ++entry.serial;
  unlink(change.place);
  link_last(change.place);
}

void HistoryStore::give_up(const Change& change) {
  const Entry& entry = entries_[change.place];
  if (entry.serial == change.serial) drop(entry.history.sample);
}

void HistoryStore::cancel_change(const Change& change) {
  Entry& entry = entries_[change.place];
  if (entry.serial != change.serial) return;
  // One that was never written is no history.
  if (entry.history.hash == kNoHash) return drop(entry.history.sample);
  entry.is_changing = false;
  ++entry.serial;
}

void HistoryStore::prefetch(std::span<const std::int64_t> samples) {
  for (const std::int64_t sample : samples) {
    if (sample < 0) continue;
    const auto at = places_.find(static_cast<std::uint64_t>(sample));
    if (at == places_.end() || !is_on_disk(at->second)) continue;
    disk_->prefetch((at->second - in_memory_) * stride_ * sizeof(std::uint16_t),
                    elements_ * sizeof(std::uint16_t));
  }
}

std::vector<const History*> HistoryStore::by_last_visit() const {
  std::vector<const History*> histories;
  for (std::uint32_t place = first_; place != kNowhere; place = entries_[place].after) {
    if (!entries_[place].is_changing) histories.push_back(&entries_[place].history);
  }
  return histories;
}

void HistoryStore::unlink(std::uint32_t place) {
  Entry& entry = entries_[place];
  (entry.before == kNowhere ? first_ : entries_[entry.before].after) = entry.after;
  (entry.after == kNowhere ? last_ : entries_[entry.after].before) = entry.before;
  entry.before = entry.after = kNowhere;
}

void HistoryStore::link_last(std::uint32_t place) {
  Entry& entry = entries_[place];
  entry.before = last_;
  entry.after = kNowhere;
  (last_ == kNowhere ? first_ : entries_[last_].after) = place;
  last_ = place;
}

}  // namespace longhaul
