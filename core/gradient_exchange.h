// What replicas exchange of their gradients, in numbers that planner, simulator and executor must
// agree on: which tensors a codec is for, the bytes of a message, the memory of error feedback.
// Pure functions; any thread.
#pragma once

#include "core/job.h"
#include "core/model_math.h"
#include "core/units.h"

namespace longhaul {

/// The rule of small tensors: norm gains and biases are few and matter much, so a codec is for
/// tensors of two dimensions or more with at least 4,096 elements. All others travel as fp32.
constexpr bool is_coded_gradient(int dimensions, double elements) {
  return dimensions >= 2 && elements >= 4096;
}

/// Elements of a gradient, or of a share of it, by how they travel between sites.
struct GradientElements {
  double coded = 0;
  double plain = 0;

  double all() const { return coded + plain; }
  GradientElements operator/(double shares) const { return {coded / shares, plain / shares}; }
};
/// Of a stage's own exchange (stage_reduced_parameters of them).
GradientElements stage_gradient_elements(const ModelShape& model, const StageShape& stage,
                                         int stages);
/// Of the tied embedding's exchange.
GradientElements tied_gradient_elements(const ModelShape& model);

/// A shard travels as messages of at most so many elements.
inline constexpr double kBucketElements = kBucketBytes / 4;

/// Payload of a shard's way from one site to another, to its owner or from it: its coded elements
/// in buckets, a frame each (codec_bytes), and its plain ones. `none`: 4 bytes an element. Elements
/// of a shard may be fractions of one; then this is exact but for the padding of the last bucket.
Bytes gradient_wire_bytes(Codec codec, const GradientElements& shard);

/// Whether a member keeps what the codec took away from its gradients, and adds it to those of the
/// next step (executor/collective/error_feedback.h): all codecs of fewer than 16 bits.
bool has_error_feedback(Codec codec);
/// Memory of that at a member, 8 bytes an element: what was left over, and what the step at hand
/// leaves over until it is committed. Of the coded elements that it gives to owners in other sites,
/// and of those that it owns; at most all.
Bytes feedback_bytes(Codec codec, double coded_elements);

}  // namespace longhaul
