// Ranks of a mesh, each in a place of a TunBridge with a thread, an event loop and real TCP
// connections of its own: times of messages and exchanges over the executor's transport, for
// comparison with what the simulator's link model says they take.
//
// One caller, which waits for each measurement.
#pragma once

#include <memory>
#include <vector>

#include "core/result.h"
#include "core/topology.h"
#include "tools/tun_bridge.h"

namespace longhaul {

/// A site with one device a place, joined by links as in the bridge: rates are those of a packet's
/// way, limited by TCP as the model has it. All devices are alike: what they compute ends together.
Topology topology_of(const BridgeOptions& bridge);

class TcpMembers {
 public:
  /// Connects as many ranks as the topology has sites, with the streams that its links ask for.
  static Result<std::unique_ptr<TcpMembers>> connect(const TunBridge& bridge,
                                                     const Topology& topology);
  ~TcpMembers();
  TcpMembers(const TcpMembers&) = delete;
  TcpMembers& operator=(const TcpMembers&) = delete;

  /// From the call of send() at rank 0 until all is there at rank 1. Error (kFailed): it did not
  /// come in a minute.
  Result<Seconds> message(Bytes size);
  /// A sharded all-reduce of fp32 between all ranks, from the start at all until the last one has
  /// the sum. Error (kFailed): likewise, or a rank has another sum.
  Result<Seconds> all_reduce(std::size_t elements, const std::vector<double>& shares);

 private:
  struct State;
  explicit TcpMembers(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
