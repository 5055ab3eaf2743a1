// A model of a few numbers, its state, and whole checkpoints of it, for the checkpoint tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/layer_files.h"
#include "executor/checkpoint/manifest.h"
#include "executor/storage/storage.h"

namespace longhaul::fixtures {

/// Width 2, one head, MLP width 3, 2 positions, 5 tokens.
inline ModelShape small_model(int layers, bool tied = true) {
  return {.family = ModelFamily::kGpt2,
          .layers = layers,
          .width = 2,
          .heads = 1,
          .kv_heads = 1,
          .head_width = 2,
          .ffn_width = 3,
          .context = 2,
          .vocabulary = 5,
          .tied_embedding = tied};
}

/// Width 4, two heads of 2 on one key-value head, MLP width 3, 2 positions, 5 tokens; everything
/// that only a Llama has is unusual.
inline ModelShape small_llama(int layers, bool tied) {
  return {.family = ModelFamily::kLlama,
          .layers = layers,
          .width = 4,
          .heads = 2,
          .kv_heads = 1,
          .head_width = 2,
          .ffn_width = 3,
          .context = 2,
          .vocabulary = 5,
          .tied_embedding = tied,
          .norm_epsilon = 1e-6,
          .rope_theta = 500000,
          .rope_scaling = RopeScaling{8, 1, 4, 8192}};
}

/// Weights, m and v of a part, owned.
struct PartValues {
  std::vector<std::vector<float>> weights, m, v;
  bool operator==(const PartValues&) const = default;

  template <class Float>
  PartState<Float> state() {
    PartState<Float> views;
    for (auto& values : weights) views.weights.emplace_back(values);
    for (auto& values : m) views.m.emplace_back(values);
    for (auto& values : v) views.v.emplace_back(values);
    return views;
  }
};

/// Space for a part, zeroed.
inline PartValues empty_part(const ModelShape& model, CheckpointPart part) {
  PartValues values;
  for (const PartTensor& tensor : tensors_of(model, part)) {
    for (auto* list : {&values.weights, &values.m, &values.v}) {
      list->emplace_back(static_cast<std::size_t>(tensor.elements()));
    }
  }
  return values;
}

/// A part's state as some step left it: other values for every step.
inline PartValues part_at_step(const ModelShape& model, CheckpointPart part, std::uint64_t step) {
  PartValues values = empty_part(model, part);
  Rng rng(weights_file_name(part), step);
  for (auto* list : {&values.weights, &values.m, &values.v}) {
    for (auto& tensor : *list) {
      for (float& value : tensor) value = static_cast<float>(rng.uniform() - 0.5);
    }
  }
  return values;
}

inline CheckpointManifest manifest_at_step(const ModelShape& model, std::uint64_t step) {
  CheckpointManifest manifest;
  manifest.id = {.term = 1, .step = step};
  manifest.updates = step - step / 10;
  manifest.seed = 7;
  manifest.job_hash = 0x0123456789abcdef;
  manifest.data = {.sequences = 4 * step, .batch = 4, .batch_since_step = 0};
  manifest.model = model;
  return manifest;
}

/// What a run does: all parts, then the manifest, then the older ones go.
inline Result<void> write_checkpoint(Storage& storage, const std::string& root,
                                     const ModelShape& model, std::uint64_t step, int keep) {
  CheckpointManifest manifest = manifest_at_step(model, step);
  const std::string folder = root + "/" + folder_name(manifest.id);
  for (const CheckpointPart part : parts_of(model)) {
    PartValues values = part_at_step(model, part, step);
    LH_ASSIGN(const auto files,
              write_part(storage, folder, model, part, values.state<const float>()));
    for (const CheckpointFile& file : files) manifest.files.push_back({file, {"a/0", "b/0"}});
  }
  LH_TRY(write_manifest(storage, root, manifest));
  LH_TRY(delete_old_checkpoints(storage, root, keep));
  return {};
}

/// A checkpoint's weights as a Hugging Face folder.
inline Result<void> write_folder(Storage& storage, const CheckpointManifest& manifest,
                                 const std::string& checkpoint_folder, const std::string& folder,
                                 const HuggingFaceOptions& options = {}) {
  LH_ASSIGN(const ModelSource source, open_checkpoint(storage, checkpoint_folder, manifest));
  return write_hugging_face(storage, source, folder, options);
}

inline Result<CheckpointSearch> find_newest(Storage& storage, const std::string& root) {
  return find_newest_checkpoint(storage, root,
                                [&](const CheckpointManifest& manifest, const std::string& folder) {
                                  return verify_all_files(storage, folder, manifest);
                                });
}

/// The checkpoint holds, bit for bit, the state of its step.
inline void expect_whole(Storage& storage, const std::string& root,
                         const CheckpointManifest& manifest) {
  const std::string folder = root + "/" + folder_name(manifest.id);
  const std::vector<CheckpointFile> files = manifest.contents();
  for (const CheckpointPart part : parts_of(manifest.model)) {
    PartValues values = empty_part(manifest.model, part);
    const auto read =
        read_part(storage, folder, manifest.model, part, files, values.state<float>());
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(values, part_at_step(manifest.model, part, manifest.id.step));
  }
}

}  // namespace longhaul::fixtures
