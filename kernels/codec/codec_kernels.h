// The inner loops of the codecs: a plain version that reads like the formula, AVX2 and AVX-512
// versions, with identical results to the last bit. Which one runs is decided by the processor at
// hand, so that one binary serves all nodes.
//
// A block codec is four kernels. Everything else that is done to a tensor, a rotation before or a
// history, is a kernel from floats to floats beside them (kernels/codec/tensor_codec.h puts them
// together).
//
// Kernels do no checks: the caller gives pointers to n elements and to their planes. n is a
// multiple of 64 unless the tensor ends there. Planes are byte pointers because a frame may lie at
// any address. Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/codec/codec_traits.h"
#include "kernels/codec/noise.h"

namespace longhaul {

struct DifferenceDone {
  std::size_t elements = 0;
  std::uint32_t largest = 0;         // magnitude of their differences
  std::uint32_t source_largest = 0;  // and of x
};

struct BlockKernels {
  /// Scales of ceil(n / block) blocks. Returns the elements' largest magnitude; from the codec's
  /// limit on the scales mean nothing.
  std::uint32_t (*scales)(const float* x, std::size_t n, Rounding rounding, std::byte* scales);
  /// Codes under these scales; all of whole blocks (unless they are bytes).
  void (*encode)(const float* x, std::size_t n, const std::byte* scales, std::byte* codes);
  /// `first`: the first element's index in the tensor.
  void (*encode_stochastic)(const float* x, std::size_t n, const std::byte* scales,
                            const NoiseKey& key, std::size_t first, std::byte* codes);
  /// False if there was a code that no encoder writes: -L - 1, or one beyond n that is not 0.
  bool (*decode)(const std::byte* scales, const std::byte* codes, std::size_t n, float* x);

  /// As subtract_history and then scales or encode (nearest) and add_history, in one pass; null
  /// where there is no such thing. They do as many whole blocks from the front as they like.
  DifferenceDone (*difference_scales)(const float* x, const std::uint16_t* history, std::size_t n,
                                      Rounding rounding, std::byte* scales);
  std::size_t (*encode_difference)(const float* x, std::uint16_t* history, std::size_t n,
                                   const std::byte* scales, std::byte* codes);
};

struct CodecKernels {
  const char* name;

  /// Largest magnitude of n elements; 0 if there are none.
  std::uint32_t (*magnitude_fp32)(const float* x, std::size_t n);
  std::uint32_t (*magnitude_16)(const std::uint16_t* x, std::size_t n);

  /// Codes of elements below the codec's limit in magnitude.
  void (*bf16_encode)(const float* x, std::size_t n, std::byte* codes);
  void (*f16_encode)(const float* x, std::size_t n, std::byte* codes);
  /// Return the codes' largest magnitude.
  std::uint32_t (*bf16_decode)(const std::byte* codes, std::size_t n, float* x);
  std::uint32_t (*f16_decode)(const std::byte* codes, std::size_t n, float* x);

  /// y = H S x for each block of 64, S the signs of a NoiseKey and H the Walsh-Hadamard matrix over
  /// 8; x is as if continued with zeros to a whole block. x = S H y is the inverse: reads whole
  /// blocks, writes n.
  void (*rotate)(const float* x, std::size_t n, std::uint64_t signs, float* y);
  void (*rotate_back)(const float* y, std::size_t n, std::uint64_t signs, float* x);

  /// d = x - history (bf16).
  void (*subtract_history)(const float* x, const std::uint16_t* history, std::size_t n, float* d);
  /// history = history + y in bf16, to nearest even, what is smaller than 2^-126 to +0; and y = the
  /// new history. Returns its largest magnitude, as bf16.
  std::uint32_t (*add_history)(float* y, std::size_t n, std::uint16_t* history);

  /// By the codec's number; null where it has no blocks.
  std::array<BlockKernels, kTensorCodecNumbers> blocks;
};

const CodecKernels& reference_kernels();
/// Null where the processor or the compiler's target lacks the instructions.
const CodecKernels* avx2_kernels();
const CodecKernels* avx512_kernels();
/// The fastest that this processor runs.
const CodecKernels& best_kernels();
/// All that this processor runs, the reference first.
std::span<const CodecKernels* const> all_kernels();

/// The reference's kernels of a grid.
template <CodecGrid kGrid>
const BlockKernels& reference_of() {
  for (const CodecTraits& traits : kCodecTraits) {
    if (traits.grid == kGrid) {
      return reference_kernels().blocks[static_cast<std::size_t>(traits.codec)];
    }
  }
  __builtin_unreachable();
}

/// The block kernels of an instruction set, made from its template over grids: make<grid>().
template <class Maker>
constexpr std::array<BlockKernels, kTensorCodecNumbers> block_kernels(Maker make) {
  std::array<BlockKernels, kTensorCodecNumbers> blocks{};
  const auto set = [&]<TensorCodec kCodec> {
    blocks[static_cast<std::size_t>(kCodec)] = make.template operator()<traits_of(kCodec).grid>();
  };
  set.template operator()<TensorCodec::kQ8>();
  set.template operator()<TensorCodec::kQ6>();
  set.template operator()<TensorCodec::kQ4>();
  set.template operator()<TensorCodec::kQ3>();
  set.template operator()<TensorCodec::kQ2>();
  set.template operator()<TensorCodec::kHadamardQ4>();
  set.template operator()<TensorCodec::kQ4Symmetric>();
  return blocks;
}

}  // namespace longhaul
