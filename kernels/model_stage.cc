// Parameters and storage of a stage; its arithmetic is in model_passes.cc.
#include "kernels/model_stage.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "core/rng.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

/// Nearly normal, deviation 1: the sum of twelve uniforms, less its mean. Plain sums round alike on
/// every machine, which the logarithms of exact methods do not, and initial weights need no tails.
double nearly_normal(Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.uniform();
  return sum;
}

}  // namespace

// ---- storage

StageBatch::StageBatch(const ModelStage& stage, int sequences)
    : sequences_(sequences), rows_(ptrdiff_t{sequences} * stage.model().context) {
  LH_CHECK(sequences >= 1, "a micro-batch has a sequence");
  const ModelShape& model = stage.model();
  const auto rows = static_cast<std::size_t>(rows_);
  layers_.resize(static_cast<std::size_t>(stage.slice().end_layer - stage.slice().first_layer));

  // Twice over the same list: once to add up the sizes, once to hand out the spans.
  std::size_t used = 0;
  const auto take = [&](std::span<float>& part, ptrdiff_t floats) {
    const auto size = static_cast<std::size_t>(floats);
    if (!storage_.empty()) part = std::span(storage_).subspan(used, size);
    used += round_up_to_line(size);
  };
  const auto take_all = [&] {
    used = 0;
    for (LayerState& layer : layers_) layer.lay_out(model, rows_, take);
    take(final_input_, rows_ * model.width);
    if (stage.slice().has_head) lay_out_norm(final_norm_, model, rows_, take);
  };
  take_all();
  storage_.resize(used);
  take_all();
  if (stage.slice().has_embedding) tokens_.assign(rows, 0);
  if (stage.slice().has_head) {
    targets_.assign(rows, ops::kIgnoredTarget);
    losses_.resize(rows);
    log_sum_exp_.resize(rows);
  }
}

std::span<float> StageBatch::input() {
  return layers_.empty() ? final_input_ : layers_.front().input;
}

std::span<float> StageBatch::output() {
  return final_input_;
}

std::span<float> StageBatch::output_of(std::size_t layer) {
  return layer + 1 == layers_.size() ? final_input_ : layers_[layer + 1].input;
}

std::size_t StageBatch::bytes() const {
  return (storage_.size() + losses_.size() + log_sum_exp_.size()) * sizeof(float) +
         (tokens_.size() + targets_.size()) * sizeof(std::int32_t);
}

// ---- parameters

namespace {

/// Keeps every angle of a rotary table finite.
bool is_rotary(double theta, const std::optional<RopeScaling>& scaling) {
  if (!(theta >= 1 && theta <= 1e12)) return false;
  if (!scaling) return true;
  return scaling->factor >= 1 && std::isfinite(scaling->factor) && scaling->low_frequency > 0 &&
         scaling->high_frequency > scaling->low_frequency &&
         std::isfinite(scaling->high_frequency) && scaling->original_context >= 1;
}

Result<void> check_shape(const ModelShape& model) {
  for (const int extent : {model.layers, model.width, model.heads, model.kv_heads, model.head_width,
                           model.ffn_width, model.context, model.vocabulary}) {
    if (extent < 1) return invalid("every extent of the model must be at least 1");
  }
  // What fp32 takes for 0 would leave rows of zeros without a norm.
  if (!(static_cast<float>(model.norm_epsilon) > 0 && model.norm_epsilon <= 1)) {
    return invalid(fmt::format("a norm's epsilon cannot be {}", model.norm_epsilon));
  }
  if (model.family == ModelFamily::kLlama) {
    if (!is_rotary(model.rope_theta, model.rope_scaling)) {
      return invalid(
          "rotary positions need a theta from 1 to 1e12, a factor of at least 1, and a high "
          "frequency above the low one");
    }
    if (model.heads % model.kv_heads != 0) {
      return invalid(fmt::format("{} query heads cannot share {} key-value heads evenly",
                                 model.heads, model.kv_heads));
    }
    if (model.head_width % 2 != 0) {
      return invalid(fmt::format(
          "rotary positions turn pairs, so a head's width must be even, not {}", model.head_width));
    }
  } else if (model.kv_heads != model.heads ||
             std::int64_t{model.heads} * model.head_width != model.width) {
    return invalid(
        fmt::format("GPT-2 attention needs heads x head width = width and as many key "
                    "as query heads, not {} x {}, width {}, {} key heads",
                    model.heads, model.head_width, model.width, model.kv_heads));
  }
  return {};
}

/// Whether a matrix writes into the residual stream.
bool is_residual(std::string_view name) {
  return name.ends_with(".c_proj.weight") || name.ends_with(".o_proj.weight") ||
         name.ends_with(".down_proj.weight");
}

}  // namespace

Result<ModelStage> ModelStage::create(const ModelShape& model, const ModelSlice& slice,
                                      Precision precision) {
  LH_TRY(check_shape(model));
  if (precision == Precision::kFp16) {
    return invalid("the CPU kernels compute in fp32 or bf16, not in fp16");
  }
  if (slice.first_layer < 0 || slice.end_layer < slice.first_layer ||
      slice.end_layer > model.layers) {
    return invalid(fmt::format("layers [{}, {}) are not layers of a model of {}", slice.first_layer,
                               slice.end_layer, model.layers));
  }
  if (slice.first_layer == slice.end_layer && !slice.has_embedding && !slice.has_head) {
    return invalid("a stage needs a layer, the embedding or the head");
  }
  ModelStage stage;
  stage.model_ = model;
  stage.slice_ = slice;
  stage.bf16_ = precision == Precision::kBf16;
  stage.parameters_ = parameters_of(model, slice);
  stage.rotary_ = RotaryTable(model);
  const ModelParameter& last = stage.parameters_.back();
  stage.weights_.assign(last.offset + round_up_to_line(last.size), 0.0f);
  stage.gradients_ = stage.weights_;
  stage.weight_tensors_ = stage.tensors_of(stage.weights_);
  stage.gradient_tensors_ = stage.tensors_of(stage.gradients_);
  if (model.tied_embedding && slice.has_embedding && slice.has_head) {
    stage.tied_head_gradient_.assign(stage.parameters_[0].size, 0.0f);
    stage.gradient_tensors_.head = stage.tied_head_gradient_;
  }
  return stage;
}

ModelStage::Tensors ModelStage::tensors_of(std::span<float> storage) const {
  TensorCursor cursor(parameters_, storage);
  Tensors tensors;
  if (slice_.has_embedding) {
    tensors.token_table = cursor.next();
    if (model_.family == ModelFamily::kGpt2) tensors.position_table = cursor.next();
  }
  for (int layer = slice_.first_layer; layer < slice_.end_layer; ++layer) {
    tensors.layers.push_back(cursor.next_layer(model_.family));
  }
  if (slice_.has_head) {
    tensors.final_norm = cursor.next_norm(model_.family);
    const bool is_shared = model_.tied_embedding && slice_.has_embedding;
    tensors.head = is_shared ? tensors.token_table : cursor.next();
  }
  return tensors;
}

std::span<float> ModelStage::weight(const ModelParameter& parameter) {
  return std::span(weights_).subspan(parameter.offset, parameter.size);
}

std::span<float> ModelStage::gradient(const ModelParameter& parameter) {
  return std::span(gradients_).subspan(parameter.offset, parameter.size);
}

void ModelStage::zero_gradients() {
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  std::fill(tied_head_gradient_.begin(), tied_head_gradient_.end(), 0.0f);
}

void ModelStage::fold_tied_gradient() {
  if (tied_head_gradient_.empty()) return;
  const std::span<float> embedding = gradient(parameters_[0]);
  ops::add({.left = tied_head_gradient_, .right = embedding, .output = embedding});
  std::fill(tied_head_gradient_.begin(), tied_head_gradient_.end(), 0.0f);
}

void ModelStage::initialise_weights(std::uint64_t seed) {
  for (const ModelParameter& parameter : parameters_) {
    const std::span<float> values = weight(parameter);
    if (!parameter.decays()) {
      const bool is_norm_weight = parameter.name.ends_with(".weight");
      std::fill(values.begin(), values.end(), is_norm_weight ? 1.0f : 0.0f);
      continue;
    }
    const double deviation =
        is_residual(parameter.name) ? 0.02 / std::sqrt(2.0 * model_.layers) : 0.02;
    Rng rng(parameter.name, seed);
    for (float& value : values) value = static_cast<float>(deviation * nearly_normal(rng));
  }
}

}  // namespace longhaul
