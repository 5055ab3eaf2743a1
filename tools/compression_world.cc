#include "tools/compression_world.h"

#include <fmt/core.h>

#include "core/rng.h"

namespace longhaul {
namespace {

constexpr double kLatencyMs = 10;       // one way, between any two
constexpr double kOtherGbit = 10;       // of links that carry nothing
constexpr std::size_t kLineBytes = 64;  // of the text

StageShape shape_of(int stage, int layers) {
  return {layers, stage == 0, stage == kXlStages - 1};
}
StageShape large_stage(int stage) {
  return shape_of(stage, gpt2_xl_layers()[static_cast<std::size_t>(stage)]);
}
StageShape small_stage(int stage) {
  return shape_of(stage, 1);
}

double elements_of(const ModelShape& model) {
  return double{1} * model.context * model.width;
}

/// How much less the small model has.
double boundary_ratio() {
  return elements_of(small_xl()) / elements_of(gpt2_xl());
}
double gradient_ratio(int stage) {
  return stage_reduced_parameters(small_xl(), small_stage(stage), kXlStages) /
         stage_reduced_parameters(gpt2_xl(), large_stage(stage), kXlStages);
}

}  // namespace

ModelShape gpt2_xl() {
  return {.family = ModelFamily::kGpt2,
          .layers = 48,
          .width = 1600,
          .heads = 25,
          .kv_heads = 25,
          .head_width = 64,
          .ffn_width = 6400,
          .context = 1024,
          .vocabulary = 50257,
          .tied_embedding = false};
}

ModelShape small_xl() {
  return {.family = ModelFamily::kLlama,
          .layers = kXlStages,
          .width = 256,
          .heads = 1,
          .kv_heads = 1,
          .head_width = 64,
          .ffn_width = 256,
          .context = 256,
          .vocabulary = 256,
          .tied_embedding = false};
}

std::vector<int> gpt2_xl_layers() {
  return {6, 6, 6, 6, 7, 7, 7, 3};
}

std::string small_device_text(const DeviceKind& v100, int stage) {
  const auto forward = [](const ModelShape& model, const StageShape& shape) {
    return stage_work(model, shape, 1).forward.value();
  };
  const double work =
      forward(small_xl(), small_stage(stage)) / forward(gpt2_xl(), large_stage(stage));
  const double states = stage_parameters(small_xl(), small_stage(stage)) /
                        stage_parameters(gpt2_xl(), large_stage(stage));
  return fmt::format(
      "schema: longhaul/device/1\nkind: stage-{}\ntitle: \"A V100 for stage {} of GPT-2 XL, made "
      "small\"\n"
      "memory: 16 GiB\nreserved: 0 GiB\npeak: {{fp32: {:.12f} GFLOP/s}}\nefficiency: 1\n"
      "memory_bandwidth: {:.12f} MB/s\nmemory_efficiency: 1\noverhead: {:.6f} us\nprice: 0 USD/h\n"
      "origin: assumed\nsource: configs/devices/v100.yaml, scaled\n",
      stage, stage, v100.rate_at(Precision::kFp32).value() * work * 1e-9,
      v100.memory_rate.value() * states * 1e-6, v100.overhead.value() * 1e6);
}

std::string small_cluster_text(const CompressionWorld& world) {
  std::string text = fmt::format(
      "schema: longhaul/cluster/1\nname: {}\ndescription: GPT-2 XL on V100s, made small\n"
      "device_files: {{",
      world.name);
  for (int stage = 0; stage < kXlStages; ++stage) {
    text += fmt::format("{}stage-{}: stage-{}.yaml", stage == 0 ? "" : ", ", stage, stage);
  }
  text += "}\nnetwork:\n  tcp: {window: unlimited, streams: 1, wire_factor: 1.036}\n  links:\n";
  const int cells = world.pipelines * kXlStages;
  for (int cell = 0; cell < cells; ++cell) {
    for (int other = cell + 1; other < cells; ++other) {
      const bool is_boundary = other == cell + 1 && other % kXlStages != 0;
      const bool is_exchange = (other - cell) % kXlStages == 0;
      const double mbit = is_boundary   ? world.link_mbit_per_s * boundary_ratio()
                          : is_exchange ? world.link_mbit_per_s * gradient_ratio(cell % kXlStages)
                                        : 1000 * kOtherGbit;
      text +=
          fmt::format("    - {{between: [s{}, s{}], latency: {} ms, bandwidth: {:.12f} kbit/s}}\n",
                      cell, other, kLatencyMs, mbit * 1000);
    }
  }
  text += "sites:\n";
  for (int cell = 0; cell < cells; ++cell) {
    text +=
        fmt::format("  - {{name: s{}, nodes: [{{devices: stage-{}}}]}}\n", cell, cell % kXlStages);
  }
  return text;
}

std::string small_job_text(const CompressionWorld& world, int steps) {
  const ModelShape model = small_xl();
  return fmt::format(
      "schema: longhaul/job/1\nname: {}\n"
      "model: {{family: llama, layers: {}, width: {}, heads: 1, kv_heads: 1, head_width: {}, "
      "ffn_width: {}, context: {}, vocabulary: {}, tied_embedding: false}}\n"
      "batch: {{global: {}, micro_batch: 1}}\nprecision: fp32\ncompression: {{{}}}\n"
      "training:\n  data: data-{}\n  steps: {}\n  validation: {{every: 0, sequences: 1}}\n"
      "  checkpoints: {{every: 0, keep: 1}}\n",
      world.name, model.layers, model.width, model.head_width, model.ffn_width, model.context,
      model.vocabulary, world.pipelines * world.micro_batches, world.compression,
      world.pipelines * world.micro_batches, steps);
}

Plan small_plan(const CompressionWorld& world) {
  Plan plan;
  plan.layers.assign(kXlStages, 1);
  plan.micro_batch = 1;
  for (int pipeline = 0; pipeline < world.pipelines; ++pipeline) {
    plan.micro_batches.push_back(world.micro_batches);
    auto& devices = plan.devices.emplace_back();
    for (int stage = 0; stage < kXlStages; ++stage) devices.push_back(pipeline * kXlStages + stage);
  }
  plan.family = world.family;
  plan.in_flight = world.in_flight.empty()
                       ? default_in_flight(world.family, kXlStages, world.micro_batches)
                       : world.in_flight;
  return plan;
}

SmallText small_text(int sequences) {
  const auto context = static_cast<std::size_t>(small_xl().context);
  // A sequence needs the token behind it; the rest of that line is in none.
  const std::size_t train = static_cast<std::size_t>(sequences) * context + kLineBytes;
  const std::size_t validation = 2 * context;
  Rng rng("small text", 1);
  SmallText made;
  while (made.text.size() < train + validation) {
    for (std::size_t i = 1; i < kLineBytes; ++i) {
      made.text += static_cast<char>('a' + rng.below(26));
    }
    made.text += '\n';
  }
  made.validation = static_cast<double>(validation) / static_cast<double>(made.text.size());
  return made;
}

}  // namespace longhaul
