// Buffers in host memory, for compute queues whose device is the CPU.
#pragma once

#include "kernels/compute_queue.h"

namespace longhaul {

/// Zeroed, aligned to 64 bytes.
Result<ComputeBuffer> allocate_host_buffer(std::size_t bytes);

/// The ids that a queue gave out.
class ComputeIds {
 public:
  StreamId create_stream() { return StreamId{streams_++}; }
  EventId record(StreamId stream) {
    check(stream);
    return EventId{events_++};
  }
  void check(StreamId stream) const {
    LH_CHECK(static_cast<std::uint32_t>(stream) < streams_, "a stream comes from this queue");
  }
  void check(EventId event) const {
    LH_CHECK(static_cast<std::uint64_t>(event) < events_, "an event is recorded before a wait");
  }

 private:
  std::uint32_t streams_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace longhaul
