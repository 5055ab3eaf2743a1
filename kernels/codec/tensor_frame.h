// A tensor on the wire: a frame that says by itself how to read it.
//
//   [header, 64 bytes][history extension, 64 bytes, if any]
//   [scale plane, padded to 64][code plane][crc32c of both planes, 4 bytes]
//
// All numbers are little-endian. Counted from the frame's start both planes begin at a multiple of
// 64. A scale plane exists only for block codecs; its padding is zero. The header, byte by byte:
//
//    0  4  magic "LHC1"
//    4  1  version, 1
//    5  1  codec (TensorCodec)
//    6  1  type of the source's elements: 1 fp32, 2 fp16, 3 bf16
//    7  1  type of a scale (ScaleType): 0 where the codec has none, else 3 bf16 (1 fp32, 2 fp16 and
//          4 e8m0 are numbers kept for later)
//    8  2  flags: bit 0 the source holds NaN or Inf; bit 1 the codec that was asked for could not
//          hold the tensor; bit 2 codes were rounded stochastically; bit 3 there is a history
//          extension; the others are 0
//   10  2  block: elements that share a scale, 0 where there is none
//   12  4  step
//   16  8  n, elements
//   24  4  rows           rows x row length = n
//   28  4  row length
//   32  8  seed
//   40  8  tensor id
//   48  8  payload length: bytes of planes and last crc
//   56  4  extension length: 64 with a history, else 0
//   60  4  crc32c of bytes 0..59
//
// The history extension (codecs "aq" of a job: what is sent is the difference to what both ends
// remember of the same sample), counted from its own start:
//
//    0  8  sample; all ones: none, a slot of padding
//    8  8  layout: which edge, layers, context and width the history belongs to
//   16  8  hash of the history that this frame builds on (next_history_hash); 0: none
//   24  4  version: visits before this one
//   28  4  kind (HistoryKind)
//   32  8  sample whose history goes for this one; all ones: none
//   40 20  0
//   60  4  crc32c of bytes 0..59
//
// The codecs and their planes, where s is a block's scale and q an element's code:
//
//   codec           block  codes    bits  the value is, and s comes from
//   RAW                 -  -          -   the source's bytes, of any type
//   BF16, F16           -  16 bit    16   rounded to nearest even
//   Q8                 64  -127..127  8   q s; s = amax / 127
//   Q6                 64  -31..31    6   q s; s = amax / 31
//   Q4                 32  -8..7      4   q s; s = -peak / 8: the peak, with its sign, has code -8
//   Q4 symmetric       32  -7..7      4   q s; s = amax / 7
//   Q3                 32  -4..3      3   q s; s = -peak / 4
//   Q2                 32  -2..1      2   q s; s = -peak / 2
//   Hadamard Q4        64  -8..7      4   the block is rotated first: signs of the tensor's key
//                                         (kernels/codec/noise.h), then the orthonormal Walsh-
//                                         Hadamard transform; then as Q4
//
// amax is the block's largest magnitude, peak the element that has it (of two with either sign, the
// negative one). A scale is bf16, its magnitude at least 2^-125. Nearest: s is rounded to nearest
// even and q = x (1 / s), too, then limited to the codes. Stochastic: the magnitude of s is rounded
// up and is at least 2^-109, t = x (2^16 (1 / s)) is rounded to a whole number and limited to
// the codes times 2^16, and q = floor((t + noise) / 2^16), noise of 16 bits from (seed, step,
// tensor id, element): unbiased to 2^-17 of a step, but for codes from -L to L - 1 above the
// largest. All of it is fp32 arithmetic, one IEEE operation after another (no FMA).
//
// Codes lie in units of 32 elements, two's complement, from bit 0. Q8: a byte each, and only n of
// them. Else whole blocks (beyond n as if x were 0), of 4 bits a unit in planes one after another,
// in each of which bits of elements that lie as far apart as the plane has bytes share a byte:
//
//   4 bits (Q4, low ones of Q6)  16 bytes: element j in the low half, j + 16 in the high half
//   2 bits (Q2, low ones of Q3, high ones of Q6)  8 bytes: j, j + 8, j + 16, j + 24 from bit 0 up
//   1 bit (high one of Q3)  4 bytes: bit j of a 32-bit number
//
// A scale that is rounded to nearest is not only closer. With 8 significant bits |peak / s| is
// within L (1 +- 2^-8), which rounds to L: nothing needs a limit but the missing +L of Q4, Q3, Q2
// and Hadamard Q4, and a decoded tensor encodes to itself. Rounded up, the peak of a third of
// Gaussian tensors of one block of Q8 gets code 126 and a second round trip changes them.
//
// Two checksums and not one, because a frame is sent while it is still being encoded: the header
// goes first and must be trusted on its own (it sizes things), and only the end can know the
// payload's CRC.
//
// NaN and Inf are never packed: such a tensor travels as RAW with flags 0 and 1, and so does, with
// flag 1 alone, one whose finite values the codec cannot hold (codec_traits.h: magnitude_limit) or,
// where a history takes them up, that reach 2^125. With a history there is no RAW: it is a frame of
// 0 elements with these flags, which decodes to NaN everywhere and leaves the history as it was;
// and one of 0 elements without flags is a slot of padding and decodes to zeros. Any other frame
// decodes to finite values or not at all.
//
// Everything here is a value or a pure function; any thread may call it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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
  kQ6 = 4,
  kQ4 = 5,
  kQ3 = 6,
  kQ2 = 7,
  kHadamardQ4 = 8,
  // 9 stays unused.
  kF16 = 10,
  kQ4Symmetric = 11,
};
/// All of them, in the order of their numbers.
inline constexpr std::array kTensorCodecs = {
    TensorCodec::kRaw, TensorCodec::kBf16,       TensorCodec::kQ8, TensorCodec::kQ6,
    TensorCodec::kQ4,  TensorCodec::kQ3,         TensorCodec::kQ2, TensorCodec::kHadamardQ4,
    TensorCodec::kF16, TensorCodec::kQ4Symmetric};
inline constexpr std::size_t kTensorCodecNumbers = 12;

std::string_view name_of(TensorCodec codec);
/// The wire codec of a job's choice; of an AQ codec, that of its differences.
TensorCodec tensor_codec(Codec codec);

enum class ScaleType : std::uint8_t { kNone = 0, kFp32 = 1, kFp16 = 2, kBf16 = 3, kE8m0 = 4 };

inline constexpr std::size_t kTensorHeaderBytes = 64;
inline constexpr std::size_t kHistoryExtensionBytes = 64;
inline constexpr std::size_t kPlaneAlignment = 64;
inline constexpr std::size_t kTensorChecksumBytes = 4;
/// A multiple of every codec's block: where a tensor may be cut into pieces.
inline constexpr std::size_t kCodecPiece = 64;
/// Largest tensor of one frame.
inline constexpr std::uint64_t kTensorElementsMax = 0xffffffffu;

inline constexpr std::uint16_t kFlagNonFinite = 1;
inline constexpr std::uint16_t kFlagFallback = 2;
inline constexpr std::uint16_t kFlagStochastic = 4;
inline constexpr std::uint16_t kFlagHistory = 8;

/// How codes of block codecs are rounded. Stochastic is for what nothing corrects later; its error
/// is larger, its mean is right.
enum class Rounding : std::uint8_t { kNearest, kStochastic };

/// What a frame does to the history of its sample.
enum class HistoryKind : std::uint32_t {
  kFirst = 1,    // the whole tensor; the history begins
  kDelta = 2,    // the difference to the history, which then takes it up
  kFull = 3,     // the whole tensor; no history
  kHealing = 4,  // the sender's history as it is, for a receiver that has lost it
};

inline constexpr std::uint64_t kNoSample = 0xffffffffffffffffu;

struct HistoryHeader {
  std::uint64_t sample = kNoSample;
  std::uint64_t layout = 0;
  std::uint64_t base_hash = 0;
  std::uint32_t version = 0;
  HistoryKind kind = HistoryKind::kFull;
  std::uint64_t evicted = kNoSample;

  bool operator==(const HistoryHeader&) const = default;
};

struct TensorHeader {
  TensorCodec codec = TensorCodec::kRaw;
  Precision source = Precision::kFp32;
  std::uint16_t flags = 0;  // kFlagHistory if and only if there is a history
  std::uint32_t step = 0;
  std::uint32_t rows = 0;
  std::uint32_t row_length = 0;
  std::uint64_t seed = 0;
  std::uint64_t tensor_id = 0;
  std::optional<HistoryHeader> history = {};

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

/// Bytes of one element of a type.
std::size_t bytes_of(Precision type);
/// Bytes that the codes of the first `elements` of a tensor take: of all of them, or a multiple of
/// kCodecPiece.
std::size_t code_bytes(TensorCodec codec, Precision source, std::uint64_t elements);

/// elements <= kTensorElementsMax.
TensorLayout tensor_layout(TensorCodec codec, Precision source, std::uint64_t elements,
                           bool has_history = false);
/// Bytes of a whole frame: 68, + 64 with a history; RAW + n x element, BF16 and F16 + 2 n, Q8 +
/// 64 ceil(n / 2048) + n; else with blocks = ceil(n / block) + 64 ceil(blocks / 32) +
/// blocks x block x bits / 8.
std::size_t tensor_frame_bytes(TensorCodec codec, Precision source, std::uint64_t elements,
                               bool has_history = false);
/// What a buffer must hold to take any frame of a tensor that is sent with `codec`: the codec's or,
/// when the tensor does not fit it, RAW (with a history, 0 elements).
std::size_t tensor_frame_capacity(TensorCodec codec, Precision source, std::uint64_t elements,
                                  bool has_history = false);

/// Bytes before the planes.
constexpr std::size_t prefix_bytes(bool has_history) {
  return kTensorHeaderBytes + (has_history ? kHistoryExtensionBytes : 0);
}
/// Writes bytes 0..63 of `frame`, and 64..127 where there is a history.
void write_tensor_header(const TensorHeader& header, std::span<std::byte> frame);
/// Reads and checks the first 64 bytes of `frame`, or 128 where these tell of a history; what
/// follows them is not looked at. Every field is checked, so that the returned header has one of
/// the layouts above. Error: kFailed.
Result<TensorHeader> parse_tensor_header(std::span<const std::byte> frame);

}  // namespace longhaul
