#include "kernels/model_decoder.h"

#include <algorithm>

#include "kernels/cpu/bf16.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

/// Rows that go through a layer at once: enough for fast products, few enough to take little room.
constexpr int kRowsMax = 128;

}  // namespace

ModelDecoder::ModelDecoder(ModelStage stage)
    : stage_(std::move(stage)),
      caches_(static_cast<std::size_t>(stage_.model().layers)),
      logits_(static_cast<std::size_t>(stage_.model().vocabulary)) {
  const ModelSlice& slice = stage_.slice();
  LH_CHECK(slice.has_embedding && slice.has_head && slice.first_layer == 0 &&
               slice.end_layer == stage_.model().layers,
           "a decoder has the whole model");
}

std::span<const float> ModelDecoder::feed(std::span<const std::int32_t> tokens) {
  LH_CHECK(!tokens.empty() && std::ssize(tokens) <= room(), "the tokens fit the context");
  while (!tokens.empty()) {
    const std::size_t count = std::min<std::size_t>(tokens.size(), kRowsMax);
    const LayerState state = read(tokens.first(count));
    tokens = tokens.subspan(count);
    if (tokens.empty()) write_logits(state);
  }
  return logits_;
}

void ModelDecoder::reset() {
  size_ = 0;
  for (auto& cache : caches_) cache.clear();
}

LayerState ModelDecoder::read(std::span<const std::int32_t> tokens) {
  const ModelStage::Tensors& weights = stage_.weight_tensors_;
  const auto rows = std::ssize(tokens);
  LayerState state = lay_out(rows);
  const auto position = static_cast<std::size_t>(size_) * static_cast<std::size_t>(model().width);
  ops::embedding_forward({.shape = {1, rows, model().width},
                          .tokens = tokens,
                          .token_table = weights.token_table,
                          .position_table = weights.position_table.empty()
                                                ? weights.position_table
                                                : weights.position_table.subspan(position),
                          .output = state.input});
  stage_.rotary_.cover(size_ + static_cast<int>(rows));
  if (stage_.bf16_) round_to_bf16(state.input);
  for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
    const LayerPass pass = {.model = model(),
                            .bf16 = stage_.bf16_,
                            .sequences = 1,
                            .context = rows,
                            .first_position = size_,
                            .rotary = stage_.rotary_,
                            .weights = weights.layers[layer]};
    layer_before_attention(pass, state);
    keep_keys(state.qkv, caches_[layer]);
    ops::attention_forward({.shape = attention_shape(model(), 1, rows, stage_.bf16_),
                            .first_position = size_,
                            .qkv = state.qkv,
                            .cache = caches_[layer],
                            .output = state.attention});
    layer_after_attention(pass, state, state.input);
  }
  size_ += static_cast<int>(rows);
  return state;
}

LayerState ModelDecoder::lay_out(ptrdiff_t rows) {
  LayerState state;
  std::size_t used = 0;
  state.lay_out(model(), rows,
                [&](std::span<float>&, ptrdiff_t size) { used += static_cast<std::size_t>(size); });
  if (storage_.size() < used) storage_.resize(used);
  used = 0;
  state.lay_out(model(), rows, [&](std::span<float>& part, ptrdiff_t size) {
    part = std::span(storage_).subspan(used, static_cast<std::size_t>(size));
    used += part.size();
  });
  return state;
}

void ModelDecoder::keep_keys(std::span<const float> qkv, std::vector<float>& cache) const {
  const ops::AttentionShape heads = attention_shape(model(), 1, 1);
  for (ptrdiff_t row = 0; row < std::ssize(qkv); row += heads.qkv_width()) {
    cache.insert(cache.end(), qkv.begin() + row + heads.width(),
                 qkv.begin() + row + heads.qkv_width());
  }
}

void ModelDecoder::write_logits(const LayerState& state) {
  const ModelStage::Tensors& weights = stage_.weight_tensors_;
  const auto width = static_cast<std::size_t>(model().width);
  NormState last = {.output = state.norm1.output.last(width),
                    .mean = state.norm1.mean.empty() ? state.norm1.mean : state.norm1.mean.last(1),
                    .inverse_deviation = state.norm1.inverse_deviation.last(1)};
  norm_forward(model(), state.input.last(width), weights.final_norm, last);
  ops::linear_forward({.shape = {.rows = 1,
                                 .in = model().width,
                                 .out = model().vocabulary,
                                 .layout = ops::WeightLayout::kOutIn,
                                 .bf16 = stage_.bf16_},
                       .input = last.output,
                       .weight = weights.head,
                       .bias = {},
                       .output = logits_});
}

}  // namespace longhaul
