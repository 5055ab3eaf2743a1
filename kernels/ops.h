// The operations of training GPT-2 and Llama on the CPU, forward and backward, in fp32. A token is
// a row; matrices are row-major; weights keep the layout of Hugging Face files.
//
// Every operation is a function of one struct of shapes and spans, filled by name. Sizes must agree
// (LH_CHECK). Outputs do not overlap inputs unless the operation says so.
//
//   - Gradients of activations are overwritten; gradients of parameters are accumulated into.
//   - Where a parameter is involved the backward is split in two calls, one for the input and one
//     for the parameters, that share nothing: a pipeline schedule may run the second later.
//   - Parameter gradients are chains over rows in ascending order that continue what is in the
//     accumulator. So a batch cut into micro-batches, taken in order, gives the same bits as the
//     batch whole; and no result depends on instruction set, thread or neighbouring rows.
//
// Large ones use the threads of kernels/parallel.h; any number of threads may call, on different
// outputs. The same structs with T = double serve the formula-like versions in
// kernels/cpu/reference_ops.h, which these are tested against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul::ops {

using std::ptrdiff_t;

/// A target with this value has no loss and no gradient: padding.
inline constexpr std::int32_t kIgnoredTarget = -1;

// ---- embedding: output[row] = token_table[token] + position_table[row mod context]
//
// Without a position table (Llama) the second term is left out.

struct EmbeddingShape {
  ptrdiff_t sequences = 0;
  ptrdiff_t context = 0;  // tokens of a sequence
  ptrdiff_t width = 0;
};

template <class T = float>
struct Embedding {
  EmbeddingShape shape;
  std::span<const std::int32_t> tokens;  // [rows], each inside the table
  std::span<const T> token_table;        // [vocabulary, width]
  std::span<const T> position_table;     // [at least context, width], or empty
  std::span<T> output;                   // [rows, width]
};
template <class T = float>
struct EmbeddingBackward {
  EmbeddingShape shape;
  std::span<const std::int32_t> tokens;
  std::span<const T> output_gradient;
  std::span<T> token_table_gradient;     // accumulated
  std::span<T> position_table_gradient;  // accumulated; empty for none
};
void embedding_forward(const Embedding<>& op);
void embedding_backward(const EmbeddingBackward<>& op);

// ---- layer norm: output = (input - mean) / sqrt(variance + epsilon) * weight + bias, by rows

struct NormShape {
  ptrdiff_t rows = 0;
  ptrdiff_t width = 0;
  double epsilon = 1e-5;  // of forward
};

template <class T = float>
struct LayerNorm {
  NormShape shape;
  std::span<const T> input;
  std::span<const T> weight;  // [width]
  std::span<const T> bias;    // [width]
  std::span<T> output;
  std::span<T> mean;               // [rows], kept for backward
  std::span<T> inverse_deviation;  // [rows], kept for backward
};
template <class T = float>
struct LayerNormBackwardInput {
  NormShape shape;
  std::span<const T> input;
  std::span<const T> weight;
  std::span<const T> mean;
  std::span<const T> inverse_deviation;
  std::span<const T> output_gradient;
  std::span<T> input_gradient;
};
template <class T = float>
struct LayerNormBackwardWeight {
  NormShape shape;
  std::span<const T> input;
  std::span<const T> mean;
  std::span<const T> inverse_deviation;
  std::span<const T> output_gradient;
  std::span<T> weight_gradient;  // accumulated
  std::span<T> bias_gradient;    // accumulated
};
void layer_norm_forward(const LayerNorm<>& op);
void layer_norm_backward_input(const LayerNormBackwardInput<>& op);
void layer_norm_backward_weight(const LayerNormBackwardWeight<>& op);

// ---- RMS norm: output = input / sqrt(mean(input^2) + epsilon) * weight, by rows

template <class T = float>
struct RmsNorm {
  NormShape shape;
  std::span<const T> input;
  std::span<const T> weight;  // [width]
  std::span<T> output;
  std::span<T> inverse_root;  // [rows], kept for backward
};
template <class T = float>
struct RmsNormBackwardInput {
  NormShape shape;
  std::span<const T> input;
  std::span<const T> weight;
  std::span<const T> inverse_root;
  std::span<const T> output_gradient;
  std::span<T> input_gradient;
};
template <class T = float>
struct RmsNormBackwardWeight {
  NormShape shape;
  std::span<const T> input;
  std::span<const T> inverse_root;
  std::span<const T> output_gradient;
  std::span<T> weight_gradient;  // accumulated
};
void rms_norm_forward(const RmsNorm<>& op);
void rms_norm_backward_input(const RmsNormBackwardInput<>& op);
void rms_norm_backward_weight(const RmsNormBackwardWeight<>& op);

// ---- linear: output = input weight + bias

enum class WeightLayout {
  kInOut,  // [in, out]: Conv1D of GPT-2 files
  kOutIn,  // [out, in]: nn.Linear; an output head, and the token embedding used as one
};

struct LinearShape {
  ptrdiff_t rows = 0;
  ptrdiff_t in = 0;
  ptrdiff_t out = 0;
  WeightLayout layout = WeightLayout::kInOut;
  /// Between rows of the output and of its gradient; 0: they stand side by side. Else they are
  /// columns of a wider matrix: spans begin at the first of them and may end after the last.
  ptrdiff_t out_stride = 0;
  bool bf16 = false;  // operands of the products rounded, see kernels/gemm.h

  ptrdiff_t out_row() const { return out_stride == 0 ? out : out_stride; }
};

template <class T = float>
struct Linear {
  LinearShape shape;
  std::span<const T> input;   // [rows, in]
  std::span<const T> weight;  // by layout
  std::span<const T> bias;    // [out], or empty for none
  std::span<T> output;        // [rows, out]
};
template <class T = float>
struct LinearBackwardInput {
  LinearShape shape;
  std::span<const T> weight;
  std::span<const T> output_gradient;
  std::span<T> input_gradient;
  /// Continues the chains in input_gradient: of several products that share an input.
  bool accumulates = false;
};
template <class T = float>
struct LinearBackwardWeight {
  LinearShape shape;
  std::span<const T> input;
  std::span<const T> output_gradient;
  std::span<T> weight_gradient;  // accumulated
  std::span<T> bias_gradient;    // accumulated; empty for none
};
void linear_forward(const Linear<>& op);
void linear_backward_input(const LinearBackwardInput<>& op);
void linear_backward_weight(const LinearBackwardWeight<>& op);

// ---- rotary position embedding (Su et al., 2021), halves as in Hugging Face's Llama
//
// In place on queries and keys. Of each head the pair (x[i], x[i + head_width / 2]) is turned by
// the angle of its position and i. Backward turns back.

struct RotaryShape {
  ptrdiff_t rows = 0;
  ptrdiff_t context = 0;  // row r is at position first_position + r mod context
  ptrdiff_t first_position = 0;
  ptrdiff_t heads = 0;       // that are turned: of queries and keys
  ptrdiff_t head_width = 0;  // even
  ptrdiff_t row_width = 0;   // of queries, keys and values
};

template <class T = float>
struct Rotary {
  RotaryShape shape;
  std::span<const T> cosine;  // [positions, head_width / 2]
  std::span<const T> sine;
  std::span<T> qkv;  // [rows, row_width], the heads first
};
void rotary_forward(const Rotary<>& op);
void rotary_backward(const Rotary<>& op);

// ---- causal multi-head attention
//
// For each sequence and head: output = softmax(Q K^T / sqrt(head_width), no later keys) V. The
// probabilities are not stored: backward makes them again from the log-sum-exp of each row of
// scores (Dao et al., NeurIPS 2022).

struct AttentionShape {
  ptrdiff_t sequences = 0;
  ptrdiff_t context = 0;
  ptrdiff_t heads = 0;     // of queries
  ptrdiff_t kv_heads = 0;  // of keys and values; query head h reads head h / (heads / kv_heads)
  ptrdiff_t head_width = 0;
  bool bf16 = false;  // operands of the products rounded, see kernels/gemm.h

  ptrdiff_t width() const { return heads * head_width; }
  /// Of a row of queries, keys and values.
  ptrdiff_t qkv_width() const { return (heads + 2 * kv_heads) * head_width; }
};

template <class T = float>
struct Attention {
  AttentionShape shape;
  std::span<const T> qkv;    // [rows, qkv width]: queries, keys, values, each head after head
  std::span<T> output;       // [rows, width]
  std::span<T> log_sum_exp;  // [sequences, heads, context], kept for backward
};
template <class T = float>
struct AttentionBackward {
  AttentionShape shape;
  std::span<const T> qkv;
  std::span<const T> output;
  std::span<const T> log_sum_exp;
  std::span<const T> output_gradient;
  std::span<T> qkv_gradient;
};
/// Forward alone: queries of one sequence that follow `first_position` others, whose keys and
/// values are kept. The rows of the output have the bits that attention_forward over all would give
/// them.
struct CachedAttention {
  AttentionShape shape;  // one sequence; context: of the queries
  ptrdiff_t first_position = 0;
  std::span<const float> qkv;    // [context, qkv width], of which the queries are read
  std::span<const float> cache;  // [first_position + context, keys and values of a row of qkv]
  std::span<float> output;       // [context, width]
};
void attention_forward(const Attention<>& op);
void attention_forward(const CachedAttention& op);
void attention_backward(const AttentionBackward<>& op);

// ---- GELU, tanh form: output = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2

template <class T = float>
struct Gelu {
  std::span<const T> input;
  std::span<T> output;
};
template <class T = float>
struct GeluBackward {
  std::span<const T> input;
  std::span<const T> output_gradient;
  std::span<T> input_gradient;  // may be the output_gradient or the input
};
void gelu_forward(const Gelu<>& op);
void gelu_backward(const GeluBackward<>& op);

// ---- SwiGLU (Shazeer, 2020): output = gate / (1 + exp(-gate)) * up

template <class T = float>
struct SwiGlu {
  std::span<const T> gate;
  std::span<const T> up;
  std::span<T> output;
};
template <class T = float>
struct SwiGluBackward {
  std::span<const T> gate;
  std::span<const T> up;
  std::span<const T> output_gradient;
  std::span<T> gate_gradient;  // may be the gate
  std::span<T> up_gradient;    // may be the up
};
void swiglu_forward(const SwiGlu<>& op);
void swiglu_backward(const SwiGluBackward<>& op);

// ---- residual: output = left + right. Backward is the identity for both.

template <class T = float>
struct Add {
  std::span<const T> left;
  std::span<const T> right;
  std::span<T> output;  // may be left or right
};
void add(const Add<>& op);

// ---- softmax cross-entropy

struct CrossEntropyShape {
  ptrdiff_t rows = 0;
  ptrdiff_t vocabulary = 0;
};

/// losses[row] = log_sum_exp - logits[target], 0 where the target is ignored.
template <class T = float>
struct CrossEntropy {
  CrossEntropyShape shape;
  std::span<const T> logits;              // [rows, vocabulary]
  std::span<const std::int32_t> targets;  // [rows]; kIgnoredTarget or inside the vocabulary
  std::span<T> losses;                    // [rows]
  std::span<T> log_sum_exp;               // [rows], kept for backward
};
/// logits_gradient = scale (softmax - one_hot(target)), 0 where the target is ignored.
template <class T = float>
struct CrossEntropyBackward {
  CrossEntropyShape shape;
  std::span<const T> logits;
  std::span<const std::int32_t> targets;
  std::span<const T> log_sum_exp;
  T scale = 1;                   // 1 / (target tokens of the step)
  std::span<T> logits_gradient;  // may be the logits
};
void cross_entropy_forward(const CrossEntropy<>& op);
void cross_entropy_backward(const CrossEntropyBackward<>& op);
/// Adds scale x loss to `sum` row by row in fp64: one chain over the micro-batches of a step.
void add_losses(std::span<const float> losses, double scale, double& sum);

// ---- optimiser

struct AdamWOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;    // 0 for tensors of one dimension: the caller's choice
  double gradient_scale = 1;  // what clipping multiplies the gradient with
  std::int64_t step = 1;      // of this update, from 1
};

/// torch.optim.AdamW, operation by operation:
///   weight *= 1 - learning_rate weight_decay
///   m += (1 - beta1) (gradient - m);  v = beta2 v + (1 - beta2) gradient^2
///   weight -= learning_rate / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
template <class T = float>
struct AdamW {
  AdamWOptions options;
  std::span<T> weight;
  std::span<const T> gradient;
  std::span<T> m;
  std::span<T> v;
};
void adamw(const AdamW<>& op);

// ---- global norm
//
// Squares are summed in fp64 over blocks of 4,096 elements that restart at each tensor, and blocks
// are added in order. A tensor may be cut between owners at blocks and its sum is still the same.

inline constexpr std::size_t kNormBlock = 4096;

/// Sum of squares of one block, of at most kNormBlock elements. Not finite exactly if an element is
/// not: the largest fp32 squared, 4,096 times, is far inside fp64.
double block_sum_of_squares(std::span<const float> block);
/// Of a whole tensor.
double sum_of_squares(std::span<const float> tensor);
/// What clip_grad_norm_ multiplies gradients with: min(1, norm_max / (norm + 1e-6)).
double clip_factor(double norm, double norm_max);

}  // namespace longhaul::ops
