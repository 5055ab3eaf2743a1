// Cosines and sines of Llama's rotary position embedding, for ops::Rotary.
//
// Pair i of a head is turned at position p by p x frequency_i, frequency_i = theta^(-2i / d), which
// RopeScaling may lower. Frequencies and angles are rounded to fp32 where transformers rounds them,
// since at a late position those roundings move an angle by more than our own arithmetic does.
//
// The same bits on every machine: powers, cosines and sines are taken in double by sums of plain
// multiplies and adds in a fixed order, never by the C library, and rounded to fp32 once.
#pragma once

#include <vector>

#include "core/job.h"

namespace longhaul {

struct RotaryTable {
  std::vector<float> cosine;  // [context, head_width / 2]
  std::vector<float> sine;
};

/// Of all positions of the context; empty for GPT-2, which has none.
RotaryTable make_rotary_table(const ModelShape& model);
/// Angle of each pair between two positions, scaling included. [head_width / 2]
std::vector<float> rotary_frequencies(const ModelShape& model);

}  // namespace longhaul
