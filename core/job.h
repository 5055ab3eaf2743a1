// What is trained: the model's shape, the batch, the number formats and the wire codecs.
//
// A Job is a plain value read from configs/jobs/*.yaml (format: docs/formats.md). Any thread may
// read it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/topology.h"
#include "core/units.h"

namespace longhaul {

enum class ModelFamily { kGpt2, kLlama };
std::string_view name_of(ModelFamily family);

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
  bool tied_embedding = true;  // output head shares the token embedding
};

/// How a tensor is written on the wire.
enum class Codec {
  kNone,  // as it is computed: compute type for boundary tensors, fp32 for gradients
  kBf16,  // 2 bytes an element
  kInt8,  // 1 byte an element and a bf16 scale for every 64 elements
};
std::string_view name_of(Codec codec);

struct Job {
  std::string name;
  ModelShape model;
  std::int64_t global_batch = 0;  // sequences of one step
  int micro_batch = 0;            // sequences; 0 = the planner chooses
  Precision precision = Precision::kFp16;
  bool recompute = false;  // keep only stage inputs and run forwards again before backwards
  Codec activations = Codec::kNone;  // boundary activations and their gradients
  Codec gradients = Codec::kNone;
  std::uint64_t hash = 0;  // of the file's text

  double tokens_per_step() const { return static_cast<double>(global_batch) * model.context; }
};

/// Reads a job file. All errors of the file are reported at once (code kInvalid).
Result<Job> load_job(const std::string& path);
/// The same from text; `name` stands for the file in messages.
Result<Job> parse_job(std::string_view text, const std::string& name);

}  // namespace longhaul
