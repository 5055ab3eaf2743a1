// Where a worker gets its sequences from. The first and the last stage of a pipeline ask a
// MicroBatchReader for the tokens of (step, micro-batch); it works out which sequences these are
// (slots.h) and has a SequenceSource fetch them: from shards on this node's disk, from a node that
// has them (the transport's source, which asks for sequences by number), or from memory in a
// simulation.
//
// A source answers later and exactly once, in any order among its requests, on the thread that
// drives it; a source that has the data at hand may answer before `fetch` returns. Requests that
// are open when a source is destroyed are never answered. The number of open requests is the
// caller's to bound: a schedule asks a few micro-batches ahead.
//
// Two sources are the same data when their DataIdentity is equal; a run's plan of who sees what
// holds only on equal data, so a worker refuses a source whose identity is not the run's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "executor/data/slots.h"
#include "executor/data/token_shard.h"

namespace longhaul {

/// What makes two nodes' data the same. The fingerprint is of the tokens, not of the files: another
/// cut into shards is the same data.
struct DataIdentity {
  std::uint64_t fingerprint = 0;  // TokenFingerprint of the stream
  std::int64_t tokens = 0;
  std::int64_t vocabulary = 0;
  int context = 0;  // T
  bool operator==(const DataIdentity&) const = default;

  std::int64_t sequences() const { return sequences_in(tokens, context); }
  /// For the error message of a mismatch.
  std::string text() const;
};

class SequenceSource {
 public:
  /// T + 1 tokens for each sequence asked for, in the order of the request.
  using Completion = std::move_only_function<void(Result<std::vector<Token>>)>;

  virtual ~SequenceSource() = default;
  virtual const DataIdentity& identity() const = 0;
  /// Numbers are in 0 .. identity().sequences() - 1.
  virtual void fetch(std::vector<std::int64_t> sequences, Completion done) = 0;
};

/// From shards on this node. Opening reads everything once, to check every id and to compute the
/// identity. Reads inside `fetch` and answers before it returns, on the caller's thread: one where
/// reading may block, with a micro-batch's some kilobytes. The Storage outlives it.
Result<std::unique_ptr<SequenceSource>> open_local_sequences(Storage& storage,
                                                             const std::vector<std::string>& shards,
                                                             std::int64_t vocabulary, int context);

/// Target of a position that has none: the kernels give it no loss and no gradient.
inline constexpr Token kNoTarget = -1;

/// The tokens of one micro-batch, row-major [slots][T]. A padding slot has input 0 and target
/// kNoTarget everywhere: it costs the time of a sequence and adds nothing to the loss.
struct MicroBatch {
  SlotRange slots;
  std::vector<Token> inputs;
  std::vector<Token> targets;
  std::vector<std::optional<std::int64_t>> sequences;  // of each slot
};

class MicroBatchReader {
 public:
  using Completion = std::move_only_function<void(Result<MicroBatch>)>;

  /// kInvalid when the source's data is not `expected`. The source outlives the reader's requests.
  static Result<MicroBatchReader> make(SequenceSource& source, const DataIdentity& expected,
                                       std::int64_t slots, std::uint64_t seed);

  const SlotMap& slot_map() const { return map_; }
  void request(std::int64_t step, SlotRange slots, Completion done) const;
  /// The same for given sequences; none is padding.
  void read(SlotRange slots, std::vector<std::optional<std::int64_t>> sequences,
            Completion done) const;

 private:
  MicroBatchReader(SequenceSource& source, SlotMap map) : source_(&source), map_(map) {}

  SequenceSource* source_;
  SlotMap map_;
};

}  // namespace longhaul
