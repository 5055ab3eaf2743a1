// Sizes and costs of a transformer: parameters, FLOPs, activation bytes, memory, wire bytes.
//
// These are the formulas that planner, simulator and executor must agree on. Symbols: L layers,
// C width, H query heads, G key-value heads, d head width, F MLP width, S context, V vocabulary,
// b sequences of a micro-batch, e bytes of an element of the compute type.
#pragma once

#include <vector>

#include "core/job.h"
#include "core/topology.h"
#include "core/units.h"

namespace longhaul {

// ---- parameters (counts of scalars)

/// One transformer layer. GPT-2: 4 C Hd + 2 C F weights, 3 Hd + C + F + C biases, 4 C layer norm
/// (12 C^2 + 13 C at Hd = C, F = 4C). Llama: 2 C Hd + 2 C Gd + 3 C F weights, 2 C RMS norm.
double layer_parameters(const ModelShape& model);
/// Token embedding V C, and GPT-2's position embedding S C.
double token_embedding_parameters(const ModelShape& model);
double position_embedding_parameters(const ModelShape& model);
/// Final norm: 2 C for GPT-2, C for Llama.
double final_norm_parameters(const ModelShape& model);
/// The whole model, a tied embedding counted once.
double model_parameters(const ModelShape& model);

// ---- FLOPs (a multiply and an add are two)

/// Forward of one layer over b sequences: 2 b S (weights of its matrices) + 4 b S^2 Hd for the two
/// attention products. At Hd = C, F = 4C this is 24 b S C^2 (1 + S / 6C)
/// [Narayanan et al., SC 2021, appendix: 4 times this for forward, backward and recompute].
Flops layer_forward_flops(const ModelShape& model, double sequences);
/// Forward of the output head: 2 b S C V.
Flops head_forward_flops(const ModelShape& model, double sequences);
/// Forward and backward (3 forwards) of the whole model over b sequences.
Flops model_flops(const ModelShape& model, double sequences);

// ---- tensors

/// Boundary tensor between two stages: b S C e.
Bytes boundary_bytes(const ModelShape& model, Precision precision, double sequences);
/// What backward needs of one layer, with fused attention (probabilities are recomputed, Dao et al.
/// 2022) and no dropout. GPT-2: e b S (4 C + 4 Hd + 2 F): layer input, two norm outputs, the sum
/// after attention, q, k, v, attention output, MLP before and after the activation; 16 C at Hd = C
/// and F = 4C, the 32 s b h bytes that Korthikanti et al. 2022 (eq. 1) leave without dropout masks
/// and attention matrices. Llama: e b S (4 C + 2 Hd + 2 Gd + 3 F). Plus 4 b H S bytes of softmax
/// statistics.
Bytes layer_activation_bytes(const ModelShape& model, Precision precision, double sequences);
/// Largest scratch of a stage: fp32 logits 4 b S V where the head is, else the MLP's e b S F twice.
Bytes workspace_bytes(const ModelShape& model, Precision precision, double sequences,
                      bool has_head);

/// Bytes of `elements` under a codec, its frame included (kernels/codec/tensor_frame.h: a header of
/// 64 bytes and a checksum of 4; none: no frame). `raw` is the element size when nothing is done.
/// Codes of 8 bits take a byte for each element, smaller ones whole blocks; the scales, bf16, are
/// padded to 64 bytes. AQ codecs: of the differences, without the history's extension.
Bytes codec_bytes(Codec codec, double elements, double raw);
inline constexpr double kCodecFrameBytes = 68;

/// Whether the samples of a step were seen before, which is what an AQ codec asks.
enum class Visit { kFirst, kLater };
/// Bytes of one micro-batch's boundary message between sites. A codec without a history writes one
/// frame of b S C elements. One with a history writes a frame a sequence, 64 bytes longer and
/// padded to 64: of what `first_visit` makes of it at the first visit, later of the difference.
Bytes boundary_message_bytes(Codec codec, const ModelShape& model, Precision precision,
                             double sequences, Visit visit = Visit::kLater,
                             Codec first_visit = Codec::kBf16);

// ---- stages

/// A contiguous slice of the model, by what it holds besides its layers.
struct StageShape {
  int layers = 0;
  bool has_embedding = false;  // first stage
  bool has_head = false;       // last stage
};

/// Trainable scalars that live on the stage. The token embedding counts on both the first and the
/// last stage when it is tied (each holds a copy; at one stage, a second gradient accumulator).
double stage_parameters(const ModelShape& model, const StageShape& stage);
/// Scalars whose gradient the stage's own data-parallel exchange covers: everything but a tied
/// token embedding, which has an exchange of its own when there are several stages.
double stage_reduced_parameters(const ModelShape& model, const StageShape& stage, int stages);

/// Work of one micro-batch on one stage.
struct StageWork {
  Flops forward;
  Flops backward;   // 2 x forward: gradient of the input and of the weights
  Flops recompute;  // of the layers, without the head
  /// The two halves of `backward`. Weights: as their products in the forward. Input: the same, and
  /// twice the attention's products, which have no weights.
  Flops backward_input;
  Flops backward_weight;
};
StageWork stage_work(const ModelShape& model, const StageShape& stage, double sequences);

/// Stages of a plan: `layers[i]` of stage i, embedding first, head last.
std::vector<StageShape> stage_shapes(const std::vector<int>& layers);

/// Peak memory of a device, item by item.
struct MemoryUse {
  Bytes states;       // 16 bytes a parameter: fp32 weight, gradient, m, v; +2 for a half copy
  Bytes activations;  // K micro-batches in flight
  Bytes workspace;
  Bytes buffers;  // boundary tensors in flight, coded ones with their messages, and buckets
  Bytes reserved;
  Bytes history;  // of samples' activations, where an AQ codec keeps them in RAM
  Bytes history_on_disk;
  Bytes total() const { return states + activations + workspace + buffers + reserved + history; }
};
struct MemoryQuestion {
  StageShape stage;
  int micro_batch = 1;
  int in_flight = 1;  // K of the stage
  int pipelines = 1;  // D
  /// Split backward: V, the most micro-batches between their input gradient and their weight
  /// gradient (OrderPeaks::for_weights). 0: the backward is whole.
  int for_weights = 0;
  Bytes history = {};  // core/history_budget.h
  Bytes history_on_disk = {};
};
/// DESIGN's formula: 16 N (+ 2 N) + K x activations [recompute: K x boundary + one activation] +
/// workspace + credits x boundary [coded: 4 b S C and the message] + (D - 1) x bucket + reserved +
/// histories in RAM.
///
/// A split backward keeps V micro-batches from B to W: their activations, over the parts of which
/// that nobody wants any more the gradients inside the stage are written, and the gradient of the
/// output, a boundary tensor each. K counts forwards minus weight gradients, so the activations of
/// the V are in it, unless they are recomputed: then they are complete from B to W while another
/// runs forward.
///   kept: K x activations + V x boundary
///   recomputed: K x boundary + (V + 1) x activations + V x boundary
/// The head's logits, the largest scratch, are there once whatever V: B and W of a micro-batch
/// whose logits were overwritten in between multiply them again.
MemoryUse memory_use(const Job& job, const DeviceKind& kind, const MemoryQuestion& question);
inline constexpr double kBoundaryCredits = 4;          // two each way
inline constexpr double kBucketBytes = 4.0 * 1048576;  // one reduction segment of a peer

// ---- times of a device

/// One pass over a stage: flops / sustained rate + overhead. Infinite when the kind has no speed
/// for the precision.
Seconds compute_time(const DeviceKind& kind, Precision precision, Flops work);
/// AdamW reads weight, gradient, m, v and writes weight, m, v: 28 bytes a parameter, memory-bound.
Seconds update_time(const DeviceKind& kind, double parameters);

}  // namespace longhaul
