#include "executor/run/stage_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "executor/checkpoint/content_hash.h"
#include "kernels/ops.h"

namespace longhaul {
namespace {

std::uint64_t hash_of(std::span<const float> values) {
  return ContentHash::of(std::as_bytes(values)).low;
}

}  // namespace

Result<StageState> StageState::create(const ModelShape& model, const ModelSlice& slice,
                                      Precision precision) {
  LH_ASSIGN(ModelStage stage, ModelStage::create(model, slice, precision));
  return StageState(std::move(stage));
}

std::vector<CheckpointPart> StageState::own_parts() const {
  const ModelSlice& slice = stage_.slice();
  std::vector<CheckpointPart> parts;
  if (slice.has_embedding) parts.push_back({PartKind::kEmbedding, 0});
  for (int layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    parts.push_back({PartKind::kLayer, layer});
  }
  if (slice.has_head) parts.push_back({PartKind::kHead, 0});
  return parts;
}

std::vector<CheckpointPart> StageState::needed_parts() const {
  std::vector<CheckpointPart> parts = own_parts();
  const ModelSlice& slice = stage_.slice();
  if (slice.has_head && !slice.has_embedding && stage_.model().tied_embedding) {
    parts.push_back({PartKind::kEmbedding, 0});
  }
  return parts;
}

PartState<float> StageState::view(CheckpointPart part, std::vector<std::vector<float>>& scratch) {
  PartState<float> state;
  for (const PartTensor& tensor : tensors_of(stage_.model(), part)) {
    const auto& parameters = stage_.parameters();
    const auto at = std::ranges::find(parameters, tensor.name, &ModelParameter::name);
    if (at == parameters.end()) {  // the position embedding, where only the tied head is here
      for (auto* list : {&state.weights, &state.m, &state.v}) {
        list->push_back(scratch.emplace_back(static_cast<std::size_t>(tensor.elements())));
      }
      continue;
    }
    state.weights.push_back(stage_.weight(*at));
    state.m.push_back(std::span(m_).subspan(at->offset, at->size));
    state.v.push_back(std::span(v_).subspan(at->offset, at->size));
  }
  return state;
}

Result<std::vector<CheckpointFile>> StageState::write(Storage& storage, const std::string& folder) {
  std::vector<CheckpointFile> files;
  for (const CheckpointPart part : own_parts()) {
    std::vector<std::vector<float>> scratch;
    const PartState<float> state = view(part, scratch);
    const PartState<const float> constant = {{state.weights.begin(), state.weights.end()},
                                             {state.m.begin(), state.m.end()},
                                             {state.v.begin(), state.v.end()}};
    LH_ASSIGN(const std::vector<CheckpointFile> written,
              write_part(storage, folder, stage_.model(), part, constant));
    files.insert(files.end(), written.begin(), written.end());
  }
  return files;
}

Result<void> StageState::read(Storage& storage, const std::string& folder,
                              std::span<const CheckpointFile> files) {
  for (const CheckpointPart part : needed_parts()) {
    std::vector<std::vector<float>> scratch;
    LH_TRY(read_part(storage, folder, stage_.model(), part, files, view(part, scratch)));
  }
  return {};
}

Prepared StageState::prepared(std::uint64_t step) {
  Prepared prepared;
  prepared.step = step;
  for (const ModelParameter& parameter : stage_.parameters()) {
    prepared.squares.push_back(ops::sum_of_squares(stage_.gradient(parameter)));
  }
  // A sum of squares is not finite exactly when an element is not.
  prepared.finite =
      std::ranges::all_of(prepared.squares, [](double s) { return std::isfinite(s); });
  prepared.gradient_hash = hash_of(stage_.gradients());
  prepared.weights_hash = hash_of(stage_.weights());
  return prepared;
}

void StageState::update(const StepUpdate& update, const Training& training, std::uint64_t updates) {
  if (update.decision == Decision::kSkip) return;
  for (const ModelParameter& parameter : stage_.parameters()) {
    ops::adamw({.options = {.learning_rate = update.learning_rate,
                            .beta1 = training.beta1,
                            .beta2 = training.beta2,
                            .epsilon = training.epsilon,
                            .weight_decay = parameter.decays() ? training.weight_decay : 0,
                            .gradient_scale = update.gradient_scale,
                            .step = static_cast<std::int64_t>(updates + 1)},
                .weight = stage_.weight(parameter),
                .gradient = stage_.gradient(parameter),
                .m = std::span(m_).subspan(parameter.offset, parameter.size),
                .v = std::span(v_).subspan(parameter.offset, parameter.size)});
  }
}

}  // namespace longhaul
