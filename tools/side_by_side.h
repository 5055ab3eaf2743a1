// Work of several independent parts on a few threads.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/result.h"

namespace longhaul {

/// Calls part(0), part(1), ... part(count - 1), up to `threads` (at least 1) at a time, and returns
/// when all are done. After an error no more parts begin; the first one is the answer.
inline Result<void> side_by_side(std::size_t count, int threads,
                                 const std::function<Result<void>(std::size_t)>& part) {
  std::mutex mutex;  // of the two below
  std::size_t next = 0;
  std::optional<Error> error;
  const auto work = [&] {
    for (;;) {
      std::unique_lock lock(mutex);
      if (error || next == count) return;
      const std::size_t mine = next++;
      lock.unlock();
      Result<void> done = part(mine);
      lock.lock();
      if (!done && !error) error = std::move(done).error();
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }
  if (error) return std::unexpected(*error);
  return {};
}

}  // namespace longhaul
