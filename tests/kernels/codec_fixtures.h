// Tensors and frames for the codec tests.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "kernels/codec/tensor_codec.h"

namespace longhaul::fixtures {

using ByteVector = std::vector<std::byte>;
using Sizes = std::initializer_list<std::size_t>;

/// "4c 48" and so on; blanks and line ends between bytes.
inline ByteVector bytes_of_hex(const std::string& text) {
  ByteVector out;
  for (std::size_t i = 0; i + 1 < text.size();) {
    if (text[i] == ' ' || text[i] == '\n') {
      ++i;
      continue;
    }
    out.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
    i += 2;
  }
  return out;
}

/// Sizes around the ends of registers (8, 16), blocks (32, 64), groups of blocks (512, 1024), scale
/// padding (1024, 2048) and pieces (2048, 6144).
inline const std::vector<std::size_t> kSizes = {
    0,   1,   7,    8,    9,    15,   16,   17,   31,   32,   33,   63,
    64,  65,  96,   127,  128,  129,  511,  512,  513,  575,  576,  577,
    700, 768, 1023, 1024, 1025, 2047, 2048, 2049, 6143, 6144, 6145, 12289};

/// A named family of tensors of any length, all finite.
struct Family {
  const char* name;
  float (*value)(Rng& rng, std::size_t i);
};
inline const std::vector<Family> kFamilies = {
    {"zeros", [](Rng&, std::size_t i) { return i % 3 == 0 ? -0.0f : 0.0f; }},
    {"uniform", [](Rng& rng, std::size_t) { return static_cast<float>(rng.uniform() - 0.5); }},
    {"any bits",
     [](Rng& rng, std::size_t) {
       // All exponents that the codecs hold.
       const auto bits = static_cast<std::uint32_t>(rng.next());
       return std::bit_cast<float>((bits & 0x7f000000u) == 0x7f000000u ? bits ^ 0x40000000u : bits);
     }},
    {"denormals",
     [](Rng& rng, std::size_t) {
       return std::bit_cast<float>(static_cast<std::uint32_t>(rng.next()) & 0x807fffffu);
     }},
    {"barely normal",
     [](Rng& rng, std::size_t) { return static_cast<float>((rng.uniform() - 0.5) * 0x1p-118); }},
    {"huge",
     [](Rng& rng, std::size_t i) {
       const float top = 0x1.fffffep126f;  // of the block codecs
       return i % 64 == 0 ? -top : top * static_cast<float>(rng.uniform());
     }},
    {"one outlier",
     [](Rng& rng, std::size_t i) {
       return static_cast<float>((rng.uniform() - 0.5) * (i % 640 == 5 ? 1e6 : 1e-3));
     }},
    {"ties",  // whole and half numbers up to the peak of every block, 127
     [](Rng& rng, std::size_t i) {
       return i % 64 == 0 ? 127.0f : static_cast<float>(rng.below(254)) / 2 - 63.5f;
     }},
};

inline std::vector<float> tensor_of(const Family& family, std::size_t n) {
  Rng rng(family.name, n);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = family.value(rng, i);
  return x;
}

/// Gaussian numbers (Box and Muller, 1958).
inline std::vector<float> gauss(std::size_t n, std::uint64_t seed) {
  Rng rng("gauss", seed);
  std::vector<float> x(n);
  for (float& value : x) {
    const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
    value = static_cast<float>(radius * std::cos(6.283185307179586 * rng.uniform()));
  }
  return x;
}

/// ||a - b|| / ||a||
inline double relative_distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(difference / size);
}

/// The frame of x, as long as it is.
inline ByteVector encode(std::span<const float> x, TensorCodec codec,
                         const CodecKernels& kernels = best_kernels(),
                         Rounding rounding = Rounding::kNearest) {
  // The filling shows bytes that an encoder forgets to write.
  ByteVector frame(tensor_frame_capacity(codec, Precision::kFp32, x.size()), std::byte{0xa5});
  const EncodeOptions options{.codec = codec, .step = 3, .rounding = rounding};
  const auto bytes = encode_tensor(flat_view(x), options, frame, {}, kernels);
  LH_CHECK(bytes.has_value(), "the tensors of the tests can be encoded");
  frame.resize(*bytes);
  return frame;
}

inline std::vector<float> decode(std::span<const std::byte> frame, std::size_t n,
                                 const CodecKernels& kernels = best_kernels()) {
  std::vector<float> x(n, -77.0f);
  const auto header = decode_tensor(frame, std::span<float>(x), {}, kernels);
  LH_CHECK(header.has_value(), "the frames of the tests can be decoded");
  return x;
}

/// Equal but for the sign of zero, which a block of Q4, Q3 or Q2 takes from its peak.
inline bool same_values(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b);
}
/// Equal to the last bit, -0 and NaN included.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return true;
}

}  // namespace longhaul::fixtures
