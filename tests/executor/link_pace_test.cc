#include "executor/run/link_pace.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace longhaul {
namespace {

/// 32, 16, 8, 4 and 2 bits.
LinkPace pace_at(std::size_t rung) {
  return LinkPace({32, 16, 8, 4, 2}, rung);
}

struct Row {
  const char* what;
  std::size_t begin;
  std::vector<double> loads;  // of the steps; compute takes 2 s
  std::vector<std::size_t> rungs;
};

std::vector<double> times(int n, double load) {
  return std::vector<double>(static_cast<std::size_t>(n), load);
}
std::vector<std::size_t> rungs(int n, std::size_t rung) {
  return std::vector<std::size_t>(static_cast<std::size_t>(n), rung);
}
template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(LinkPace, decides_by_the_loads_of_the_last_steps) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Row> rows = {
      {"a link that just keeps up stays", 2, times(50, 1.1), rungs(50, 2)},
      {"two slow steps are an accident", 2, {1.2, 1.2, 1.0, 1.2, 1.2, 1.0}, rungs(6, 2)},
      // Half the bits bring 1.5 to 0.75.
      {"three are a slow link", 2, times(3, 1.5), rungs(2, 2) + rungs(1, 3)},
      // 3 would be 1.5 at 4 bits and 0.75 at 2.
      {"a very slow one takes two rungs at once", 2, times(3, 3.0), rungs(2, 2) + rungs(1, 4)},
      // The least of the three counts, 1.6: 0.8 at 4 bits.
      {"one outage among them is no measure", 2, {1.6, 40, 1.7}, rungs(2, 2) + rungs(1, 3)},
      {"the floor is the end", 3, times(3, 50.0) + times(20, 9.0), rungs(2, 3) + rungs(21, 4)},
      {"on the floor nothing is too slow", 4, times(30, 50.0), rungs(30, 4)},
      // 0.35 would be 0.7 with twice the bits: room.
      {"ten steps with room go one rung finer", 2, times(10, 0.35), rungs(9, 2) + rungs(1, 1)},
      {"one step without room begins anew", 2, times(9, 0.35) + times(1, 0.36) + times(9, 0.35),
       rungs(19, 2)},
      {"finer and finer while there is room, each after a step to settle", 3,
       times(10, 0.1) + times(11, 0.2), rungs(9, 3) + rungs(11, 2) + rungs(1, 1)},
      {"the finest is the end", 0, times(100, 0.01), rungs(100, 0)},
      {"steps that say nothing count for nothing", 2,
       times(2, 1.5) + std::vector<double>{0, inf, -1} + times(1, 1.5), rungs(5, 2) + rungs(1, 3)},
      {"what settles is not counted", 2, times(3, 1.5) + times(3, 1.5), rungs(2, 2) + rungs(4, 3)},
      {"and what is slow afterwards is", 2, times(3, 1.5) + times(4, 1.5),
       rungs(2, 2) + rungs(4, 3) + rungs(1, 4)},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    ASSERT_EQ(row.loads.size(), row.rungs.size());
    LinkPace pace = pace_at(row.begin);
    std::vector<std::size_t> got;
    for (const double load : row.loads) got.push_back(pace.next({2 * load, 2}));
    EXPECT_EQ(got, row.rungs);
  }
}

TEST(LinkPace, a_step_without_compute_or_sends_says_nothing) {
  LinkPace pace = pace_at(2);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pace.next({0, 1}), 2u);
    EXPECT_EQ(pace.next({1, 0}), 2u);
    EXPECT_EQ(pace.next({0, 0}), 2u);
    EXPECT_EQ(pace.next({std::numeric_limits<double>::quiet_NaN(), 1}), 2u);
  }
}

// A link whose load at 8 bits is L has 2 L at 16. Whatever L is, the ladder comes to rest.
TEST(LinkPace, a_steady_link_of_any_speed_comes_to_rest) {
  const std::vector<double> bits = {32, 16, 8, 4, 2};
  for (double speed = 0.02; speed < 50; speed *= 1.07) {
    LinkPace pace = pace_at(2);
    int changes = 0;
    std::size_t before = 2;
    for (int step = 0; step < 500; ++step) {
      const std::size_t now = pace.next({bits[before] / 8 * speed, 1});
      changes += now != before ? 1 : 0;
      before = now;
    }
    EXPECT_LE(changes, 2) << speed;
    const double load = bits[before] / 8 * speed;
    EXPECT_TRUE(load <= LinkPace::kSlow || before == 4) << speed;
    EXPECT_TRUE(before == 0 || 2 * load > LinkPace::kRoomy) << speed;
  }
}

// Room while it is on 4 bits, too slow as soon as it is on 8: the tries become rarer. 10 steps of
// room, one that settles and three that are slow: 10 + 4, then 1 to settle, 20 + 4, 40 + 4, ...
TEST(LinkPace, a_link_that_goes_to_and_fro_is_tried_ever_more_rarely) {
  LinkPace pace = pace_at(3);
  std::vector<int> tries;
  std::size_t before = 3;
  for (int step = 0; step < 2000; ++step) {
    const std::size_t now = pace.next({before == 3 ? 0.3 : 1.5, 1});
    if (now < before) tries.push_back(step);
    before = now;
  }
  ASSERT_GE(tries.size(), 5u);
  EXPECT_EQ(tries[0], 9);
  EXPECT_EQ(tries[1] - tries[0], 4 + 1 + 20);
  EXPECT_EQ(tries[2] - tries[1], 4 + 1 + 40);
  EXPECT_EQ(tries[3] - tries[2], 4 + 1 + 80);
  EXPECT_LE(tries.size(), 8u);
}

}  // namespace
}  // namespace longhaul
