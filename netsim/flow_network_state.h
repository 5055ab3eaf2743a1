// What a FlowNetwork is made of. flow_network.cc lets flows come, go and progress; flow_sharing.cc
// finds their rates. Only these two include this header.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/max_min.h"
#include "netsim/flow_network.h"

namespace longhaul {

inline constexpr double kInfiniteRate = std::numeric_limits<double>::infinity();
// Sums that are kept by adding differences drift by one rounding a change: this allows 10^9.
inline constexpr double kDrift = 1e-6;

// How a solve stays local. A flow's *level* is its rate / weight. Max-min rates are certified flow
// by flow: each is at its cap, or crosses a saturated resource on which no level is higher (which
// it does if it alone takes the whole capacity); rates with a certificate for every flow are the
// only max-min rates. So a solve starts from the flows whose certificate a start or an end touches
// (they *move*; the others *rest*), shares among them what the others leave, and looks for resting
// flows that lost their certificate or deny a moving flow its own. Those move too, and it tries
// again. At worst the whole connected component moves; usually one link's flows do.
//
// Flows meet only where they could want more than there is: a resource is *roomy* while it has one
// flow, or the most that its flows could ever take, each by its cap and its narrowest resource, is
// less than its capacity. Roomy resources take no part in anything but that sum, and crossing one
// joins no flows. On real networks most are: fast cards before slow links.
//
// In the same spirit only *binding* resources take part in the sharing: those that were saturated,
// or that an attempt has overloaded. The others are watched through their load.
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
    double load = 0;        // sum of the rates, to within kDrift of the capacity, unless roomy
    double most = 0;        // sum of what the members could take, to within rounding
    double weight = 0;      // sum of the members' weights, to within rounding
    double fastest = 0;     // the highest level on it; meaningless unless saturated
    std::int32_t size = 0;  // of its members
    bool roomy = true;
    bool dirty = false;      // in `dirty`
    bool resized = false;    // has another capacity since the last solve
    bool saturated = false;  // at current rates

    // Scratch of one solve, valid when `epoch` is that of the solve.
    bool was_saturated = false;  // before the solve, as was_fastest
    bool binding = false;
    bool spread = false;  // all members were made to move
    std::uint64_t epoch = 0;
    std::int32_t moving = 0;   // members that move
    double moving_weight = 0;  // the least among them
    std::int32_t local = -1;   // index in the solver's input; -1 where nobody competes for it
    double was_fastest = 0;
    double trial = 0;            // load at the proposed rates
    double resting_load = 0;     // of resting members, if binding
    double resting_fastest = 0;  // level among resting members, if binding
    std::int32_t counted = -1;   // `moving` when these two were found
    double moving_fastest = 0;   // level among moving members, at the proposed rates
  };
  struct Pace {  // of a flow: what a solve reads of all on a resource
    double rate = 0;
    double level = 0;         // rate / weight
    std::uint64_t epoch = 0;  // of the last solve in which it moved
    std::int32_t mover = 0;   // its index in that solve's `moving`
  };
  struct Flow {
    double cap = 0;
    double most = 0;  // the least of the cap and the capacities on the path
    double weight = 1;
    double unit = 1;              // 1 / weight
    std::int32_t path_begin = 0;  // its crossings, finite resources only
    std::int32_t path_size = 0;
    std::int32_t path_room = 0;
  };
  // The attempts of a solve pass again and again over the crossings of their flows, and do so in
  // one list without the roomy ones.
  struct Mover {  // a flow that moves
    double rate = 0;
    double unit = 1;
    double proposed = 0;      // its new rate
    double level = 0;         // at that rate
    double adds[2] = {0, 0};  // to the load of a watched and of a binding resource
    std::int32_t shared = 0;  // crossings that it has to share
  };
  struct Hop {
    ResourceId resource;
    std::int32_t mover;
  };
  struct Progress {  // what a change of rate reads besides
    double amount = 0;
    double remaining = 0;  // at `updated`
    SimTime updated;
    std::uint64_t sequence = 0;    // order of starts
    std::int32_t heap_index = -1;  // of its event; -1 until its first rate is known
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
  std::vector<Pace> paces;
  std::vector<Flow> flows;         // of each pace
  std::vector<Progress> progress;  // of each flow
  std::vector<Crossing> crossings;
  std::vector<FlowId> free_flows;
  // A binary heap with the earliest on top. It is updated in place (each flow knows its index),
  // because a solve moves the ends of many flows a little and most of them need not change places.
  std::vector<Event> events;
  SimTime now;
  std::size_t running = 0;
  std::uint64_t starts = 0;

  // What changed since the last solve: new flows, and resources that have another capacity or are
  // no longer as saturated as they were.
  std::vector<FlowId> fresh;
  std::vector<ResourceId> dirty;

  // Scratch of one solve.
  std::uint64_t epoch = 0;
  std::vector<FlowId> moving;
  std::vector<ResourceId> affected;  // crossed by a moving flow, or dirty
  std::vector<Mover> movers;         // of the moving flows whose resources are in `affected`
  std::vector<Hop> hops;             // their crossings, in the order of `movers`
  std::vector<std::int32_t> solved;  // the solver's flows, as indices in `movers`
  std::vector<double> capacities, caps, weights, rates;
  std::vector<std::int32_t> path_begin, path;
  MaxMinSolver solver;

  std::span<const Crossing> path_of(const Flow& flow) const {
    return {crossings.data() + flow.path_begin, static_cast<std::size_t>(flow.path_size)};
  }

  bool is_running(FlowId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < progress.size() &&
           progress[static_cast<std::size_t>(id)].running;
  }
  FlowId admit(std::span<const ResourceId> whole_path, double amount, double cap, double weight);
  void give_path(Flow& flow, std::span<const ResourceId> whole_path);
  bool run_alone(FlowId id);
  void leave(FlowId id);
  void mark_dirty(ResourceId id);
  void reserve(ResourceId id, double more);
  void follow_capacity(ResourceId id);

  void apply_rate(FlowId id, double rate);
  void schedule(FlowId id, SimTime time);
  void place(std::size_t index, const Event& event);
  void sift(std::size_t index, const Event& event);
  void drop_event(FlowId id);

  bool stale() const { return !fresh.empty() || !dirty.empty(); }
  void solve();
  void find_first_to_move();
  void move(FlowId id);
  void touch(ResourceId id);
  void trace_moving();
  void count_resting();
  void move_component();
  void share_out();
  void number_shared_resources();
  bool find_overload();
  bool certified(FlowId id, double rate, double level) const;
  bool move_uncertified();
  void move_those_who_deny(ResourceId id);
};

}  // namespace longhaul
