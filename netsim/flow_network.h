// Flow-level network in virtual time: flows share resources max-min fairly by their weights, rates
// change only when a flow starts or ends or a capacity changes, and only in the connected component
// that the change touches.
//
// Use: start flows at the current time, ask next_completion(), and pop the flows that end then.
// Flows started at one instant are solved together, lazily, when the next completion is asked for.
// Deterministic: flows that end at one instant are popped in the order of their start.
// No latency here: the caller adds it when a flow ends. Belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/units.h"

namespace longhaul {

using ResourceId = std::int32_t;
using FlowId = std::int32_t;

class FlowNetwork {
 public:
  FlowNetwork();
  ~FlowNetwork();
  FlowNetwork(FlowNetwork&&) noexcept;
  FlowNetwork& operator=(FlowNetwork&&) noexcept;

  /// Capacity > 0, may be infinite. Ids count from 0.
  ResourceId add_resource(BytesPerSecond capacity);
  /// Of all resources, by id.
  std::vector<BytesPerSecond> capacities() const;

  /// Starts a flow of `amount` bytes (>= 0) that never exceeds `cap`; its share of a full resource
  /// is as its weight (> 0) to those of the others. n equal flows are one of n times the amount,
  /// cap and weight. `now` must not be before any time given earlier, nor after next_completion();
  /// so below. Ids are reused once a flow has been popped or stopped.
  FlowId start(SimTime now, std::span<const ResourceId> path, Bytes amount, BytesPerSecond cap,
               double weight = 1);
  /// Ends a running flow before its time.
  void stop(SimTime now, FlowId flow);
  /// What a running flow has not moved yet.
  Bytes remaining(SimTime now, FlowId flow);
  /// Another finite capacity for a finite resource; with 0 its flows wait.
  void set_capacity(SimTime now, ResourceId id, BytesPerSecond capacity);

  /// When the earliest flow ends at current rates; SimTime::never() when there is no flow.
  SimTime next_completion();
  /// Removes the flow that ends at next_completion() (the first started, of several). There is one.
  FlowId pop_completed();

  /// The rate of a running flow after the last solve.
  BytesPerSecond rate(FlowId flow);
  std::size_t running() const;

 private:
  void advance(SimTime now);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
