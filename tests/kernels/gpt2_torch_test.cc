// A small GPT-2 trained here and by PyTorch on this machine (Debian's python3-torch), from the same
// weights on the same tokens. tests/golden/gpt has torch's numbers for machines without it.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <sstream>

#include "kernels/model_stage.h"
#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

constexpr int kSteps = 20, kWarmUp = 4;
constexpr double kRateMax = 0.01, kRateMin = 0.001;
constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEpsilon = 1e-8, kDecay = 0.1, kClip = 0.5;
constexpr int kMicroBatches = 2, kSequences = 3;  // of a micro-batch
constexpr int kContext = 16, kVocabulary = 29;
constexpr int kIgnoredSequence = 4, kIgnoredFrom = 5;

ModelShape model_of(bool tied) {
  return {.family = ModelFamily::kGpt2,
          .layers = 3,
          .width = 48,
          .heads = 4,
          .kv_heads = 4,
          .head_width = 12,
          .ffn_width = 192,
          .context = kContext,
          .vocabulary = kVocabulary,
          .tied_embedding = tied};
}

/// [step][sequence][context + 1]: mostly a cycle through the vocabulary, so that there is something
/// to learn.
std::vector<std::vector<std::int32_t>> make_tokens() {
  Rng rng("tokens", 7);
  std::vector<std::vector<std::int32_t>> steps(kSteps);
  std::int32_t last = 0;
  for (auto& ids : steps) {
    for (int i = 0; i < kMicroBatches * kSequences * (kContext + 1); ++i) {
      last = rng.chance(0.8) ? (last * 3 + 7) % kVocabulary
                             : static_cast<std::int32_t>(rng.below(kVocabulary));
      ids.push_back(last);
    }
  }
  return steps;
}

struct Step {
  double loss = 0;
  double norm = 0;
};

/// Linear warm-up, then cosine, as executor/control/schedule_of_rates.h says.
double rate_of(int step) {
  if (step < kWarmUp) return kRateMax * (step + 1) / kWarmUp;
  const double p = static_cast<double>(step - kWarmUp) / (kSteps - kWarmUp);
  return kRateMin + (kRateMax - kRateMin) * (1 + std::cos(std::numbers::pi * p)) / 2;
}

void fill(StageBatch& batch, int number, const std::vector<std::int32_t>& ids) {
  for (int s = 0; s < kSequences; ++s) {
    const int sequence = number * kSequences + s;
    for (int t = 0; t < kContext; ++t) {
      const auto from = static_cast<std::size_t>(sequence * (kContext + 1) + t);
      const auto to = static_cast<std::size_t>(s * kContext + t);
      const bool is_ignored = sequence == kIgnoredSequence && t >= kIgnoredFrom;
      batch.tokens()[to] = ids[from];
      batch.targets()[to] = is_ignored ? ops::kIgnoredTarget : ids[from + 1];
    }
  }
}

std::vector<Step> train(ModelStage& stage, const std::vector<std::vector<std::int32_t>>& tokens) {
  constexpr int kTargets = kMicroBatches * kSequences * kContext - (kContext - kIgnoredFrom);
  StageBatch batch(stage, kSequences);
  std::vector<float> m(stage.weights().size()), v(m.size());
  std::vector<Step> steps;
  for (int s = 0; s < kSteps; ++s) {
    Step step;
    stage.zero_gradients();
    for (int number = 0; number < kMicroBatches; ++number) {
      fill(batch, number, tokens[static_cast<std::size_t>(s)]);
      stage.forward(batch);
      ops::add_losses(batch.losses(), 1.0 / kTargets, step.loss);
      stage.backward(batch, static_cast<float>(1.0 / kTargets));
    }
    stage.fold_tied_gradient();
    double squares = 0;
    for (const ModelParameter& p : stage.parameters()) {
      squares += ops::sum_of_squares(stage.gradient(p));
    }
    step.norm = std::sqrt(squares);
    for (const ModelParameter& p : stage.parameters()) {
      ops::adamw({.options = {.learning_rate = rate_of(s),
                              .beta1 = kBeta1,
                              .beta2 = kBeta2,
                              .epsilon = kEpsilon,
                              .weight_decay = p.decays() ? kDecay : 0,
                              .gradient_scale = ops::clip_factor(step.norm, kClip),
                              .step = s + 1},
                  .weight = stage.weight(p),
                  .gradient = stage.gradient(p),
                  .m = std::span(m).subspan(p.offset, p.size),
                  .v = std::span(v).subspan(p.offset, p.size)});
    }
    steps.push_back(step);
  }
  return steps;
}

/// What gpt2_torch.py reads.
void write_task(const std::string& folder, ModelStage& stage,
                const std::vector<std::vector<std::int32_t>>& tokens) {
  const ModelShape& model = stage.model();
  std::ofstream task(folder + "/task.txt");
  task << fmt::format("model {} {} {} {} {}\n", model.layers, model.width, model.heads,
                      model.context, model.vocabulary);
  task << fmt::format("train {} {} {} {} {} {} {} {} {}\n", kSteps, kWarmUp, kRateMax, kRateMin,
                      kBeta1, kBeta2, kEpsilon, kDecay, kClip);
  task << fmt::format("ignored {} {}\n", kIgnoredSequence, kIgnoredFrom);
  for (const auto& ids : tokens) task << fmt::format("tokens {}\n", fmt::join(ids, " "));
  std::ofstream weights(folder + "/weights.bin", std::ios::binary);
  for (const ModelParameter& p : stage.parameters()) {
    task << fmt::format("tensor {} {}\n", p.name, fmt::join(p.shape, " "));
    const auto bytes = std::as_bytes(stage.weight(p));
    weights.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
}

/// Exit status and everything printed.
std::pair<int, std::string> run_command(const std::string& command) {
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), got);
  }
  return {::pclose(pipe), output};
}

/// An interpreter that has torch; empty when there is none. The distribution's packages are for its
/// own, which need not be the first in the path.
std::string python_with_torch() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    if (run_command(std::string(python) + " -c 'import torch'").first == 0) return python;
  }
  return "";
}

class Gpt2TorchSlowRelease : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "longhaul-torch-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_P(Gpt2TorchSlowRelease, twenty_steps_have_the_losses_of_torch) {
  const std::string python = python_with_torch();
  if (python.empty()) {
    GTEST_SKIP() << "no python3 here can import torch; Debian has it as python3-torch";
  }
  ModelStage stage = ModelStage::create(model_of(GetParam()), {0, 3, true, true}).value();
  stage.initialise_weights(3);
  const auto tokens = make_tokens();
  write_task(folder_, stage, tokens);
  const std::vector<Step> ours = train(stage, tokens);

  const auto [status, output] = run_command(fmt::format("{} '{}/tests/kernels/gpt2_torch.py' '{}'",
                                                        python, LONGHAUL_SOURCE_DIR, folder_));
  ASSERT_EQ(status, 0) << output;
  std::vector<Step> torch;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    Step step;
    if (std::sscanf(line.c_str(), "step %la %la", &step.loss, &step.norm) == 2) {
      torch.push_back(step);
    }
  }
  ASSERT_EQ(torch.size(), ours.size()) << output;
  for (std::size_t s = 0; s < ours.size(); ++s) {
    EXPECT_NEAR(ours[s].loss, torch[s].loss, 1e-4) << "step " << s;
    EXPECT_NEAR(ours[s].norm, torch[s].norm, 1e-3 * torch[s].norm) << "step " << s;
  }
  // It starts near ln 29 = 3.37, learns, and some gradients are clipped: all of it was compared.
  EXPECT_NEAR(ours.front().loss, std::log(kVocabulary), 0.1);
  EXPECT_LT(ours.back().loss, ours.front().loss - 0.5);
  EXPECT_GT(ours.front().norm, kClip);
}

INSTANTIATE_TEST_SUITE_P(, Gpt2TorchSlowRelease, testing::Bool(),
                         [](const auto& info) { return info.param ? "tied" : "untied"; });

}  // namespace
}  // namespace longhaul
