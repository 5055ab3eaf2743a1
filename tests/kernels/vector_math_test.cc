#include "kernels/cpu/vector_math.h"

#include <limits>

#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(VectorMath, exp_is_within_its_bound) {
  double worst = 0;
  for (int i = 0; i <= 1'756'000; ++i) {
    const float x = -87.3f + static_cast<float>(i) * 1e-4f;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(static_cast<double>(vector_exp(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(VectorMath, exp_at_its_edges) {
  EXPECT_EQ(vector_exp(0.0f), 1.0f);
  EXPECT_EQ(vector_exp(-kInfinity), 0.0f);
  EXPECT_EQ(vector_exp(-87.31f), 0.0f);
  EXPECT_GT(vector_exp(-87.3f), 1e-38f);
  EXPECT_EQ(vector_exp(1000.0f), vector_exp(88.3f));
  EXPECT_EQ(vector_exp(kInfinity), vector_exp(88.3f));
  EXPECT_TRUE(std::isfinite(vector_exp(88.3f)));
  EXPECT_TRUE(std::isnan(vector_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, log_is_within_its_bound) {
  double worst = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const float x = std::exp2(-126.0f + static_cast<float>(i) * 2.5e-4f);
    if (!std::isfinite(x)) break;
    const double exact = std::log(static_cast<double>(x));
    const double error = std::fabs(static_cast<double>(vector_log(x)) - exact);
    worst = std::max(worst, error / std::max(1.0, std::fabs(exact)));
  }
  EXPECT_LT(worst, 1.2e-7);
}

// A loss must not turn finite because its logarithm was taken.
TEST(VectorMath, log_of_what_is_not_finite_is_not_finite) {
  EXPECT_EQ(vector_log(1.0f), 0.0f);
  EXPECT_EQ(vector_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(vector_log(std::numeric_limits<float>::quiet_NaN())));
}

// 1 + 2 + ... + n, for n around whole and broken groups of lanes; exact in fp32.
TEST(VectorMath, lane_sum_takes_every_term_once) {
  for (const std::ptrdiff_t n : {0, 1, 15, 16, 17, 31, 32, 33, 100}) {
    const float sum = lane_sum(n, [](std::ptrdiff_t i) { return static_cast<float>(i + 1); });
    EXPECT_EQ(sum, static_cast<float>(n * (n + 1) / 2));
  }
}

TEST(VectorMath, lane_max_sees_every_value) {
  for (const std::size_t n : {1u, 15u, 16u, 17u, 33u}) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> values(n, -3.0f);
      values[at] = -2.0f;
      EXPECT_EQ(lane_max(values.data(), static_cast<std::ptrdiff_t>(n)), -2.0f);
    }
  }
}

}  // namespace
}  // namespace longhaul
