#include "executor/collective/sharded_all_reduce.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/codec/fixed_frame.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little, "plain parts are little-endian fp32");

std::uint32_t part_segment(std::size_t bucket) {
  return static_cast<std::uint32_t>(2 * bucket);
}
std::uint32_t sum_segment(std::size_t bucket) {
  return static_cast<std::uint32_t>(2 * bucket + 1);
}

void gather(std::span<const float> gradient, const Bucket& bucket, std::span<float> values) {
  std::size_t at = 0;
  for (const GradientPiece& piece : bucket.pieces) {
    std::ranges::copy(gradient.subspan(piece.first, piece.count), values.subspan(at).begin());
    at += piece.count;
  }
}
void scatter(std::span<const float> values, const Bucket& bucket, std::span<float> gradient) {
  std::size_t at = 0;
  for (const GradientPiece& piece : bucket.pieces) {
    std::ranges::copy(values.subspan(at, piece.count), gradient.subspan(piece.first).begin());
    at += piece.count;
  }
}

/// Memory for messages: frames, or the numbers themselves.
class Messages {
 public:
  /// The next message's place.
  void add(std::size_t bytes) {
    places_.push_back({floats_, bytes});
    floats_ += (bytes + sizeof(float) - 1) / sizeof(float);
  }
  /// After the last.
  void allocate() { memory_.resize(floats_); }
  std::span<std::byte> bytes(std::size_t message) {
    const auto [first, size] = places_[message];
    return std::as_writable_bytes(std::span(memory_).subspan(first)).first(size);
  }
  std::span<float> values(std::size_t message) {
    const auto [first, size] = places_[message];
    return std::span(memory_).subspan(first, size / sizeof(float));
  }

 private:
  std::size_t floats_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // first float, bytes
  std::vector<float> memory_;
};

}  // namespace

/// The buffers of an exchange and how far it is. Used again by later ones.
struct ShardedAllReduce::Run : std::enable_shared_from_this<ShardedAllReduce::Run> {
  Run(Mesh& mesh_of_ranks, EventLoop& loop_of_mesh, const ExchangeLayout& layout_of_exchange,
      ErrorFeedback& feedback_of_exchange);

  void start();
  void post_receives();
  void send_next();
  void send_part(std::size_t leaving);
  void fold(std::size_t bucket);
  Result<void> add_part(std::size_t member, std::size_t bucket);
  void publish(std::size_t bucket);
  void send_sum(std::size_t bucket);
  void take_sum(std::size_t leaving);
  void bucket_is_here();
  void end(Result<void> result);
  void encode(std::span<float> values, const Bucket& bucket, std::span<std::byte> frame);
  void look_at_sum(std::span<const float> values);

  std::size_t members() const { return layout.members(); }
  /// All of them.
  bool have_parts_left() const { return next_leaving == leaving.size(); }
  /// The k-th after this one.
  std::size_t member_after(std::size_t k) const { return (layout.self() + k) % members(); }
  const std::vector<Bucket>& own() const { return layout.shards()[layout.self()]; }
  std::span<float> sum_of(const Bucket& bucket) {
    return std::span(sum).subspan(bucket.first, bucket.count);
  }
  std::span<float> scratch(const Bucket& bucket) { return std::span(decoded).first(bucket.count); }
  std::size_t arriving_message(std::size_t member, std::size_t bucket) const {
    return bucket * members() + member;
  }
  void send(std::size_t peer, std::uint32_t segment, std::span<const std::byte> payload) {
    mesh.send(layout.rank_of(peer), operation, segment, payload, [self = shared_from_this()] {});
  }

  // Valid until it is over.
  Mesh& mesh;
  EventLoop& loop;
  const ExchangeLayout& layout;
  ErrorFeedback& feedback;

  std::uint64_t operation = 0;
  std::span<float> gradient;
  OnDone on_done;

  /// A bucket of somebody else's shard.
  struct Leaving {
    std::size_t owner = 0;
    std::size_t bucket = 0;
    bool is_sent = false;
  };
  std::vector<Leaving> leaving;  // in the order of sending
  // A sum is received where the part lies that was sent to its owner, who must have got that part
  // before it could add.
  Messages leaving_messages;
  Messages arriving_messages;  // parts of the own shard, by bucket and member
  Messages published;          // frames of the own sums, by bucket
  std::vector<float> sum;      // of the own shard
  std::vector<float> wanted;   // of the bucket at hand, before it was encoded
  std::vector<float> decoded;  // the same after it

  std::size_t next_leaving = 0;
  std::vector<std::size_t> sums_to_send;  // buckets, until all parts have left
  std::vector<bool> part_is_here;         // as arriving_messages
  std::vector<std::size_t> folded;        // members, by own bucket
  std::size_t missing = 0;                // buckets
  bool sum_is_finite = true;              // of coded buckets
  bool is_over = true;
  bool is_complete = false;
};

ShardedAllReduce::Run::Run(Mesh& mesh_of_ranks, EventLoop& loop_of_mesh,
                           const ExchangeLayout& layout_of_exchange,
                           ErrorFeedback& feedback_of_exchange)
    : mesh(mesh_of_ranks),
      loop(loop_of_mesh),
      layout(layout_of_exchange),
      feedback(feedback_of_exchange) {
  // Bucket by bucket and not peer by peer, so that all peers have something to do at once.
  std::size_t buckets = 0;
  std::size_t largest = 0;
  for (const std::vector<Bucket>& shard : layout.shards()) {
    buckets = std::max(buckets, shard.size());
    for (const Bucket& bucket : shard) largest = std::max(largest, bucket.count);
  }
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    for (std::size_t k = 1; k < members(); ++k) {
      const std::size_t owner = member_after(k);
      const std::vector<Bucket>& shard = layout.shards()[owner];
      if (bucket >= shard.size()) continue;
      leaving.push_back({owner, bucket});
      leaving_messages.add(layout.message_bytes(owner, shard[bucket]));
    }
  }
  for (const Bucket& bucket : own()) {
    for (std::size_t member = 0; member < members(); ++member) {
      arriving_messages.add(member == layout.self() ? 0 : layout.message_bytes(member, bucket));
    }
    const TensorCodec codec = layout.options().codec;
    const bool is_encoded = layout.publishes_coded() && bucket.is_coded;
    published.add(is_encoded ? tensor_frame_bytes(codec, Precision::kFp32, bucket.count) : 0);
  }
  leaving_messages.allocate();
  arriving_messages.allocate();
  published.allocate();
  sum.resize(layout.shard_elements(layout.self()));
  wanted.resize(largest);
  decoded.resize(largest);
}

void ShardedAllReduce::Run::start() {
  is_over = is_complete = false;
  sum_is_finite = true;
  next_leaving = 0;
  sums_to_send.clear();
  for (Leaving& one : leaving) one.is_sent = false;
  part_is_here.assign(own().size() * members(), false);
  folded.assign(own().size(), 0);
  missing = leaving.size() + (members() > 1 ? own().size() : 0);
  if (missing == 0) {  // alone, or no elements at all
    missing = 1;
    return bucket_is_here();
  }
  post_receives();
  loop.post([self = shared_from_this()] { self->send_next(); });
}

void ShardedAllReduce::Run::post_receives() {
  for (std::size_t bucket = 0; bucket < own().size(); ++bucket) {
    for (std::size_t k = 1; k < members(); ++k) {
      const std::size_t peer = member_after(k);
      const std::size_t message = arriving_message(peer, bucket);
      mesh.receive(layout.rank_of(peer), operation, part_segment(bucket),
                   arriving_messages.bytes(message), [self = shared_from_this(), bucket, message] {
                     self->part_is_here[message] = true;
                     self->fold(bucket);
                   });
    }
  }
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    mesh.receive(layout.rank_of(leaving[i].owner), operation, sum_segment(leaving[i].bucket),
                 leaving_messages.bytes(i), [self = shared_from_this(), i] { self->take_sum(i); });
  }
}

/// One part a task, so that what arrives has its turn. Sums wait for the last one: others cannot
/// add before they have their parts, and need the sums only at the end.
void ShardedAllReduce::Run::send_next() {
  if (is_over || have_parts_left()) return;
  send_part(next_leaving++);
  if (!have_parts_left()) {
    loop.post([self = shared_from_this()] { self->send_next(); });
    return;
  }
  for (const std::size_t bucket : std::exchange(sums_to_send, {})) send_sum(bucket);
}

void ShardedAllReduce::Run::send_part(std::size_t i) {
  const Bucket& bucket = layout.shards()[leaving[i].owner][leaving[i].bucket];
  if (layout.is_coded(leaving[i].owner, bucket)) {
    const std::span<float> values = scratch(bucket);
    gather(gradient, bucket, values);
    encode(values, bucket, leaving_messages.bytes(i));
  } else {
    gather(gradient, bucket, leaving_messages.values(i));
  }
  leaving[i].is_sent = true;
  send(leaving[i].owner, part_segment(leaving[i].bucket), leaving_messages.bytes(i));
}

/// Writes the frame of `values` and what was left over before, and keeps what is left over now.
/// `values` is then what the frame says where something is kept, and else what it was.
void ShardedAllReduce::Run::encode(std::span<float> values, const Bucket& bucket,
                                   std::span<std::byte> frame) {
  if (bucket.feedback_at) feedback.add(*bucket.feedback_at, values);
  const Result<void> encoded = encode_fixed_frame(values, {.codec = layout.options().codec}, frame);
  LH_CHECK(encoded, "the layout checked codec and sizes");
  if (!bucket.feedback_at) return;
  const std::span<float> kept = std::span(wanted).first(bucket.count);
  std::ranges::copy(values, kept.begin());
  const Result<void> was_sent = decode_fixed_frame(frame, values);
  LH_CHECK(was_sent, "what was just encoded can be decoded");
  feedback.keep(*bucket.feedback_at, kept, values);
}

/// Adds the parts that have come and whose turn it is.
void ShardedAllReduce::Run::fold(std::size_t bucket) {
  while (!is_over && folded[bucket] < members()) {
    const std::size_t member = folded[bucket];
    if (member != layout.self() && !part_is_here[arriving_message(member, bucket)]) return;
    if (const Result<void> added = add_part(member, bucket); !added) {
      const std::string what = fmt::format("the part of rank {}", layout.rank_of(member));
      return end(within(what, added.error()));
    }
    if (++folded[bucket] == members()) publish(bucket);
  }
}

Result<void> ShardedAllReduce::Run::add_part(std::size_t member, std::size_t index) {
  const Bucket& bucket = own()[index];
  const std::size_t message = arriving_message(member, index);
  std::span<float> values = scratch(bucket);
  if (member == layout.self()) {
    gather(gradient, bucket, values);
  } else if (layout.is_coded(member, bucket)) {
    LH_TRY(decode_fixed_frame(arriving_messages.bytes(message), values));
  } else {
    values = arriving_messages.values(message);
  }
  const std::span<float> total = sum_of(bucket);
  if (member == 0) {
    std::ranges::copy(values, total.begin());
  } else {
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[i];
  }
  return {};
}

void ShardedAllReduce::Run::publish(std::size_t index) {
  const Bucket& bucket = own()[index];
  const std::span<float> total = sum_of(bucket);
  const std::span<std::byte> frame = published.bytes(index);
  if (!frame.empty()) {
    encode(total, bucket, frame);
    if (!bucket.feedback_at) {
      const Result<void> decoded_sum = decode_fixed_frame(frame, total);
      LH_CHECK(decoded_sum, "what was just encoded can be decoded");
    }
  }
  look_at_sum(total);
  scatter(total, bucket, gradient);
  if (have_parts_left()) {
    send_sum(index);
  } else {
    sums_to_send.push_back(index);
  }
  bucket_is_here();
}

void ShardedAllReduce::Run::send_sum(std::size_t index) {
  const Bucket& bucket = own()[index];
  for (std::size_t k = 1; k < members(); ++k) {
    const std::size_t peer = member_after(k);
    send(peer, sum_segment(index),
         layout.is_coded(peer, bucket) ? std::span<const std::byte>(published.bytes(index))
                                       : std::as_bytes(sum_of(bucket)));
  }
}

void ShardedAllReduce::Run::take_sum(std::size_t i) {
  if (is_over) return;
  const auto [owner, index, is_sent] = leaving[i];
  const auto refuse = [&](const Error& why) {
    end(within(fmt::format("the sum of rank {}", layout.rank_of(owner)), why));
  };
  if (!is_sent) return refuse(failed("it came before all parts were sent").error());
  const Bucket& bucket = layout.shards()[owner][index];
  std::span<float> values = scratch(bucket);
  if (layout.is_coded(owner, bucket)) {
    const Result<void> taken = decode_fixed_frame(leaving_messages.bytes(i), values);
    if (!taken) return refuse(taken.error());
  } else {
    values = leaving_messages.values(i);
  }
  look_at_sum(values);
  scatter(values, bucket, gradient);
  bucket_is_here();
}

/// A frame of what is not finite is NaN from the first number on.
void ShardedAllReduce::Run::look_at_sum(std::span<const float> values) {
  sum_is_finite &= std::isfinite(values[0]);
}

void ShardedAllReduce::Run::bucket_is_here() {
  if (--missing > 0) return;
  is_complete = true;
  end({});
}

/// In a task of its own, because start() may get here.
void ShardedAllReduce::Run::end(Result<void> result) {
  if (is_over) return;
  is_over = true;
  loop.post([self = shared_from_this(), outcome = std::move(result)]() mutable {
    if (!self->on_done) return;  // abandoned
    std::exchange(self->on_done, nullptr)(std::move(outcome));
  });
}

// ---- The handle.

ShardedAllReduce::ShardedAllReduce(Mesh& mesh, EventLoop& loop, ExchangeLayout layout)
    : mesh_(mesh),
      loop_(loop),
      layout_(std::move(layout)),
      feedback_(layout_.feedback_elements()) {}

ShardedAllReduce::~ShardedAllReduce() {
  abandon();
}

Result<std::unique_ptr<ShardedAllReduce>> ShardedAllReduce::create(Mesh& mesh, EventLoop& loop,
                                                                   ExchangeOptions options) {
  LH_ASSIGN(ExchangeLayout layout,
            ExchangeLayout::make(std::move(options), mesh.rank(), mesh.ranks()));
  return std::unique_ptr<ShardedAllReduce>(new ShardedAllReduce(mesh, loop, std::move(layout)));
}

void ShardedAllReduce::start(std::uint64_t operation, std::span<float> gradient, OnDone on_done) {
  LH_CHECK(gradient.size() == layout_.elements(), "the gradient is that of the layout's tensors");
  LH_CHECK(!run_ || !run_->on_done, "one exchange at a time");
  if (!run_ || run_.use_count() > 1) {
    run_ = std::make_shared<Run>(mesh_, loop_, layout_, feedback_);
    ++buffers_made_;
  }
  run_->operation = operation;
  run_->gradient = gradient;
  run_->on_done = std::move(on_done);
  run_->start();
}

void ShardedAllReduce::abandon() {
  if (!run_) return;
  run_->is_over = true;
  run_->is_complete = false;
  run_->on_done = nullptr;
}

void ShardedAllReduce::commit() {
  if (!run_ || !run_->is_complete || !run_->sum_is_finite) return;
  run_->is_complete = false;
  feedback_.commit();
}

void ShardedAllReduce::fail(const Error& why) {
  if (run_) run_->end(std::unexpected(why));
}

void ShardedAllReduce::peer_lost(int rank, const Error& why) {
  const auto& members = layout_.options().members;
  if (std::ranges::any_of(members, [&](const auto& member) { return member.rank == rank; })) {
    fail(within(fmt::format("the gradient exchange cannot end: rank {} is lost", rank), why)
             .error());
  }
}

}  // namespace longhaul
