// Every differentiable operation as a function of its inputs, in three versions: fast, reference in
// float, reference in double. One table serves the comparison of fast with reference, the bits of
// instruction sets, and finite differences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu/reference_ops.h"
#include "kernels/ops.h"
#include "tests/kernels/numbers.h"

namespace longhaul::fixtures {

using std::ptrdiff_t;

template <class T>
using Tensors = std::vector<std::vector<T>>;

template <class T>
struct OpFunction {
  /// The output first, then what it keeps for backward.
  std::function<Tensors<T>(const Tensors<T>& inputs)> forward;
  /// One gradient an input.
  std::function<Tensors<T>(const Tensors<T>& inputs, const std::vector<T>& output_gradient)>
      backward;
};

struct OpCase {
  std::string name;
  std::vector<std::size_t> input_sizes;
  double scale;      // of random inputs
  double tolerance;  // of fast and float, as a fraction of the largest element of a tensor
  OpFunction<float> fast;
  OpFunction<float> reference;
  OpFunction<double> exact;
};

struct Fast {
  static constexpr bool kFast = true;
};
struct Reference {
  static constexpr bool kFast = false;
};

#define LH_EITHER(function, Struct)         \
  template <class Version, class T>         \
  void function(const ops::Struct<T>& op) { \
    if constexpr (Version::kFast) {         \
      ops::function(op);                    \
    } else {                                \
      reference::function(op);              \
    }                                       \
  }
LH_EITHER(embedding_forward, Embedding)
LH_EITHER(embedding_backward, EmbeddingBackward)
LH_EITHER(layer_norm_forward, LayerNorm)
LH_EITHER(layer_norm_backward_input, LayerNormBackwardInput)
LH_EITHER(layer_norm_backward_weight, LayerNormBackwardWeight)
LH_EITHER(rms_norm_forward, RmsNorm)
LH_EITHER(rms_norm_backward_input, RmsNormBackwardInput)
LH_EITHER(rms_norm_backward_weight, RmsNormBackwardWeight)
LH_EITHER(linear_forward, Linear)
LH_EITHER(linear_backward_input, LinearBackwardInput)
LH_EITHER(linear_backward_weight, LinearBackwardWeight)
LH_EITHER(rotary_forward, Rotary)
LH_EITHER(rotary_backward, Rotary)
LH_EITHER(attention_forward, Attention)
LH_EITHER(attention_backward, AttentionBackward)
LH_EITHER(gelu_forward, Gelu)
LH_EITHER(gelu_backward, GeluBackward)
LH_EITHER(swiglu_forward, SwiGlu)
LH_EITHER(swiglu_backward, SwiGluBackward)
LH_EITHER(add, Add)
LH_EITHER(cross_entropy_forward, CrossEntropy)
LH_EITHER(cross_entropy_backward, CrossEntropyBackward)
#undef LH_EITHER

template <class T>
std::vector<T> zeros(ptrdiff_t count) {
  return std::vector<T>(static_cast<std::size_t>(count));
}

inline std::vector<std::int32_t> random_ids(std::string_view name, ptrdiff_t count,
                                            ptrdiff_t vocabulary) {
  Rng rng(name, 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (auto& id : ids) {
    id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocabulary)));
  }
  return ids;
}

/// Inputs: the tables; of positions only if `positions`.
template <class Version, class T>
OpFunction<T> embedding_function(ops::EmbeddingShape s, ptrdiff_t vocabulary, bool positions) {
  const auto tokens = random_ids("tokens", s.sequences * s.context, vocabulary);
  const ptrdiff_t size = s.sequences * s.context * s.width;
  return {[=](const Tensors<T>& in) {
            Tensors<T> out = {zeros<T>(size)};
            const std::span<const T> table =
                positions ? std::span<const T>(in[1]) : std::span<const T>();
            embedding_forward<Version, T>({s, tokens, in[0], table, out[0]});
            return out;
          },
          [=](const Tensors<T>&, const std::vector<T>& dy) {
            Tensors<T> d = {zeros<T>(vocabulary * s.width)};
            if (positions) d.push_back(zeros<T>(s.context * s.width));
            embedding_backward<Version, T>(
                {s, tokens, dy, d[0], positions ? std::span<T>(d[1]) : std::span<T>()});
            return d;
          }};
}

template <class Version, class T>
OpFunction<T> layer_norm_function(ops::NormShape s) {
  const auto forward = [=](const Tensors<T>& in) {
    Tensors<T> out = {zeros<T>(s.rows * s.width), zeros<T>(s.rows), zeros<T>(s.rows)};
    layer_norm_forward<Version, T>({s, in[0], in[1], in[2], out[0], out[1], out[2]});
    return out;
  };
  return {forward, [=](const Tensors<T>& in, const std::vector<T>& dy) {
            const Tensors<T> kept = forward(in);
            Tensors<T> d = {zeros<T>(s.rows * s.width), zeros<T>(s.width), zeros<T>(s.width)};
            layer_norm_backward_input<Version, T>({s, in[0], in[1], kept[1], kept[2], dy, d[0]});
            layer_norm_backward_weight<Version, T>({s, in[0], kept[1], kept[2], dy, d[1], d[2]});
            return d;
          }};
}

template <class Version, class T>
OpFunction<T> rms_norm_function(ops::NormShape s) {
  const auto forward = [=](const Tensors<T>& in) {
    Tensors<T> out = {zeros<T>(s.rows * s.width), zeros<T>(s.rows)};
    rms_norm_forward<Version, T>({s, in[0], in[1], out[0], out[1]});
    return out;
  };
  return {forward, [=](const Tensors<T>& in, const std::vector<T>& dy) {
            const Tensors<T> kept = forward(in);
            Tensors<T> d = {zeros<T>(s.rows * s.width), zeros<T>(s.width)};
            rms_norm_backward_input<Version, T>({s, in[0], in[1], kept[1], dy, d[0]});
            rms_norm_backward_weight<Version, T>({s, in[0], kept[1], dy, d[1]});
            return d;
          }};
}

/// Inputs: input, weight, and a bias unless `biased` is false.
template <class Version, class T>
OpFunction<T> linear_function(ops::LinearShape s, bool biased) {
  return {[=](const Tensors<T>& in) {
            Tensors<T> out = {zeros<T>(s.rows * s.out)};
            const std::span<const T> bias =
                biased ? std::span<const T>(in[2]) : std::span<const T>();
            linear_forward<Version, T>({s, in[0], in[1], bias, out[0]});
            return out;
          },
          [=](const Tensors<T>& in, const std::vector<T>& dy) {
            Tensors<T> d = {zeros<T>(s.rows * s.in), zeros<T>(s.in * s.out)};
            if (biased) d.push_back(zeros<T>(s.out));
            linear_backward_input<Version, T>({s, in[1], dy, d[0]});
            linear_backward_weight<Version, T>(
                {s, in[0], dy, d[1], biased ? std::span<T>(d[2]) : std::span<T>()});
            return d;
          }};
}

/// Two matrices with one input write columns of one output, as queries and keys do. Inputs: input,
/// two weights.
template <class Version, class T>
OpFunction<T> linear_columns_function(ops::LinearShape left, ptrdiff_t right_out) {
  left.out_stride = left.out + right_out;
  ops::LinearShape right = left;
  right.out = right_out;
  const ptrdiff_t size = left.rows * left.out_stride;
  const auto columns = static_cast<std::size_t>(left.out);
  return {
      [=](const Tensors<T>& in) {
        Tensors<T> out = {zeros<T>(size)};
        linear_forward<Version, T>({left, in[0], in[1], {}, out[0]});
        linear_forward<Version, T>({right, in[0], in[2], {}, std::span(out[0]).subspan(columns)});
        return out;
      },
      [=](const Tensors<T>& in, const std::vector<T>& dy) {
        Tensors<T> d = {zeros<T>(left.rows * left.in), zeros<T>(left.in * left.out),
                        zeros<T>(left.in * right.out)};
        const auto of_right = std::span(dy).subspan(columns);
        linear_backward_input<Version, T>({left, in[1], dy, d[0]});
        linear_backward_input<Version, T>({right, in[2], of_right, d[0], true});
        linear_backward_weight<Version, T>({left, in[0], dy, d[1], {}});
        linear_backward_weight<Version, T>({right, in[0], of_right, d[2], {}});
        return d;
      }};
}

/// Any table will do: backward is the transpose of forward, whether or not it preserves lengths.
template <class Version, class T>
OpFunction<T> rotary_function(ops::RotaryShape s) {
  const auto angles = static_cast<std::size_t>((s.first_position + s.context) * s.head_width / 2);
  const auto cosine = random_values<T>("cosine", angles);
  const auto sine = random_values<T>("sine", angles);
  return {[=](const Tensors<T>& in) {
            Tensors<T> out = {in[0]};
            rotary_forward<Version, T>({s, cosine, sine, out[0]});
            return out;
          },
          [=](const Tensors<T>&, const std::vector<T>& dy) {
            Tensors<T> d = {dy};
            rotary_backward<Version, T>({s, cosine, sine, d[0]});
            return d;
          }};
}

template <class Version, class T>
OpFunction<T> attention_function(ops::AttentionShape s) {
  const ptrdiff_t rows = s.sequences * s.context;
  const auto forward = [=](const Tensors<T>& in) {
    Tensors<T> out = {zeros<T>(rows * s.width()), zeros<T>(rows * s.heads)};
    attention_forward<Version, T>({s, in[0], out[0], out[1]});
    return out;
  };
  return {forward, [=](const Tensors<T>& in, const std::vector<T>& dy) {
            const Tensors<T> kept = forward(in);
            Tensors<T> d = {zeros<T>(rows * s.qkv_width())};
            attention_backward<Version, T>({s, in[0], kept[0], kept[1], dy, d[0]});
            return d;
          }};
}

template <class Version, class T>
OpFunction<T> gelu_function(ptrdiff_t count) {
  return {[=](const Tensors<T>& in) {
            Tensors<T> out = {zeros<T>(count)};
            gelu_forward<Version, T>({in[0], out[0]});
            return out;
          },
          [=](const Tensors<T>& in, const std::vector<T>& dy) {
            Tensors<T> d = {zeros<T>(count)};
            gelu_backward<Version, T>({in[0], dy, d[0]});
            return d;
          }};
}

template <class Version, class T>
OpFunction<T> swiglu_function(ptrdiff_t count) {
  return {[=](const Tensors<T>& in) {
            Tensors<T> out = {zeros<T>(count)};
            swiglu_forward<Version, T>({in[0], in[1], out[0]});
            return out;
          },
          [=](const Tensors<T>& in, const std::vector<T>& dy) {
            Tensors<T> d = {zeros<T>(count), zeros<T>(count)};
            swiglu_backward<Version, T>({in[0], in[1], dy, d[0], d[1]});
            return d;
          }};
}

template <class Version, class T>
OpFunction<T> add_function(ptrdiff_t count) {
  return {[=](const Tensors<T>& in) {
            Tensors<T> out = {zeros<T>(count)};
            add<Version, T>({in[0], in[1], out[0]});
            return out;
          },
          [](const Tensors<T>&, const std::vector<T>& dy) { return Tensors<T>{dy, dy}; }};
}

/// Every third target is padding. The scale is the output gradient's first element: the loss of a
/// step weighs all rows alike.
template <class Version, class T>
OpFunction<T> cross_entropy_function(ops::CrossEntropyShape s) {
  auto targets = random_ids("targets", s.rows, s.vocabulary);
  for (std::size_t row = 0; row < targets.size(); row += 3) targets[row] = ops::kIgnoredTarget;
  const auto forward = [=](const Tensors<T>& in) {
    Tensors<T> out = {zeros<T>(s.rows), zeros<T>(s.rows)};
    cross_entropy_forward<Version, T>({s, in[0], targets, out[0], out[1]});
    return out;
  };
  return {forward, [=](const Tensors<T>& in, const std::vector<T>& dy) {
            const Tensors<T> kept = forward(in);
            Tensors<T> d = {zeros<T>(s.rows * s.vocabulary)};
            cross_entropy_backward<Version, T>({s, in[0], targets, kept[1], dy[0], d[0]});
            return d;
          }};
}

#define LH_VERSIONS(function, ...)                                             \
  function<Fast, float>(__VA_ARGS__), function<Reference, float>(__VA_ARGS__), \
      function<Reference, double>(__VA_ARGS__)

/// With `large` false, sizes for finite differences; else sizes that cross the boundaries of lanes,
/// tiles and query blocks.
/// `times` as many rows and elements.
inline std::vector<OpCase> op_cases(bool large, ptrdiff_t times = 1) {
  const auto size = [](ptrdiff_t count) { return static_cast<std::size_t>(count); };
  const ptrdiff_t rows = (large ? 53 : 3) * times;
  const ptrdiff_t in = large ? 45 : 5;
  const ptrdiff_t out = large ? 70 : 4;
  const ops::EmbeddingShape embedding = {2, large ? 29 : 3, large ? 37 : 4};
  const ops::NormShape norm = {rows, large ? 131 : 6};
  const ops::NormShape rms_norm = {rows, large ? 131 : 6, 1e-2};
  const ops::RotaryShape rotary = {.rows = 2 * (large ? 29 : 2),
                                   .context = large ? 29 : 2,
                                   .first_position = 3,
                                   .heads = 3,
                                   .head_width = large ? 38 : 4,
                                   .row_width = 4 * (large ? 38 : 4)};
  const ops::LinearShape in_out = {rows, in, out, ops::WeightLayout::kInOut};
  const ops::LinearShape out_in = {rows, in, out, ops::WeightLayout::kOutIn};
  const ops::AttentionShape attention = {2, large ? 133 : 4, 2, 2, large ? 20 : 3};
  const ops::AttentionShape grouped = {2, large ? 133 : 4, 6, 2, large ? 20 : 3};
  const auto qkv_size = [&](const ops::AttentionShape& s) {
    return size(s.sequences * s.context * s.qkv_width());
  };
  const ops::CrossEntropyShape entropy = {(large ? 30 : 4) * times, large ? 259 : 5};
  const ptrdiff_t count = (large ? 1003 : 11) * times;
  const ptrdiff_t vocabulary = 7;

  std::vector<OpCase> cases;
  cases.push_back({"embedding",
                   {size(vocabulary * embedding.width), size(embedding.context * embedding.width)},
                   1,
                   1e-6,
                   LH_VERSIONS(embedding_function, embedding, vocabulary, true)});
  cases.push_back({"embedding_without_positions",
                   {size(vocabulary * embedding.width)},
                   1,
                   1e-6,
                   LH_VERSIONS(embedding_function, embedding, vocabulary, false)});
  cases.push_back({"layer_norm",
                   {size(norm.rows * norm.width), size(norm.width), size(norm.width)},
                   2,
                   2e-6,
                   LH_VERSIONS(layer_norm_function, norm)});
  cases.push_back({"rms_norm",
                   {size(rms_norm.rows * rms_norm.width), size(rms_norm.width)},
                   2,
                   2e-6,
                   LH_VERSIONS(rms_norm_function, rms_norm)});
  cases.push_back({"linear",
                   {size(rows * in), size(in * out), size(out)},
                   1,
                   2e-6,
                   LH_VERSIONS(linear_function, in_out, true)});
  cases.push_back({"linear_out_in",
                   {size(rows * in), size(in * out)},
                   1,
                   2e-6,
                   LH_VERSIONS(linear_function, out_in, false)});
  cases.push_back({"linear_columns",
                   {size(rows * in), size(in * out), size(in * 3)},
                   1,
                   2e-6,
                   LH_VERSIONS(linear_columns_function, out_in, 3)});
  cases.push_back({"rotary",
                   {size(rotary.rows * rotary.row_width)},
                   1,
                   1e-6,
                   LH_VERSIONS(rotary_function, rotary)});
  cases.push_back(
      {"attention", {qkv_size(attention)}, 2, 5e-6, LH_VERSIONS(attention_function, attention)});
  cases.push_back({"attention_grouped",
                   {qkv_size(grouped)},
                   2,
                   5e-6,
                   LH_VERSIONS(attention_function, grouped)});
  cases.push_back({"gelu", {size(count)}, 6, 1e-6, LH_VERSIONS(gelu_function, count)});
  cases.push_back(
      {"swiglu", {size(count), size(count)}, 6, 1e-6, LH_VERSIONS(swiglu_function, count)});
  cases.push_back({"add", {size(count), size(count)}, 1, 1e-6, LH_VERSIONS(add_function, count)});
  cases.push_back({"cross_entropy",
                   {size(entropy.rows * entropy.vocabulary)},
                   5,
                   1e-6,
                   LH_VERSIONS(cross_entropy_function, entropy)});
  return cases;
}
#undef LH_VERSIONS

/// Inputs of a case; the same numbers in every type.
template <class T>
Tensors<T> inputs_of(const OpCase& op) {
  Tensors<T> inputs;
  for (std::size_t i = 0; i < op.input_sizes.size(); ++i) {
    inputs.push_back(random_values<T>(op.name + std::to_string(i), op.input_sizes[i], op.scale));
  }
  return inputs;
}

/// Weights of the outputs in a scalar loss; all alike for a loss of rows.
template <class T>
std::vector<T> cotangent_of(const OpCase& op, std::size_t outputs) {
  if (op.name == "cross_entropy") return std::vector<T>(outputs, T{0.25});
  return random_values<T>(op.name + " cotangent", outputs);
}

}  // namespace longhaul::fixtures
