#include "executor/run/stage_histories.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "core/codec.h"
#include "core/history_budget.h"
#include "core/plan.h"
#include "executor/history/history_files.h"

namespace longhaul {
namespace {

/// How many of the model's layers come before the boundary between a cell and its neighbour.
int layers_before(const RunSpec& spec, int cell, int peer) {
  const ModelSlice slice = slice_of_stage(spec, spec.stage_of(cell));
  return peer < cell ? slice.first_layer : slice.end_layer;
}

std::string file_name(const RunSpec& spec, int cell, int peer) {
  return history_file_name(spec.pipeline_of(cell), layers_before(spec, cell, peer),
                           peer < cell ? HistoryEnd::kReceiver : HistoryEnd::kSender);
}

/// Every neighbour of a cell, with its store.
template <class Function>
Result<void> for_each_store(const RunSpec& spec, int cell, AqBoundary& format, Function function) {
  for (const int peer : {cell - 1, cell + 1}) {
    HistoryStore* const store = format.store(peer);
    if (store == nullptr) continue;
    const std::uint64_t layout = history_layout(spec.job.model, layers_before(spec, cell, peer));
    LH_TRY(function(file_name(spec, cell, peer), layout, *store));
  }
  return {};
}

}  // namespace

std::vector<AqBoundary::Edge> history_edges(const RunSpec& spec, int cell,
                                            const std::string& folder) {
  const int stage = spec.stage_of(cell);
  const std::vector<BoundaryHistory> rooms = histories_of(spec, spec.pipeline_of(cell));
  const HistorySettings settings = spec.job.history.value_or(HistorySettings());
  const std::int64_t batch = spec.job.global_batch;
  std::vector<AqBoundary::Edge> edges;
  for (const int peer : {cell - 1, cell + 1}) {
    const bool is_receiver = peer < cell;
    const int sender = is_receiver ? stage - 1 : stage;
    if (sender < 0 || sender + 1 >= spec.plan.stages()) continue;
    const BoundaryHistory& room = rooms[static_cast<std::size_t>(sender)];
    if (room.samples == 0) continue;
    AqBoundary::Edge edge;
    edge.peer = peer;
    edge.codec = activation_codec(spec.plan, spec.job, spec.place_of_cell(cell).site,
                                  spec.place_of_cell(peer).site);
    edge.first_visit = settings.first_visit;
    edge.layout = history_layout(spec.job.model, layers_before(spec, cell, peer));
    edge.steps_per_epoch = static_cast<std::uint32_t>((spec.train.sequences() + batch - 1) / batch);
    edge.histories.elements = static_cast<std::size_t>(spec.job.model.context) *
                              static_cast<std::size_t>(spec.job.model.width);
    edge.histories.capacity = static_cast<std::size_t>(room.capacity);
    edge.histories.in_memory = static_cast<std::size_t>(room.in_memory[is_receiver ? 1 : 0]);
    edge.histories.folder = folder;
    edges.push_back(std::move(edge));
  }
  return edges;
}

Result<void> save_histories(Storage& storage, const std::string& folder, const RunSpec& spec,
                            int cell, AqBoundary& format) {
  return for_each_store(spec, cell, format,
                        [&](const std::string& name, std::uint64_t layout, HistoryStore& store) {
                          return write_histories(storage, folder, name, layout, store);
                        });
}

Result<void> load_histories(Storage& storage, const std::string& folder, const RunSpec& spec,
                            int cell, AqBoundary& format) {
  return for_each_store(
      spec, cell, format,
      [&](const std::string& name, std::uint64_t layout, HistoryStore& store) -> Result<void> {
        auto read = read_histories(storage, folder, name, layout, store);
        if (read) return {};
        Error error = std::move(read).error();
        error.hint = "remove the file: without it the histories are made anew";
        return std::unexpected(std::move(error));
      });
}

}  // namespace longhaul
