// Histories beside a checkpoint, when the job asks for them: one safetensors file for each end of
// each boundary that has some, on the disk of the node that has that end. Calls block; one thread.
//
//   history-0-layer-0012-sender.safetensors   of pipeline 0, what comes out of the first 12 layers
//
//   samples U64 [N]   hashes U64 [N]   crcs U32 [N]   steps U32 [N]   visits U32 [N]
//   values BF16 [N, E]                 all in the order of the last visits, see history_store.h
//   metadata: layout, 16 hexadecimal digits
//
// They are no part of the checkpoint: they are many times as large as weights, and a resumed run
// needs none of them. What is missing, rotten or of another layout is left out, and the codec heals
// (aq_boundary.h). Values are checked against their CRC, and a wrong name of a history is found out
// by its first delta, so the file has no hash of its own.
//
// Histories follow from training data, which can in part be told from them: they are as
// confidential as the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "executor/history/history_store.h"
#include "executor/storage/storage.h"

namespace longhaul {

enum class HistoryEnd { kSender, kReceiver };
/// `layers`: how many of the model's layers come before the boundary.
std::string history_file_name(int pipeline, int layers, HistoryEnd end);

/// Writes what the store has into `folder` (made when absent), durably.
Result<void> write_histories(Storage& storage, const std::string& folder, const std::string& name,
                             std::uint64_t layout, HistoryStore& store);

/// Fills an empty store from such a file, if it is there; of more than it holds those visited last.
/// Answers how many there are now: none of another layout or size. Error: no file of histories.
Result<std::size_t> read_histories(Storage& storage, const std::string& folder,
                                   const std::string& name, std::uint64_t layout,
                                   HistoryStore& store);

}  // namespace longhaul
