#include "kernels/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "tests/kernels/op_cases.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// So many threads while it lives.
struct Threads {
  explicit Threads(int count) { set_operation_threads(count); }
  ~Threads() { set_operation_threads(1); }
};

TEST(Parallel, parts_cover_everything_once_and_begin_at_multiples_of_the_grain) {
  const Threads threads(3);
  for (const std::ptrdiff_t count : {0, 1, 9, 10, 11, 29, 100, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
    std::atomic<int> parts = 0;
    std::atomic<int> odd = 0;
    in_parts(count, 10, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
      ++parts;
      odd += begin % 10 != 0;
      for (std::ptrdiff_t i = begin; i < end; ++i) ++calls[static_cast<std::size_t>(i)];
    });
    for (const auto& each : calls) EXPECT_EQ(each, 1) << count;
    EXPECT_EQ(odd, 0);
    // No more parts than grains or threads.
    EXPECT_EQ(parts, count <= 10 ? 1 : count <= 20 ? 2 : 3) << count;
  }
}

TEST(Parallel, calls_from_a_part_and_from_other_threads_are_done_where_they_are_made) {
  const Threads threads(4);
  std::atomic<int> done = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&done] {
      for (int i = 0; i < 200; ++i) {
        in_parts(8, 1, [&done](std::ptrdiff_t begin, std::ptrdiff_t end) {
          in_parts(end - begin, 1, [&done](std::ptrdiff_t inner_begin, std::ptrdiff_t inner_end) {
            done += static_cast<int>(inner_end - inner_begin);
          });
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 4 * 200 * 8);
}

/// Output, kept values and gradients of an operation.
Tensors<float> everything(const OpCase& op) {
  const Tensors<float> inputs = inputs_of<float>(op);
  Tensors<float> all = op.fast.forward(inputs);
  for (auto& d : op.fast.backward(inputs, cotangent_of<float>(op, all[0].size()))) {
    all.push_back(d);
  }
  return all;
}

TEST(Parallel, every_operation_gives_the_same_bits_with_any_number_of_threads) {
  // A hundred times the rows, so that there is enough to be cut.
  for (const OpCase& op : op_cases(true, 100)) {
    SCOPED_TRACE(op.name);
    const Tensors<float> one = everything(op);
    for (const int count : {2, 3}) {
      const Threads threads(count);
      const Tensors<float> several = everything(op);
      ASSERT_EQ(several.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(same_bits(several[i], one[i])) << "tensor " << i << ", " << count << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
