// The network of one step: messages between devices become flows on what they cross, under the
// conditions of the moment. What one device sends another leaves in the order of the calls, one
// message after the other, as on the executor's links (executor/transport/transport_mesh.h).
// Deterministic; belongs to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/topology.h"
#include "core/units.h"
#include "netsim/conditions.h"
#include "netsim/flow_network.h"
#include "netsim/message_lanes.h"
#include "netsim/network_paths.h"

namespace longhaul {

struct NetworkMessage {
  int from_device = 0;
  int to_device = 0;
  Bytes wire;
  int pipeline = 0;      // of its sender: whose turn it is
  std::int32_t tag = 0;  // what advance() answers at its end; no other message has it before that
};

class StepNetwork {
 public:
  /// `conditions` may be null: nothing is unusual. The step begins `begin` after the run.
  /// All must outlive this.
  StepNetwork(const Topology& topology, const Conditions* conditions, Seconds begin,
              std::uint64_t step);

  /// `now` is never before an earlier one, nor after next_event(); counted from the step's begin.
  void send(SimTime now, const NetworkMessage& message);
  /// When a message's last byte leaves or the network changes, whichever is first.
  SimTime next_event();
  /// Takes that event: the tag of the message, or nothing after a change.
  std::optional<std::int32_t> advance();
  /// Messages that have not left yet.
  std::size_t messages() const { return messages_; }

  /// One way, for a message that leaves now. `name` tells messages of a step apart: jitter follows
  /// from it, the step and the seed alone.
  SimTime latency(SimTime now, int from_site, int to_site, std::uint64_t name) const;
  /// The same between devices; inside a node nothing varies.
  SimTime device_latency(SimTime now, int from_device, int to_device, std::uint64_t name) const;

 private:
  /// A pair of sites where pipelines take turns.
  struct Turn {
    int pipeline = -1;
    int running = 0;
    std::deque<std::int32_t> waiting;  // tags
  };
  /// What one device sends another: a message that leaves, and those behind it.
  struct Connection {
    const NetworkPath* path = nullptr;
    std::int32_t first = -1;  // behind; tags, each message with the next one's
    std::int32_t last = -1;
    bool busy = false;
  };
  struct Queued {
    NetworkMessage message;
    std::int32_t connection = -1;
    std::int32_t next = -1;
  };

  Queued& queued(std::int32_t tag) { return queued_[static_cast<std::size_t>(tag)]; }
  void take_turn(SimTime now, std::int32_t tag);
  void begin_message(SimTime now, std::int32_t tag);
  double weight(Seconds round_trip) const;
  std::int32_t connection_of(const NetworkMessage& message);
  Turn* turn_of(const NetworkMessage& message);
  void change(SimTime now);
  Seconds time_of_run(SimTime now) const { return begin_ + now.seconds(); }
  SimTime when(Seconds time_of_run) const;

  const Topology& topology_;
  const Conditions* conditions_;
  Seconds begin_;
  std::uint64_t stream_ = 0;  // of jitter
  FlowNetwork network_;
  NetworkPaths paths_;
  SimTime next_change_ = SimTime::never();
  std::size_t messages_ = 0;
  MessageLanes lanes_;
  std::vector<Queued> queued_;  // by tag
  std::vector<Connection> connections_;
  std::unordered_map<std::uint64_t, std::int32_t> connection_of_;  // by devices; never iterated
  std::vector<FlowId> background_;  // by Conditions::background; -1: not running
  std::vector<Turn> turns_;         // sites x sites
};

/// Simulated time counts 106 days. No step may take more than half of that, so that adding two
/// times never overflows.
inline constexpr Seconds kLongestStep(50.0 * 86400);
/// `time` on the simulated clock, cut at the longest step.
SimTime on_clock(Seconds time);

}  // namespace longhaul
