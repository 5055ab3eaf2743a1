#include "kernels/cpu/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace longhaul::reference {
namespace {

/// Element (row, column) of a row-major matrix.
template <class T>
T& at(std::span<T> matrix, ptrdiff_t row, ptrdiff_t width, ptrdiff_t column) {
  return matrix[static_cast<std::size_t>(row * width + column)];
}
template <class T>
T& at(std::span<T> vector, ptrdiff_t index) {
  return vector[static_cast<std::size_t>(index)];
}

template <class T>
const T& weight_at(std::span<const T> weight, const ops::LinearShape& s, ptrdiff_t i, ptrdiff_t o) {
  return s.layout == ops::WeightLayout::kInOut ? at(weight, i, s.out, o) : at(weight, o, s.in, i);
}

}  // namespace

template <class T>
void embedding_forward(const ops::Embedding<T>& op) {
  const auto& s = op.shape;
  for (ptrdiff_t row = 0; row < s.sequences * s.context; ++row) {
    for (ptrdiff_t c = 0; c < s.width; ++c) {
      T sum = at(op.token_table, at(op.tokens, row), s.width, c);
      if (!op.position_table.empty()) sum += at(op.position_table, row % s.context, s.width, c);
      at(op.output, row, s.width, c) = sum;
    }
  }
}

template <class T>
void embedding_backward(const ops::EmbeddingBackward<T>& op) {
  const auto& s = op.shape;
  for (ptrdiff_t row = 0; row < s.sequences * s.context; ++row) {
    for (ptrdiff_t c = 0; c < s.width; ++c) {
      const T gradient = at(op.output_gradient, row, s.width, c);
      at(op.token_table_gradient, at(op.tokens, row), s.width, c) += gradient;
      if (!op.position_table_gradient.empty()) {
        at(op.position_table_gradient, row % s.context, s.width, c) += gradient;
      }
    }
  }
}

template <class T>
void layer_norm_forward(const ops::LayerNorm<T>& op) {
  const auto [rows, width, epsilon] = op.shape;
  const T n = static_cast<T>(width);
  for (ptrdiff_t row = 0; row < rows; ++row) {
    T mean = 0;
    for (ptrdiff_t c = 0; c < width; ++c) mean += at(op.input, row, width, c) / n;
    T variance = 0;
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T deviation = at(op.input, row, width, c) - mean;
      variance += deviation * deviation / n;
    }
    const T inverse = 1 / std::sqrt(variance + static_cast<T>(epsilon));
    for (ptrdiff_t c = 0; c < width; ++c) {
      at(op.output, row, width, c) =
          (at(op.input, row, width, c) - mean) * inverse * at(op.weight, c) + at(op.bias, c);
    }
    at(op.mean, row) = mean;
    at(op.inverse_deviation, row) = inverse;
  }
}

// With x^ = (x - mean) / deviation and g = output_gradient * weight:
//   input_gradient = (g - mean(g) - x^ mean(g x^)) / deviation
template <class T>
void layer_norm_backward_input(const ops::LayerNormBackwardInput<T>& op) {
  const auto [rows, width, _] = op.shape;
  const T n = static_cast<T>(width);
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const T mean = at(op.mean, row);
    const T inverse = at(op.inverse_deviation, row);
    T mean_g = 0;
    T mean_gx = 0;
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T x = (at(op.input, row, width, c) - mean) * inverse;
      const T g = at(op.output_gradient, row, width, c) * at(op.weight, c);
      mean_g += g / n;
      mean_gx += g * x / n;
    }
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T x = (at(op.input, row, width, c) - mean) * inverse;
      const T g = at(op.output_gradient, row, width, c) * at(op.weight, c);
      at(op.input_gradient, row, width, c) = (g - mean_g - x * mean_gx) * inverse;
    }
  }
}

template <class T>
void layer_norm_backward_weight(const ops::LayerNormBackwardWeight<T>& op) {
  const auto [rows, width, _] = op.shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T x = (at(op.input, row, width, c) - at(op.mean, row)) * at(op.inverse_deviation, row);
      at(op.weight_gradient, c) += at(op.output_gradient, row, width, c) * x;
      at(op.bias_gradient, c) += at(op.output_gradient, row, width, c);
    }
  }
}

template <class T>
void rms_norm_forward(const ops::RmsNorm<T>& op) {
  const auto [rows, width, epsilon] = op.shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    T mean_square = 0;
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T x = at(op.input, row, width, c);
      mean_square += x * x / static_cast<T>(width);
    }
    const T inverse = 1 / std::sqrt(mean_square + static_cast<T>(epsilon));
    for (ptrdiff_t c = 0; c < width; ++c) {
      at(op.output, row, width, c) = at(op.input, row, width, c) * inverse * at(op.weight, c);
    }
    at(op.inverse_root, row) = inverse;
  }
}

// With x^ = x / root and g = output_gradient * weight:
//   input_gradient = (g - x^ mean(g x^)) / root
template <class T>
void rms_norm_backward_input(const ops::RmsNormBackwardInput<T>& op) {
  const auto [rows, width, _] = op.shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const T inverse = at(op.inverse_root, row);
    T mean_gx = 0;
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T g = at(op.output_gradient, row, width, c) * at(op.weight, c);
      mean_gx += g * at(op.input, row, width, c) * inverse / static_cast<T>(width);
    }
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T g = at(op.output_gradient, row, width, c) * at(op.weight, c);
      const T x = at(op.input, row, width, c) * inverse;
      at(op.input_gradient, row, width, c) = (g - x * mean_gx) * inverse;
    }
  }
}

template <class T>
void rms_norm_backward_weight(const ops::RmsNormBackwardWeight<T>& op) {
  const auto [rows, width, _] = op.shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    for (ptrdiff_t c = 0; c < width; ++c) {
      const T x = at(op.input, row, width, c) * at(op.inverse_root, row);
      at(op.weight_gradient, c) += at(op.output_gradient, row, width, c) * x;
    }
  }
}

template <class T>
void linear_forward(const ops::Linear<T>& op) {
  const auto& s = op.shape;
  for (ptrdiff_t row = 0; row < s.rows; ++row) {
    for (ptrdiff_t o = 0; o < s.out; ++o) {
      T sum = op.bias.empty() ? T{0} : at(op.bias, o);
      for (ptrdiff_t i = 0; i < s.in; ++i) {
        sum += at(op.input, row, s.in, i) * weight_at(op.weight, s, i, o);
      }
      at(op.output, row, s.out_row(), o) = sum;
    }
  }
}

template <class T>
void linear_backward_input(const ops::LinearBackwardInput<T>& op) {
  const auto& s = op.shape;
  for (ptrdiff_t row = 0; row < s.rows; ++row) {
    for (ptrdiff_t i = 0; i < s.in; ++i) {
      T sum = op.accumulates ? at(op.input_gradient, row, s.in, i) : T{0};
      for (ptrdiff_t o = 0; o < s.out; ++o) {
        sum += at(op.output_gradient, row, s.out_row(), o) * weight_at(op.weight, s, i, o);
      }
      at(op.input_gradient, row, s.in, i) = sum;
    }
  }
}

template <class T>
void linear_backward_weight(const ops::LinearBackwardWeight<T>& op) {
  const auto& s = op.shape;
  for (ptrdiff_t row = 0; row < s.rows; ++row) {
    for (ptrdiff_t o = 0; o < s.out; ++o) {
      const T gradient = at(op.output_gradient, row, s.out_row(), o);
      for (ptrdiff_t i = 0; i < s.in; ++i) {
        T& sum = s.layout == ops::WeightLayout::kInOut ? at(op.weight_gradient, i, s.out, o)
                                                       : at(op.weight_gradient, o, s.in, i);
        sum += at(op.input, row, s.in, i) * gradient;
      }
      if (!op.bias_gradient.empty()) at(op.bias_gradient, o) += gradient;
    }
  }
}

namespace {

/// Turns every pair by its angle, or by the negative one.
template <class T>
void rotate(const ops::Rotary<T>& op, T sign) {
  const auto& s = op.shape;
  const ptrdiff_t half = s.head_width / 2;
  for (ptrdiff_t row = 0; row < s.rows; ++row) {
    const ptrdiff_t position = s.first_position + row % s.context;
    for (ptrdiff_t head = 0; head < s.heads; ++head) {
      for (ptrdiff_t i = 0; i < half; ++i) {
        T& x = at(op.qkv, row, s.row_width, head * s.head_width + i);
        T& y = at(op.qkv, row, s.row_width, head * s.head_width + half + i);
        const T cosine = at(op.cosine, position, half, i);
        const T sine = sign * at(op.sine, position, half, i);
        const T turned_x = x * cosine - y * sine;
        y = y * cosine + x * sine;
        x = turned_x;
      }
    }
  }
}

}  // namespace

template <class T>
void rotary_forward(const ops::Rotary<T>& op) {
  rotate(op, T{1});
}

template <class T>
void rotary_backward(const ops::Rotary<T>& op) {
  rotate(op, T{-1});
}

namespace {

/// One head of one sequence: where its queries, keys and values lie in a [rows, qkv width] matrix.
struct Head {
  const ops::AttentionShape& shape;
  ptrdiff_t sequence;
  ptrdiff_t head;

  ptrdiff_t row(ptrdiff_t position) const { return sequence * shape.context + position; }
  template <class T>
  T& part(std::span<T> qkv, ptrdiff_t of_row, ptrdiff_t position, ptrdiff_t d) const {
    return at(qkv, row(position), shape.qkv_width(), of_row * shape.head_width + d);
  }
  /// The key head of this query head, counted in heads of a row.
  ptrdiff_t key() const { return shape.heads + head / (shape.heads / shape.kv_heads); }
  template <class T>
  T& q(std::span<T> qkv, ptrdiff_t position, ptrdiff_t d) const {
    return part(qkv, head, position, d);
  }
  template <class T>
  T& k(std::span<T> qkv, ptrdiff_t position, ptrdiff_t d) const {
    return part(qkv, key(), position, d);
  }
  template <class T>
  T& v(std::span<T> qkv, ptrdiff_t position, ptrdiff_t d) const {
    return part(qkv, key() + shape.kv_heads, position, d);
  }
  template <class T>
  T& out(std::span<T> output, ptrdiff_t position, ptrdiff_t d) const {
    return at(output, row(position), shape.width(), head * shape.head_width + d);
  }
  template <class T>
  T& statistic(std::span<T> values, ptrdiff_t position) const {
    return at(values, (sequence * shape.heads + head) * shape.context + position);
  }

  template <class T>
  T score(std::span<const T> qkv, ptrdiff_t i, ptrdiff_t j) const {
    T sum = 0;
    for (ptrdiff_t d = 0; d < shape.head_width; ++d) sum += q(qkv, i, d) * k(qkv, j, d);
    return sum / std::sqrt(static_cast<T>(shape.head_width));
  }
};

template <class Body>
void for_each_head(const ops::AttentionShape& shape, Body body) {
  for (ptrdiff_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (ptrdiff_t head = 0; head < shape.heads; ++head) body(Head{shape, sequence, head});
  }
}

/// log(sum(exp(scores))).
template <class T>
T log_sum_exp_of(std::span<const T> scores) {
  const T largest = *std::max_element(scores.begin(), scores.end());
  T sum = 0;
  for (const T score : scores) sum += std::exp(score - largest);
  return largest + std::log(sum);
}

}  // namespace

template <class T>
void attention_forward(const ops::Attention<T>& op) {
  for_each_head(op.shape, [&op](const Head& h) {
    for (ptrdiff_t i = 0; i < h.shape.context; ++i) {
      std::vector<T> scores;
      for (ptrdiff_t j = 0; j <= i; ++j) scores.push_back(h.score(op.qkv, i, j));
      const T lse = log_sum_exp_of<T>(scores);
      for (ptrdiff_t d = 0; d < h.shape.head_width; ++d) {
        T sum = 0;
        for (ptrdiff_t j = 0; j <= i; ++j) {
          sum += std::exp(scores[static_cast<std::size_t>(j)] - lse) * h.v(op.qkv, j, d);
        }
        h.out(op.output, i, d) = sum;
      }
      h.statistic(op.log_sum_exp, i) = lse;
    }
  });
}

// With p = softmax(s), s = q k / sqrt(d), o = p v:
//   dv_j = sum_i p_ij do_i;  dp_ij = do_i v_j;  ds_ij = p_ij (dp_ij - do_i o_i)
//   dq_i = sum_j ds_ij k_j / sqrt(d);  dk_j = sum_i ds_ij q_i / sqrt(d)
template <class T>
void attention_backward(const ops::AttentionBackward<T>& op) {
  std::fill(op.qkv_gradient.begin(), op.qkv_gradient.end(), T{0});
  for_each_head(op.shape, [&op](const Head& h) {
    const ptrdiff_t head_width = h.shape.head_width;
    const T scale = 1 / std::sqrt(static_cast<T>(head_width));
    for (ptrdiff_t i = 0; i < h.shape.context; ++i) {
      T do_o = 0;
      for (ptrdiff_t d = 0; d < head_width; ++d) {
        do_o += h.out(op.output_gradient, i, d) * h.out(op.output, i, d);
      }
      for (ptrdiff_t j = 0; j <= i; ++j) {
        const T p = std::exp(h.score(op.qkv, i, j) - h.statistic(op.log_sum_exp, i));
        T dp = 0;
        for (ptrdiff_t d = 0; d < head_width; ++d) {
          dp += h.out(op.output_gradient, i, d) * h.v(op.qkv, j, d);
        }
        const T ds = p * (dp - do_o) * scale;
        for (ptrdiff_t d = 0; d < head_width; ++d) {
          h.q(op.qkv_gradient, i, d) += ds * h.k(op.qkv, j, d);
          h.k(op.qkv_gradient, j, d) += ds * h.q(op.qkv, i, d);
          h.v(op.qkv_gradient, j, d) += p * h.out(op.output_gradient, i, d);
        }
      }
    }
  });
}

namespace {

constexpr double kGeluCubic = 0.044715;

template <class T>
T gelu_tanh(T x) {
  const T root = static_cast<T>(std::sqrt(2 / std::numbers::pi));
  return std::tanh(root * (x + static_cast<T>(kGeluCubic) * x * x * x));
}

}  // namespace

template <class T>
void gelu_forward(const ops::Gelu<T>& op) {
  for (std::size_t i = 0; i < op.input.size(); ++i) {
    const T x = op.input[i];
    op.output[i] = x * (1 + gelu_tanh(x)) / 2;
  }
}

template <class T>
void gelu_backward(const ops::GeluBackward<T>& op) {
  const T root = static_cast<T>(std::sqrt(2 / std::numbers::pi));
  for (std::size_t i = 0; i < op.input.size(); ++i) {
    const T x = op.input[i];
    const T t = gelu_tanh(x);
    const T inner = root * (1 + 3 * static_cast<T>(kGeluCubic) * x * x);
    op.input_gradient[i] = op.output_gradient[i] * ((1 + t) / 2 + x * (1 - t * t) * inner / 2);
  }
}

template <class T>
void swiglu_forward(const ops::SwiGlu<T>& op) {
  for (std::size_t i = 0; i < op.gate.size(); ++i) {
    op.output[i] = op.gate[i] / (1 + std::exp(-op.gate[i])) * op.up[i];
  }
}

template <class T>
void swiglu_backward(const ops::SwiGluBackward<T>& op) {
  for (std::size_t i = 0; i < op.gate.size(); ++i) {
    const T x = op.gate[i];
    const T sigmoid = 1 / (1 + std::exp(-x));
    const T slope = sigmoid * (1 + x * (1 - sigmoid));
    const T up = op.up[i];
    op.up_gradient[i] = op.output_gradient[i] * x * sigmoid;
    op.gate_gradient[i] = op.output_gradient[i] * up * slope;
  }
}

template <class T>
void add(const ops::Add<T>& op) {
  for (std::size_t i = 0; i < op.output.size(); ++i) op.output[i] = op.left[i] + op.right[i];
}

template <class T>
void cross_entropy_forward(const ops::CrossEntropy<T>& op) {
  const auto [rows, vocabulary] = op.shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const auto logits = op.logits.subspan(static_cast<std::size_t>(row * vocabulary),
                                          static_cast<std::size_t>(vocabulary));
    const std::int32_t target = at(op.targets, row);
    const T lse = log_sum_exp_of<T>(logits);
    at(op.losses, row) = target == ops::kIgnoredTarget ? T{0} : lse - at(logits, target);
    at(op.log_sum_exp, row) = lse;
  }
}

template <class T>
void cross_entropy_backward(const ops::CrossEntropyBackward<T>& op) {
  const auto [rows, vocabulary] = op.shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const std::int32_t target = at(op.targets, row);
    const T scale = target == ops::kIgnoredTarget ? T{0} : op.scale;
    for (ptrdiff_t c = 0; c < vocabulary; ++c) {
      const T p = std::exp(at(op.logits, row, vocabulary, c) - at(op.log_sum_exp, row));
      at(op.logits_gradient, row, vocabulary, c) = (p - (c == target ? T{1} : T{0})) * scale;
    }
  }
}

template <class T>
void adamw(const ops::AdamW<T>& op) {
  const auto& o = op.options;
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(o.step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(o.step));
  for (std::size_t i = 0; i < op.weight.size(); ++i) {
    const T gradient = op.gradient[i] * static_cast<T>(o.gradient_scale);
    T& weight = op.weight[i];
    T& m = op.m[i];
    T& v = op.v[i];
    weight *= static_cast<T>(1 - o.learning_rate * o.weight_decay);
    m += (gradient - m) * static_cast<T>(1 - o.beta1);
    v = v * static_cast<T>(o.beta2) + gradient * gradient * static_cast<T>(1 - o.beta2);
    const T root = std::sqrt(v) / static_cast<T>(std::sqrt(correction2));
    weight -=
        static_cast<T>(o.learning_rate / correction1) * m / (root + static_cast<T>(o.epsilon));
  }
}

#define LH_INSTANTIATE(T)                                                              \
  template void embedding_forward<T>(const ops::Embedding<T>&);                        \
  template void embedding_backward<T>(const ops::EmbeddingBackward<T>&);               \
  template void layer_norm_forward<T>(const ops::LayerNorm<T>&);                       \
  template void layer_norm_backward_input<T>(const ops::LayerNormBackwardInput<T>&);   \
  template void layer_norm_backward_weight<T>(const ops::LayerNormBackwardWeight<T>&); \
  template void rms_norm_forward<T>(const ops::RmsNorm<T>&);                           \
  template void rms_norm_backward_input<T>(const ops::RmsNormBackwardInput<T>&);       \
  template void rms_norm_backward_weight<T>(const ops::RmsNormBackwardWeight<T>&);     \
  template void linear_forward<T>(const ops::Linear<T>&);                              \
  template void linear_backward_input<T>(const ops::LinearBackwardInput<T>&);          \
  template void linear_backward_weight<T>(const ops::LinearBackwardWeight<T>&);        \
  template void rotary_forward<T>(const ops::Rotary<T>&);                              \
  template void rotary_backward<T>(const ops::Rotary<T>&);                             \
  template void attention_forward<T>(const ops::Attention<T>&);                        \
  template void attention_backward<T>(const ops::AttentionBackward<T>&);               \
  template void gelu_forward<T>(const ops::Gelu<T>&);                                  \
  template void gelu_backward<T>(const ops::GeluBackward<T>&);                         \
  template void swiglu_forward<T>(const ops::SwiGlu<T>&);                              \
  template void swiglu_backward<T>(const ops::SwiGluBackward<T>&);                     \
  template void add<T>(const ops::Add<T>&);                                            \
  template void cross_entropy_forward<T>(const ops::CrossEntropy<T>&);                 \
  template void cross_entropy_backward<T>(const ops::CrossEntropyBackward<T>&);        \
  template void adamw<T>(const ops::AdamW<T>&);
LH_INSTANTIATE(float)
LH_INSTANTIATE(double)
#undef LH_INSTANTIATE

}  // namespace longhaul::reference
