// libFuzzer target: any bytes, taken as a tensor frame, must decode within their buffers or end in
// an error; and any floats, encoded in every codec, with a history or without, must come back as
// the format promises, with the same bytes from every kernel and any pieces.
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
  std::size_t payload_at = kTensorHeaderBytes;
  if ((frame[8] & std::byte{kFlagHistory}) != std::byte{0} &&
      frame.size() >= prefix_bytes(true) + kTensorChecksumBytes) {
    payload_at = prefix_bytes(true);
    const std::uint32_t extension = crc32c(bytes.subspan(kTensorHeaderBytes, 60));
    std::memcpy(frame.data() + payload_at - 4, &extension, sizeof extension);
  }
  const std::uint32_t payload =
      crc32c(bytes.subspan(payload_at, frame.size() - payload_at - kTensorChecksumBytes));
  std::memcpy(frame.data() + frame.size() - 4, &payload, sizeof payload);
}

struct Decoded {
  bool is_accepted = false;
  ByteVector bytes;
  std::vector<std::uint16_t> history;
};

/// Decodes in pieces of `piece` bytes; the target is exactly as large as the header asks.
Decoded decode(const ByteVector& frame, const TensorHeader& header, std::size_t piece,
               const CodecKernels& kernels) {
  Decoded out;
  std::size_t n = header.elements();
  if (header.history && n == 0) n = 7;  // any target will do
  out.bytes.resize(n * bytes_of(header.source));
  if (header.history) out.history.resize(n);
  for (std::size_t i = 0; i < out.history.size(); ++i) {
    out.history[i] = static_cast<std::uint16_t>(0x9e37 * i) & 0xff7f;  // finite
  }
  auto decoder = TensorDecoder::open(frame, {header.source, out.bytes}, out.history, kernels);
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
  ByteVector again(prefix_bytes(header->history.has_value()));
  write_tensor_header(*header, again);
  LH_CHECK(std::memcmp(again.data(), frame.data(), again.size()) == 0, "one header, one encoding");
  if (header->elements() > kElementsPosted) return;
  const Decoded whole = decode(frame, *header, frame.size(), reference_kernels());
  for (const CodecKernels* kernels : all_kernels().subspan(1)) {
    const Decoded pieces = decode(frame, *header, piece, *kernels);
    LH_CHECK(whole.is_accepted == pieces.is_accepted, "kernels and pieces agree on what is valid");
    if (!whole.is_accepted) continue;
    LH_CHECK(whole.bytes == pieces.bytes, "kernels and pieces agree on the values");
    LH_CHECK(whole.history == pieces.history, "kernels and pieces agree on the history");
  }
  if (!whole.is_accepted || header->elements() == 0) return;
  const bool has_new_history = header->history && header->history->kind != HistoryKind::kFull;
  if (header->codec == TensorCodec::kRaw && !has_new_history) return;
  std::vector<float> x(header->elements());
  std::memcpy(x.data(), whole.bytes.data(), whole.bytes.size());
  for (const float value : x) LH_CHECK(std::isfinite(value), "packed frames are finite");
}

ByteVector encode_whole(std::span<const float> x, const EncodeOptions& options,
                        const CodecKernels& kernels) {
  ByteVector frame(tensor_frame_capacity(options.codec, Precision::kFp32, x.size()));
  const auto bytes = encode_tensor(flat_view(x), options, frame, {}, kernels);
  LH_CHECK(bytes.has_value(), "any floats can be encoded");
  frame.resize(*bytes);
  return frame;
}

ByteVector encode_pieces(std::span<const float> x, const EncodeOptions& options,
                         std::size_t piece) {
  ByteVector frame(tensor_frame_capacity(options.codec, Precision::kFp32, x.size()));
  auto encoder = TensorEncoder::begin(flat_view(x), options, frame);
  LH_CHECK(encoder.has_value(), "any floats can be encoded");
  while (!encoder->done()) encoder->advance(64 * (piece + 1));
  frame.resize(encoder->frame_bytes());
  return frame;
}

/// Most that a value may be off by.
double bound_of(double x, const TensorHeader& header, double scale) {
  // Half a step of 8 or 11 bits, or of the smallest numbers.
  if (header.codec == TensorCodec::kBf16) return std::max(std::fabs(x) * 0x1p-8, 0x1p-134);
  if (header.codec == TensorCodec::kF16) return std::max(std::fabs(x) * 0x1p-11, 0x1p-25);
  // A peak of the other sign has no code of its own, and noise may move a code by one.
  const bool may_be_a_step_off =
      (header.flags & kFlagStochastic) != 0 || traits_of(header.codec).grid.has_signed_scale;
  return scale * (may_be_a_step_off ? 1.05 : 0.5 + 0x1p-16);
}

void check_values(std::span<const float> x, std::span<const float> y, const TensorHeader& header,
                  const ByteVector& frame) {
  const CodecTraits& traits = traits_of(header.codec);
  if (traits.is_rotated) return;
  const auto block = static_cast<std::size_t>(std::max(traits.grid.block, 1));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (header.codec == TensorCodec::kRaw) {
      LH_CHECK(std::bit_cast<std::uint32_t>(x[i]) == std::bit_cast<std::uint32_t>(y[i]), "as is");
      continue;
    }
    std::uint16_t bits = 0;
    if (traits.grid.block > 0) {
      std::memcpy(&bits, frame.data() + kTensorHeaderBytes + 2 * (i / block), sizeof bits);
    }
    const auto scale = static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16));
    const double error = std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    LH_CHECK(error <= bound_of(static_cast<double>(x[i]), header, std::fabs(scale)),
             "off by no more than the format says");
  }
}

void check_tensor(std::span<const float> x, const EncodeOptions& options, std::size_t piece) {
  const ByteVector frame = encode_whole(x, options, reference_kernels());
  for (const CodecKernels* kernels : all_kernels().subspan(1)) {
    LH_CHECK(encode_whole(x, options, *kernels) == frame, "kernels agree");
  }
  LH_CHECK(encode_pieces(x, options, piece) == frame, "pieces agree");
  std::vector<float> y(x.size());
  const auto header = decode_tensor(frame, std::span<float>(y));
  LH_CHECK(header.has_value(), "what was encoded decodes");
  check_values(x, y, *header, frame);
  if (options.rounding != Rounding::kNearest || traits_of(options.codec).is_rotated) return;
  std::vector<float> z(x.size());
  const auto second = decode_tensor(encode_whole(y, options, best_kernels()), std::span<float>(z));
  LH_CHECK(second.has_value(), "what was decoded encodes");
  for (std::size_t i = 0; i < y.size(); ++i) {
    LH_CHECK(y[i] == z[i] || (std::isnan(y[i]) && std::isnan(z[i])),
             "a decoded tensor survives unchanged");
  }
}

/// Visits of x, then of half of it: both ends remember the same, whatever kernels they have.
void check_history(std::span<const float> x, EncodeOptions options, std::size_t piece) {
  std::vector<std::uint16_t> sender(x.size()), receiver(x.size());
  std::vector<float> source(x.begin(), x.end()), y(x.size());
  for (int visit = 0; visit < 3; ++visit) {
    const HistoryKind kind = visit == 0 ? HistoryKind::kFirst : HistoryKind::kDelta;
    options.history = HistoryHeader{.version = static_cast<std::uint32_t>(visit), .kind = kind};
    ByteVector frame(tensor_frame_capacity(options.codec, Precision::kFp32, x.size(), true));
    auto encoder = TensorEncoder::begin(flat_view(source), options, frame, sender);
    LH_CHECK(encoder.has_value(), "any floats can be encoded");
    while (!encoder->done()) encoder->advance(64 * (piece + 1));
    frame.resize(encoder->frame_bytes());
    LH_CHECK(decode_tensor(frame, std::span<float>(y), receiver, reference_kernels()).has_value(),
             "what was encoded decodes");
    LH_CHECK(sender == receiver, "both ends remember the same");
    for (const std::uint16_t value : sender) {
      LH_CHECK((value & 0x7fff) < 0x7f80, "a history is finite");
    }
    for (float& value : source) value *= 0.5f;
  }
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
    for (const TensorCodec codec : kTensorCodecs) {
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        const EncodeOptions options{.codec = codec, .seed = choice, .rounding = rounding};
        check_tensor(x, options, choice / 2 % 8);
        check_history(x, options, choice / 2 % 8);
      }
    }
    return 0;
  }
  ByteVector frame(rest.begin(), rest.end());
  if ((choice & 2) != 0) put_checksums(frame);
  check_frame(frame, 1 + choice / 4);
  return 0;
}
