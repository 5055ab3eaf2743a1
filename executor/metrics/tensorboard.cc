#include "executor/metrics/tensorboard.h"

#include <fmt/core.h>

#include <bit>
#include <cctype>

#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

template <class Word>
void put_word(std::string& out, Word word) {
  for (std::size_t i = 0; i < sizeof(Word); ++i) {
    out += static_cast<char>(static_cast<unsigned char>(word >> (8 * i)));
  }
}

// ---- protobuf

enum class Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, std::uint64_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<std::uint64_t>(wire));
}

void put_varint_field(std::string& out, std::uint64_t field, std::uint64_t value) {
  put_key(out, field, Wire::kVarint);
  put_varint(out, value);
}

void put_bytes_field(std::string& out, std::uint64_t field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(double wall_time) {
  std::string event;
  put_key(event, 1, Wire::kFixed64);
  put_word(event, std::bit_cast<std::uint64_t>(wall_time));
  return event;
}

// ---- records

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U;
}

std::string record_of(std::string_view data) {
  std::string record;
  put_word(record, std::uint64_t{data.size()});
  put_word(record, masked_crc(record));
  record += data;
  put_word(record, masked_crc(data));
  return record;
}

}  // namespace

std::string tensorboard_start(double wall_time) {
  std::string event = event_at(wall_time);
  put_bytes_field(event, 3, "brain.Event:2");
  return record_of(event);
}

std::string tensorboard_restart(double wall_time, std::uint64_t step) {
  constexpr std::uint64_t kStart = 1;
  std::string session;
  put_varint_field(session, 1, kStart);
  std::string event = event_at(wall_time);
  put_varint_field(event, 2, step);
  put_bytes_field(event, 7, session);
  return record_of(event);
}

std::string tensorboard_scalars(double wall_time, std::uint64_t step,
                                std::span<const TensorboardScalar> scalars) {
  std::string summary;
  for (const TensorboardScalar& scalar : scalars) {
    std::string value;
    put_bytes_field(value, 1, scalar.tag);
    put_key(value, 2, Wire::kFixed32);
    put_word(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes_field(summary, 1, value);
  }
  std::string event = event_at(wall_time);
  put_varint_field(event, 2, step);
  put_bytes_field(event, 5, summary);
  return record_of(event);
}

std::string tensorboard_file_name(std::uint64_t seconds, std::string_view host,
                                  std::string_view suffix) {
  std::string name;
  for (const char letter : host) {
    const bool is_plain =
        std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '.';
    name += is_plain ? letter : '_';
  }
  return fmt::format("events.out.tfevents.{}.{}.{}", seconds, name.empty() ? "host" : name, suffix);
}

}  // namespace longhaul
