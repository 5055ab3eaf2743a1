// A tiny GPT-2 against PyTorch: the numbers in tests/golden/gpt are torch's, in float64.
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
  std::map<std::string, std::vector<double>> others;  // loss, norm, losses
};

Golden read_golden(const std::string& file) {
  Golden golden;
  std::ifstream in(std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/gpt/" + file);
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
  explicit Model(bool tied)
      : stage(ModelStage::create({.family = ModelFamily::kGpt2,
                                  .layers = 2,
                                  .width = 12,
                                  .heads = 3,
                                  .kv_heads = 3,
                                  .head_width = 4,
                                  .ffn_width = 48,
                                  .context = 8,
                                  .vocabulary = 13,
                                  .tied_embedding = tied},
                                 {0, 2, true, true})
                  .value()),
        batch(stage, 3) {
    for (const ModelParameter& parameter : stage.parameters()) {
      Rng rng(parameter.name, 7);
      const bool is_norm =
          parameter.name.find("ln_") != std::string::npos && parameter.name.ends_with(".weight");
      for (float& value : stage.weight(parameter)) {
        value = static_cast<float>(0.4 * rng.uniform() - 0.2);
        if (is_norm) value += 1.0f;
      }
    }
    Rng rng("tokens", 7);
    for (std::size_t sequence = 0; sequence < 3; ++sequence) {
      std::vector<std::int32_t> ids(9);
      for (auto& id : ids) id = static_cast<std::int32_t>(rng.uniform() * 13);
      for (std::size_t t = 0; t < 8; ++t) {
        batch.tokens()[sequence * 8 + t] = ids[t];
        batch.targets()[sequence * 8 + t] =
            sequence == 2 && t >= 3 ? ops::kIgnoredTarget : ids[t + 1];
      }
    }
  }

  /// Mean loss over the 19 target tokens; leaves its gradients in the stage.
  double run() {
    constexpr double kScale = 1.0 / 19;
    stage.zero_gradients();
    stage.forward(batch);
    stage.backward(batch, static_cast<float>(kScale));
    stage.fold_tied_gradient();
    double loss = 0;
    ops::add_losses(batch.losses(), kScale, loss);
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
};

class Gpt2Golden : public testing::TestWithParam<bool> {
 protected:
  const bool tied_ = GetParam();
  const Golden golden_ = read_golden(tied_ ? "tied.txt" : "untied.txt");
};

TEST_P(Gpt2Golden, loss_and_every_gradient_are_those_of_torch) {
  Model model(tied_);
  EXPECT_NEAR(model.run(), golden_.others.at("loss")[0], 1e-6);
  EXPECT_NEAR(model.gradient_norm(), golden_.others.at("norm")[0], 1e-6);
  ASSERT_EQ(model.stage.parameters().size(), golden_.gradients.size());
  for (const auto& parameter : model.stage.parameters()) {
    const auto gradient = model.stage.gradient(parameter);
    const auto& expected = golden_.gradients.at(parameter.name);
    ASSERT_EQ(gradient.size(), expected.size()) << parameter.name;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(gradient[i]), expected[i], 2e-7) << parameter.name;
    }
  }
}

TEST_P(Gpt2Golden, twenty_adamw_steps_follow_torch) {
  Model model(tied_);
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

INSTANTIATE_TEST_SUITE_P(, Gpt2Golden, testing::Bool(),
                         [](const auto& info) { return info.param ? "tied" : "untied"; });

}  // namespace
}  // namespace longhaul
