#include "netsim/conditions.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::unit_topology;

const double kNever = std::numeric_limits<double>::infinity();

TEST(Window, is_open_from_its_begin_until_its_end) {
  const Window window{seconds(2), seconds(5)};
  EXPECT_FALSE(window.contains(seconds(1.9)));
  EXPECT_TRUE(window.contains(seconds(2)));
  EXPECT_FALSE(window.contains(seconds(5)));
  EXPECT_EQ(window.next_edge(seconds(0)).value(), 2);
  EXPECT_EQ(window.next_edge(seconds(2)).value(), 5);
  EXPECT_EQ(window.next_edge(seconds(5)).value(), kNever);
}

TEST(Window, repeats) {
  // Open 10-12, 20-22, 30-31.
  const Window window{seconds(10), seconds(31), seconds(10), seconds(2)};
  const double edges[] = {10, 12, 20, 22, 30, 31};
  double time = 0;
  for (const double edge : edges) {
    time = window.next_edge(seconds(time)).value();
    EXPECT_EQ(time, edge);
    EXPECT_EQ(window.contains(seconds(time)), edge == 10 || edge == 20 || edge == 30);
  }
  EXPECT_EQ(window.next_edge(seconds(31)).value(), kNever);
}

Topology two_sites() {
  Topology topology = unit_topology({0, 1});
  topology.sites[0].uplink = bytes_per_second(100);
  return topology;
}

Result<Conditions> parsed(const std::string& text) {
  return parse_conditions("schema: longhaul/conditions/1\n" + text, "c.yaml", "", two_sites());
}

TEST(ConditionsFile, says_everything) {
  const Result<Conditions> result = parsed(
      "sharing: turns\njitter: true\nseed: 7\n"
      "background:\n"
      "  - {from: a, to: b, rate: 80 bit/s, flows: 4, every: 60 s, "
      "for: 20 s}\n"
      "slowdowns:\n"
      "  - {devices: b, factor: 1.5, begin: 1 h, end: 2 h}\n"
      "  - {devices: '*', factor: 2}\n"
      "failures: {by_rate: false, notice: 4 s, repair: 1 min, "
      "restart: 10 s, planned: [{device: b-1/0, at: 2 h}, "
      "{device: a-1/0, at: 1 h}]}\n"
      "checkpoints: {every: 50, time: 8 s}\n");
  ASSERT_TRUE(result) << result.error().text();
  const Conditions& conditions = *result;
  EXPECT_EQ(conditions.sharing, Sharing::kTurns);
  EXPECT_TRUE(conditions.jitter);
  EXPECT_EQ(conditions.seed, 7u);
  ASSERT_EQ(conditions.background.size(), 1u);
  EXPECT_EQ(conditions.background[0].rate, bytes_per_second(10));
  EXPECT_EQ(conditions.background[0].flows, 4);
  EXPECT_EQ(conditions.background[0].window.lasts, seconds(20));
  ASSERT_EQ(conditions.slowdowns.size(), 2u);
  EXPECT_EQ(conditions.slowdowns[0].devices, std::vector{1});
  EXPECT_EQ(conditions.slowdowns[1].devices, (std::vector{0, 1}));
  EXPECT_EQ(conditions.slowdown(1, seconds(3600)), 3);
  EXPECT_EQ(conditions.slowdown(0, seconds(3600)), 2);
  EXPECT_EQ(conditions.next_change(seconds(10)), seconds(20));  // of the background
  ASSERT_EQ(conditions.failures.planned.size(), 2u);
  EXPECT_EQ(conditions.failures.planned[0].device, 0);  // in order of time
  EXPECT_EQ(conditions.failures.repair, seconds(60));
  EXPECT_EQ(conditions.checkpoints.every, 50);
}

TEST(ConditionsFile, nothing_said_is_nothing_unusual) {
  const Conditions conditions = parsed("description: calm\n").value();
  EXPECT_EQ(conditions.sharing, Sharing::kFair);
  EXPECT_FALSE(conditions.jitter || conditions.replay || conditions.failures.by_rate);
  EXPECT_EQ(conditions.next_change(seconds(0)).value(), kNever);
}

TEST(ConditionsFile, wrong_ones_say_where_and_why) {
  struct Row {
    const char* text;
    const char* says;
  };
  const Row rows[] = {
      {"sharing: unfair\n", "fair"},
      {"jiter: true\n", "jitter"},
      {"seed: -1\n", "seed"},
      {"background: [{from: a, to: c}]\n", "no site is named `c`"},
      {"background: [{from: a, to: a}]\n", "from one site to another"},
      {"background: [{from: b, to: a}]\n", "meets nobody"},
      {"background: [{from: a, to: b, flows: 0}]\n", "flows"},
      {"background: [{from: a, to: b, rate: 5}]\n", "rate"},
      {"slowdowns: [{devices: x, factor: 2}]\n", "no device, node, site or kind"},
      {"slowdowns: [{devices: a, factor: 0}]\n", "factor"},
      {"slowdowns: [{devices: a}]\n", "factor"},
      {"slowdowns: [{devices: a, factor: 2, begin: 5 s, end: 5 s}]\n", "ends before it begins"},
      {"slowdowns: [{devices: a, factor: 2, every: 5 s}]\n", "for"},
      {"slowdowns: [{devices: a, factor: 2, every: 5 s, for: 6 s}]\n", "a part of `every`"},
      {"slowdowns: [{devices: a, factor: 2, every: 5 us, for: 1 us}]\n", "at least 1 ms"},
      {"failures: {planned: [{device: a, at: 1 s}]}\n", "no device is named `a`"},
      {"failures: {planned: [{device: a-1/0}]}\n", "at"},
      {"failures: {by_rate: true}\n", "failures_per_hour"},
      {"checkpoints: {time: 1 s}\n", "every"},
      {"checkpoints: {every: 0}\n", "every"},
      {"replay: {trace: /no/such/trace.csv}\n", "/no/such/trace.csv"},
  };
  for (const Row& row : rows) {
    const Result<Conditions> result = parsed(row.text);
    ASSERT_FALSE(result) << row.text;
    EXPECT_NE(result.error().text().find(row.says), std::string::npos)
        << row.text << result.error().text();
  }
}

}  // namespace
}  // namespace longhaul
