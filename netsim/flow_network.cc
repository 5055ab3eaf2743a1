#include "netsim/flow_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/max_min.h"
#include "core/result.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int32_t kNone = -1;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// A resource counts as saturated, and a flow as one of its fastest, within this relative error:
// above rounding, and far below any difference that matters.
constexpr double kSlack = 1e-12;
// Loads that are kept by adding differences drift by one rounding a change: this allows 10^9.
constexpr double kDrift = 1e-6;
// What is left of a flow below this part of its amount is rounding, not bytes.
constexpr double kNothingLeft = 1e-12;
// After so many attempts to keep a solve local, the whole connected component is solved.
constexpr int kLocalAttempts = 4;

constexpr std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

// How a solve stays local. Max-min rates are certified flow by flow: each is at its cap, or crosses
// a saturated resource on which nobody is faster. Rates in which every flow has such a certificate
// are the only max-min rates. So a solve starts from the flows whose certificate a start or an end
// touches (the *moving* flows), shares among them what the others leave, and looks for flows that
// have no certificate now or deny a moving flow its own; those move too, and it tries again. At
// worst everything in the connected component moves; usually one link's flows do.
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
    std::vector<Member> members;
    bool dirty = false;      // has lost a flow since the last solve
    bool saturated = false;  // at current rates
    double fastest = 0;      // the largest rate on it; kept up to date only while saturated
    double load = 0;         // sum of the rates, to within kDrift of the capacity
    // Scratch of one solve, valid when `epoch` is that of the solve.
    std::uint64_t epoch = 0;
    std::uint64_t spread_epoch = 0;  // of the solve in which all its members came to move
    std::int32_t moving = 0;         // members that move
    std::int32_t local = kNone;      // index in the solver's input
    bool was_saturated = false;      // `saturated` and `fastest` before the solve
    double was_fastest = 0;
    bool binding = false;    // takes part in the sharing; the others are only watched
    double trial = 0;        // `load` at the proposed rates
    double resting_sum = 0;  // rates of the members that do not move, if binding
    double resting_fastest = 0;
  };
  struct Flow {
    double rate = 0;
    std::uint64_t epoch = 0;  // of the last solve in which it moved
    double cap = 0;
    double amount = 0;
    double remaining = 0;  // at `updated`
    SimTime updated;
    SimTime ends = SimTime::never();
    std::uint64_t sequence = 0;   // order of starts
    std::uint64_t ticket = 0;     // of its valid event; 0: it has none
    std::int32_t path_begin = 0;  // its crossings, finite resources only
    std::int32_t path_size = 0;
    std::int32_t path_room = 0;
    bool running = false;
  };
  struct Event {
    SimTime time;
    std::uint64_t sequence;
    std::uint64_t ticket;
    FlowId flow;
    // The heap functions of the standard library keep the largest element on top.
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  std::vector<Resource> resources;
  std::vector<Flow> flows;
  std::vector<Crossing> crossings;
  std::vector<FlowId> free_flows;
  std::vector<Event> events;  // a heap; entries whose ticket is no longer the flow's are stale
  SimTime now;
  std::size_t running = 0;
  std::uint64_t starts = 0;
  std::uint64_t tickets = 0;

  // What changed since the last solve.
  std::vector<FlowId> fresh;
  std::vector<ResourceId> dirty;

  // Scratch of one solve.
  std::uint64_t epoch = 0;
  std::vector<FlowId> moving;
  std::vector<double> proposed;      // rates of `moving`
  std::vector<ResourceId> affected;  // crossed by a moving flow, or dirty
  std::size_t traced = 0;            // moving flows whose resources are in `affected`
  std::vector<std::int32_t> solved;  // index in `moving` of the solver's flows
  std::vector<double> capacities, caps, rates;
  std::vector<std::int32_t> path_begin, path;
  MaxMinSolver solver;

  std::span<const Crossing> path_of(const Flow& flow) const {
    return {crossings.data() + flow.path_begin, at(flow.path_size)};
  }

  FlowId admit(std::span<const ResourceId> whole_path, double amount, double cap);
  void give_path(Flow& flow, std::span<const ResourceId> whole_path);
  void remove(FlowId id);
  void schedule(FlowId id, SimTime ends);
  void drop_stale_events();
  bool top_is_due() const { return !events.empty() && events.front().time == now; }

  void solve();
  void move(FlowId id);
  void touch(ResourceId id);
  void trace_moving();
  bool absorb_where_little_is_left();
  void move_component();
  void share_out();
  bool find_overload();
  bool certified(double rate, const Flow& flow) const;
  bool move_uncertified();
  void apply_rate(FlowId id, double rate);
};

// ---- Flows come and go
// ---------------------------------------------------------------------------

FlowId FlowNetwork::State::admit(std::span<const ResourceId> whole_path, double amount,
                                 double cap) {
  if (free_flows.empty()) {
    free_flows.push_back(static_cast<FlowId>(flows.size()));
    flows.emplace_back();
  }
  const FlowId id = free_flows.back();
  free_flows.pop_back();
  Flow& flow = flows[at(id)];
  flow.rate = 0;
  flow.cap = cap;
  flow.amount = flow.remaining = amount;
  flow.updated = now;
  flow.ends = SimTime::never();
  flow.sequence = ++starts;
  flow.ticket = 0;
  flow.running = true;
  flow.path_size = 0;
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
  for (std::int32_t i = 0; i < flow.path_size; ++i) {
    Crossing& crossing = crossings[at(flow.path_begin + i)];
    std::vector<Member>& members = resources[at(crossing.resource)].members;
    crossing.position = static_cast<std::int32_t>(members.size());
    members.push_back({id, flow.path_begin + i});
  }
  fresh.push_back(id);
  return id;
}

/// Keeps the finite resources. A slot's room only grows, by doubling, so that the space of paths
/// stays within twice of what the longest paths need.
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

void FlowNetwork::State::remove(FlowId id) {
  Flow& flow = flows[at(id)];
  for (const Crossing& crossing : path_of(flow)) {
    Resource& resource = resources[at(crossing.resource)];
    const Member last = resource.members.back();
    resource.members[at(crossing.position)] = last;
    crossings[at(last.crossing)].position = crossing.position;
    resource.members.pop_back();
    resource.load = resource.members.empty() ? 0 : resource.load - flow.rate;
    if (resource.dirty) continue;
    resource.dirty = true;
    dirty.push_back(crossing.resource);
  }
  flow.running = false;
  flow.ticket = 0;
  free_flows.push_back(id);
  --running;
}

// ---- Completions
// ---------------------------------------------------------------------------------

void FlowNetwork::State::schedule(FlowId id, SimTime ends) {
  Flow& flow = flows[at(id)];
  if (flow.ticket != 0 && flow.ends == ends) return;
  flow.ends = ends;
  flow.ticket = ++tickets;
  events.push_back({ends, flow.sequence, flow.ticket, id});
  std::push_heap(events.begin(), events.end());
  if (events.size() > 2 * running + 64) {
    std::erase_if(events, [this](const Event& e) { return flows[at(e.flow)].ticket != e.ticket; });
    std::make_heap(events.begin(), events.end());
  }
}

void FlowNetwork::State::drop_stale_events() {
  while (!events.empty() && flows[at(events.front().flow)].ticket != events.front().ticket) {
    std::pop_heap(events.begin(), events.end());
    events.pop_back();
  }
}

/// Brings the flow's remaining bytes up to `now` and books its end at the new rate.
void FlowNetwork::State::apply_rate(FlowId id, double rate) {
  Flow& flow = flows[at(id)];
  if (rate == flow.rate) return;
  if (flow.updated < now) {
    flow.remaining -= flow.rate * (now - flow.updated).seconds().value();
    flow.updated = now;
  }
  flow.rate = rate;
  if (flow.ticket != 0 && flow.ends == now) return;  // it ends at this instant at any rate
  if (flow.remaining <= kNothingLeft * flow.amount || rate == kInfinity) {
    flow.remaining = 0;
    schedule(id, now);
    return;
  }
  // SimTime holds 106 days; what would end later than that never ends.
  const Seconds time(flow.remaining / rate);
  const bool fits = time < (SimTime::never() - now).seconds() - seconds(1);
  schedule(id, fits ? now + SimTime::from(time) : SimTime::never());
}

// ---- Solving
// -------------------------------------------------------------------------------------

void FlowNetwork::State::solve() {
  ++epoch;
  moving.clear();
  affected.clear();
  traced = 0;
  for (const FlowId id : fresh) {
    if (flows[at(id)].running) move(id);
  }
  for (const FlowId id : fresh) {
    const Flow& flow = flows[at(id)];
    if (!flow.running) continue;
    for (const Crossing& crossing : path_of(flow)) touch(crossing.resource);
  }
  for (const ResourceId id : dirty) {
    resources[at(id)].dirty = false;
    if (resources[at(id)].saturated) touch(id);
  }
  fresh.clear();
  dirty.clear();
  // On the touched resources that were saturated, the fastest will gain or give.
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    if (!resource.saturated) continue;
    for (const Member& member : resource.members) {
      if (flows[at(member.flow)].rate >= resource.fastest * (1 - kSlack)) move(member.flow);
    }
  }
  for (int attempt = 0; !affected.empty(); ++attempt) {
    if (attempt == kLocalAttempts) move_component();
    do {
      trace_moving();
    } while (absorb_where_little_is_left());
    share_out();
    if (!find_overload() && !move_uncertified()) break;
  }
  for (const ResourceId id : affected) resources[at(id)].load = resources[at(id)].trial;
  for (std::size_t i = 0; i < moving.size(); ++i) apply_rate(moving[i], proposed[i]);
}

void FlowNetwork::State::move(FlowId id) {
  Flow& flow = flows[at(id)];
  if (flow.epoch == epoch) return;
  flow.epoch = epoch;
  moving.push_back(id);
}

void FlowNetwork::State::touch(ResourceId id) {
  Resource& resource = resources[at(id)];
  if (resource.epoch == epoch) return;
  resource.epoch = epoch;
  resource.moving = 0;
  resource.binding = resource.saturated || resource.members.size() == 1;
  resource.was_saturated = resource.saturated;
  resource.was_fastest = resource.fastest;
  affected.push_back(id);
}

/// Counts the moving flows by resource, and what those at rest take where it may matter.
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
    if (!resource.binding) continue;
    resource.resting_sum = resource.resting_fastest = 0;
    if (at(resource.moving) == resource.members.size()) continue;
    for (const Member& member : resource.members) {
      const Flow& flow = flows[at(member.flow)];
      if (flow.epoch == epoch) continue;
      resource.resting_sum += flow.rate;
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
    const auto members = static_cast<double>(resource.members.size());
    const double left = resource.capacity - resource.resting_sum;
    if (2 * members * left >= resource.capacity) continue;
    for (const Member& member : resource.members) move(member.flow);
  }
  return moving.size() > before;
}

/// `moving` becomes all flows that are connected to it by finite resources.
void FlowNetwork::State::move_component() {
  for (std::size_t i = 0; i < moving.size(); ++i) {
    for (const Crossing& crossing : path_of(flows[at(moving[i])])) {
      Resource& resource = resources[at(crossing.resource)];
      if (resource.spread_epoch == epoch) continue;
      resource.spread_epoch = epoch;
      for (const Member& member : resource.members) move(member.flow);
    }
  }
}

/// Max-min rates of the moving flows in what those at rest leave, into `proposed`.
void FlowNetwork::State::share_out() {
  proposed.resize(moving.size());
  solved.clear();
  capacities.clear();
  caps.clear();
  path.clear();
  path_begin.assign(1, 0);
  for (std::size_t i = 0; i < moving.size(); ++i) {
    const Flow& flow = flows[at(moving[i])];
    double cap = flow.cap;
    for (const Crossing& crossing : path_of(flow)) {
      Resource& resource = resources[at(crossing.resource)];
      if (!resource.binding || resource.members.size() == 1) {
        // With nobody to share with, this is a cap by another name.
        cap = std::min(cap, resource.capacity);
        continue;
      }
      if (resource.local == kNone) {
        resource.local = static_cast<std::int32_t>(capacities.size());
        capacities.push_back(resource.capacity - resource.resting_sum);
      }
      path.push_back(resource.local);
    }
    if (static_cast<std::int32_t>(path.size()) == path_begin.back()) {
      proposed[i] = cap;
      continue;
    }
    solved.push_back(static_cast<std::int32_t>(i));
    caps.push_back(cap);
    path_begin.push_back(static_cast<std::int32_t>(path.size()));
  }
  if (solved.empty()) return;
  rates.resize(solved.size());
  const double equal = capacities[0] / static_cast<double>(solved.size());
  if (capacities.size() == 1 && *std::min_element(caps.begin(), caps.end()) >= equal) {
    std::fill(rates.begin(), rates.end(), equal);
  } else {
    solver.solve(capacities, path_begin, path, caps, rates);
  }
  for (std::size_t i = 0; i < solved.size(); ++i) proposed[at(solved[i])] = rates[i];
}

/// Loads at the proposed rates; true when they overload a resource that was left out.
bool FlowNetwork::State::find_overload() {
  for (const ResourceId id : affected) {
    Resource& resource = resources[at(id)];
    resource.trial = resource.binding ? resource.resting_sum : resource.load;
    resource.fastest = resource.resting_fastest;
  }
  for (std::size_t i = 0; i < moving.size(); ++i) {
    const Flow& flow = flows[at(moving[i])];
    for (const Crossing& crossing : path_of(flow)) {
      Resource& resource = resources[at(crossing.resource)];
      resource.trial += resource.binding ? proposed[i] : proposed[i] - flow.rate;
      resource.fastest = std::max(resource.fastest, proposed[i]);
    }
  }
  bool overload = false;
  for (const ResourceId id : affected) {
    Resource& resource = resources[at(id)];
    if (resource.binding) {
      // A sum of n rates carries up to n roundings.
      const double slack = kSlack + static_cast<double>(resource.members.size()) * kEpsilon;
      resource.saturated = resource.trial >= resource.capacity * (1 - slack);
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
  for (std::size_t i = 0; i < before; ++i) {
    const Flow& flow = flows[at(moving[i])];
    if (certified(proposed[i], flow)) continue;
    for (const Crossing& crossing : path_of(flow)) {
      const Resource& resource = resources[at(crossing.resource)];
      if (!resource.saturated) continue;
      for (const Member& member : resource.members) {
        if (flows[at(member.flow)].rate > proposed[i]) move(member.flow);
      }
    }
  }
  for (const ResourceId id : affected) {
    const Resource& resource = resources[at(id)];
    // Flows at rest relied on this resource only if it was saturated, and still can if their rate
    // is still its fastest.
    if (!resource.was_saturated || at(resource.moving) == resource.members.size()) continue;
    if (resource.saturated && resource.fastest <= resource.was_fastest) continue;
    for (const Member& member : resource.members) {
      const Flow& flow = flows[at(member.flow)];
      if (flow.epoch != epoch && !certified(flow.rate, flow)) move(member.flow);
    }
  }
  return moving.size() > before;
}

// ---- The public face
// -----------------------------------------------------------------------------

FlowNetwork::FlowNetwork() : state_(std::make_unique<State>()) {}
FlowNetwork::~FlowNetwork() = default;
FlowNetwork::FlowNetwork(FlowNetwork&&) noexcept = default;
FlowNetwork& FlowNetwork::operator=(FlowNetwork&&) noexcept = default;

ResourceId FlowNetwork::add_resource(BytesPerSecond capacity) {
  LH_CHECK(capacity.value() > 0, "a resource without capacity would hold its flows for ever");
  state_->resources.emplace_back().capacity = capacity.value();
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
  state_->drop_stale_events();
  // What ends at this very instant ends whatever the rates become, so a batch of flows that end
  // together costs one solve.
  if (state_->top_is_due()) return state_->now;
  if (!state_->fresh.empty() || !state_->dirty.empty()) {
    state_->solve();
    state_->drop_stale_events();
  }
  return state_->events.empty() ? SimTime::never() : state_->events.front().time;
}

FlowId FlowNetwork::pop_completed() {
  const SimTime time = next_completion();
  LH_CHECK(time != SimTime::never(), "no flow is about to end");
  const FlowId id = state_->events.front().flow;
  state_->now = time;
  state_->remove(id);
  return id;
}

BytesPerSecond FlowNetwork::rate(FlowId flow) {
  LH_CHECK(flow >= 0 && at(flow) < state_->flows.size() && state_->flows[at(flow)].running,
           "only running flows have a rate");
  if (!state_->fresh.empty() || !state_->dirty.empty()) state_->solve();
  return BytesPerSecond(state_->flows[at(flow)].rate);
}

std::size_t FlowNetwork::running() const {
  return state_->running;
}

}  // namespace longhaul
