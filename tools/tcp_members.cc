#include "tools/tcp_members.h"

#include <fmt/core.h>

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "executor/collective/sharded_all_reduce.h"
#include "executor/transport/asio_transport.h"
#include "executor/transport/transport_mesh.h"
#include "tools/before_others.h"

namespace longhaul {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{60};
constexpr int kPort = 7000;

struct Member {
  AsioRuntime runtime;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<TransportMesh> mesh;
  std::thread thread;
};

/// One value from each of several threads, which may outlive the wait for it.
template <class T>
class Answers {
 public:
  explicit Answers(std::size_t count) : promises_(count) {}
  void set(std::size_t which, T value) { promises_[which].set_value(std::move(value)); }
  /// In their order.
  Result<std::vector<T>> wait(const std::string& for_what) {
    const auto deadline = Clock::now() + kPatience;
    std::vector<T> values;
    for (std::promise<T>& promise : promises_) {
      std::future<T> future = promise.get_future();
      if (future.wait_until(deadline) != std::future_status::ready) {
        return failed(fmt::format("{} did not come within {} s", for_what, kPatience.count()));
      }
      values.push_back(future.get());
    }
    return values;
  }

 private:
  std::vector<std::promise<T>> promises_;
};

Seconds between(Clock::time_point from, Clock::time_point to) {
  return Seconds(std::chrono::duration<double>(to - from).count());
}

}  // namespace

Topology topology_of(const BridgeOptions& bridge) {
  Topology topology;
  topology.name = "bridge";
  DeviceKind kind;
  kind.name = "any";
  kind.memory = Bytes(1e12);
  kind.rate.fill(FlopsPerSecond(1e12));
  kind.memory_rate = BytesPerSecond(1e12);
  topology.kinds = {kind};
  const auto infinite = BytesPerSecond::infinity();
  for (int i = 0; i < bridge.places; ++i) {
    const std::string name = fmt::format("place-{}", i + 1);
    const BytesPerSecond uplink =
        bridge.uplinks.empty() ? infinite : bridge.uplinks[static_cast<std::size_t>(i)];
    topology.sites.push_back({name, "", uplink, infinite});
    topology.nodes.push_back({name, i, infinite, infinite, Seconds(0), ""});
    topology.devices.push_back({name, i, i, 0});
  }
  for (int from = 0; from < bridge.places; ++from) {
    for (int to = 0; to < bridge.places; ++to) {
      const auto at = [&](int a, int b) -> const BridgeLink& {
        return bridge.links[static_cast<std::size_t>(a * bridge.places + b)];
      };
      Link link;
      link.latency = at(from, to).latency;
      link.rate = infinite;
      if (from != to) {
        const Seconds round_trip = at(from, to).latency + at(to, from).latency;
        const BytesPerSecond rate =
            std::min(at(from, to).rate, topology.sites[static_cast<std::size_t>(from)].uplink);
        link.streams = tcp_streams(topology.tcp, rate, round_trip);
        link.rate = std::min(at(from, to).rate,
                             tcp_rate(topology.tcp, rate, round_trip, at(from, to).loss));
      }
      topology.links.push_back(link);
    }
  }
  return topology;
}

struct TcpMembers::State {
  ~State();

  std::vector<std::unique_ptr<Member>> members;
  std::uint64_t operation = 0;  // names of messages and exchanges so far
};

TcpMembers::State::~State() {
  for (const auto& member : members) {
    if (!member->thread.joinable()) continue;
    member->runtime.loop().post([raw = member.get()] {
      raw->mesh.reset();
      raw->transport.reset();
      raw->runtime.stop();
    });
    member->thread.join();
  }
}

TcpMembers::TcpMembers(std::unique_ptr<State> state) : state_(std::move(state)) {}
TcpMembers::~TcpMembers() = default;

Result<std::unique_ptr<TcpMembers>> TcpMembers::connect(const TunBridge& bridge,
                                                        const Topology& topology) {
  const int count = topology.site_count();
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i)
    addresses.push_back(fmt::format("{}:{}", bridge.address(i), kPort));
  auto state = std::make_unique<State>();
  const auto ready = std::make_shared<Answers<std::string>>(addresses.size());  // why not
  for (int i = 0; i < count; ++i) {
    MeshConfig config{addresses, {}, i, 1, 0, {}, Seconds(20)};
    for (int peer = 0; peer < count; ++peer) {
      config.streams.push_back(
          peer == i ? 1 : std::max(topology.link(i, peer).streams, topology.link(peer, i).streams));
    }
    for (int peer = 0; peer < count; ++peer) {
      config.rates.push_back(topology.link(i, peer).rate);
    }
    state->members.push_back(std::make_unique<Member>());
    Member& member = *state->members.back();
    member.thread = std::thread([&member, &bridge, config, i, ready] {
      const BeforeOthers before;
      const auto place = static_cast<std::size_t>(i);
      if (const Result<void> entered = bridge.enter(i); !entered) {
        return ready->set(place, entered.error().message);
      }
      member.transport = member.runtime.make_transport();
      connect_mesh(*member.transport, member.runtime.loop(), config,
                   [&member, ready, place](Result<std::unique_ptr<TransportMesh>> mesh) {
                     if (mesh) {
                       member.mesh = std::move(*mesh);
                       member.mesh->on_control([](int, const std::string&) {});
                       member.mesh->on_lost([](int, const Error&) {});
                     }
                     ready->set(place, mesh ? "" : mesh.error().message);
                   });
      // Until there are connections nothing else keeps the loop running.
      member.runtime.run();
    });
  }
  LH_ASSIGN(const std::vector<std::string> faults, ready->wait("a connection"));
  for (const std::string& fault : faults) {
    if (!fault.empty()) return failed(fault);
  }
  return std::unique_ptr<TcpMembers>(new TcpMembers(std::move(state)));
}

Result<Seconds> TcpMembers::message(Bytes size) {
  struct Flight {
    explicit Flight(std::size_t bytes) : sent(bytes), received(bytes) {}
    std::vector<std::byte> sent, received;
    Answers<bool> posted{1};
    Answers<Clock::time_point> start{1}, end{1};
  };
  const auto flight = std::make_shared<Flight>(static_cast<std::size_t>(size.value()));
  const std::uint64_t operation = ++state_->operation;
  Member& receiver = *state_->members[1];
  Member& sender = *state_->members[0];
  receiver.runtime.loop().post([&receiver, flight, operation] {
    receiver.mesh->receive(0, operation, 0, flight->received,
                           [flight] { flight->end.set(0, Clock::now()); });
    flight->posted.set(0, true);
  });
  LH_TRY(flight->posted.wait("a receiver"));
  sender.runtime.loop().post([&sender, flight, operation] {
    flight->start.set(0, Clock::now());
    sender.mesh->send(1, operation, 0, flight->sent, [flight] {});
  });
  LH_ASSIGN(const auto start, flight->start.wait("a sender"));
  LH_ASSIGN(const auto end, flight->end.wait("a message"));
  return between(start[0], end[0]);
}

Result<Seconds> TcpMembers::all_reduce(std::size_t elements, const std::vector<double>& shares) {
  struct Part {
    std::vector<float> gradient;
    std::unique_ptr<ShardedAllReduce> exchange;
  };
  struct Exchange {
    explicit Exchange(std::size_t count) : parts(count), end(count), fault(count) {}
    std::vector<Part> parts;
    Answers<Clock::time_point> end;
    Answers<std::string> fault;
  };
  const std::size_t count = state_->members.size();
  const auto all = std::make_shared<Exchange>(count);
  ExchangeOptions options;
  const std::uint64_t operation = ++state_->operation;
  options.tensor_lengths = {elements};
  for (std::size_t i = 0; i < count; ++i) {
    options.members.push_back(
        {static_cast<int>(i), static_cast<int>(i), shares.empty() ? 1 : shares[i]});
    all->parts[i].gradient.assign(elements, static_cast<float>(i + 1));
  }
  const auto start = Clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    Member& member = *state_->members[i];
    member.runtime.loop().post([&member, all, options, operation, i, count] {
      Part& part = all->parts[i];
      const auto done = [all, i, count](const Result<void>& outcome) {
        all->end.set(i, Clock::now());
        // 1 + 2 + ... + count.
        const auto sum = static_cast<float>(count * (count + 1) / 2);
        const std::vector<float>& gradient = all->parts[i].gradient;
        const bool is_right = gradient.front() == sum && gradient.back() == sum;
        all->fault.set(i, !outcome   ? outcome.error().message
                          : is_right ? ""
                                     : fmt::format("rank {} has another sum", i));
      };
      auto exchange = ShardedAllReduce::create(*member.mesh, member.runtime.loop(), options);
      if (!exchange) return done(std::unexpected(exchange.error()));
      part.exchange = std::move(*exchange);
      part.exchange->start(operation, part.gradient, done);
    });
  }
  LH_ASSIGN(const auto ends, all->end.wait("an exchange"));
  LH_ASSIGN(const auto faults, all->fault.wait("a sum"));
  for (std::size_t i = 0; i < count; ++i) {  // an exchange belongs to its loop
    state_->members[i]->runtime.loop().post([all, i] { all->parts[i].exchange.reset(); });
  }
  for (const std::string& fault : faults) {
    if (!fault.empty()) return failed(fault);
  }
  return between(start, *std::ranges::max_element(ends));
}

}  // namespace longhaul
