#include "executor/collective/sharded_all_reduce.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/codec/fixed_frame.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little, "plain parts are little-endian fp32");

constexpr std::uint32_t kPartSegment = 0;
constexpr std::uint32_t kSumSegment = 1;

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

Result<std::size_t> check(const Mesh& mesh, const ExchangeOptions& options, std::size_t elements) {
  const std::vector<ExchangeMember>& members = options.members;
  std::size_t self = members.size();
  double total = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ExchangeMember& member = members[i];
    if (member.rank < 0 || member.rank >= mesh.ranks()) {
      return invalid(fmt::format("rank {} is not one of the {} ranks", member.rank, mesh.ranks()));
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
    if (member.rank == mesh.rank()) self = i;
  }
  if (self == members.size()) {
    return invalid(fmt::format("rank {} is not a member of its exchange", mesh.rank()));
  }
  if (!std::isfinite(total) || total <= 0) return invalid("nobody owns a share of the exchange");
  if (options.codec != TensorCodec::kRaw && options.codec != TensorCodec::kBf16 &&
      options.codec != TensorCodec::kQ8) {
    return invalid("gradients are exchanged as none, bf16 or int8");
  }
  const std::size_t named =
      std::accumulate(options.tensor_lengths.begin(), options.tensor_lengths.end(), std::size_t{0});
  if (named != elements) {
    return invalid(fmt::format("the tensors have {} elements, the gradient {}", named, elements));
  }
  return self;
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

struct ShardedAllReduce::State : std::enable_shared_from_this<ShardedAllReduce::State> {
  State(Mesh& mesh_of_ranks, EventLoop& loop_of_mesh) : mesh(mesh_of_ranks), loop(loop_of_mesh) {}

  void start();
  void fold();
  void publish();
  void take_sum(std::size_t owner);
  void shard_is_here();
  void end(Result<void> result);

  std::size_t members() const { return options.members.size(); }
  /// The k-th after this one.
  std::size_t member_after(std::size_t k) const { return (self + k) % members(); }
  int rank_of(std::size_t member) const { return options.members[member].rank; }
  bool is_coded(std::size_t peer) const {
    return options.codec != TensorCodec::kRaw &&
           options.members[peer].site != options.members[self].site;
  }
  std::span<float> shard(std::size_t owner) {
    return std::span(work).subspan(cuts[owner], cuts[owner + 1] - cuts[owner]);
  }
  std::vector<std::byte> make_frame(std::size_t elements) const {
    return std::vector<std::byte>(tensor_frame_bytes(options.codec, Precision::kFp32, elements));
  }
  void send(std::size_t peer, std::uint32_t segment, std::span<const std::byte> payload) {
    mesh.send(rank_of(peer), options.operation, segment, payload,
              [self_owner = shared_from_this()] {});
  }
  void encode(std::span<const float> values, std::vector<std::byte>& frame) const;

  Mesh& mesh;
  EventLoop& loop;
  ExchangeOptions options;
  std::span<float> gradient;
  OnDone on_done;
  std::size_t self = 0;
  std::vector<std::size_t> cuts;

  // The local gradient; shard by shard it becomes the sum. A sum is received where the part lies
  // that was sent to its owner, which must have got that part before it could add.
  std::vector<float> work;
  std::vector<std::vector<float>> parts;            // of the own shard, by member
  std::vector<std::vector<std::byte>> coded_parts;  // the same from other sites
  std::vector<bool> part_is_here;
  std::vector<std::vector<std::byte>> sent_parts;  // frames, by owner
  std::vector<std::vector<std::byte>> coded_sums;  // frames, by owner
  std::vector<float> sum;
  std::size_t folded = 0;   // members
  std::size_t missing = 0;  // shards
  bool is_over = false;
};

void ShardedAllReduce::State::start() {
  work.assign(gradient.begin(), gradient.end());
  parts.resize(members());
  coded_parts.resize(members());
  sent_parts.resize(members());
  coded_sums.resize(members());
  part_is_here.assign(members(), false);
  part_is_here[self] = true;
  const std::size_t own = shard(self).size();
  for (std::size_t k = 1; k < members(); ++k) {
    const std::size_t peer = member_after(k);
    if (own > 0) {
      std::span<std::byte> buffer;
      if (is_coded(peer)) {
        coded_parts[peer] = make_frame(own);
        buffer = coded_parts[peer];
      } else {
        parts[peer].resize(own);
        buffer = std::as_writable_bytes(std::span(parts[peer]));
      }
      mesh.receive(rank_of(peer), options.operation, kPartSegment, buffer,
                   [state = shared_from_this(), peer] {
                     state->part_is_here[peer] = true;
                     state->fold();
                   });
    }
    if (const std::span<float> theirs = shard(peer); !theirs.empty()) {
      ++missing;
      std::span<std::byte> buffer = std::as_writable_bytes(theirs);
      if (is_coded(peer)) {
        coded_sums[peer] = make_frame(theirs.size());
        buffer = coded_sums[peer];
      }
      mesh.receive(rank_of(peer), options.operation, kSumSegment, buffer,
                   [state = shared_from_this(), peer] { state->take_sum(peer); });
    }
  }
  for (std::size_t k = 1; k < members(); ++k) {
    const std::size_t owner = member_after(k);
    const std::span<const float> part = shard(owner);
    if (part.empty()) continue;
    if (is_coded(owner)) {
      encode(part, sent_parts[owner]);
      send(owner, kPartSegment, sent_parts[owner]);
    } else {
      send(owner, kPartSegment, std::as_bytes(part));
    }
  }
  if (own > 0) {
    ++missing;
    fold();
  } else if (missing == 0) {  // no elements at all
    missing = 1;
    shard_is_here();
  }
}

/// Adds the parts that have come and whose turn it is.
void ShardedAllReduce::State::fold() {
  while (!is_over && folded < members() && part_is_here[folded]) {
    std::vector<float>& part = parts[folded];
    if (!coded_parts[folded].empty()) {
      part.resize(shard(self).size());
      if (const Result<void> decoded = decode_fixed_frame(coded_parts[folded], part); !decoded) {
        return end(within(fmt::format("the part of rank {}", rank_of(folded)), decoded.error()));
      }
    }
    const std::span<const float> values = folded == self ? shard(self) : std::span(part);
    if (folded == 0) {
      sum.assign(values.begin(), values.end());
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    part = {};
    coded_parts[folded] = {};
    if (++folded == members()) publish();
  }
}

void ShardedAllReduce::State::publish() {
  bool has_coded_peer = false;
  for (std::size_t peer = 0; peer < members(); ++peer) has_coded_peer |= is_coded(peer);
  if (has_coded_peer) {
    encode(sum, coded_sums[self]);
    const Result<void> decoded = decode_fixed_frame(coded_sums[self], sum);
    LH_CHECK(decoded, "what was just encoded can be decoded");
  }
  std::copy(sum.begin(), sum.end(), shard(self).begin());
  sum = {};
  for (std::size_t k = 1; k < members(); ++k) {
    const std::size_t peer = member_after(k);
    send(peer, kSumSegment,
         is_coded(peer) ? std::span<const std::byte>(coded_sums[self])
                        : std::as_bytes(std::span<const float>(shard(self))));
  }
  shard_is_here();
}

void ShardedAllReduce::State::take_sum(std::size_t owner) {
  if (is_over) return;
  if (is_coded(owner)) {
    if (const Result<void> decoded = decode_fixed_frame(coded_sums[owner], shard(owner));
        !decoded) {
      return end(within(fmt::format("the sum of rank {}", rank_of(owner)), decoded.error()));
    }
    coded_sums[owner] = {};
  }
  shard_is_here();
}

void ShardedAllReduce::State::shard_is_here() {
  if (--missing == 0) end({});
}

/// In a task of its own, because start() may get here.
void ShardedAllReduce::State::end(Result<void> result) {
  if (is_over) return;
  is_over = true;
  loop.post([state = shared_from_this(), outcome = std::move(result)]() mutable {
    if (!state->on_done) return;  // abandoned
    if (outcome) std::copy(state->work.begin(), state->work.end(), state->gradient.begin());
    std::exchange(state->on_done, nullptr)(std::move(outcome));
  });
}

void ShardedAllReduce::State::encode(std::span<const float> values,
                                     std::vector<std::byte>& frame) const {
  frame.resize(tensor_frame_bytes(options.codec, Precision::kFp32, values.size()));
  const Result<void> encoded = encode_fixed_frame(values, options.codec, frame);
  LH_CHECK(encoded, "start() checked codec and sizes");
}

// ---- The handle.

ShardedAllReduce::ShardedAllReduce(std::shared_ptr<State> state) : state_(std::move(state)) {}

ShardedAllReduce::~ShardedAllReduce() {
  state_->is_over = true;
  state_->on_done = nullptr;
}

Result<std::unique_ptr<ShardedAllReduce>> ShardedAllReduce::start(Mesh& mesh, EventLoop& loop,
                                                                  ExchangeOptions options,
                                                                  std::span<float> gradient,
                                                                  OnDone on_done) {
  LH_ASSIGN(const std::size_t self, check(mesh, options, gradient.size()));
  std::vector<double> shares;
  for (const ExchangeMember& member : options.members) shares.push_back(member.share);
  const auto state = std::make_shared<State>(mesh, loop);
  state->cuts = cut_shards(options.tensor_lengths, shares);
  for (std::size_t i = 0; options.codec != TensorCodec::kRaw && i < shares.size(); ++i) {
    if (state->cuts[i + 1] - state->cuts[i] > kTensorElementsMax) {
      return invalid(fmt::format("a shard of more than {} elements does not fit a tensor frame",
                                 kTensorElementsMax));
    }
  }
  state->options = std::move(options);
  state->gradient = gradient;
  state->on_done = std::move(on_done);
  state->self = self;
  state->start();
  return std::make_unique<ShardedAllReduce>(state);
}

void ShardedAllReduce::fail(const Error& why) {
  state_->end(std::unexpected(why));
}

void ShardedAllReduce::peer_lost(int rank, const Error& why) {
  const auto& members = state_->options.members;
  if (std::ranges::any_of(members, [&](const auto& member) { return member.rank == rank; })) {
    state_->end(
        within(fmt::format("the gradient exchange cannot end: rank {} is lost", rank), why));
  }
}

}  // namespace longhaul
