// libFuzzer target: any bytes, taken as a tensor frame, must decode within their buffers or end in
// an error; and any floats, encoded, must come back as the format promises, with the same bytes
// from every kernel and any pieces.
//
// The first byte chooses: even, the rest are floats to encode; odd or 0, the rest is a frame. In a
// frame with bit 1 of that byte set the checksums are put right first, so that what lies behind
// them is reached.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/codec/crc32c.h"
#include "kernels/codec/tensor_codec.h"

namespace longhaul {
namespace {

using ByteVector = std::vector<std::byte>;

// A header may promise four billion elements; the buffer is posted by who knows better.
constexpr std::uint64_t kElementsPosted = 1 << 16;

void put_checksums(ByteVector& frame) {
  if (frame.size() < kTensorHeaderBytes + kTensorChecksumBytes) return;
  const std::span<const std::byte> bytes(frame);
  const std::uint32_t header = crc32c(bytes.first(60));
  std::memcpy(frame.data() + 60, &header, sizeof header);
  const std::uint32_t payload =
      crc32c(bytes.subspan(kTensorHeaderBytes, frame.size() - kTensorHeaderBytes - 4));
  std::memcpy(frame.data() + frame.size() - 4, &payload, sizeof payload);
}

struct Decoded {
  bool is_accepted = false;
  ByteVector bytes;
};

/// Decodes in pieces of `piece` bytes; the target is exactly as large as the header asks.
Decoded decode(const ByteVector& frame, const TensorHeader& header, std::size_t piece,
               const CodecKernels& kernels) {
  Decoded out;
  out.bytes.resize(header.elements() * bytes_of(header.source));
  auto decoder = TensorDecoder::open(frame, {header.source, out.bytes}, {}, kernels);
  LH_CHECK(decoder.has_value(), "a header that parses opens");
  for (std::size_t arrived = 0; arrived < frame.size();) {
    arrived = std::min(frame.size(), arrived + piece);
    const auto status = decoder->advance(std::span(frame).first(arrived));
    if (!status) {
      LH_CHECK(!status.error().message.empty(), "an error says something");
      return out;
    }
  }
  out.is_accepted = decoder->done();
  return out;
}

void check_frame(const ByteVector& frame, std::size_t piece) {
  const Result<TensorHeader> header = parse_tensor_header(frame);
  if (!header) {
    LH_CHECK(!header.error().message.empty(), "an error says something");
    std::vector<float> target(4);
    LH_CHECK(!decode_tensor(frame, std::span<float>(target)), "a bad header is refused");
    return;
  }
  ByteVector again(kTensorHeaderBytes);
  write_tensor_header(*header, again);
  LH_CHECK(std::memcmp(again.data(), frame.data(), again.size()) == 0, "one header, one encoding");
  if (header->elements() > kElementsPosted) return;
  const Decoded whole = decode(frame, *header, frame.size(), reference_kernels());
  const Decoded pieces = decode(frame, *header, piece, best_kernels());
  LH_CHECK(whole.is_accepted == pieces.is_accepted, "kernels and pieces agree on what is valid");
  if (!whole.is_accepted) return;
  LH_CHECK(whole.bytes == pieces.bytes, "kernels and pieces agree on the values");
  if (header->codec == TensorCodec::kRaw) return;
  std::vector<float> x(header->elements());
  if (!x.empty()) std::memcpy(x.data(), whole.bytes.data(), whole.bytes.size());
  for (const float value : x) LH_CHECK(std::isfinite(value), "packed frames are finite");
}

ByteVector encode_whole(std::span<const float> x, TensorCodec codec, const CodecKernels& kernels) {
  ByteVector frame(tensor_frame_capacity(codec, Precision::kFp32, x.size()));
  const auto bytes = encode_tensor(flat_view(x), {.codec = codec}, frame, {}, kernels);
  LH_CHECK(bytes.has_value(), "any floats can be encoded");
  frame.resize(*bytes);
  return frame;
}

ByteVector encode_pieces(std::span<const float> x, TensorCodec codec, std::size_t piece) {
  ByteVector frame(tensor_frame_capacity(codec, Precision::kFp32, x.size()));
  auto encoder = TensorEncoder::begin(flat_view(x), {.codec = codec}, frame);
  LH_CHECK(encoder.has_value(), "any floats can be encoded");
  while (!encoder->done()) encoder->advance(64 * (piece + 1));
  frame.resize(encoder->frame_bytes());
  return frame;
}

void check_values(std::span<const float> x, std::span<const float> y, const TensorHeader& header,
                  const ByteVector& frame) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (header.codec == TensorCodec::kRaw) {
      LH_CHECK(std::bit_cast<std::uint32_t>(x[i]) == std::bit_cast<std::uint32_t>(y[i]), "as is");
      continue;
    }
    const double error = std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    if (header.codec == TensorCodec::kBf16) {
      // Half a step of 8 bits, or of the denormals.
      const double bound = std::max(std::fabs(static_cast<double>(x[i])) * 0x1p-8, 0x1p-134);
      LH_CHECK(error <= bound, "bf16 is the nearest one");
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, frame.data() + kTensorHeaderBytes + 2 * (i / kQ8Block), sizeof bits);
    const auto scale = static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16));
    LH_CHECK(error <= scale * (0.5 + 0x1p-16), "off by half a scale at most");
  }
}

void check_tensor(std::span<const float> x, TensorCodec codec, std::size_t piece) {
  const ByteVector frame = encode_whole(x, codec, reference_kernels());
  LH_CHECK(encode_whole(x, codec, best_kernels()) == frame, "kernels agree");
  LH_CHECK(encode_pieces(x, codec, piece) == frame, "pieces agree");
  std::vector<float> y(x.size());
  const auto header = decode_tensor(frame, std::span<float>(y));
  LH_CHECK(header.has_value(), "what was encoded decodes");
  check_values(x, y, *header, frame);
  std::vector<float> z(x.size());
  const auto second = decode_tensor(encode_whole(y, codec, best_kernels()), std::span<float>(z));
  LH_CHECK(second.has_value(), "what was decoded encodes");
  LH_CHECK(y.empty() || std::memcmp(y.data(), z.data(), 4 * y.size()) == 0,
           "a decoded tensor survives unchanged");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  if (size == 0) return 0;
  const std::size_t choice = data[0];
  const std::span<const std::byte> rest = std::as_bytes(std::span(data, size)).subspan(1);
  if (choice != 0 && choice % 2 == 0) {
    std::vector<float> x(rest.size() / 4);
    if (!x.empty()) std::memcpy(x.data(), rest.data(), 4 * x.size());
    for (const TensorCodec codec : {TensorCodec::kRaw, TensorCodec::kBf16, TensorCodec::kQ8}) {
      check_tensor(x, codec, choice / 2 % 8);
    }
    return 0;
  }
  ByteVector frame(rest.begin(), rest.end());
  if ((choice & 2) != 0) put_checksums(frame);
  check_frame(frame, 1 + choice / 4);
  return 0;
}
