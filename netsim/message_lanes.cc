#include "netsim/message_lanes.h"

#include <algorithm>

#include "core/result.h"

namespace longhaul {

void MessageLanes::start(SimTime now, const NetworkPath& path, Bytes amount, double weight,
                         std::int32_t tag) {
  const auto index = static_cast<std::size_t>(path.lane);
  if (index >= lanes_.size()) lanes_.resize(index + 1);
  Lane& lane = lanes_[index];
  if (lane.messages.empty()) {
    lane.path = &path;
    lane.weight = weight;
    lane.served = 0;
  } else {
    const auto count = static_cast<double>(lane.messages.size());
    lane.served = lane.messages.top().end - network_.remaining(now, lane.flow).value() / count;
    network_.stop(now, lane.flow);
  }
  lane.messages.push({lane.served + amount.value(), ++starts_, tag});
  restart(now, path.lane);
}

std::int32_t MessageLanes::pop_completed() {
  const SimTime now = network_.next_completion();
  const FlowId flow = network_.pop_completed();
  const std::int32_t index = lane_of_flow_[static_cast<std::size_t>(flow)];
  Lane& lane = lanes_[static_cast<std::size_t>(index)];
  const Message message = lane.messages.top();
  lane.messages.pop();
  lane.served = message.end;
  if (!lane.messages.empty()) restart(now, index);
  return message.tag;
}

void MessageLanes::restart(SimTime now, std::int32_t index) {
  Lane& lane = lanes_[static_cast<std::size_t>(index)];
  const auto count = static_cast<double>(lane.messages.size());
  const double left = std::max(0.0, lane.messages.top().end - lane.served);
  lane.flow = network_.start(now, lane.path->resources, Bytes(count * left), count * lane.path->cap,
                             count * lane.weight);
  const auto flow = static_cast<std::size_t>(lane.flow);
  if (flow >= lane_of_flow_.size()) lane_of_flow_.resize(flow + 1);
  lane_of_flow_[flow] = index;
}

}  // namespace longhaul
