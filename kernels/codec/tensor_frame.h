// A tensor on the wire: a frame that says by itself how to read it.
//
//   [header, 64 bytes][scale plane, padded to 64][code plane][crc32c of the payload, 4 bytes]
//
// All numbers are little-endian. Counted from the frame's start both planes begin at a multiple of
// 64. A scale plane exists only for block codecs; its padding is zero. The header, byte by byte:
//
//    0  4  magic "LHC1"
//    4  1  version, 1
//    5  1  codec (TensorCodec)
//    6  1  type of the source's elements: 1 fp32, 2 fp16, 3 bf16
//    7  1  type of a scale (ScaleType): 0 where the codec has none, else 1 fp32, 2 fp16, 3 bf16,
//          4 e8m0
//    8  2  flags: bit 0 the source holds NaN or Inf, bit 1 the codec that was asked for could not
//          hold the tensor and RAW stands in; bits 2.. are 0 (later: stochastic rounding,
//          history, error feedback, Hadamard, lossless stage)
//   10  2  block: elements that share a scale, 0 where there is none
//   12  4  step
//   16  8  n, elements
//   24  4  rows           rows x row length = n
//   28  4  row length
//   32  8  seed (of stochastic codecs; carried, not read, by the present ones)
//   40  8  tensor id
//   48  8  payload length: bytes after the header, the last crc included
//   56  4  extension length, 0 (later: sample ids and history version of AQ)
//   60  4  crc32c of bytes 0..59
//
// The codecs and their planes (block 64 where there are scales):
//   RAW   the source's bytes, of any type
//   BF16  fp32 rounded to nearest even, 2 bytes an element
//   Q8    scale plane: bf16 s = max(2^-125, amax / 127 rounded to nearest even), one a block;
//         code plane: int8 q = x * (1 / s) rounded to nearest even; the value is q * s
// All of it is fp32 arithmetic, one IEEE operation after another (no FMA).
//
// A scale is rounded to nearest, not up. With 8 significant bits amax / s is within 127 (1 +-
// 2^-8), that is above 126.5 and below 127.5: the peak has code 127, nothing needs a clamp, and a
// decoded tensor encodes to itself. Rounded up, the peak of a third of Gaussian tensors of one
// block gets code 126 and a second round trip changes them; the error is larger too. A stochastic
// codec will need its scales rounded up, to stay unbiased at the peak.
//
// Two checksums and not one, because a frame is sent while it is still being encoded: the header
// goes first and must be trusted on its own (it sizes things), and only the end can know the
// payload's CRC.
//
// NaN and Inf are never packed: such a tensor travels as RAW with flags 0 and 1, and so does, with
// flag 1 alone, one whose finite values BF16 would round to Inf. A BF16 or Q8 frame decodes to
// finite values or not at all.
//
// Everything here is a value or a pure function; any thread may call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/job.h"
#include "core/result.h"
#include "core/topology.h"

namespace longhaul {

/// How a frame's payload is written. Numbers are the wire's and never change.
enum class TensorCodec : std::uint8_t {
  kRaw = 1,
  kBf16 = 2,
  kQ8 = 3,
  // Numbers taken for codecs that are not built yet; a frame with one is refused.
  kQ6 = 4,
  kQ4 = 5,
  kQ3 = 6,
  kQ2 = 7,
  kHadamardQ4 = 8,
  kAq = 9,
  kF16 = 10,
};
std::string_view name_of(TensorCodec codec);
/// The wire codec of a job's choice; of an AQ codec, that of its differences.
TensorCodec tensor_codec(Codec codec);

enum class ScaleType : std::uint8_t { kNone = 0, kFp32 = 1, kFp16 = 2, kBf16 = 3, kE8m0 = 4 };

inline constexpr std::size_t kTensorHeaderBytes = 64;
inline constexpr std::size_t kPlaneAlignment = 64;
inline constexpr std::size_t kTensorChecksumBytes = 4;
/// Elements that share a scale.
inline constexpr std::size_t kQ8Block = 64;
/// Largest tensor of one frame.
inline constexpr std::uint64_t kTensorElementsMax = 0xffffffffu;

inline constexpr std::uint16_t kFlagNonFinite = 1;
inline constexpr std::uint16_t kFlagFallback = 2;

struct TensorHeader {
  TensorCodec codec = TensorCodec::kRaw;
  Precision source = Precision::kFp32;
  std::uint16_t flags = 0;
  std::uint32_t step = 0;
  std::uint32_t rows = 0;
  std::uint32_t row_length = 0;
  std::uint64_t seed = 0;
  std::uint64_t tensor_id = 0;

  std::uint64_t elements() const { return std::uint64_t{rows} * row_length; }
  bool operator==(const TensorHeader&) const = default;
};

/// Where things are in a frame, in bytes from its start.
struct TensorLayout {
  std::size_t scales_at = 0;
  std::size_t scales_bytes = 0;  // without padding
  std::size_t codes_at = 0;
  std::size_t codes_bytes = 0;
  std::size_t checksum_at = 0;
  std::size_t frame_bytes = 0;
};

/// Bytes of one element of a type, and of its code in a codec's code plane.
std::size_t bytes_of(Precision type);
std::size_t code_bytes(TensorCodec codec, Precision source);

/// The layout of a frame of a codec that is built. elements <= kTensorElementsMax.
TensorLayout tensor_layout(TensorCodec codec, Precision source, std::uint64_t elements);
/// Bytes of a whole frame: RAW 68 + n x element, BF16 68 + 2 n, Q8 68 + 64 ceil(n / 2048) + n.
std::size_t tensor_frame_bytes(TensorCodec codec, Precision source, std::uint64_t elements);
/// What a buffer must hold to take any frame of a tensor that is sent with `codec`: the codec's or,
/// when the tensor does not fit it, RAW.
std::size_t tensor_frame_capacity(TensorCodec codec, Precision source, std::uint64_t elements);

/// Writes bytes 0..63 of `frame`. The header's fields are those of a codec that is built.
void write_tensor_header(const TensorHeader& header, std::span<std::byte> frame);
/// Reads and checks the first 64 bytes of `frame`; what follows them is not looked at. Every field
/// is checked, so that the returned header has one of the layouts above. Error: kFailed.
Result<TensorHeader> parse_tensor_header(std::span<const std::byte> frame);

}  // namespace longhaul
