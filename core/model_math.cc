#include "core/model_math.h"

#include <algorithm>
#include <cmath>

namespace longhaul {
namespace {

/// Hd, the width of all query heads together.
double query_width(const ModelShape& m) {
  return static_cast<double>(m.heads) * m.head_width;
}
/// Gd, the width of all key (or value) heads together.
double key_width(const ModelShape& m) {
  return static_cast<double>(m.kv_heads) * m.head_width;
}

/// Scalars of the matrices of one layer: what its forward multiplies with.
double layer_matrix_parameters(const ModelShape& m) {
  const double width = m.width;
  const double attention = 2 * width * query_width(m) + 2 * width * key_width(m);
  const double matrices = m.family == ModelFamily::kGpt2 ? 2 : 3;
  return attention + matrices * width * m.ffn_width;
}

double tokens(const ModelShape& m, double sequences) {
  return sequences * m.context;
}

/// A boundary tensor on its way. Plain it is its message; a coded one is decoded into fp32 and has
/// its message beside it. Where the plan chooses there is room for the finest.
Bytes boundary_buffer_bytes(const Job& job, double sequences) {
  const Codec backward = own_codec(job, CodecUse::kActivationGradients);
  const bool varies =
      is_auto(job, CodecUse::kActivations) || is_auto(job, CodecUse::kActivationGradients);
  const Bytes plain = boundary_bytes(job.model, job.precision, sequences);
  if (!varies && job.activations == Codec::kNone && backward == Codec::kNone) return plain;
  const auto message = [&](Codec codec, Visit visit) {
    return boundary_message_bytes(codec, job.model, job.precision, sequences, visit,
                                  job.history.value_or(HistorySettings{}).first_visit);
  };
  const Bytes tensor = boundary_bytes(job.model, Precision::kFp32, sequences);
  return tensor + std::max({message(validation_codec(job.activations), Visit::kFirst),
                            message(job.activations, Visit::kLater),
                            message(backward, Visit::kLater), varies ? plain : Bytes(0)});
}

}  // namespace

double layer_parameters(const ModelShape& m) {
  const double width = m.width;
  if (m.family == ModelFamily::kLlama) return layer_matrix_parameters(m) + 2 * width;
  const double biases = query_width(m) + 2 * key_width(m) + width + m.ffn_width + width;
  return layer_matrix_parameters(m) + biases + 4 * width;
}

double token_embedding_parameters(const ModelShape& m) {
  return static_cast<double>(m.vocabulary) * m.width;
}

double position_embedding_parameters(const ModelShape& m) {
  return m.family == ModelFamily::kGpt2 ? static_cast<double>(m.context) * m.width : 0;
}

double final_norm_parameters(const ModelShape& m) {
  return m.family == ModelFamily::kGpt2 ? 2.0 * m.width : m.width;
}

double model_parameters(const ModelShape& m) {
  const double embeddings = token_embedding_parameters(m) * (m.tied_embedding ? 1 : 2);
  return m.layers * layer_parameters(m) + embeddings + position_embedding_parameters(m) +
         final_norm_parameters(m);
}

Flops layer_forward_flops(const ModelShape& m, double sequences) {
  const double attention =
      4 * sequences * m.context * static_cast<double>(m.context) * query_width(m);
  return Flops(2 * tokens(m, sequences) * layer_matrix_parameters(m) + attention);
}

Flops head_forward_flops(const ModelShape& m, double sequences) {
  return Flops(2 * tokens(m, sequences) * token_embedding_parameters(m));
}

Flops model_flops(const ModelShape& m, double sequences) {
  return 3 * (m.layers * layer_forward_flops(m, sequences) + head_forward_flops(m, sequences));
}

Bytes boundary_bytes(const ModelShape& m, Precision precision, double sequences) {
  return Bytes(tokens(m, sequences) * m.width * element_bytes(precision));
}

Bytes layer_activation_bytes(const ModelShape& m, Precision precision, double sequences) {
  const double width = m.width;
  const double elements =
      m.family == ModelFamily::kGpt2
          ? 4 * width + 4 * query_width(m) + 2.0 * m.ffn_width
          : 4 * width + 2 * query_width(m) + 2 * key_width(m) + 3.0 * m.ffn_width;
  return Bytes(tokens(m, sequences) * (elements * element_bytes(precision) + 4.0 * m.heads));
}

Bytes workspace_bytes(const ModelShape& m, Precision precision, double sequences, bool has_head) {
  const Bytes mlp(2 * tokens(m, sequences) * m.ffn_width * element_bytes(precision));
  const Bytes logits(4 * tokens(m, sequences) * m.vocabulary);
  return has_head ? std::max(mlp, logits) : mlp;
}

Bytes codec_bytes(Codec codec, double elements, double raw) {
  if (codec == Codec::kNone) return Bytes(elements * raw);
  const CodecFormat& format = format_of(codec);
  if (format.block == 0) return Bytes(elements * format.code_bits / 8 + kCodecFrameBytes);
  // A byte for each code of 8 bits; smaller ones are packed, a block's worth at a time.
  const double blocks = std::ceil(elements / format.block);
  const double codes =
      format.code_bits == 8 ? elements : blocks * format.block * format.code_bits / 8;
  return Bytes(64 * std::ceil(2 * blocks / 64) + codes + kCodecFrameBytes);
}

Bytes boundary_message_bytes(Codec codec, const ModelShape& m, Precision precision,
                             double sequences, Visit visit, Codec first_visit) {
  constexpr double kExtension = 64;
  constexpr double kAlignment = 64;
  const double sequence = tokens(m, 1) * m.width;
  const double raw = element_bytes(precision);
  if (!has_history(codec)) return codec_bytes(codec, sequences * sequence, raw);
  const Codec written = visit == Visit::kFirst ? first_visit : without_history(codec);
  const double frame = codec_bytes(written, sequence, raw).value() + kExtension;
  return Bytes(sequences * kAlignment * std::ceil(frame / kAlignment));
}

double stage_parameters(const ModelShape& m, const StageShape& stage) {
  double scalars = stage.layers * layer_parameters(m);
  if (stage.has_embedding) {
    scalars += token_embedding_parameters(m) + position_embedding_parameters(m);
  }
  if (stage.has_head) scalars += token_embedding_parameters(m) + final_norm_parameters(m);
  return scalars;
}

double stage_reduced_parameters(const ModelShape& m, const StageShape& stage, int stages) {
  double scalars = stage_parameters(m, stage);
  if (!m.tied_embedding) return scalars;
  if (stages == 1) return scalars - token_embedding_parameters(m);  // two accumulators, one sum
  if (stage.has_embedding) scalars -= token_embedding_parameters(m);
  if (stage.has_head) scalars -= token_embedding_parameters(m);
  return scalars;
}

StageWork stage_work(const ModelShape& m, const StageShape& stage, double sequences) {
  const Flops layers = stage.layers * layer_forward_flops(m, sequences);
  const Flops head = stage.has_head ? head_forward_flops(m, sequences) : Flops(0);
  const Flops matrices(stage.layers * 2 * tokens(m, sequences) * layer_matrix_parameters(m));
  const Flops backward = 2 * (layers + head);
  const Flops weights = matrices + head;
  return {layers + head, backward, layers, backward - weights, weights};
}

std::vector<StageShape> stage_shapes(const std::vector<int>& layers) {
  std::vector<StageShape> stages;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    stages.push_back({layers[i], i == 0, i + 1 == layers.size()});
  }
  return stages;
}

MemoryUse memory_use(const Job& job, const DeviceKind& kind, const MemoryQuestion& q) {
  const double sequences = q.micro_batch;
  const double parameters = stage_parameters(job.model, q.stage);
  const Bytes boundary = boundary_bytes(job.model, job.precision, sequences);
  const Bytes full = q.stage.layers * layer_activation_bytes(job.model, job.precision, sequences);
  MemoryUse use;
  use.states = Bytes((job.precision == Precision::kFp32 ? 16 : 18) * parameters);
  use.activations = job.recompute == Recompute::kYes
                        ? q.in_flight * boundary + (q.for_weights + 1) * full
                        : static_cast<double>(q.in_flight) * full;
  use.activations += q.for_weights * boundary;
  use.workspace = workspace_bytes(job.model, job.precision, sequences, q.stage.has_head);
  const bool alone = q.stage.has_embedding && q.stage.has_head;
  use.buffers = (alone ? 0 : kBoundaryCredits) * boundary_buffer_bytes(job, sequences) +
                Bytes((q.pipelines - 1) * kBucketBytes);
  use.reserved = kind.reserved;
  use.history = q.history;
  use.history_on_disk = q.history_on_disk;
  return use;
}

Seconds compute_time(const DeviceKind& kind, Precision precision, Flops work) {
  const FlopsPerSecond rate = kind.rate_at(precision);
  if (rate <= FlopsPerSecond(0)) return Seconds::infinity();
  return work / rate + kind.overhead;
}

Seconds update_time(const DeviceKind& kind, double parameters) {
  return Bytes(28 * parameters) / kind.memory_rate;
}

}  // namespace longhaul
