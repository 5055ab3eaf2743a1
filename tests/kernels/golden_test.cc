// Tiny models against PyTorch, in float64: the numbers in tests/golden/gpt are plain torch's, those
// in tests/golden/llama transformers' own LlamaForCausalLM's.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/model_stage.h"
#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

struct Golden {
  std::map<std::string, std::vector<double>> gradients;
  std::map<std::string, std::vector<double>> others;  // loss, norm, losses, frequencies
};

/// A model as the make.py beside its numbers has it.
struct GoldenCase {
  std::string name;
  std::string file;
  ModelShape model;
  double weight_max;  // weights are uniform up to this, norms around 1
  std::size_t sequences;
  std::size_t ignored_from;   // position of the last sequence
  double gradient_tolerance;  // absolute; norms are about 1 (GPT-2) and 3 to 5 (Llama)
};
void PrintTo(const GoldenCase& golden, std::ostream* out) {
  *out << golden.name;
}

std::vector<GoldenCase> golden_cases() {
  ModelShape gpt2 = {.family = ModelFamily::kGpt2,
                     .layers = 2,
                     .width = 12,
                     .heads = 3,
                     .kv_heads = 3,
                     .head_width = 4,
                     .ffn_width = 48,
                     .context = 8,
                     .vocabulary = 13};
  ModelShape llama = {.family = ModelFamily::kLlama,
                      .layers = 2,
                      .width = 16,
                      .heads = 4,
                      .kv_heads = 2,
                      .head_width = 4,
                      .ffn_width = 20,
                      .context = 16,
                      .vocabulary = 13,
                      .norm_epsilon = 1e-6};
  std::vector<GoldenCase> cases;
  cases.push_back({"gpt2_tied", "gpt/tied.txt", gpt2, 0.2, 3, 3, 2e-7});
  gpt2.tied_embedding = false;
  cases.push_back({"gpt2_untied", "gpt/untied.txt", gpt2, 0.2, 3, 3, 2e-7});
  cases.push_back({"llama_tied", "llama/tied.txt", llama, 0.4, 2, 9, 2e-6});
  llama.width = 12;
  llama.kv_heads = 1;
  llama.head_width = 8;
  llama.tied_embedding = false;
  llama.norm_epsilon = 1e-2;
  llama.rope_theta = 100;
  llama.rope_scaling =
      RopeScaling{.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 64};
  cases.push_back({"llama_scaled", "llama/scaled.txt", llama, 0.4, 2, 9, 2e-6});
  return cases;
}

Golden read_golden(const std::string& file) {
  Golden golden;
  std::ifstream in(std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/" + file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    auto* to = &golden.others;
    if (key == "gradient") {
      to = &golden.gradients;
      words >> key;
    }
    for (double value = 0; words >> value;) (*to)[key].push_back(value);
  }
  return golden;
}

/// make.py's model, weights and batch.
struct Model {
  explicit Model(const GoldenCase& golden)
      : stage(ModelStage::create(golden.model, {0, 2, true, true}).value()),
        batch(stage, static_cast<int>(golden.sequences)) {
    for (const ModelParameter& parameter : stage.parameters()) {
      Rng rng(parameter.name, 7);
      const bool is_norm = !parameter.decays() && parameter.name.ends_with(".weight");
      for (float& value : stage.weight(parameter)) {
        value = static_cast<float>(2 * golden.weight_max * rng.uniform() - golden.weight_max);
        if (is_norm) value += 1.0f;
      }
    }
    Rng rng("tokens", 7);
    const auto context = static_cast<std::size_t>(golden.model.context);
    for (std::size_t sequence = 0; sequence < golden.sequences; ++sequence) {
      std::vector<std::int32_t> ids(context + 1);
      for (auto& id : ids) id = static_cast<std::int32_t>(rng.uniform() * 13);
      for (std::size_t t = 0; t < context; ++t) {
        const bool is_ignored = sequence + 1 == golden.sequences && t >= golden.ignored_from;
        batch.tokens()[sequence * context + t] = ids[t];
        batch.targets()[sequence * context + t] = is_ignored ? ops::kIgnoredTarget : ids[t + 1];
      }
    }
    targets = (golden.sequences - 1) * context + golden.ignored_from;
  }

  /// Mean loss over the targets; leaves its gradients in the stage.
  double run() {
    const double scale = 1.0 / static_cast<double>(targets);
    stage.zero_gradients();
    stage.forward(batch);
    stage.backward(batch, static_cast<float>(scale));
    stage.fold_tied_gradient();
    double loss = 0;
    ops::add_losses(batch.losses(), scale, loss);
    return loss;
  }

  double gradient_norm() {
    double sum = 0;
    for (const auto& parameter : stage.parameters()) {
      sum += ops::sum_of_squares(stage.gradient(parameter));
    }
    return std::sqrt(sum);
  }

  ModelStage stage;
  StageBatch batch;
  std::size_t targets = 0;
};

class ModelGolden : public testing::TestWithParam<GoldenCase> {
 protected:
  const Golden golden_ = read_golden(GetParam().file);
};

TEST_P(ModelGolden, loss_and_every_gradient_are_those_of_torch) {
  Model model(GetParam());
  const double loss = golden_.others.at("loss")[0];
  const double norm = golden_.others.at("norm")[0];
  EXPECT_NEAR(model.run(), loss, 4e-7 * loss);
  EXPECT_NEAR(model.gradient_norm(), norm, 1e-6 * norm);
  ASSERT_EQ(model.stage.parameters().size(), golden_.gradients.size());
  for (const auto& parameter : model.stage.parameters()) {
    const auto gradient = model.stage.gradient(parameter);
    const auto& expected = golden_.gradients.at(parameter.name);
    ASSERT_EQ(gradient.size(), expected.size()) << parameter.name;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(gradient[i]), expected[i], GetParam().gradient_tolerance)
          << parameter.name;
    }
  }
}

TEST(RotaryTable, frequencies_are_those_of_transformers) {
  for (const GoldenCase& golden : golden_cases()) {
    if (golden.model.family != ModelFamily::kLlama) continue;
    const auto expected = read_golden(golden.file).others.at("frequencies");
    const auto frequencies = rotary_frequencies(golden.model);
    ASSERT_EQ(frequencies.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(frequencies[i]), expected[i], 1.2e-7 * expected[i]) << i;
    }
  }
}

TEST_P(ModelGolden, twenty_adamw_steps_follow_torch) {
  Model model(GetParam());
  std::vector<float> m(model.stage.weights().size()), v(m.size());
  const std::vector<double>& expected = golden_.others.at("losses");
  ASSERT_EQ(expected.size(), 20u);
  for (std::size_t step = 0; step < 20; ++step) {
    EXPECT_NEAR(model.run(), expected[step], 1e-4) << "step " << step;
    const double factor = ops::clip_factor(model.gradient_norm(), 1.0);
    for (const auto& parameter : model.stage.parameters()) {
      ops::adamw({.options = {.learning_rate = 0.01,
                              .beta2 = 0.95,
                              .weight_decay = parameter.decays() ? 0.1 : 0.0,
                              .gradient_scale = factor,
                              .step = static_cast<std::int64_t>(step) + 1},
                  .weight = model.stage.weight(parameter),
                  .gradient = model.stage.gradient(parameter),
                  .m = std::span(m).subspan(parameter.offset, parameter.size),
                  .v = std::span(v).subspan(parameter.offset, parameter.size)});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ModelGolden, testing::ValuesIn(golden_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace longhaul
