// The exchange of gradients in a group of replicas: every member ends with the same sum, to the
// last bit.
//
// The gradient is cut into one shard a member. For member i of D, with S bytes and shards s_j:
//
//   step      what                                              bytes that member i sends
//   scatter   its part of each shard j goes to j, beginning     S - s_i
//             with the next member
//   fold      it adds the parts of its own shard in member      -
//             order, itself at its place
//   publish   the sum goes to all others, again from the next   (D - 1) s_i
//             member on, and each puts it in its place
//
// In all S - s_i + (D - 1) s_i, that is 2 S (D - 1) / D each for even shards, over two latencies
// and without a barrier: a shard is published as soon as its parts have come. A part is one message
// of the mesh (segment 0), a published sum another (segment 1); empty shards travel not at all.
//
// The sum is ((g_0 + g_1) + g_2) ... in fp32, whoever owns the shard and however messages arrive.
// Between members of different sites messages are tensor frames (kernels/codec) of the chosen
// codec, else plain little-endian fp32. An owner with a peer in another site encodes its sum once
// and everybody, itself and its own site included, takes the decoded values. What a lossy codec
// cannot hold (a NaN, an infinity, a number that rounds to one) travels as a frame of zero bytes
// and makes its shard NaN at every member: the step is not finite and will be skipped.
//
// The exchange works on a copy. `gradient` is read in start() and written once, whole, when all is
// there: an exchange that failed or was abandoned leaves the local gradient as it was, and it can
// be exchanged again (in a new term of the mesh, because messages have names) without redoing the
// step. Memory: S for the copy, s_i for the sum, (D - 1) s_i for the parts, and frames where there
// is a codec.
//
// Belongs to the thread of the mesh's loop, and adds and encodes in its tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"
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
  std::uint64_t operation = 0;          // see encode_operation; used once a term
  std::vector<ExchangeMember> members;  // in the order of the sum, the same everywhere
  std::vector<std::size_t> tensor_lengths;
  TensorCodec codec = TensorCodec::kRaw;  // between sites: RAW is exact
};

class ShardedAllReduce {
 public:
  using OnDone = std::move_only_function<void(Result<void>)>;

  /// Begins this rank's part. `gradient` (the tensors one after another) is overwritten just before
  /// `on_done` is called without error, and must stay valid until then or until this is destroyed;
  /// mesh and loop until then, too. Error (kInvalid): options that make no sense.
  static Result<std::unique_ptr<ShardedAllReduce>> start(Mesh& mesh, EventLoop& loop,
                                                         ExchangeOptions options,
                                                         std::span<float> gradient, OnDone on_done);
  /// Abandons the exchange: `on_done` will not be called and `gradient` not be touched. The mesh
  /// keeps the exchange's own buffers until its messages are through or forgotten.
  ~ShardedAllReduce();

  /// Call from the mesh's on_lost. The loss of a member fails an exchange that is not done.
  void peer_lost(int rank, const Error& why);
  /// Ends it with this error.
  void fail(const Error& why);

  struct State;
  explicit ShardedAllReduce(std::shared_ptr<State> state);  // for start

 private:
  std::shared_ptr<State> state_;  // owners: this and the messages that use its buffers
};

}  // namespace longhaul
