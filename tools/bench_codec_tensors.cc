#include "tools/bench_codec_tensors.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <string>

#include "core/rng.h"
#include "kernels/codec/codec_kernels.h"

namespace longhaul {
namespace {

constexpr std::size_t kRowLength = 2048;

double normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

double laplace(Rng& rng) {
  const double size = -std::log(1 - rng.uniform());
  return rng.chance(0.5) ? size : -size;
}

/// A normal number over the root of a third of three squared ones.
double student_t3(Rng& rng) {
  double squares = 0;
  for (int i = 0; i < 3; ++i) squares += std::pow(normal(rng), 2);
  return normal(rng) / std::sqrt(squares / 3);
}

}  // namespace

std::vector<float> codec_tensor(std::string_view kind, std::size_t n) {
  Rng rng(std::string("codec ") + std::string(kind), 1);
  std::vector<double> columns(kRowLength), rows((n + kRowLength - 1) / kRowLength);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i] = std::exp(0.5 * normal(rng)) * (i % 200 == 7 ? 25 : 1);
  }
  for (double& row : rows) row = 1e-6 * std::exp(normal(rng));
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    double value = 0;
    if (kind == "gauss") value = normal(rng);
    if (kind == "laplace") value = laplace(rng);
    if (kind == "act") value = normal(rng) * columns[i % kRowLength];
    if (kind == "grad") value = student_t3(rng) * rows[i / kRowLength];
    x[i] = static_cast<float>(value);
  }
  return x;
}

Result<std::vector<float>> read_floats(SafetensorsReader& reader, const StoredTensor& tensor) {
  const bool is_half = tensor.type == TensorType::kF16 || tensor.type == TensorType::kBf16;
  if (!is_half && tensor.type != TensorType::kF32) return std::vector<float>{};
  std::vector<std::byte> bytes(tensor.bytes());
  LH_TRY(reader.read(tensor, 0, bytes));
  const std::size_t n = bytes.size() / bytes_of(tensor.type);
  if (n > kTensorElementsMax) return std::vector<float>{};
  std::vector<float> x(n);
  if (tensor.type == TensorType::kF32) {
    std::copy_n(bytes.data(), bytes.size(), std::as_writable_bytes(std::span(x)).data());
  } else if (tensor.type == TensorType::kBf16) {
    best_kernels().bf16_decode(bytes.data(), n, x.data());
  } else {
    best_kernels().f16_decode(bytes.data(), n, x.data());
  }
  return x;
}

}  // namespace longhaul
