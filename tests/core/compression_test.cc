// The `compression` section of a job file.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/job.h"

namespace longhaul {
namespace {

Result<Job> read(const std::string& compression, const std::string& more = "") {
  return parse_job(
      fmt::format(
          "schema: longhaul/job/1\nname: small\nmodel: {{family: gpt2, layers: 12, width: 768, "
          "heads: 12, context: 1024, vocabulary: 50257}}\nbatch: {{global: 512}}\nprecision: "
          "fp16\ncompression: {{{}}}\n{}",
          compression, more),
      "job.yaml");
}

Job job_of(const std::string& compression, const std::string& more = "") {
  Result<Job> job = read(compression, more);
  EXPECT_TRUE(job) << compression << "\n" << (job ? "" : job.error().text());
  return job ? *job : Job{};
}

TEST(Compression, gradients_of_activations_are_as_fine_as_is_usual) {
  const struct {
    std::string activations;
    Codec gradients;
  } rows[] = {
      {"none", Codec::kNone},           {"bf16", Codec::kBf16},    {"fp16", Codec::kFp16},
      {"int8", Codec::kInt8},           {"int6", Codec::kInt6},    {"int4", Codec::kInt4},
      {"hadamard4", Codec::kHadamard4}, {"aq-int8", Codec::kInt8}, {"aq-int6", Codec::kInt8},
      {"aq-int4", Codec::kInt8},        {"aq-int3", Codec::kInt6}, {"aq-int2", Codec::kInt4},
  };
  for (const auto& row : rows) {
    const Job job = job_of("activations: " + row.activations);
    EXPECT_EQ(name_of(job.activations), row.activations);
    EXPECT_EQ(own_codec(job, CodecUse::kActivationGradients), row.gradients) << row.activations;
    EXPECT_EQ(job.history.has_value(), row.activations.starts_with("aq-"));
  }
  const Job both = job_of("activations: aq-int4, activation_gradients: int4, gradients: int2");
  EXPECT_EQ(own_codec(both, CodecUse::kActivationGradients), Codec::kInt4);
  EXPECT_EQ(own_codec(both, CodecUse::kGradients), Codec::kInt2);
}

TEST(Compression, a_floor_is_bits_or_a_codec_or_lossless) {
  const struct {
    std::string floor;
    Codec coarsest;  // without histories
  } rows[] = {
      {"lossless", Codec::kNone},    {"none", Codec::kNone},        {"32 bits", Codec::kNone},
      {"17 bits", Codec::kNone},     {"16 bits", Codec::kBf16},     {"bf16", Codec::kBf16},
      {"8 bits", Codec::kInt8},      {"8bits", Codec::kInt8},       {"int8", Codec::kInt8},
      {"7 bits", Codec::kInt8},      {"6 bits", Codec::kInt6},      {"5 bits", Codec::kInt6},
      {"4 bits", Codec::kHadamard4}, {"2 bits", Codec::kHadamard4}, {"aq-int8", Codec::kInt8},
  };
  for (const auto& row : rows) {
    const Job job = job_of("activations: auto, gradients: auto, floor: " + row.floor);
    EXPECT_EQ(job.activations, row.coarsest) << row.floor;
    EXPECT_EQ(job.gradients, row.coarsest) << row.floor;
    EXPECT_TRUE(is_auto(job, CodecUse::kActivationGradients));
  }
  EXPECT_EQ(job_of("activations: auto").activations, Codec::kBf16);
}

TEST(Compression, lossless_leaves_one_codec) {
  const Job job = job_of("activations: auto, gradients: auto, floor: lossless");
  for (const Codec codec : kCodecs) {
    for (const CodecUse use :
         {CodecUse::kActivations, CodecUse::kActivationGradients, CodecUse::kGradients}) {
      EXPECT_EQ(allows(job, use, codec), codec == Codec::kNone) << name_of(codec);
    }
  }
}

std::vector<std::string> names(const std::vector<Codec>& codecs) {
  std::vector<std::string> all;
  for (const Codec codec : codecs) all.emplace_back(name_of(codec));
  return all;
}

TEST(Compression, what_a_planner_tries_depends_on_the_history) {
  using Names = std::vector<std::string>;
  const Job direct = job_of("activations: auto, gradients: auto, floor: 2 bits");
  const Names all = {"none", "bf16", "int8", "int6", "int4", "hadamard4"};
  EXPECT_EQ(names(codecs_to_try(direct, CodecUse::kActivations)), all);
  EXPECT_EQ(names(codecs_to_try(direct, CodecUse::kGradients)), all);
  const Job aq = job_of(
      "activations: auto, activation_gradients: auto, floor: 2 bits, history: {memory: 1 GiB}");
  EXPECT_EQ(names(codecs_to_try(aq, CodecUse::kActivations)),
            (Names{"none", "bf16", "int8", "int6", "aq-int4", "aq-int3", "aq-int2"}));
  EXPECT_EQ(names(codecs_to_try(aq, CodecUse::kActivationGradients)), all);
  EXPECT_EQ(names(codecs_to_try(aq, CodecUse::kGradients)), (Names{"none"}));
  EXPECT_TRUE(allows(aq, CodecUse::kActivations, Codec::kHadamard4));  // a person may
  EXPECT_FALSE(allows(direct, CodecUse::kActivations, Codec::kAqInt4));
  EXPECT_FALSE(allows(aq, CodecUse::kActivations, Codec::kInt2));
}

TEST(Compression, a_history_has_a_room_and_a_first_visit) {
  const Job usual = job_of("activations: aq-int4");
  EXPECT_EQ(*usual.history, HistorySettings{});
  const Job said = job_of(
      "activations: aq-int4, history: {memory: 1 GiB, disk: 0 GiB, first: int8, checkpoint: true, "
      "samples: 1000}");
  EXPECT_EQ(*said.history, (HistorySettings{gibibytes(1), Bytes(0), Codec::kInt8, true, 1000}));
}

TEST(Compression, a_run_of_one_epoch_does_not_choose_a_history) {
  const std::string codecs = "activations: auto, floor: 3 bits, history: {samples: 5120}";
  // 10 steps of 512 see 5,120 samples once.
  const auto steps = [](int n) { return fmt::format("training: {{data: d, steps: {}}}\n", n); };
  EXPECT_EQ(job_of(codecs, steps(10)).activations, Codec::kHadamard4);
  EXPECT_EQ(job_of(codecs, steps(11)).activations, Codec::kAqInt3);
  EXPECT_EQ(job_of(codecs).activations, Codec::kAqInt3);  // nobody knows
}

TEST(Compression, what_cannot_be_is_refused_with_the_reason) {
  const struct {
    std::string compression;
    std::string says;
  } rows[] = {
      {"activations: int3", "3 bits without a history lose 17 % of every activation"},
      {"activations: int2", "use `aq-int2` if the run sees its samples again, or `hadamard4`"},
      {"activations: ternary", "a ternary quantiser loses 72 %"},
      {"activations: aq-ternary", "use `aq-int2`"},
      {"gradients: ternary", "a ternary quantiser loses 72 %"},
      {"activations: int5", "must be one of none, bf16, fp16, aq-int8, int8"},
      {"activations: aq-int5", "did you mean `aq-int"},
      {"activations: 4", "must be one of"},
      {"gradients: aq-int8", "gradients between replicas are of no one sample"},
      {"gradients: aq-int4", "use `int4`"},
      {"activation_gradients: aq-int4", "sends their gradients directly"},
      {"activation_gradients: int5", "must be one of none, bf16, fp16, int8"},
      {"activations: bf16, floor: 4 bits", "a floor is for codecs that the plan chooses"},
      {"activations: auto, floor: 4", "write `4 bits`"},
      {"activations: auto, floor: 1 bits", "from `2 bits` to `32 bits`"},
      {"activations: auto, floor: 33 bits", "from `2 bits` to `32 bits`"},
      {"activations: auto, floor: 99999999999 bits", "from `2 bits` to `32 bits`"},
      {"activations: auto, floor: 4 GB", "found `4 GB`"},
      {"activations: auto, floor: [4]", "`compression.floor` is"},
      {"activations: int8, history: {memory: 1 GiB}", "no codec here keeps a history"},
      {"activations: auto, floor: int8, history: {memory: 1 GiB}", "no codec here keeps a history"},
      {"gradients: auto, floor: 2 bits, history: {memory: 1 GiB}", "no codec here keeps a history"},
      {"activations: aq-int4, history: {memory: 0 GiB, disk: 0 GiB}", "0 bytes of memory and of"},
      {"activations: aq-int4, history: {memory: 4}", "memory"},
      {"activations: aq-int4, history: {first: int4}", "must be one of bf16, int8"},
      {"activations: aq-int4, history: {samples: 0}", "samples"},
      {"activations: aq-int4, history: {disc: 4 GiB}", "did you mean `disk`"},
  };
  for (const auto& row : rows) {
    const Result<Job> job = read(row.compression);
    ASSERT_FALSE(job) << row.compression;
    EXPECT_EQ(job.error().count(), 1u) << job.error().text();
    EXPECT_TRUE(job.error().text().contains(row.says)) << job.error().text();
  }
}

}  // namespace
}  // namespace longhaul
