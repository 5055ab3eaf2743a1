#include "planner/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace longhaul {

void parallel_for(int count, int threads, const std::function<void(int)>& work) {
  std::atomic<int> next = 0;
  const auto take_pieces = [&] {
    // Relaxed is enough: the counter only hands out indices, and join() publishes the results.
    for (int piece = next.fetch_add(1, std::memory_order_relaxed); piece < count;
         piece = next.fetch_add(1, std::memory_order_relaxed)) {
      work(piece);
    }
  };
  std::vector<std::jthread> helpers;
  const int helper_count = std::min(threads, count) - 1;
  for (int i = 0; i < helper_count; ++i) helpers.emplace_back(take_pieces);
  take_pieces();
}

}  // namespace longhaul
