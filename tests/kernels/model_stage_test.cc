#include "kernels/model_stage.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>

#include "core/model_math.h"
#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// 4 layers; odd sizes, so that no tile or lane group comes out even.
ModelShape small_model(bool tied) {
  return {.family = ModelFamily::kGpt2,
          .layers = 4,
          .width = 20,
          .heads = 2,
          .kv_heads = 2,
          .head_width = 10,
          .ffn_width = 44,
          .context = 13,
          .vocabulary = 19,
          .tied_embedding = tied};
}

/// The same for Llama: three query heads share a key head, and all heads together are wider than
/// the stream.
ModelShape small_llama(bool tied) {
  ModelShape model = small_model(tied);
  model.family = ModelFamily::kLlama;
  model.heads = 6;
  model.kv_heads = 2;
  model.head_width = 6;
  model.norm_epsilon = 1e-6;
  return model;
}

constexpr int kSequences = 4;
constexpr float kLossScale = 1.0f / (kSequences * 13);

/// The slices of a pipeline with so many layers a stage.
std::vector<ModelSlice> cut(const std::vector<int>& layers) {
  std::vector<ModelSlice> slices;
  int first = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    slices.push_back({first, first + layers[i], i == 0, i + 1 == layers.size()});
    first += layers[i];
  }
  return slices;
}

/// What a step leaves behind.
struct Outcome {
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> gradients;

  void expect_equal(const Outcome& other) const {
    EXPECT_TRUE(same_bits(losses, other.losses));
    ASSERT_EQ(gradients.size(), other.gradients.size());
    for (const auto& [name, gradient] : gradients) {
      EXPECT_TRUE(same_bits(gradient, other.gradients.at(name))) << name;
    }
  }
};

enum class Order {
  kWhole,         // each micro-batch forward, then backward
  kGPipe,         // all forwards, then all backwards
  kWeightsLast,   // all forwards, all input gradients, all weight gradients
  kWeightsMixed,  // each weight gradient one micro-batch late
};

/// One step over the 4 sequences in micro-batches of `sequences`.
Outcome train_step(const ModelShape& model, const std::vector<int>& layers, int sequences,
                   Order order, Precision precision = Precision::kFp32) {
  std::vector<ModelStage> stages;
  for (const ModelSlice& slice : cut(layers)) {
    stages.push_back(ModelStage::create(model, slice, precision).value());
    stages.back().initialise_weights(3);
  }
  const std::size_t count = kSequences / static_cast<std::size_t>(sequences);
  std::vector<std::vector<StageBatch>> batches(count);  // [micro-batch][stage]
  Rng rng("tokens", 5);
  for (auto& batch : batches) {
    for (const ModelStage& stage : stages) batch.emplace_back(stage, sequences);
    for (auto& token : batch.front().tokens()) token = static_cast<std::int32_t>(rng.below(19));
    const auto tokens = batch.front().tokens();
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      batch.back().targets()[row] =
          tokens[row] % 5 == 0 ? ops::kIgnoredTarget : (tokens[row] * 7 + 3) % 19;
    }
  }

  Outcome outcome;
  const auto copy = [](std::span<const float> from, std::span<float> to) {
    std::copy(from.begin(), from.end(), to.begin());
  };
  const auto forward = [&](std::size_t b) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (s > 0) copy(batches[b][s - 1].output(), batches[b][s].input());
      stages[s].forward(batches[b][s]);
    }
    const auto losses = batches[b].back().losses();
    outcome.losses.insert(outcome.losses.end(), losses.begin(), losses.end());
  };
  const auto input = [&](std::size_t b) {
    for (std::size_t s = stages.size(); s-- > 0;) {
      stages[s].backward_input(batches[b][s], kLossScale);
      if (s > 0) copy(batches[b][s].input(), batches[b][s - 1].output());
    }
  };
  const auto weight = [&](std::size_t b) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      stages[s].backward_weight(batches[b][s], kLossScale);
    }
  };
  if (order != Order::kWhole) {
    for (std::size_t b = 0; b < count; ++b) forward(b);
  }
  for (std::size_t b = 0; b < count; ++b) {
    if (order == Order::kWhole) forward(b);
    input(b);
    if (order == Order::kWhole || order == Order::kGPipe) weight(b);
    if (order == Order::kWeightsMixed && b > 0) weight(b - 1);
  }
  if (order == Order::kWeightsMixed) weight(count - 1);
  if (order == Order::kWeightsLast) {
    for (std::size_t b = 0; b < count; ++b) weight(b);
  }

  for (ModelStage& stage : stages) {
    stage.fold_tied_gradient();
    for (const ModelParameter& parameter : stage.parameters()) {
      const auto gradient = stage.gradient(parameter);
      auto& to = outcome.gradients[parameter.name];
      if (to.empty()) {
        to.assign(gradient.begin(), gradient.end());
      } else {  // the exchange of a tied embedding: head + embedding
        ops::add({.left = gradient, .right = to, .output = to});
      }
    }
  }
  return outcome;
}

class ModelPipeline : public testing::TestWithParam<ModelShape> {};

TEST_P(ModelPipeline, every_cut_has_the_bits_of_the_single_stage) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Outcome single = train_step(GetParam(), {4}, 2, Order::kWhole, precision);
    for (const std::vector<int>& layers : std::vector<std::vector<int>>{
             {2, 2}, {1, 3}, {3, 1}, {1, 1, 1, 1}, {0, 4}, {4, 0}, {0, 1, 3, 0}}) {
      SCOPED_TRACE(testing::PrintToString(layers) + std::string(name_of(precision)));
      train_step(GetParam(), layers, 2, Order::kWhole, precision).expect_equal(single);
    }
  }
}

TEST_P(ModelPipeline, every_order_of_a_schedule_has_the_same_bits) {
  const Outcome whole = train_step(GetParam(), {4}, 1, Order::kWhole);
  for (const Order order : {Order::kGPipe, Order::kWeightsLast, Order::kWeightsMixed}) {
    SCOPED_TRACE(static_cast<int>(order));
    train_step(GetParam(), {4}, 1, order).expect_equal(whole);
    train_step(GetParam(), {1, 2, 1}, 1, order).expect_equal(whole);
  }
}

// Stronger than the design asks for: losses and weight gradients of 1 x 4 sequences are those of
// 2 x 2 and of 4 x 1, so the micro-batch is a matter of speed alone (on this backend).
TEST_P(ModelPipeline, the_micro_batch_does_not_matter) {
  // 13 rows are odd, and bf16 products take rows in pairs.
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Outcome one = train_step(GetParam(), {4}, 4, Order::kWhole, precision);
    for (const int sequences : {2, 1}) {
      train_step(GetParam(), {4}, sequences, Order::kWhole, precision).expect_equal(one);
    }
  }
}

TEST_P(ModelPipeline, every_instruction_set_has_the_same_bits) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Outcome portable;
    with_each_isa([&](Isa isa) {
      const Outcome outcome = train_step(GetParam(), {4}, 2, Order::kWhole, precision);
      if (isa == Isa::kPortable) portable = outcome;
      outcome.expect_equal(portable);
    });
  }
}

// A rounded operand is at most 2^-9 off. Over this model's few sums losses stay within a hundredth,
// and gradients within a tenth of their largest; that some differ shows that anything was rounded.
TEST_P(ModelPipeline, bf16_is_close_to_fp32) {
  const Outcome exact = train_step(GetParam(), {4}, 4, Order::kWhole);
  const Outcome rounded = train_step(GetParam(), {4}, 4, Order::kWhole, Precision::kBf16);
  EXPECT_FALSE(same_bits(exact.losses, rounded.losses));
  for (std::size_t i = 0; i < exact.losses.size(); ++i) {
    EXPECT_NEAR(rounded.losses[i], exact.losses[i], 0.01);
  }
  for (const auto& [name, gradient] : exact.gradients) {
    const std::vector<double> expected(gradient.begin(), gradient.end());
    EXPECT_LT(relative_difference(rounded.gradients.at(name), expected), 0.1) << name;
  }
}

TEST_P(ModelPipeline, in_bf16_what_leaves_a_stage_has_sixteen_bits) {
  auto stage = ModelStage::create(GetParam(), {1, 3, false, false}, Precision::kBf16).value();
  stage.initialise_weights(3);
  StageBatch batch(stage, 2);
  const auto input = random_values("input", batch.input().size());
  std::copy(input.begin(), input.end(), batch.input().begin());
  const auto expect_short = [](std::span<const float> values) {
    for (const float value : values) ASSERT_EQ(std::bit_cast<std::uint32_t>(value) & 0xffffu, 0u);
  };
  stage.forward(batch);
  expect_short(batch.output());
  stage.backward_input(batch, 1);
  expect_short(batch.input());
}

TEST(ModelStage, half_precision_is_refused_by_name) {
  const auto stage = ModelStage::create(small_model(true), {0, 4, true, true}, Precision::kFp16);
  ASSERT_FALSE(stage);
  EXPECT_TRUE(stage.error().message.contains("not in fp16")) << stage.error().message;
}

TEST_P(ModelPipeline, recomputing_from_the_input_gives_the_same_bits) {
  auto stage = ModelStage::create(GetParam(), {1, 3, false, false}).value();
  stage.initialise_weights(3);
  StageBatch batch(stage, 2);
  const auto input = random_values("input", batch.input().size());
  std::copy(input.begin(), input.end(), batch.input().begin());
  stage.forward(batch);
  const std::vector<float> output(batch.output().begin(), batch.output().end());
  stage.forward(batch);
  EXPECT_TRUE(same_bits(batch.output(), output));
  EXPECT_TRUE(same_bits(batch.input(), input));
}

TEST_P(ModelPipeline, logits_of_a_row_do_not_depend_on_later_tokens) {
  auto stage = ModelStage::create(GetParam(), {0, 4, true, true}).value();
  stage.initialise_weights(3);
  const auto logits_of_five = [&](std::int32_t rest) {
    StageBatch batch(stage, 1);
    std::fill(batch.tokens().begin(), batch.tokens().begin() + 5, 7);
    std::fill(batch.tokens().begin() + 5, batch.tokens().end(), rest);
    stage.forward(batch);
    const auto logits = stage.logits(batch).first(5 * 19);
    return std::vector<float>(logits.begin(), logits.end());
  };
  EXPECT_TRUE(same_bits(logits_of_five(0), logits_of_five(18)));
}

// The planner's memory model and the executor's storage count the same scalars.
TEST_P(ModelPipeline, sizes_are_those_of_the_model_math) {
  const ModelShape model = GetParam();
  const auto total = [&](const ModelSlice& slice) {
    std::size_t sum = 0;
    for (const auto& parameter : parameters_of(model, slice)) sum += parameter.size;
    return static_cast<double>(sum);
  };
  EXPECT_EQ(total({0, 4, true, true}), model_parameters(model));
  EXPECT_EQ(total({1, 2, false, false}), layer_parameters(model));
  // A middle stage keeps its layers' activations and one boundary tensor; the norms' statistics, 4
  // numbers (RMS norm: 2) a token and layer, and padding are what the formula leaves out.
  const auto stage = ModelStage::create(model, {1, 3, false, false}).value();
  const double formula = 2 * layer_activation_bytes(model, Precision::kFp32, 2).value() +
                         boundary_bytes(model, Precision::kFp32, 2).value();
  const double numbers = model.family == ModelFamily::kGpt2 ? 4 : 2;
  const double statistics = 2 * numbers * 26 * 4;
  const double kept = static_cast<double>(StageBatch(stage, 2).bytes());
  EXPECT_GE(kept, formula + statistics);
  EXPECT_LE(kept, formula + statistics + 25 * 64);
}

INSTANTIATE_TEST_SUITE_P(, ModelPipeline,
                         testing::Values(small_model(true), small_model(false), small_llama(true),
                                         small_llama(false)),
                         [](const auto& info) {
                           return std::string(name_of(info.param.family)) +
                                  (info.param.tied_embedding ? "_tied" : "_untied");
                         });

TEST(Gpt2, the_logits_are_those_of_the_losses) {
  auto stage = ModelStage::create(small_model(true), {0, 4, true, true}).value();
  stage.initialise_weights(3);
  StageBatch batch(stage, 2);
  for (std::size_t row = 0; row < batch.tokens().size(); ++row) {
    batch.tokens()[row] = static_cast<std::int32_t>(row * 5 % 19);
    batch.targets()[row] = static_cast<std::int32_t>(row * 3 % 19);
  }
  stage.forward(batch);
  StageBatch later(stage, 2);
  stage.forward(later);  // takes the place of the first one's logits
  const std::span<const float> logits = stage.logits(batch);
  ASSERT_EQ(logits.size(), 2u * 13 * 19);
  for (std::size_t row = 0; row < batch.tokens().size(); ++row) {
    // A row's loss is log(sum of e^logit) - logit of the target.
    double sum = 0;
    for (const float logit : logits.subspan(row * 19, 19)) sum += std::exp(double{logit});
    const auto target = static_cast<std::size_t>(batch.targets()[row]);
    EXPECT_NEAR(std::log(sum) - double{logits[row * 19 + target]}, double{batch.losses()[row]},
                1e-5);
  }
}

TEST(Gpt2, tensors_have_hugging_face_names_shapes_and_aligned_offsets) {
  const auto list = parameters_of(small_model(true), {1, 2, true, true});
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> expected = {
      {"wte.weight", {19, 20}},
      {"wpe.weight", {13, 20}},
      {"h.1.ln_1.weight", {20}},
      {"h.1.ln_1.bias", {20}},
      {"h.1.attn.c_attn.weight", {20, 60}},
      {"h.1.attn.c_attn.bias", {60}},
      {"h.1.attn.c_proj.weight", {20, 20}},
      {"h.1.attn.c_proj.bias", {20}},
      {"h.1.ln_2.weight", {20}},
      {"h.1.ln_2.bias", {20}},
      {"h.1.mlp.c_fc.weight", {20, 44}},
      {"h.1.mlp.c_fc.bias", {44}},
      {"h.1.mlp.c_proj.weight", {44, 20}},
      {"h.1.mlp.c_proj.bias", {20}},
      {"ln_f.weight", {20}},
      {"ln_f.bias", {20}}};
  ASSERT_EQ(list.size(), expected.size());
  std::size_t end = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].name, expected[i].first);
    EXPECT_EQ(list[i].shape, expected[i].second);
    EXPECT_EQ(list[i].offset % 16, 0u);
    EXPECT_GE(list[i].offset, end);
    EXPECT_LT(list[i].offset, end + 16);
    end = list[i].offset + list[i].size;
    EXPECT_EQ(list[i].decays(), list[i].shape.size() == 2);
  }
}

TEST(Gpt2, the_head_lists_its_matrix_by_where_it_lives) {
  const auto last_name = [](bool tied, bool embedding) {
    return parameters_of(small_model(tied), {3, 4, embedding, true}).back().name;
  };
  EXPECT_EQ(last_name(true, false), "wte.weight");
  EXPECT_EQ(last_name(true, true), "ln_f.bias");
  EXPECT_EQ(last_name(false, false), "lm_head.weight");
  EXPECT_EQ(last_name(false, true), "lm_head.weight");
}

TEST(Gpt2, initial_weights_do_not_depend_on_the_cut) {
  auto whole = ModelStage::create(small_model(true), {0, 4, true, true}).value();
  auto last = ModelStage::create(small_model(true), {3, 4, false, true}).value();
  whole.initialise_weights(9);
  last.initialise_weights(9);
  for (const auto& parameter : last.parameters()) {
    for (const auto& other : whole.parameters()) {
      if (other.name != parameter.name) continue;
      EXPECT_TRUE(same_bits(last.weight(parameter), whole.weight(other))) << other.name;
    }
  }
  // Deviations of 0.02 and, for residual projections of 4 layers, 0.02 / sqrt(8) = 0.00707; over
  // 1,200 and 400 draws their estimates stray by about 2 and 4 %.
  const auto deviation = [&](std::size_t index) {
    const auto values = whole.weight(whole.parameters()[index]);
    return std::sqrt(ops::sum_of_squares(values) / static_cast<double>(values.size()));
  };
  EXPECT_NEAR(deviation(4), 0.02, 0.002);                   // h.0.attn.c_attn.weight
  EXPECT_NEAR(deviation(6), 0.00707, 0.001);                // h.0.attn.c_proj.weight
  EXPECT_EQ(whole.weight(whole.parameters()[2])[0], 1.0f);  // h.0.ln_1.weight
  EXPECT_EQ(whole.weight(whole.parameters()[3])[0], 0.0f);  // h.0.ln_1.bias
}

TEST(Llama, residual_projections_begin_smaller) {
  auto stage = ModelStage::create(small_llama(true), {0, 4, true, true}).value();
  stage.initialise_weights(9);
  for (const auto& parameter : stage.parameters()) {
    const auto values = stage.weight(parameter);
    if (!parameter.decays()) {
      EXPECT_EQ(values[0], 1.0f) << parameter.name;
      continue;
    }
    // As for GPT-2: 0.02, and 0.02 / sqrt(8) for those that write into the stream. The estimate
    // from n draws strays by about 1 / sqrt(2 n); the smallest matrix has 240.
    const bool is_residual =
        parameter.name.ends_with("o_proj.weight") || parameter.name.ends_with("down_proj.weight");
    const double expected = is_residual ? 0.00707 : 0.02;
    const double deviation =
        std::sqrt(ops::sum_of_squares(values) / static_cast<double>(values.size()));
    EXPECT_NEAR(deviation, expected, 0.15 * expected) << parameter.name;
  }
}

TEST(ModelStage, shapes_and_slices_that_cannot_be_are_refused) {
  const auto code = [](const ModelShape& model, const ModelSlice& slice) {
    const auto stage = ModelStage::create(model, slice);
    return stage ? 0 : static_cast<int>(stage.error().code);
  };
  const auto changed = [&](ModelShape model, int ModelShape::* extent, int value) {
    model.*extent = value;
    return code(model, {0, 4, true, true});
  };
  const ModelShape good = small_model(true);
  EXPECT_EQ(code(good, {0, 4, true, true}), 0);
  EXPECT_EQ(code(good, {0, 0, true, false}), 0);
  EXPECT_EQ(code(good, {4, 4, false, true}), 0);
  EXPECT_EQ(code(good, {0, 0, false, false}), 2);
  EXPECT_EQ(code(good, {0, 5, true, true}), 2);
  EXPECT_EQ(code(good, {-1, 2, true, true}), 2);
  EXPECT_EQ(code(good, {3, 2, true, true}), 2);
  EXPECT_EQ(changed(good, &ModelShape::kv_heads, 1), 2);
  EXPECT_EQ(changed(good, &ModelShape::head_width, 8), 2);
  EXPECT_EQ(changed(good, &ModelShape::vocabulary, 0), 2);
  // Llama may have what GPT-2 has not, but key heads must divide query heads, and pairs the head.
  const ModelShape llama = small_llama(true);
  EXPECT_EQ(changed(llama, &ModelShape::kv_heads, 1), 0);
  EXPECT_EQ(changed(llama, &ModelShape::head_width, 8), 0);
  EXPECT_EQ(changed(llama, &ModelShape::kv_heads, 4), 2);
  EXPECT_EQ(changed(llama, &ModelShape::kv_heads, 0), 2);
  EXPECT_EQ(changed(llama, &ModelShape::head_width, 7), 2);
  ModelShape shape = llama;
  for (const double epsilon : {0.0, 1e-46, 2.0, std::nan("")}) {  // 1e-46 is 0 in fp32
    shape.norm_epsilon = epsilon;
    EXPECT_EQ(code(shape, {0, 4, true, true}), 2) << epsilon;
  }
  shape = llama;
  for (const double theta : {0.5, 1e13, std::nan("")}) {
    shape.rope_theta = theta;
    EXPECT_EQ(code(shape, {0, 4, true, true}), 2) << theta;
  }
  shape = llama;
  for (const RopeScaling& scaling :
       {RopeScaling{.factor = 0.5}, RopeScaling{.low_frequency = 0},
        RopeScaling{.high_frequency = 1}, RopeScaling{.original_context = 0}}) {
    shape.rope_scaling = scaling;
    EXPECT_EQ(code(shape, {0, 4, true, true}), 2);
  }
  shape.rope_scaling = RopeScaling{};
  EXPECT_EQ(code(shape, {0, 4, true, true}), 0);
}

TEST(Gpt2DeathTest, a_backward_without_its_forward_stops_the_program) {
  auto stage = ModelStage::create(small_model(true), {1, 2, false, false}).value();
  StageBatch batch(stage, 1);
  EXPECT_DEATH(stage.backward_input(batch, 1), "follows its forward");
  stage.forward(batch);
  EXPECT_DEATH(stage.backward_weight(batch, 1), "follows its input gradient");
  stage.backward(batch, 1);
  EXPECT_DEATH(stage.backward(batch, 1), "follows its forward");
  EXPECT_DEATH(static_cast<void>(stage.logits(batch)), "ends in the head");
}

}  // namespace
}  // namespace longhaul
