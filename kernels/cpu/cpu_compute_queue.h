// ComputeQueue on this machine's CPU: a worker thread for each stream, which runs what was
// submitted to it in its order; streams wait for one another at events only.
#pragma once

#include <memory>

#include "kernels/compute_queue.h"

namespace longhaul {

/// `post` must be safe to call from the streams' threads until the queue is gone.
std::unique_ptr<ComputeQueue> make_cpu_compute_queue(ComputeQueue::Post post);

}  // namespace longhaul
