// The exchange of gradients in a group of replicas: every member ends with the same sum, to the
// last bit.
//
// The gradient is cut into one shard a member, and shards into buckets of at most 4 MiB
// (exchange_layout.h). For member i of D, with S bytes and shards s_j:
//
//   step      what                                              bytes that member i sends
//   scatter   its part of each shard j goes to j, bucket by     S - s_i
//             bucket, beginning with the next member
//   fold      it adds the parts of a bucket of its own shard    -
//             in member order, itself at its place
//   publish   the bucket's sum goes to all others, again from   (D - 1) s_i
//             the next member on, and each puts it in its place
//
// In all S - s_i + (D - 1) s_i, that is 2 S (D - 1) / D each for even shards, without a barrier: a
// bucket is published as soon as its parts have come, while later ones are still encoded and sent.
// A bucket's part is one message of the mesh (segment 2 x bucket), its sum another (one more);
// empty shards travel not at all.
//
// The sum is ((g_0 + g_1) + g_2) ... in fp32, whoever owns the shard and however messages arrive.
// Between members of different sites buckets of coded tensors are tensor frames (kernels/codec) of
// the chosen codec, rounded to nearest; all else is plain little-endian fp32. An owner with a peer
// in another site encodes its sum once and everybody, itself and its own site included, takes the
// decoded values. Codecs of fewer than 16 bits have error feedback on both hops
// (error_feedback.h), which nothing turns off: without it 2 and 3 bits do not train.
//
// What a lossy codec cannot hold (a NaN, an infinity, a number that rounds to one) travels as a
// frame of zero bytes and makes its bucket NaN at every member: the step is not finite and will be
// skipped.
//
// Sums are written into `gradient` as they come: an exchange that failed or was abandoned leaves it
// half summed, and the step has to be computed again. (Nobody could exchange the same gradient
// again: of those whom a failure hits together some had ended, and have the sum.) The exchange is
// then repeated in a new term of the mesh, because messages have names; it begins with the
// residuals of the step before. Memory: the messages of all parts, (D - 1) s_i + S - s_i encoded,
// s_i for the sum, two buckets, and feedback_bytes.
//
// One object serves all steps: its buffers are made once, and again only while the mesh still uses
// those of an exchange that was abandoned. Belongs to the thread of the mesh's loop, and encodes,
// adds and decodes in its tasks, a bucket at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/result.h"
#include "executor/collective/error_feedback.h"
#include "executor/collective/exchange_layout.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"

namespace longhaul {

class ShardedAllReduce {
 public:
  using OnDone = std::move_only_function<void(Result<void>)>;

  /// Mesh and loop must outlive it. Errors: those of ExchangeLayout.
  static Result<std::unique_ptr<ShardedAllReduce>> create(Mesh& mesh, EventLoop& loop,
                                                          ExchangeOptions options);
  /// Abandons what is going on.
  ~ShardedAllReduce();
  ShardedAllReduce(const ShardedAllReduce&) = delete;
  ShardedAllReduce& operator=(const ShardedAllReduce&) = delete;

  /// Begins this rank's part of an exchange; none is going on. `operation`: its name, used once a
  /// term (see encode_operation). `gradient` has the tensors one after another; it is being
  /// overwritten until `on_done` is called, and must stay valid until then or until abandon().
  void start(std::uint64_t operation, std::span<float> gradient, OnDone on_done);
  /// `on_done` will not be called and `gradient` not be touched any more. The mesh keeps the
  /// exchange's own buffers until its messages are through or forgotten.
  void abandon();

  /// The last exchange's step is applied: its residuals become those of the next one. Nothing
  /// happens where the exchange did not end well or its sum is not finite.
  void commit();
  /// Of each element that this member encodes, by shard and, inside, in the order of its gathered
  /// tensors. What a checkpoint would hold.
  std::span<const float> residuals() const { return feedback_.left(); }

  /// Call from the mesh's on_lost. The loss of a member fails an exchange that is not done.
  void peer_lost(int rank, const Error& why);
  /// Ends it with this error.
  void fail(const Error& why);

  const ExchangeLayout& layout() const { return layout_; }
  /// How often buffers were made, for tests.
  int buffers_made() const { return buffers_made_; }

 private:
  struct Run;
  ShardedAllReduce(Mesh& mesh, EventLoop& loop, ExchangeLayout layout);

  Mesh& mesh_;
  EventLoop& loop_;
  const ExchangeLayout layout_;
  ErrorFeedback feedback_;
  std::shared_ptr<Run> run_;  // owners: this and the messages that use its buffers
  int buffers_made_ = 0;
};

}  // namespace longhaul
