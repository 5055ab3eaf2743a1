// Training steps of whole models on one core against PyTorch's, which tests/judges/compute_torch.py
// runs on the same machine right after, and against the measured peak.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/median.h"
#include "core/model_math.h"
#include "kernels/model_stage.h"
#include "kernels/parallel.h"
#include "tools/bench.h"
#include "tools/bench_peak.h"

namespace longhaul {
namespace {

struct Subject {
  const char* name;
  ModelShape model;
  int sequences;
};

ModelShape gpt2(int layers, int width, int heads, int vocabulary) {
  return {.family = ModelFamily::kGpt2,
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = heads,
          .head_width = width / heads,
          .ffn_width = 4 * width,
          .context = 256,
          .vocabulary = vocabulary,
          .tied_embedding = true};
}

std::vector<Subject> subjects() {
  const ModelShape smol = {.family = ModelFamily::kLlama,
                           .layers = 30,
                           .width = 576,
                           .heads = 9,
                           .kv_heads = 3,
                           .head_width = 64,
                           .ffn_width = 1536,
                           .context = 256,
                           .vocabulary = 49152,
                           .tied_embedding = true};
  return {{"small GPT, vocabulary 65", gpt2(6, 384, 6, 65), 8},
          {"small GPT, vocabulary 50,257", gpt2(6, 384, 6, 50257), 8},
          {"GPT-2 124M", gpt2(12, 768, 12, 50257), 4},
          {"SmolLM-135M shape", smol, 4}};
}

struct StepSeconds {
  double cpu = 0;   // of one thread
  double wall = 0;  // of several; 0 where they are not asked for
};

/// Medians of a training step, after one to warm up.
Result<StepSeconds> our_seconds(const Subject& subject, Precision precision, int steps,
                                int threads) {
  const ModelShape& model = subject.model;
  auto stage = ModelStage::create(model, {0, model.layers, true, true}, precision);
  if (!stage) return std::unexpected(stage.error());
  stage->initialise_weights(1);
  StageBatch batch(*stage, subject.sequences);
  for (std::size_t row = 0; row < batch.tokens().size(); ++row) {
    batch.tokens()[row] = static_cast<std::int32_t>(row * 7919) % model.vocabulary;
    batch.targets()[row] = static_cast<std::int32_t>((row + 1) * 7919) % model.vocabulary;
  }
  TensorStorage m(stage->weights().size());
  TensorStorage v(m.size());
  const float scale = 1 / static_cast<float>(batch.rows());
  std::int64_t step = 0;
  const auto train = [&] {
    stage->zero_gradients();
    stage->forward(batch);
    stage->backward(batch, scale);
    stage->fold_tied_gradient();
    ops::adamw({.options = {.learning_rate = 1e-3, .step = ++step},
                .weight = stage->weights(),
                .gradient = stage->gradients(),
                .m = m,
                .v = v});
  };
  train();
  StepSeconds seconds = {.cpu = median_cpu_seconds(steps, train)};
  if (threads > 1) {
    set_operation_threads(threads);
    train();
    std::vector<double> walls;
    for (int i = 0; i < steps; ++i) {
      const auto start = std::chrono::steady_clock::now();
      train();
      walls.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    set_operation_threads(1);
    seconds.wall = median(walls);
  }
  return seconds;
}

/// What PyTorch reached in one setting, and in how many threads' CPU or wall seconds.
struct PeerStep {
  std::string setting;
  double cpu = 0;
  double wall = 0;
};

/// Runs the peer in every setting; says on stderr why one did not run. Empty without PyTorch.
std::vector<PeerStep> peer_steps(const std::string& python, const Subject& subject, int threads,
                                 int steps, const std::string& settings) {
  const ModelShape& m = subject.model;
  // Variables that tune one kind of BLAS to one kind of machine would only slow it down here.
  const std::string command = fmt::format(
      "env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OMP_NUM_THREADS={} {} {}/tests/judges/"
      "compute_torch.py {} {} {} {} {} {} {} {} {} {} {} {}",
      threads, python, LONGHAUL_SOURCE_DIR, m.family == ModelFamily::kLlama ? "llama" : "gpt2",
      m.layers, m.width, m.heads, m.kv_heads, m.ffn_width, m.context, m.vocabulary,
      subject.sequences, threads, steps, settings);
  std::vector<PeerStep> found;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return found;
  char text[512];
  while (std::fgets(text, sizeof text, pipe) != nullptr) {
    std::istringstream line(text);
    PeerStep step;
    if (line >> step.setting >> step.cpu >> step.wall) {
      fmt::print(stderr, "  PyTorch {}, {} thread(s): {:.3f} s CPU, {:.3f} s\n", step.setting,
                 threads, step.cpu, step.wall);
      found.push_back(step);
    } else {
      fmt::print(stderr, "  PyTorch: {}", text);
    }
  }
  ::pclose(pipe);
  return found;
}

/// Path of the python with PyTorch, or empty.
std::string peer_python() {
  std::FILE* const pipe = ::popen(LONGHAUL_SOURCE_DIR "/tools/judges", "r");
  if (pipe == nullptr) return {};
  char text[512] = {};
  const bool found = std::fgets(text, sizeof text, pipe) != nullptr;
  const bool ready = ::pclose(pipe) == 0 && found;
  std::string path = ready ? text : "";
  while (!path.empty() && path.back() == '\n') path.pop_back();
  return path;
}

struct Kind {
  Precision precision;
  double (*peak)(int runs);
  double share;          // of the peak that is asked for where 1.3 times PyTorch is more
  const char* settings;  // of the peer
  const char* more_settings;
};
constexpr Kind kKinds[] = {
    {Precision::kFp32, fp32_peak_flops, 0.85, "fp32-eager", "fp32-compile"},
    {Precision::kBf16, bf16_peak_flops, 0.70, "autocast-eager pure-eager",
     "autocast-compile pure-compile medium-eager"},
};

struct Comparison {
  std::string python;  // empty: there is no peer
  int threads;
  bool quick;
  std::string command;
};

/// Nothing, with the reason on stderr, where we do not train the subject in this precision.
std::optional<BenchFigure> compare(const Subject& subject, const Kind& kind,
                                   const Comparison& with) {
  const int steps = with.quick ? 3 : 5;
  const double rows = double{1} * subject.sequences * subject.model.context;
  const double flops = model_flops(subject.model, subject.sequences).value();
  const double peak = kind.peak(7);
  const std::string name = fmt::format("{}, {}", subject.name, name_of(kind.precision));
  fmt::print(stderr, "{}: {:.4g} GFLOP a token, peak {:.1f} GF/s\n", name, flops / rows * 1e-9,
             peak * 1e-9);
  const auto ours = our_seconds(subject, kind.precision, steps, with.threads);
  if (!ours) {
    fmt::print(stderr, "  left out: {}\n", ours.error().message);
    return std::nullopt;
  }
  fmt::print(stderr, "  ours: {:.3f} s CPU\n", ours->cpu);
  const std::string settings =
      with.quick ? kind.settings : fmt::format("{} {}", kind.settings, kind.more_settings);
  PeerStep best;
  std::string several;  // more threads are told, not judged: on a shared machine others take theirs
  if (with.threads > 1) {
    several = fmt::format("; {} threads {:.4g}", with.threads, rows / ours->wall);
  }
  if (!with.python.empty()) {
    for (const PeerStep& step : peer_steps(with.python, subject, 1, steps, settings)) {
      if (best.cpu == 0 || step.cpu < best.cpu) best = step;
    }
    if (with.threads > 1) {
      for (const PeerStep& step :
           peer_steps(with.python, subject, with.threads, steps, best.setting)) {
        several += fmt::format(", PyTorch {:.4g}", rows / step.wall);
      }
    }
  }
  const double value = rows / ours->cpu;
  const double torch = best.cpu == 0 ? 0 : rows / best.cpu;
  const double share = kind.share * peak * rows / flops;
  const double target = torch == 0 ? share : std::max(torch, std::min(1.3 * torch, share));
  std::string peer =
      fmt::format("{:.1f} % of peak", peak == 0 ? 0 : 100 * flops / ours->cpu / peak);
  if (torch > 0) {
    peer += fmt::format("; PyTorch {} {:.4g}: x {:.2f}", best.setting, torch, value / torch);
  }
  peer += several;
  return BenchFigure{name, value, "tok/s", target, "higher", value >= target, peer, with.command};
}

}  // namespace

int bench_compute(bool quick, int threads) {
  const Comparison with = {peer_python(), threads, quick,
                           fmt::format("tools/bench compute{}", quick ? " --quick" : "")};
  if (with.python.empty()) fmt::print(stderr, "no PyTorch to compare with: ours and the peak\n");
  std::vector<BenchFigure> figures;
  for (const Subject& subject : subjects()) {
    for (const Kind& kind : kKinds) {
      if (const auto figure = compare(subject, kind, with)) figures.push_back(*figure);
    }
  }
  return report("compute", figures);
}

}  // namespace longhaul
