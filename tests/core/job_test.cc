#include "core/job.h"

#include <gtest/gtest.h>

#include <string>

#include "core/hash.h"

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
  EXPECT_FALSE(job->recompute);
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
  EXPECT_TRUE(job->recompute);
  EXPECT_EQ(job->activations, Codec::kInt8);
  EXPECT_EQ(job->gradients, Codec::kBf16);
}

TEST(Job, the_shipped_jobs_load) {
  for (const std::string name : {"gpt2-small", "gpt3-xl", "llama-1b"}) {
    const Result<Job> job =
        load_job(std::string(LONGHAUL_SOURCE_DIR) + "/configs/jobs/" + name + ".yaml");
    ASSERT_TRUE(job) << job.error().text();
    EXPECT_EQ(job->name, name);
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
      {"precision: fp16", "precision: fp16\ncompression: {activations: int4}", "int8"},
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
}

}  // namespace
}  // namespace longhaul
