// The coordinator's manifest of a checkpoint, and the folders that checkpoints live in.
//
//   ROOT/term-000002-step-000000100/     on the coordinator and on every holder
//     embedding.safetensors, ...         (layer_files.h) on the disks of their holders
//     manifest.yaml                      on the coordinator only, written last
//
// A checkpoint exists from the moment its manifest is durable: the manifest is the commit point. It
// names every file of the model with size, hash and holders, so the files of two checkpoints cannot
// be mixed. A folder without a manifest is unfinished or being deleted and counts for nothing.
// Folders are unique by (term, step): a term that starts again from an older step never writes over
// files that an older manifest names. Newer means the larger (term, step).
//
// manifest.yaml (schema longhaul/checkpoint/1), in this order; sizes are whole bytes:
//   schema, step, term, updates, seed, job: {hash}, data: {sequences, batch, batch_since_step},
//   model: {family, layers, width, heads, kv_heads, head_width, ffn_width, context, vocabulary,
//   tied_embedding, norm_epsilon; of llama rope_theta and, where it has one, rope_scaling},
//   files: [{name, size, hash, holders: [...]}, ...], content_hash
// content_hash, the last line, is the XXH3-128 of all bytes before that line: a manifest that was
// damaged, or changed by hand, is refused. Calls block; one thread a root.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/checkpoint/layer_files.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// Which checkpoint. Ordered from old to new.
struct CheckpointId {
  std::uint64_t term = 0;
  std::uint64_t step = 0;  // steps that are committed in it
  auto operator<=>(const CheckpointId&) const = default;
};
inline constexpr std::uint64_t kTermMax = 0xffffffff;      // the wire's 32 bits
inline constexpr std::uint64_t kStepMax = (1u << 28) - 1;  // the wire's 28 bits

std::string folder_name(CheckpointId id);
std::optional<CheckpointId> parse_folder_name(std::string_view name);

/// Where the data stands: who sees what follows from these, the seed and the plan.
struct DataPosition {
  std::uint64_t sequences = 0;         // consumed since the run began
  std::uint64_t batch = 0;             // sequences of a step
  std::uint64_t batch_since_step = 0;  // first step with this batch: its slots began there
  bool operator==(const DataPosition&) const = default;
};

struct HeldFile {
  CheckpointFile file;
  std::vector<std::string> holders;  // devices, `oregon-1/0`; at least one
  bool operator==(const HeldFile&) const = default;
};

struct CheckpointManifest {
  CheckpointId id;
  std::uint64_t updates = 0;  // steps that were applied, not skipped: AdamW's count
  std::uint64_t seed = 0;     // below 2^63
  std::uint64_t job_hash = 0;
  DataPosition data;
  ModelShape model;
  std::vector<HeldFile> files;  // in model order, weights before optimiser state

  /// The files without their holders.
  std::vector<CheckpointFile> contents() const;
};

inline constexpr std::string_view kManifestName = "manifest.yaml";

std::string manifest_text(const CheckpointManifest& manifest);
/// Everything is checked: ranges, that the files are exactly those of the model, the content hash.
/// All errors at once, with file and line.
Result<CheckpointManifest> parse_manifest(std::string_view text, const std::string& name);

/// Makes the checkpoint exist, durably. All its files must be durable on their holders before. May
/// be repeated after a failure; another manifest of the same id is refused.
Result<void> write_manifest(Storage& storage, const std::string& root,
                            const CheckpointManifest& manifest);
Result<CheckpointManifest> read_manifest(Storage& storage, const std::string& root,
                                         CheckpointId id);

/// Ids of all checkpoint folders below `root`, old to new; none when there is no `root`. With
/// `committed`, only those that have a manifest, readable or not.
Result<std::vector<CheckpointId>> list_checkpoints(Storage& storage, const std::string& root,
                                                   bool committed);

struct CheckpointSearch {
  std::optional<CheckpointManifest> newest;
  std::vector<Error> refused;  // of the newer ones, newest first: to be told, once
};
/// The newest checkpoint whose manifest is valid and which `accept` takes: all its files can be had
/// and are right. `folder` is ROOT/NAME.
using AcceptCheckpoint =
    std::function<Result<void>(const CheckpointManifest& manifest, const std::string& folder)>;
Result<CheckpointSearch> find_newest_checkpoint(Storage& storage, const std::string& root,
                                                const AcceptCheckpoint& accept);
/// An AcceptCheckpoint for a disk that has all files: reads and hashes every one.
Result<void> verify_all_files(Storage& storage, const std::string& folder,
                              const CheckpointManifest& manifest);

/// Deletes what is older than the `keep` newest checkpoints with a valid manifest, and what is
/// unfinished and older than the newest. Call it on the coordinator, after write_manifest() and
/// while nothing is being written; answers what is gone, for the holders.
Result<std::vector<CheckpointId>> delete_old_checkpoints(Storage& storage, const std::string& root,
                                                         int keep);
/// The manifest goes first, so that what is half deleted is no checkpoint.
Result<void> delete_checkpoint(Storage& storage, const std::string& root, CheckpointId id);

}  // namespace longhaul
