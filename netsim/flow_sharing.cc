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
// After so many attempts to keep a solve local, the whole connected component is solved.
constexpr int kLocalAttempts = 8;

constexpr std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

// ---- Solving -----------------------------------------------------

void FlowNetwork::State::solve() {
  find_first_to_move();
  for (int attempt = 0;; ++attempt) {
    if (attempt == kLocalAttempts) move_component();
    do {
      trace_moving();
    } while (absorb_where_little_is_left());
    share_out();
    if (!find_overload() && !move_uncertified()) break;
  }
  for (const ResourceId id : affected) resources[at(id)].load = resources[at(id)].trial;
  for (std::size_t i = 0; i < moving.size(); ++i) apply_rate(moving[i], movers[i].proposed);
}

/// The new flows, and the fastest on the saturated resources that gained or lost a flow.
void FlowNetwork::State::find_first_to_move() {
  ++epoch;
  moving.clear();
  affected.clear();
  movers.clear();
  hops.clear();
  for (const FlowId id : fresh) {
    move(id);
    for (const Crossing& crossing : path_of(flows[at(id)])) {
      if (!resources[at(crossing.resource)].roomy) touch(crossing.resource);
    }
  }
  for (const ResourceId id : dirty) {
    Resource& resource = resources[at(id)];
    resource.dirty = false;
    if (std::exchange(resource.resized, false)) {
      const bool is_watched = !resource.roomy && !resource.saturated;
      if (is_watched && resource.load < resource.capacity * (1 - kDrift)) continue;
      touch(id);
      resource.binding = !resource.roomy;
      for (const Member& member : members[at(id)]) move(member.flow);
    } else if (resource.saturated) {
      touch(id);
    }
  }
  fresh.clear();
  dirty.clear();
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    if (!resource.was_saturated) continue;
    for (const Member& member : members[at(id)]) {
      if (paces[at(member.flow)].level >= resource.fastest * (1 - kSlack)) move(member.flow);
    }
  }
}

inline void FlowNetwork::State::move(FlowId id) {
  Pace& pace = paces[at(id)];
  if (pace.epoch == epoch) return;
  pace.epoch = epoch;
  pace.mover = static_cast<std::int32_t>(moving.size());
  moving.push_back(id);
}

inline void FlowNetwork::State::touch(ResourceId id) {
  Resource& resource = resources[at(id)];
  if (resource.epoch == epoch) return;
  resource.epoch = epoch;
  resource.was_saturated = resource.saturated;
  resource.was_fastest = resource.fastest;
  resource.binding = resource.saturated && !resource.roomy;
  if (resource.roomy) resource.saturated = false;
  resource.spread = false;
  resource.moving = 0;
  resource.counted = kNone;
  resource.moving_weight = kInfiniteRate;
  affected.push_back(id);
}

/// Counts the moving flows by resource, and what those at rest take.
void FlowNetwork::State::trace_moving() {
  while (movers.size() < moving.size()) {
    const FlowId id = moving[movers.size()];
    const Flow& flow = flows[at(id)];
    const auto index = static_cast<std::int32_t>(movers.size());
    for (const Crossing& crossing : path_of(flow)) {
      Resource& resource = resources[at(crossing.resource)];
      if (resource.roomy) continue;
      touch(crossing.resource);
      ++resource.moving;
      resource.moving_weight = std::min(resource.moving_weight, flow.weight);
      hops.push_back({crossing.resource, index});
    }
    movers.push_back({.rate = paces[at(id)].rate, .unit = flow.unit});
  }
  for (const ResourceId id : affected) {
    Resource& resource = resources[at(id)];
    if (resource.binding && resource.counted != resource.moving) count_resting(id);
  }
}

void FlowNetwork::State::count_resting(ResourceId id) {
  Resource& resource = resources[at(id)];
  resource.counted = resource.moving;
  resource.resting_load = resource.resting_fastest = 0;
  if (resource.moving == resource.size) return;
  for (const Member& member : members[at(id)]) {
    const Pace& pace = paces[at(member.flow)];
    if (pace.epoch == epoch) continue;
    resource.resting_load += pace.rate;
    resource.resting_fastest = std::max(resource.resting_fastest, pace.level);
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
    const double left = resource.capacity - resource.resting_load;
    if (2 * resource.weight * left >= resource.capacity * resource.moving_weight) continue;
    for (const Member& member : members[at(id)]) move(member.flow);
  }
  return moving.size() > before;
}

/// `moving` becomes all flows that are connected to it by finite resources.
void FlowNetwork::State::move_component() {
  for (std::size_t i = 0; i < moving.size(); ++i) {
    for (const Crossing& crossing : path_of(flows[at(moving[i])])) {
      if (resources[at(crossing.resource)].roomy) continue;
      touch(crossing.resource);
      if (std::exchange(resources[at(crossing.resource)].spread, true)) continue;
      for (const Member& member : members[at(crossing.resource)]) move(member.flow);
    }
  }
}

/// Proposes the max-min rates of the moving flows in what those at rest leave of the binding
/// resources.
void FlowNetwork::State::share_out() {
  number_shared_resources();
  for (std::size_t i = 0; i < movers.size(); ++i) {
    movers[i].proposed = flows[at(moving[i])].most;
    movers[i].shared = 0;
  }
  path.resize(hops.size());
  std::size_t length = 0;
  for (const Hop& hop : hops) {
    const Resource& resource = resources[at(hop.resource)];
    const bool is_shared = resource.local != kNone;
    path[length] = resource.local;
    length += is_shared;
    movers[at(hop.mover)].shared += is_shared;
  }
  path.resize(length);

  solved.clear();
  caps.clear();
  weights.clear();
  path_begin.assign(1, 0);
  double cap_min = kInfiniteRate;
  double weight = 0;
  for (std::size_t i = 0; i < movers.size(); ++i) {
    const Mover& mover = movers[i];
    if (mover.shared == 0) continue;
    solved.push_back(static_cast<std::int32_t>(i));
    caps.push_back(mover.proposed);
    weights.push_back(flows[at(moving[i])].weight);
    cap_min = std::min(cap_min, mover.proposed * mover.unit);
    weight += weights.back();
    path_begin.push_back(path_begin.back() + mover.shared);
  }
  if (solved.empty()) return;
  rates.resize(solved.size());
  const double level = capacities[0] / weight;
  if (capacities.size() == 1 && level <= cap_min) {
    for (std::size_t i = 0; i < solved.size(); ++i) rates[i] = level * weights[i];
  } else {
    solver.solve(capacities, path_begin, path, caps, weights, rates);
  }
  for (std::size_t i = 0; i < solved.size(); ++i) movers[at(solved[i])].proposed = rates[i];
}

/// Those that a moving flow has to share. What is left of them is the solver's to give.
void FlowNetwork::State::number_shared_resources() {
  capacities.clear();
  for (const ResourceId id : affected) {
    Resource& resource = resources[at(id)];
    resource.trial = resource.binding ? resource.resting_load : resource.load;
    resource.moving_fastest = 0;
    resource.local = kNone;
    if (!resource.binding || resource.moving == 0) continue;
    resource.local = static_cast<std::int32_t>(capacities.size());
    capacities.push_back(resource.capacity - resource.resting_load);
  }
}

/// Loads at the proposed rates; true when they overload a resource that was only watched.
bool FlowNetwork::State::find_overload() {
  for (Mover& mover : movers) {
    mover.level = mover.proposed * mover.unit;
    mover.adds[0] = mover.proposed - mover.rate;
    mover.adds[1] = mover.proposed;
  }
  for (const Hop& hop : hops) {
    const Mover& mover = movers[at(hop.mover)];
    Resource& resource = resources[at(hop.resource)];
    resource.trial += mover.adds[resource.binding];
    resource.moving_fastest = std::max(resource.moving_fastest, mover.level);
  }
  bool overload = false;
  for (const ResourceId id : affected) {
    Resource& resource = resources[at(id)];
    if (resource.binding) {
      // A sum of n rates carries up to n roundings.
      const double slack = kSlack + resource.size * kEpsilon;
      resource.saturated = resource.trial >= resource.capacity * (1 - slack);
      resource.fastest = std::max(resource.resting_fastest, resource.moving_fastest);
    } else if (!resource.roomy && resource.trial >= resource.capacity * (1 - kDrift)) {
      resource.binding = overload = true;
    }
  }
  return overload;
}

bool FlowNetwork::State::certified(FlowId id, double rate, double level) const {
  const Flow& flow = flows[at(id)];
  if (rate >= flow.most) return true;
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
    // Flows at rest relied on this resource only if it was saturated and they its fastest, and
    // still can if they still are.
    if (!resource.was_saturated) continue;
    if (resource.saturated && resource.fastest <= resource.was_fastest) continue;
    const double relied = resource.was_fastest * (1 - kSlack);
    for (const Member& member : members[at(id)]) {
      const Pace& pace = paces[at(member.flow)];
      if (pace.epoch == epoch || pace.level < relied) continue;
      if (!certified(member.flow, pace.rate, pace.level)) move(member.flow);
    }
  }
  return moving.size() > before;
}

/// The flows at rest on this resource that are faster than a moving one without certificate.
void FlowNetwork::State::move_those_who_deny(ResourceId id) {
  double slowest = kInfiniteRate;
  for (const Member& member : members[at(id)]) {
    const Pace& pace = paces[at(member.flow)];
    if (pace.epoch != epoch || at(pace.mover) >= movers.size()) continue;
    const Mover& mover = movers[at(pace.mover)];
    if (mover.level >= slowest) continue;
    if (!certified(member.flow, mover.proposed, mover.level)) slowest = mover.level;
  }
  if (slowest == kInfiniteRate) return;
  for (const Member& member : members[at(id)]) {
    if (paces[at(member.flow)].level > slowest) move(member.flow);
  }
}

}  // namespace longhaul
