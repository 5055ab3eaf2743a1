#include "core/job.h"

#include <gtest/gtest.h>

#include <string>

#include "core/hash.h"
#include "core/model_text.h"

namespace longhaul {
namespace {

constexpr std::string_view kGpt2 = R"(schema: longhaul/job/1
name: small
model: {family: gpt2, layers: 12, width: 768, heads: 12, context: 1024, vocabulary: 50257}
batch: {global: 512}
precision: fp16
)";

constexpr std::string_view kLlama = R"(schema: longhaul/job/1
name: llama
model: {family: llama, layers: 16, width: 2048, heads: 32, kv_heads: 8, ffn_width: 8192, context: 2048, vocabulary: 128256}
batch: {global: 512, micro_batch: 4}
precision: bf16
recompute: true
compression: {activations: int8, gradients: bf16}
)";

constexpr std::string_view kTrained = R"(schema: longhaul/job/1
name: trained
model: {family: gpt2, layers: 8, width: 96, heads: 4, context: 64, vocabulary: 256}
batch: {global: 64}
precision: fp32
training:
  data: ../data/bible
  seed: 7
  steps: 200
  learning_rate: {max: 1e-3, min: 1e-4, decay: linear, warm_up: 20}
  optimiser: {beta1: 0.8, beta2: 0.99, epsilon: 1e-6, weight_decay: 0.2, clip: 0.5}
  validation: {every: 50, sequences: 100}
  checkpoints: {every: 100, keep: 3}
)";

/// `text` with its only `old` replaced.
std::string with(std::string_view text, std::string_view old, std::string_view replacement) {
  std::string out(text);
  const std::size_t at = out.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return out.replace(at, old.size(), replacement);
}

std::string errors_of(const std::string& text) {
  const Result<Job> job = parse_job(text, "job.yaml");
  if (job) return "";
  EXPECT_EQ(job.error().code, ErrorCode::kInvalid);
  EXPECT_GE(job.error().place.line, 1);
  return job.error().text();
}

TEST(Job, what_is_left_out_follows_from_the_family) {
  const Result<Job> job = parse_job(kGpt2, "job.yaml");
  ASSERT_TRUE(job) << job.error().text();
  EXPECT_EQ(job->name, "small");
  EXPECT_EQ(job->model.kv_heads, 12);
  EXPECT_EQ(job->model.head_width, 64);   // 768 / 12
  EXPECT_EQ(job->model.ffn_width, 3072);  // 4 x 768
  EXPECT_TRUE(job->model.tied_embedding);
  EXPECT_EQ(job->micro_batch, 0);  // the planner's choice
  EXPECT_EQ(job->precision, Precision::kFp16);
  EXPECT_EQ(job->recompute, Recompute::kNo);
  EXPECT_EQ(job->activations, Codec::kNone);
  EXPECT_EQ(job->gradients, Codec::kNone);
  EXPECT_EQ(job->tokens_per_step(), 512.0 * 1024);
  EXPECT_EQ(job->hash, hash_text(kGpt2));
}

TEST(Job, everything_that_is_said_is_read) {
  const Result<Job> job = parse_job(kLlama, "job.yaml");
  ASSERT_TRUE(job) << job.error().text();
  EXPECT_EQ(job->model.family, ModelFamily::kLlama);
  EXPECT_EQ(job->model.kv_heads, 8);
  EXPECT_EQ(job->model.head_width, 64);
  EXPECT_FALSE(job->model.tied_embedding);  // llama's default
  EXPECT_EQ(job->micro_batch, 4);
  EXPECT_EQ(job->precision, Precision::kBf16);
  EXPECT_EQ(job->recompute, Recompute::kYes);
  EXPECT_EQ(job->activations, Codec::kInt8);
  EXPECT_EQ(job->gradients, Codec::kBf16);
}

TEST(Job, recomputation_is_no_yes_or_the_plans) {
  const auto read = [](const std::string& word) {
    return parse_job(with(kLlama, "recompute: true", "recompute: " + word), "j")->recompute;
  };
  EXPECT_EQ(read("no"), Recompute::kNo);
  EXPECT_EQ(read("false"), Recompute::kNo);
  EXPECT_EQ(read("yes"), Recompute::kYes);
  EXPECT_EQ(read("true"), Recompute::kYes);
  EXPECT_EQ(read("auto"), Recompute::kAuto);
}

TEST(Job, a_codec_that_the_plan_chooses_has_a_floor) {
  const auto read = [](const std::string& compression) {
    return parse_job(with(kLlama, "activations: int8, gradients: bf16", compression), "j").value();
  };
  const Job both = read("activations: auto, gradients: auto");
  EXPECT_TRUE(both.activations_auto && both.gradients_auto);
  EXPECT_EQ(both.activations, Codec::kBf16);
  EXPECT_EQ(both.gradients, Codec::kBf16);
  const Job one = read("activations: int8, gradients: auto, floor: none");
  EXPECT_FALSE(one.activations_auto);
  EXPECT_EQ(one.activations, Codec::kInt8);
  EXPECT_TRUE(one.gradients_auto);
  EXPECT_EQ(one.gradients, Codec::kNone);
  EXPECT_EQ(read("activations: auto, floor: int8").activations, Codec::kInt8);
}

TEST(Job, auto_allows_what_is_as_fine) {
  Job job;
  job.gradients = Codec::kBf16;
  EXPECT_FALSE(allows(job, CodecUse::kGradients, Codec::kNone));
  EXPECT_TRUE(allows(job, CodecUse::kGradients, Codec::kBf16));
  job.gradients_auto = true;
  EXPECT_TRUE(allows(job, CodecUse::kGradients, Codec::kNone));
  EXPECT_TRUE(allows(job, CodecUse::kGradients, Codec::kBf16));
  EXPECT_FALSE(allows(job, CodecUse::kGradients, Codec::kInt8));
}

TEST(Job, the_shipped_jobs_load) {
  for (const std::string name :
       {"demo-gpt", "demo-llama", "gpt2-small", "gpt3-xl", "llama-1b", "gpt2-xl-finetune"}) {
    const Result<Job> job =
        load_job(std::string(LONGHAUL_SOURCE_DIR) + "/configs/jobs/" + name + ".yaml");
    ASSERT_TRUE(job) << job.error().text();
    EXPECT_EQ(job->name, name);
    // Those that can be launched.
    EXPECT_EQ(job->training.has_value(), name.starts_with("demo") || name.ends_with("finetune"));
  }
}

TEST(Job, a_micro_batch_divides_the_global_batch_or_is_auto) {
  EXPECT_EQ(parse_job(with(kGpt2, "512", "512, micro_batch: auto"), "j")->micro_batch, 0);
  EXPECT_EQ(parse_job(with(kGpt2, "512", "512, micro_batch: 512"), "j")->micro_batch, 512);
  EXPECT_TRUE(errors_of(with(kGpt2, "512", "512, micro_batch: 513")).contains("micro_batch"));
  EXPECT_TRUE(errors_of(with(kGpt2, "512", "512, micro_batch: 0")).contains("micro_batch"));
  EXPECT_TRUE(errors_of(with(kGpt2, "512", "512, micro_batch: 3"))
                  .contains("512 sequences is not a multiple of 3"));
}

struct BadJob {
  std::string_view old;
  std::string_view replacement;
  std::string_view says;
};

TEST(Job, a_wrong_gpt2_job_is_refused_with_the_reason) {
  const BadJob cases[] = {
      {"job/1", "job/2", "has version `2`"},
      {"job/1", "cluster/1", "cluster"},
      {"name: small\n", "", "missing key `name`"},
      {"gpt2", "gpt3", "gpt2"},
      {"layers: 12", "layers: 0", "layers"},
      {"layers: 12", "layers: 4097", "4096"},
      {"layers: 12, ", "", "missing key `layers`"},
      {"heads: 12", "heads: 7", "width 768 is not a multiple of 7 heads"},
      {"heads: 12", "heads: 12, kv_heads: 6", "gpt2 has one key-value head for each query head"},
      {"heads: 12", "heads: 12, kv_heads: 5", "12 query heads cannot share 5"},
      {"global: 512", "global: 0", "global"},
      {"global: 512", "global: 1048577", "1048576"},
      {"fp16", "fp8", "bf16"},
      {"precision: fp16\n", "", "missing key `precision`"},
      {"precision: fp16", "precision: fp16\nrecompute: maybe", "recompute"},
      {"precision: fp16", "precision: fp16\ncompression: {activations: int5}", "int8"},
      {"precision: fp16", "precision: fp16\ncompression: {gradients: bf16, floor: bf16}",
       "a floor is for codecs that the plan chooses"},
      {"precision: fp16", "precision: fp16\ncompresion: {}", "did you mean `compression`"},
      {"context: 1024", "contxt: 1024", "did you mean `context`"},
  };
  for (const BadJob& bad : cases) {
    const std::string errors = errors_of(with(kGpt2, bad.old, bad.replacement));
    EXPECT_TRUE(errors.contains(bad.says)) << bad.replacement << "\n" << errors;
  }
}

TEST(Job, the_largest_values_are_accepted) {
  EXPECT_EQ(errors_of(with(kGpt2, "layers: 12", "layers: 4096")), "");
  EXPECT_EQ(errors_of(with(kGpt2, "global: 512", "global: 1048576")), "");
  EXPECT_EQ(errors_of(with(kGpt2, "vocabulary: 50257", "vocabulary: 16777216")), "");
  EXPECT_NE(errors_of(with(kGpt2, "vocabulary: 50257", "vocabulary: 16777217")), "");
}

TEST(Job, heads_need_not_divide_the_width_when_their_width_is_given) {
  const Result<Job> job = parse_job(with(kGpt2, "heads: 12", "heads: 7, head_width: 100"), "j");
  ASSERT_TRUE(job) << job.error().text();
  EXPECT_EQ(job->model.head_width, 100);
}

TEST(Job, a_llama_must_say_its_mlp_width) {
  EXPECT_TRUE(errors_of(with(kLlama, "ffn_width: 8192, ", "")).contains("needs `ffn_width`"));
}

TEST(Job, a_job_without_a_training_section_is_for_planning_alone) {
  EXPECT_FALSE(parse_job(kGpt2, "job.yaml")->training);
}

TEST(Job, all_of_the_training_is_read) {
  const Result<Job> job = parse_job(kTrained, "job.yaml");
  ASSERT_TRUE(job) << job.error().text();
  ASSERT_TRUE(job->training);
  const Training& training = *job->training;
  EXPECT_EQ(training.data, "../data/bible");  // as it stands in the file
  EXPECT_EQ(training.seed, 7u);
  EXPECT_EQ(training.steps, 200u);
  EXPECT_EQ(training.rate_max, 1e-3);
  EXPECT_EQ(training.rate_min, 1e-4);
  EXPECT_EQ(training.decay, RateDecay::kLinear);
  EXPECT_EQ(training.warm_up_steps, 20u);
  EXPECT_EQ(training.beta1, 0.8);
  EXPECT_EQ(training.beta2, 0.99);
  EXPECT_EQ(training.epsilon, 1e-6);
  EXPECT_EQ(training.weight_decay, 0.2);
  EXPECT_EQ(training.clip, 0.5);
  EXPECT_EQ(training.validation_every, 50u);
  EXPECT_EQ(training.validation_sequences, 100);
  EXPECT_EQ(training.checkpoint_every, 100u);
  EXPECT_EQ(training.checkpoints_kept, 3);
}

TEST(Job, a_training_needs_data_and_steps_alone) {
  const std::string text(kTrained.substr(0, kTrained.find("  data:")));
  const Result<Job> job = parse_job(text + "  {data: d, steps: 1}\n", "job.yaml");
  ASSERT_TRUE(job) << job.error().text();
  const Training defaults;
  EXPECT_EQ(job->training->data, "d");
  EXPECT_EQ(job->training->steps, 1u);
  EXPECT_EQ(job->training->seed, defaults.seed);
  EXPECT_EQ(job->training->rate_max, defaults.rate_max);
  EXPECT_EQ(job->training->rate_min, defaults.rate_min);
  EXPECT_EQ(job->training->decay, RateDecay::kCosine);
  EXPECT_EQ(job->training->warm_up_steps, 0u);
  EXPECT_EQ(job->training->beta1, defaults.beta1);
  EXPECT_EQ(job->training->beta2, defaults.beta2);
  EXPECT_EQ(job->training->epsilon, defaults.epsilon);
  EXPECT_EQ(job->training->weight_decay, defaults.weight_decay);
  EXPECT_EQ(job->training->clip, defaults.clip);
  EXPECT_EQ(job->training->validation_every, 0u);
  EXPECT_EQ(job->training->validation_sequences, 256);
  EXPECT_EQ(job->training->checkpoint_every, 0u);
  EXPECT_EQ(job->training->checkpoints_kept, 2);

  EXPECT_TRUE(errors_of(text + "  {data: d}\n").contains("missing key `steps`"));
  EXPECT_TRUE(errors_of(text + "  {steps: 1}\n").contains("missing key `data`"));
  EXPECT_TRUE(errors_of(text + "\n").contains("`training` must be a map"));
}

TEST(Job, the_outermost_values_of_a_training_are_accepted) {
  const BadJob cases[] = {
      {"seed: 7", "seed: 0", ""},
      {"seed: 7", "seed: 9223372036854775807", ""},
      {"steps: 200", "steps: 21", ""},         // one more than the warm-up
      {"steps: 200", "steps: 268435455", ""},  // 2^28 - 1
      {"min: 1e-4", "min: 0", ""},
      {"min: 1e-4", "min: 1e-3", ""},  // = max
      {"max: 1e-3", "max: 1e-4", ""},  // = min
      {"max: 1e-3", "max: 1000", ""},
      {"warm_up: 20", "warm_up: 0", ""},
      {"warm_up: 20", "warm_up: 199", ""},
      {"decay: linear", "decay: constant", ""},
      {"decay: linear", "decay: cosine", ""},
      {"beta1: 0.8", "beta1: 0", ""},
      {"beta1: 0.8", "beta1: 0.9999999", ""},
      {"beta2: 0.99", "beta2: 0", ""},
      {"beta2: 0.99", "beta2: 0.9999999", ""},
      {"epsilon: 1e-6", "epsilon: 1e-45", ""},  // the smallest fp32 is 1.4e-45
      {"epsilon: 1e-6", "epsilon: 1", ""},
      {"weight_decay: 0.2", "weight_decay: 0", ""},
      {"weight_decay: 0.2", "weight_decay: 1000", ""},
      {"clip: 0.5", "clip: 0", ""},
      {"every: 50", "every: 0", ""},
      {"every: 50", "every: 268435455", ""},
      {"sequences: 100", "sequences: 1", ""},
      {"sequences: 100", "sequences: 1073741824", ""},
      {"every: 100", "every: 0", ""},
      {"keep: 3", "keep: 1", ""},
      {"keep: 3", "keep: 1000", ""},
      {"heads: 4", "heads: 4, dropout: 0", ""},
  };
  for (const BadJob& good : cases) {
    EXPECT_EQ(errors_of(with(kTrained, good.old, good.replacement)), "") << good.replacement;
  }
}

TEST(Job, a_wrong_training_is_refused_with_the_reason) {
  constexpr std::string_view no_dropout = "dropout is always 0 here";
  const BadJob cases[] = {
      {"../data/bible", "\"\"", "this names none"},
      {"../data/bible", "[bible]", "`training.data` must be a text"},
      {"seed: 7", "seed: -1", "`training.seed`"},
      {"steps: 200", "steps: 0", "`training.steps` must be a whole number from 1 to 268435455"},
      {"steps: 200", "steps: 268435456", "from 1 to 268435455"},
      {"steps: 200", "steps: 20", "a warm-up of 20 steps is not shorter than the run of 20"},
      {"warm_up: 20", "warm_up: 200", "a warm-up of 200 steps is not shorter"},
      {"warm_up: 20", "warm_up: -1", "`training.learning_rate.warm_up`"},
      {"max: 1e-3", "max: 0", "a learning rate of 0 trains nothing"},
      {"max: 1e-3", "max: -1", "`training.learning_rate.max` must be a number from 0 to 1000"},
      {"max: 1e-3", "max: 1000.1", "`training.learning_rate.max`"},
      {"max: 1e-3", "max: 1e999", "`training.learning_rate.max`"},
      {"max: 1e-3", "max: inf", "`training.learning_rate.max`"},
      {"max: 1e-3", "max: nan", "`training.learning_rate.max`"},
      {"max: 1e-3", "max: 0.9e-4", "cannot fall from 9e-05 to 0.0001"},
      {"max: 1e-3, min: 1e-4", "min: 7e-4", "cannot fall from 0.0006 to 0.0007"},
      {"min: 1e-4", "min: 1.1e-3", "cannot fall from 0.001 to 0.0011"},
      {"min: 1e-4", "min: -1e-9", "`training.learning_rate.min`"},
      {"decay: linear", "decay: linaer", "did you mean `linear`"},
      {"beta1: 0.8", "beta1: 1", "a beta of 1 never changes"},
      {"beta1: 0.8", "beta1: -0.1", "`training.optimiser.beta1`"},
      {"beta2: 0.99", "beta2: 1", "a beta of 1 never changes"},
      {"beta2: 0.99", "beta2: 1.1", "`training.optimiser.beta2`"},
      {"epsilon: 1e-6", "epsilon: 0", "an epsilon of 0 in fp32 divides by zero"},
      {"epsilon: 1e-6", "epsilon: 1e-46", "an epsilon of 0 in fp32 divides by zero"},
      {"epsilon: 1e-6", "epsilon: 1.1", "`training.optimiser.epsilon`"},
      {"epsilon: 1e-6", "epsilon: -1e-8", "`training.optimiser.epsilon`"},
      {"weight_decay: 0.2", "weight_decay: -0.1", "`training.optimiser.weight_decay`"},
      {"weight_decay: 0.2", "weight_decay: 1000.1", "`training.optimiser.weight_decay`"},
      {"clip: 0.5", "clip: -1", "`training.optimiser.clip`"},
      {"every: 50", "every: -1", "`training.validation.every`"},
      {"every: 50", "every: 268435456", "`training.validation.every`"},
      {"sequences: 100", "sequences: 0", "`training.validation.sequences`"},
      {"sequences: 100", "sequences: 1073741825", "`training.validation.sequences`"},
      {"every: 100", "every: -1", "`training.checkpoints.every`"},
      {"keep: 3", "keep: 0", "`training.checkpoints.keep`"},
      {"keep: 3", "keep: 1001", "`training.checkpoints.keep`"},
      {"  optimiser:", "  optimizer:", "did you mean `optimiser`"},
      {"warm_up:", "warmup:", "did you mean `warm_up`"},
      {"training:", "trainig:", "did you mean `training`"},
      {"precision: fp32", "precision: fp32\ndropout: 0.1", no_dropout},
      {"heads: 4", "heads: 4, dropout: 0.1", no_dropout},
      {"seed: 7", "dropout: 0.1", no_dropout},
      {"clip: 0.5", "dropout: 0.1", no_dropout},
  };
  for (const BadJob& bad : cases) {
    const Result<Job> job = parse_job(with(kTrained, bad.old, bad.replacement), "job.yaml");
    ASSERT_FALSE(job) << bad.replacement;
    EXPECT_EQ(job.error().count(), 1u) << job.error().text();
    EXPECT_TRUE(job.error().text().contains(bad.says)) << job.error().text();
  }
}

TEST(Job, all_errors_are_reported_at_once) {
  const std::string text =
      with(with(with(kGpt2, "layers: 12", "layers: 0"), "global: 512", "global: 0"), "fp16", "fp8");
  const Result<Job> job = parse_job(text, "job.yaml");
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().count(), 3u) << job.error().text();
}

TEST(Job, a_missing_file_is_refused_by_name) {
  const Result<Job> job = load_job("/nonexistent/job.yaml");
  ASSERT_FALSE(job);
  EXPECT_TRUE(job.error().text().contains("/nonexistent/job.yaml"));
}

TEST(Job, names_are_those_of_the_files) {
  EXPECT_EQ(name_of(ModelFamily::kGpt2), "gpt2");
  EXPECT_EQ(name_of(ModelFamily::kLlama), "llama");
  EXPECT_EQ(name_of(Codec::kNone), "none");
  EXPECT_EQ(name_of(Codec::kBf16), "bf16");
  EXPECT_EQ(name_of(Codec::kInt8), "int8");
  EXPECT_EQ(name_of(RateDecay::kConstant), "constant");
  EXPECT_EQ(name_of(RateDecay::kLinear), "linear");
  EXPECT_EQ(name_of(RateDecay::kCosine), "cosine");
}

// ---- what only some models have

TEST(Job, norm_and_rotary_numbers_are_read) {
  EXPECT_EQ(parse_job(kLlama, "j")->model.norm_epsilon, 1e-5);
  EXPECT_EQ(parse_job(kLlama, "j")->model.rope_theta, 10000);
  const std::string text =
      with(kLlama, "kv_heads: 8",
           "kv_heads: 8, norm_epsilon: 1e-6, rope_theta: 500000, rope_scaling: {factor: 32, "
           "low_frequency: 1, high_frequency: 4, original_context: 8192}");
  const Result<Job> job = parse_job(text, "job.yaml");
  ASSERT_TRUE(job) << job.error().text();
  EXPECT_EQ(job->model.norm_epsilon, 1e-6);
  EXPECT_EQ(job->model.rope_theta, 500000);
  EXPECT_EQ(job->model.rope_scaling, (RopeScaling{32, 1, 4, 8192}));
  EXPECT_EQ(
      parse_job(with(kGpt2, "heads: 12", "heads: 12, norm_epsilon: 1e-6"), "j")->model.norm_epsilon,
      1e-6);
}

TEST(Job, numbers_that_a_model_cannot_have_are_refused) {
  const BadJob gpt2[] = {
      {"heads: 12", "heads: 12, norm_epsilon: 0", "divides by zero"},
      {"heads: 12", "heads: 12, norm_epsilon: 1.1", "`model.norm_epsilon`"},
      {"heads: 12", "heads: 12, rope_theta: 10000", "gpt2 has no rotary embedding"},
      {"heads: 12", "heads: 12, rope_scaling: {factor: 8}", "gpt2 has no rotary embedding"},
  };
  for (const BadJob& bad : gpt2) {
    const std::string errors = errors_of(with(kGpt2, bad.old, bad.replacement));
    EXPECT_TRUE(errors.contains(bad.says)) << errors;
  }
  const BadJob llama[] = {
      {"kv_heads: 8", "kv_heads: 8, rope_theta: 0", "`model.rope_theta`"},
      {"kv_heads: 8", "kv_heads: 8, rope_scaling: {factor: 8}", "missing key `low_frequency`"},
      {"kv_heads: 8",
       "kv_heads: 8, rope_scaling: {factor: 0.5, low_frequency: 1, high_frequency: 4, "
       "original_context: 8}",
       "`model.rope_scaling.factor`"},
      {"kv_heads: 8",
       "kv_heads: 8, rope_scaling: {factor: 8, low_frequency: 0, high_frequency: 4, "
       "original_context: 8}",
       "a wave of frequency 0"},
      {"kv_heads: 8",
       "kv_heads: 8, rope_scaling: {factor: 8, low_frequency: 4, high_frequency: 4, "
       "original_context: 8}",
       "4 does not lie above `low_frequency` 4"},
  };
  for (const BadJob& bad : llama) {
    const std::string errors = errors_of(with(kLlama, bad.old, bad.replacement));
    EXPECT_TRUE(errors.contains(bad.says)) << errors;
  }
}

TEST(Job, a_models_text_reads_back_as_the_model) {
  ModelShape model = parse_job(kLlama, "j")->model;
  model.norm_epsilon = 1.0 / 3;  // no short decimal is it
  model.rope_theta = 123456.789;
  model.rope_scaling = RopeScaling{8, 1.0 / 7, 4, 4096};
  const std::string job = "schema: longhaul/job/1\nname: j\nmodel: " + model_text(model) +
                          "\nbatch: {global: 1}\nprecision: fp32\n";
  const Result<Job> read = parse_job(job, "j");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->model, model);
}

// ---- a model that lies in a folder

constexpr std::string_view kFrom = R"(schema: longhaul/job/1
name: tuned
model: {from: tests/golden/hugging_face/llama, context: 8}
batch: {global: 4}
precision: fp32
)";

Result<Job> parse_here(const std::string& text) {
  return parse_job(text, std::string(LONGHAUL_SOURCE_DIR) + "/job.yaml");
}

TEST(Job, a_model_is_that_of_the_folder_it_comes_from) {
  const Result<Job> job = parse_here(std::string(kFrom));
  ASSERT_TRUE(job) << job.error().text();
  EXPECT_EQ(job->model_from, LONGHAUL_SOURCE_DIR "/tests/golden/hugging_face/llama");
  EXPECT_EQ(job->model.family, ModelFamily::kLlama);
  EXPECT_EQ(job->model.layers, 2);
  EXPECT_EQ(job->model.kv_heads, 2);
  EXPECT_EQ(job->model.context, 8);
  EXPECT_EQ(job->model.rope_theta, 500000);
  EXPECT_EQ(parse_here(with(kFrom, ", context: 8", ""))->model.context, 16);
  // Another model in the folder is another job.
  EXPECT_NE(job->hash, hash_text(kFrom));
}

TEST(Job, who_has_not_the_folder_reads_the_shape_from_the_text) {
  const Result<Job> job = parse_here(std::string(kFrom));
  ASSERT_TRUE(job);
  const Result<std::string> text = self_contained_text(kFrom, *job);
  ASSERT_TRUE(text);
  const Result<Job> read = parse_job(*text, "elsewhere");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->model, job->model);
  EXPECT_EQ(read->model_from, "");
  EXPECT_EQ(self_contained_text(kGpt2, *parse_job(kGpt2, "j")), std::string(kGpt2));
}

TEST(Job, what_the_folder_says_is_not_said_again) {
  const BadJob cases[] = {
      {"context: 8", "layers: 2", "`layers` is what the config.json of `from` says"},
      {"context: 8", "family: llama", "`family` is what the config.json"},
      {"context: 8", "rope_theta: 10000", "`rope_theta` is what the config.json"},
      {"context: 8", "context: 17", "`model.context` must be a whole number from 1 to 16"},
      {"context: 8", "context: 0", "`model.context`"},
      {"context: 8", "contxt: 8", "did you mean `context`"},
      {"context: 8", "dropout: 0.1", "dropout is always 0 here"},
      {"golden/hugging_face/llama", "nowhere", "nowhere is no folder"},
      {"golden/hugging_face/llama", "golden", "golden has no config.json"},
      {"tests/golden/hugging_face/llama", "[a]", "`model.from` must be a text"},
      {"tests/golden/hugging_face/llama", "\"\"", "this names none"},
  };
  for (const BadJob& bad : cases) {
    const Result<Job> job = parse_here(with(kFrom, bad.old, bad.replacement));
    ASSERT_FALSE(job) << bad.replacement;
    EXPECT_TRUE(job.error().text().contains(bad.says)) << job.error().text();
    EXPECT_EQ(job.error().place.line, 3);
    EXPECT_EQ(job.error().count(), 1u) << job.error().text();
  }
}

}  // namespace
}  // namespace longhaul
