// A run of any grid equals the single process: bit for bit where there is one pipeline, to 1e-5
// where gradients are added in another order.

#include <cmath>

#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

struct Case {
  std::string name;
  RunOptions options;
};

struct Runs {
  RunOutcome plain;
  RunOutcome run;
};

Runs run_both(const RunOptions& options) {
  MemorySequences train(learnable_tokens(options.train_tokens, 1), 8);
  MemorySequences validation(learnable_tokens(8 * 8 + 1, 2), 8);
  const RunSpec spec = spec_of(options, train.identity(), validation.identity());
  Disks disks;
  SimRun run(options, spec, train, validation, disks);
  EXPECT_TRUE(run.run_until_ended()) << "the run does not end";
  EXPECT_TRUE(run.ending && run.ending->ending.clean())
      << (run.ending ? run.ending->ending.text() : "");
  if (::testing::Test::HasFailure()) return {};
  run.collect_weights();
  return {run_plainly(spec, train, validation), run.outcome};
}

/// What the generator makes of two and four equal stages with a latency of a forward's time each
/// way, eight micro-batches and caps of 4 and 5.
std::vector<std::string> greedy_two() {
  return {"F0 F1 F2 F3 B0 W0 B1 F4 B2 W1 B3 F5 W2 B4 F6 W3 F7 B5 W4 W5 B6 W6 B7 W7",
          "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 W2 F5 B5 W3 F6 B6 F7 B7 W4 W5 W6 W7"};
}
std::vector<std::string> greedy_four() {
  return {"F0 F1 F2 F3 F4 B0 W0 F5 B1 B2 W1 F6 W2 F7 B3 W3 B4 W4 B5 W5 B6 W6 B7 W7",
          "F0 F1 F2 F3 B0 F4 B1 W0 B2 W1 F5 W2 B3 W3 F6 B4 F7 W4 B5 W5 B6 W6 B7 W7",
          "F0 F1 F2 B0 W0 B1 F3 B2 F4 W1 W2 B3 W3 F5 B4 W4 F6 B5 F7 W5 B6 W6 B7 W7",
          "F0 B0 F1 B1 F2 B2 W0 W1 W2 F3 B3 F4 B4 W3 W4 F5 B5 W5 F6 B6 F7 B7 W6 W7"};
}

std::vector<Case> exact_cases() {
  std::vector<Case> cases;
  const auto add = [&cases](std::string name, RunOptions options) {
    cases.push_back({std::move(name), std::move(options)});
  };
  add("one_process", {});
  add("two_stages", {.layers = {2, 2}});
  add("four_stages", {.layers = {1, 1, 1, 1}});
  add("uneven_stages", {.layers = {1, 3}});
  add("uneven_three_stages", {.layers = {2, 1, 1}});
  add("untied", {.layers = {1, 2, 1}, .tied = false});
  add("gpipe", {.layers = {1, 1, 2}, .family = ScheduleFamily::kGpipe});
  add("eager", {.layers = {2, 1, 1}, .in_flight = {5, 3, 2}});
  add("one_in_flight", {.layers = {2, 2}, .in_flight = {1, 1}});
  add("micro_batches_of_two", {.layers = {2, 2}, .micro_batches = {4}, .micro_batch = 2});
  add("recomputed", {.layers = {2, 2}, .recompute = true});
  add("recomputed_by_the_plan", {.layers = {2, 2}, .recompute = true, .is_auto = true});
  constexpr auto kGreedy = ScheduleFamily::kGreedy;
  add("greedy_two",
      {.layers = {2, 2}, .family = kGreedy, .in_flight = {4, 4}, .orders = greedy_two()});
  add("greedy_four", {.layers = {1, 1, 1, 1},
                      .family = kGreedy,
                      .in_flight = {5, 5, 5, 5},
                      .orders = greedy_four()});
  add("greedy_recomputed", {.layers = {1, 3},
                            .family = kGreedy,
                            .in_flight = {4, 4},
                            .orders = greedy_two(),
                            .recompute = true});
  add("bf16", {.layers = {1, 2, 1}, .precision = Precision::kBf16});
  add("bf16_recomputed", {.layers = {2, 2}, .recompute = true, .precision = Precision::kBf16});
  // 13 sequences and a batch of 8: the second row of an epoch has three slots of padding.
  add("padding", {.layers = {2, 2}, .train_tokens = 8 * 13 + 1});
  add("llama", {.layers = {1, 3}, .llama = true});
  add("llama_untied", {.layers = {1, 2, 1}, .tied = false, .llama = true});
  add("llama_greedy_recomputed", {.layers = {1, 3},
                                  .family = kGreedy,
                                  .in_flight = {4, 4},
                                  .orders = greedy_two(),
                                  .llama = true,
                                  .recompute = true});
  return cases;
}

class ExactRun : public ::testing::TestWithParam<Case> {};

TEST_P(ExactRun, has_the_bits_of_the_single_process) {
  const auto [plain, run] = run_both(GetParam().options);
  ASSERT_EQ(run.losses.size(), 50u);
  EXPECT_GT(run.losses.front() - run.losses.back(), 1) << "the model must learn something";
  EXPECT_EQ(run.losses, plain.losses);
  EXPECT_EQ(run.norms, plain.norms);
  EXPECT_EQ(run.validations, plain.validations);
  EXPECT_EQ(run.validations.size(), 3u);  // after 20, 40 and the last
  ASSERT_EQ(run.weights.size(), plain.weights.size());
  for (const auto& [name, weight] : plain.weights) {
    EXPECT_TRUE(same_bits(run.weights.at(name), weight)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ExactRun, ::testing::ValuesIn(exact_cases()),
                         [](const auto& info) { return info.param.name; });

std::vector<Case> close_cases() {
  std::vector<Case> cases;
  const auto add = [&cases](std::string name, RunOptions options) {
    cases.push_back({std::move(name), std::move(options)});
  };
  add("four_pipelines", {.micro_batches = {2, 2, 2, 2}});
  add("two_by_four", {.layers = {2, 2}, .micro_batches = {2, 2, 2, 2}});
  add("four_by_two", {.layers = {1, 1, 1, 1}, .micro_batches = {4, 4}});
  // Less room than one boundary tensor or shard: everything waits to be asked for.
  add("little_room", {.layers = {2, 2}, .micro_batches = {4, 4}, .early_bytes = 1500});
  add("uneven_pipelines", {.layers = {1, 3}, .micro_batches = {1, 5, 2}});
  // The smaller pipeline leaves out micro-batches 3 to 7.
  add("greedy_uneven_pipelines", {.layers = {2, 2},
                                  .micro_batches = {8, 3},
                                  .family = ScheduleFamily::kGreedy,
                                  .in_flight = {4, 4},
                                  .orders = greedy_two()});
  add("untied_pipelines", {.layers = {1, 3}, .micro_batches = {3, 5}, .tied = false});
  add("llama_two_by_three", {.layers = {1, 2, 1}, .micro_batches = {3, 5}, .llama = true});
  add("llama_untied_pipelines",
      {.layers = {1, 3}, .micro_batches = {1, 5, 2}, .tied = false, .llama = true});
  return cases;
}

class CloseRun : public ::testing::TestWithParam<Case> {};

TEST_P(CloseRun, is_within_1e5_of_the_single_process) {
  const auto [plain, run] = run_both(GetParam().options);
  ASSERT_EQ(run.losses.size(), 50u);
  EXPECT_GT(run.losses.front() - run.losses.back(), 1);
  for (std::size_t s = 0; s < run.losses.size(); ++s) {
    EXPECT_NEAR(run.losses[s], plain.losses[s], 1e-5 * plain.losses[s]) << "step " << s;
  }
  ASSERT_EQ(run.validations.size(), plain.validations.size());
  for (std::size_t i = 0; i < run.validations.size(); ++i) {
    EXPECT_NEAR(run.validations[i].second, plain.validations[i].second, 1e-5 * 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, CloseRun, ::testing::ValuesIn(close_cases()),
                         [](const auto& info) { return info.param.name; });

// ---- What a plan chooses.

/// A lossy codec's run: nearly the same before the small model's high rate has made another way of
/// it, and one that learns as much.
void expect_close(const std::vector<double>& losses, const std::vector<double>& exact) {
  for (std::size_t s = 0; s < 3; ++s) EXPECT_NEAR(losses[s], exact[s], 1e-3) << "step " << s;
  const auto last_ten = [](const std::vector<double>& all) {
    return std::accumulate(all.end() - 10, all.end(), 0.0) / 10;
  };
  EXPECT_NEAR(last_ten(losses), last_ten(exact), 0.05 * last_ten(exact));
}

TEST(RunChoices, uneven_shares_train_to_the_bits_of_even_ones) {
  // The third member of stage 1 owns nothing, and all of the tied embedding is with two of six.
  RunOptions options = {.layers = {2, 2}, .micro_batches = {3, 3, 2}};
  const RunOutcome even = run_both(options).run;
  options.reductions = {
      {.shares = {0.1, 0.6, 0.3}},
      {.shares = {0.75, 0.25, 0}},
      {.shares = {0, 0, 0.5, 0, 0.5, 0}},
  };
  const RunOutcome uneven = run_both(options).run;
  ASSERT_EQ(uneven.losses.size(), 50u);
  EXPECT_EQ(uneven.losses, even.losses);
  EXPECT_EQ(uneven.norms, even.norms);
  ASSERT_EQ(uneven.weights.size(), even.weights.size());
  for (const auto& [name, weight] : even.weights) {
    EXPECT_TRUE(same_bits(uneven.weights.at(name), weight)) << name;
  }
}

TEST(RunChoices, each_pair_of_sites_has_its_own_codec) {
  // One pipeline and an untied embedding: activations and their gradients are all that is sent.
  RunOptions options = {
      .layers = {1, 2, 1}, .tied = false, .activations = Codec::kBf16, .is_auto = true};
  const RunOutcome coarse = run_both(options).run;
  options.activation_codecs = {{0, 1, Codec::kNone}};
  const auto [plain, mixed] = run_both(options);
  ASSERT_EQ(mixed.losses.size(), 50u);
  EXPECT_NE(mixed.losses, plain.losses);
  EXPECT_NE(mixed.losses, coarse.losses);
  expect_close(mixed.losses, plain.losses);
  // The other pair, too: then nothing is lossy.
  options.activation_codecs.push_back({1, 2, Codec::kNone});
  EXPECT_EQ(run_both(options).run.losses, plain.losses);
}

TEST(RunChoices, each_exchange_has_its_own_codec) {
  RunOptions options = {.layers = {2, 2},
                        .micro_batches = {4, 4},
                        .width = 32,  // its MLP has 32 x 128 weights, enough for a codec
                        .activations = Codec::kBf16,
                        .is_auto = true,
                        .activation_codecs = {{0, 1, Codec::kNone}, {2, 3, Codec::kNone}}};
  options.steps = 20;
  options.reductions.assign(3, {});
  const RunOutcome exact = run_both(options).run;
  options.reductions[1].codec = Codec::kBf16;
  const RunOutcome mixed = run_both(options).run;
  ASSERT_EQ(mixed.losses.size(), 20u);
  EXPECT_NE(mixed.losses, exact.losses);
  expect_close(mixed.losses, exact.losses);
}

}  // namespace
}  // namespace longhaul
