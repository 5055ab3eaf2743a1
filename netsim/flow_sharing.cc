// The rates of a FlowNetwork: see flow_network_state.h for how a solve stays local.
#include <algorithm>
#include <utility>

#include "core/result.h"
#include "netsim/flow_network_state.h"

namespace longhaul {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr std::int32_t kNone = -1;

// A resource counts as saturated, and a flow as one of its fastest, within this relative error:
// above rounding, and far below any difference that matters.
constexpr double kSlack = 1e-12;
// Loads that are kept by adding differences drift by one rounding a change: this allows 10^9.
constexpr double kDrift = 1e-6;
// After so many attempts to keep a solve local, the whole connected component is solved.
constexpr int kLocalAttempts = 8;

constexpr std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

// ---- Solving -----------------------------------------------------

void FlowNetwork::State::solve() {
  find_first_to_move();
  for (int attempt = 0; !affected.empty(); ++attempt) {
    if (attempt == kLocalAttempts) move_component();
    do {
      trace_moving();
    } while (absorb_where_little_is_left());
    share_out();
    if (!find_overload() && !move_uncertified()) break;
  }
  for (const ResourceId id : affected) resources[at(id)].load = resources[at(id)].trial;
  for (const FlowId id : moving) apply_rate(id, flows[at(id)].proposed);
}

/// The new flows, and the fastest on the saturated resources that gained or lost a flow.
void FlowNetwork::State::find_first_to_move() {
  ++epoch;
  moving.clear();
  affected.clear();
  traced = 0;
  for (const FlowId id : fresh) {
    move(id);
    for (const Crossing& crossing : path_of(flows[at(id)])) touch(crossing.resource);
  }
  for (const ResourceId id : dirty) {
    Resource& resource = resources[at(id)];
    resource.dirty = false;
    if (std::exchange(resource.resized, false)) {
      if (!resource.saturated && resource.load < resource.capacity * (1 - kDrift)) continue;
      touch(id);
      resource.binding = true;
      for (const Member& member : members[at(id)]) move(member.flow);
    } else if (resource.saturated) {
      touch(id);
    }
  }
  fresh.clear();
  dirty.clear();
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    if (!resource.saturated) continue;
    for (const Member& member : members[at(id)]) {
      const Flow& flow = flows[at(member.flow)];
      if (flow.rate * flow.unit >= resource.fastest * (1 - kSlack)) move(member.flow);
    }
  }
}

inline void FlowNetwork::State::move(FlowId id) {
  if (flows[at(id)].epoch == epoch) return;
  flows[at(id)].epoch = epoch;
  moving.push_back(id);
}

inline void FlowNetwork::State::touch(ResourceId id) {
  Resource& resource = resources[at(id)];
  if (resource.epoch == epoch) return;
  resource.epoch = epoch;
  resource.was_saturated = resource.saturated;
  resource.was_fastest = resource.fastest;
  resource.binding = resource.saturated || resource.size == 1;
  resource.spread = false;
  resource.moving = 0;
  resource.moving_weight = kInfiniteRate;
  affected.push_back(id);
}

/// Counts the moving flows by resource, and what those at rest take.
void FlowNetwork::State::trace_moving() {
  for (; traced < moving.size(); ++traced) {
    for (const Crossing& crossing : path_of(flows[at(moving[traced])])) {
      touch(crossing.resource);
      Resource& resource = resources[at(crossing.resource)];
      ++resource.moving;
      resource.moving_weight = std::min(resource.moving_weight, flows[at(moving[traced])].weight);
    }
  }
  for (const ResourceId id : affected) {
    Resource& resource = resources[at(id)];
    resource.local = kNone;
    resource.moving_fastest = resource.resting_fastest = 0;
    resource.trial = resource.binding ? 0 : resource.load;
    if (!resource.binding || resource.moving == resource.size) continue;
    for (const Member& member : members[at(id)]) {
      const Flow& flow = flows[at(member.flow)];
      if (flow.epoch == epoch) continue;
      resource.trial += flow.rate;
      resource.resting_fastest = std::max(resource.resting_fastest, flow.rate * flow.unit);
    }
  }
}

/// A moving flow limited by a resource gets at least the mean level of those at rest there. Where
/// much less than that is left, some of them must give, and the small difference would be mere
/// rounding.
bool FlowNetwork::State::absorb_where_little_is_left() {
  const std::size_t before = moving.size();
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    if (!resource.binding || resource.moving == 0) continue;
    const double left = resource.capacity - resource.trial;
    if (2 * resource.weight * left >= resource.capacity * resource.moving_weight) continue;
    for (const Member& member : members[at(id)]) move(member.flow);
  }
  return moving.size() > before;
}

/// `moving` becomes all flows that are connected to it by finite resources.
void FlowNetwork::State::move_component() {
  for (std::size_t i = 0; i < moving.size(); ++i) {
    for (const Crossing& crossing : path_of(flows[at(moving[i])])) {
      touch(crossing.resource);
      if (std::exchange(resources[at(crossing.resource)].spread, true)) continue;
      for (const Member& member : members[at(crossing.resource)]) move(member.flow);
    }
  }
}

/// Proposes the max-min rates of the moving flows in what those at rest leave of the binding
/// resources.
void FlowNetwork::State::share_out() {
  solved.clear();
  capacities.clear();
  caps.clear();
  weights.clear();
  path.clear();
  path_begin.assign(1, 0);
  double cap_min = kInfiniteRate;
  double weight = 0;
  for (const FlowId id : moving) {
    Flow& flow = flows[at(id)];
    double cap = flow.cap;
    for (const Crossing& crossing : path_of(flow)) {
      Resource& resource = resources[at(crossing.resource)];
      if (!resource.binding || resource.size == 1) {
        // With nobody to share with, a capacity is a cap by another name.
        cap = std::min(cap, resource.capacity);
        continue;
      }
      if (resource.local == kNone) {
        resource.local = static_cast<std::int32_t>(capacities.size());
        capacities.push_back(resource.capacity - resource.trial);
      }
      path.push_back(resource.local);
    }
    if (static_cast<std::int32_t>(path.size()) == path_begin.back()) {
      flow.proposed = cap;
      continue;
    }
    solved.push_back(id);
    caps.push_back(cap);
    weights.push_back(flow.weight);
    cap_min = std::min(cap_min, cap * flow.unit);
    weight += flow.weight;
    path_begin.push_back(static_cast<std::int32_t>(path.size()));
  }
  if (solved.empty()) return;
  rates.resize(solved.size());
  const double level = capacities[0] / weight;
  if (capacities.size() == 1 && level <= cap_min) {
    for (std::size_t i = 0; i < solved.size(); ++i) rates[i] = level * weights[i];
  } else {
    solver.solve(capacities, path_begin, path, caps, weights, rates);
  }
  for (std::size_t i = 0; i < solved.size(); ++i) flows[at(solved[i])].proposed = rates[i];
}

/// Loads at the proposed rates; true when they overload a resource that was only watched.
bool FlowNetwork::State::find_overload() {
  for (const FlowId id : moving) {
    const Flow& flow = flows[at(id)];
    for (const Crossing& crossing : path_of(flow)) {
      Resource& resource = resources[at(crossing.resource)];
      resource.trial += resource.binding ? flow.proposed : flow.proposed - flow.rate;
      resource.moving_fastest = std::max(resource.moving_fastest, flow.proposed * flow.unit);
    }
  }
  bool overload = false;
  for (const ResourceId id : affected) {
    Resource& resource = resources[at(id)];
    if (resource.binding) {
      // A sum of n rates carries up to n roundings.
      const double slack = kSlack + resource.size * kEpsilon;
      resource.saturated = resource.trial >= resource.capacity * (1 - slack);
      resource.fastest = std::max(resource.resting_fastest, resource.moving_fastest);
    } else if (resource.trial >= resource.capacity * (1 - kDrift)) {
      resource.binding = overload = true;
    }
  }
  return overload;
}

bool FlowNetwork::State::certified(double rate, const Flow& flow) const {
  if (rate >= flow.cap) return true;
  const double level = rate * flow.unit;
  for (const Crossing& crossing : path_of(flow)) {
    const Resource& resource = resources[at(crossing.resource)];
    if (resource.saturated && level >= resource.fastest * (1 - kSlack)) return true;
  }
  return false;
}

/// Lets move what stands against the proposed rates; false when nothing does.
bool FlowNetwork::State::move_uncertified() {
  const std::size_t before = moving.size();
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    if (resource.moving == resource.size) continue;
    // The solver has certified the moving flows as long as none at rest is faster.
    if (resource.saturated && resource.moving > 0 &&
        resource.resting_fastest > resource.moving_fastest) {
      move_those_who_deny(id);
    }
    // Flows at rest relied on this resource only if it was saturated, and still can if their rate
    // is still its fastest.
    if (!resource.was_saturated) continue;
    if (resource.saturated && resource.fastest <= resource.was_fastest) continue;
    for (const Member& member : members[at(id)]) {
      const Flow& flow = flows[at(member.flow)];
      if (flow.epoch != epoch && !certified(flow.rate, flow)) move(member.flow);
    }
  }
  return moving.size() > before;
}

/// The flows at rest on this resource that are faster than a moving one without certificate.
void FlowNetwork::State::move_those_who_deny(ResourceId id) {
  double slowest = kInfiniteRate;
  for (const Member& member : members[at(id)]) {
    const Flow& flow = flows[at(member.flow)];
    const double level = flow.proposed * flow.unit;
    if (flow.epoch != epoch || level >= slowest) continue;
    if (!certified(flow.proposed, flow)) slowest = level;
  }
  if (slowest == kInfiniteRate) return;
  for (const Member& member : members[at(id)]) {
    const Flow& flow = flows[at(member.flow)];
    if (flow.rate * flow.unit > slowest) move(member.flow);
  }
}

}  // namespace longhaul
