#include "executor/checkpoint/model_source.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "executor/storage/sim_storage.h"
#include "tests/executor/checkpoint_fixtures.h"

namespace longhaul {
namespace {

using fixtures::part_at_step;
using fixtures::small_llama;
using fixtures::small_model;
using fixtures::write_checkpoint;

std::string layer_file(std::uint64_t step) {
  return fmt::format("run/checkpoints/term-000001-step-{:09}/layer-0000.safetensors", step);
}

TEST(ModelSource, a_run_is_its_newest_checkpoint_that_is_whole) {
  const ModelShape model = small_model(1);
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "run/checkpoints", model, 10, 3));
  ASSERT_TRUE(write_checkpoint(storage, "run/checkpoints", model, 20, 3));
  storage.flip_bit(layer_file(20), storage.bytes(layer_file(20)).size() - 1, 0);
  const auto source = open_model_source(storage, "run");
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ(source->path, "run/checkpoints/term-000001-step-000000010");
  ASSERT_EQ(source->notes.size(), 1u);
  EXPECT_TRUE(source->notes[0].starts_with("a newer checkpoint is passed over: " + layer_file(20)))
      << source->notes[0];
  const CheckpointPart layer = {PartKind::kLayer, 0};
  EXPECT_EQ(source->read(tensors_of(model, layer)[2]), part_at_step(model, layer, 10).weights[2]);

  storage.flip_bit(layer_file(10), storage.bytes(layer_file(10)).size() - 1, 0);
  EXPECT_FALSE(open_model_source(storage, "run"));  // none is whole
}

TEST(ModelSource, what_is_no_model_is_said_to_be_none) {
  SimStorage storage;
  storage.put("empty/readme", "");
  storage.put("young/job.yaml", "");
  EXPECT_EQ(open_model_source(storage, "nowhere").error().message, "nowhere is not there");
  EXPECT_EQ(open_model_source(storage, "empty").error().message, "empty holds no model");
  EXPECT_EQ(open_model_source(storage, "young").error().message,
            "there is no checkpoint in young/checkpoints");
  EXPECT_EQ(open_model_source(storage, "empty/readme").error().message,
            "0 bytes are no model of llm.c, whose header has 1024");
}

TEST(ModelSource, a_checkpoint_smaller_than_its_model_is_refused) {
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "c", small_model(1), 10, 1));
  auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
  ASSERT_TRUE(manifest);
  manifest->model.vocabulary = 1 << 24;
  EXPECT_FALSE(open_checkpoint(storage, "c/term-000001-step-000000010", *manifest));
}

// ---- fit_source

ModelSource with_position_table(const ModelShape& model) {
  ModelSource source{.kind = "made up", .path = "it", .model = model, .files = {}};
  source.read = [](const PartTensor& tensor) -> Result<std::vector<float>> {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return values;
  };
  return source;
}

TEST(ModelSource, a_shorter_context_cuts_gpt2s_position_table) {
  ModelShape wanted = small_model(1);  // context 2
  ModelSource source = with_position_table(wanted);
  wanted.context = 1;
  ASSERT_TRUE(fit_source(source, wanted, "job.yaml"));
  EXPECT_EQ(source.model, wanted);
  EXPECT_EQ(source.notes, std::vector<std::string>{
                              "the position table is cut from 2 rows to the job's context of 1"});
  // The first row, of the table that the source has; other tensors are as they were.
  EXPECT_EQ(source.read({"wpe.weight", {1, 2}}), (std::vector<float>{0, 1}));
  EXPECT_EQ(source.read({"ln_f.weight", {2}}), (std::vector<float>{0, 1}));
}

TEST(ModelSource, a_shorter_context_cuts_nothing_of_a_llama) {
  ModelShape wanted = small_llama(1, true);
  ModelSource source = with_position_table(wanted);
  wanted.context = 1;
  ASSERT_TRUE(fit_source(source, wanted, "job.yaml"));
  EXPECT_TRUE(source.notes.empty());
}

TEST(ModelSource, another_model_is_refused_with_what_differs) {
  const auto refusal = [](const ModelShape& has, auto change) {
    ModelShape wanted = has;
    change(wanted);
    ModelSource source = with_position_table(has);
    const auto fits = fit_source(source, wanted, "job.yaml");
    return fits ? "" : fits.error().message;
  };
  const std::string begin = "it is another model than that of job.yaml: ";
  const ModelShape gpt2 = small_model(1);
  const ModelShape llama = small_llama(1, true);
  EXPECT_EQ(refusal(gpt2, [](ModelShape&) {}), "");
  EXPECT_EQ(refusal(gpt2, [](ModelShape& m) { m.layers = 2, m.tied_embedding = false; }),
            begin + "layers 1, not 2; tied_embedding true, not false");
  EXPECT_EQ(refusal(gpt2, [](ModelShape& m) { m.context = 3; }), begin + "context 2, not 3");
  EXPECT_EQ(refusal(gpt2, [](ModelShape& m) { m.norm_epsilon = 1e-6; }),
            begin + "norm_epsilon 1e-05, not 1e-06");
  EXPECT_EQ(refusal(gpt2, [](ModelShape& m) { m.family = ModelFamily::kLlama; }),
            begin + "family gpt2, not llama");
  EXPECT_EQ(refusal(llama, [](ModelShape& m) { m.rope_theta = 10000; }),
            begin + "rope_theta 500000, not 10000");
  EXPECT_EQ(refusal(llama, [](ModelShape& m) { m.rope_scaling.reset(); }),
            begin + "another rope_scaling");
}

}  // namespace
}  // namespace longhaul
