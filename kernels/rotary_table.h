// Cosines and sines of Llama's rotary position embedding, for ops::Rotary.
//
// Pair i of a head is turned at position p by p x frequency_i, frequency_i = theta^(-2i / d), which
// RopeScaling may lower. Frequencies and angles are rounded to fp32 where transformers rounds them,
// since at a late position those roundings move an angle by more than our own arithmetic does.
//
// The same bits on every machine: powers, cosines and sines are taken in double by sums of plain
// multiplies and adds in a fixed order, never by the C library, and rounded to fp32 once.
#pragma once

#include <span>
#include <vector>

#include "core/job.h"

namespace longhaul {

/// Angle of each pair between two positions, scaling included. [head_width / 2]; empty for GPT-2,
/// which turns nothing.
std::vector<float> rotary_frequencies(const ModelShape& model);

class RotaryTable {
 public:
  RotaryTable() = default;
  explicit RotaryTable(const ModelShape& model) : frequencies_(rotary_frequencies(model)) {}

  /// Makes what is missing of the first `positions`. A model may have a context that nobody uses.
  void cover(int positions);
  /// Of the positions covered so far: [positions, head_width / 2].
  std::span<const float> cosine() const { return cosine_; }
  std::span<const float> sine() const { return sine_; }

 private:
  std::vector<float> frequencies_;
  std::vector<float> cosine_, sine_;
  int positions_ = 0;
};

}  // namespace longhaul
