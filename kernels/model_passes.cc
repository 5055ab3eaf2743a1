// Forward and backward of a stage: which operation reads and writes what.
#include <algorithm>

#include "kernels/model_stage.h"

namespace longhaul {

using std::ptrdiff_t;

// ---- forward

ops::LinearShape ModelStage::linear(const StageBatch& batch, int in, int out) const {
  return {.rows = batch.rows(), .in = in, .out = out};
}

ops::LinearShape ModelStage::head_linear(const StageBatch& batch) const {
  return {.rows = batch.rows(),
          .in = model_.width,
          .out = model_.vocabulary,
          .layout = ops::WeightLayout::kOutIn};
}

void ModelStage::forward(StageBatch& batch) {
  batch.serial_ = ++forwards_;
  if (slice_.has_embedding) {
    ops::embedding_forward({.shape = {batch.sequences_, model_.context, model_.width},
                            .tokens = batch.tokens_,
                            .token_table = tensor(weights_, 0),
                            .position_table = tensor(weights_, 1),
                            .output = batch.input()});
  }
  const auto layers = static_cast<ptrdiff_t>(batch.layers_.size());
  for (ptrdiff_t layer = 0; layer < layers; ++layer) {
    const bool is_last = layer + 1 == layers;
    forward_layer(
        batch, layer,
        is_last ? batch.final_input_ : batch.layers_[static_cast<std::size_t>(layer + 1)].input);
  }
  if (slice_.has_head) forward_head(batch);
  batch.state_ = StageBatch::State::kForwardDone;
}

void ModelStage::forward_layer(StageBatch& batch, ptrdiff_t layer, std::span<float> output) {
  auto& a = batch.layers_[static_cast<std::size_t>(layer)];
  const auto weight = [&](int index) { return layer_tensor(weights_, layer, index); };
  const int width = model_.width;
  const int inner = model_.ffn_width;
  const ops::LayerNormShape norm = {batch.rows_, width};

  ops::layer_norm_forward({.shape = norm,
                           .input = a.input,
                           .weight = weight(kNorm1Weight),
                           .bias = weight(kNorm1Bias),
                           .output = a.norm1,
                           .mean = a.mean1,
                           .inverse_deviation = a.inverse1});
  ops::linear_forward({.shape = linear(batch, width, 3 * width),
                       .input = a.norm1,
                       .weight = weight(kQkvWeight),
                       .bias = weight(kQkvBias),
                       .output = a.qkv});
  ops::attention_forward({.shape = {batch.sequences_, model_.context, model_.heads, model_.kv_heads,
                                    model_.head_width},
                          .qkv = a.qkv,
                          .output = a.attention,
                          .log_sum_exp = a.log_sum_exp});
  ops::linear_forward({.shape = linear(batch, width, width),
                       .input = a.attention,
                       .weight = weight(kProjectionWeight),
                       .bias = weight(kProjectionBias),
                       .output = a.middle});
  ops::add({.left = a.input, .right = a.middle, .output = a.middle});
  ops::layer_norm_forward({.shape = norm,
                           .input = a.middle,
                           .weight = weight(kNorm2Weight),
                           .bias = weight(kNorm2Bias),
                           .output = a.norm2,
                           .mean = a.mean2,
                           .inverse_deviation = a.inverse2});
  ops::linear_forward({.shape = linear(batch, width, inner),
                       .input = a.norm2,
                       .weight = weight(kInnerWeight),
                       .bias = weight(kInnerBias),
                       .output = a.inner});
  ops::gelu_forward({.input = a.inner, .output = a.gelu});
  ops::linear_forward({.shape = linear(batch, inner, width),
                       .input = a.gelu,
                       .weight = weight(kOuterWeight),
                       .bias = weight(kOuterBias),
                       .output = output});
  ops::add({.left = a.middle, .right = output, .output = output});
}

void ModelStage::forward_head(StageBatch& batch) {
  ops::layer_norm_forward({.shape = {batch.rows_, model_.width},
                           .input = batch.final_input_,
                           .weight = tensor(weights_, final_norm_index_),
                           .bias = tensor(weights_, final_norm_index_ + 1),
                           .output = batch.final_norm_,
                           .mean = batch.final_mean_,
                           .inverse_deviation = batch.final_inverse_});
  ops::cross_entropy_forward({.shape = {batch.rows_, model_.vocabulary},
                              .logits = logits_of(batch),
                              .targets = batch.targets_,
                              .losses = batch.losses_,
                              .log_sum_exp = batch.log_sum_exp_});
}

// Logits are the largest tensor by far, so there is one copy a stage, not one a micro-batch. Under
// 1F1B the last stage runs each backward right after its forward and finds them here; other
// schedules pay the head's product again, which gives the same bits.
std::span<float> ModelStage::logits_of(StageBatch& batch) {
  if (logits_hold_ != Logits::kValues || logits_serial_ != batch.serial_) {
    logits_.resize(static_cast<std::size_t>(batch.rows_) *
                   static_cast<std::size_t>(model_.vocabulary));
    ops::linear_forward({.shape = head_linear(batch),
                         .input = batch.final_norm_,
                         .weight = tensor(weights_, head_index_),
                         .bias = {},
                         .output = logits_});
    logits_hold_ = Logits::kValues;
    logits_serial_ = batch.serial_;
  }
  return logits_;
}

std::span<const float> ModelStage::logits(StageBatch& batch) {
  LH_CHECK(slice_.has_head && batch.state_ == StageBatch::State::kForwardDone,
           "logits follow a forward that ends in the head");
  return logits_of(batch);
}

std::span<float> ModelStage::logits_gradient_of(StageBatch& batch, float loss_scale) {
  if (logits_hold_ != Logits::kGradient || logits_serial_ != batch.serial_) {
    const std::span<float> logits = logits_of(batch);
    ops::cross_entropy_backward({.shape = {batch.rows_, model_.vocabulary},
                                 .logits = logits,
                                 .targets = batch.targets_,
                                 .log_sum_exp = batch.log_sum_exp_,
                                 .scale = loss_scale,
                                 .logits_gradient = logits});
    logits_hold_ = Logits::kGradient;
  }
  return logits_;
}

// ---- backward

void ModelStage::backward_norm(std::span<const float> output_gradient, std::span<const float> input,
                               std::span<const float> mean, std::span<const float> inverse,
                               std::span<const float> weight, std::span<float> weight_gradient,
                               std::span<float> bias_gradient, std::span<float> input_gradient) {
  const ops::LayerNormShape shape = {static_cast<ptrdiff_t>(mean.size()), model_.width};
  ops::layer_norm_backward_weight({.shape = shape,
                                   .input = input,
                                   .mean = mean,
                                   .inverse_deviation = inverse,
                                   .output_gradient = output_gradient,
                                   .weight_gradient = weight_gradient,
                                   .bias_gradient = bias_gradient});
  ops::layer_norm_backward_input({.shape = shape,
                                  .input = input,
                                  .weight = weight,
                                  .mean = mean,
                                  .inverse_deviation = inverse,
                                  .output_gradient = output_gradient,
                                  .input_gradient = input_gradient});
}

void ModelStage::backward_input(StageBatch& batch, float loss_scale) {
  LH_CHECK(batch.state_ == StageBatch::State::kForwardDone, "a backward follows its forward");
  const auto rows = static_cast<std::size_t>(batch.rows_);
  const int wide = std::max(3 * model_.width, model_.ffn_width);
  narrow_.resize(rows * static_cast<std::size_t>(model_.width));
  narrow2_.resize(narrow_.size());
  wide_.resize(rows * static_cast<std::size_t>(wide));

  if (slice_.has_head) {
    ops::linear_backward_input({.shape = head_linear(batch),
                                .weight = tensor(weights_, head_index_),
                                .output_gradient = logits_gradient_of(batch, loss_scale),
                                .input_gradient = narrow_});
    backward_norm(narrow_, batch.final_input_, batch.final_mean_, batch.final_inverse_,
                  tensor(weights_, final_norm_index_), tensor(gradients_, final_norm_index_),
                  tensor(gradients_, final_norm_index_ + 1), narrow2_);
    std::copy(narrow2_.begin(), narrow2_.end(), batch.final_input_.begin());
  }
  std::span<const float> output_gradient = batch.final_input_;
  for (auto layer = static_cast<ptrdiff_t>(batch.layers_.size()) - 1; layer >= 0; --layer) {
    backward_layer_input(batch, layer, output_gradient);
    output_gradient = batch.layers_[static_cast<std::size_t>(layer)].input;
  }
  batch.state_ = StageBatch::State::kInputDone;
}

void ModelStage::backward_layer_input(StageBatch& batch, ptrdiff_t layer,
                                      std::span<const float> output_gradient) {
  auto& a = batch.layers_[static_cast<std::size_t>(layer)];
  const auto weight = [&](int index) { return layer_tensor(weights_, layer, index); };
  const auto gradient = [&](int index) { return layer_tensor(gradients_, layer, index); };
  const int width = model_.width;
  const int inner = model_.ffn_width;
  const std::span<float> of_gelu = std::span(wide_).first(a.inner.size());
  const std::span<float> of_qkv = std::span(wide_).first(a.qkv.size());

  ops::linear_backward_input({.shape = linear(batch, inner, width),
                              .weight = weight(kOuterWeight),
                              .output_gradient = output_gradient,
                              .input_gradient = of_gelu});
  ops::gelu_backward({.input = a.inner, .output_gradient = of_gelu, .input_gradient = a.inner});
  ops::linear_backward_input({.shape = linear(batch, width, inner),
                              .weight = weight(kInnerWeight),
                              .output_gradient = a.inner,
                              .input_gradient = narrow_});
  backward_norm(narrow_, a.middle, a.mean2, a.inverse2, weight(kNorm2Weight),
                gradient(kNorm2Weight), gradient(kNorm2Bias), narrow2_);
  ops::add({.left = output_gradient, .right = narrow2_, .output = a.middle});

  ops::linear_backward_input({.shape = linear(batch, width, width),
                              .weight = weight(kProjectionWeight),
                              .output_gradient = a.middle,
                              .input_gradient = narrow_});
  ops::attention_backward({.shape = {batch.sequences_, model_.context, model_.heads,
                                     model_.kv_heads, model_.head_width},
                           .qkv = a.qkv,
                           .output = a.attention,
                           .log_sum_exp = a.log_sum_exp,
                           .output_gradient = narrow_,
                           .qkv_gradient = of_qkv});
  std::copy(of_qkv.begin(), of_qkv.end(), a.qkv.begin());
  ops::linear_backward_input({.shape = linear(batch, width, 3 * width),
                              .weight = weight(kQkvWeight),
                              .output_gradient = a.qkv,
                              .input_gradient = narrow_});
  backward_norm(narrow_, a.input, a.mean1, a.inverse1, weight(kNorm1Weight), gradient(kNorm1Weight),
                gradient(kNorm1Bias), narrow2_);
  ops::add({.left = a.middle, .right = narrow2_, .output = a.input});
}

void ModelStage::backward_weight(StageBatch& batch, float loss_scale) {
  LH_CHECK(batch.state_ == StageBatch::State::kInputDone,
           "a weight gradient follows its input gradient");
  if (slice_.has_head) {
    ops::linear_backward_weight({.shape = head_linear(batch),
                                 .input = batch.final_norm_,
                                 .output_gradient = logits_gradient_of(batch, loss_scale),
                                 .weight_gradient = head_gradient(),
                                 .bias_gradient = {}});
  }
  std::span<const float> output_gradient = batch.final_input_;
  for (auto layer = static_cast<ptrdiff_t>(batch.layers_.size()) - 1; layer >= 0; --layer) {
    backward_layer_weight(batch, layer, output_gradient);
    output_gradient = batch.layers_[static_cast<std::size_t>(layer)].input;
  }
  if (slice_.has_embedding) {
    ops::embedding_backward({.shape = {batch.sequences_, model_.context, model_.width},
                             .tokens = batch.tokens_,
                             .output_gradient = output_gradient,
                             .token_table_gradient = tensor(gradients_, 0),
                             .position_table_gradient = tensor(gradients_, 1)});
  }
  batch.state_ = StageBatch::State::kEmpty;
}

void ModelStage::backward_layer_weight(StageBatch& batch, ptrdiff_t layer,
                                       std::span<const float> output_gradient) {
  const auto& a = batch.layers_[static_cast<std::size_t>(layer)];
  const auto gradient = [&](int index) { return layer_tensor(gradients_, layer, index); };
  const int width = model_.width;
  const int inner = model_.ffn_width;
  ops::linear_backward_weight({.shape = linear(batch, inner, width),
                               .input = a.gelu,
                               .output_gradient = output_gradient,
                               .weight_gradient = gradient(kOuterWeight),
                               .bias_gradient = gradient(kOuterBias)});
  ops::linear_backward_weight({.shape = linear(batch, width, inner),
                               .input = a.norm2,
                               .output_gradient = a.inner,
                               .weight_gradient = gradient(kInnerWeight),
                               .bias_gradient = gradient(kInnerBias)});
  ops::linear_backward_weight({.shape = linear(batch, width, width),
                               .input = a.attention,
                               .output_gradient = a.middle,
                               .weight_gradient = gradient(kProjectionWeight),
                               .bias_gradient = gradient(kProjectionBias)});
  ops::linear_backward_weight({.shape = linear(batch, width, 3 * width),
                               .input = a.norm1,
                               .output_gradient = a.qkv,
                               .weight_gradient = gradient(kQkvWeight),
                               .bias_gradient = gradient(kQkvBias)});
}

void ModelStage::backward(StageBatch& batch, float loss_scale) {
  backward_input(batch, loss_scale);
  backward_weight(batch, loss_scale);
}

}  // namespace longhaul
