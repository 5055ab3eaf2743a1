#include "executor/collective/exchange_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace longhaul {
namespace {

/// The block boundary nearest to an element.
std::size_t nearest_cut(std::span<const std::size_t> tensor_lengths, std::size_t target) {
  std::size_t first = 0;
  for (const std::size_t length : tensor_lengths) {
    if (target >= first + length) {
      first += length;
      continue;
    }
    const std::size_t inside = target - first;
    const std::size_t below = inside / kShardBlock * kShardBlock;
    const std::size_t above = std::min(below + kShardBlock, length);
    return first + (inside - below <= above - inside ? below : above);
  }
  return first;
}

/// The place of `rank` among the members.
Result<std::size_t> check_members(const std::vector<ExchangeMember>& members, int rank, int ranks) {
  std::size_t self = members.size();
  double total = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ExchangeMember& member = members[i];
    if (member.rank < 0 || member.rank >= ranks) {
      return invalid(fmt::format("rank {} is not one of the {} ranks", member.rank, ranks));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (members[j].rank == member.rank) {
        return invalid(fmt::format("rank {} is a member of the exchange twice", member.rank));
      }
    }
    if (!std::isfinite(member.share) || member.share < 0) {
      return invalid(fmt::format("rank {} cannot own the share {}", member.rank, member.share));
    }
    total += member.share;
    if (member.rank == rank) self = i;
  }
  if (self == members.size()) {
    return invalid(fmt::format("rank {} is not a member of its exchange", rank));
  }
  if (!std::isfinite(total) || total <= 0) return invalid("nobody owns a share of the exchange");
  return self;
}

Result<void> check_tensors(const ExchangeOptions& options) {
  if (!options.is_coded.empty() && options.is_coded.size() != options.tensor_lengths.size()) {
    return invalid(fmt::format("{} tensors are said to be coded or not, {} are exchanged",
                               options.is_coded.size(), options.tensor_lengths.size()));
  }
  if (options.bucket_elements == 0 || options.bucket_elements % 64 != 0 ||
      options.bucket_elements > kTensorElementsMax) {
    return invalid(fmt::format("a bucket cannot have {} elements, only a multiple of 64 up to {}",
                               options.bucket_elements, kTensorElementsMax));
  }
  return {};
}

/// Gathers stretches of the gradient into buckets.
class BucketMaker {
 public:
  explicit BucketMaker(std::size_t elements_max) : elements_max_(elements_max) {}

  void add(GradientPiece piece, bool is_coded) {
    while (piece.count > 0) {
      if (buckets_.empty() || buckets_.back().is_coded != is_coded ||
          buckets_.back().count == elements_max_) {
        buckets_.push_back({.pieces = {}, .first = first_, .count = 0, .is_coded = is_coded});
      }
      Bucket& bucket = buckets_.back();
      const std::size_t count = std::min(piece.count, elements_max_ - bucket.count);
      if (!bucket.pieces.empty() &&
          bucket.pieces.back().first + bucket.pieces.back().count == piece.first) {
        bucket.pieces.back().count += count;
      } else {
        bucket.pieces.push_back({piece.first, count});
      }
      bucket.count += count;
      first_ += count;
      piece = {piece.first + count, piece.count - count};
    }
  }
  std::vector<Bucket> take() { return std::move(buckets_); }

 private:
  const std::size_t elements_max_;
  std::size_t first_ = 0;
  std::vector<Bucket> buckets_;
};

/// The buckets of the shard [first, end).
std::vector<Bucket> cut_buckets(const ExchangeOptions& options, std::size_t first,
                                std::size_t end) {
  const bool has_codec = options.codec != TensorCodec::kRaw;
  BucketMaker maker(options.bucket_elements);
  for (const bool is_coded : {true, false}) {
    std::size_t at = 0;
    for (std::size_t t = 0; t < options.tensor_lengths.size(); ++t) {
      const std::size_t from = std::max(first, at);
      at += options.tensor_lengths[t];
      const bool is_for_codec = has_codec && (options.is_coded.empty() || options.is_coded[t]);
      if (is_for_codec == is_coded && from < std::min(end, at)) {
        maker.add({from, std::min(end, at) - from}, is_coded);
      }
    }
  }
  return maker.take();
}

}  // namespace

std::vector<std::size_t> cut_shards(std::span<const std::size_t> tensor_lengths,
                                    std::span<const double> shares) {
  const std::size_t elements =
      std::accumulate(tensor_lengths.begin(), tensor_lengths.end(), std::size_t{0});
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  LH_CHECK(total > 0, "somebody owns a share");
  std::vector<std::size_t> cuts{0};
  double before = 0;
  for (const double share : shares) {
    before += share;
    const double exact = static_cast<double>(elements) * (before / total);
    const auto target = static_cast<std::size_t>(std::llround(exact));
    cuts.push_back(nearest_cut(tensor_lengths, target));
  }
  cuts.back() = elements;
  return cuts;
}

bool has_error_feedback(TensorCodec codec) {
  return codec != TensorCodec::kRaw && codec != TensorCodec::kBf16 && codec != TensorCodec::kF16;
}

Result<ExchangeLayout> ExchangeLayout::make(ExchangeOptions options, int rank, int ranks) {
  ExchangeLayout layout;
  LH_ASSIGN(layout.self_, check_members(options.members, rank, ranks));
  LH_TRY(check_tensors(options));
  std::vector<double> shares;
  for (const ExchangeMember& member : options.members) {
    shares.push_back(member.share);
    layout.publishes_coded_ |=
        options.codec != TensorCodec::kRaw && member.site != options.members[layout.self_].site;
  }
  const std::vector<std::size_t> cuts = cut_shards(options.tensor_lengths, shares);
  layout.elements_ = cuts.back();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    layout.shards_.push_back(cut_buckets(options, cuts[i], cuts[i + 1]));
  }
  layout.options_ = std::move(options);
  layout.place_residuals();
  return layout;
}

void ExchangeLayout::place_residuals() {
  if (!has_error_feedback(options_.codec)) return;
  for (std::size_t owner = 0; owner < members(); ++owner) {
    for (Bucket& bucket : shards_[owner]) {
      const bool is_encoded_here =
          owner == self_ ? publishes_coded_ && bucket.is_coded : is_coded(owner, bucket);
      if (!is_encoded_here) continue;
      bucket.feedback_at = feedback_elements_;
      feedback_elements_ += bucket.count;
    }
  }
}

std::size_t ExchangeLayout::shard_elements(std::size_t owner) const {
  const std::vector<Bucket>& buckets = shards_[owner];
  return buckets.empty() ? 0 : buckets.back().first + buckets.back().count;
}

std::size_t ExchangeLayout::message_bytes(std::size_t peer, const Bucket& bucket) const {
  return is_coded(peer, bucket) ? tensor_frame_bytes(options_.codec, Precision::kFp32, bucket.count)
                                : bucket.count * sizeof(float);
}

}  // namespace longhaul
