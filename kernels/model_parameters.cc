#include "kernels/model_parameters.h"

#include <fmt/core.h>

#include <utility>

namespace longhaul {
namespace {

constexpr std::size_t kOffsetMultiple = 16;  // floats: 64 bytes

class ParameterList {
 public:
  void add(std::string name, std::vector<std::int64_t> shape) {
    std::size_t size = 1;
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    list_.push_back({std::move(name), std::move(shape), end_, size});
    end_ += round_up_to_line(size);
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

std::size_t round_up_to_line(std::size_t floats) {
  return (floats + kOffsetMultiple - 1) / kOffsetMultiple * kOffsetMultiple;
}

std::vector<ModelParameter> parameters_of(const ModelShape& model, const ModelSlice& slice) {
  return model.family == ModelFamily::kGpt2 ? gpt2_parameters(model, slice)
                                            : llama_parameters(model, slice);
}

}  // namespace longhaul
