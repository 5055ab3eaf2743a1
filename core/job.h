// What is trained: the model's shape, the batch, the number formats and the wire codecs.
//
// A Job is a plain value read from configs/jobs/*.yaml (format: docs/formats.md). Any thread may
// read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/codec.h"
#include "core/result.h"
#include "core/topology.h"
#include "core/units.h"

namespace longhaul {

enum class ModelFamily { kGpt2, kLlama };
std::string_view name_of(ModelFamily family);

/// How Llama 3.1 and later stretch rotary frequencies beyond the context of their first training
/// (`rope_type: llama3` in Hugging Face files): frequencies whose wave is longer than
/// original_context / low_frequency are divided by `factor`, those shorter than original_context /
/// high_frequency stay, and between the two it is interpolated.
struct RopeScaling {
  double factor = 8;
  double low_frequency = 1;
  double high_frequency = 4;
  int original_context = 8192;  // tokens
  bool operator==(const RopeScaling&) const = default;
};

/// Shape of a decoder-only transformer.
struct ModelShape {
  ModelFamily family = ModelFamily::kGpt2;
  int layers = 0;
  int width = 0;       // C, the residual stream
  int heads = 0;       // query heads
  int kv_heads = 0;    // key and value heads; = heads unless grouped-query attention
  int head_width = 0;  // d; = width / heads unless given
  int ffn_width = 0;   // inner width of the MLP; 4 x width for GPT-2 unless given
  int context = 0;     // tokens of a sequence
  int vocabulary = 0;
  bool tied_embedding = true;                    // output head shares the token embedding
  double norm_epsilon = 1e-5;                    // of layer norm (GPT-2) and RMS norm (Llama)
  double rope_theta = 10000;                     // base of Llama's rotary frequencies
  std::optional<RopeScaling> rope_scaling = {};  // Llama's; none: frequencies as they are
  bool operator==(const ModelShape&) const = default;
};

/// Whether stages keep only their inputs and run forwards again before backwards.
enum class Recompute {
  kNo,
  kYes,
  kAuto,  // the plan says (see recomputes in core/plan.h)
};

/// How the learning rate falls after its warm-up (executor/control/schedule_of_rates.h).
enum class RateDecay { kConstant, kLinear, kCosine };
std::string_view name_of(RateDecay decay);

/// How the model is trained: what a run needs beyond what a plan is priced by. Read from the job's
/// `training` section; a job without one can be planned and simulated, but not launched.
struct Training {
  std::string data;        // folder with dataset.yaml, as it stands in the file
  std::uint64_t seed = 1;  // of the weights and of the order of the data
  std::uint64_t steps = 0;

  // Learning rate: linear warm-up to rate_max, then decay to rate_min at the last step.
  double rate_max = 6e-4;
  double rate_min = 0;
  RateDecay decay = RateDecay::kCosine;
  std::uint64_t warm_up_steps = 0;

  // torch.optim.AdamW; decay only on tensors of two dimensions or more.
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  // bound on the global norm of the gradient; 0: none

  std::uint64_t validation_every = 0;       // steps; 0: only after the last
  std::int64_t validation_sequences = 256;  // of the validation part, from its start; at least 1
  std::uint64_t checkpoint_every = 0;       // steps; 0: only after the last
  int checkpoints_kept = 2;
};

/// Where the AQ codecs keep what each sample's activations were (executor/history). A worker has so
/// much for all of its stage's boundaries together.
struct HistorySettings {
  Bytes memory = gibibytes(4);
  Bytes disk = gibibytes(50);        // in the worker's folder, beyond what memory holds
  Codec first_visit = Codec::kBf16;  // or int8: of what has no history yet
  bool in_checkpoints = false;       // so that a resumed run need not build them anew
  std::int64_t samples = 0;          // sequences of the training data; 0: not known
  bool operator==(const HistorySettings&) const = default;
};

struct Job {
  std::string name;
  ModelShape model;
  std::string model_from;         // folder whose weights a run begins with; empty: fresh ones
  std::int64_t global_batch = 0;  // sequences of one step
  int micro_batch = 0;            // sequences; 0 = the planner chooses
  Precision precision = Precision::kFp16;
  Recompute recompute = Recompute::kNo;
  /// Codecs between sites: of boundary activations and of what replicas exchange. Where one is
  /// `auto` it is the coarsest that the floor allows, and a plan may choose any as fine for each
  /// link (allows).
  Codec activations = Codec::kNone;
  Codec gradients = Codec::kNone;
  bool activations_auto = false;
  bool gradients_auto = false;
  /// Of the gradients of boundary activations; nothing: usual_beside the activations' own.
  std::optional<Codec> activation_gradients;
  bool activation_gradients_auto = false;
  std::optional<HistorySettings> history;  // there where a codec may have one
  std::optional<Training> training;
  std::uint64_t hash = 0;  // of the file's text

  double tokens_per_step() const { return static_cast<double>(global_batch) * model.context; }
};

/// The job's own codec of such tensors; where it is `auto`, the coarsest.
Codec own_codec(const Job& job, CodecUse use);
/// Whether a plan may choose it. Activation gradients that the job does not name are the plan's
/// where the activations are.
bool is_auto(const Job& job, CodecUse use);
/// Whether a plan may write such tensors in `codec`: the job's own alone, or where that is auto any
/// that has as many bits and is fit for them. One with a history needs the job's `history`.
bool allows(const Job& job, CodecUse use, Codec codec);
/// Of those, what a planner tries, the finest first and the job's own last: without fp16, which
/// takes what bf16 does and holds less; where own has a history, those of 4 bits and fewer with one
/// and the others without.
std::vector<Codec> codecs_to_try(const Job& job, CodecUse use);

/// Reads a job file. All errors of the file are reported at once (code kInvalid). Where its model
/// is
/// `{from: FOLDER}`, the shape is that of the Hugging Face folder (core/hugging_face_config.h).
Result<Job> load_job(const std::string& path);
/// The same from text; `name` stands for the file in messages, and folders are seen from its own.
Result<Job> parse_job(std::string_view text, const std::string& name);
/// The text of a job with its model's shape in place of `from`, for those who have not the folder;
/// the text itself where it has none.
Result<std::string> self_contained_text(std::string_view text, const Job& job);

}  // namespace longhaul
