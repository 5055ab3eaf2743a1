// Forward and backward of a stage: embedding, layers, head, loss.
#include <algorithm>

#include "kernels/cpu/bf16.h"
#include "kernels/model_stage.h"

namespace longhaul {

using std::ptrdiff_t;

// ---- forward

ops::LinearShape ModelStage::head_linear(const StageBatch& batch) const {
  return {.rows = batch.rows(),
          .in = model_.width,
          .out = model_.vocabulary,
          .layout = ops::WeightLayout::kOutIn,
          .bf16 = bf16_};
}

LayerPass ModelStage::layer_pass(const StageBatch& batch, std::size_t layer) const {
  return {.model = model_,
          .bf16 = bf16_,
          .sequences = batch.sequences_,
          .context = model_.context,
          .rotary = rotary_,
          .weights = weight_tensors_.layers[layer],
          .gradients = gradient_tensors_.layers[layer]};
}

void ModelStage::forward(StageBatch& batch) {
  batch.serial_ = ++forwards_;
  if (slice_.has_embedding) {
    ops::embedding_forward({.shape = {batch.sequences_, model_.context, model_.width},
                            .tokens = batch.tokens_,
                            .token_table = weight_tensors_.token_table,
                            .position_table = weight_tensors_.position_table,
                            .output = batch.input()});
    if (bf16_) round_to_bf16(batch.input());
  }
  if (!batch.layers_.empty()) rotary_.cover(model_.context);
  for (std::size_t layer = 0; layer < batch.layers_.size(); ++layer) {
    layer_forward(layer_pass(batch, layer), batch.layers_[layer], batch.output_of(layer));
  }
  if (slice_.has_head) forward_head(batch);
  batch.state_ = StageBatch::State::kForwardDone;
}

void ModelStage::forward_head(StageBatch& batch) {
  norm_forward(model_, batch.final_input_, weight_tensors_.final_norm, batch.final_norm_);
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
                         .input = batch.final_norm_.output,
                         .weight = weight_tensors_.head,
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

void ModelStage::backward_input(StageBatch& batch, float loss_scale) {
  LH_CHECK(batch.state_ == StageBatch::State::kForwardDone, "a backward follows its forward");
  scratch_.fit(model_, batch.rows_);
  if (slice_.has_head) {
    const std::span<float> of_norm = std::span(scratch_.narrow).first(batch.final_input_.size());
    const std::span<float> of_input = std::span(scratch_.narrow2).first(batch.final_input_.size());
    ops::linear_backward_input({.shape = head_linear(batch),
                                .weight = weight_tensors_.head,
                                .output_gradient = logits_gradient_of(batch, loss_scale),
                                .input_gradient = of_norm});
    norm_backward(model_, of_norm, batch.final_input_, batch.final_norm_,
                  weight_tensors_.final_norm, gradient_tensors_.final_norm, of_input);
    std::copy(of_input.begin(), of_input.end(), batch.final_input_.begin());
    if (bf16_) round_to_bf16(batch.final_input_);
  }
  for (std::size_t layer = batch.layers_.size(); layer-- > 0;) {
    layer_backward_input(layer_pass(batch, layer), batch.layers_[layer], scratch_,
                         batch.output_of(layer));
  }
  batch.state_ = StageBatch::State::kInputDone;
}

void ModelStage::backward_weight(StageBatch& batch, float loss_scale) {
  LH_CHECK(batch.state_ == StageBatch::State::kInputDone,
           "a weight gradient follows its input gradient");
  if (slice_.has_head) {
    ops::linear_backward_weight({.shape = head_linear(batch),
                                 .input = batch.final_norm_.output,
                                 .output_gradient = logits_gradient_of(batch, loss_scale),
                                 .weight_gradient = gradient_tensors_.head,
                                 .bias_gradient = {}});
  }
  for (std::size_t layer = batch.layers_.size(); layer-- > 0;) {
    layer_backward_weight(layer_pass(batch, layer), batch.layers_[layer], batch.output_of(layer));
  }
  if (slice_.has_embedding) {
    ops::embedding_backward({.shape = {batch.sequences_, model_.context, model_.width},
                             .tokens = batch.tokens_,
                             .output_gradient = batch.input(),
                             .token_table_gradient = gradient_tensors_.token_table,
                             .position_table_gradient = gradient_tensors_.position_table});
  }
  batch.state_ = StageBatch::State::kEmpty;
}

void ModelStage::backward(StageBatch& batch, float loss_scale) {
  backward_input(batch, loss_scale);
  backward_weight(batch, loss_scale);
}

}  // namespace longhaul
