// Speed of the CPU kernels on one core: matrix products against the measured FMA peak, and a
// training step of a small GPT.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/gemm.h"
#include "kernels/model_stage.h"
#include "tools/bench.h"
#include "tools/bench_peak.h"

namespace longhaul {
namespace {

double product_gigaflops(std::ptrdiff_t rows, std::ptrdiff_t columns, std::ptrdiff_t depth,
                         int runs) {
  const auto size = [](std::ptrdiff_t a, std::ptrdiff_t b) {
    return static_cast<std::size_t>(a * b);
  };
  std::vector<float> a(size(rows, depth), 0.5f);
  std::vector<float> b(size(depth, columns), 0.25f);
  std::vector<float> c(size(rows, columns));
  const double flops =
      2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
  const int repeats = std::max(1, static_cast<int>(4e8 / flops));
  const double time = median_cpu_seconds(runs, [&] {
    for (int i = 0; i < repeats; ++i) {
      gemm({.rows = rows,
            .columns = columns,
            .depth = depth,
            .a = {a.data(), depth, 1},
            .b = {b.data(), columns, 1},
            .c = c.data(),
            .c_row_stride = columns});
    }
  });
  return flops * repeats / time * 1e-9;
}

double tokens_per_second(int runs) {
  const ModelShape model = {.family = ModelFamily::kGpt2,
                            .layers = 6,
                            .width = 384,
                            .heads = 6,
                            .kv_heads = 6,
                            .head_width = 64,
                            .ffn_width = 1536,
                            .context = 256,
                            .vocabulary = 65,
                            .tied_embedding = true};
  auto stage = ModelStage::create(model, {0, 6, true, true}).value();
  stage.initialise_weights(1);
  StageBatch batch(stage, 8);
  for (std::size_t row = 0; row < batch.tokens().size(); ++row) {
    batch.tokens()[row] = static_cast<std::int32_t>(row * 7919 % 65);
    batch.targets()[row] = static_cast<std::int32_t>((row + 1) * 7919 % 65);
  }
  std::vector<float> m(stage.weights().size());
  std::vector<float> v(m.size());
  const auto rows = static_cast<double>(batch.rows());
  std::int64_t step = 0;
  const double time = median_cpu_seconds(runs + 1, [&] {
    stage.zero_gradients();
    stage.forward(batch);
    stage.backward(batch, static_cast<float>(1 / rows));
    stage.fold_tied_gradient();
    ops::adamw({.options = {.learning_rate = 1e-3, .step = ++step},
                .weight = stage.weights(),
                .gradient = stage.gradients(),
                .m = m,
                .v = v});
  });
  return rows / time;
}

}  // namespace

int bench_kernels(bool quick, int) {
  const int runs = quick ? 5 : 21;
  const std::string command = "tools/bench kernels";
  std::vector<BenchFigure> figures;
  const double peak = fp32_peak_flops(runs) * 1e-9;
  struct Product {
    const char* name;
    std::ptrdiff_t rows, columns, depth;
  };
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::kPortable) continue;
    set_active_isa(isa);
    for (const Product& p :
         {Product{"1024 x 384 -> 1536", 1024, 1536, 384},
          Product{"1024 x 768 -> 3072", 1024, 3072, 768}, Product{"64 x 64 -> 256", 64, 256, 64}}) {
      const double value = product_gigaflops(p.rows, p.columns, p.depth, runs);
      const double target = 0.7 * peak;
      figures.push_back({std::string(name_of(isa)) + " product " + p.name, value, "GF/s", target,
                         "higher", value >= target, "70 % of the measured FMA peak", command});
    }
  }
  const double tokens = tokens_per_second(runs);
  figures.push_back({"training step, 6 x 384, context 256, vocabulary 65", tokens, "tokens/s", 1021,
                     "higher", tokens >= 1021, "PyTorch 1.13 fp32, one thread", command});
  return report("kernels", figures);
}

}  // namespace longhaul
