#include "core/model_math.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::unit_job;
using fixtures::unit_kind;
using fixtures::unit_model;

ModelShape gpt2(int layers, int width, int heads, int context, int vocabulary, bool tied = true) {
  return {ModelFamily::kGpt2, layers,    width,   heads,      heads,
          width / heads,      4 * width, context, vocabulary, tied};
}

ModelShape llama(int layers, int width, int heads, int kv_heads, int ffn, int context,
                 int vocabulary) {
  return {ModelFamily::kLlama, layers, width,   heads,      kv_heads,
          width / heads,       ffn,    context, vocabulary, true};
}

ModelShape shipped(const std::string& name) {
  const Result<Job> job =
      load_job(std::string(LONGHAUL_SOURCE_DIR) + "/configs/jobs/" + name + ".yaml");
  EXPECT_TRUE(job.has_value());
  return job ? job->model : ModelShape{};
}

// ---- Parameters.

TEST(Parameters, gpt2_124m) {
  // Layer: 12 x 768^2 + 13 x 768 = 7,087,872; 12 of them 85,054,464. Tokens 50257 x 768 =
  // 38,597,376; positions 1024 x 768 = 786,432; final norm 1,536. GPT-2's published total.
  const ModelShape model = gpt2(12, 768, 12, 1024, 50257);
  EXPECT_EQ(layer_parameters(model), 7'087'872);
  EXPECT_EQ(token_embedding_parameters(model), 38'597'376);
  EXPECT_EQ(position_embedding_parameters(model), 786'432);
  EXPECT_EQ(final_norm_parameters(model), 1'536);
  EXPECT_EQ(model_parameters(model), 124'439'808);
  EXPECT_EQ(model_parameters(shipped("gpt2-small")), 124'439'808);
}

TEST(Parameters, an_untied_head_counts_again) {
  EXPECT_EQ(model_parameters(gpt2(12, 768, 12, 1024, 50257, false)), 124'439'808 + 38'597'376);
}

TEST(Parameters, gpt3_xl) {
  // Layer: 12 x 2048^2 + 13 x 2048 = 50,358,272; 24 of them 1,208,598,528. Tokens 50257 x 2048 =
  // 102,926,336; positions 2048 x 2048 = 4,194,304; final norm 4,096. Together 1.3 billion.
  EXPECT_EQ(model_parameters(shipped("gpt3-xl")), 1'315'723'264);
}

TEST(Parameters, llama_3_2_1b) {
  // Layer: queries and output 2 x 2048^2 = 8,388,608; keys and values 2 x 2048 x 512 = 2,097,152;
  // MLP 3 x 2048 x 8192 = 50,331,648; norms 4,096; 16 of them 973,144,064. Tokens 128256 x 2048 =
  // 262,668,288; final norm 2,048. Meta's published total.
  const ModelShape model = llama(16, 2048, 32, 8, 8192, 2048, 128256);
  EXPECT_EQ(layer_parameters(model), 60'821'504);
  EXPECT_EQ(position_embedding_parameters(model), 0);
  EXPECT_EQ(final_norm_parameters(model), 2'048);
  EXPECT_EQ(model_parameters(model), 1'235'814'400);
  EXPECT_EQ(model_parameters(shipped("llama-1b")), 1'235'814'400);
}

TEST(Parameters, smollm_135m) {
  // Layer: 2 x 576^2 + 2 x 576 x 192 + 3 x 576 x 1536 + 2 x 576 = 3,540,096; 30 of them
  // 106,202,880. Tokens 49152 x 576 = 28,311,552; final norm 576.
  EXPECT_EQ(model_parameters(llama(30, 576, 9, 3, 1536, 2048, 49152)), 134'515'008);
}

TEST(Parameters, heads_may_be_wider_together_than_the_model) {
  // C = 2, Hd = 2 x 3 = 6, Gd = 1 x 3 = 3, F = 5: 2 x 2 x 6 + 2 x 2 x 3 + 3 x 2 x 5 + 2 x 2 = 70.
  ModelShape model = llama(1, 2, 2, 1, 5, 1, 1);
  model.head_width = 3;
  EXPECT_EQ(layer_parameters(model), 70);
}

// ---- FLOPs.

TEST(ModelFlops, a_gpt2_layer_is_24_b_s_c2_and_4_b_s2_c) {
  // b = 2, s = 1024, C = 768: 24 x 2 x 1024 x 589,824 = 28,991,029,248 and
  // 4 x 2 x 1,048,576 x 768 = 6,442,450,944. [Narayanan et al., SC 2021, appendix]
  const ModelShape model = gpt2(12, 768, 12, 1024, 50257);
  EXPECT_EQ(layer_forward_flops(model, 2), flops(28'991'029'248.0 + 6'442'450'944.0));
}

TEST(ModelFlops, a_llama_layer_counts_its_fewer_key_heads) {
  // C = 4, Hd = 4, Gd = 2, F = 6, s = 3, b = 5: weights 2 x 16 + 2 x 8 + 3 x 24 = 120;
  // 2 x 15 x 120 = 3600; attention 4 x 5 x 9 x 4 = 720.
  EXPECT_EQ(layer_forward_flops(llama(1, 4, 2, 1, 6, 3, 10), 5), flops(4320));
}

TEST(ModelFlops, the_head_is_2_b_s_c_v) {
  EXPECT_EQ(head_forward_flops(llama(1, 4, 2, 1, 6, 3, 10), 5), flops(2 * 5 * 3 * 4 * 10));
}

TEST(ModelFlops, a_training_step_is_three_forwards) {
  // Layer 4320 and head 1200 from above; two layers.
  EXPECT_EQ(model_flops(llama(2, 4, 2, 1, 6, 3, 10), 5), flops(3 * (2 * 4320 + 1200)));
}

TEST(StageWork, the_head_adds_to_the_last_stage_alone) {
  const ModelShape model = unit_model(4);  // 16 FLOP a layer, 2 the head
  const StageWork inner = stage_work(model, {.layers = 3}, 1);
  EXPECT_EQ(inner.forward, flops(48));
  EXPECT_EQ(inner.backward, flops(96));
  EXPECT_EQ(inner.recompute, flops(48));
  const StageWork last = stage_work(model, {.layers = 3, .has_head = true}, 2);
  EXPECT_EQ(last.forward, flops(100));  // two sequences
  EXPECT_EQ(last.backward, flops(200));
  EXPECT_EQ(last.recompute, flops(96));  // logits are not kept, and not made again
}

TEST(StageWork, the_halves_of_a_backward_add_up_to_it) {
  // A unit layer's forward is 12 FLOP with weights and 4 of attention, the head's 2. Weights: 3 x
  // 12
  // + 2; input: the same and 2 x 3 x 4.
  const StageWork work = stage_work(unit_model(4), {.layers = 3, .has_head = true}, 1);
  EXPECT_EQ(work.backward_weight, flops(38));
  EXPECT_EQ(work.backward_input, flops(62));
  EXPECT_EQ(work.backward_input + work.backward_weight, work.backward);
}

// ---- Tensors.

TEST(TensorBytes, a_boundary_is_b_s_c_elements) {
  const ModelShape model = gpt2(24, 2048, 16, 2048, 50257);
  EXPECT_EQ(boundary_bytes(model, Precision::kFp16, 1), bytes(2.0 * 2048 * 2048));
  EXPECT_EQ(boundary_bytes(model, Precision::kFp32, 3), bytes(3 * 4.0 * 2048 * 2048));
}

TEST(TensorBytes, a_gpt2_layer_keeps_16_c_elements_a_token_and_softmax_statistics) {
  // 16 x 768 x 2 = 24,576 bytes a token in fp16 and 4 x 12 bytes of statistics, 1024 tokens.
  const ModelShape model = gpt2(12, 768, 12, 1024, 50257);
  EXPECT_EQ(layer_activation_bytes(model, Precision::kFp16, 1), bytes(1024.0 * (24'576 + 48)));
  EXPECT_EQ(layer_activation_bytes(model, Precision::kFp32, 2), bytes(2048.0 * (49'152 + 48)));
}

TEST(TensorBytes, a_llama_layer_keeps_its_own) {
  // C = 4, Hd = 4, Gd = 2, F = 6: 16 + 8 + 4 + 18 = 46 elements of 2 bytes and 4 x 2 a token.
  EXPECT_EQ(layer_activation_bytes(llama(1, 4, 2, 1, 6, 3, 10), Precision::kBf16, 5),
            bytes(15 * (92 + 8)));
}

TEST(TensorBytes, workspace_is_the_mlp_or_where_the_head_is_the_logits) {
  // 15 tokens: MLP 2 x 15 x 6 x 2 = 360, logits 4 x 15 x 10 = 600 (fp32 always).
  const ModelShape model = llama(1, 4, 2, 1, 6, 3, 10);
  EXPECT_EQ(workspace_bytes(model, Precision::kFp16, 5, false), bytes(360));
  EXPECT_EQ(workspace_bytes(model, Precision::kFp16, 5, true), bytes(600));
  EXPECT_EQ(workspace_bytes(model, Precision::kFp32, 5, true),
            bytes(720));  // now the MLP is larger
}

TEST(CodecBytes, counts_header_and_scales) {
  EXPECT_EQ(codec_bytes(Codec::kNone, 100, 4), bytes(400));  // as it is computed, no header
  EXPECT_EQ(codec_bytes(Codec::kNone, 100, 2), bytes(200));
  EXPECT_EQ(codec_bytes(Codec::kBf16, 100, 4), bytes(68 + 200));
  // int8: 64 elements share a scale of 2 bytes; scales fill whole 64 bytes.
  EXPECT_EQ(codec_bytes(Codec::kInt8, 1, 4), bytes(68 + 1 + 64));
  EXPECT_EQ(codec_bytes(Codec::kInt8, 2048, 4), bytes(68 + 2048 + 64));
  EXPECT_EQ(codec_bytes(Codec::kInt8, 2049, 4), bytes(68 + 2049 + 128));
  // 65 elements are two blocks of 64 of 6 bits, 48 bytes each; three of 32 of 4, 3 and 2 bits.
  EXPECT_EQ(codec_bytes(Codec::kInt6, 65, 4), bytes(68 + 64 + 96));
  EXPECT_EQ(codec_bytes(Codec::kHadamard4, 65, 4), bytes(68 + 64 + 64));
  EXPECT_EQ(codec_bytes(Codec::kInt4, 65, 4), bytes(68 + 64 + 48));
  EXPECT_EQ(codec_bytes(Codec::kInt3, 65, 4), bytes(68 + 64 + 36));
  EXPECT_EQ(codec_bytes(Codec::kInt2, 65, 4), bytes(68 + 64 + 24));
  EXPECT_EQ(codec_bytes(Codec::kInt2, 1025, 4), bytes(68 + 128 + 33 * 8));  // 33 scales
  EXPECT_EQ(codec_bytes(Codec::kFp16, 100, 4), bytes(68 + 200));
  EXPECT_EQ(codec_bytes(Codec::kAqInt3, 65, 4), codec_bytes(Codec::kInt3, 65, 4));
}

TEST(BoundaryMessageBytes, one_frame_or_with_a_history_one_a_sequence) {
  const ModelShape model = llama(1, 4, 2, 1, 6, 3, 10);  // 3 tokens of 4: 12 elements a sequence
  const auto bytes_of = [&](Codec codec, Visit visit) {
    return boundary_message_bytes(codec, model, Precision::kFp32, 5, visit, Codec::kInt8);
  };
  EXPECT_EQ(bytes_of(Codec::kNone, Visit::kLater), bytes(240));
  EXPECT_EQ(bytes_of(Codec::kInt4, Visit::kFirst), codec_bytes(Codec::kInt4, 60, 4));
  // A block of 32 x 2 bits in 8 bytes, scales in 64, 68 and 64 around them: 204, so 256.
  EXPECT_EQ(bytes_of(Codec::kAqInt2, Visit::kLater), bytes(5 * 256));
  // int8: 12 + 64 + 132 = 208; so long in bf16: 24 + 132 = 156.
  EXPECT_EQ(bytes_of(Codec::kAqInt2, Visit::kFirst), bytes(5 * 256));
  EXPECT_EQ(boundary_message_bytes(Codec::kAqInt2, model, Precision::kFp32, 5, Visit::kFirst),
            bytes(5 * 192));
}

// ---- Stages.

TEST(StageShapes, embedding_first_head_last) {
  const std::vector<StageShape> shapes = stage_shapes({5, 4, 3});
  ASSERT_EQ(shapes.size(), 3u);
  EXPECT_EQ(shapes[1].layers, 4);
  EXPECT_TRUE(shapes[0].has_embedding && !shapes[0].has_head);
  EXPECT_TRUE(!shapes[1].has_embedding && !shapes[1].has_head);
  EXPECT_TRUE(!shapes[2].has_embedding && shapes[2].has_head);
  const std::vector<StageShape> alone = stage_shapes({7});
  EXPECT_TRUE(alone[0].has_embedding && alone[0].has_head);
}

TEST(StageParameters, a_tied_embedding_lives_on_both_ends) {
  const ModelShape model = gpt2(12, 768, 12, 1024, 50257);
  const std::vector<StageShape> shapes = stage_shapes({6, 6});
  const double layers = 6.0 * 7'087'872;
  EXPECT_EQ(stage_parameters(model, shapes[0]), layers + 38'597'376 + 786'432);
  EXPECT_EQ(stage_parameters(model, shapes[1]), layers + 38'597'376 + 1'536);
  EXPECT_EQ(stage_parameters(model, {.layers = 6}), layers);
  // Together the model and one more copy of the embedding; so too at one stage, whose second copy
  // is a gradient accumulator.
  EXPECT_EQ(stage_parameters(model, stage_shapes({12})[0]), 124'439'808 + 38'597'376);
}

TEST(StageParameters, the_stages_of_an_untied_model_add_up_to_it) {
  const ModelShape model = gpt2(12, 768, 12, 1024, 50257, false);
  double sum = 0;
  for (const StageShape& shape : stage_shapes({5, 4, 3})) sum += stage_parameters(model, shape);
  EXPECT_EQ(sum, model_parameters(model));
}

TEST(StageParameters, a_tied_embedding_has_an_exchange_of_its_own) {
  const ModelShape model = gpt2(12, 768, 12, 1024, 50257);
  const std::vector<StageShape> shapes = stage_shapes({6, 6});
  const double layers = 6.0 * 7'087'872;
  EXPECT_EQ(stage_reduced_parameters(model, shapes[0], 2), layers + 786'432);
  EXPECT_EQ(stage_reduced_parameters(model, shapes[1], 2), layers + 1'536);
  EXPECT_EQ(stage_reduced_parameters(model, {.layers = 6}, 3), layers);
  // At one stage both accumulators are added before the one exchange, which covers the model once.
  EXPECT_EQ(stage_reduced_parameters(model, stage_shapes({12})[0], 1), 124'439'808);
}

TEST(StageParameters, an_untied_stage_exchanges_all_it_has) {
  const ModelShape model = gpt2(12, 768, 12, 1024, 50257, false);
  for (const StageShape& shape : stage_shapes({6, 6})) {
    EXPECT_EQ(stage_reduced_parameters(model, shape, 2), stage_parameters(model, shape));
  }
  const StageShape alone = stage_shapes({12})[0];
  EXPECT_EQ(stage_reduced_parameters(model, alone, 1), model_parameters(model));
}

// ---- Memory.

TEST(MemoryUse, item_by_item) {
  // Unit model in fp32, first of two stages: 16 + 1 token + 1 position = 18 parameters. A layer
  // keeps (4 + 4 + 2) x 4 + 4 = 44 bytes; a boundary is 4; the MLP's scratch 2 x 4.
  DeviceKind kind = unit_kind("k");
  kind.reserved = bytes(100);
  Job job = unit_job(2, 8);
  const MemoryQuestion question{stage_shapes({1, 1})[0], 1, 3, 3};
  const MemoryUse use = memory_use(job, kind, question);
  EXPECT_EQ(use.states, bytes(16 * 18));
  EXPECT_EQ(use.activations, bytes(3 * 44));
  EXPECT_EQ(use.workspace, bytes(8));
  EXPECT_EQ(use.buffers, bytes(4 * 4 + 2 * 4'194'304.0));  // two peers' buckets of 4 MiB
  EXPECT_EQ(use.reserved, bytes(100));
  EXPECT_EQ(use.total(), bytes(288 + 132 + 8 + 16 + 8'388'608 + 100));
}

TEST(MemoryUse, coded_boundary_tensors_have_a_message_beside_them) {
  Job job = unit_job(2, 8);
  const auto buffers = [&] {
    return memory_use(job, unit_kind("k"), {stage_shapes({1, 1})[0], 1, 1, 1}).buffers;
  };
  EXPECT_EQ(buffers(), bytes(4 * 4));
  job.activations = Codec::kInt8;  // 1 + 64 + 68
  EXPECT_EQ(buffers(), bytes(4 * (4 + 133)));
  job.activation_gradients = Codec::kInt4;  // 16 + 64 + 68
  EXPECT_EQ(buffers(), bytes(4 * (4 + 148)));
  job.activations = Codec::kAqInt2;  // at first 2 + 132 in 192, later 8 + 64 + 132 in 256
  job.history.emplace();
  EXPECT_EQ(buffers(), bytes(4 * (4 + 256)));
  job.activations = Codec::kBf16;
  job.activation_gradients.reset();
  job.activations_auto = true;
  EXPECT_EQ(buffers(), bytes(4 * (4 + 70)));
  job.activations_auto = false;
  job.activations = Codec::kInt4;  // a validation's have 8 bits: 6400 + 2 x 100 (in 256) + 68
  job.model.context = 6400;
  EXPECT_EQ(buffers(), bytes(4 * (4 * 6400 + 6400 + 256 + 68)));
}

TEST(MemoryUse, half_precision_adds_a_copy_and_halves_the_activations) {
  Job job = unit_job(2, 8);
  job.precision = Precision::kBf16;
  const MemoryUse use = memory_use(job, unit_kind("k"), {stage_shapes({1, 1})[0], 1, 3, 1});
  EXPECT_EQ(use.states, bytes(18 * 18));
  EXPECT_EQ(use.activations, bytes(3 * (10 * 2 + 4)));
  EXPECT_EQ(use.buffers, bytes(4 * 2));
}

TEST(MemoryUse, recompute_keeps_boundaries_and_one_full_activation) {
  Job job = unit_job(4, 8);
  job.recompute = Recompute::kYes;
  const MemoryUse use = memory_use(job, unit_kind("k"), {{.layers = 2}, 5, 3, 1});
  // Five sequences: boundary 20 bytes, two layers keep 2 x 5 x 44 = 440.
  EXPECT_EQ(use.activations, bytes(3 * 20 + 440));
}

// A layer of the unit model keeps 44 bytes, a boundary tensor 4. K = 3 and V = 2.
TEST(MemoryUse, a_split_backward_holds_output_gradients_until_their_weight_gradients) {
  const Job job = unit_job(4, 8);
  MemoryQuestion question = {.stage = {.layers = 2}, .in_flight = 3, .for_weights = 2};
  // 3 x 88 + 2 x 4.
  EXPECT_EQ(memory_use(job, unit_kind("k"), question).activations, bytes(272));
  question.for_weights = 0;
  EXPECT_EQ(memory_use(job, unit_kind("k"), question).activations, bytes(264));
}

TEST(MemoryUse, a_split_backward_that_recomputes_holds_activations_from_b_to_w) {
  Job job = unit_job(4, 8);
  job.recompute = Recompute::kYes;
  MemoryQuestion question = {.stage = {.layers = 2}, .in_flight = 3, .for_weights = 2};
  // 3 x 4, the two from B to W and the one that runs forward, and two output gradients:
  // 12 + 3 x 88 + 2 x 4.
  EXPECT_EQ(memory_use(job, unit_kind("k"), question).activations, bytes(284));
  question.for_weights = 0;
  EXPECT_EQ(memory_use(job, unit_kind("k"), question).activations, bytes(100));
}

TEST(MemoryUse, the_heads_logits_are_there_once_however_many_wait) {
  const Job job = unit_job(4, 8);
  MemoryQuestion question = {
      .stage = {.layers = 2, .has_head = true}, .in_flight = 3, .for_weights = 2};
  const Bytes split = memory_use(job, unit_kind("k"), question).workspace;
  question.for_weights = 0;
  EXPECT_EQ(split, memory_use(job, unit_kind("k"), question).workspace);
}

TEST(MemoryUse, a_lone_stage_has_no_boundaries_on_the_wire) {
  const MemoryUse use = memory_use(unit_job(1, 8), unit_kind("k"), {stage_shapes({1})[0], 1, 1, 1});
  EXPECT_EQ(use.buffers, bytes(0));
  // 16 + two token embeddings + position + final norm of 2 = 21 parameters.
  EXPECT_EQ(use.states, bytes(16 * 21));
}

TEST(MemoryUse, the_head_brings_its_logits) {
  Job job = unit_job(2, 8);
  job.model.vocabulary = 3;  // logits 4 x 3 = 12 bytes against 8 of the MLP
  EXPECT_EQ(memory_use(job, unit_kind("k"), {stage_shapes({1, 1})[1], 1, 1, 1}).workspace,
            bytes(12));
}

// ---- Times.

TEST(ComputeTime, is_flops_over_the_sustained_rate_and_the_overhead) {
  DeviceKind kind = unit_kind("k");
  kind.rate = {flops_per_second(10), flops_per_second(80), flops_per_second(0)};
  kind.overhead = milliseconds(50);
  EXPECT_EQ(compute_time(kind, Precision::kFp32, flops(40)), seconds(4.05));
  EXPECT_EQ(compute_time(kind, Precision::kFp16, flops(40)), seconds(0.55));
}

TEST(ComputeTime, is_infinite_where_the_precision_is_not_supported) {
  DeviceKind kind = unit_kind("k");
  kind.rate = {flops_per_second(10), flops_per_second(80), flops_per_second(0)};
  EXPECT_EQ(compute_time(kind, Precision::kBf16, flops(1)), Seconds::infinity());
  EXPECT_EQ(compute_time(kind, Precision::kBf16, flops(0)), Seconds::infinity());
}

TEST(UpdateTime, moves_28_bytes_a_parameter) {
  DeviceKind kind = unit_kind("k");
  kind.memory_rate = bytes_per_second(56);
  EXPECT_EQ(update_time(kind, 10), seconds(5));
}

}  // namespace
}  // namespace longhaul
