// The pure parts of suite `compression`: what runs come to, and under which key they are kept.
#include <gtest/gtest.h>

#include "tools/compression_figures.h"
#include "tools/compression_study.h"

namespace longhaul {
namespace {

TEST(CompressionFigures, estimate_of_one_value_has_no_error) {
  const Estimate found = estimate(std::vector<double>{2.5});
  EXPECT_EQ(found.mean, 2.5);
  EXPECT_EQ(found.error, 0);
}

TEST(CompressionFigures, standard_error_is_the_deviation_over_the_root_of_the_number) {
  // 1, 2, 6: mean 3; squares 4 + 1 + 9 = 14; variance 14 / 2 = 7; error sqrt(7 / 3) = 1.527525.
  const Estimate found = estimate(std::vector<double>{1, 2, 6});
  EXPECT_DOUBLE_EQ(found.mean, 3);
  EXPECT_NEAR(found.error, 1.527525, 1e-6);
}

TEST(CompressionFigures, excess_is_paired_so_that_what_a_seed_does_to_both_falls_out) {
  // Each seed is 1 % above its own base, however different the seeds are.
  const Estimate found =
      relative_excess(std::vector<double>{1.01, 2.02, 4.04}, std::vector<double>{1, 2, 4});
  EXPECT_NEAR(found.mean, 0.01, 1e-12);
  EXPECT_NEAR(found.error, 0, 1e-12);
}

TEST(CompressionFigures, steps_to_a_loss_lie_on_the_line_between_two_points) {
  const LossCurve curve = {{10, 3.0}, {20, 2.0}, {30, 1.8}};
  EXPECT_EQ(steps_to(curve, 3.5), 10);  // reached before the first point: counted there
  EXPECT_EQ(steps_to(curve, 3.0), 10);
  EXPECT_DOUBLE_EQ(steps_to(curve, 2.5).value(), 15);     // half of the way from 3 to 2
  EXPECT_DOUBLE_EQ(steps_to(curve, 1.85).value(), 27.5);  // three quarters of the way to 1.8
  EXPECT_EQ(steps_to(curve, 1.79), std::nullopt);
}

TEST(CompressionFigures, steps_to_a_loss_are_those_of_the_first_time) {
  const LossCurve curve = {{10, 2.0}, {20, 1.0}, {30, 2.0}, {40, 0.5}};
  EXPECT_DOUBLE_EQ(steps_to(curve, 1.5).value(), 15);
  EXPECT_DOUBLE_EQ(steps_to(curve, 0.8).value(), 38);  // 2.0 to 0.5: 0.8 after 8 of 10 steps
}

TEST(CompressionFigures, common_loss_is_the_least_of_the_curve_that_gets_less_far) {
  EXPECT_EQ(common_loss({{1, 3.0}, {2, 1.0}, {3, 1.2}}, {{1, 2.0}, {2, 1.5}}), 1.5);
}

TEST(CompressionStudy, key_keeps_its_parts_apart) {
  EXPECT_EQ(study_key({"ab", "c"}).size(), 16u);
  EXPECT_EQ(study_key({"ab", "c"}), study_key({"ab", "c"}));
  EXPECT_NE(study_key({"ab", "c"}), study_key({"a", "bc"}));
  EXPECT_NE(study_key({"ab", "c"}), study_key({"c", "ab"}));
  EXPECT_NE(study_key({"ab"}), study_key({"ab", ""}));
}

TEST(CompressionStudy, run_is_read_back_to_the_last_bit) {
  StudyRun run;
  run.losses = {5.5, 1.0 / 3};
  run.validations = {{1, 4.25}, {2, 0.1}};
  run.cpu_s = 12.5;
  const std::string text = study_run_text("00ff", "fp32, seed 1", run);
  EXPECT_EQ(text.find('\n'), std::string::npos);  // a line
  const auto kept = parse_study_run(text);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->key, "00ff");
  EXPECT_EQ(kept->run.losses, run.losses);
  EXPECT_EQ(kept->run.validations, run.validations);
  EXPECT_EQ(kept->run.cpu_s, 12.5);
}

TEST(CompressionStudy, damaged_line_is_no_run) {
  const std::string text = study_run_text("00ff", "fp32, seed 1", {{1.0}, {{1, 2.0}}, 3});
  EXPECT_TRUE(parse_study_run(text));
  EXPECT_FALSE(parse_study_run(text.substr(0, text.size() - 1)));
  EXPECT_FALSE(parse_study_run(""));
  EXPECT_FALSE(parse_study_run("[]"));
  EXPECT_FALSE(parse_study_run(R"({"key": "00ff"})"));
  EXPECT_FALSE(
      parse_study_run(R"({"key": 1, "name": "", "cpu_s": 1, "losses": [], "validations": []})"));
}

}  // namespace
}  // namespace longhaul
