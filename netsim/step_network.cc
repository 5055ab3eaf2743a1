#include "netsim/step_network.h"

#include <algorithm>
#include <cmath>

#include "core/hash.h"

namespace longhaul {
namespace {

/// Below it, round trips count as equal: processing takes that long.
constexpr Seconds kRoundTripMin(10e-6);

/// In [0, 1).
double uniform(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

SimTime on_clock(Seconds time) {
  return SimTime::from(std::min(time, kLongestStep));
}

StepNetwork::StepNetwork(const Topology& topology, const Conditions* conditions, Seconds begin,
                         std::uint64_t step)
    : topology_(topology),
      conditions_(conditions),
      begin_(begin),
      paths_(topology, network_, conditions == nullptr || !conditions->replay),
      lanes_(network_) {
  if (conditions_ == nullptr) return;
  stream_ = mix(mix(conditions_->seed) ^ step);
  background_.assign(conditions_->background.size(), -1);
  if (conditions_->sharing == Sharing::kTurns) {
    turns_.resize(topology.sites.size() * topology.sites.size());
  }
  change(SimTime());
}

SimTime StepNetwork::when(Seconds time) const {
  const Seconds from_begin = time - begin_;
  return from_begin < kLongestStep ? SimTime::from(from_begin) : SimTime::never();
}

/// Brings replayed links and background traffic to what they are from now on.
void StepNetwork::change(SimTime now) {
  const Seconds time = time_of_run(now);
  if (conditions_->replay) {
    for (int from = 0; from < topology_.site_count(); ++from) {
      for (int to = 0; to < topology_.site_count(); ++to) {
        const LinkReplay::State& state = conditions_->replay->at(from, to, time);
        const bool is_pipe = topology_.link(from, to).scope == LinkScope::kSitePair;
        paths_.set_rate(now, from, to, is_pipe ? state.pipe : state.rate);
      }
    }
  }
  for (std::size_t i = 0; i < background_.size(); ++i) {
    const Background& traffic = conditions_->background[i];
    const bool is_on = traffic.window.contains(time);
    FlowId& flow = background_[i];
    if (is_on && flow < 0) {
      constexpr Bytes kForever(1e30);
      const std::vector<ResourceId> path = paths_.between_sites(traffic.from_site, traffic.to_site);
      const double share =
          weight(paths_.round_trip(traffic.from_site, traffic.to_site)) * traffic.flows;
      flow = network_.start(now, path, kForever, traffic.rate, share);
    } else if (!is_on && flow >= 0) {
      network_.stop(now, flow);
      flow = -1;
    }
  }
  // A change that rounds to this very moment has been made.
  Seconds next = conditions_->next_change(time);
  while (next.finite() && when(next) <= now) next = conditions_->next_change(next);
  next_change_ = next.finite() ? when(next) : SimTime::never();
}

StepNetwork::Turn* StepNetwork::turn_of(const NetworkMessage& message) {
  if (turns_.empty()) return nullptr;
  const int from = topology_.site_of(message.from_device);
  const int to = topology_.site_of(message.to_device);
  const bool is_shared = topology_.link(from, to).scope == LinkScope::kSitePair ||
                         topology_.sites[static_cast<std::size_t>(from)].uplink.finite() ||
                         topology_.sites[static_cast<std::size_t>(to)].downlink.finite();
  if (from == to || !is_shared) return nullptr;
  return &turns_[static_cast<std::size_t>(from * topology_.site_count() + to)];
}

std::int32_t StepNetwork::connection_of(const NetworkMessage& message) {
  const auto key = static_cast<std::uint64_t>(message.from_device) << 32 |
                   static_cast<std::uint32_t>(message.to_device);
  const auto [entry, is_new] =
      connection_of_.try_emplace(key, static_cast<std::int32_t>(connections_.size()));
  if (is_new)
    connections_.push_back({.path = &paths_.path(message.from_device, message.to_device)});
  return entry->second;
}

void StepNetwork::send(SimTime now, const NetworkMessage& message) {
  ++messages_;
  const std::int32_t tag = message.tag;
  if (static_cast<std::size_t>(tag) >= queued_.size()) {
    queued_.resize(static_cast<std::size_t>(tag) + 1);
  }
  const std::int32_t index = connection_of(message);
  queued(tag) = {message, index, -1};
  Connection& connection = connections_[static_cast<std::size_t>(index)];
  if (!connection.busy) {
    connection.busy = true;
    take_turn(now, tag);
  } else if (connection.first < 0) {
    connection.first = connection.last = tag;
  } else {
    queued(connection.last).next = tag;
    connection.last = tag;
  }
}

void StepNetwork::take_turn(SimTime now, std::int32_t tag) {
  const NetworkMessage& message = queued(tag).message;
  if (Turn* turn = turn_of(message); turn != nullptr) {
    const bool is_others = turn->running > 0 && turn->pipeline != message.pipeline;
    if (is_others || !turn->waiting.empty()) {
      turn->waiting.push_back(tag);
      return;
    }
    turn->pipeline = message.pipeline;
    ++turn->running;
  }
  begin_message(now, tag);
}

void StepNetwork::begin_message(SimTime now, std::int32_t tag) {
  const Queued& message = queued(tag);
  const NetworkPath& path = *connections_[static_cast<std::size_t>(message.connection)].path;
  lanes_.start(now, path, message.message.wire, weight(2 * path.latency), tag);
}

/// A flow's share of what is full.
double StepNetwork::weight(Seconds round_trip) const {
  if (conditions_ == nullptr || conditions_->sharing != Sharing::kRtt) return 1;
  return 1 / std::max(kRoundTripMin, round_trip).value();
}

SimTime StepNetwork::next_event() {
  return std::min(network_.next_completion(), next_change_);
}

std::optional<std::int32_t> StepNetwork::advance() {
  const SimTime end = network_.next_completion();
  if (next_change_ < end) {
    change(next_change_);
    return std::nullopt;
  }
  const std::int32_t tag = lanes_.pop_completed();
  const NetworkMessage message = queued(tag).message;
  Connection& connection = connections_[static_cast<std::size_t>(queued(tag).connection)];
  --messages_;
  if (Turn* turn = turn_of(message); turn != nullptr) {
    --turn->running;
    while (!turn->waiting.empty()) {
      const std::int32_t next = turn->waiting.front();
      const int pipeline = queued(next).message.pipeline;
      if (turn->running > 0 && pipeline != turn->pipeline) break;
      turn->waiting.pop_front();
      turn->pipeline = pipeline;
      ++turn->running;
      begin_message(end, next);
    }
  }
  const std::int32_t next = connection.first;
  if (next < 0) {
    connection.busy = false;
  } else {
    connection.first = queued(next).next;
    take_turn(end, next);
  }
  return tag;
}

SimTime StepNetwork::latency(SimTime now, int from_site, int to_site, std::uint64_t name) const {
  const Link& link = topology_.link(from_site, to_site);
  if (conditions_ == nullptr) return on_clock(link.latency);
  Seconds latency = link.latency;
  if (conditions_->replay) {
    latency = conditions_->replay->at(from_site, to_site, time_of_run(now)).latency;
  }
  if (!conditions_->jitter) return on_clock(latency);
  // The shortest way and a queue on it: exponential with the jitter as its mean and deviation, so
  // that the mean stays what was measured.
  const std::uint64_t bits = mix(stream_ ^ mix(name));
  const Seconds queue = std::min(link.jitter, latency);
  Seconds varied = latency - queue - std::log1p(-uniform(bits)) * queue;
  // A message ends with its last packet. Where that is lost, the sender notices after a round trip
  // (tail loss probe, RFC 8985) and sends it again; losses before it cost rate, which the link's
  // own rate has in it.
  if (uniform(mix(bits)) < link.loss) varied = varied + 2 * latency;
  return on_clock(varied);
}

SimTime StepNetwork::device_latency(SimTime now, int from_device, int to_device,
                                    std::uint64_t name) const {
  if (topology_.node_of(from_device) == topology_.node_of(to_device)) {
    return on_clock(topology_.latency(from_device, to_device));
  }
  return latency(now, topology_.site_of(from_device), topology_.site_of(to_device), name);
}

}  // namespace longhaul
