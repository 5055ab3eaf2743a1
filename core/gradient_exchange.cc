#include "core/gradient_exchange.h"

#include <cmath>

namespace longhaul {
namespace {

/// Adds a tensor of so many dimensions, `count` times.
void add(GradientElements& sum, int dimensions, double elements, double count = 1) {
  (is_coded_gradient(dimensions, elements) ? sum.coded : sum.plain) += count * elements;
}

void add_layers(GradientElements& sum, const ModelShape& m, double layers) {
  const double width = m.width;
  const double query = static_cast<double>(m.heads) * m.head_width;
  const double key = static_cast<double>(m.kv_heads) * m.head_width;
  const double inner = m.ffn_width;
  const GradientElements before = sum;
  if (m.family == ModelFamily::kGpt2) {
    add(sum, 2, width * (query + 2 * key), layers);
    add(sum, 2, query * width, layers);
    add(sum, 2, width * inner, 2 * layers);
  } else {
    add(sum, 2, width * query, 2 * layers);
    add(sum, 2, width * key, 2 * layers);
    add(sum, 2, width * inner, 3 * layers);
  }
  // What is left are biases and norms.
  sum.plain += layers * layer_parameters(m) - (sum.all() - before.all());
}

}  // namespace

GradientElements stage_gradient_elements(const ModelShape& m, const StageShape& stage, int stages) {
  GradientElements sum;
  add_layers(sum, m, stage.layers);
  const double embedding = token_embedding_parameters(m);
  if (m.tied_embedding) {
    if (stages == 1) add(sum, 2, embedding);
  } else {
    if (stage.has_embedding) add(sum, 2, embedding);
    if (stage.has_head) add(sum, 2, embedding);
  }
  if (stage.has_embedding) add(sum, 2, position_embedding_parameters(m));
  if (stage.has_head) sum.plain += final_norm_parameters(m);
  return sum;
}

GradientElements tied_gradient_elements(const ModelShape& m) {
  GradientElements sum;
  add(sum, 2, token_embedding_parameters(m));
  return sum;
}

Bytes gradient_wire_bytes(Codec codec, const GradientElements& shard) {
  constexpr double kElement = 4;
  if (codec == Codec::kNone) return Bytes(kElement * shard.all());
  const double full = std::floor(shard.coded / kBucketElements);
  const double rest = shard.coded - full * kBucketElements;
  Bytes bytes =
      full * codec_bytes(codec, kBucketElements, kElement) + Bytes(kElement * shard.plain);
  if (rest > 0) bytes += codec_bytes(codec, rest, kElement);
  return bytes;
}

bool has_error_feedback(Codec codec) {
  return bits_of(codec) < 16;
}

Bytes feedback_bytes(Codec codec, double coded_elements) {
  return Bytes(has_error_feedback(codec) ? 8 * coded_elements : 0);
}

}  // namespace longhaul
