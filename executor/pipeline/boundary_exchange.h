// The messages of one step across its boundaries: encoded, sent, received and decoded, in pieces at
// once and beside the stage's own work.
//
//   outgoing   encode() when the tensor is computed, send() when the message's turn has come; the
//              two come in any order. Pieces leave as they are final.
//   incoming   receive(); pieces are decoded as they arrive. What a reader then misses is asked
//              for, and repaired with the answers, before the message is ready.
//
// A plain message (BoundaryFormat::is_plain) is sent and received whole; who computes with the
// tensor makes and reads it.
//
// Encoding and decoding are works on the codec stream, one at a time a message, each of a piece, so
// that messages take turns. A work waits for nothing, so everything that is begun here ends, unless
// the mesh or the peer keep something back.
//
// Belongs to the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "executor/pipeline/boundary_format.h"
#include "executor/pipeline/stage_storage.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"
#include "kernels/compute_queue.h"

namespace longhaul {

/// In the tag of all codec work (ComputeWork::tag): devices' tables price it at nothing.
inline constexpr std::uint64_t kCodecTag = std::uint64_t{1} << 34;

/// Asks the sender of a message for one of its sequences again. Answers once, on the loop's thread.
using ResendHook =
    std::function<void(const BoundaryTensor& which, int sequence,
                       std::move_only_function<void(Result<std::vector<std::byte>>)> done)>;

/// One tensor's way, with the state that the exchange keeps of it.
struct BoundaryMessage {
  StageStorage::Message buffers;  // null: not taken, or given back
  BoundaryTensor which;
  bool is_incoming = false;
  int rank = 0;  // of the peer in the mesh
  std::uint64_t operation = 0;
  std::uint32_t segment = 0;
  std::size_t wire_bytes = 0;  // room; of a plain message its size
  /// Incoming: the tensor can be used.
  bool is_ready = false;

 private:
  friend class BoundaryExchange;
  Task done;  // of send or receive
  // Outgoing: what the mesh may have.
  std::optional<std::size_t> size;
  std::size_t final_bytes = 0;
  bool is_in_turn = false;
  bool is_with_mesh = false;
  // Incoming: what the mesh has told, and the reader.
  std::size_t arrived = 0;
  bool is_last = false;
  bool is_begun = false;
  bool is_decoding = false;
  std::size_t decoded = 0;
  std::size_t repairs = 0;
};

class BoundaryExchange {
 public:
  struct Context {
    ComputeQueue* queue = nullptr;
    StreamId stream{};
    Mesh* mesh = nullptr;
    ResendHook resend;  // may be empty where no reader misses anything
    /// Of the micro-batches, one after another, in a step that trains.
    std::vector<std::int64_t> samples;
    std::size_t sequences = 0;  // of a micro-batch; 0 without samples
    /// A message cannot be encoded or decoded.
    std::function<void(const BoundaryMessage& message, const Error& error)> failed;
    /// After cancel(): the last work in the queue is over.
    std::function<void()> idle;
  };

  explicit BoundaryExchange(Context context);
  ~BoundaryExchange();
  BoundaryExchange(const BoundaryExchange&) = delete;
  BoundaryExchange& operator=(const BoundaryExchange&) = delete;

  // Messages stay where they are until they are done, or the exchange is cancelled and idle.

  /// Of an outgoing message that is not plain, once: its tensor is computed.
  void encode(BoundaryMessage& message);
  /// Once. `sent` comes when its buffers are free.
  void send(BoundaryMessage& message, Task sent);
  /// Once. `received` comes when it is_ready.
  void receive(BoundaryMessage& message, Task received);

  /// Nothing is called any more but `idle`; works in the queue that have not begun do nothing.
  void cancel();
  bool is_idle() const { return works_ == 0; }

  /// Of a micro-batch; empty where there are none.
  std::span<const std::int64_t> samples(int micro_batch) const;

 private:
  /// What works need when the exchange may be gone.
  struct Shared;

  void run(BoundaryMessage& message, std::move_only_function<Result<void>()> work, Task then);
  void encoded(BoundaryMessage& message);
  void give_to_mesh(BoundaryMessage& message);
  void decode(BoundaryMessage& message);
  void decoded(BoundaryMessage& message);
  void repair(BoundaryMessage& message, int sequence, Result<std::vector<std::byte>> answer);
  void finish_receive(BoundaryMessage& message);

  const Context context_;
  int works_ = 0;  // in the queue
  bool is_cancelled_ = false;
  std::shared_ptr<Shared> shared_;  // owned here and by the works
  /// Owned here alone; callbacks hold weak references, to do nothing once the exchange is gone.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace longhaul
