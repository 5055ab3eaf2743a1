#include "kernels/model_layer.h"

#include <algorithm>

namespace longhaul {
namespace {

using std::ptrdiff_t;

std::span<float> first(std::vector<float>& from, std::size_t count) {
  return std::span(from).first(count);
}

ops::LinearShape linear(const LayerPass& pass, ptrdiff_t in, ptrdiff_t out) {
  return {.rows = pass.rows(), .in = in, .out = out};
}

}  // namespace

// ---- tensors

std::span<float> TensorCursor::next() {
  const ModelParameter& parameter = parameters_.front();
  parameters_ = parameters_.subspan(1);
  return storage_.subspan(parameter.offset, parameter.size);
}

TensorPair TensorCursor::next_norm(ModelFamily) {
  const std::span<float> weight = next();
  return {weight, next()};
}

LayerTensors TensorCursor::next_layer(ModelFamily family) {
  const auto next_matrix = [&]() -> TensorPair {
    const std::span<float> weight = next();
    return {weight, next()};
  };
  LayerTensors layer;
  layer.norm1 = next_norm(family);
  for (TensorPair& matrix : layer.qkv) matrix = next_matrix();
  layer.projection = next_matrix();
  layer.norm2 = next_norm(family);
  layer.inner = next_matrix();
  layer.outer = next_matrix();
  return layer;
}

void LayerScratch::fit(const ModelShape& model, ptrdiff_t rows) {
  const ops::AttentionShape heads = attention_shape(model, 1, rows);
  const auto size = [rows](ptrdiff_t width) { return static_cast<std::size_t>(rows * width); };
  narrow.resize(size(std::max<ptrdiff_t>(model.width, heads.width())));
  narrow2.resize(narrow.size());
  wide.resize(size(std::max<ptrdiff_t>(model.ffn_width, heads.qkv_width())));
}

ops::AttentionShape attention_shape(const ModelShape& model, ptrdiff_t sequences,
                                    ptrdiff_t context) {
  return {.sequences = sequences,
          .context = context,
          .heads = model.heads,
          .kv_heads = model.kv_heads,
          .head_width = model.head_width};
}

// ---- norms

void norm_forward(const ModelShape& model, std::span<const float> input, const TensorPair& weights,
                  const NormState& state) {
  ops::layer_norm_forward(
      {.shape = {static_cast<ptrdiff_t>(state.inverse_deviation.size()), model.width},
       .input = input,
       .weight = weights.weight,
       .bias = weights.bias,
       .output = state.output,
       .mean = state.mean,
       .inverse_deviation = state.inverse_deviation});
}

void norm_backward(const ModelShape& model, std::span<const float> output_gradient,
                   std::span<const float> input, const NormState& state, const TensorPair& weights,
                   const TensorPair& gradients, std::span<float> input_gradient) {
  const ops::LayerNormShape shape = {static_cast<ptrdiff_t>(state.inverse_deviation.size()),
                                     model.width};
  ops::layer_norm_backward_weight({.shape = shape,
                                   .input = input,
                                   .mean = state.mean,
                                   .inverse_deviation = state.inverse_deviation,
                                   .output_gradient = output_gradient,
                                   .weight_gradient = gradients.weight,
                                   .bias_gradient = gradients.bias});
  ops::layer_norm_backward_input({.shape = shape,
                                  .input = input,
                                  .weight = weights.weight,
                                  .mean = state.mean,
                                  .inverse_deviation = state.inverse_deviation,
                                  .output_gradient = output_gradient,
                                  .input_gradient = input_gradient});
}

// ---- forward

void layer_forward(const LayerPass& pass, const LayerState& a, std::span<float> output) {
  const ModelShape& model = pass.model;
  const ops::AttentionShape heads = attention_shape(model, pass.sequences, pass.context);
  const LayerTensors& w = pass.weights;

  norm_forward(model, a.input, w.norm1, a.norm1);
  ops::linear_forward({.shape = linear(pass, model.width, heads.qkv_width()),
                       .input = a.norm1.output,
                       .weight = w.qkv[0].weight,
                       .bias = w.qkv[0].bias,
                       .output = a.qkv});
  ops::attention_forward(
      {.shape = heads, .qkv = a.qkv, .output = a.attention, .log_sum_exp = a.log_sum_exp});
  ops::linear_forward({.shape = linear(pass, heads.width(), model.width),
                       .input = a.attention,
                       .weight = w.projection.weight,
                       .bias = w.projection.bias,
                       .output = a.middle});
  ops::add({.left = a.input, .right = a.middle, .output = a.middle});

  norm_forward(model, a.middle, w.norm2, a.norm2);
  ops::linear_forward({.shape = linear(pass, model.width, model.ffn_width),
                       .input = a.norm2.output,
                       .weight = w.inner.weight,
                       .bias = w.inner.bias,
                       .output = a.inner});
  ops::gelu_forward({.input = a.inner, .output = a.activated});
  ops::linear_forward({.shape = linear(pass, model.ffn_width, model.width),
                       .input = a.activated,
                       .weight = w.outer.weight,
                       .bias = w.outer.bias,
                       .output = output});
  ops::add({.left = a.middle, .right = output, .output = output});
}

// ---- backward

void layer_backward_input(const LayerPass& pass, const LayerState& a, LayerScratch& scratch,
                          std::span<const float> output_gradient) {
  const ModelShape& model = pass.model;
  const ops::AttentionShape heads = attention_shape(model, pass.sequences, pass.context);
  const LayerTensors& w = pass.weights;
  const std::span<float> narrow = first(scratch.narrow, a.input.size());
  const std::span<float> narrow2 = first(scratch.narrow2, a.input.size());
  const std::span<float> of_activated = first(scratch.wide, a.activated.size());
  const std::span<float> of_attention = first(scratch.narrow, a.attention.size());
  const std::span<float> of_qkv = first(scratch.wide, a.qkv.size());

  ops::linear_backward_input({.shape = linear(pass, model.ffn_width, model.width),
                              .weight = w.outer.weight,
                              .output_gradient = output_gradient,
                              .input_gradient = of_activated});
  ops::gelu_backward(
      {.input = a.inner, .output_gradient = of_activated, .input_gradient = a.inner});
  ops::linear_backward_input({.shape = linear(pass, model.width, model.ffn_width),
                              .weight = w.inner.weight,
                              .output_gradient = a.inner,
                              .input_gradient = narrow});
  norm_backward(model, narrow, a.middle, a.norm2, w.norm2, pass.gradients.norm2, narrow2);
  ops::add({.left = output_gradient, .right = narrow2, .output = a.middle});

  ops::linear_backward_input({.shape = linear(pass, heads.width(), model.width),
                              .weight = w.projection.weight,
                              .output_gradient = a.middle,
                              .input_gradient = of_attention});
  ops::attention_backward({.shape = heads,
                           .qkv = a.qkv,
                           .output = a.attention,
                           .log_sum_exp = a.log_sum_exp,
                           .output_gradient = of_attention,
                           .qkv_gradient = of_qkv});
  std::copy(of_qkv.begin(), of_qkv.end(), a.qkv.begin());
  ops::linear_backward_input({.shape = linear(pass, model.width, heads.qkv_width()),
                              .weight = w.qkv[0].weight,
                              .output_gradient = a.qkv,
                              .input_gradient = narrow});
  norm_backward(model, narrow, a.input, a.norm1, w.norm1, pass.gradients.norm1, narrow2);
  ops::add({.left = a.middle, .right = narrow2, .output = a.input});
}

void layer_backward_weight(const LayerPass& pass, const LayerState& a,
                           std::span<const float> output_gradient) {
  const ModelShape& model = pass.model;
  const ops::AttentionShape heads = attention_shape(model, pass.sequences, pass.context);
  const LayerTensors& g = pass.gradients;
  ops::linear_backward_weight({.shape = linear(pass, model.ffn_width, model.width),
                               .input = a.activated,
                               .output_gradient = output_gradient,
                               .weight_gradient = g.outer.weight,
                               .bias_gradient = g.outer.bias});
  ops::linear_backward_weight({.shape = linear(pass, model.width, model.ffn_width),
                               .input = a.norm2.output,
                               .output_gradient = a.inner,
                               .weight_gradient = g.inner.weight,
                               .bias_gradient = g.inner.bias});
  ops::linear_backward_weight({.shape = linear(pass, heads.width(), model.width),
                               .input = a.attention,
                               .output_gradient = a.middle,
                               .weight_gradient = g.projection.weight,
                               .bias_gradient = g.projection.bias});
  ops::linear_backward_weight({.shape = linear(pass, model.width, heads.qkv_width()),
                               .input = a.norm1.output,
                               .output_gradient = a.qkv,
                               .weight_gradient = g.qkv[0].weight,
                               .bias_gradient = g.qkv[0].bias});
}

}  // namespace longhaul
