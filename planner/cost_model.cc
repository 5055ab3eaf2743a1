#include "planner/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "core/history_budget.h"
#include "core/result.h"

namespace longhaul {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// The most that histories take of a stage with so many boundaries, wherever these are: all of its
/// budget, or all samples.
Bytes most_history(const Job& job, int boundaries) {
  if (!has_history(job.activations) || boundaries == 0) return Bytes(0);
  const Bytes all =
      static_cast<double>(samples_at_most(job)) * boundaries * history_bytes(job.model);
  return std::min(job.history.value_or(HistorySettings{}).memory, all);
}

}  // namespace

Evaluator::Evaluator(const Problem& problem, const Grid& grid) : problem_(problem), grid_(grid) {
  const Job& job = problem.job();
  const ModelShape& model = job.model;
  batches_ = static_cast<double>(job.global_batch) / grid.micro_batch;
  for (const Pin& pin : problem.rules().pins)
    pins_.push_back({pin.device, pin.stage_of(grid.stages)});
  const double elements = static_cast<double>(grid.micro_batch) * model.context * model.width;
  const double raw_element = element_bytes(job.precision);
  const double wire = problem.topology().tcp.wire_factor;
  boundary_inside_ = elements * raw_element * wire;
  const auto between = [&](Codec codec) {
    return boundary_message_bytes(codec, model, job.precision, grid.micro_batch).value() * wire;
  };
  forward_between_ = between(job.activations);
  backward_between_ = between(own_codec(job, CodecUse::kActivationGradients));
  // Kinds of stage: middle, first, last, only; see cost().
  for (int kind = 0; kind < 4; ++kind) {
    for (int layers = 0; layers <= model.layers; ++layers) {
      const StageShape shape{layers, (kind & 1) != 0, (kind & 2) != 0};
      const StageWork work = stage_work(model, shape, grid.micro_batch);
      const DeviceKind nothing_reserved;
      MemoryQuestion question{.stage = shape,
                              .micro_batch = grid.micro_batch,
                              .in_flight = 0,
                              .pipelines = grid.pipelines};
      question.history = most_history(job, kind == 3 ? 0 : kind == 0 ? 2 : 1);
      StageCost cost;
      cost.forward_flops = work.forward.value();
      cost.backward_flops =
          (work.backward + (job.recompute == Recompute::kYes ? work.recompute : Flops(0))).value();
      cost.fixed_bytes = memory_use(job, nothing_reserved, question).total().value();
      question.in_flight = 1;
      cost.in_flight_bytes =
          memory_use(job, nothing_reserved, question).total().value() - cost.fixed_bytes;
      cost.parameters = stage_parameters(model, shape);
      cost.gradient = stage_gradient_elements(model, shape, grid.stages);
      cost.feedback_bytes = feedback_bytes(job.gradients, cost.gradient.coded).value();
      costs_.push_back(cost);
    }
  }
  if (model.tied_embedding && grid.stages > 1) {
    tied_feedback_bytes_ =
        feedback_bytes(job.gradients, tied_gradient_elements(model).coded).value();
  }
  const auto cells = at(grid.stages * grid.pipelines);
  stage_times_.resize(cells);
  hop_times_.resize(at((grid.stages - 1) * grid.pipelines));
  in_flight_.resize(at(grid.stages));
  fills_.resize(at(grid.pipelines));
  periods_.resize(at(grid.pipelines));
  ends_.resize(at(grid.stages));
  alone_.resize(at(grid.stages));

  const Topology& topology = problem.topology();
  const std::size_t nodes = topology.nodes.size();
  const std::size_t sites = topology.sites.size();
  const double infinity = std::numeric_limits<double>::infinity();
  capacities_.assign(2 * nodes + 2 * sites + sites * sites, infinity);
  loads_.assign(capacities_.size(), 0);
  on_node_.assign(nodes, 0);
  on_site_.assign(sites, 0);
  most_on_node_.assign(sites, 0);
  nodes_on_site_.assign(sites, 0);
  for (std::size_t n = 0; n < nodes; ++n) {
    capacities_[n] = capacities_[nodes + n] = topology.nodes[n].nic.value();
  }
  for (std::size_t s = 0; s < sites; ++s) {
    capacities_[2 * nodes + s] = topology.sites[s].uplink.value();
    capacities_[2 * nodes + sites + s] = topology.sites[s].downlink.value();
  }
  for (std::size_t i = 0; i < sites * sites; ++i) {
    const Link& link = topology.links[i];
    if (link.scope == LinkScope::kSitePair) {
      capacities_[2 * nodes + 2 * sites + i] = link.pipe().value();
    }
  }
}

const Evaluator::StageCost& Evaluator::cost(int stage, int layers) const {
  const int kind = (stage == 0 ? 1 : 0) + (stage + 1 == grid_.stages ? 2 : 0);
  return costs_[at(kind * (problem_.job().model.layers + 1) + layers)];
}

// Slots: NIC out by node, NIC in by node, uplink by site, downlink by site, links by site pair,
// then the links between two nodes.
std::size_t Evaluator::uplink_slot(int site) const {
  return 2 * problem_.topology().nodes.size() + at(site);
}
std::size_t Evaluator::downlink_slot(int site) const {
  return uplink_slot(site) + problem_.topology().sites.size();
}
std::size_t Evaluator::site_link_slot(int from_site, int to_site) const {
  const std::size_t sites = problem_.topology().sites.size();
  return downlink_slot(0) + sites + at(from_site) * sites + at(to_site);
}
std::size_t Evaluator::node_link_slot(int from_node, int to_node) {
  const Topology& topology = problem_.topology();
  const std::uint64_t pair = at(from_node) * topology.nodes.size() + at(to_node);
  const auto [found, is_new] = node_links_.try_emplace(pair, capacities_.size());
  if (is_new) {
    capacities_.push_back(
        topology.link(topology.nodes[at(from_node)].site, topology.nodes[at(to_node)].site)
            .rate.value());
    loads_.push_back(0);
  }
  return found->second;
}

bool Evaluator::is_link_shared(int from_node, int to_node) const {
  if (!problem_.is_shared(from_node) || !problem_.is_shared(to_node)) return false;
  const Topology& topology = problem_.topology();
  const Link& link =
      topology.link(topology.nodes[at(from_node)].site, topology.nodes[at(to_node)].site);
  return link.scope == LinkScope::kNode &&
         link.rate.value() < std::min(problem_.nic(from_node), problem_.nic(to_node));
}

template <class Visit>
void Evaluator::visit_slots(int from_device, int to_device, Visit&& visit) {
  const int u = problem_.node(from_device);
  const int v = problem_.node(to_device);
  if (u == v) return;  // inside a node nothing is shared
  const int a = problem_.site(from_device);
  const int b = problem_.site(to_device);
  visit(at(u));
  visit(problem_.topology().nodes.size() + at(v));
  if (a != b) {
    visit(uplink_slot(a));
    visit(downlink_slot(b));
  }
  if (problem_.topology().link(a, b).scope == LinkScope::kSitePair) {
    visit(site_link_slot(a, b));
  } else if (is_link_shared(u, v)) {
    visit(node_link_slot(u, v));
  }
}

void Evaluator::add_load(std::size_t slot, double amount) {
  if (amount == 0) return;
  if (loads_[slot] == 0) touched_.push_back(slot);
  loads_[slot] += amount;
}

void Evaluator::clear_loads() {
  for (const std::size_t slot : touched_) loads_[slot] = 0;
  touched_.clear();
}

void Evaluator::fill_times(const Candidate& candidate) {
  const Job& job = problem_.job();
  for (int d = 0; d < grid_.pipelines; ++d) {
    for (int i = 0; i < grid_.stages; ++i) {
      const int device = candidate.cells[cell(d, i)];
      const StageCost& stage = cost(i, candidate.layers[at(i)]);
      const double per_flop = problem_.seconds_per_flop(device);
      const double overhead = problem_.overhead(device);
      stage_times_[cell(d, i)] = {
          stage.forward_flops * per_flop + overhead,
          stage.backward_flops * per_flop + overhead * (job.recompute == Recompute::kYes ? 2 : 1)};
      if (i + 1 == grid_.stages) continue;
      const int next = candidate.cells[cell(d, i + 1)];
      const BoundaryBytes bytes = boundary_bytes_between(device, next);
      hop_times_[at(d * (grid_.stages - 1) + i)] = {
          bytes.forward / problem_.rate(device, next), problem_.latency(device, next),
          bytes.backward / problem_.rate(next, device), problem_.latency(next, device)};
    }
  }
}

/// Memory of error feedback at each cell of a stage.
double Evaluator::feedback_of_stage(const Candidate& candidate, const StageCost& stage_cost,
                                    int stage) const {
  if (tied_feedback_bytes_ == 0 && stage_cost.feedback_bytes == 0) return 0;
  const auto site = [&](int d, int i) { return problem_.site(candidate.cells[cell(d, i)]); };
  const int last = grid_.stages - 1;
  const bool is_end = last > 0 && (stage == 0 || stage == last);
  bool is_between_sites = false;
  bool ends_are = false;
  for (int d = 0; d < grid_.pipelines; ++d) {
    is_between_sites |= site(d, stage) != site(0, stage);
    ends_are |= site(d, 0) != site(0, 0) || site(d, last) != site(0, 0);
  }
  return (is_between_sites ? stage_cost.feedback_bytes : 0) +
         (is_end && ends_are ? tied_feedback_bytes_ : 0);
}

double Evaluator::choose_in_flight(const Candidate& candidate) {
  // What memory allows at each stage, never rising along the pipeline.
  double overflow = 0;
  const Expressible& rules = problem_.rules().expressible;
  // A trainer's own depths are as large as the largest share allows, which is known where all are
  // equal.
  const double largest = rules.own_depths && !rules.equal_shares ? batches_ - grid_.pipelines + 1
                                                                 : batches_ / grid_.pipelines;
  const int all = std::max(1, static_cast<int>(std::ceil(largest)));
  int most = all;
  for (int i = 0; i < grid_.stages; ++i) {
    const StageCost& stage = cost(i, candidate.layers[at(i)]);
    const double fixed = stage.fixed_bytes + feedback_of_stage(candidate, stage, i);
    for (int d = 0; d < grid_.pipelines; ++d) {
      const double room = problem_.memory(candidate.cells[cell(d, i)]) - fixed;
      const double fits =
          stage.in_flight_bytes > 0 ? std::floor(room / stage.in_flight_bytes) : most;
      double least = 1;
      if (rules.own_depths) least = is_gpipe_ ? all : std::min(grid_.stages - i, all);
      if (room < least * stage.in_flight_bytes) {
        overflow += least * stage.in_flight_bytes - room;
      } else if (fits < most) {
        most = static_cast<int>(fits);
      }
    }
    in_flight_[at(i)] = most;
  }
  // What hides the round trips: K_i = K_{i+1} + 1 + ceil(RTT_i / slowest stage) [eager 1F1B].
  int wanted_after = 0;
  is_deep_ = true;
  for (int i = grid_.stages - 1; i >= 0; --i) {
    int wanted = 1;
    if (i + 1 < grid_.stages) {
      double trips = 0;
      for (int d = 0; d < grid_.pipelines; ++d) {
        const double period = periods_[at(d)];
        trips = std::max(
            trips, std::ceil(hop_times_[at(d * (grid_.stages - 1) + i)].round_trip() / period));
      }
      wanted = wanted_after + 1 + static_cast<int>(std::min(trips, 1e6));
    }
    if (rules.own_depths && !is_gpipe_)
      in_flight_[at(i)] = std::min(in_flight_[at(i)], grid_.stages - i);
    is_deep_ = is_deep_ && in_flight_[at(i)] >= std::min(wanted, all);
    if (!is_gpipe_) in_flight_[at(i)] = std::min(in_flight_[at(i)], wanted);
    wanted_after = in_flight_[at(i)];
  }
  return overflow;
}

void Evaluator::count_transfers(const Candidate& candidate) {
  for (int d = 0; d < grid_.pipelines; ++d) {
    for (int i = 0; i + 1 < grid_.stages; ++i) {
      const int device = candidate.cells[cell(d, i)];
      const int next = candidate.cells[cell(d, i + 1)];
      const BoundaryBytes bytes = boundary_bytes_between(device, next);
      visit_slots(device, next, [&](std::size_t slot) { add_load(slot, bytes.forward); });
      visit_slots(next, device, [&](std::size_t slot) { add_load(slot, bytes.backward); });
    }
  }
}

double Evaluator::shared_period(const Candidate& candidate, int pipeline) {
  double period = 0;
  for (int i = 0; i + 1 < grid_.stages; ++i) {
    const int device = candidate.cells[cell(pipeline, i)];
    const int next = candidate.cells[cell(pipeline, i + 1)];
    const auto visit = [&](std::size_t slot) {
      period = std::max(period, loads_[slot] / capacities_[slot]);
    };
    visit_slots(device, next, visit);
    visit_slots(next, device, visit);
  }
  return period;
}

void Evaluator::count_members() {
  for (const int node : nodes_here_) on_node_[at(node)] = 0;
  for (const int site : sites_here_) {
    on_site_[at(site)] = most_on_node_[at(site)] = nodes_on_site_[at(site)] = 0;
  }
  nodes_here_.clear();
  sites_here_.clear();
  for (const int device : members_) {
    const int node = problem_.node(device);
    const int site = problem_.site(device);
    if (on_site_[at(site)]++ == 0) sites_here_.push_back(site);
    if (on_node_[at(node)]++ == 0) {
      nodes_here_.push_back(node);
      ++nodes_on_site_[at(site)];
    }
    most_on_node_[at(site)] = std::max(most_on_node_[at(site)], on_node_[at(node)]);
  }
}

double Evaluator::reduce_time(const GradientElements& elements) {
  const Job& job = problem_.job();
  const Topology& topology = problem_.topology();
  const double wire = topology.tcp.wire_factor;
  const double count = static_cast<double>(members_.size());
  const GradientElements shard = elements / count;
  const double inside = 4 * shard.all() * wire;
  const double between = gradient_wire_bytes(job.gradients, shard).value() * wire;
  count_members();
  const auto load = [this](std::size_t slot, double bytes) {
    add_load(slot, bytes);
    group_slots_.push_back(slot);
  };
  // All loads are of one phase; every shard crosses twice, to its owner and from it.
  double slowest = 0;
  double farthest = 0;
  for (const int node : nodes_here_) {
    const int site = topology.nodes[at(node)].site;
    const double here = on_node_[at(node)];
    const double bytes =
        here * ((on_site_[at(site)] - here) * inside + (count - on_site_[at(site)]) * between);
    slowest = std::max(slowest, bytes / problem_.nic(node));
    if (here > 1) slowest = std::max(slowest, inside / problem_.inside_rate(node));
    load(at(node), 2 * bytes);
    load(topology.nodes.size() + at(node), 2 * bytes);
  }
  for (const int a : sites_here_) {
    double leaving = 0;
    for (const int b : sites_here_) {
      if (a == b && nodes_on_site_[at(a)] < 2) continue;
      const double shards = a == b ? inside : between;
      const bool is_pipe = topology.link(a, b).scope == LinkScope::kSitePair;
      const double all = on_site_[at(a)] * on_site_[at(b)] * shards;
      const double on_link = is_pipe ? all : most_on_node_[at(a)] * most_on_node_[at(b)] * shards;
      slowest = std::max(slowest, on_link / problem_.site_rate(a, b));
      farthest = std::max(farthest, problem_.site_latency(a, b));
      load(site_link_slot(a, b), 2 * all);
      if (a == b) continue;
      leaving += all;
      load(downlink_slot(b), 2 * all);
    }
    load(uplink_slot(a), 2 * leaving);
    exchange_usd_ += 2 * leaving * problem_.egress_usd_per_byte(a);
  }
  return 2 * (slowest + farthest);
}

double Evaluator::load_time(std::span<const std::size_t> slots) const {
  double slowest = 0;
  for (const std::size_t slot : slots) {
    slowest = std::max(slowest, loads_[slot] / capacities_[slot]);
  }
  return slowest;
}

double Evaluator::commit_time(const Candidate& candidate, int* coordinator) const {
  const Topology& topology = problem_.topology();
  const int sites = topology.site_count();
  std::vector<char> present(at(sites), 0);
  for (const int device : candidate.cells) present[at(problem_.site(device))] = 1;
  double best = std::numeric_limits<double>::infinity();
  for (int c = 0; c < sites; ++c) {
    if (present[at(c)] == 0) continue;
    double there = 0;
    double back = 0;
    for (int s = 0; s < sites; ++s) {
      if (present[at(s)] == 0) continue;
      there = std::max(there, topology.link(s, c).latency.value());
      back = std::max(back, topology.link(c, s).latency.value());
    }
    if (there + back < best) {
      best = there + back;
      if (coordinator != nullptr) *coordinator = c;
    }
  }
  return best;
}

double Evaluator::price(const Candidate& candidate, double seconds) const {
  double per_second = 0;
  for (const int device : candidate.cells) per_second += problem_.usd_per_second(device);
  double egress = exchange_usd_;
  const double end = closed_form_.fill + closed_form_.steady;
  for (int d = 0; d < grid_.pipelines; ++d) {
    const double micro_batches = problem_.rules().expressible.equal_shares
                                     ? batches_ / grid_.pipelines
                                     : 1 + (end - fills_[at(d)]) / periods_[at(d)];
    for (int i = 0; i + 1 < grid_.stages; ++i) {
      const int from = problem_.site(candidate.cells[cell(d, i)]);
      const int to = problem_.site(candidate.cells[cell(d, i + 1)]);
      if (from == to) continue;
      egress += micro_batches * (forward_between_ * problem_.egress_usd_per_byte(from) +
                                 backward_between_ * problem_.egress_usd_per_byte(to));
    }
  }
  return per_second * seconds + egress;
}

/// Where every two nodes of two sites have a link of their own, the exchanges of all stages
/// together are taken to load those between the plan's nodes evenly.
void Evaluator::count_node_links(const Candidate& candidate) {
  const Topology& topology = problem_.topology();
  members_.assign(candidate.cells.begin(), candidate.cells.end());
  count_members();
  for (const int a : sites_here_) {
    for (const int b : sites_here_) {
      const Link& link = topology.link(a, b);
      if (link.scope != LinkScope::kNode) continue;
      const double pairs = nodes_on_site_[at(a)] * (nodes_on_site_[at(b)] - (a == b ? 1 : 0));
      capacities_[site_link_slot(a, b)] = link.rate.value() * std::max(pairs, 1.0);
    }
  }
}

int Evaluator::broken_pins(const Candidate& candidate) const {
  int broken = 0;
  for (const Pin& pin : pins_) {
    bool is_there = false;
    for (int d = 0; d < grid_.pipelines; ++d)
      is_there = is_there || candidate.cells[cell(d, pin.stage)] == pin.device;
    broken += is_there ? 0 : 1;
  }
  return broken;
}

double Evaluator::evaluate(const Candidate& candidate) {
  if (const int broken = broken_pins(candidate); broken > 0) return kUnpinned * broken;
  const Expressible& rules = problem_.rules().expressible;
  is_gpipe_ = rules.own_depths && rules.has_gpipe && grid_.stages > 1;
  if (!is_gpipe_) return evaluate_schedule(candidate);
  const double by_gpipe = evaluate_schedule(candidate);
  is_gpipe_ = false;
  const double by_own = evaluate_schedule(candidate);
  if (by_own <= by_gpipe) return by_own;
  // Once more, for what it leaves behind.
  is_gpipe_ = true;
  return evaluate_schedule(candidate);
}

double Evaluator::evaluate_schedule(const Candidate& candidate) {
  const int stages = grid_.stages;
  const int pipelines = grid_.pipelines;
  fill_times(candidate);
  for (int d = 0; d < pipelines; ++d) {
    double slowest = 0;
    for (int i = 0; i < stages; ++i) {
      const StageTime& time = stage_times_[cell(d, i)];
      slowest = std::max(slowest, time.forward + time.backward);
    }
    periods_[at(d)] = slowest;
  }
  const double overflow = choose_in_flight(candidate);
  if (overflow > 0) return kOverflow * (1 + overflow);

  count_transfers(candidate);
  const int share = std::max(1, static_cast<int>(batches_ / pipelines));
  double rate = 0;  // micro-batches per second of all pipelines together
  double head = 0;  // micro-batches that their fills cost
  double latest = 0;
  for (int d = 0; d < pipelines; ++d) {
    const std::span stage_times(&stage_times_[cell(d, 0)], at(stages));
    const std::span hop_times(hop_times_.data() + d * (stages - 1), at(stages - 1));
    const double fill = pipeline_fill(stage_times, hop_times);
    // Depths that hide every round trip leave the slowest stage or serialisation.
    double period = periods_[at(d)];
    for (const HopTime& hop : hop_times) {
      period = std::max({period, hop.forward_send, hop.backward_send});
    }
    if (is_gpipe_) {
      period = gpipe_period(stage_times, hop_times);
    } else if (!is_deep_) {
      period = pipeline_period(stage_times, hop_times, in_flight_, share);
    }
    period = std::max(period, shared_period(candidate, d));
    fills_[at(d)] = fill;
    periods_[at(d)] = period;
    rate += 1 / period;
    head += fill / period;
    latest = std::max(latest, fill);
  }
  clear_loads();
  exchange_usd_ = 0;
  // All pipelines end together at the time that makes their shares add up, unless these are equal.
  const bool has_equal_shares = problem_.rules().expressible.equal_shares;
  const auto end_of = [&](int d) { return fills_[at(d)] + (share - 1) * periods_[at(d)]; };
  double end = std::max(latest, (batches_ - pipelines + head) / rate);
  if (has_equal_shares) {
    end = 0;
    for (int d = 0; d < pipelines; ++d) end = std::max(end, end_of(d));
  }

  // A stage ends its last backward before the first stage does, by the drain between them.
  std::fill(ends_.begin(), ends_.end(), 0.0);
  for (int d = 0; d < pipelines; ++d) {
    double drain = 0;
    const double last = has_equal_shares ? end_of(d) : end;
    for (int i = 0; i < stages; ++i) {
      ends_[at(i)] = std::max(ends_[at(i)], last - drain);
      drain += stage_times_[cell(d, i)].backward;
      if (i + 1 < stages) {
        const HopTime& hop = hop_times_[at(d * (stages - 1) + i)];
        drain += hop.backward_send + hop.backward_latency;
      }
    }
  }
  const double first_end = *std::min_element(ends_.begin(), ends_.end());
  double ready = *std::max_element(ends_.begin(), ends_.end());
  double update = 0;
  group_slots_.clear();
  group_begin_.clear();
  if (pipelines > 1) count_node_links(candidate);
  for (int i = 0; i < stages; ++i) {
    const StageCost& stage = cost(i, candidate.layers[at(i)]);
    members_.clear();
    for (int d = 0; d < pipelines; ++d) {
      const int device = candidate.cells[cell(d, i)];
      members_.push_back(device);
      update = std::max(update, stage.parameters * problem_.update_seconds_per_parameter(device));
    }
    group_begin_.push_back(group_slots_.size());
    alone_[at(i)] = pipelines > 1 ? reduce_time(stage.gradient) : 0;
  }
  group_begin_.push_back(group_slots_.size());
  // What several stages' exchanges share lets none of them go before it has carried them all.
  const std::span<const std::size_t> slots = group_slots_;
  for (int i = 0; i < stages; ++i) {
    const std::size_t begin = group_begin_[at(i)];
    const double loaded = load_time(slots.subspan(begin, group_begin_[at(i) + 1] - begin));
    ends_[at(i)] = std::max(ends_[at(i)] + alone_[at(i)], first_end + loaded);
    ready = std::max(ready, ends_[at(i)]);
  }
  clear_loads();
  if (problem_.job().model.tied_embedding && stages > 1) {
    members_.clear();
    for (int d = 0; d < pipelines; ++d) {
      members_.push_back(candidate.cells[cell(d, 0)]);
      members_.push_back(candidate.cells[cell(d, stages - 1)]);
    }
    const double alone = reduce_time(tied_gradient_elements(problem_.job().model));
    const double tied = std::max(alone, load_time(touched_));
    clear_loads();
    ready = std::max(ready, std::max(ends_.front(), ends_.back()) + tied);
  }
  const double commit = commit_time(candidate, nullptr);
  const double seconds = ready + commit + update;

  const auto slowest = std::max_element(periods_.begin(), periods_.end()) - periods_.begin();
  closed_form_ = {.pipeline = static_cast<int>(slowest),
                  .fill = fills_[static_cast<std::size_t>(slowest)],
                  .period = periods_[static_cast<std::size_t>(slowest)],
                  .exchange = ready - end,
                  .commit = commit,
                  .update = update};
  closed_form_.steady = end - closed_form_.fill;
  closed_form_.seconds = seconds;
  closed_form_.usd = price(candidate, seconds);
  const Goal& goal = problem_.goal();
  if (closed_form_.usd > goal.usd_max) return kOverPrice * (closed_form_.usd / goal.usd_max);
  return goal.cost ? closed_form_.usd : seconds;
}

Plan Evaluator::finish(const Candidate& candidate) {
  const double value = evaluate(candidate);
  LH_CHECK(value < kOverflow, "only a candidate that fits is finished");
  Plan plan;
  plan.layers = candidate.layers;
  plan.micro_batch = grid_.micro_batch;
  for (int d = 0; d < grid_.pipelines; ++d) {
    const auto first = candidate.cells.begin() + d * grid_.stages;
    plan.devices.emplace_back(first, first + grid_.stages);
  }
  plan.micro_batches = share_micro_batches(fills_, periods_, static_cast<int>(batches_));
  const int most = *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end());
  plan.family = ScheduleFamily::kOneForwardOneBackward;
  plan.recompute = problem_.job().recompute == Recompute::kYes;
  for (const int depth : in_flight_) plan.in_flight.push_back(std::min(depth, most));
  commit_time(candidate, &plan.coordinator_site);
  const Expressible& rules = problem_.rules().expressible;
  if (rules == Expressible{}) return plan;
  if (is_gpipe_) plan.family = ScheduleFamily::kGpipe;
  return restricted(rules, std::move(plan), problem_.job());
}

std::vector<int> Evaluator::split_layers(const std::vector<int>& cells) const {
  const int stages = grid_.stages;
  if (problem_.rules().expressible.equal_layers)
    return std::vector<int>(at(stages), problem_.job().model.layers / stages);
  std::vector<double> per_flop(at(stages), 0);  // of the mean device of the stage
  std::vector<double> memory(at(stages), std::numeric_limits<double>::infinity());
  for (int i = 0; i < stages; ++i) {
    for (int d = 0; d < grid_.pipelines; ++d) {
      per_flop[at(i)] += problem_.seconds_per_flop(cells[cell(d, i)]) / grid_.pipelines;
      memory[at(i)] = std::min(memory[at(i)], problem_.memory(cells[cell(d, i)]));
    }
  }
  std::vector<int> layers(at(stages), 1);
  for (int left = problem_.job().model.layers - stages; left > 0; --left) {
    int best = -1;
    double best_time = 0;
    bool best_fits = false;
    for (int i = 0; i < stages; ++i) {
      const StageCost& stage = cost(i, layers[at(i)] + 1);
      const double time = (stage.forward_flops + stage.backward_flops) * per_flop[at(i)];
      const bool fits = stage.fixed_bytes + (stages - i) * stage.in_flight_bytes <= memory[at(i)];
      if (best < 0 || (fits && !best_fits) || (fits == best_fits && time < best_time)) {
        best = i;
        best_time = time;
        best_fits = fits;
      }
    }
    ++layers[at(best)];
  }
  return layers;
}

std::vector<int> share_micro_batches(const std::vector<double>& fills,
                                     const std::vector<double>& periods, int total) {
  const auto pipelines = static_cast<int>(fills.size());
  LH_CHECK(total >= pipelines, "every pipeline gets a micro-batch");
  std::vector<int> shares(fills.size(), 1);
  using Next = std::pair<double, int>;  // end with one more, pipeline
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  for (int d = 0; d < pipelines; ++d) next.push({fills[at(d)] + periods[at(d)], d});
  for (int left = total - pipelines; left > 0; --left) {
    const auto [end, d] = next.top();
    next.pop();
    ++shares[at(d)];
    next.push({end + periods[at(d)], d});
  }
  return shares;
}

}  // namespace longhaul
