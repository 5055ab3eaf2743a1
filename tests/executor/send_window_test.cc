// What may leave for a peer that has not asked for it.

#include "executor/transport/send_window.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

using Names = std::vector<MessageName>;

MessageName message(std::uint64_t operation, std::uint32_t term = 1) {
  return {term, operation, 0};
}

TEST(SendWindow, fills_up_and_is_freed_by_credits_in_order) {
  SendWindow window(100);
  EXPECT_TRUE(window.may_leave(message(1), 60));
  EXPECT_TRUE(window.may_leave(message(2), 40));
  EXPECT_FALSE(window.may_leave(message(3), 50));
  EXPECT_FALSE(window.may_leave(message(4), 10));
  EXPECT_EQ(window.used(), 100u);
  // 40 free: not enough for message 3, and message 4 does not overtake it.
  EXPECT_EQ(window.credit(message(2)), Names{});
  EXPECT_EQ(window.credit(message(1)), (Names{message(3), message(4)}));
  EXPECT_EQ(window.used(), 60u);
}

TEST(SendWindow, what_is_asked_for_needs_no_room) {
  SendWindow window(100);
  EXPECT_TRUE(window.may_leave(message(1), 100));
  EXPECT_FALSE(window.may_leave(message(2), 1000));
  EXPECT_EQ(window.credit(message(2)), Names{message(2)});
  EXPECT_EQ(window.credit(message(3)), Names{});
  EXPECT_TRUE(window.may_leave(message(3), 1000));
  EXPECT_EQ(window.used(), 100u);
  EXPECT_EQ(window.waiting(), 0u);
}

TEST(SendWindow, a_new_term_forgets_the_old_ones_messages) {
  SendWindow window(100);
  EXPECT_TRUE(window.may_leave(message(1), 80));
  EXPECT_FALSE(window.may_leave(message(2), 80));
  EXPECT_FALSE(window.may_leave(message(3, 2), 90));
  EXPECT_EQ(window.set_term(2), Names{message(3, 2)});
  EXPECT_EQ(window.used(), 90u);
  EXPECT_EQ(window.credit(message(1)), Names{});  // late, and of no use
  EXPECT_EQ(window.used(), 90u);
}

TEST(SendWindow, credits_for_nothing_are_counted) {
  SendWindow window(100);
  for (std::uint64_t i = 0; i < SendWindow::kCreditsMax; ++i) {
    EXPECT_EQ(window.credit(message(i)), Names{});
  }
  EXPECT_FALSE(window.has_too_many_credits());
  EXPECT_EQ(window.credit(message(SendWindow::kCreditsMax)), Names{});
  EXPECT_TRUE(window.has_too_many_credits());
}

}  // namespace
}  // namespace longhaul
