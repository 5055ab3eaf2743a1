// Messages over a FlowNetwork, those of one path as one flow.
//
// Messages on the same path share everything, so they always have the same rate: n of them are one
// flow of weight n, and which one ends next follows from the bytes that each has been served since
// it began. A step's traffic is highly symmetric, and a solve then sees paths instead of messages.
// Belongs to one thread.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "core/units.h"
#include "netsim/flow_network.h"
#include "netsim/network_paths.h"

namespace longhaul {

class MessageLanes {
 public:
  explicit MessageLanes(FlowNetwork& network) : network_(network) {}

  /// A message of `amount` bytes on a path, which must live as long as this; all of a path have one
  /// weight. `tag` is what pop_completed answers.
  void start(SimTime now, const NetworkPath& path, Bytes amount, double weight, std::int32_t tag);
  /// Takes the message that ends at the network's next_completion(); of several of one path the
  /// first that was started.
  std::int32_t pop_completed();

 private:
  struct Message {
    double end = 0;  // service at which it has all its bytes
    std::uint64_t sequence = 0;
    std::int32_t tag = 0;
    bool operator>(const Message& other) const {
      return end != other.end ? end > other.end : sequence > other.sequence;
    }
  };
  struct Lane {
    const NetworkPath* path = nullptr;
    double weight = 1;
    double served = 0;  // bytes of each message since the lane was last empty
    FlowId flow = -1;
    std::priority_queue<Message, std::vector<Message>, std::greater<>> messages;
  };

  /// Starts the flow of what the lane still has to do until its next message ends.
  void restart(SimTime now, std::int32_t lane);

  FlowNetwork& network_;
  std::vector<Lane> lanes_;  // by NetworkPath::lane
  std::vector<std::int32_t> lane_of_flow_;
  std::uint64_t starts_ = 0;
};

}  // namespace longhaul
