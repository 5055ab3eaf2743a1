#include "core/job.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
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
constexpr std::int64_t kMaxSamples = std::int64_t{1} << 40;

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

CodecUse use_of(std::string_view key) {
  if (key == "activations") return CodecUse::kActivations;
  return key == "gradients" ? CodecUse::kGradients : CodecUse::kActivationGradients;
}

/// What stands in `compression` under `key`; nothing where it is auto or refused.
std::optional<Codec> read_codec(const Cursor& at, std::string_view key, bool& is_auto) {
  const std::string name = at.is_scalar() ? at.text() : "";
  const CodecUse use = use_of(key);
  is_auto = name == "auto";
  if (is_auto) return std::nullopt;
  if (name.ends_with("ternary")) {
    at.fail("a ternary quantiser loses 72 % of what it writes, more than a history makes up for",
            "use `aq-int2`, whose levels are finer");
    return std::nullopt;
  }
  if (const auto codec = codec_named(name); codec && unfit_reason(*codec, use) != nullptr) {
    const std::string_view direct = name_of(without_history(*codec));
    at.fail(fmt::format("`{}` cannot be a codec of {}: {}", name, key, unfit_reason(*codec, use)),
            has_history(*codec) ? fmt::format("use `{}`", direct)
                                : fmt::format("use `aq-{}` if the run sees its samples again, or "
                                              "`hadamard4`",
                                              name));
    return std::nullopt;
  }
  std::vector<Codec> codecs;
  std::vector<std::string_view> names;
  for (const Codec codec : kCodecs) {
    if (unfit_reason(codec, use) != nullptr) continue;
    codecs.push_back(codec);
    names.push_back(name_of(codec));
  }
  names.emplace_back("auto");
  return codecs[at.choice(names)];
}

constexpr int kMaxBits = 32;  // of an element: codec none

/// Bits that a codec which a plan chooses has at least.
int read_floor(const Cursor& at) {
  const std::string text = at.is_scalar() ? at.text() : "";
  if (text == "lossless") return kMaxBits;
  if (const auto codec = codec_named(text)) return format_of(*codec).code_bits;
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = std::string_view(text).substr(digits);
  int bits = 0;
  std::from_chars(text.data(), text.data() + digits, bits);
  if ((unit == " bits" || unit == "bits") && bits >= 2 && bits <= kMaxBits) return bits;
  at.fail(
      fmt::format("`compression.floor` is from `2 bits` to `32 bits`, `lossless` or the name of "
                  "a codec{}",
                  text.empty() ? "" : fmt::format(": found `{}`", text)),
      digits == text.size() && digits > 0 ? fmt::format("write `{} bits`", text)
                                          : "write for example `floor: 4 bits`");
  return format_of(Codec::kBf16).code_bits;
}

/// The coarsest codec that a plan may choose.
Codec coarsest(CodecUse use, int floor_bits, bool has_histories) {
  constexpr int kDirectBits = 4;  // fewer need a history, or error feedback and somebody's will
  Codec last = Codec::kNone;
  for (const Codec codec : kCodecs) {
    if (has_history(codec) ? !has_histories || use != CodecUse::kActivations ||
                                 format_of(codec).code_bits > kDirectBits
                           : format_of(codec).code_bits < kDirectBits) {
      continue;
    }
    // Of 4 bits, with a history rather than without.
    const bool is_worse = has_history(last) && !has_history(codec);
    if (format_of(codec).code_bits >= floor_bits && codec != Codec::kFp16 && !is_worse)
      last = codec;
  }
  return last;
}

HistorySettings read_history(const Cursor& at) {
  HistorySettings history;
  history.memory = at.optional("memory").size(history.memory);
  history.disk = at.optional("disk").size(history.disk);
  if (history.memory + history.disk == Bytes(0)) {
    at.fail("a history of 0 bytes of memory and of disk keeps nothing",
            "leave one of `memory` and `disk` above 0, or name a codec without `aq-`");
  }
  constexpr Codec firsts[] = {Codec::kBf16, Codec::kInt8};
  history.first_visit = firsts[at.optional("first").choice({"bf16", "int8"})];
  history.in_checkpoints = at.optional("checkpoint").boolean(false);
  history.samples = at.optional("samples").integer({.min = 1, .max = kMaxSamples}, 0);
  return history;
}

/// Whether the run certainly ends before it sees a sample again.
bool is_one_epoch(const Job& job, const HistorySettings& history) {
  if (history.samples == 0 || !job.training) return false;
  return job.training->steps * static_cast<std::uint64_t>(job.global_batch) <=
         static_cast<std::uint64_t>(history.samples);
}

Recompute read_recompute(const Cursor& at) {
  constexpr Recompute choices[] = {Recompute::kNo, Recompute::kYes, Recompute::kAuto,
                                   Recompute::kNo, Recompute::kYes};
  return choices[at.choice({"no", "yes", "auto", "false", "true"})];
}

void read_compression(const Cursor& at, Job& job) {
  const Cursor floor_at = at.optional("floor");
  const int floor = floor_at.present() ? read_floor(floor_at) : format_of(Codec::kBf16).code_bits;
  const Cursor history_at = at.optional("history");
  std::optional<HistorySettings> history;
  if (history_at.present()) history = read_history(history_at);
  const bool comes_back = history && !is_one_epoch(job, *history);
  const auto read = [&](std::string_view key, bool& is_auto) {
    const Cursor codec_at = at.optional(key);
    std::optional<Codec> codec;
    if (codec_at.present()) codec = read_codec(codec_at, key, is_auto);
    return is_auto ? coarsest(use_of(key), floor, comes_back) : codec;
  };
  job.activations = read("activations", job.activations_auto).value_or(Codec::kNone);
  job.activation_gradients = read("activation_gradients", job.activation_gradients_auto);
  job.gradients = read("gradients", job.gradients_auto).value_or(Codec::kNone);
  const bool any_auto = job.activations_auto || job.activation_gradients_auto || job.gradients_auto;
  if (floor_at.present() && !any_auto) {
    floor_at.fail("a floor is for codecs that the plan chooses",
                  "write `activations: auto` or `gradients: auto`, or leave `floor` out");
  }
  const bool may_have_history =
      has_history(job.activations) ||
      (job.activations_auto && has_history(coarsest(CodecUse::kActivations, floor, true)));
  if (history && !may_have_history) {
    history_at.fail("no codec here keeps a history",
                    "name one of aq-int2 to aq-int8 in `activations`, or `auto` with a floor of 4 "
                    "bits or less; or leave `history` out");
  }
  if (may_have_history) job.history = history;
  if (has_history(job.activations) && !history) job.history.emplace();
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
  const Cursor training = root.optional("training");
  if (training.present()) job.training = read_training(training);
  const Cursor compression = root.optional("compression");
  if (compression.present()) read_compression(compression, job);
  refuse_dropout(root);
  LH_TRY(file.finish());
  return job;
}

}  // namespace

std::string_view name_of(ModelFamily family) {
  return family == ModelFamily::kGpt2 ? "gpt2" : "llama";
}

Codec own_codec(const Job& job, CodecUse use) {
  if (use == CodecUse::kGradients) return job.gradients;
  if (use == CodecUse::kActivations) return job.activations;
  return job.activation_gradients.value_or(usual_beside(job.activations));
}

bool is_auto(const Job& job, CodecUse use) {
  if (use == CodecUse::kGradients) return job.gradients_auto;
  if (use == CodecUse::kActivations) return job.activations_auto;
  return job.activation_gradients ? job.activation_gradients_auto : job.activations_auto;
}

bool allows(const Job& job, CodecUse use, Codec codec) {
  const Codec own = own_codec(job, use);
  if (codec == own) return true;
  if (!is_auto(job, use) || unfit_reason(codec, use) != nullptr) return false;
  if (has_history(codec) && !job.history) return false;
  return format_of(codec).code_bits >= format_of(own).code_bits;
}

std::vector<Codec> codecs_to_try(const Job& job, CodecUse use) {
  constexpr int kDirectBits = 6;
  const Codec own = own_codec(job, use);
  std::vector<Codec> codecs;
  for (const Codec codec : kCodecs) {
    if (codec == own) break;
    if (!allows(job, use, codec) || codec == Codec::kFp16) continue;
    const bool is_direct = format_of(codec).code_bits >= kDirectBits || !has_history(own);
    if (has_history(codec) != is_direct) codecs.push_back(codec);
  }
  codecs.push_back(own);
  return codecs;
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
