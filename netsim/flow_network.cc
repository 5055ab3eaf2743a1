#include "netsim/flow_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/max_min.h"
#include "core/result.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr std::int32_t kNone = -1;

// A resource counts as saturated, and a flow as one of its fastest, within this relative error:
// above rounding, and far below any difference that matters.
constexpr double kSlack = 1e-12;
// Loads that are kept by adding differences drift by one rounding a change: this allows 10^9.
constexpr double kDrift = 1e-6;
// What is left of a flow below this part of its amount is rounding, not bytes.
constexpr double kNothingLeft = 1e-12;
// After so many attempts to keep a solve local, the whole connected component is solved.
constexpr int kLocalAttempts = 8;

constexpr std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

// How a solve stays local. Max-min rates are certified flow by flow: each is at its cap, or crosses
// a saturated resource on which nobody is faster; rates with a certificate for every flow are the
// only max-min rates. So a solve starts from the flows whose certificate a start or an end touches
// (they *move*; the others *rest*), shares among them what the others leave, and looks for resting
// flows that lost their certificate or deny a moving flow its own. Those move too, and it tries
// again. At worst the whole connected component moves; usually one link's flows do.
//
// In the same spirit only *binding* resources take part in the sharing: those that were saturated,
// or that an attempt has overloaded. The others are watched through their load.
//
// The file is longer than most because the parts below are one algorithm on one set of arrays.
struct FlowNetwork::State {
  struct Crossing {  // one step of a flow's path
    ResourceId resource;
    std::int32_t position;  // of the flow in the resource's members
  };
  struct Member {
    FlowId flow;
    std::int32_t crossing;  // index in crossings
  };
  struct Resource {
    double capacity = 0;
    double load = 0;         // sum of the rates, to within kDrift of the capacity
    double fastest = 0;      // the largest rate on it; meaningless unless saturated
    std::int32_t size = 0;   // of its members
    bool dirty = false;      // has lost a flow since the last solve
    bool saturated = false;  // at current rates

    // Scratch of one solve, valid when `epoch` is that of the solve.
    bool was_saturated = false;  // before the solve, as was_fastest
    bool binding = false;
    bool spread = false;  // all members were made to move
    std::uint64_t epoch = 0;
    std::int32_t moving = 0;     // members that move
    std::int32_t local = kNone;  // index in the solver's input
    double was_fastest = 0;
    double trial = 0;  // load at the proposed rates; before the sharing, of resting members
    double resting_fastest = 0;  // among resting members, if binding
    double moving_fastest = 0;   // among moving members, at the proposed rates
  };
  struct Flow {  // what a solve reads
    double rate = 0;
    double proposed = 0;  // valid while it moves
    double cap = 0;
    std::uint64_t epoch = 0;      // of the last solve in which it moved
    std::int32_t path_begin = 0;  // its crossings, finite resources only
    std::int32_t path_size = 0;
    std::int32_t path_room = 0;
  };
  struct Progress {  // what a change of rate reads besides
    double amount = 0;
    double remaining = 0;  // at `updated`
    SimTime updated;
    std::uint64_t sequence = 0;       // order of starts
    std::int32_t heap_index = kNone;  // of its event; kNone until its first rate is known
    bool running = false;
  };
  struct Event {
    SimTime time;
    std::uint64_t sequence;
    FlowId flow;
    bool before(const Event& other) const {
      return time != other.time ? time < other.time : sequence < other.sequence;
    }
  };

  std::vector<Resource> resources;
  std::vector<std::vector<Member>> members;  // of each resource
  std::vector<Flow> flows;
  std::vector<Progress> progress;  // of each flow
  std::vector<Crossing> crossings;
  std::vector<FlowId> free_flows;
  // A binary heap with the earliest on top. It is updated in place (each flow knows its index),
  // because a solve moves the ends of many flows a little and most of them need not change places.
  std::vector<Event> events;
  SimTime now;
  std::size_t running = 0;
  std::uint64_t starts = 0;

  // What changed since the last solve.
  std::vector<FlowId> fresh;
  std::vector<ResourceId> dirty;

  // Scratch of one solve.
  std::uint64_t epoch = 0;
  std::vector<FlowId> moving;
  std::vector<ResourceId> affected;  // crossed by a moving flow, or dirty
  std::size_t traced = 0;            // moving flows whose resources are in `affected`
  std::vector<FlowId> solved;        // the solver's flows
  std::vector<double> capacities, caps, rates;
  std::vector<std::int32_t> path_begin, path;
  MaxMinSolver solver;

  std::span<const Crossing> path_of(const Flow& flow) const {
    return {crossings.data() + flow.path_begin, at(flow.path_size)};
  }

  FlowId admit(std::span<const ResourceId> whole_path, double amount, double cap);
  void give_path(Flow& flow, std::span<const ResourceId> whole_path);
  void leave(FlowId id);

  void apply_rate(FlowId id, double rate);
  void schedule(FlowId id, SimTime time);
  void place(std::size_t index, const Event& event);
  void sift(std::size_t index, const Event& event);
  FlowId pop_event();

  bool stale() const { return !fresh.empty() || !dirty.empty(); }
  void solve();
  void find_first_to_move();
  void move(FlowId id);
  void touch(ResourceId id);
  void trace_moving();
  bool absorb_where_little_is_left();
  void move_component();
  void share_out();
  bool find_overload();
  bool certified(double rate, const Flow& flow) const;
  bool move_uncertified();
  void move_those_who_deny(ResourceId id);
};

// ---- Flows come and go -------------------------------------------

FlowId FlowNetwork::State::admit(std::span<const ResourceId> whole_path, double amount,
                                 double cap) {
  if (free_flows.empty()) {
    free_flows.push_back(static_cast<FlowId>(flows.size()));
    flows.emplace_back();
    progress.emplace_back();
  }
  const FlowId id = free_flows.back();
  free_flows.pop_back();
  Flow& flow = flows[at(id)];
  flow.rate = 0;
  flow.cap = cap;
  flow.path_size = 0;
  progress[at(id)] = {amount, amount, now, ++starts, kNone, true};
  ++running;
  if (amount == 0) {  // takes nothing from anybody
    schedule(id, now);
    return id;
  }
  give_path(flow, whole_path);
  if (flow.path_size == 0) {  // meets nobody: its rate is final
    apply_rate(id, cap);
    return id;
  }
  for (std::int32_t i = flow.path_begin; i < flow.path_begin + flow.path_size; ++i) {
    const ResourceId resource = crossings[at(i)].resource;
    crossings[at(i)].position = resources[at(resource)].size++;
    members[at(resource)].push_back({id, i});
  }
  fresh.push_back(id);
  return id;
}

/// Keeps the finite resources. A slot's room only grows, by doubling, so that the space of paths
/// stays within a small multiple of what the longest paths need.
void FlowNetwork::State::give_path(Flow& flow, std::span<const ResourceId> whole_path) {
  const auto size = static_cast<std::int32_t>(whole_path.size());
  if (flow.path_room < size) {
    flow.path_room = std::max(size, 2 * flow.path_room);
    flow.path_begin = static_cast<std::int32_t>(crossings.size());
    crossings.resize(crossings.size() + at(flow.path_room));
  }
  for (const ResourceId id : whole_path) {
    LH_CHECK(id >= 0 && at(id) < resources.size(), "paths are made of ids from add_resource");
    if (resources[at(id)].capacity == kInfinity) continue;
    for (const Crossing& crossing : path_of(flow)) {
      LH_CHECK(crossing.resource != id, "a flow crosses a resource once");
    }
    crossings[at(flow.path_begin + flow.path_size++)] = {id, 0};
  }
}

void FlowNetwork::State::leave(FlowId id) {
  const Flow& flow = flows[at(id)];
  for (const Crossing& crossing : path_of(flow)) {
    std::vector<Member>& list = members[at(crossing.resource)];
    const Member last = list.back();
    list[at(crossing.position)] = last;
    crossings[at(last.crossing)].position = crossing.position;
    list.pop_back();
    Resource& resource = resources[at(crossing.resource)];
    resource.load = --resource.size == 0 ? 0 : resource.load - flow.rate;
    if (resource.dirty) continue;
    resource.dirty = true;
    dirty.push_back(crossing.resource);
  }
  progress[at(id)].running = false;
  free_flows.push_back(id);
  --running;
}

// ---- Progress and completions ------------------------------------

/// Brings the flow's remaining bytes up to `now` and books its end at the new rate.
void FlowNetwork::State::apply_rate(FlowId id, double rate) {
  Flow& flow = flows[at(id)];
  if (rate == flow.rate) return;
  Progress& part = progress[at(id)];
  if (part.updated < now) {
    part.remaining -= flow.rate * (now - part.updated).seconds().value();
    part.updated = now;
  }
  flow.rate = rate;
  // What ends at this instant does so at any rate.
  if (part.heap_index != kNone && events[at(part.heap_index)].time == now) return;
  if (part.remaining <= kNothingLeft * part.amount || rate == kInfinity) {
    part.remaining = 0;
    schedule(id, now);
    return;
  }
  // SimTime holds 106 days; what would end later than that never ends.
  const Seconds time(part.remaining / rate);
  const bool fits = time < (SimTime::never() - now).seconds() - seconds(1);
  schedule(id, fits ? now + SimTime::from(time) : SimTime::never());
}

void FlowNetwork::State::schedule(FlowId id, SimTime time) {
  const Progress& part = progress[at(id)];
  std::size_t index = at(part.heap_index);
  if (part.heap_index == kNone) {
    index = events.size();
    events.emplace_back();
  }
  sift(index, {time, part.sequence, id});
}

void FlowNetwork::State::place(std::size_t index, const Event& event) {
  events[index] = event;
  progress[at(event.flow)].heap_index = static_cast<std::int32_t>(index);
}

/// Finds the place of `event`, starting from the hole at `index`.
void FlowNetwork::State::sift(std::size_t index, const Event& event) {
  while (index > 0) {
    const std::size_t parent = (index - 1) / 2;
    if (!event.before(events[parent])) break;
    place(index, events[parent]);
    index = parent;
  }
  for (std::size_t child; (child = 2 * index + 1) < events.size(); index = child) {
    if (child + 1 < events.size() && events[child + 1].before(events[child])) ++child;
    if (!events[child].before(event)) break;
    place(index, events[child]);
  }
  place(index, event);
}

FlowId FlowNetwork::State::pop_event() {
  const FlowId id = events.front().flow;
  const Event last = events.back();
  events.pop_back();
  if (!events.empty()) sift(0, last);
  progress[at(id)].heap_index = kNone;
  return id;
}

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
    resources[at(id)].dirty = false;
    if (resources[at(id)].saturated) touch(id);
  }
  fresh.clear();
  dirty.clear();
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    if (!resource.saturated) continue;
    for (const Member& member : members[at(id)]) {
      if (flows[at(member.flow)].rate >= resource.fastest * (1 - kSlack)) move(member.flow);
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
  affected.push_back(id);
}

/// Counts the moving flows by resource, and what those at rest take.
void FlowNetwork::State::trace_moving() {
  for (; traced < moving.size(); ++traced) {
    for (const Crossing& crossing : path_of(flows[at(moving[traced])])) {
      touch(crossing.resource);
      ++resources[at(crossing.resource)].moving;
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
      resource.resting_fastest = std::max(resource.resting_fastest, flow.rate);
    }
  }
}

/// A moving flow limited by a resource gets at least the mean of those at rest there. Where much
/// less than that is left, some of them must give, and the small difference would be mere rounding.
bool FlowNetwork::State::absorb_where_little_is_left() {
  const std::size_t before = moving.size();
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    if (!resource.binding || resource.moving == 0) continue;
    if (2 * resource.size * (resource.capacity - resource.trial) >= resource.capacity) continue;
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
  path.clear();
  path_begin.assign(1, 0);
  double cap_min = kInfinity;
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
    cap_min = std::min(cap_min, cap);
    path_begin.push_back(static_cast<std::int32_t>(path.size()));
  }
  if (solved.empty()) return;
  rates.resize(solved.size());
  const double equal = capacities[0] / static_cast<double>(solved.size());
  if (capacities.size() == 1 && equal <= cap_min) {
    std::fill(rates.begin(), rates.end(), equal);
  } else {
    solver.solve(capacities, path_begin, path, caps, rates);
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
      resource.moving_fastest = std::max(resource.moving_fastest, flow.proposed);
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
  for (const Crossing& crossing : path_of(flow)) {
    const Resource& resource = resources[at(crossing.resource)];
    if (resource.saturated && rate >= resource.fastest * (1 - kSlack)) return true;
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
  double slowest = kInfinity;
  for (const Member& member : members[at(id)]) {
    const Flow& flow = flows[at(member.flow)];
    if (flow.epoch != epoch || flow.proposed >= slowest) continue;
    if (!certified(flow.proposed, flow)) slowest = flow.proposed;
  }
  if (slowest == kInfinity) return;
  for (const Member& member : members[at(id)]) {
    if (flows[at(member.flow)].rate > slowest) move(member.flow);
  }
}

// ---- The public face ---------------------------------------------

FlowNetwork::FlowNetwork() : state_(std::make_unique<State>()) {}
FlowNetwork::~FlowNetwork() = default;
FlowNetwork::FlowNetwork(FlowNetwork&&) noexcept = default;
FlowNetwork& FlowNetwork::operator=(FlowNetwork&&) noexcept = default;

std::vector<BytesPerSecond> FlowNetwork::capacities() const {
  std::vector<BytesPerSecond> capacities;
  for (const State::Resource& resource : state_->resources) {
    capacities.push_back(BytesPerSecond(resource.capacity));
  }
  return capacities;
}

ResourceId FlowNetwork::add_resource(BytesPerSecond capacity) {
  LH_CHECK(capacity.value() > 0, "a resource without capacity would hold its flows for ever");
  state_->resources.emplace_back().capacity = capacity.value();
  state_->members.emplace_back();
  return static_cast<ResourceId>(state_->resources.size() - 1);
}

FlowId FlowNetwork::start(SimTime now, std::span<const ResourceId> path, Bytes amount,
                          BytesPerSecond cap) {
  LH_CHECK(now >= state_->now, "time does not go backwards");
  LH_CHECK(amount.value() >= 0 && amount.finite(), "a flow moves a number of bytes");
  LH_CHECK(cap.value() > 0, "a flow that may not move would never end");
  if (now > state_->now) {
    LH_CHECK(now <= next_completion(), "pop the flows that ended before");
    state_->now = now;
  }
  return state_->admit(path, amount.value(), cap.value());
}

SimTime FlowNetwork::next_completion() {
  const std::vector<State::Event>& events = state_->events;
  // What ends at this very instant ends whatever the rates become, so a batch of flows that end
  // together costs one solve.
  if (!events.empty() && events.front().time == state_->now) return state_->now;
  if (state_->stale()) state_->solve();
  return events.empty() ? SimTime::never() : events.front().time;
}

FlowId FlowNetwork::pop_completed() {
  const SimTime time = next_completion();
  LH_CHECK(time != SimTime::never(), "no flow is about to end");
  state_->now = time;
  const FlowId id = state_->pop_event();
  state_->leave(id);
  return id;
}

BytesPerSecond FlowNetwork::rate(FlowId flow) {
  LH_CHECK(flow >= 0 && at(flow) < state_->flows.size() && state_->progress[at(flow)].running,
           "only running flows have a rate");
  if (state_->stale()) state_->solve();
  return BytesPerSecond(state_->flows[at(flow)].rate);
}

std::size_t FlowNetwork::running() const {
  return state_->running;
}

}  // namespace longhaul
