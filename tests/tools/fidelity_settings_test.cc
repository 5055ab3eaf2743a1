#include "tools/fidelity_settings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

TEST(FidelitySettings, a_step_is_bound_by_the_kind_with_the_largest_sum) {
  StepResult step;
  const auto part = [](CriticalKind kind, double seconds) {
    return CriticalPart{kind, 0, 0, Seconds(seconds)};
  };
  // Two latencies of 2 s outweigh compute and update of 3.5 s together, and a link of 3 s.
  step.critical = {part(CriticalKind::kCompute, 3), part(CriticalKind::kBandwidth, 3),
                   part(CriticalKind::kLatency, 2), part(CriticalKind::kLatency, 2),
                   part(CriticalKind::kUpdate, 0.5)};
  EXPECT_EQ(binding_of(step), Binding::kLatency);
  step.critical.back().time = Seconds(1.5);  // 4.5 s
  EXPECT_EQ(binding_of(step), Binding::kCompute);
  step.critical.push_back(part(CriticalKind::kBandwidth, 2));
  EXPECT_EQ(binding_of(step), Binding::kBandwidth);
}

TEST(FidelitySettings, depths_are_those_of_their_schedules) {
  const Plan plan = fixtures::unit_plan(ScheduleFamily::kOneForwardOneBackward, 3, {4, 2});
  EXPECT_EQ(with_depth(plan, Depth::kGpipe).in_flight, (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(with_depth(plan, Depth::kOneForwardOneBackward).in_flight, (std::vector<int>{3, 2, 1}));
  // 2 (P - i) - 1 = 5, 3, 1, and no more than there are micro-batches.
  EXPECT_EQ(with_depth(plan, Depth::kEager).in_flight, (std::vector<int>{4, 3, 1}));
  EXPECT_EQ(with_depth(plan, Depth::kGpipe).family, ScheduleFamily::kGpipe);
}

TEST(FidelitySettingsSlow, a_seed_draws_settings_of_each_kind_that_can_be_emulated) {
  const auto settings = fidelity_settings(7, 3, 2);
  ASSERT_TRUE(settings) << settings.error().text();
  const auto again = fidelity_settings(7, 3, 1);
  for (std::size_t i = 0; i < settings->size(); ++i) {
    const FidelitySetting& setting = (*settings)[i];
    SCOPED_TRACE(setting.name);
    EXPECT_EQ(binding_of(setting.predicted), static_cast<Binding>(i));
    EXPECT_GE(setting.predicted.step.value(), kFidelityStepMin);
    EXPECT_LE(setting.predicted.step.value(), kFidelityStepMax);
    EXPECT_TRUE(std::ranges::all_of(
        setting.topology.links, [](const Link& link) { return link.latency >= Seconds(0.006); }));
    EXPECT_EQ((*again)[i].cluster_text, setting.cluster_text);
    EXPECT_EQ((*again)[i].job_text, setting.job_text);
    EXPECT_EQ((*again)[i].plan.devices, setting.plan.devices);
  }
}

}  // namespace
}  // namespace longhaul
