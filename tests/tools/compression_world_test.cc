// GPT-2 XL made small: what decides a step must be what it was.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/file.h"
#include "netsim/cluster_file.h"
#include "netsim/device_file.h"
#include "netsim/shipped.h"
#include "netsim/step_simulation.h"
#include "tools/compression_world.h"

namespace longhaul {
namespace {

DeviceKind v100() {
  return load_device_kind(shipped_configs() + "/devices/v100.yaml").value();
}

StageShape stage_of(const ModelShape& model, int stage) {
  const bool is_large = model.layers == 48;
  return {is_large ? gpt2_xl_layers()[static_cast<std::size_t>(stage)] : 1, stage == 0,
          stage == kXlStages - 1};
}

class CompressionWorldFiles : public ::testing::Test {
 protected:
  CompressionWorldFiles()
      : folder_(::testing::TempDir() + fmt::format("compression-world-{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
    for (int stage = 0; stage < kXlStages; ++stage) {
      write("stage-" + std::to_string(stage) + ".yaml", small_device_text(v100(), stage));
    }
  }
  ~CompressionWorldFiles() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(write_file(folder_ + "/" + name, text));
  }
  Topology cluster(const CompressionWorld& world) {
    auto topology = parse_cluster(small_cluster_text(world), "cluster", folder_);
    EXPECT_TRUE(topology) << (topology ? "" : topology.error().text());
    return topology.value_or(Topology());
  }
  std::string folder_;
};

TEST_F(CompressionWorldFiles, layers_are_all_of_gpt2_xl_and_the_head_weighs_what_they_lack) {
  int sum = 0;
  for (const int layers : gpt2_xl_layers()) sum += layers;
  EXPECT_EQ(sum, 48);
  // The head is 2 S C V = 1.647e11 FLOPs, a layer 24 S C^2 + 4 S^2 C = 6.962e10: 2.37 layers, so
  // three layers and the head are 5.37, less than the seven of the stages before.
  const ModelShape xl = gpt2_xl();
  EXPECT_NEAR(head_forward_flops(xl, 1).value() / layer_forward_flops(xl, 1).value(), 2.37, 0.01);
}

TEST_F(CompressionWorldFiles, every_stage_takes_the_time_of_gpt2_xl_on_a_v100) {
  const Topology small = cluster({.name = "w"});
  for (int stage = 0; stage < kXlStages; ++stage) {
    const StageShape large_shape = stage_of(gpt2_xl(), stage);
    const StageShape small_shape = stage_of(small_xl(), stage);
    const StageWork large_work = stage_work(gpt2_xl(), large_shape, 1);
    const StageWork small_work = stage_work(small_xl(), small_shape, 1);
    const auto time = [](const DeviceKind& kind, Flops work) {
      return compute_time(kind, Precision::kFp32, work).value();
    };
    const DeviceKind& kind = small.kind_of(stage);
    const double forward = time(v100(), large_work.forward);
    EXPECT_NEAR(time(kind, small_work.forward), forward, 1e-8 * forward) << stage;
    const double backward = time(v100(), large_work.backward);
    EXPECT_NEAR(time(kind, small_work.backward), backward, 1e-8 * backward) << stage;
    const double update = update_time(v100(), stage_parameters(gpt2_xl(), large_shape)).value();
    EXPECT_NEAR(update_time(kind, stage_parameters(small_xl(), small_shape)).value(), update,
                1e-8 * update)
        << stage;
  }
  // By hand, stage 0: 6 layers of 6.962e10 FLOPs at 9.42 TFLOP/s (15.7 x 0.6), and 50 us.
  EXPECT_NEAR(compute_time(small.kind_of(0), Precision::kFp32,
                           stage_work(small_xl(), stage_of(small_xl(), 0), 1).forward)
                  .value(),
              0.04439, 0.0001);
}

TEST_F(CompressionWorldFiles, messages_take_the_time_of_gpt2_xls_at_the_stated_rate) {
  const CompressionWorld world = {.name = "w", .link_mbit_per_s = 100, .pipelines = 2};
  const Topology small = cluster(world);
  // A boundary tensor of GPT-2 XL: 1,024 x 1,600 x 4 bytes at 100 Mbit/s take 0.524288 s.
  const double boundary = boundary_bytes(small_xl(), Precision::kFp32, 1).value();
  EXPECT_NEAR(boundary / small.rate(3, 4).value(), 0.524288, 1e-9);
  EXPECT_NEAR(boundary / small.rate(4, 3).value(), 0.524288, 1e-9);
  // Gradients of stage 1: 6 layers of 12 C^2 + 13 C = 30,740,800 parameters: 59.02 s.
  const double gradients = 4 * stage_reduced_parameters(small_xl(), stage_of(small_xl(), 1), 8);
  EXPECT_NEAR(gradients / small.rate(1, 9).value(), 6 * 30'740'800 * 4 / 12.5e6, 1e-6);
  // Pipelines are 8 cells long: no boundary between 7 and 8.
  EXPECT_GT(small.rate(7, 8).value(), 1e9);
}

TEST_F(CompressionWorldFiles, simulated_step_is_that_of_gpt2_xl_by_hand) {
  const CompressionWorld world = {
      .name = "w", .compression = "activations: none, gradients: none", .micro_batches = 4};
  const Topology topology = cluster(world);
  const Job job = parse_job(small_job_text(world, 6), "job").value();
  const auto step = simulate_step(topology, job, small_plan(world));
  ASSERT_TRUE(step);
  // GPipe where a message (0.524288 x 1.036 = 0.543162 s) is longer than any stage's work.
  // Forwards: the last of 4 leaves stage 0 after its forward (0.04439) and 4 messages, then 6 more
  // hops with a forward each (stages 1 to 6: 3 x 0.04439 + 3 x 0.05178), 10 ms a hop; the last
  // stage's forward is 0.03971. Backwards alike, the last stage's first gradient 2 x 0.03971 after
  // it, in the order of the micro-batches: 4 messages, 6 hops, and the backward of stage 0.
  const double message = 0.524288 * 1.036;
  const double f6 = 0.04439, f7 = 0.05178, f_last = 0.03971;
  const double there = f6 + 4 * message + 6 * message + 3 * f6 + 3 * f7 + 7 * 0.01 + f_last;
  const double back =
      2 * f_last + 4 * message + 6 * message + 2 * (3 * f7 + 3 * f6) + 7 * 0.01 + 2 * f6;
  // Then the commit, 20 ms, and the longest update: stage 0's with 82 M embeddings, 10.5 ms.
  EXPECT_NEAR(step->step.value(), there + back + 0.03, 0.02 * (there + back));
}

TEST(CompressionWorldText, training_part_is_so_many_sequences_and_no_more) {
  const SmallText made = small_text(32);
  // 32 x 256 + 64 bytes of training, 512 of validation, in lines of 64.
  EXPECT_EQ(made.text.size(), 32u * 256 + 64 + 512);
  EXPECT_DOUBLE_EQ(made.validation, 512.0 / (32 * 256 + 64 + 512));
  EXPECT_EQ(made.text[32 * 256 + 63], '\n');
}

}  // namespace
}  // namespace longhaul
