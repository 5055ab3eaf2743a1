// The files of a checkpoint that hold tensors: for each part of the model (embedding, every layer,
// head) one safetensors file of weights and beside it one of optimiser state. Calls block and
// belong to one thread a folder; different parts of a folder may be written by different processes.
//
// Names, shapes and layouts of the weights are those of kernels/model_stage.h: Hugging Face's, of
// GPT-2 without the `transformer.` prefix. So a layer file opens in any tool, and a checkpoint of P
// stages is the same files as one of a single process. All tensors are F32 (the master weights).
//   embedding.safetensors             wte.weight [V, C], wpe.weight [S, C]
//   layer-0007.safetensors            h.7.ln_1.weight [C], ..., h.7.mlp.c_proj.bias [C]
//   head.safetensors                  ln_f.weight [C], ln_f.bias [C]; untied: lm_head.weight [V, C]
//   layer-0007.optimiser.safetensors  h.7.ln_1.weight.m, h.7.ln_1.weight.v, ... of AdamW
// A tied embedding is stored once, with the embedding. Every file appears whole (AtomicFile) and is
// named with its size and content hash by whoever wrote it; readers check both first.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/checkpoint/content_hash.h"
#include "executor/storage/storage.h"

namespace longhaul {

enum class PartKind { kEmbedding, kLayer, kHead };
struct CheckpointPart {
  PartKind kind = PartKind::kEmbedding;
  int layer = 0;  // of kLayer
  auto operator<=>(const CheckpointPart&) const = default;
};
/// Embedding, layers, head.
std::vector<CheckpointPart> parts_of(const ModelShape& model);

struct PartTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements() const;
};
/// Weights of a part, in the order of the forward pass.
std::vector<PartTensor> tensors_of(const ModelShape& model, CheckpointPart part);

std::string weights_file_name(CheckpointPart part);
std::string optimiser_file_name(CheckpointPart part);

/// One file as its writer left it.
struct CheckpointFile {
  std::string name;  // inside the checkpoint's folder
  std::uint64_t bytes = 0;
  ContentHash hash;
  bool operator==(const CheckpointFile&) const = default;
};

/// A part's state in memory, each list in the order of tensors_of().
template <class Float>
struct PartState {
  std::vector<std::span<Float>> weights;
  std::vector<std::span<Float>> m;
  std::vector<std::span<Float>> v;
};

/// Writes a part's two files into `folder` (made when absent), durably. Answers the weights file,
/// then the optimiser's. A disk without room is an error before anything is written.
Result<std::vector<CheckpointFile>> write_part(Storage& storage, const std::string& folder,
                                               const ModelShape& model, CheckpointPart part,
                                               const PartState<const float>& state);

/// Checks both files against `files` (those of the manifest), then fills `state`.
Result<void> read_part(Storage& storage, const std::string& folder, const ModelShape& model,
                       CheckpointPart part, std::span<const CheckpointFile> files,
                       const PartState<float>& state);

/// Reads the whole file in `folder`: its size and hash are those of `file`, or an error names it.
Result<void> verify_file(Storage& storage, const std::string& folder, const CheckpointFile& file);

/// A file that comes from another holder piece by piece: it appears only if all of it is right.
class ReceivedFile {
 public:
  static Result<ReceivedFile> create(Storage& storage, const std::string& folder,
                                     const CheckpointFile& expected);
  Result<void> append(std::span<const std::byte> bytes);
  Result<void> commit();

 private:
  ReceivedFile(AtomicFile file, CheckpointFile expected);
  AtomicFile file_;
  CheckpointFile expected_;
  std::uint64_t received_ = 0;
  ContentHasher hasher_;
};

/// The entry called `name`, or an error.
Result<CheckpointFile> file_named(std::span<const CheckpointFile> files, std::string_view name);

}  // namespace longhaul
