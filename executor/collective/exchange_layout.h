// Who sends what in a sharded exchange of gradients (sharded_all_reduce.h): the shards, their
// buckets, and the bytes of each message. Everything follows from the options, which are the same
// at all members.
//
// A member owns a shard, a stretch of the gradient. A shard travels as buckets of at most 4 MiB of
// fp32, each a message of its own, so that encoding, sending, adding and decoding overlap. Its
// tensors to be coded come first, gathered, then its small tensors (core/gradient_exchange.h has
// the rule), gathered likewise, which travel as fp32 wherever they go. Without a codec nothing is
// told apart.
//
// Values and pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/gradient_exchange.h"
#include "core/result.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {

/// Shards end at blocks of so many elements, which restart at each tensor (so that sums of squares
/// over such blocks do not depend on the shards).
inline constexpr std::size_t kShardBlock = 4096;

/// First elements of the shards and, last, the number of elements. Cuts lie at the block boundary
/// nearest to the exact share (the lower of two). Shares are finite, not negative and not all 0.
std::vector<std::size_t> cut_shards(std::span<const std::size_t> tensor_lengths,
                                    std::span<const double> shares);

struct ExchangeMember {
  int rank = 0;      // in the mesh
  int site = 0;      // members of one site exchange without codec
  double share = 1;  // of the gradient to own, relative to the others'
};

struct ExchangeOptions {
  std::vector<ExchangeMember> members;  // in the order of the sum, the same everywhere
  std::vector<std::size_t> tensor_lengths;
  /// By tensor: whether the codec is for it. Empty: for all.
  std::vector<bool> is_coded = {};
  TensorCodec codec = TensorCodec::kRaw;  // between sites: RAW is exact
  /// Most elements of a bucket; a multiple of 64, so that blocks of codecs are whole.
  std::size_t bucket_elements = static_cast<std::size_t>(kBucketElements);
};

/// Whether what a codec takes away from gradients is added to those of the next step: all that
/// round to less than 16 bits.
bool has_error_feedback(TensorCodec codec);

/// Elements of the gradient one after another.
struct GradientPiece {
  std::size_t first = 0;
  std::size_t count = 0;
};

struct Bucket {
  std::vector<GradientPiece> pieces;  // in the gradient, ascending
  std::size_t first = 0;              // in the shard, as it is gathered
  std::size_t count = 0;              // elements, at least 1
  bool is_coded = false;              // where it travels between sites
  /// Its place in this member's residuals; nothing where the member keeps none of it.
  std::optional<std::size_t> feedback_at = {};
};

class ExchangeLayout {
 public:
  /// Errors (kInvalid): options that make no sense, `rank` not a member.
  static Result<ExchangeLayout> make(ExchangeOptions options, int rank, int ranks);

  const ExchangeOptions& options() const { return options_; }
  std::size_t members() const { return options_.members.size(); }
  std::size_t self() const { return self_; }
  int rank_of(std::size_t member) const { return options_.members[member].rank; }
  std::size_t elements() const { return elements_; }
  /// By owner.
  const std::vector<std::vector<Bucket>>& shards() const { return shards_; }
  std::size_t shard_elements(std::size_t owner) const;

  /// Whether the bucket travels as a tensor frame between this member and `peer`.
  bool is_coded(std::size_t peer, const Bucket& bucket) const {
    return bucket.is_coded && options_.members[peer].site != options_.members[self_].site;
  }
  std::size_t message_bytes(std::size_t peer, const Bucket& bucket) const;
  /// Whether this member's sum is encoded: somebody is in another site.
  bool publishes_coded() const { return publishes_coded_; }
  /// Elements of which this member keeps residuals: the coded ones of owners in other sites, and
  /// those that it owns where its sum is encoded.
  std::size_t feedback_elements() const { return feedback_elements_; }

 private:
  void place_residuals();

  ExchangeOptions options_;
  std::size_t self_ = 0;
  std::size_t elements_ = 0;
  std::vector<std::vector<Bucket>> shards_;
  bool publishes_coded_ = false;
  std::size_t feedback_elements_ = 0;
};

}  // namespace longhaul
