#include "core/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/rng.h"

namespace longhaul {
namespace {

SimTime at(double time) {
  return SimTime::from(seconds(time));
}

TEST(EventQueue, gives_events_by_time) {
  EventQueue<char> queue;
  queue.push(at(3), 'c');
  queue.push(at(1), 'a');
  queue.push(at(2), 'b');
  EXPECT_EQ(queue.next_time(), at(1));
  EXPECT_EQ(queue.pop(), 'a');
  EXPECT_EQ(queue.next_time(), at(2));
  EXPECT_EQ(queue.pop(), 'b');
  EXPECT_EQ(queue.pop(), 'c');
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, events_of_one_time_keep_the_order_in_which_they_came) {
  EventQueue<int> queue;
  for (int i = 0; i < 100; ++i) queue.push(at(1), i);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(queue.pop(), i);
  for (int i = 100; i < 150; ++i) queue.push(at(1), i);  // later ones still come behind
  for (int i = 50; i < 150; ++i) EXPECT_EQ(queue.pop(), i);
}

TEST(EventQueue, an_event_may_be_put_in_before_those_that_wait) {
  EventQueue<char> queue;
  queue.push(at(5), 'z');
  queue.push(at(1), 'a');
  EXPECT_EQ(queue.pop(), 'a');
  queue.push(at(2), 'b');
  EXPECT_EQ(queue.pop(), 'b');
  EXPECT_EQ(queue.pop(), 'z');
}

TEST(EventQueue, nothing_is_next_when_it_is_empty) {
  EventQueue<int> queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.next_time(), SimTime::never());
}

TEST(EventQueueDeathTest, pop_needs_an_event) {
  EventQueue<int> queue;
  EXPECT_DEATH(queue.pop(), "pop needs an event");
}

TEST(EventQueue, holds_what_can_only_be_moved) {
  EventQueue<std::unique_ptr<int>> queue;
  queue.push(at(2), std::make_unique<int>(2));
  queue.push(at(1), std::make_unique<int>(1));
  EXPECT_EQ(*queue.pop(), 1);
  EXPECT_EQ(*queue.pop(), 2);
}

TEST(EventQueue, agrees_with_a_stable_sort) {
  // Few distinct times, so that most events share theirs with others.
  Rng rng("event queue", 1);
  EventQueue<std::pair<std::uint64_t, int>> queue;
  std::vector<std::pair<std::uint64_t, int>> expected;
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t time = rng.below(20);
    queue.push(at(static_cast<double>(time)), {time, i});
    expected.emplace_back(time, i);
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& event : expected) EXPECT_EQ(queue.pop(), event);
}

}  // namespace
}  // namespace longhaul
