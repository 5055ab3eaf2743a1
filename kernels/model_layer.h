// One transformer layer: the tensors it has, what it keeps of a micro-batch, and its arithmetic. A
// stage (model_passes.cc) is a row of layers between an embedding and a head.
//
//     input -> norm1 -> qkv -> attention -> projection, + input = middle
//     middle -> norm2 -> inner (and gate) -> activation -> outer, + middle = output
//
// Every family has this flow. GPT-2: layer norm, one qkv matrix, biases, GELU. Llama: RMS norm,
// three matrices that write columns of qkv, rotary positions, no biases, SwiGLU. What a family
// lacks is an empty span.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kernels/cpu/tensor_storage.h"
#include "kernels/model_parameters.h"
#include "kernels/ops.h"
#include "kernels/rotary_table.h"

namespace longhaul {

/// A norm's or a matrix's weights, or their gradients.
struct TensorPair {
  std::span<float> weight;
  std::span<float> bias;
};

/// The tensors of one layer by what they do: weights, or gradients.
struct LayerTensors {
  TensorPair norm1;
  std::array<TensorPair, 3> qkv;  // GPT-2: only the first; Llama: queries, keys, values
  TensorPair projection;
  TensorPair norm2;
  TensorPair gate;  // Llama
  TensorPair inner, outer;
};

/// Hands out the tensors of a slice one after the other, in the order of parameters_of.
class TensorCursor {
 public:
  TensorCursor(std::span<const ModelParameter> parameters, std::span<float> storage)
      : parameters_(parameters), storage_(storage) {}
  std::span<float> next();
  TensorPair next_norm(ModelFamily family);
  LayerTensors next_layer(ModelFamily family);

 private:
  std::span<const ModelParameter> parameters_;  // those to come
  std::span<float> storage_;
};

/// What a norm keeps of its input's rows.
struct NormState {
  std::span<float> output;
  std::span<float> mean;  // of layer norm
  std::span<float> inverse_deviation;
};

/// What one layer keeps of a micro-batch from forward to backward. backward_input overwrites what
/// nobody wants any more by the gradients that backward_weight will want.
struct LayerState {
  std::span<float> input;  // then the gradient of the input
  NormState norm1;
  std::span<float> qkv;  // then its gradient
  std::span<float> attention, log_sum_exp;
  std::span<float> middle;  // then its gradient
  NormState norm2;
  std::span<float> gate;   // Llama: then its gradient
  std::span<float> inner;  // MLP before the activation, then its gradient
  std::span<float> activated;

  /// Takes its parts from `take(span, size)`, in a fixed order.
  template <class Take>
  void lay_out(const ModelShape& model, std::ptrdiff_t rows, Take take);
};
template <class Take>
void lay_out_norm(NormState& state, const ModelShape& model, std::ptrdiff_t rows, Take take) {
  take(state.output, rows * model.width);
  if (model.family == ModelFamily::kGpt2) take(state.mean, rows);
  take(state.inverse_deviation, rows);
}

/// What a pass over a layer reads besides the layer's state.
struct LayerPass {
  const ModelShape& model;
  bool bf16;  // operands of products, and what leaves the layer either way, are rounded to bf16
  std::ptrdiff_t sequences;
  std::ptrdiff_t context;             // rows of a sequence
  std::ptrdiff_t first_position = 0;  // of each sequence
  const RotaryTable& rotary;          // covers all positions
  LayerTensors weights;
  LayerTensors gradients = {};  // of a backward

  std::ptrdiff_t rows() const { return sequences * context; }
};

/// Room of a backward for gradients that are used at once. Shared by all micro-batches.
struct LayerScratch {
  TensorStorage narrow, narrow2;  // [rows, width of the stream or of the heads]
  TensorStorage wide;             // [rows, width of qkv or of the MLP]

  void fit(const ModelShape& model, std::ptrdiff_t rows);
};

ops::AttentionShape attention_shape(const ModelShape& model, std::ptrdiff_t sequences,
                                    std::ptrdiff_t context, bool bf16 = false);

void norm_forward(const ModelShape& model, std::span<const float> input, const TensorPair& weights,
                  const NormState& state);
/// Both halves: the weights' gradient wants the same activations as the input's.
void norm_backward(const ModelShape& model, std::span<const float> output_gradient,
                   std::span<const float> input, const NormState& state, const TensorPair& weights,
                   const TensorPair& gradients, std::span<float> input_gradient);

/// From the input to qkv, as the attention reads it.
void layer_before_attention(const LayerPass& pass, const LayerState& state);
/// From the attention's output to the layer's, which may be written over its input.
void layer_after_attention(const LayerPass& pass, const LayerState& state, std::span<float> output);
/// The two with the attention between them.
void layer_forward(const LayerPass& pass, const LayerState& state, std::span<float> output);
void layer_backward_input(const LayerPass& pass, const LayerState& state, LayerScratch& scratch,
                          std::span<const float> output_gradient);
void layer_backward_weight(const LayerPass& pass, const LayerState& state,
                           std::span<const float> output_gradient);

template <class Take>
void LayerState::lay_out(const ModelShape& model, std::ptrdiff_t rows, Take take) {
  const ops::AttentionShape heads = attention_shape(model, 1, rows);
  take(input, rows * model.width);
  lay_out_norm(norm1, model, rows, take);
  take(qkv, rows * heads.qkv_width());
  take(attention, rows * heads.width());
  take(log_sum_exp, rows * model.heads);
  take(middle, rows * model.width);
  lay_out_norm(norm2, model, rows, take);
  if (model.family == ModelFamily::kLlama) take(gate, rows * model.ffn_width);
  take(inner, rows * model.ffn_width);
  take(activated, rows * model.ffn_width);
}

}  // namespace longhaul
