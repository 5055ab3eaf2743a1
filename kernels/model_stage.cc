// Parameters and storage of a stage; its arithmetic is in model_passes.cc.
#include "kernels/model_stage.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/rng.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

constexpr std::size_t kOffsetMultiple = 16;  // floats: 64 bytes

std::size_t round_up(std::size_t count) {
  return (count + kOffsetMultiple - 1) / kOffsetMultiple * kOffsetMultiple;
}

class ParameterList {
 public:
  void add(std::string name, std::vector<std::int64_t> shape) {
    std::size_t size = 1;
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    list_.push_back({std::move(name), std::move(shape), end_, size});
    end_ += round_up(size);
  }
  /// "<name>.weight" and "<name>.bias" of `out` outputs.
  void add_with_bias(const std::string& name, std::vector<std::int64_t> weight, std::int64_t out) {
    add(name + ".weight", std::move(weight));
    add(name + ".bias", {out});
  }
  std::vector<ModelParameter> take() { return std::move(list_); }

 private:
  std::vector<ModelParameter> list_;
  std::size_t end_ = 0;
};

/// Nearly normal, deviation 1: the sum of twelve uniforms, less its mean. Plain sums round alike on
/// every machine, which the logarithms of exact methods do not, and initial weights need no tails.
double nearly_normal(Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.uniform();
  return sum;
}

std::vector<ModelParameter> gpt2_parameters(const ModelShape& model, const ModelSlice& slice) {
  const std::int64_t width = model.width;
  const std::int64_t inner = model.ffn_width;
  ParameterList list;
  if (slice.has_embedding) {
    list.add("wte.weight", {model.vocabulary, width});
    list.add("wpe.weight", {model.context, width});
  }
  for (int layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    const std::string prefix = fmt::format("h.{}.", layer);
    list.add_with_bias(prefix + "ln_1", {width}, width);
    list.add_with_bias(prefix + "attn.c_attn", {width, 3 * width}, 3 * width);
    list.add_with_bias(prefix + "attn.c_proj", {width, width}, width);
    list.add_with_bias(prefix + "ln_2", {width}, width);
    list.add_with_bias(prefix + "mlp.c_fc", {width, inner}, inner);
    list.add_with_bias(prefix + "mlp.c_proj", {inner, width}, width);
  }
  if (slice.has_head) {
    list.add_with_bias("ln_f", {width}, width);
    if (!model.tied_embedding) {
      list.add("lm_head.weight", {model.vocabulary, width});
    } else if (!slice.has_embedding) {
      list.add("wte.weight", {model.vocabulary, width});
    }
  }
  return list.take();
}

/// Matrices are [out, in], without biases.
std::vector<ModelParameter> llama_parameters(const ModelShape& model, const ModelSlice& slice) {
  const std::int64_t width = model.width;
  const std::int64_t inner = model.ffn_width;
  const std::int64_t queries = std::int64_t{model.heads} * model.head_width;
  const std::int64_t keys = std::int64_t{model.kv_heads} * model.head_width;
  const std::string embedding = "model.embed_tokens.weight";
  ParameterList list;
  if (slice.has_embedding) list.add(embedding, {model.vocabulary, width});
  for (int layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    list.add(prefix + "input_layernorm.weight", {width});
    list.add(prefix + "self_attn.q_proj.weight", {queries, width});
    list.add(prefix + "self_attn.k_proj.weight", {keys, width});
    list.add(prefix + "self_attn.v_proj.weight", {keys, width});
    list.add(prefix + "self_attn.o_proj.weight", {width, queries});
    list.add(prefix + "post_attention_layernorm.weight", {width});
    list.add(prefix + "mlp.gate_proj.weight", {inner, width});
    list.add(prefix + "mlp.up_proj.weight", {inner, width});
    list.add(prefix + "mlp.down_proj.weight", {width, inner});
  }
  if (slice.has_head) {
    list.add("model.norm.weight", {width});
    if (!model.tied_embedding) {
      list.add("lm_head.weight", {model.vocabulary, width});
    } else if (!slice.has_embedding) {
      list.add(embedding, {model.vocabulary, width});
    }
  }
  return list.take();
}

}  // namespace

std::vector<ModelParameter> parameters_of(const ModelShape& model, const ModelSlice& slice) {
  return model.family == ModelFamily::kGpt2 ? gpt2_parameters(model, slice)
                                            : llama_parameters(model, slice);
}

// ---- storage

StageBatch::StageBatch(const ModelStage& stage, int sequences)
    : sequences_(sequences), rows_(ptrdiff_t{sequences} * stage.model().context) {
  LH_CHECK(sequences >= 1, "a micro-batch has a sequence");
  const ModelShape& model = stage.model();
  const auto rows = static_cast<std::size_t>(rows_);
  const std::size_t narrow = rows * static_cast<std::size_t>(model.width);
  const std::size_t inner = rows * static_cast<std::size_t>(model.ffn_width);
  const std::size_t scores = rows * static_cast<std::size_t>(model.heads);
  layers_.resize(static_cast<std::size_t>(stage.slice().end_layer - stage.slice().first_layer));

  // Twice over the same list: once to add up the sizes, once to hand out the spans.
  std::size_t used = 0;
  const auto take = [&](std::span<float>& part, std::size_t size) {
    if (!storage_.empty()) part = std::span(storage_).subspan(used, size);
    used += round_up(size);
  };
  const auto take_all = [&] {
    used = 0;
    for (Layer& layer : layers_) {
      for (auto* part : {&layer.input, &layer.norm1, &layer.attention, &layer.middle, &layer.norm2})
        take(*part, narrow);
      for (auto* part : {&layer.mean1, &layer.inverse1, &layer.mean2, &layer.inverse2})
        take(*part, rows);
      for (auto* part : {&layer.inner, &layer.gelu}) take(*part, inner);
      take(layer.qkv, 3 * narrow);
      take(layer.log_sum_exp, scores);
    }
    take(final_input_, narrow);
    if (stage.slice().has_head) {
      take(final_norm_, narrow);
      take(final_mean_, rows);
      take(final_inverse_, rows);
    }
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

std::size_t StageBatch::bytes() const {
  return (storage_.size() + losses_.size() + log_sum_exp_.size()) * sizeof(float) +
         (tokens_.size() + targets_.size()) * sizeof(std::int32_t);
}

// ---- parameters

Result<ModelStage> ModelStage::create(const ModelShape& model, const ModelSlice& slice) {
  if (model.family != ModelFamily::kGpt2) return invalid("the model is not of the gpt2 family");
  for (const int extent :
       {model.layers, model.width, model.heads, model.ffn_width, model.context, model.vocabulary}) {
    if (extent < 1) return invalid("every extent of the model must be at least 1");
  }
  if (model.kv_heads != model.heads || model.heads * model.head_width != model.width) {
    return invalid(
        fmt::format("GPT-2 attention needs heads x head width = width and as many key "
                    "as query heads, not {} x {}, width {}, {} key heads",
                    model.heads, model.head_width, model.width, model.kv_heads));
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
  stage.parameters_ = parameters_of(model, slice);
  stage.first_layer_index_ = slice.has_embedding ? 2 : 0;
  if (slice.has_head) {
    stage.final_norm_index_ =
        stage.first_layer_index_ + kLayerTensors * (slice.end_layer - slice.first_layer);
    const bool shared = model.tied_embedding && slice.has_embedding;
    stage.head_index_ = shared ? 0 : stage.final_norm_index_ + 2;
    if (shared) stage.tied_head_gradient_.assign(stage.parameters_[0].size, 0.0f);
  }
  const ModelParameter& last = stage.parameters_.back();
  stage.weights_.assign(last.offset + round_up(last.size), 0.0f);
  stage.gradients_ = stage.weights_;
  return stage;
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
    const bool is_residual = parameter.name.ends_with(".c_proj.weight");
    const double deviation = is_residual ? 0.02 / std::sqrt(2.0 * model_.layers) : 0.02;
    Rng rng(parameter.name, seed);
    for (float& value : values) value = static_cast<float>(deviation * nearly_normal(rng));
  }
}

std::span<float> ModelStage::tensor(std::vector<float>& from, int index) {
  const ModelParameter& parameter = parameters_[static_cast<std::size_t>(index)];
  return std::span(from).subspan(parameter.offset, parameter.size);
}

std::span<float> ModelStage::layer_tensor(std::vector<float>& from, ptrdiff_t layer, int index) {
  return tensor(from, first_layer_index_ + static_cast<int>(layer) * kLayerTensors + index);
}

std::span<float> ModelStage::head_gradient() {
  return tied_head_gradient_.empty() ? tensor(gradients_, head_index_)
                                     : std::span(tied_head_gradient_);
}

}  // namespace longhaul
