#include "tools/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

namespace longhaul {
namespace {

TEST(SideBySide, does_every_part_once_whatever_the_threads) {
  for (const int threads : {1, 3, 20}) {
    std::vector<std::atomic<int>> done(7);
    ASSERT_TRUE(side_by_side(done.size(), threads, [&](std::size_t i) -> Result<void> {
      ++done[i];
      return {};
    }));
    for (const auto& count : done) EXPECT_EQ(count, 1);
  }
}

TEST(SideBySide, nothing_to_do_is_done) {
  EXPECT_TRUE(side_by_side(0, 2, [](std::size_t) -> Result<void> { return failed("a part"); }));
}

TEST(SideBySide, first_error_is_the_answer_and_no_part_begins_after_it) {
  std::string begun;
  const Result<void> done = side_by_side(5, 1, [&](std::size_t i) -> Result<void> {
    begun += std::to_string(i);
    if (i == 2) return failed("part 2");
    return {};
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "part 2");
  EXPECT_EQ(begun, "012");
}

}  // namespace
}  // namespace longhaul
