#include "tools/tun_bridge.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <queue>
#include <span>
#include <thread>
#include <utility>

#include "core/rng.h"
#include "tools/before_others.h"

namespace longhaul {
namespace {

constexpr int kPlacesMax = 200;
constexpr int kMtu = 1500;
constexpr std::size_t kDestinationOffset = 16;  // of an IPv4 header
constexpr std::size_t kIpv4Bytes = 20;
constexpr int kDeviceQueue = 10'000;  // packets between the kernel and the bridge
constexpr int kReadsAtOnce = 64;      // of one device, before what is due is looked at

/// A file descriptor.
class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_;
};

std::unexpected<Error> refused(const std::string& what) {
  return failed(fmt::format("{}: {}", what, std::strerror(errno)),
                "it takes root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, and /dev/net/tun");
}

std::string address_of(int place) {
  return fmt::format("10.77.0.{}", place + 1);
}

struct Place {
  File name_space;
  File device;
};

/// Gives the device its address and turns it on.
Result<void> configure(const char* device, int place) {
  const File socket_file(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_file.is_open()) return refused("cannot open a socket in a new namespace");
  const auto set = [&](unsigned long what, auto&& fill) {
    ifreq request{};
    std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
    fill(request);
    return ioctl(socket_file.number(), what, &request) == 0;
  };
  const auto set_address = [](sockaddr& place_for, const std::string& text) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, text.c_str(), &address.sin_addr);
    std::memcpy(&place_for, &address, sizeof(address));
  };
  const bool is_done =
      set(SIOCSIFADDR, [&](ifreq& r) { set_address(r.ifr_addr, address_of(place)); }) &&
      set(SIOCSIFNETMASK, [&](ifreq& r) { set_address(r.ifr_netmask, "255.255.255.0"); }) &&
      set(SIOCSIFMTU, [](ifreq& r) { r.ifr_mtu = kMtu; }) &&
      set(SIOCSIFTXQLEN, [](ifreq& r) { r.ifr_qlen = kDeviceQueue; }) &&
      set(SIOCSIFFLAGS, [](ifreq& r) { r.ifr_flags = IFF_UP | IFF_RUNNING; });
  if (!is_done) return refused("cannot set up a TUN device");
  return {};
}

/// The calling thread gets a network namespace of its own, with a device in it.
Result<Place> make_place(int number) {
  if (unshare(CLONE_NEWNET) != 0) return refused("cannot make a network namespace");
  Place place{File(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)),
              File(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC))};
  if (!place.name_space.is_open()) return refused("cannot open the new namespace");
  if (!place.device.is_open()) return refused("cannot open /dev/net/tun");
  constexpr const char* kDevice = "tun0";
  ifreq request{};
  std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(place.device.number(), TUNSETIFF, &request) != 0) {
    return refused("cannot make a TUN device");
  }
  LH_TRY(configure(kDevice, number));
  return place;
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Something that sends one packet after the other.
class Wire {
 public:
  Wire() = default;
  Wire(BytesPerSecond rate, Bytes queue)
      : ns_per_byte_(rate.finite() ? 1e9 / rate.value() : 0),
        queue_ns_(std::llround(queue.value() * ns_per_byte_)) {}

  /// When a packet that comes at `time` has left; nothing when the queue is full.
  std::optional<std::int64_t> send(std::int64_t time, std::size_t bytes) {
    if (free_at_ - time > queue_ns_) return std::nullopt;
    free_at_ = std::max(free_at_, time) + std::llround(static_cast<double>(bytes) * ns_per_byte_);
    return free_at_;
  }

 private:
  double ns_per_byte_ = 0;
  std::int64_t queue_ns_ = 0;
  std::int64_t free_at_ = 0;
};

struct Packet {
  std::int64_t due = 0;
  std::uint64_t sequence = 0;
  int to = 0;
  std::vector<std::byte> bytes;
  bool operator>(const Packet& other) const {
    return std::pair(due, sequence) > std::pair(other.due, other.sequence);
  }
};

}  // namespace

struct TunBridge::State {
  explicit State(BridgeOptions bridge_options)
      : options(std::move(bridge_options)), rng("tun bridge", options.seed) {}

  void run();
  void take(int from, std::span<const std::byte> bytes, std::int64_t now);
  void deliver(std::int64_t now);
  std::size_t link(int from, int to) const {
    return static_cast<std::size_t>(from * options.places + to);
  }

  BridgeOptions options;
  std::vector<Place> places;
  File wake;  // an eventfd: the end
  std::thread thread;
  std::atomic<std::uint64_t> dropped = 0, forwarded = 0;

  // The thread's only.
  Rng rng;
  std::vector<Wire> uplinks;
  std::vector<Wire> wires;  // places x places
  std::priority_queue<Packet, std::vector<Packet>, std::greater<>> waiting;
  std::uint64_t sequence = 0;
};

/// A packet that a place sends: it is lost, dropped, or due at some time.
void TunBridge::State::take(int from, std::span<const std::byte> bytes, std::int64_t now) {
  if (bytes.size() < kIpv4Bytes || std::to_integer<int>(bytes[0]) >> 4 != 4) return;
  std::array<std::byte, 4> destination{};
  std::copy_n(bytes.begin() + kDestinationOffset, destination.size(), destination.begin());
  const int to = std::to_integer<int>(destination[3]) - 1;
  if (to < 0 || to >= options.places || to == from) return;
  const BridgeLink& way = options.links[link(from, to)];
  if (way.loss > 0 && rng.chance(way.loss)) return;
  const auto up = uplinks[static_cast<std::size_t>(from)].send(now, bytes.size());
  const auto left = up ? wires[link(from, to)].send(*up, bytes.size()) : std::nullopt;
  if (!left) {
    ++dropped;
    return;
  }
  waiting.push({*left + std::llround(way.latency.value() * 1e9),
                sequence++,
                to,
                {bytes.begin(), bytes.end()}});
}

void TunBridge::State::deliver(std::int64_t now) {
  while (!waiting.empty() && waiting.top().due <= now) {
    const Packet& packet = waiting.top();
    const int device = places[static_cast<std::size_t>(packet.to)].device.number();
    if (write(device, packet.bytes.data(), packet.bytes.size()) > 0) ++forwarded;
    waiting.pop();
  }
}

void TunBridge::State::run() {
  const BeforeOthers before;
  prctl(PR_SET_TIMERSLACK, 1UL);
  std::vector<pollfd> files;
  for (const Place& place : places) files.push_back({place.device.number(), POLLIN, 0});
  files.push_back({wake.number(), POLLIN, 0});
  std::array<std::byte, 2 * kMtu> buffer{};
  while ((files.back().revents & POLLIN) == 0) {
    for (int from = 0; from < options.places; ++from) {
      const int device = places[static_cast<std::size_t>(from)].device.number();
      for (int i = 0; i < kReadsAtOnce; ++i) {
        const ssize_t size = read(device, buffer.data(), buffer.size());
        if (size <= 0) break;
        take(from, std::span(buffer).first(static_cast<std::size_t>(size)), now_ns());
      }
    }
    const std::int64_t now = now_ns();
    deliver(now);
    const std::int64_t wait =
        waiting.empty() ? 1'000'000'000 : std::max<std::int64_t>(waiting.top().due - now_ns(), 0);
    const timespec timeout{.tv_sec = wait / 1'000'000'000, .tv_nsec = wait % 1'000'000'000};
    ppoll(files.data(), files.size(), &timeout, nullptr);
  }
}

TunBridge::TunBridge(std::unique_ptr<State> state) : state_(std::move(state)) {}

TunBridge::~TunBridge() {
  const std::uint64_t one = 1;
  LH_CHECK(write(state_->wake.number(), &one, sizeof(one)) == sizeof(one),
           "an eventfd takes a number");
  state_->thread.join();
}

Result<std::unique_ptr<TunBridge>> TunBridge::create(BridgeOptions options) {
  const auto count = static_cast<std::size_t>(options.places);
  LH_CHECK(options.places >= 2 && options.places <= kPlacesMax &&
               options.links.size() == count * count &&
               (options.uplinks.empty() || options.uplinks.size() == count),
           "every pair of places has a link");
  auto state = std::make_unique<State>(std::move(options));
  for (int i = 0; i < state->options.places; ++i) {
    // A thread that ends leaves its namespace to whoever has it open.
    Result<Place> place = failed("not made");
    std::thread([&] { place = make_place(i); }).join();
    if (!place) return std::unexpected(std::move(place).error());
    state->places.push_back(std::move(*place));
  }
  constexpr Bytes kUplinkQueue(1e6);
  for (std::size_t i = 0; i < count; ++i) {
    state->uplinks.push_back(
        state->options.uplinks.empty() ? Wire() : Wire(state->options.uplinks[i], kUplinkQueue));
  }
  for (const BridgeLink& way : state->options.links) {
    state->wires.emplace_back(way.rate, way.queue);
  }
  state->wake = File(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->wake.is_open()) return refused("cannot make an eventfd");
  state->thread = std::thread([raw = state.get()] { raw->run(); });
  return std::unique_ptr<TunBridge>(new TunBridge(std::move(state)));
}

std::string TunBridge::address(int place) const {
  return address_of(place);
}

Result<void> TunBridge::enter(int place) const {
  if (setns(state_->places[static_cast<std::size_t>(place)].name_space.number(), CLONE_NEWNET) !=
      0) {
    return refused("cannot enter a network namespace");
  }
  return {};
}

std::uint64_t TunBridge::dropped() const {
  return state_->dropped;
}
std::uint64_t TunBridge::forwarded() const {
  return state_->forwarded;
}

}  // namespace longhaul
