#include "executor/transport/sim_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace longhaul {
namespace {

std::string host_of(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

}  // namespace

/// Shared by the two ends of a connection, because either may go away first.
struct SimNetwork::Pipe {
  struct End {
    std::string address;
    ConnectionHandler* handler = nullptr;
    Connection* connection = nullptr;  // null once closed or destroyed
    Seconds link_free;                 // when its last byte will have left
    std::size_t queued = 0;
    /// Frames on their way here, oldest first. Whichever timer fires takes the oldest, so that
    /// frames keep their order even where the loop stretches timers.
    std::deque<std::vector<std::byte>> incoming;
  };
  End ends[2];
  bool broken = false;
};

class SimConnection : public Connection {
 public:
  SimConnection(SimNetwork& network, std::shared_ptr<SimNetwork::Pipe> pipe, int side)
      : network_(network), pipe_(std::move(pipe)), side_(side) {
    mine().connection = this;
  }
  ~SimConnection() override { close(); }

  void set_handler(ConnectionHandler* handler) override { mine().handler = handler; }

  void send(FrameHeader header, std::span<const std::byte> payload, Task sent) override {
    if (mine().connection == nullptr) return;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.payload_crc = payload_checksum(payload);
    const FrameHeaderBytes head = encode_frame_header(header);
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    const std::pair route(host_of(mine().address), host_of(theirs().address));
    if (int& count = network_.corrupt_[route]; count > 0) {
      --count;
      bytes[network_.rng_.index(bytes.size())] ^=
          static_cast<std::byte>(1 << network_.rng_.below(8));
    }
    const SimLink& link = network_.link(route.first, route.second);
    const Seconds start = std::max(network_.loop_.now(), mine().link_free);
    const Seconds left = start + Bytes(static_cast<double>(bytes.size())) / link.rate;
    mine().link_free = left;
    mine().queued += bytes.size();
    const std::size_t size = bytes.size();
    network_.loop_.after(left - network_.loop_.now(),
                         [pipe = pipe_, side = side_, size, task = std::move(sent)]() mutable {
                           pipe->ends[side].queued -= size;
                           if (pipe->ends[side].connection != nullptr && task) task();
                         });
    if (network_.black_holes_[route]) return;
    theirs().incoming.push_back(std::move(bytes));
    network_.loop_.after(
        left + link.latency - network_.loop_.now(),
        [&network = network_, pipe = pipe_, to = 1 - side_] { arrive(network, pipe, to); });
  }

  std::size_t queued_bytes() const override { return pipe_->ends[side_].queued; }

  void close() override {
    if (mine().connection == nullptr) return;
    mine().connection = nullptr;
    mine().handler = nullptr;
    tell(network_, pipe_, 1 - side_, "the peer closed the connection");
  }

  std::string peer() const override { return pipe_->ends[1 - side_].address; }
  std::string local() const override { return pipe_->ends[side_].address; }

  /// Tells one end, one latency from now, that the connection is over.
  static void tell(SimNetwork& network, const std::shared_ptr<SimNetwork::Pipe>& pipe, int side,
                   const std::string& why) {
    const SimNetwork::Pipe::End& end = pipe->ends[side];
    const std::pair route(host_of(pipe->ends[1 - side].address), host_of(end.address));
    if (network.black_holes_[route]) return;
    network.loop_.after(network.link(route.first, route.second).latency,
                        [pipe, side, why] { finish(pipe->ends[side], why); });
  }

 private:
  using End = SimNetwork::Pipe::End;

  End& mine() { return pipe_->ends[side_]; }
  End& theirs() { return pipe_->ends[1 - side_]; }

  static void finish(End& end, const std::string& why) {
    if (end.connection == nullptr) return;
    Connection* connection = std::exchange(end.connection, nullptr);
    ConnectionHandler* handler = std::exchange(end.handler, nullptr);
    if (handler != nullptr) handler->closed(*connection, failed(why).error());
  }

  /// The receiving end gives up: its handler is told, and so is the peer, as a socket would.
  static void refuse(SimNetwork& network, const std::shared_ptr<SimNetwork::Pipe>& pipe, int side,
                     const std::string& why) {
    finish(pipe->ends[side], why);
    tell(network, pipe, 1 - side, "the peer closed the connection");
  }

  static void arrive(SimNetwork& network, const std::shared_ptr<SimNetwork::Pipe>& pipe, int side) {
    End& end = pipe->ends[side];
    const std::vector<std::byte> frame = std::move(end.incoming.front());
    end.incoming.pop_front();
    if (end.connection == nullptr || pipe->broken) return;
    const std::span bytes(frame);
    const Result<FrameHeader> header = decode_frame_header(bytes.first<kFrameHeaderBytes>());
    if (!header) return refuse(network, pipe, side, header.error().message);
    const std::span<const std::byte> payload = bytes.subspan(kFrameHeaderBytes);
    if (payload_checksum(payload) != header->payload_crc) {
      return refuse(network, pipe, side, "a frame's payload does not match its checksum");
    }
    LH_CHECK(end.handler != nullptr, "a connection gets its handler before its first frame");
    std::span<std::byte> buffer;
    if (!payload.empty()) {
      const auto named = end.handler->buffer_for(*end.connection, *header);
      if (end.connection == nullptr) return;  // the handler closed it
      if (!named) return refuse(network, pipe, side, "a frame came that nobody waits for");
      LH_CHECK(named->size() == payload.size(), "a payload's buffer has its size");
      buffer = *named;
      std::copy(payload.begin(), payload.end(), buffer.begin());
    }
    ++network.delivered_;
    end.handler->received(*end.connection, *header, buffer);
  }

  SimNetwork& network_;
  std::shared_ptr<SimNetwork::Pipe> pipe_;
  int side_;
};

class SimTransport : public Transport {
 public:
  SimTransport(SimNetwork& network, std::string host) : network_(network), host_(std::move(host)) {}
  ~SimTransport() override {
    for (const std::string& address : addresses_) network_.listeners_.erase(address);
  }

  Result<std::string> listen(const std::string& address, OnConnection on_connection) override {
    std::string real = address;
    if (real.ends_with(":0")) real = fmt::format("{}:{}", host_of(address), network_.next_port_++);
    if (!network_.listeners_.try_emplace(real, this).second) {
      return failed(fmt::format("cannot listen on {}: the address is in use", real));
    }
    addresses_.push_back(real);
    on_connection_ = std::move(on_connection);
    return real;
  }

  void dial(const std::string& address, Seconds deadline, OnDialled on_dialled) override {
    const std::string there = host_of(address);
    const Seconds trip = network_.link(host_, there).latency + network_.link(there, host_).latency;
    const bool lost = network_.black_holes_[{host_, there}] || trip > deadline;
    network_.loop_.after(std::min(trip, deadline), [this, alive = std::weak_ptr(alive_),
                                                    &network = network_, host = host_, address,
                                                    lost, task = std::move(on_dialled)]() mutable {
      if (alive.expired() || network.dead_[host]) return;
      const auto listener = network.listeners_.find(address);
      if (lost) {
        task(failed(fmt::format("cannot reach {}: no answer", address)));
      } else if (listener == network.listeners_.end() || network.dead_[host_of(address)]) {
        task(failed(fmt::format("cannot reach {}: connection refused", address)));
      } else {
        connect(*listener->second, address, std::move(task));
      }
    });
  }

 private:
  void connect(SimTransport& listener, const std::string& address, OnDialled on_dialled) {
    auto pipe =
        std::make_shared<SimNetwork::Pipe>();  // owners: the two connections, frames on the way
    pipe->ends[0].address = fmt::format("{}:{}", host_, network_.next_port_++);
    pipe->ends[1].address = address;
    network_.pipes_.push_back(pipe);
    listener.on_connection_(std::make_unique<SimConnection>(network_, pipe, 1));
    on_dialled(std::make_unique<SimConnection>(network_, pipe, 0));
  }

  SimNetwork& network_;
  std::string host_;
  std::vector<std::string> addresses_;
  OnConnection on_connection_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // owned here alone
};

SimNetwork::SimNetwork(SimEventLoop& loop, std::uint64_t seed)
    : loop_(loop), rng_("sim network", seed) {}

SimNetwork::~SimNetwork() = default;

void SimNetwork::set_link(const std::string& from, const std::string& to, SimLink link) {
  links_[{from, to}] = link;
}

const SimLink& SimNetwork::link(const std::string& from, const std::string& to) const {
  const auto found = links_.find({from, to});
  return found == links_.end() ? default_link_ : found->second;
}

std::unique_ptr<Transport> SimNetwork::make_transport(const std::string& host) {
  dead_[host] = false;
  return std::make_unique<SimTransport>(*this, host);
}

void SimNetwork::cut(const std::string& host, const std::string& other) {
  for (const std::weak_ptr<Pipe>& weak : pipes_) {
    const std::shared_ptr<Pipe> pipe = weak.lock();
    if (!pipe || pipe->broken) continue;
    const std::string a = host_of(pipe->ends[0].address);
    const std::string b = host_of(pipe->ends[1].address);
    if (!(a == host && b == other) && !(a == other && b == host)) continue;
    pipe->broken = true;
    for (const int side : {0, 1})
      SimConnection::tell(*this, pipe, side, "the connection was reset");
  }
}

void SimNetwork::black_hole(const std::string& host, const std::string& other) {
  black_holes_[{host, other}] = black_holes_[{other, host}] = true;
}

void SimNetwork::kill(const std::string& host) {
  dead_[host] = true;
  for (const std::weak_ptr<Pipe>& weak : pipes_) {
    const std::shared_ptr<Pipe> pipe = weak.lock();
    if (!pipe) continue;
    for (const int side : {0, 1}) {
      Pipe::End& end = pipe->ends[side];
      if (host_of(end.address) != host || end.connection == nullptr) continue;
      end.connection = nullptr;
      end.handler = nullptr;
      SimConnection::tell(*this, pipe, 1 - side, "the connection was reset");
    }
  }
}

void SimNetwork::corrupt_next(const std::string& from, const std::string& to) {
  ++corrupt_[{from, to}];
}

}  // namespace longhaul
