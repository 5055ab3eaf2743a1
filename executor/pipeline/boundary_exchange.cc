#include "executor/pipeline/boundary_exchange.h"

#include <fmt/core.h>

#include <atomic>
#include <tuple>
#include <utility>

namespace longhaul {

struct BoundaryExchange::Shared {
  std::atomic<bool> is_cancelled = false;
  std::vector<std::int64_t> samples;  // what BoundaryTensor::samples point into
};

BoundaryExchange::BoundaryExchange(Context context)
    : context_(std::move(context)), shared_(std::make_shared<Shared>()) {
  shared_->samples = std::move(context_.samples);
}

BoundaryExchange::~BoundaryExchange() {
  shared_->is_cancelled = true;
}

std::span<const std::int64_t> BoundaryExchange::samples(int micro_batch) const {
  const std::size_t first = static_cast<std::size_t>(micro_batch) * context_.sequences;
  return std::span<const std::int64_t>(shared_->samples).subspan(first, context_.sequences);
}

void BoundaryExchange::cancel() {
  is_cancelled_ = true;
  shared_->is_cancelled = true;
}

/// A work on the codec stream, and what comes after it. It owns the buffers.
void BoundaryExchange::run(BoundaryMessage& message, std::move_only_function<Result<void>()> work,
                           Task then) {
  ++works_;
  context_.queue->submit(context_.stream, {.tag = kCodecTag,
                                           .run = [shared = shared_, buffers = message.buffers,
                                                   w = std::move(work)]() mutable -> Result<void> {
                                             if (shared->is_cancelled) return {};
                                             // The queue's own status is the device's: a message's
                                             // fault stays the message's.
                                             buffers->status = w();
                                             return {};
                                           }});
  context_.queue->notify(context_.stream,
                         [this, alive = std::weak_ptr(alive_), &message, buffers = message.buffers,
                          t = std::move(then)](const Result<void>& device) mutable {
                           if (alive.expired()) return;
                           --works_;
                           if (is_cancelled_) {
                             if (is_idle()) context_.idle();
                             return;
                           }
                           if (!device) return context_.failed(message, device.error());
                           if (!buffers->status)
                             return context_.failed(message, buffers->status.error());
                           t();
                         });
}

// ---- outgoing

void BoundaryExchange::encode(BoundaryMessage& message) {
  StageMessage& buffers = *message.buffers;
  run(
      message,
      [&buffers, which = message.which, room = message.wire_bytes]() -> Result<void> {
        LH_ASSIGN(buffers.size, buffers.writer->begin(which, buffers.tensor,
                                                      buffers.wire.as<std::byte>().first(room)));
        LH_CHECK(buffers.size <= room, "a format knows how long its messages can be");
        LH_ASSIGN(buffers.final_bytes, buffers.writer->advance());
        return {};
      },
      [this, &message] { encoded(message); });
}

/// A piece more is.
void BoundaryExchange::encoded(BoundaryMessage& message) {
  StageMessage& buffers = *message.buffers;
  message.size = buffers.size;
  message.final_bytes = buffers.final_bytes;
  if (message.final_bytes < *message.size) {
    run(
        message,
        [&buffers]() -> Result<void> {
          LH_ASSIGN(buffers.final_bytes, buffers.writer->advance());
          return {};
        },
        [this, &message] { encoded(message); });
  }
  give_to_mesh(message);
}

void BoundaryExchange::send(BoundaryMessage& message, Task sent) {
  message.done = std::move(sent);
  message.is_in_turn = true;
  if (message.buffers->kind == StageMessage::Kind::kPlain) {
    message.size = message.final_bytes = message.wire_bytes;
  }
  give_to_mesh(message);
}

void BoundaryExchange::give_to_mesh(BoundaryMessage& message) {
  if (!message.is_in_turn || !message.size) return;
  const auto [rank, operation, segment] =
      std::tuple(message.rank, message.operation, message.segment);
  if (!message.is_with_mesh) {
    message.is_with_mesh = true;
    const auto payload = message.buffers->wire.as<std::byte>().first(*message.size);
    Task sent = [this, alive = std::weak_ptr(alive_), &message, kept = message.buffers] {
      if (!alive.expired() && !is_cancelled_) std::exchange(message.done, nullptr)();
    };
    if (message.buffers->kind == StageMessage::Kind::kPlain) {
      return context_.mesh->send(rank, operation, segment, payload, std::move(sent));
    }
    context_.mesh->send_growing(rank, operation, segment, payload, std::move(sent));
  }
  context_.mesh->grow(rank, operation, segment, message.final_bytes);
}

// ---- incoming

void BoundaryExchange::receive(BoundaryMessage& message, Task received) {
  message.done = std::move(received);
  const auto room = message.buffers->wire.as<std::byte>().first(message.wire_bytes);
  if (message.buffers->kind == StageMessage::Kind::kPlain) {
    return context_.mesh->receive(
        message.rank, message.operation, message.segment, room,
        [this, alive = std::weak_ptr(alive_), &message, kept = message.buffers] {
          if (!alive.expired() && !is_cancelled_) finish_receive(message);
        });
  }
  context_.mesh->receive_growing(message.rank, message.operation, message.segment, room,
                                 [this, alive = std::weak_ptr(alive_), &message,
                                  kept = message.buffers](std::size_t bytes, bool is_last) {
                                   if (alive.expired() || is_cancelled_) return;
                                   message.arrived = bytes;
                                   message.is_last = is_last;
                                   decode(message);
                                 });
}

/// Hands the reader what has arrived since; more may come meanwhile.
void BoundaryExchange::decode(BoundaryMessage& message) {
  if (message.is_decoding) return;
  message.is_decoding = true;
  const bool is_first = !std::exchange(message.is_begun, true);
  const bool is_last = message.is_last;
  message.decoded = message.arrived;
  StageMessage& buffers = *message.buffers;
  run(
      message,
      [&buffers, is_first, is_last, which = message.which, room = message.wire_bytes,
       arrived = message.arrived]() -> Result<void> {
        if (is_first) {
          const std::span<const std::byte> wire = buffers.wire.as<std::byte>().first(room);
          LH_TRY(buffers.reader->begin(which, wire, buffers.tensor));
        }
        LH_TRY(buffers.reader->advance(arrived, is_last));
        buffers.is_whole = buffers.reader->done();
        const std::span<const int> missing = buffers.reader->missing();
        buffers.missing.assign(missing.begin(), missing.end());
        return {};
      },
      [this, &message, is_last] {
        message.is_decoding = false;
        if (is_last) return decoded(message);
        if (message.is_last || message.arrived > message.decoded) decode(message);
      });
}

/// All that was sent is.
void BoundaryExchange::decoded(BoundaryMessage& message) {
  if (message.buffers->is_whole) return finish_receive(message);
  const std::vector<int> missing = message.buffers->missing;
  if (missing.empty() || !context_.resend) {
    const auto what = missing.empty() ? "it ends before its tensor is whole"
                                      : "it lacks sequences, and nobody can be asked for them";
    return context_.failed(message, failed(what).error());
  }
  message.repairs = missing.size();
  for (const int sequence : missing) {
    context_.resend(message.which, sequence,
                    [this, alive = std::weak_ptr(alive_), &message,
                     sequence](Result<std::vector<std::byte>> answer) {
                      if (alive.expired() || is_cancelled_) return;
                      repair(message, sequence, std::move(answer));
                    });
    if (is_cancelled_) return;
  }
}

void BoundaryExchange::repair(BoundaryMessage& message, int sequence,
                              Result<std::vector<std::byte>> answer) {
  if (!answer) {
    return context_.failed(
        message, within(fmt::format("sequence {} again", sequence), answer.error()).error());
  }
  StageMessage& buffers = *message.buffers;
  run(
      message,
      [&buffers, sequence, frame = *std::move(answer)]() -> Result<void> {
        LH_TRY(buffers.reader->repair(sequence, frame));
        buffers.is_whole = buffers.reader->done();
        return {};
      },
      [this, &message] {
        if (--message.repairs > 0) return;
        if (message.buffers->is_whole) return finish_receive(message);
        context_.failed(message, failed("it is not whole, although all was sent again").error());
      });
}

void BoundaryExchange::finish_receive(BoundaryMessage& message) {
  message.is_ready = true;
  std::exchange(message.done, nullptr)();
}

}  // namespace longhaul
