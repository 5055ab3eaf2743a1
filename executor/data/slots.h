// Which sequence is trained in which slot of which step: the whole order of a run, from four
// numbers.
//
// N sequences and a batch of B slots. One permutation of the N sequences, drawn from the seed,
// gives each its place p: it belongs to slot p mod B for the whole run, and stands there in row
// p div B. An epoch has S = ceil(N / B) steps; step s takes row s mod S of epoch s div S. Each
// epoch permutes, inside each slot, the rows 0 .. floor(N / B) - 1, which are full; a partial last
// row stays last, and its slots from N mod B on are padding: no sequence, no target tokens. So
// every sequence is seen once an epoch, always in the same slot, where what was remembered about
// it (AQ-SGD's histories) lies, and the number of micro-batches of a step never changes.
//
// Everything here is a pure function: no state, no table, any thread, any order of questions. The
// permutations are swap-or-not shuffles (Hoang, Morris, Rogaway, CRYPTO 2012) of 64 rounds on
// {0 .. n - 1}: in round i, x and K_i - x (mod n) change places, or not, by one bit of a hash of
// the larger of the two. Unlike a stored Fisher-Yates order they cost no memory and no time at an
// epoch's start; a question costs about two microseconds. Changing anything in them changes every
// run's order; the golden values of the test hold them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"

namespace longhaul {

/// A permutation of 0 .. size - 1 drawn by a key.
class Shuffle {
 public:
  /// size >= 1.
  Shuffle(std::uint64_t key, std::int64_t size) : key_(key), size_(size) {}
  std::int64_t operator()(std::int64_t x) const;
  /// The x with (*this)(x) == y.
  std::int64_t inverse(std::int64_t y) const;

 private:
  std::int64_t round(std::uint64_t number, std::int64_t x) const;

  std::uint64_t key_;
  std::int64_t size_;
};

/// Consecutive slots first .. first + count - 1.
struct SlotRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const SlotRange&) const = default;
};

class SlotMap {
 public:
  struct Options {
    std::int64_t sequences = 0;  // N, 1 .. 2^62
    std::int64_t slots = 0;      // B, 1 .. 2^31
    std::uint64_t seed = 0;
  };
  /// kInvalid outside these limits.
  static Result<SlotMap> make(const Options& options);

  std::int64_t sequences() const { return options_.sequences; }
  std::int64_t slots() const { return options_.slots; }
  /// S = ceil(N / B).
  std::int64_t steps_per_epoch() const { return full_rows_ + (partial_row_ > 0 ? 1 : 0); }
  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch(); }

  /// The sequence, or none in a padding slot. step >= 0, 0 <= slot < B.
  std::optional<std::int64_t> sequence(std::int64_t step, std::int64_t slot) const;
  /// The slot in which a sequence is trained, in every epoch.
  std::int64_t slot_of(std::int64_t sequence) const;
  /// Slots of a step that hold a sequence: the loss divides by this times the tokens of one.
  std::int64_t sequences_of(std::int64_t step) const;

 private:
  explicit SlotMap(const Options& options);

  Options options_;
  std::int64_t full_rows_;    // floor(N / B)
  std::int64_t partial_row_;  // N mod B: sequences of the partial last row
  Shuffle places_;            // place to sequence
};

/// The slots of each pipeline: contiguous, in the order of the pipelines, n_d micro-batches of
/// `micro_batch` sequences each. Their sum is the batch B.
std::vector<SlotRange> pipeline_slots(std::span<const int> micro_batches, int micro_batch);
/// Micro-batch number `index` of a pipeline: consecutive slots inside the pipeline's.
SlotRange micro_batch_slots(SlotRange pipeline, int micro_batch, int index);

/// Sequences of T + 1 tokens that a stream has at stride T: floor((tokens - 1) / T). Sequence i is
/// tokens i T .. i T + T, so that each token but the first is a target once; the last
/// (tokens - 1) mod T tokens are in none.
std::int64_t sequences_in(std::int64_t tokens, int context);

}  // namespace longhaul
