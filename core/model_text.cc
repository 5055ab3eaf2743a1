#include "core/model_text.h"

#include <fmt/core.h>

#include "core/config_cursor.h"
#include "core/quantity.h"

namespace longhaul {
namespace {

constexpr double kThetaMax = 1e12;
constexpr double kFactorMax = 1e6;
constexpr std::int64_t kContextMax = 1 << 24;

RopeScaling read_rope_scaling(const Cursor& at) {
  RopeScaling scaling;
  scaling.factor = at.key("factor").number({.min = 1, .max = kFactorMax}, scaling.factor);
  const auto frequency = [&](const char* name, double fallback) {
    const Cursor cursor = at.key(name);
    const double value = cursor.number({.min = 0, .max = kFactorMax}, fallback);
    if (value == 0) cursor.fail("a wave of frequency 0 never ends");
    return value;
  };
  scaling.low_frequency = frequency("low_frequency", scaling.low_frequency);
  scaling.high_frequency = frequency("high_frequency", scaling.high_frequency);
  scaling.original_context = static_cast<int>(
      at.key("original_context").integer({.min = 1, .max = kContextMax}, scaling.original_context));
  if (scaling.high_frequency <= scaling.low_frequency) {
    at.key("high_frequency")
        .fail(fmt::format("{} does not lie above `low_frequency` {}", scaling.high_frequency,
                          scaling.low_frequency));
  }
  return scaling;
}

}  // namespace

std::string model_text(const ModelShape& model) {
  std::string text = fmt::format(
      "{{family: {}, layers: {}, width: {}, heads: {}, kv_heads: {}, head_width: {},\n"
      "        ffn_width: {}, context: {}, vocabulary: {}, tied_embedding: {}, norm_epsilon: {}",
      name_of(model.family), model.layers, model.width, model.heads, model.kv_heads,
      model.head_width, model.ffn_width, model.context, model.vocabulary, model.tied_embedding,
      format_exact(model.norm_epsilon));
  if (model.family == ModelFamily::kLlama) {
    text += fmt::format(",\n        rope_theta: {}", format_exact(model.rope_theta));
    if (const auto& scaling = model.rope_scaling) {
      text += fmt::format(
          ", rope_scaling: {{factor: {}, low_frequency: {}, high_frequency: {}, "
          "original_context: {}}}",
          format_exact(scaling->factor), format_exact(scaling->low_frequency),
          format_exact(scaling->high_frequency), scaling->original_context);
    }
  }
  return text + "}";
}

void read_model_numbers(const Cursor& at, ModelShape& model) {
  const Cursor epsilon = at.optional("norm_epsilon");
  model.norm_epsilon = epsilon.number({.min = 0, .max = 1}, model.norm_epsilon);
  if (static_cast<float>(model.norm_epsilon) == 0) {
    epsilon.fail("a norm of zeros divides by zero where its epsilon is 0 in fp32");
  }
  const Cursor theta = at.optional("rope_theta");
  const Cursor scaling = at.optional("rope_scaling");
  if (model.family != ModelFamily::kLlama) {
    for (const Cursor& cursor : {theta, scaling}) {
      if (cursor.present()) {
        cursor.fail(fmt::format("{} has no rotary embedding", name_of(model.family)),
                    "leave it out, or use family llama");
      }
    }
    return;
  }
  model.rope_theta = theta.number({.min = 1, .max = kThetaMax}, model.rope_theta);
  if (scaling.present()) model.rope_scaling = read_rope_scaling(scaling);
}

}  // namespace longhaul
