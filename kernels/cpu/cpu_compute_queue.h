// ComputeQueue on this machine's CPU: one worker thread that runs everything in the order it was
// submitted, over all streams. That is in order for each stream, an event has always happened
// before what waits for it, and a run is the same every time.
#pragma once

#include <memory>

#include "kernels/compute_queue.h"

namespace longhaul {

/// `post` must be safe to call from the worker thread until the queue is gone.
std::unique_ptr<ComputeQueue> make_cpu_compute_queue(ComputeQueue::Post post);

}  // namespace longhaul
