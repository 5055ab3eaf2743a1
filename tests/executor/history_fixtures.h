// What tests of histories share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/history/history_store.h"
#include "executor/storage/storage.h"
#include "kernels/codec/crc32c.h"
#include "kernels/codec/tensor_codec.h"

namespace longhaul::fixtures {

struct StoreShape {
  std::size_t elements = 100;  // 200 bytes; places lie 256 apart
  std::size_t capacity = 0;
  std::size_t in_memory = 0;
  std::string folder = "/";
};

inline HistoryStore open_store(Storage& storage, const StoreShape& shape) {
  auto store = HistoryStore::open(storage, {.elements = shape.elements,
                                            .capacity = shape.capacity,
                                            .in_memory = shape.in_memory,
                                            .folder = shape.folder});
  LH_CHECK(store.has_value(), "the test's disk has room");
  return std::move(*store);
}

/// A visit in `step`: the values become fill, fill + 1, ...
inline void visit(HistoryStore& store, std::uint64_t sample, std::uint32_t step,
                  std::uint16_t fill) {
  History* history = store.find(sample);
  if (history == nullptr) history = store.admit(sample);
  ASSERT_NE(history, nullptr);
  const std::uint64_t base = history->hash;
  const std::uint32_t visits = history->visits;
  const HistoryStore::Change change = store.begin_change(*history);
  const std::span<std::uint16_t> values = store.values(*history);
  std::iota(values.begin(), values.end(), fill);
  const std::uint32_t crc = crc32c(std::as_bytes(values));
  store.end_change(change, {.hash = next_history_hash(base, crc),
                            .base = base,
                            .values_crc = crc,
                            .visits = visits + 1,
                            .step = step});
}

inline std::vector<std::uint64_t> order_of(const HistoryStore& store) {
  std::vector<std::uint64_t> samples;
  for (const History* history : store.by_last_visit()) samples.push_back(history->sample);
  return samples;
}

}  // namespace longhaul::fixtures
