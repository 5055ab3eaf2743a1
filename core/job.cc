#include "core/job.h"

#include <fmt/core.h>

#include <filesystem>
#include <limits>

#include "core/config_cursor.h"
#include "core/config_edit.h"
#include "core/hash.h"
#include "core/hugging_face_config.h"
#include "core/model_text.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxSteps = (1 << 28) - 1;  // steps are 28 bits on the wire
constexpr double kMaxRate = 1000;  // of learning and decay: beyond all use, well inside fp32
constexpr std::int64_t kMaxValidationSequences = 1 << 30;
constexpr int kMaxCheckpointsKept = 1000;

int positive(const Cursor& cursor, std::int64_t max, int fallback = 1) {
  return static_cast<int>(cursor.integer({.min = 1, .max = max}, fallback));
}

/// Wherever people expect `dropout`, the only value it can have is accepted.
void refuse_dropout(const Cursor& at) {
  const Cursor dropout = at.optional("dropout");
  if (dropout.number() != 0) dropout.fail("dropout is always 0 here", "leave `dropout` out");
}

/// The shape of the model in the folder `from`; empty: the file is wrong already. Only the context
/// may be given beside it.
ModelShape read_model_from(const Cursor& at, const std::string& from) {
  for (const char* const key :
       {"family", "layers", "width", "heads", "kv_heads", "head_width", "ffn_width", "vocabulary",
        "tied_embedding", "norm_epsilon", "rope_theta", "rope_scaling"}) {
    const Cursor given = at.optional(key);
    if (given.present()) {
      given.fail(fmt::format("`{}` is what the config.json of `from` says", key),
                 "leave it out; only `context` may be given, and be less");
    }
  }
  refuse_dropout(at);
  const Cursor context = at.optional("context");
  Result<HuggingFaceConfig> config = invalid("");
  if (!from.empty()) config = load_hugging_face_config(from);
  if (config) {
    ModelShape model = config->model;
    model.context =
        static_cast<int>(context.integer({.min = 1, .max = model.context}, model.context));
    return model;
  }
  if (const Error& why = config.error(); !why.message.empty()) {
    const std::string place = why.place.file.empty() ? "" : why.place.text() + ": ";
    at.key("from").fail(place + why.message, why.hint);
  }
  ModelShape nothing;  // but sound, for what the rest of the file is held against
  nothing.layers = nothing.width = nothing.heads = nothing.kv_heads = nothing.head_width = 1;
  nothing.ffn_width = nothing.context = nothing.vocabulary = 1;
  return nothing;
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
  if (model.family == ModelFamily::kLlama && model.head_width % 2 != 0 &&
      (head_width.present() || model.width % model.heads == 0)) {
    (head_width.present() ? head_width : at.key("heads"))
        .fail(
            fmt::format("rotary positions turn pairs: a head cannot be {} wide", model.head_width),
            "make it even");
  }
  const Cursor ffn_width = at.optional("ffn_width");
  if (model.family == ModelFamily::kLlama && !ffn_width.present()) {
    at.fail("a llama model needs `ffn_width` (Hugging Face's intermediate_size)");
  }
  model.ffn_width = positive(ffn_width, kMaxWidth, 4 * model.width);
  read_model_numbers(at, model);
  refuse_dropout(at);
  return model;
}

constexpr Codec kChoices[] = {Codec::kNone, Codec::kBf16, Codec::kInt8};

Recompute read_recompute(const Cursor& at) {
  constexpr Recompute choices[] = {Recompute::kNo, Recompute::kYes, Recompute::kAuto,
                                   Recompute::kNo, Recompute::kYes};
  return choices[at.choice({"no", "yes", "auto", "false", "true"})];
}

void read_compression(const Cursor& at, Job& job) {
  const Cursor floor_at = at.optional("floor");
  const Codec floor = kChoices[floor_at.choice({"none", "bf16", "int8"}, 1)];
  const auto read = [floor](const Cursor& codec_at, Codec& codec, bool& is_auto) {
    const std::size_t chosen = codec_at.choice({"none", "bf16", "int8", "auto"});
    is_auto = chosen == std::size(kChoices);
    codec = is_auto ? floor : kChoices[chosen];
  };
  read(at.optional("activations"), job.activations, job.activations_auto);
  read(at.optional("gradients"), job.gradients, job.gradients_auto);
  if (floor_at.present() && !job.activations_auto && !job.gradients_auto) {
    floor_at.fail("a floor is for codecs that the plan chooses",
                  "write `activations: auto` or `gradients: auto`, or leave `floor` out");
  }
}

std::uint64_t steps_or_never(const Cursor& at) {
  return static_cast<std::uint64_t>(at.integer({.min = 0, .max = kMaxSteps}));
}

void read_learning_rate(const Cursor& at, Training& training) {
  const Cursor max = at.optional("max");
  const Cursor min = at.optional("min");
  // A `max` that is wrong is one error; no `min` is held against it.
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (max.present()) training.rate_max = max.number({.min = 0, .max = kMaxRate}, kWrong);
  training.rate_min = min.number({.min = 0, .max = kMaxRate}, training.rate_min);
  if (training.rate_max == 0) {
    max.fail("a learning rate of 0 trains nothing");
  } else if (training.rate_min > training.rate_max) {
    min.fail(fmt::format("a learning rate cannot fall from {} to {}", training.rate_max,
                         training.rate_min),
             "give `min` <= `max`");
  }
  constexpr RateDecay decays[] = {RateDecay::kConstant, RateDecay::kLinear, RateDecay::kCosine};
  training.decay = decays[at.optional("decay").choice({"constant", "linear", "cosine"},
                                                      static_cast<std::size_t>(training.decay))];
  const Cursor warm_up = at.optional("warm_up");
  training.warm_up_steps = steps_or_never(warm_up);
  if (training.steps > 0 && training.warm_up_steps >= training.steps) {
    warm_up.fail(fmt::format("a warm-up of {} steps is not shorter than the run of {}",
                             training.warm_up_steps, training.steps));
  }
}

double read_beta(const Cursor& at, double fallback) {
  const double beta = at.number({.min = 0, .max = 1}, fallback);
  if (beta == 1) at.fail("an average with a beta of 1 never changes", "give a value below 1");
  return beta;
}

void read_optimiser(const Cursor& at, Training& training) {
  training.beta1 = read_beta(at.optional("beta1"), training.beta1);
  training.beta2 = read_beta(at.optional("beta2"), training.beta2);
  const Cursor epsilon = at.optional("epsilon");
  training.epsilon = epsilon.number({.min = 0, .max = 1}, training.epsilon);
  if (static_cast<float>(training.epsilon) == 0) {
    epsilon.fail("an epsilon of 0 in fp32 divides by zero where a gradient is always 0");
  }
  training.weight_decay =
      at.optional("weight_decay").number({.min = 0, .max = kMaxRate}, training.weight_decay);
  training.clip = at.optional("clip").number({.min = 0}, training.clip);
  refuse_dropout(at);
}

Training read_training(const Cursor& at) {
  Training training;
  const Cursor data = at.key("data");
  training.data = data.text();
  if (data.is_scalar() && training.data.empty()) {
    data.fail("the data is a folder, and this names none",
              "give the folder that `longhaul data prepare` wrote");
  }
  constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();
  training.seed = static_cast<std::uint64_t>(at.optional("seed").integer(
      {.min = 0, .max = kMaxSeed}, static_cast<std::int64_t>(training.seed)));
  training.steps =
      static_cast<std::uint64_t>(at.key("steps").integer({.min = 1, .max = kMaxSteps}));
  const Cursor rate = at.optional("learning_rate");
  if (rate.present()) read_learning_rate(rate, training);
  const Cursor optimiser = at.optional("optimiser");
  if (optimiser.present()) read_optimiser(optimiser, training);
  const Cursor validation = at.optional("validation");
  if (validation.present()) {
    training.validation_every = steps_or_never(validation.optional("every"));
    training.validation_sequences =
        validation.optional("sequences")
            .integer({.min = 1, .max = kMaxValidationSequences}, training.validation_sequences);
  }
  const Cursor checkpoints = at.optional("checkpoints");
  if (checkpoints.present()) {
    training.checkpoint_every = steps_or_never(checkpoints.optional("every"));
    training.checkpoints_kept =
        positive(checkpoints.optional("keep"), kMaxCheckpointsKept, training.checkpoints_kept);
  }
  refuse_dropout(at);
  return training;
}

Result<Job> read_job(ConfigFile file) {
  Job job;
  job.hash = hash_text(file.text());
  file.expect_schema("longhaul/job/1");
  const Cursor root = file.root();
  job.name = root.key("name").text();
  const Cursor model = root.key("model");
  const Cursor from = model.is_map() ? model.optional("from") : model;
  if (model.is_map() && from.present()) {
    const std::filesystem::path folder = std::filesystem::path(file.name()).parent_path();
    const std::string name = from.text();
    if (from.is_scalar() && name.empty()) from.fail("the model is a folder, and this names none");
    if (!name.empty()) job.model_from = (folder / name).lexically_normal().string();
    job.model = read_model_from(model, job.model_from);
    // Another model in the folder is another job.
    job.hash = hash_text(file.text() + model_text(job.model));
  } else {
    job.model = read_model(model);
  }

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
  job.recompute = read_recompute(root.optional("recompute"));
  const Cursor compression = root.optional("compression");
  if (compression.present()) read_compression(compression, job);
  const Cursor training = root.optional("training");
  if (training.present()) job.training = read_training(training);
  refuse_dropout(root);
  LH_TRY(file.finish());
  return job;
}

}  // namespace

std::string_view name_of(ModelFamily family) {
  return family == ModelFamily::kGpt2 ? "gpt2" : "llama";
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

Result<std::string> self_contained_text(std::string_view text, const Job& job) {
  if (job.model_from.empty()) return std::string(text);
  return with_map(text, "the job", "model", model_text(job.model));
}

Result<Job> parse_job(std::string_view text, const std::string& name) {
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  return read_job(std::move(file));
}

}  // namespace longhaul
