#include "core/job.h"

#include <fmt/core.h>

#include "core/config_cursor.h"
#include "core/hash.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxVocabulary = 1 << 24;

int positive(const Cursor& cursor, std::int64_t max, int fallback = 1) {
  return static_cast<int>(cursor.integer({.min = 1, .max = max}, fallback));
}

ModelShape read_model(const Cursor& at) {
  ModelShape model;
  model.family =
      at.key("family").choice({"gpt2", "llama"}) == 0 ? ModelFamily::kGpt2 : ModelFamily::kLlama;
  model.layers = positive(at.key("layers"), kMaxLayers);
  model.width = positive(at.key("width"), kMaxWidth);
  model.heads = positive(at.key("heads"), kMaxWidth);
  model.context = positive(at.key("context"), 1 << 24);
  model.vocabulary = positive(at.key("vocabulary"), kMaxVocabulary);
  model.tied_embedding = at.optional("tied_embedding").boolean(model.family == ModelFamily::kGpt2);
  model.kv_heads = positive(at.optional("kv_heads"), kMaxWidth, model.heads);
  if (model.heads % model.kv_heads != 0) {
    at.optional("kv_heads")
        .fail(fmt::format("{} query heads cannot share {} key-value heads evenly", model.heads,
                          model.kv_heads));
  }
  if (model.family == ModelFamily::kGpt2 && model.kv_heads != model.heads) {
    at.optional("kv_heads")
        .fail("gpt2 has one key-value head for each query head",
              "leave `kv_heads` out, or use family llama");
  }
  const Cursor head_width = at.optional("head_width");
  if (!head_width.present() && model.width % model.heads != 0) {
    at.key("heads").fail(
        fmt::format("width {} is not a multiple of {} heads", model.width, model.heads),
        "change `heads`, or give `head_width`");
  }
  model.head_width = positive(head_width, kMaxWidth, std::max(1, model.width / model.heads));
  const Cursor ffn_width = at.optional("ffn_width");
  if (model.family == ModelFamily::kLlama && !ffn_width.present()) {
    at.fail("a llama model needs `ffn_width` (Hugging Face's intermediate_size)");
  }
  model.ffn_width = positive(ffn_width, kMaxWidth, 4 * model.width);
  return model;
}

Codec read_codec(const Cursor& at) {
  constexpr Codec codecs[] = {Codec::kNone, Codec::kBf16, Codec::kInt8};
  return codecs[at.choice({"none", "bf16", "int8"})];
}

Result<Job> read_job(ConfigFile file) {
  Job job;
  job.hash = hash_text(file.text());
  file.expect_schema("longhaul/job/1");
  const Cursor root = file.root();
  job.name = root.key("name").text();
  job.model = read_model(root.key("model"));

  const Cursor batch = root.key("batch");
  job.global_batch = batch.key("global").integer({.min = 1, .max = 1 << 20}, 1);
  const Cursor micro_batch = batch.optional("micro_batch");
  if (micro_batch.present() && !(micro_batch.is_scalar() && micro_batch.text() == "auto")) {
    job.micro_batch = static_cast<int>(micro_batch.integer({.min = 1, .max = job.global_batch}, 1));
    if (job.micro_batch > 0 && job.global_batch % job.micro_batch != 0) {
      micro_batch.fail(fmt::format("the global batch of {} sequences is not a multiple of {}",
                                   job.global_batch, job.micro_batch),
                       "use a divisor of the global batch, or `auto`");
    }
  }
  constexpr Precision precisions[] = {Precision::kFp32, Precision::kFp16, Precision::kBf16};
  job.precision = precisions[root.key("precision").choice({"fp32", "fp16", "bf16"})];
  job.recompute = root.optional("recompute").boolean(false);
  const Cursor compression = root.optional("compression");
  if (compression.present()) {
    job.activations = read_codec(compression.optional("activations"));
    job.gradients = read_codec(compression.optional("gradients"));
  }
  LH_TRY(file.finish());
  return job;
}

}  // namespace

std::string_view name_of(ModelFamily family) {
  return family == ModelFamily::kGpt2 ? "gpt2" : "llama";
}

std::string_view name_of(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return "none";
    case Codec::kBf16:
      return "bf16";
    case Codec::kInt8:
      return "int8";
  }
  return "?";
}

std::string_view name_of(RateDecay decay) {
  switch (decay) {
    case RateDecay::kConstant:
      return "constant";
    case RateDecay::kLinear:
      return "linear";
    case RateDecay::kCosine:
      return "cosine";
  }
  return "?";
}

Result<Job> load_job(const std::string& path) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(path));
  return read_job(std::move(file));
}

Result<Job> parse_job(std::string_view text, const std::string& name) {
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  return read_job(std::move(file));
}

}  // namespace longhaul
