// libFuzzer target: a peer that has greeted a mesh properly may send it any frames. The mesh takes
// what belongs to its receives, writes nowhere else, and ends the connection with a sentence.
//
// The input is a list of frames of 16 bytes each: type, flags, operation, segment, offset (2
// bytes), payload length (2), term, sender, then 6 bytes that the payload repeats. Where the first
// byte of the input is odd, the rest is instead taken as a header whose checksum is put right.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "executor/runtime/sim_event_loop.h"
#include "executor/transport/sim_transport.h"
#include "executor/transport/transport_mesh.h"
#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

constexpr std::size_t kPosted = 300;  // bytes of a posted buffer, with guards around it
constexpr std::byte kGuard{0x5a};

void read_header(std::span<const std::byte> input) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  std::memcpy(bytes.data(), input.data(), std::min(input.size(), bytes.size()));
  std::memset(bytes.data() + 8, 0, 4);
  const std::uint32_t crc = crc32c(bytes);
  std::memcpy(bytes.data() + 8, &crc, sizeof crc);
  const auto header = decode_frame_header(bytes);
  if (!header) {
    LH_CHECK(!header.error().message.empty(), "an error says something");
    return;
  }
  LH_CHECK(header->payload_bytes <= kMaxDataPayload, "a longer payload is refused");
  LH_CHECK(encode_frame_header(*header) == bytes, "a header comes back as it was");
}

class Peer final : public ConnectionHandler {
 public:
  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override {
    memory.emplace_back(header.payload_bytes);
    return memory.back();
  }
  void received(Connection&, const FrameHeader& header, std::span<const std::byte>) override {
    is_welcome |= header.type == FrameType::kHelloAck;
  }
  void closed(Connection&, const Error& why) override {
    is_closed = true;
    LH_CHECK(!why.message.empty(), "an error says something");
  }
  std::deque<std::vector<std::byte>> memory;
  bool is_welcome = false;
  bool is_closed = false;
};

void send_frames(std::span<const std::byte> input) {
  SimEventLoop loop;
  SimNetwork network(loop, 1);
  const auto transport = network.make_transport("a");
  const auto stranger = network.make_transport("b");
  std::unique_ptr<TransportMesh> mesh;
  MeshConfig config;
  config.addresses = {"a:1", "b:1"};
  config.job = 7;
  config.term = 1;
  config.limits.early_bytes = 4096;
  connect_mesh(*transport, loop, std::move(config), [&mesh](auto made) {
    if (made) mesh = std::move(*made);
  });
  Peer peer;
  std::unique_ptr<Connection> connection;
  stranger->dial("a:1", Seconds(1), [&](Result<std::unique_ptr<Connection>> dialled) {
    LH_CHECK(dialled, "it listens");
    connection = std::move(*dialled);
    connection->set_handler(&peer);
    FrameHeader hello;
    hello.type = FrameType::kHello;
    hello.job = 7;
    hello.term = 1;
    hello.sender = 1;
    hello.operation = 2;
    connection->send(hello, {}, [] {});
  });
  loop.run_until_idle(Seconds(2));
  LH_CHECK(mesh != nullptr && peer.is_welcome, "a proper greeting is welcome");

  // Names 0 to 7 are posted; buffers stand between guards.
  std::array<std::vector<std::byte>, 8> buffers;
  std::string lost;
  mesh->on_control([](int, const std::string&) {});
  mesh->on_lost([&lost](int, const Error& why) { lost = why.message; });
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    buffers[i].assign(kPosted + 128, kGuard);
    mesh->receive(1, i, 0, std::span(buffers[i]).subspan(64, kPosted), [] {});
  }
  std::vector<std::vector<std::byte>> payloads;
  for (; input.size() >= 16; input = input.subspan(16)) {
    const auto at = [&input](std::size_t i) { return std::to_integer<std::uint32_t>(input[i]); };
    FrameHeader header;
    header.type = static_cast<FrameType>(1 + at(0) % 9);
    header.flags = static_cast<std::uint16_t>(at(1) % 4);
    header.job = at(9) % 16 == 15 ? 8 : 7;
    header.term = 1 + at(8) % 3 - at(8) % 2;
    header.sender = at(9) % 2 == 0 ? 1 : 0;
    header.operation = at(2) % 12;
    header.segment = at(3) % 2;
    header.offset = (at(4) << 8 | at(5)) % 512;
    std::vector<std::byte> payload((at(6) << 8 | at(7)) % 512);
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = input[10 + i % 6];
    // Our own sender is held to this; what a stranger's header may say is read_header's part.
    const bool has_payload = header.type == FrameType::kData || header.type == FrameType::kControl;
    if (!has_payload) payload.clear();
    payloads.push_back(std::move(payload));
    if (!peer.is_closed) connection->send(header, payloads.back(), [] {});
    loop.run_until_idle(loop.now() + Seconds(1));
  }
  for (const auto& buffer : buffers) {
    for (std::size_t i = 0; i < 64; ++i) {
      LH_CHECK(buffer[i] == kGuard && buffer[buffer.size() - 1 - i] == kGuard,
               "nothing is written outside a posted buffer");
    }
  }
  LH_CHECK(!peer.is_closed || !lost.empty(), "a connection that ends is told, with a reason");
  mesh = nullptr;
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> input(reinterpret_cast<const std::byte*>(data), size);
  if (input.empty()) return 0;
  if ((data[0] & 1) != 0) {
    longhaul::read_header(input.subspan(1));
  } else {
    longhaul::send_frames(input.subspan(1));
  }
  return 0;
}
