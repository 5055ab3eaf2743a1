#include "netsim/flow_network.h"

#include <algorithm>
#include <utility>

#include "core/result.h"
#include "netsim/flow_network_state.h"

namespace longhaul {
namespace {

constexpr std::int32_t kNone = -1;

// What is left of a flow below this part of its amount is rounding, not bytes.
constexpr double kNothingLeft = 1e-12;

constexpr std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

// ---- Flows come and go -------------------------------------------

FlowId FlowNetwork::State::admit(std::span<const ResourceId> whole_path, double amount, double cap,
                                 double weight) {
  if (free_flows.empty()) {
    free_flows.push_back(static_cast<FlowId>(flows.size()));
    paces.emplace_back();
    flows.emplace_back();
    progress.emplace_back();
  }
  const FlowId id = free_flows.back();
  free_flows.pop_back();
  Flow& flow = flows[at(id)];
  paces[at(id)].rate = paces[at(id)].level = 0;
  flow.cap = flow.most = cap;
  flow.weight = weight;
  flow.unit = 1 / weight;
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
    resources[at(resource)].weight += weight;
    members[at(resource)].push_back({id, i});
    reserve(resource, flow.most);
  }
  if (!run_alone(id)) fresh.push_back(id);
  return id;
}

/// Where a flow meets nobody, its rate needs no solve.
bool FlowNetwork::State::run_alone(FlowId id) {
  const Flow& flow = flows[at(id)];
  for (const Crossing& crossing : path_of(flow)) {
    if (!resources[at(crossing.resource)].roomy) return false;
  }
  apply_rate(id, flow.most);
  return true;
}

/// Its flows could take so much more, or less.
void FlowNetwork::State::reserve(ResourceId id, double more) {
  Resource& resource = resources[at(id)];
  resource.most += more;
  const bool was_roomy = resource.roomy;
  resource.roomy = resource.size == 1 || resource.most < resource.capacity * (1 - kDrift);
  if (resource.roomy && resource.saturated) mark_dirty(id);
  if (!was_roomy || resource.roomy) return;
  double fastest = 0;
  resource.load = 0;
  for (const Member& member : members[at(id)]) {
    resource.load += paces[at(member.flow)].rate;
    fastest = std::max(fastest, paces[at(member.flow)].level);
  }
  // Where it was saturated after the last solve, the next must know.
  if (resource.saturated || resource.load < resource.capacity) return;
  resource.saturated = true;
  resource.fastest = fastest;
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
    if (resources[at(id)].capacity == kInfiniteRate) continue;
    for (const Crossing& crossing : path_of(flow)) {
      LH_CHECK(crossing.resource != id, "a flow crosses a resource once");
    }
    crossings[at(flow.path_begin + flow.path_size++)] = {id, 0};
    flow.most = std::min(flow.most, resources[at(id)].capacity);
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
    if (--resource.size == 0) {  // nobody is left whose rate could change
      resource.load = resource.weight = resource.most = 0;
      resource.saturated = false;
      resource.roomy = true;
      continue;
    }
    resource.load -= paces[at(id)].rate;
    resource.weight -= flow.weight;
    reserve(crossing.resource, -flow.most);
    if (resource.saturated) mark_dirty(crossing.resource);
  }
  progress[at(id)].running = false;
  free_flows.push_back(id);
  --running;
}

/// What the members could take, here and elsewhere, after a change of capacity.
void FlowNetwork::State::follow_capacity(ResourceId id) {
  reserve(id, 0);
  for (const Member& member : members[at(id)]) {
    Flow& flow = flows[at(member.flow)];
    double most = flow.cap;
    for (const Crossing& crossing : path_of(flow)) {
      most = std::min(most, resources[at(crossing.resource)].capacity);
    }
    const double more = most - std::exchange(flow.most, most);
    for (const Crossing& crossing : path_of(flow)) reserve(crossing.resource, more);
  }
}

void FlowNetwork::State::mark_dirty(ResourceId id) {
  if (std::exchange(resources[at(id)].dirty, true)) return;
  dirty.push_back(id);
}

// ---- Progress and completions ------------------------------------

/// Brings the flow's remaining bytes up to `now` and books its end at the new rate.
void FlowNetwork::State::apply_rate(FlowId id, double rate) {
  Pace& pace = paces[at(id)];
  if (rate == pace.rate) return;
  Progress& part = progress[at(id)];
  if (part.updated < now) {
    part.remaining -= pace.rate * (now - part.updated).seconds().value();
    part.updated = now;
  }
  pace.rate = rate;
  pace.level = rate * flows[at(id)].unit;
  // What ends at this instant does so at any rate.
  if (part.heap_index != kNone && events[at(part.heap_index)].time == now) return;
  if (part.remaining <= kNothingLeft * part.amount || rate == kInfiniteRate) {
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

void FlowNetwork::State::drop_event(FlowId id) {
  const std::size_t index = at(progress[at(id)].heap_index);
  const Event last = events.back();
  events.pop_back();
  if (last.flow != id) sift(index, last);
  progress[at(id)].heap_index = kNone;
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
                          BytesPerSecond cap, double weight) {
  LH_CHECK(amount.value() >= 0 && amount.finite(), "a flow moves a number of bytes");
  LH_CHECK(cap.value() > 0, "a flow that may not move would never end");
  LH_CHECK(weight > 0 && weight < kInfiniteRate, "a flow's share is a part");
  advance(now);
  return state_->admit(path, amount.value(), cap.value(), weight);
}

void FlowNetwork::advance(SimTime now) {
  LH_CHECK(now >= state_->now, "time does not go backwards");
  if (now == state_->now) return;
  LH_CHECK(now <= next_completion(), "pop the flows that ended before");
  state_->now = now;
}

void FlowNetwork::stop(SimTime now, FlowId flow) {
  LH_CHECK(state_->is_running(flow), "only running flows can be stopped");
  advance(now);
  std::vector<FlowId>& fresh = state_->fresh;
  fresh.erase(std::remove(fresh.begin(), fresh.end(), flow), fresh.end());
  if (state_->progress[at(flow)].heap_index != kNone) state_->drop_event(flow);
  state_->leave(flow);
}

Bytes FlowNetwork::remaining(SimTime now, FlowId flow) {
  LH_CHECK(state_->is_running(flow), "only running flows have something left");
  advance(now);
  const State::Progress& part = state_->progress[at(flow)];
  // Where a change of this very moment is not solved yet, the rate is still that of the time
  // before.
  const double moved = state_->paces[at(flow)].rate * (now - part.updated).seconds().value();
  return Bytes(std::max(0.0, now > part.updated ? part.remaining - moved : part.remaining));
}

void FlowNetwork::set_capacity(SimTime now, ResourceId id, BytesPerSecond capacity) {
  LH_CHECK(capacity.value() >= 0 && capacity.finite(), "capacities change to finite ones");
  LH_CHECK(id >= 0 && at(id) < state_->resources.size(), "ids come from add_resource");
  State::Resource& resource = state_->resources[at(id)];
  LH_CHECK(resource.capacity != kInfiniteRate, "an infinite capacity stays infinite");
  advance(now);
  if (resource.capacity == capacity.value()) return;
  resource.capacity = capacity.value();
  if (resource.size == 0) return;
  state_->follow_capacity(id);
  resource.resized = true;
  state_->mark_dirty(id);
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
  const FlowId id = state_->events.front().flow;
  state_->drop_event(id);
  state_->leave(id);
  return id;
}

BytesPerSecond FlowNetwork::rate(FlowId flow) {
  LH_CHECK(state_->is_running(flow), "only running flows have a rate");
  if (state_->stale()) state_->solve();
  return BytesPerSecond(state_->paces[at(flow)].rate);
}

std::size_t FlowNetwork::running() const {
  return state_->running;
}

}  // namespace longhaul
