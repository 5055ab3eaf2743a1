// A model's shape as text: how job files and checkpoints' manifests write it, and the part of it
// that both read alike. Pure functions.
#pragma once

#include <string>

#include "core/job.h"

namespace longhaul {

class Cursor;

/// A flow map that reads back as exactly this shape: `{family: gpt2, layers: 12, ...}`. What only
/// Llama has stands there for Llama alone.
std::string model_text(const ModelShape& model);

/// Reads norm_epsilon, rope_theta and rope_scaling of the map `at` into `model`, whose family is
/// known; each may be left out. GPT-2 has no rotary embedding: its keys are refused there.
void read_model_numbers(const Cursor& at, ModelShape& model);

}  // namespace longhaul
