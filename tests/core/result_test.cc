#include "core/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace longhaul {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return invalid("odd", "give an even number");
  return number / 2;
}

Result<int> quarter(int number) {
  LH_ASSIGN(const int once, half(number));
  LH_ASSIGN(const int twice, half(once));
  return twice;
}

Result<void> need_even(int number) {
  LH_TRY(half(number));
  return {};
}

TEST(Result, assign_binds_or_returns_the_first_error) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message, "odd");  // fails at the second call
  EXPECT_EQ(quarter(7).error().hint, "give an even number");
}

TEST(Result, assign_moves_what_cannot_be_copied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(7); };
  const auto read = [&]() -> Result<int> {
    LH_ASSIGN(const std::unique_ptr<int> number, make());
    return *number;
  };
  EXPECT_EQ(*read(), 7);
}

TEST(Result, try_returns_the_error_or_goes_on) {
  EXPECT_TRUE(need_even(2));
  EXPECT_EQ(need_even(3).error().message, "odd");
}

TEST(Error, codes_are_the_exit_status) {
  EXPECT_EQ(static_cast<int>(failed("x").error().code), 1);
  EXPECT_EQ(static_cast<int>(invalid("x").error().code), 2);
  EXPECT_EQ(static_cast<int>(infeasible("x").error().code), 3);
}

TEST(Error, context_is_added_in_front_on_the_way_up) {
  const auto outer =
      within("plan.yaml", within("stage 2", invalid("too many layers").error()).error());
  EXPECT_EQ(outer.error().message, "plan.yaml: stage 2: too many layers");
  EXPECT_EQ(outer.error().code, ErrorCode::kInvalid);
}

TEST(Error, text_says_what_where_and_what_to_try) {
  Error error = invalid("width is no number", "write 768").error();
  EXPECT_EQ(error.text(), "error: width is no number\n  hint: write 768");
  error.place = {"job.yaml", 4, 10};
  error.excerpt = "  width: wide\n         ^";
  EXPECT_EQ(
      error.text(),
      "job.yaml:4:10: error: width is no number\n  width: wide\n         ^\n  hint: write 768");
}

TEST(Error, text_leaves_out_what_is_unknown_of_the_place) {
  EXPECT_EQ((SourcePlace{"a.csv", 0, 0}).text(), "a.csv");
  EXPECT_EQ((SourcePlace{"a.csv", 3, 0}).text(), "a.csv:3");
  EXPECT_EQ((SourcePlace{"a.csv", 0, 5}).text(),
            "a.csv");  // a column without its line says nothing
  EXPECT_EQ((SourcePlace{"a.csv", 3, 5}).text(), "a.csv:3:5");
}

TEST(Error, all_errors_of_a_file_are_shown_together) {
  Error error = invalid("first").error();
  error.others = {invalid("second", "cure").error(), invalid("third").error()};
  EXPECT_EQ(error.count(), 3u);
  EXPECT_EQ(error.text(), "error: first\nerror: second\n  hint: cure\nerror: third");
}

TEST(CheckDeathTest, a_broken_promise_stops_the_program_and_says_why) {
  const int answer = 41;
  LH_CHECK(answer == 41, "a promise that holds is silent");
  EXPECT_DEATH(LH_CHECK(answer == 42, "the answer is known"),
               "result_test.cc:[0-9]+: check failed: answer == 42: the answer is known");
}

}  // namespace
}  // namespace longhaul
