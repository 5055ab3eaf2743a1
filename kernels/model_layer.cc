#include "kernels/model_layer.h"

#include <algorithm>

#include "kernels/cpu/bf16.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

std::span<float> first(TensorStorage& from, std::size_t count) {
  return std::span(from).first(count);
}

ops::AttentionShape attention_shape(const LayerPass& pass) {
  return attention_shape(pass.model, pass.sequences, pass.context, pass.bf16);
}

ops::LinearShape linear(const LayerPass& pass, ptrdiff_t in, ptrdiff_t out) {
  return {.rows = pass.rows(),
          .in = in,
          .out = out,
          .layout = pass.model.family == ModelFamily::kGpt2 ? ops::WeightLayout::kInOut
                                                            : ops::WeightLayout::kOutIn,
          .bf16 = pass.bf16};
}

/// A matrix of the first projection and the columns of qkv that it writes.
struct QkvPart {
  std::size_t index;  // in LayerTensors::qkv
  ops::LinearShape shape;
  std::size_t column;
};

/// Calls body(part) for each matrix of the first projection.
template <class Body>
void for_each_qkv_part(const LayerPass& pass, Body body) {
  const ops::AttentionShape heads = attention_shape(pass);
  if (pass.model.family == ModelFamily::kGpt2) {
    return body(QkvPart{0, linear(pass, pass.model.width, heads.qkv_width()), 0});
  }
  const ptrdiff_t key_width = heads.kv_heads * heads.head_width;
  ptrdiff_t column = 0;
  std::size_t index = 0;
  for (const ptrdiff_t out : {heads.width(), key_width, key_width}) {
    QkvPart part = {index, linear(pass, pass.model.width, out), static_cast<std::size_t>(column)};
    part.shape.out_stride = heads.qkv_width();
    body(part);
    column += out;
    ++index;
  }
}

ops::Rotary<> rotary(const LayerPass& pass, std::span<float> qkv) {
  return {.shape = {.rows = pass.rows(),
                    .context = pass.context,
                    .first_position = pass.first_position,
                    .heads = pass.model.heads + pass.model.kv_heads,
                    .head_width = pass.model.head_width,
                    .row_width = attention_shape(pass).qkv_width()},
          .cosine = pass.rotary.cosine(),
          .sine = pass.rotary.sine(),
          .qkv = qkv};
}

ops::NormShape norm_shape(const ModelShape& model, const NormState& state) {
  return {static_cast<ptrdiff_t>(state.inverse_deviation.size()), model.width, model.norm_epsilon};
}

}  // namespace

// ---- tensors

std::span<float> TensorCursor::next() {
  const ModelParameter& parameter = parameters_.front();
  parameters_ = parameters_.subspan(1);
  return storage_.subspan(parameter.offset, parameter.size);
}

TensorPair TensorCursor::next_norm(ModelFamily family) {
  TensorPair norm = {next(), {}};
  if (family == ModelFamily::kGpt2) norm.bias = next();
  return norm;
}

LayerTensors TensorCursor::next_layer(ModelFamily family) {
  const bool is_llama = family == ModelFamily::kLlama;
  const auto next_matrix = [&] {
    TensorPair matrix = {next(), {}};
    if (!is_llama) matrix.bias = next();
    return matrix;
  };
  LayerTensors layer;
  layer.norm1 = next_norm(family);
  layer.qkv[0] = next_matrix();
  if (is_llama) {
    layer.qkv[1] = next_matrix();
    layer.qkv[2] = next_matrix();
  }
  layer.projection = next_matrix();
  layer.norm2 = next_norm(family);
  if (is_llama) layer.gate = next_matrix();
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

ops::AttentionShape attention_shape(const ModelShape& model, ptrdiff_t sequences, ptrdiff_t context,
                                    bool bf16) {
  return {.sequences = sequences,
          .context = context,
          .heads = model.heads,
          .kv_heads = model.kv_heads,
          .head_width = model.head_width,
          .bf16 = bf16};
}

// ---- norms

void norm_forward(const ModelShape& model, std::span<const float> input, const TensorPair& weights,
                  const NormState& state) {
  if (model.family == ModelFamily::kLlama) {
    return ops::rms_norm_forward({.shape = norm_shape(model, state),
                                  .input = input,
                                  .weight = weights.weight,
                                  .output = state.output,
                                  .inverse_root = state.inverse_deviation});
  }
  ops::layer_norm_forward({.shape = norm_shape(model, state),
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
  const ops::NormShape shape = norm_shape(model, state);
  if (model.family == ModelFamily::kLlama) {
    ops::rms_norm_backward_weight({.shape = shape,
                                   .input = input,
                                   .inverse_root = state.inverse_deviation,
                                   .output_gradient = output_gradient,
                                   .weight_gradient = gradients.weight});
    return ops::rms_norm_backward_input({.shape = shape,
                                         .input = input,
                                         .weight = weights.weight,
                                         .inverse_root = state.inverse_deviation,
                                         .output_gradient = output_gradient,
                                         .input_gradient = input_gradient});
  }
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

void layer_before_attention(const LayerPass& pass, const LayerState& a) {
  norm_forward(pass.model, a.input, pass.weights.norm1, a.norm1);
  for_each_qkv_part(pass, [&](const QkvPart& part) {
    const TensorPair& w = pass.weights.qkv[part.index];
    ops::linear_forward({.shape = part.shape,
                         .input = a.norm1.output,
                         .weight = w.weight,
                         .bias = w.bias,
                         .output = a.qkv.subspan(part.column)});
  });
  if (pass.model.family == ModelFamily::kLlama) ops::rotary_forward(rotary(pass, a.qkv));
}

void layer_after_attention(const LayerPass& pass, const LayerState& a, std::span<float> output) {
  const ModelShape& model = pass.model;
  const LayerTensors& w = pass.weights;
  const ops::LinearShape into_mlp = linear(pass, model.width, model.ffn_width);
  ops::linear_forward(
      {.shape = linear(pass, ptrdiff_t{model.heads} * model.head_width, model.width),
       .input = a.attention,
       .weight = w.projection.weight,
       .bias = w.projection.bias,
       .output = a.middle});
  ops::add({.left = a.input, .right = a.middle, .output = a.middle});

  norm_forward(model, a.middle, w.norm2, a.norm2);
  ops::linear_forward({.shape = into_mlp,
                       .input = a.norm2.output,
                       .weight = w.inner.weight,
                       .bias = w.inner.bias,
                       .output = a.inner});
  if (a.gate.empty()) {
    ops::gelu_forward({.input = a.inner, .output = a.activated});
  } else {
    ops::linear_forward({.shape = into_mlp,
                         .input = a.norm2.output,
                         .weight = w.gate.weight,
                         .bias = {},
                         .output = a.gate});
    ops::swiglu_forward({.gate = a.gate, .up = a.inner, .output = a.activated});
  }
  ops::linear_forward({.shape = linear(pass, model.ffn_width, model.width),
                       .input = a.activated,
                       .weight = w.outer.weight,
                       .bias = w.outer.bias,
                       .output = output});
  ops::add({.left = a.middle, .right = output, .output = output});
  if (pass.bf16) round_to_bf16(output);
}

void layer_forward(const LayerPass& pass, const LayerState& a, std::span<float> output) {
  layer_before_attention(pass, a);
  ops::attention_forward({.shape = attention_shape(pass),
                          .qkv = a.qkv,
                          .output = a.attention,
                          .log_sum_exp = a.log_sum_exp});
  layer_after_attention(pass, a, output);
}

// ---- backward

namespace {

/// From the layer's output to its middle.
void backward_mlp(const LayerPass& pass, const LayerState& a, LayerScratch& scratch,
                  std::span<const float> output_gradient) {
  const ModelShape& model = pass.model;
  const LayerTensors& w = pass.weights;
  const ops::LinearShape into_mlp = linear(pass, model.width, model.ffn_width);
  const std::span<float> of_norm = first(scratch.narrow, a.middle.size());
  const std::span<float> of_middle = first(scratch.narrow2, a.middle.size());
  const std::span<float> of_activated = first(scratch.wide, a.activated.size());

  ops::linear_backward_input({.shape = linear(pass, model.ffn_width, model.width),
                              .weight = w.outer.weight,
                              .output_gradient = output_gradient,
                              .input_gradient = of_activated});
  if (a.gate.empty()) {
    ops::gelu_backward(
        {.input = a.inner, .output_gradient = of_activated, .input_gradient = a.inner});
  } else {
    ops::swiglu_backward({.gate = a.gate,
                          .up = a.inner,
                          .output_gradient = of_activated,
                          .gate_gradient = a.gate,
                          .up_gradient = a.inner});
  }
  ops::linear_backward_input({.shape = into_mlp,
                              .weight = w.inner.weight,
                              .output_gradient = a.inner,
                              .input_gradient = of_norm});
  if (!a.gate.empty()) {
    ops::linear_backward_input({.shape = into_mlp,
                                .weight = w.gate.weight,
                                .output_gradient = a.gate,
                                .input_gradient = of_norm,
                                .accumulates = true});
  }
  norm_backward(model, of_norm, a.middle, a.norm2, w.norm2, pass.gradients.norm2, of_middle);
  ops::add({.left = output_gradient, .right = of_middle, .output = a.middle});
}

/// From the layer's middle to its input.
void backward_attention(const LayerPass& pass, const LayerState& a, LayerScratch& scratch) {
  const ModelShape& model = pass.model;
  const ops::AttentionShape heads = attention_shape(pass);
  const LayerTensors& w = pass.weights;
  const std::span<float> of_attention = first(scratch.narrow, a.attention.size());
  const std::span<float> of_norm = first(scratch.narrow, a.input.size());
  const std::span<float> of_input = first(scratch.narrow2, a.input.size());
  const std::span<float> of_qkv = first(scratch.wide, a.qkv.size());

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
  if (model.family == ModelFamily::kLlama) ops::rotary_backward(rotary(pass, a.qkv));
  for_each_qkv_part(pass, [&](const QkvPart& part) {
    ops::linear_backward_input({.shape = part.shape,
                                .weight = w.qkv[part.index].weight,
                                .output_gradient = a.qkv.subspan(part.column),
                                .input_gradient = of_norm,
                                .accumulates = part.index > 0});
  });
  norm_backward(model, of_norm, a.input, a.norm1, w.norm1, pass.gradients.norm1, of_input);
  ops::add({.left = a.middle, .right = of_input, .output = a.input});
}

void backward_matrix(const ops::LinearShape& shape, std::span<const float> input,
                     std::span<const float> output_gradient, const TensorPair& gradients) {
  ops::linear_backward_weight({.shape = shape,
                               .input = input,
                               .output_gradient = output_gradient,
                               .weight_gradient = gradients.weight,
                               .bias_gradient = gradients.bias});
}

}  // namespace

void layer_backward_input(const LayerPass& pass, const LayerState& a, LayerScratch& scratch,
                          std::span<const float> output_gradient) {
  backward_mlp(pass, a, scratch, output_gradient);
  backward_attention(pass, a, scratch);
  if (pass.bf16) round_to_bf16(a.input);
}

void layer_backward_weight(const LayerPass& pass, const LayerState& a,
                           std::span<const float> output_gradient) {
  const ModelShape& model = pass.model;
  const LayerTensors& g = pass.gradients;
  const ops::LinearShape into_mlp = linear(pass, model.width, model.ffn_width);
  backward_matrix(linear(pass, model.ffn_width, model.width), a.activated, output_gradient,
                  g.outer);
  backward_matrix(into_mlp, a.norm2.output, a.inner, g.inner);
  if (!a.gate.empty()) backward_matrix(into_mlp, a.norm2.output, a.gate, g.gate);
  backward_matrix(linear(pass, ptrdiff_t{model.heads} * model.head_width, model.width), a.attention,
                  a.middle, g.projection);
  for_each_qkv_part(pass, [&](const QkvPart& part) {
    backward_matrix(part.shape, a.norm1.output, a.qkv.subspan(part.column), g.qkv[part.index]);
  });
}

}  // namespace longhaul
