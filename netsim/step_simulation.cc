#include "netsim/step_simulation.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/event_queue.h"
#include "core/history_budget.h"
#include "core/model_math.h"
#include "netsim/exchange.h"
#include "netsim/step_network.h"

namespace longhaul {
namespace {

bool is_between_sites(const Topology& topology, int from_device, int to_device) {
  return topology.site_of(from_device) != topology.site_of(to_device);
}

/// So many elements of a gradient, of both kinds as in the whole.
GradientElements part_of(const GradientElements& gradient, double elements) {
  if (elements <= 0) return {};
  const double coded = elements * (gradient.coded / gradient.all());
  return {coded, elements - coded};
}

/// An all-reduce in progress. Members are numbered within the group.
struct Exchange {
  Op op = Op::kReduce;
  std::vector<int> cells;
  Codec codec = Codec::kNone;
  GradientElements gradient;
  ExchangeGraph graph;              // its points count down
  std::vector<std::int32_t> nodes;  // the members' instructions
};

enum class What : std::uint8_t {
  kInstructionDone,  // a: node
  kArrival,          // a: receive node
  kExchangeArrival,  // a: exchange, b: point
  kPrepared,         // a: node of the PREPARE
};
struct Event {
  What what;
  std::int32_t a = 0;
  std::int32_t b = 0;
  std::int32_t cause = -1;  // part of the causal chain that ends with it
};

/// What a message is, so that its end can be acted on.
struct Transfer {
  Event on_arrival;
  std::int32_t send_node = -1;  // frees the send lane when the last byte has left
  int from_cell = 0;
  int to_cell = 0;
  Op op = Op::kSendActivation;
  int micro_batch = -1;
  SimTime start;
  Bytes wire;
  std::int32_t cause = -1;
};

/// Something that took time and let the next thing begin: `parent` ended when it began.
struct ChainPart {
  CriticalKind kind;
  std::int32_t from;
  std::int32_t to;
  std::int32_t parent;
  SimTime time;
};

class StepSimulation {
 public:
  StepSimulation(const Topology& topology, const Job& job, const Plan& plan,
                 const StepOptions& options)
      : topology_(topology),
        job_(job),
        plan_(plan),
        options_(options),
        schedule_(make_schedule(plan, job)),
        network_(topology, options.conditions, options.begin, options.step) {}

  Result<StepResult> run() {
    LH_ASSIGN(graph_, build_graph(schedule_));
    prepare();
    for (std::size_t n = 0; n < graph_.size(); ++n) {
      if (graph_.waits[n] == 0) start(static_cast<std::int32_t>(n));
    }
    while (!events_.empty() || network_.messages() > 0) {
      // Transfers that end at an instant go first: later events of that instant may start others.
      const SimTime network_time = network_.next_event();
      now_ = std::min(network_time, events_.next_time());
      if (now_ >= on_clock(kLongestStep)) return too_long();
      if (network_time == now_) {
        if (const auto ended = network_.advance()) finish_transfer(*ended);
      } else {
        handle(events_.pop());
      }
    }
    return collect();
  }

 private:
  struct StageTimes {
    SimTime forward, backward, backward_input, backward_weight, recompute, update;
  };

  static std::unexpected<Error> too_long() {
    return infeasible("the step takes longer than 50 days, the most that is simulated",
                      "look for a rate or a latency with the wrong unit");
  }

  int device_of(int cell) const {
    return plan_.device(cell / plan_.stages(), cell % plan_.stages());
  }

  const Instruction& instruction(std::int32_t node) const {
    const int cell = cell_of_[static_cast<std::size_t>(node)];
    const auto index = node - graph_.first_node[static_cast<std::size_t>(cell)];
    return schedule_.tasklets[static_cast<std::size_t>(cell)]
        .instructions[static_cast<std::size_t>(index)];
  }

  void prepare() {
    waits_ = graph_.waits;
    end_.assign(graph_.size(), SimTime());
    produced_.assign(graph_.size(), SimTime());
    cell_of_.resize(graph_.size());
    const std::size_t cells = schedule_.tasklets.size();
    for (std::size_t c = 0; c < cells; ++c) {
      std::fill(cell_of_.begin() + graph_.first_node[c],
                cell_of_.begin() + graph_.first_node[c + 1], static_cast<int>(c));
    }
    result_.tasklets.resize(cells);
    compute_free_.assign(cells, SimTime());
    last_backward_.assign(cells, SimTime());
    prepared_.assign(cells, SimTime());
    last_arrival_.assign(2 * cells, SimTime());
    const std::vector<StageShape> shapes = stage_shapes(plan_.layers);
    for (std::size_t c = 0; c < cells; ++c) {
      const StageShape& shape = shapes[c % shapes.size()];
      const DeviceKind& kind = topology_.kind_of(device_of(static_cast<int>(c)));
      const StageWork work = stage_work(job_.model, shape, plan_.micro_batch);
      times_.push_back({on_clock(compute_time(kind, job_.precision, work.forward)),
                        on_clock(compute_time(kind, job_.precision, work.backward)),
                        on_clock(compute_time(kind, job_.precision, work.backward_input)),
                        on_clock(compute_time(kind, job_.precision, work.backward_weight)),
                        on_clock(compute_time(kind, job_.precision, work.recompute)),
                        on_clock(update_time(kind, stage_parameters(job_.model, shape)))});
    }
    add_exchanges(shapes);
    add_boundaries();
    traffic_.resize(topology_.sites.size() * topology_.sites.size());
  }

  void add_boundaries() {
    activations_.resize(schedule_.tasklets.size());
    activation_gradients_.resize(schedule_.tasklets.size());
    for (int d = 0; d < plan_.pipelines(); ++d) {
      for (int i = 0; i + 1 < plan_.stages(); ++i) {
        const auto cell = static_cast<std::size_t>(d * plan_.stages() + i);
        activations_[cell] = activation_message(topology_, job_, plan_, d, i, options_.visit);
        activation_gradients_[cell] = activation_gradient_message(topology_, job_, plan_, d, i);
      }
    }
  }

  void add_exchanges(const std::vector<StageShape>& shapes) {
    const int stages = plan_.stages();
    for (int i = 0; i < stages; ++i) {
      std::vector<int> cells;
      for (int d = 0; d < plan_.pipelines(); ++d) cells.push_back(d * stages + i);
      add_exchange(
          Op::kReduce, std::move(cells), i,
          stage_gradient_elements(job_.model, shapes[static_cast<std::size_t>(i)], stages));
    }
    if (!has_tied_exchange(plan_, job_)) return;
    std::vector<int> ends;
    for (const int i : {stages - 1, 0}) {
      for (int d = 0; d < plan_.pipelines(); ++d) ends.push_back(d * stages + i);
    }
    add_exchange(Op::kTiedReduce, std::move(ends), stages, tied_gradient_elements(job_.model));
  }

  void add_exchange(Op op, std::vector<int> cells, int stage, const GradientElements& gradient) {
    const Reduction reduction = reduction_of(plan_, job_, stage);
    std::vector<int> sites;
    for (const int cell : cells) sites.push_back(topology_.site_of(device_of(cell)));
    Exchange exchange;
    exchange.op = op;
    exchange.codec = reduction.codec;
    exchange.gradient = gradient;
    exchange.graph = exchange_graph(reduction, gradient.all(), sites);
    exchange.nodes.assign(cells.size(), -1);
    exchange.cells = std::move(cells);
    exchanges_.push_back(std::move(exchange));
  }

  void complete(std::int32_t node) {
    end_[static_cast<std::size_t>(node)] = now_;
    for (auto e = graph_.next_begin[static_cast<std::size_t>(node)];
         e < graph_.next_begin[static_cast<std::size_t>(node) + 1]; ++e) {
      release(graph_.next[static_cast<std::size_t>(e)]);
    }
  }

  void release(std::int32_t node) {
    if (--waits_[static_cast<std::size_t>(node)] == 0) start(node);
  }

  void start(std::int32_t node) {
    const Instruction& what = instruction(node);
    const int cell = cell_of_[static_cast<std::size_t>(node)];
    switch (what.op) {
      case Op::kForward:
        return compute(node, cell, what, times_[static_cast<std::size_t>(cell)].forward);
      case Op::kBackward:
        return compute(node, cell, what, times_[static_cast<std::size_t>(cell)].backward);
      case Op::kBackwardInput:
        return compute(node, cell, what, times_[static_cast<std::size_t>(cell)].backward_input);
      case Op::kBackwardWeight:
        return compute(node, cell, what, times_[static_cast<std::size_t>(cell)].backward_weight);
      case Op::kRecompute:
        return compute(node, cell, what, times_[static_cast<std::size_t>(cell)].recompute);
      case Op::kUpdate:
        return compute(node, cell, what, times_[static_cast<std::size_t>(cell)].update);
      case Op::kSendActivation:
      case Op::kSendGradient:
        return send(node, cell, what);
      case Op::kReceiveActivation:
      case Op::kReceiveGradient:
        return complete(node);
      case Op::kReduce:
      case Op::kTiedReduce:
        return join_exchange(node, cell, what);
      case Op::kPrepare:
        return tell_coordinator(node, cell);
    }
  }

  void compute(std::int32_t node, int cell, const Instruction& what, SimTime duration) {
    const bool is_update = what.op == Op::kUpdate;
    if (options_.conditions != nullptr && !options_.conditions->slowdowns.empty()) {
      const double factor =
          options_.conditions->slowdown(device_of(cell), options_.begin + now_.seconds());
      duration = on_clock(factor * duration.seconds());
    }
    TaskletTimes& times = result_.tasklets[static_cast<std::size_t>(cell)];
    SimTime& free = compute_free_[static_cast<std::size_t>(cell)];
    if (!is_update) {
      // Idle since `free`: first the tensor was not there yet (bubble), then on its way (transfer).
      SimTime produced = now_;
      if (what.after[0] >= 0) {
        const auto input = graph_.first_node[static_cast<std::size_t>(cell)] + what.after[0];
        produced = std::clamp(produced_[static_cast<std::size_t>(input)], free, now_);
      }
      times.bubble += (produced - free).seconds();
      times.transfer += (now_ - produced).seconds();
      times.compute += duration.seconds();
    } else {
      times.update = duration.seconds();
    }
    free = now_ + duration;
    if (what.op == Op::kBackward || what.op == Op::kBackwardWeight) {
      last_backward_[static_cast<std::size_t>(cell)] = free;
    }
    if (options_.timeline) {
      result_.timeline.push_back({what.op, what.micro_batch, cell, -1, now_, free});
    }
    const CriticalKind kind = is_update ? CriticalKind::kUpdate : CriticalKind::kCompute;
    events_.push(free, {What::kInstructionDone, node, 0,
                        caused(kind, device_of(cell), 0, duration, cause_)});
  }

  /// A new part of the chain; `parent` itself where no time passes.
  std::int32_t caused(CriticalKind kind, int from, int to, SimTime time, std::int32_t parent) {
    if (time == SimTime()) return parent;
    chain_.push_back({kind, from, to, parent, time});
    return static_cast<std::int32_t>(chain_.size()) - 1;
  }

  void transfer(int from_cell, int to_cell, const MessageSize& size, Transfer what) {
    const int from = device_of(from_cell);
    const int to = device_of(to_cell);
    LinkTraffic& traffic =
        traffic_[static_cast<std::size_t>(topology_.site_of(from)) * topology_.sites.size() +
                 static_cast<std::size_t>(topology_.site_of(to))];
    traffic.raw += size.raw;
    traffic.wire += size.wire;
    what.from_cell = from_cell;
    what.to_cell = to_cell;
    what.start = now_;
    what.wire = size.wire;
    what.cause = cause_;
    if (free_transfers_.empty()) {
      free_transfers_.push_back(static_cast<std::int32_t>(transfers_.size()));
      transfers_.emplace_back();
    }
    const std::int32_t tag = free_transfers_.back();
    free_transfers_.pop_back();
    transfers_[static_cast<std::size_t>(tag)] = what;
    network_.send(now_, {from, to, size.wire, from_cell / plan_.stages(), tag});
    ++result_.flows;
  }

  void send(std::int32_t node, int cell, const Instruction& what) {
    Transfer transfer_of_node;
    transfer_of_node.send_node = node;
    transfer_of_node.op = what.op;
    transfer_of_node.micro_batch = what.micro_batch;
    const auto& sizes = what.op == Op::kSendActivation ? activations_ : activation_gradients_;
    transfer(cell, what.peer, sizes[static_cast<std::size_t>(std::min(cell, what.peer))],
             transfer_of_node);
  }

  /// Tells a message of the step from all others.
  static std::uint64_t name_of_message(Op op, int micro_batch, int from_cell, int to_cell) {
    const auto part = [](int value) { return static_cast<std::uint64_t>(value + 1); };
    return part(static_cast<int>(op)) << 60 | (part(micro_batch) & 0xfffff) << 40 |
           (part(from_cell) & 0xfffff) << 20 | (part(to_cell) & 0xfffff);
  }

  void finish_transfer(std::int32_t tag) {
    const Transfer what = transfers_[static_cast<std::size_t>(tag)];
    free_transfers_.push_back(tag);
    const bool is_boundary = what.send_node >= 0;
    if (options_.timeline) {
      (is_boundary ? result_.timeline : result_.exchange_messages)
          .push_back({what.op, what.micro_batch, what.from_cell, what.to_cell, what.start, now_,
                      what.wire});
    }
    const int from = device_of(what.from_cell);
    const int to = device_of(what.to_cell);
    const int from_site = topology_.site_of(from);
    const int to_site = topology_.site_of(to);
    const std::int32_t sent =
        caused(CriticalKind::kBandwidth, from_site, to_site, now_ - what.start, what.cause);
    // What an exchange sends is told apart by the point that waits for it.
    SimTime arrival =
        now_ + network_.device_latency(
                   now_, from, to,
                   name_of_message(what.op, is_boundary ? what.micro_batch : what.on_arrival.b,
                                   what.from_cell, what.to_cell));
    if (is_boundary) {  // a lane is one connection, where nothing overtakes
      SimTime& last = last_arrival_[static_cast<std::size_t>(
          2 * what.from_cell + (what.op == Op::kSendGradient ? 1 : 0))];
      arrival = last = std::max(arrival, last);
    }
    const std::int32_t arrived =
        caused(CriticalKind::kLatency, from_site, to_site, arrival - now_, sent);
    if (!is_boundary) {
      Event event = what.on_arrival;
      event.cause = arrived;
      events_.push(arrival, event);
      return;
    }
    cause_ = sent;
    // The send lane is free when the last byte has left; the receive waits for its arrival.
    end_[static_cast<std::size_t>(what.send_node)] = now_;
    const std::int32_t producer = graph_.first_node[static_cast<std::size_t>(what.from_cell)] +
                                  instruction(what.send_node).after[0];
    for (auto e = graph_.next_begin[static_cast<std::size_t>(what.send_node)];
         e < graph_.next_begin[static_cast<std::size_t>(what.send_node) + 1]; ++e) {
      const std::int32_t successor = graph_.next[static_cast<std::size_t>(e)];
      if (cell_of_[static_cast<std::size_t>(successor)] == what.from_cell) {
        release(successor);
      } else {
        produced_[static_cast<std::size_t>(successor)] = end_[static_cast<std::size_t>(producer)];
        events_.push(arrival, {What::kArrival, successor, 0, arrived});
      }
    }
  }

  void join_exchange(std::int32_t node, int cell, const Instruction& what) {
    const auto id = what.op == Op::kReduce ? static_cast<std::size_t>(cell % plan_.stages())
                                           : exchanges_.size() - 1;
    Exchange& exchange = exchanges_[id];
    const auto found = std::find(exchange.cells.begin(), exchange.cells.end(), cell);
    const auto member = static_cast<std::size_t>(found - exchange.cells.begin());
    exchange.nodes[member] = node;
    reduce_start_[node] = now_;
    approach(id, static_cast<int>(member));
  }

  /// A point of an exchange is one step nearer; with the last one, what waits for it begins.
  void approach(std::size_t id, int point_number) {
    Exchange& exchange = exchanges_[id];
    ExchangePoint& point = exchange.graph.points[static_cast<std::size_t>(point_number)];
    if (--point.waits > 0) return;
    for (const ExchangeMessage& message : point.messages) {
      const int from = exchange.cells[static_cast<std::size_t>(message.from)];
      const int to = exchange.cells[static_cast<std::size_t>(message.to)];
      Transfer transfer_of_message;
      transfer_of_message.on_arrival = {What::kExchangeArrival, static_cast<std::int32_t>(id),
                                        message.next, -1};
      transfer_of_message.op = exchange.op;
      transfer(
          from, to,
          gradient_message(topology_, exchange.codec, part_of(exchange.gradient, message.elements),
                           device_of(from), device_of(to)),
          transfer_of_message);
    }
    for (const int next : point.next) approach(id, next);
    if (point.member >= 0) finish_exchange(exchange, static_cast<std::size_t>(point.member));
  }

  void finish_exchange(const Exchange& exchange, std::size_t member) {
    const std::int32_t node = exchange.nodes[member];
    if (options_.timeline) {
      result_.timeline.push_back(
          {exchange.op, -1, exchange.cells[member], -1, reduce_start_[node], now_});
    }
    complete(node);
  }

  void tell_coordinator(std::int32_t node, int cell) {
    prepared_[static_cast<std::size_t>(cell)] = now_;
    const int site = topology_.site_of(device_of(cell));
    const SimTime latency = network_.latency(now_, site, plan_.coordinator_site,
                                             name_of_message(Op::kPrepare, 0, cell, 0));
    events_.push(now_ + latency,
                 {What::kPrepared, node, 0,
                  caused(CriticalKind::kLatency, site, plan_.coordinator_site, latency, cause_)});
  }

  /// Everybody is prepared.
  void commit() {
    for (const std::int32_t node : prepare_nodes_) {
      const int cell = cell_of_[static_cast<std::size_t>(node)];
      const int site = topology_.site_of(device_of(cell));
      const SimTime latency = network_.latency(now_, plan_.coordinator_site, site,
                                               name_of_message(Op::kUpdate, 0, cell, 0));
      events_.push(now_ + latency,
                   {What::kInstructionDone, node, 0,
                    caused(CriticalKind::kLatency, plan_.coordinator_site, site, latency, cause_)});
    }
  }

  void handle(const Event& event) {
    cause_ = event.cause;
    last_event_ = event.cause;
    switch (event.what) {
      case What::kInstructionDone:
        return complete(event.a);
      case What::kArrival:
        return release(event.a);
      case What::kExchangeArrival:
        return approach(static_cast<std::size_t>(event.a), event.b);
      case What::kPrepared:
        prepare_nodes_.push_back(event.a);
        if (prepare_nodes_.size() == schedule_.tasklets.size()) commit();
        return;
    }
  }

  /// The chain that ends with the last event, which is the last update, summed by what and where.
  void collect_critical() {
    std::map<std::tuple<CriticalKind, int, int>, SimTime> sums;
    for (std::int32_t part = last_event_; part >= 0;
         part = chain_[static_cast<std::size_t>(part)].parent) {
      const ChainPart& link = chain_[static_cast<std::size_t>(part)];
      sums[{link.kind, link.from, link.to}] += link.time;
    }
    for (const auto& [what, time] : sums) {
      const auto& [kind, from, to] = what;
      result_.critical.push_back({kind, from, to, time.seconds()});
    }
    std::stable_sort(result_.critical.begin(), result_.critical.end(),
                     [](const CriticalPart& a, const CriticalPart& b) { return a.time > b.time; });
  }

  StepResult collect() {
    LH_CHECK(prepare_nodes_.size() == schedule_.tasklets.size(),
             "a checked schedule runs to its end");
    SimTime end;
    for (const SimTime free : compute_free_) end = std::max(end, free);
    result_.step = end.seconds();
    collect_critical();
    for (std::size_t c = 0; c < result_.tasklets.size(); ++c) {
      TaskletTimes& times = result_.tasklets[c];
      times.reduce = (prepared_[c] - last_backward_[c]).seconds();
      times.commit = (end - prepared_[c]).seconds() - times.update;
      result_.usd += result_.step.value() / 3600 *
                     topology_.kind_of(device_of(static_cast<int>(c))).usd_per_hour;
    }
    for (int from = 0; from < topology_.site_count(); ++from) {
      for (int to = 0; to < topology_.site_count(); ++to) {
        LinkTraffic& traffic = traffic_[static_cast<std::size_t>(from) * topology_.sites.size() +
                                        static_cast<std::size_t>(to)];
        if (traffic.wire <= Bytes(0)) continue;
        traffic.from_site = from;
        traffic.to_site = to;
        result_.traffic.push_back(traffic);
        if (from != to) {
          result_.usd += traffic.wire.value() *
                         topology_.sites[static_cast<std::size_t>(from)].egress_usd_per_byte;
        }
      }
    }
    return std::move(result_);
  }

  const Topology& topology_;
  const Job& job_;
  const Plan& plan_;
  const StepOptions& options_;
  Schedule schedule_;
  ScheduleGraph graph_;
  StepNetwork network_;
  EventQueue<Event> events_;
  SimTime now_;
  std::int32_t cause_ = -1;       // of what begins now
  std::int32_t last_event_ = -1;  // its part of the chain
  std::vector<ChainPart> chain_;
  StepResult result_;

  std::vector<std::int32_t> waits_;                // by node: what it still waits for
  std::vector<SimTime> end_;                       // by node
  std::vector<SimTime> produced_;                  // by receive node: when the tensor was computed
  std::vector<int> cell_of_;                       // by node
  std::vector<StageTimes> times_;                  // by cell
  std::vector<MessageSize> activations_;           // by cell that sends them
  std::vector<MessageSize> activation_gradients_;  // by cell that gets them
  std::vector<SimTime> compute_free_;              // by cell: end of its last compute instruction
  std::vector<SimTime> last_backward_;
  std::vector<SimTime> prepared_;
  std::vector<std::int32_t> prepare_nodes_;  // arrived at the coordinator
  std::vector<Exchange> exchanges_;          // one a stage, then the tied embedding's
  std::map<std::int32_t, SimTime> reduce_start_;
  std::vector<Transfer> transfers_;  // by tag
  std::vector<std::int32_t> free_transfers_;
  std::vector<SimTime> last_arrival_;  // of boundary tensors: two lanes a cell
  std::vector<LinkTraffic> traffic_;   // sites x sites
};

}  // namespace

MessageSize activation_message(const Topology& topology, const Job& job, const Plan& plan,
                               int pipeline, int stage, Visit visit) {
  const int from = topology.site_of(plan.device(pipeline, stage));
  const int to = topology.site_of(plan.device(pipeline, stage + 1));
  const Bytes raw = boundary_bytes(job.model, job.precision, plan.micro_batch);
  const double wire = topology.tcp.wire_factor;
  if (from == to) return {raw, raw * wire};
  const Codec codec = activation_codec(plan, job, from, to);
  const auto bytes = [&](Visit which) {
    const Codec first_visit = job.history ? job.history->first_visit : Codec::kBf16;
    return boundary_message_bytes(codec, job.model, job.precision, plan.micro_batch, which,
                                  first_visit);
  };
  if (!has_history(codec)) return {raw, bytes(visit) * wire};
  const auto histories = boundary_histories(plan, topology, job, pipeline);
  const double hits =
      visit == Visit::kFirst ? 0 : hit_rate(job, histories[static_cast<std::size_t>(stage)]);
  return {raw, (hits * bytes(Visit::kLater) + (1 - hits) * bytes(Visit::kFirst)) * wire};
}

MessageSize activation_gradient_message(const Topology& topology, const Job& job, const Plan& plan,
                                        int pipeline, int stage) {
  const int from = topology.site_of(plan.device(pipeline, stage + 1));
  const int to = topology.site_of(plan.device(pipeline, stage));
  const Bytes raw = boundary_bytes(job.model, job.precision, plan.micro_batch);
  const double wire = topology.tcp.wire_factor;
  if (from == to) return {raw, raw * wire};
  const Codec codec = activation_gradient_codec(plan, job, from, to);
  return {raw, boundary_message_bytes(codec, job.model, job.precision, plan.micro_batch) * wire};
}

bool asks_visit(const Topology& topology, const Job& job, const Plan& plan) {
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (const BoundaryHistory& boundary : boundary_histories(plan, topology, job, d)) {
      if (boundary.samples > 0) return true;
    }
  }
  return false;
}

MessageSize gradient_message(const Topology& topology, Codec codec,
                             const GradientElements& elements, int from_device, int to_device) {
  const bool is_coded = is_between_sites(topology, from_device, to_device);
  const Bytes payload = gradient_wire_bytes(is_coded ? codec : Codec::kNone, elements);
  return {gradient_wire_bytes(Codec::kNone, elements), payload * topology.tcp.wire_factor};
}

Result<StepResult> simulate_step(const Topology& topology, const Job& job, const Plan& plan,
                                 const StepOptions& options) {
  return StepSimulation(topology, job, plan, options).run();
}

}  // namespace longhaul
