// Speed, size and error of every codec: on synthetic tensors and on those of a user's file.
//
// Speeds are of whole frames with all their checksums, one thread, CPU time, as fp32 bytes a
// second. "In cache" is one tensor of 8 MiB again and again, as a boundary tensor that has just
// been computed; "out of cache" 32 different ones, a frame each. Beside them memcpy of the same
// tensors, a loop that only reads them, and one that touches all that encoding touches, which says
// how much of the time is memory's.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "executor/checkpoint/safetensors.h"
#include "executor/storage/real_storage.h"
#include "kernels/codec/codec_traits.h"
#include "kernels/codec/tensor_codec.h"
#include "tools/bench.h"
#include "tools/bench_codec_tensors.h"
#include "tools/bench_peak.h"

namespace longhaul {
namespace {

constexpr std::size_t kElements = std::size_t{2} << 20;  // 8 MiB
constexpr std::size_t kTensorsOutOfCache = 32;

struct Variant {
  TensorCodec codec;
  Rounding rounding = Rounding::kNearest;
  bool has_history = false;
};

std::string name_of(const Variant& variant) {
  std::string name(variant.has_history ? "aq " : "");
  name += name_of(variant.codec);
  if (variant.rounding == Rounding::kStochastic) name += ", stochastic";
  return name;
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const TensorCodec codec : kTensorCodecs) {
    const bool has_blocks = traits_of(codec).grid.block > 0;
    all.push_back({codec});
    if (has_blocks) all.push_back({codec, Rounding::kStochastic});
  }
  for (const TensorCodec codec :
       {TensorCodec::kQ8, TensorCodec::kQ6, TensorCodec::kQ4, TensorCodec::kQ3, TensorCodec::kQ2}) {
    all.push_back({codec, Rounding::kNearest, true});
  }
  return all;
}

EncodeOptions options_of(const Variant& variant) {
  EncodeOptions options{.codec = variant.codec, .seed = 1, .rounding = variant.rounding};
  if (variant.has_history) options.history = HistoryHeader{.kind = HistoryKind::kDelta};
  return options;
}

std::size_t encoded_bytes(const Variant& variant) {
  return tensor_frame_bytes(variant.codec, Precision::kFp32, kElements, variant.has_history);
}

/// Tensors with all that encoding and decoding them needs.
struct Bench {
  Variant variant;
  std::size_t count;  // tensors
  const std::vector<float>& x;
  std::vector<std::byte> frames;
  std::vector<std::uint16_t> history;
  std::vector<float> y;
  std::size_t frame_bytes;

  Bench(const Variant& which, const std::vector<float>& tensors)
      : variant(which),
        count(tensors.size() / kElements),
        x(tensors),
        y(tensors.size()),
        frame_bytes(
            tensor_frame_capacity(which.codec, Precision::kFp32, kElements, which.has_history)) {
    frames.resize(count * frame_bytes);
    if (variant.has_history) history.resize(tensors.size());
  }

  HistorySpan history_of(std::size_t tensor) {
    if (history.empty()) return {};
    return std::span(history).subspan(tensor * kElements, kElements);
  }
  std::span<std::byte> frame_of(std::size_t tensor) {
    return std::span(frames).subspan(tensor * frame_bytes, frame_bytes);
  }
  void encode() {
    for (std::size_t i = 0; i < count; ++i) {
      const auto source = std::span(x).subspan(i * kElements, kElements);
      const auto bytes =
          encode_tensor(flat_view(source), options_of(variant), frame_of(i), history_of(i));
      LH_CHECK(bytes.has_value(), "a finite tensor can be encoded");
    }
  }
  /// Reads what encode() reads and writes as much, and computes next to nothing.
  void touch() {
    constexpr std::size_t kPart = 4096;
    const std::size_t part_bytes = encoded_bytes(variant) * kPart / kElements;
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t at = 0; at < kElements; at += kPart) {
        largest |= best_kernels().magnitude_fp32(x.data() + i * kElements + at, kPart);
        if (variant.has_history) {
          for (std::uint16_t& value : history_of(i).subspan(at, kPart)) value ^= 1;
        }
        std::memset(frame_of(i).data() + at / kPart * part_bytes, static_cast<int>(largest),
                    part_bytes);
      }
    }
  }
  void decode() {
    const std::size_t bytes = encoded_bytes(variant);
    for (std::size_t i = 0; i < count; ++i) {
      const auto decoded = decode_tensor(
          frame_of(i).first(bytes), std::span(y).subspan(i * kElements, kElements), history_of(i));
      LH_CHECK(decoded.has_value(), "what was encoded can be decoded");
    }
  }
};

struct Speed {
  double encode = 0;  // GB/s
  double decode = 0;
  double touch = 0;
};

double gigabytes_per_second(const std::vector<float>& x, double seconds) {
  return static_cast<double>(x.size() * sizeof(float)) / seconds * 1e-9;
}

Speed speed_of(const Variant& variant, const std::vector<float>& x, int runs) {
  Bench bench(variant, x);
  bench.encode();
  bench.decode();
  return {gigabytes_per_second(x, median_cpu_seconds(runs, [&] { bench.encode(); })),
          gigabytes_per_second(x, median_cpu_seconds(runs, [&] { bench.decode(); })),
          gigabytes_per_second(x, median_cpu_seconds(runs, [&] { bench.touch(); }))};
}

/// memcpy of the same tensors.
double copy_of(const std::vector<float>& x, int runs) {
  std::vector<float> y(x.size());
  const auto copy = [&] { std::memcpy(y.data(), x.data(), x.size() * sizeof(float)); };
  copy();
  const double speed = gigabytes_per_second(x, median_cpu_seconds(runs, copy));
  LH_CHECK(y.back() == x.back(), "the copy is not left out");
  return speed;
}
/// A loop that only reads them.
double read_of(const std::vector<float>& x, int runs) {
  std::uint32_t largest = 0;
  const auto read = [&] { largest |= best_kernels().magnitude_fp32(x.data(), x.size()); };
  const double speed = gigabytes_per_second(x, median_cpu_seconds(runs, read));
  LH_CHECK(largest != 1, "the loop is not left out");
  return speed;
}

double bits_of(const Variant& variant) {
  return 8 * static_cast<double>(encoded_bytes(variant)) / static_cast<double>(kElements);
}

/// Share of memcpy that a variant must reach. 0: no target.
double encode_target(const Variant& variant) {
  if (variant.has_history) return variant.codec == TensorCodec::kQ4 ? 0.25 : 0;
  if (variant.codec == TensorCodec::kHadamardQ4) {
    return variant.rounding == Rounding::kNearest ? 0.25 : 0;
  }
  const bool is_named = variant.codec == TensorCodec::kQ8 || variant.codec == TensorCodec::kQ4 ||
                        variant.codec == TensorCodec::kQ4Symmetric;
  if (!is_named) return 0;
  return variant.rounding == Rounding::kNearest ? 0.6 : 0.3;
}
double decode_target(const Variant& variant) {
  const bool is_named = variant.codec == TensorCodec::kQ8 || variant.codec == TensorCodec::kQ4;
  return is_named && !variant.has_history && variant.rounding == Rounding::kNearest ? 1.0 : 0;
}

class Figures {
 public:
  void add(const std::string& name, double value, double target, const std::string& peer) {
    if (target == 0) return;
    list.push_back(
        {name, value, "ratio", target, "higher", value >= target, peer, "tools/bench codec"});
  }
  std::vector<BenchFigure> list;
};

void measure_speeds(bool quick, Figures& figures) {
  const int runs = quick ? 5 : 21;
  const std::vector<float> near = codec_tensor("gauss", kElements);
  std::vector<float> far;
  for (std::size_t i = 0; i < (quick ? kTensorsOutOfCache / 4 : kTensorsOutOfCache); ++i) {
    far.insert(far.end(), near.begin(), near.end());
  }
  fmt::print(
      "GB/s of fp32, {} kernels; far: out of cache; touch, read: what encoding reads and writes, "
      "and reading alone, out of cache\n",
      best_kernels().name);
  fmt::print("{:<26} {:>6} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6}\n", "codec",
             "bits", "encode", "decode", "memcpy", "encode/m", "decode/m", "far enc.", "far dec.",
             "touch", "read");
  for (const Variant& variant : variants()) {
    // The roof again each time: what else runs on the machine changes.
    const double copy = copy_of(near, runs);
    const double read = read_of(far, quick ? 1 : 3);
    const Speed in = speed_of(variant, near, runs);
    const Speed out = speed_of(variant, far, quick ? 1 : 3);
    const std::string name = name_of(variant);
    fmt::print(
        "{:<26} {:>6.2f} {:>8.1f} {:>8.1f} {:>8.1f} {:>9.2f} {:>9.2f} {:>9.1f} {:>9.1f} {:>6.1f} "
        "{:>6.1f}\n",
        name, bits_of(variant), in.encode, in.decode, copy, in.encode / copy, in.decode / copy,
        out.encode, out.decode, out.touch, read);
    figures.add(name + ": encode, in cache", in.encode / copy, encode_target(variant), "of memcpy");
    figures.add(name + ": decode, in cache", in.decode / copy, decode_target(variant), "of memcpy");
    if (encode_target(variant) > 0) {
      figures.add(name + ": encode, out of cache", out.encode / read,
                  variant.has_history ? 0.5 : 0.8, "of reading alone");
    }
  }
}

/// ||x - decoded|| / ||x||, or nothing where the tensor cannot be packed.
std::optional<double> error_of(const Variant& variant, std::span<const float> x) {
  std::vector<std::byte> frame(tensor_frame_capacity(variant.codec, Precision::kFp32, x.size()));
  EncodeOptions options = options_of(variant);
  options.has_fallback = false;
  const auto bytes = encode_tensor(flat_view(x), options, frame);
  LH_CHECK(bytes.has_value(), "a tensor of one frame can be encoded or not packed");
  if (*bytes == 0) return std::nullopt;
  std::vector<float> y(x.size());
  LH_CHECK(decode_tensor(std::span(frame).first(*bytes), std::span<float>(y)).has_value(),
           "what was encoded can be decoded");
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    size += std::pow(static_cast<double>(x[i]), 2);
  }
  return size > 0 ? std::sqrt(difference / size) : 0;
}

std::vector<Variant> direct_variants() {
  std::vector<Variant> direct = variants();
  std::erase_if(direct, [](const Variant& variant) {
    return variant.has_history || variant.codec == TensorCodec::kRaw;
  });
  return direct;
}

void print_synthetic_errors() {
  fmt::print("\nrelative error");
  constexpr const char* kNames[] = {"gauss", "act", "grad", "laplace"};
  std::vector<std::vector<float>> tensors;
  for (const char* name : kNames) tensors.push_back(codec_tensor(name, kElements / 2));
  fmt::print("{:<18} {:>8} {:>8} {:>8} {:>8}\n", "", kNames[0], kNames[1], kNames[2], kNames[3]);
  for (const Variant& variant : direct_variants()) {
    fmt::print("{:<32}", name_of(variant));
    for (const std::vector<float>& x : tensors) {
      fmt::print(" {:>8.4f}", error_of(variant, x).value_or(NAN));
    }
    fmt::print("\n");
  }
}

/// One table a file: a row a tensor, a column a codec, nearest.
Result<void> print_file_errors(const std::string& path) {
  RealStorage storage;
  LH_ASSIGN(SafetensorsReader reader, SafetensorsReader::open(storage, path));
  std::vector<Variant> columns = direct_variants();
  std::erase_if(columns, [](const Variant& v) { return v.rounding != Rounding::kNearest; });
  std::size_t width = 6;
  for (const StoredTensor& tensor : reader.tensors()) width = std::max(width, tensor.name.size());
  fmt::print("\nrelative error, {}\n{:<{}} {:>10}", path, "tensor", width, "elements");
  for (const Variant& variant : columns) fmt::print(" {:>12}", name_of(variant));
  fmt::print("\n");
  bool has_any = false;
  for (const StoredTensor& tensor : reader.tensors()) {
    LH_ASSIGN(const std::vector<float> x, read_floats(reader, tensor));
    if (x.empty()) continue;
    has_any = true;
    fmt::print("{:<{}} {:>10}", tensor.name, width, x.size());
    for (const Variant& variant : columns) {
      const std::optional<double> error = error_of(variant, x);
      fmt::print(" {:>12}", error ? fmt::format("{:.4f}", *error) : "as raw");
    }
    fmt::print("\n");
  }
  if (!has_any) return invalid(path + " holds no tensor of F32, F16 or BF16");
  return {};
}

}  // namespace

int bench_codec(bool quick, const std::string& path) {
  if (!path.empty()) {
    if (const Result<void> printed = print_file_errors(path); !printed) {
      fmt::print(stderr, "{}\n", printed.error().text());
      return 2;
    }
    fmt::print("\n");
  }
  Figures figures;
  measure_speeds(quick, figures);
  print_synthetic_errors();
  fmt::print("\n");
  return report("codec", figures.list);
}

}  // namespace longhaul
