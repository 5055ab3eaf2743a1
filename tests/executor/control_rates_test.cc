#include "executor/control/schedule_of_rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace longhaul {
namespace {

TEST(RateSchedule, cosine_is_the_worked_example) {
  const RateSchedule schedule = {RateDecay::kCosine, 1.0, 0.1, 2, 6};
  ASSERT_TRUE(schedule.check());
  EXPECT_EQ(schedule.rate(0), 0.5);  // (0 + 1) / 2
  EXPECT_EQ(schedule.rate(1), 1.0);
  EXPECT_EQ(schedule.rate(2), 1.0);  // p = 0
  // p = 1/4: 0.1 + 0.9 (1 + sqrt(1/2)) / 2 = 0.1 + 0.9 x 0.853553 = 0.868198
  EXPECT_NEAR(schedule.rate(3), 0.868198, 1e-6);
  EXPECT_NEAR(schedule.rate(4), 0.55, 1e-15);     // cos(pi / 2) = 0
  EXPECT_NEAR(schedule.rate(5), 0.231802, 1e-6);  // 0.1 + 0.9 x 0.146447
  EXPECT_EQ(schedule.rate(6), 0.1);
  EXPECT_EQ(schedule.rate(1000), 0.1);
}

TEST(RateSchedule, linear_and_constant) {
  const RateSchedule linear = {RateDecay::kLinear, 1.0, 0.5, 0, 4};
  EXPECT_EQ(linear.rate(0), 1.0);    // no warm-up
  EXPECT_EQ(linear.rate(1), 0.875);  // 0.5 + 0.5 x 3/4
  EXPECT_EQ(linear.rate(3), 0.625);
  EXPECT_EQ(linear.rate(4), 0.5);
  const RateSchedule constant = {RateDecay::kConstant, 1.0, 0, 4, 8};
  EXPECT_EQ(constant.rate(0), 0.25);
  EXPECT_EQ(constant.rate(3), 1.0);
  EXPECT_EQ(constant.rate(4), 1.0);
  EXPECT_EQ(constant.rate(9), 1.0);
}

TEST(RateSchedule, refuses_what_is_no_schedule) {
  EXPECT_TRUE((RateSchedule{RateDecay::kCosine, 1, 1, 3, 4}.check()));
  EXPECT_FALSE((RateSchedule{RateDecay::kCosine, 1, 0, 4, 4}.check()));
  EXPECT_FALSE((RateSchedule{RateDecay::kCosine, 1, 1.5, 0, 4}.check()));
  EXPECT_FALSE((RateSchedule{RateDecay::kCosine, 1, -0.5, 0, 4}.check()));
  EXPECT_FALSE((RateSchedule{RateDecay::kCosine, std::nan(""), 0, 0, 4}.check()));
  EXPECT_FALSE((RateSchedule{RateDecay::kCosine, INFINITY, 0, 0, 4}.check()));
}

TEST(RateSchedule, cosine_is_right_to_the_last_bit_or_so) {
  for (int i = 0; i <= 4096; ++i) {
    const double x = i / 4096.0;
    const long double exact = std::cos(std::numbers::pi_v<long double> * x);
    EXPECT_NEAR(cosine_of_half_turns(x), static_cast<double>(exact), 2.3e-16) << x;
  }
  EXPECT_EQ(cosine_of_half_turns(0), 1);
  EXPECT_EQ(cosine_of_half_turns(0.5), 0);
  EXPECT_EQ(cosine_of_half_turns(1), -1);
}

TEST(Clip, scale_is_that_of_clip_grad_norm) {
  EXPECT_EQ(gradient_norm(std::vector<double>{9, 16}), 5);
  EXPECT_EQ(gradient_norm({}), 0);
  EXPECT_EQ(gradient_scale(3), 1 / (3 + 1e-6));  // the default bound is 1
  EXPECT_EQ(gradient_scale(3, 1.5), 1.5 / (3 + 1e-6));
  EXPECT_EQ(gradient_scale(0.5), 1);  // never stretched
  EXPECT_EQ(gradient_scale(0), 1);
  EXPECT_LT(gradient_scale(1), 1);  // 1 / 1.000001
  EXPECT_EQ(gradient_scale(1000, kNoClip), 1);
}

TEST(Clip, squares_are_added_in_their_order) {
  // 2^53 + 1 + 1: each 1 is lost to rounding; 1 + 1 + 2^53 keeps them.
  EXPECT_EQ(gradient_norm(std::vector<double>{0x1p53, 1, 1}), std::sqrt(0x1p53));
  EXPECT_EQ(gradient_norm(std::vector<double>{1, 1, 0x1p53}), std::sqrt(0x1p53 + 2));
}

}  // namespace
}  // namespace longhaul
