#include "executor/history/history_files.h"

#include <fmt/core.h>

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "executor/checkpoint/safetensors.h"
#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

/// What the file says of each history, beside the values.
struct Columns {
  std::vector<std::uint64_t> samples, hashes;
  std::vector<std::uint32_t> crcs, steps, visits;

  explicit Columns(std::size_t count)
      : samples(count), hashes(count), crcs(count), steps(count), visits(count) {}

  struct Column {
    const char* name;
    TensorType type;
    std::span<std::byte> bytes;
  };
  std::array<Column, 5> all() {
    const auto bytes = [](auto& column) { return std::as_writable_bytes(std::span(column)); };
    return {{{"samples", TensorType::kU64, bytes(samples)},
             {"hashes", TensorType::kU64, bytes(hashes)},
             {"crcs", TensorType::kU32, bytes(crcs)},
             {"steps", TensorType::kU32, bytes(steps)},
             {"visits", TensorType::kU32, bytes(visits)}}};
  }
};

constexpr const char* kValues = "values";
constexpr const char* kLayout = "layout";

std::string text_of(std::uint64_t layout) {
  return fmt::format("{:016x}", layout);
}

StoredTensor stored(const std::string& name, TensorType type, std::vector<std::uint64_t> shape) {
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = type;
  tensor.shape = std::move(shape);
  return tensor;
}

}  // namespace

std::string history_file_name(int pipeline, int layers, HistoryEnd end) {
  return fmt::format("history-{}-layer-{:04}-{}.safetensors", pipeline, layers,
                     end == HistoryEnd::kSender ? "sender" : "receiver");
}

Result<void> write_histories(Storage& storage, const std::string& folder, const std::string& name,
                             std::uint64_t layout, HistoryStore& store) {
  const std::vector<const History*> histories = store.by_last_visit();
  const std::size_t count = histories.size();
  Columns columns(count);
  for (std::size_t i = 0; i < count; ++i) {
    columns.samples[i] = histories[i]->sample;
    columns.hashes[i] = histories[i]->hash;
    columns.crcs[i] = histories[i]->values_crc;
    columns.steps[i] = histories[i]->step;
    columns.visits[i] = histories[i]->visits;
  }
  std::vector<StoredTensor> tensors = {
      stored(kValues, TensorType::kBf16, {count, store.elements()})};
  for (const Columns::Column& column : columns.all()) {
    tensors.push_back(stored(column.name, column.type, {count}));
  }
  LH_TRY(make_folders(storage, folder));
  LH_ASSIGN(auto writer, SafetensorsWriter::create(storage, folder + "/" + name, std::move(tensors),
                                                   {{"format", "pt"}, {kLayout, text_of(layout)}}));
  for (const StoredTensor& tensor : writer.tensors()) {
    for (const Columns::Column& column : columns.all()) {
      if (tensor.name == column.name) LH_TRY(writer.append(column.bytes));
    }
    if (tensor.name != kValues) continue;
    // As they are, rotten ones included: whoever reads them checks each against its CRC.
    for (const History* const history : histories) {
      LH_TRY(writer.append(std::as_bytes(store.values(*history))));
    }
  }
  LH_TRY(writer.commit());
  return {};
}

Result<std::size_t> read_histories(Storage& storage, const std::string& folder,
                                   const std::string& name, std::uint64_t layout,
                                   HistoryStore& store) {
  LH_CHECK(store.size() == 0, "a store is filled before it is used");
  const std::string path = folder + "/" + name;
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  if (kind == EntryKind::kAbsent) return 0;
  LH_ASSIGN(SafetensorsReader reader, SafetensorsReader::open(storage, path));
  const StoredTensor* const values = reader.find(kValues);
  const auto written = reader.metadata().find(kLayout);
  const bool is_ours = written != reader.metadata().end() && written->second == text_of(layout) &&
                       values != nullptr && values->type == TensorType::kBf16 &&
                       values->shape.size() == 2 && values->shape[1] == store.elements();
  if (!is_ours) return 0;
  const std::size_t count = values->shape[0];
  Columns columns(count);
  for (const Columns::Column& column : columns.all()) {
    LH_ASSIGN(const StoredTensor* const tensor,
              reader.need(column.name, column.type, std::array<std::uint64_t, 1>{count}));
    LH_TRY(reader.read(*tensor, 0, column.bytes));
  }
  const std::size_t bytes_each = store.elements() * sizeof(std::uint16_t);
  for (std::size_t i = count - std::min(count, store.capacity()); i < count; ++i) {
    if (columns.hashes[i] == kNoHash || store.find(columns.samples[i]) != nullptr) continue;
    History& history = *store.admit(columns.samples[i]);
    const HistoryStore::Change change = store.begin_change(history);
    const std::span<std::byte> into = std::as_writable_bytes(store.values(history));
    LH_TRY(reader.read(*values, i * bytes_each, into));
    if (crc32c(into) != columns.crcs[i]) {
      store.cancel_change(change);
      continue;
    }
    store.end_change(change, {.hash = columns.hashes[i],
                              .values_crc = columns.crcs[i],
                              .visits = columns.visits[i],
                              .step = columns.steps[i]});
  }
  return store.size();
}

}  // namespace longhaul
