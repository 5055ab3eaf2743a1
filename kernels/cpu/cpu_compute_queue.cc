#include "kernels/cpu/cpu_compute_queue.h"

#include <utility>

#include "kernels/cpu/thread_compute_queue.h"

namespace longhaul {
namespace {

class CpuComputeQueue final : public ThreadComputeQueue {
 public:
  explicit CpuComputeQueue(Post post) : ThreadComputeQueue(std::move(post)) {}
  ~CpuComputeQueue() override { stop(); }

 private:
  bool perform(StreamId, std::move_only_function<Result<void>()>& run, const Stamp&,
               Result<void>& status) override {
    if (status) status = run();
    return true;
  }
};

}  // namespace

std::unique_ptr<ComputeQueue> make_cpu_compute_queue(ComputeQueue::Post post) {
  return std::make_unique<CpuComputeQueue>(std::move(post));
}

}  // namespace longhaul
