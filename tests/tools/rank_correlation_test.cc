#include "tools/rank_correlation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace longhaul {
namespace {

TEST(KendallTau, counts_pairs_in_and_out_of_order) {
  const std::vector<double> one = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(kendall_tau(one, std::vector<double>{10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(kendall_tau(one, std::vector<double>{4, 3, 2, 1}), -1);
  // Of six pairs only that of 2 and 3 is the wrong way round: (5 - 1) / 6.
  EXPECT_DOUBLE_EQ(kendall_tau(one, std::vector<double>{1, 3, 2, 4}), 4.0 / 6);
}

TEST(KendallTau, a_tie_agrees_with_nothing) {
  // The second measure tells two pairs of three apart, both as the first does: 2 / sqrt(3 x 2).
  const std::vector<double> one = {1, 2, 3};
  EXPECT_DOUBLE_EQ(kendall_tau(one, std::vector<double>{5, 5, 6}), 2 / std::sqrt(6.0));
  // What differs by rounding alone is a tie as well.
  EXPECT_DOUBLE_EQ(kendall_tau(one, std::vector<double>{5 + 1e-14, 5, 6}), 2 / std::sqrt(6.0));
  EXPECT_EQ(kendall_tau(one, std::vector<double>{7, 7, 7}), 0);
  EXPECT_EQ(kendall_tau(std::vector<double>{1}, std::vector<double>{1}), 0);
}

}  // namespace
}  // namespace longhaul
