#include "core/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>

namespace longhaul {
namespace {

/// Appends to one tasklet's list and remembers where things are.
class ListBuilder {
 public:
  ListBuilder(TaskletSchedule& tasklet, const Plan& plan, bool recompute)
      : list_(tasklet.instructions),
        cell_(tasklet.pipeline * plan.stages() + tasklet.stage),
        has_previous_(tasklet.stage > 0),
        has_next_(tasklet.stage + 1 < plan.stages()),
        recompute_(recompute) {}

  void forward(int micro_batch) {
    std::int32_t input = -1;
    if (has_previous_) input = add({Op::kReceiveActivation, micro_batch, cell_ - 1});
    const std::int32_t forward = add({Op::kForward, micro_batch, -1, {input, -1}});
    if (has_next_) add({Op::kSendActivation, micro_batch, cell_ + 1, {forward, -1}});
  }

  /// `op`: the whole backward or its first half.
  void backward(int micro_batch, Op op = Op::kBackward) {
    if (recompute_) add({Op::kRecompute, micro_batch});
    std::int32_t input = -1;
    if (has_next_) input = add({Op::kReceiveGradient, micro_batch, cell_ + 1});
    last_backward_ = add({op, micro_batch, -1, {input, -1}});
    if (has_previous_) add({Op::kSendGradient, micro_batch, cell_ - 1, {last_backward_, -1}});
  }

  /// The compute lane's order has its input gradient first; nothing else is waited for.
  void backward_weight(int micro_batch) {
    last_backward_ = add({Op::kBackwardWeight, micro_batch});
  }

  void run(const StageOrder& order) {
    std::array<int, 3> next = {};
    for (const Pass pass : order) {
      const int micro_batch = next[static_cast<std::size_t>(pass)]++;
      if (pass == Pass::kForward) forward(micro_batch);
      if (pass == Pass::kBackwardInput) backward(micro_batch, Op::kBackwardInput);
      if (pass == Pass::kBackwardWeight) backward_weight(micro_batch);
    }
  }

  /// K forwards, then backwards and forwards in turn.
  void run_in_order(int micro_batches, int in_flight) {
    for (int m = 0; m < in_flight; ++m) forward(m);
    for (int m = 0; m < micro_batches; ++m) {
      backward(m);
      if (m + in_flight < micro_batches) forward(m + in_flight);
    }
  }

  void finish(bool reduce, bool tied) {
    std::int32_t ready = last_backward_;
    if (reduce) ready = add({Op::kReduce, -1, -1, {last_backward_, -1}});
    if (tied) ready = add({Op::kTiedReduce, -1, -1, {last_backward_, -1}});
    const std::int32_t prepared = add({Op::kPrepare, -1, -1, {ready, -1}});
    add({Op::kUpdate, -1, -1, {prepared, -1}});
  }

 private:
  std::int32_t add(Instruction instruction) {
    list_.push_back(instruction);
    return static_cast<std::int32_t>(list_.size()) - 1;
  }

  std::vector<Instruction>& list_;
  int cell_;
  bool has_previous_;
  bool has_next_;
  bool recompute_;
  std::int32_t last_backward_ = -1;
};

bool is_send(Op op) {
  return op == Op::kSendActivation || op == Op::kSendGradient;
}
bool is_receive(Op op) {
  return op == Op::kReceiveActivation || op == Op::kReceiveGradient;
}

/// A send or a receive: two of one name belong together. Sorted by name, the send first.
struct Message {
  std::uint64_t channel;  // from, to
  std::uint64_t what;     // activation or gradient, micro-batch, send or receive
  std::int32_t node;

  auto operator<=>(const Message& other) const = default;
  bool is_receive() const { return (what & 1) != 0; }
  bool belongs_to(const Message& other) const {
    return channel == other.channel && (what | 1) == (other.what | 1);
  }
};

Message message_of(const Instruction& instruction, int cell, std::int32_t node) {
  const bool activation =
      instruction.op == Op::kSendActivation || instruction.op == Op::kReceiveActivation;
  const bool receives = is_receive(instruction.op);
  const auto word = [](int value) { return std::uint64_t{static_cast<std::uint32_t>(value)}; };
  const int from = receives ? instruction.peer : cell;
  const int to = receives ? cell : instruction.peer;
  return {word(from) << 32 | word(to),
          (activation ? 0 : std::uint64_t{1} << 33) | word(instruction.micro_batch) << 1 |
              (receives ? 1 : 0),
          node};
}

std::string describe(const Schedule& schedule, int cell, const Instruction& instruction) {
  std::string text(name_of(instruction.op));
  if (instruction.micro_batch >= 0) text += fmt::format(" {}", instruction.micro_batch);
  return text + " of " + schedule.name_of_cell(cell);
}

std::string describe(const Schedule& schedule, const ScheduleGraph& graph, std::int32_t node) {
  const auto after = std::upper_bound(graph.first_node.begin(), graph.first_node.end(), node);
  const auto cell = static_cast<int>(after - graph.first_node.begin()) - 1;
  const auto& list = schedule.tasklets[static_cast<std::size_t>(cell)].instructions;
  const auto index = node - graph.first_node[static_cast<std::size_t>(cell)];
  return describe(schedule, cell, list[static_cast<std::size_t>(index)]);
}

struct Edge {
  std::int32_t from;
  std::int32_t to;
};

/// Edges of lane order and `after`, inside one tasklet.
Result<void> add_local_edges(const Schedule& schedule, int cell, std::int32_t first,
                             std::vector<Edge>& edges) {
  const auto& list = schedule.tasklets[static_cast<std::size_t>(cell)].instructions;
  std::map<std::pair<Lane, int>, std::int32_t> last_of_lane;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto node = first + static_cast<std::int32_t>(i);
    const auto [last, is_first] =
        last_of_lane.try_emplace({lane_of(list[i].op), list[i].peer}, node);
    if (!is_first) {
      edges.push_back({last->second, node});
      last->second = node;
    }
    for (const std::int32_t before : list[i].after) {
      if (before == -1) continue;
      if (before < 0 || before >= static_cast<std::int32_t>(list.size())) {
        return invalid(fmt::format("{} waits for instruction {}, which its list does not have",
                                   describe(schedule, cell, list[i]), before));
      }
      edges.push_back({first + before, node});
    }
  }
  return {};
}

/// Edges from each send to its receive; every message must have one of each.
Result<void> add_message_edges(const Schedule& schedule, const ScheduleGraph& graph,
                               std::vector<Edge>& edges) {
  std::vector<Message> messages;
  messages.reserve(graph.size());
  for (std::size_t c = 0; c < schedule.tasklets.size(); ++c) {
    const auto& list = schedule.tasklets[c].instructions;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!is_send(list[i].op) && !is_receive(list[i].op)) continue;
      messages.push_back(message_of(list[i], static_cast<int>(c),
                                    graph.first_node[c] + static_cast<std::int32_t>(i)));
    }
  }
  std::sort(messages.begin(), messages.end());
  for (std::size_t m = 0; m < messages.size();) {
    const bool paired = m + 1 < messages.size() && messages[m].belongs_to(messages[m + 1]) &&
                        !messages[m].is_receive() && messages[m + 1].is_receive();
    const bool repeated =
        m + 2 < messages.size() && paired && messages[m + 2].belongs_to(messages[m]);
    if (!paired || repeated) {
      const Message& lone = repeated ? messages[m + 2] : messages[m];
      return invalid(fmt::format("{} has no matching {}", describe(schedule, graph, lone.node),
                                 lone.is_receive() ? "send" : "receive"));
    }
    edges.push_back({messages[m].node, messages[m + 1].node});
    m += 2;
  }
  return {};
}

/// The nodes that a topological sort leaves over contain a cycle; follows predecessors to name it.
Error name_cycle(const Schedule& schedule, const ScheduleGraph& graph,
                 const std::vector<Edge>& edges, const std::vector<std::int32_t>& left) {
  std::vector<std::int32_t> waits_for(graph.size(), -1);
  for (const Edge& edge : edges) {
    if (left[static_cast<std::size_t>(edge.from)] > 0 &&
        left[static_cast<std::size_t>(edge.to)] > 0) {
      waits_for[static_cast<std::size_t>(edge.to)] = edge.from;
    }
  }
  const auto stuck = std::find_if(left.begin(), left.end(), [](std::int32_t n) { return n > 0; });
  auto node = static_cast<std::int32_t>(stuck - left.begin());
  for (std::size_t i = 0; i < graph.size(); ++i) node = waits_for[static_cast<std::size_t>(node)];
  std::string cycle = describe(schedule, graph, node);
  const std::int32_t start = node;
  do {
    node = waits_for[static_cast<std::size_t>(node)];
    cycle += "\n    waits for " + describe(schedule, graph, node);
  } while (node != start);
  return Error{ErrorCode::kInvalid, "the schedule dead-locks: " + cycle, "", {}, "", {}};
}

}  // namespace

std::string_view name_of(Op op) {
  switch (op) {
    case Op::kReceiveActivation:
      return "RECV_ACT";
    case Op::kForward:
      return "FWD";
    case Op::kSendActivation:
      return "SEND_ACT";
    case Op::kReceiveGradient:
      return "RECV_GRAD";
    case Op::kRecompute:
      return "RECOMPUTE";
    case Op::kBackward:
      return "BWD";
    case Op::kBackwardInput:
      return "BWD_INPUT";
    case Op::kBackwardWeight:
      return "BWD_WEIGHT";
    case Op::kSendGradient:
      return "SEND_GRAD";
    case Op::kReduce:
      return "REDUCE";
    case Op::kTiedReduce:
      return "TIED_REDUCE";
    case Op::kPrepare:
      return "PREPARE";
    case Op::kUpdate:
      return "UPDATE";
  }
  return "?";
}

Lane lane_of(Op op) {
  switch (op) {
    case Op::kForward:
    case Op::kRecompute:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kUpdate:
      return Lane::kCompute;
    case Op::kSendActivation:
    case Op::kSendGradient:
      return Lane::kSend;
    case Op::kReceiveActivation:
    case Op::kReceiveGradient:
      return Lane::kReceive;
    case Op::kReduce:
    case Op::kTiedReduce:
    case Op::kPrepare:
      return Lane::kReduce;
  }
  return Lane::kCompute;
}

std::string Schedule::name_of_cell(int cell) const {
  return fmt::format("stage {} of pipeline {}", cell % stages, cell / stages);
}

Schedule make_schedule(const Plan& plan, const Job& job) {
  Schedule schedule;
  schedule.stages = plan.stages();
  schedule.pipelines = plan.pipelines();
  const bool tied = has_tied_exchange(plan, job);
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (int i = 0; i < plan.stages(); ++i) {
      TaskletSchedule tasklet{d, i, {}};
      ListBuilder list(tasklet, plan, recomputes(plan, job));
      const int count = plan.micro_batches[static_cast<std::size_t>(d)];
      const auto stage = static_cast<std::size_t>(i);
      if (plan.family == ScheduleFamily::kGreedy) {
        LH_CHECK(stage < plan.orders.size(), "a greedy plan has the order of every stage");
        list.run(order_for(plan.orders[stage], count));
      } else {
        list.run_in_order(count, std::min(plan.in_flight[stage], count));
      }
      list.finish(plan.pipelines() > 1, tied && (i == 0 || i + 1 == plan.stages()));
      schedule.tasklets.push_back(std::move(tasklet));
    }
  }
  return schedule;
}

Result<ScheduleGraph> build_graph(const Schedule& schedule) {
  ScheduleGraph graph;
  graph.first_node.push_back(0);
  for (const TaskletSchedule& tasklet : schedule.tasklets) {
    graph.first_node.push_back(graph.first_node.back() +
                               static_cast<std::int32_t>(tasklet.instructions.size()));
  }
  const auto nodes = static_cast<std::size_t>(graph.first_node.back());
  graph.waits.assign(nodes, 0);

  std::vector<Edge> edges;
  edges.reserve(3 * nodes);
  for (std::size_t c = 0; c < schedule.tasklets.size(); ++c) {
    LH_TRY(add_local_edges(schedule, static_cast<int>(c), graph.first_node[c], edges));
  }
  LH_TRY(add_message_edges(schedule, graph, edges));

  graph.next_begin.assign(nodes + 1, 0);
  for (const Edge& edge : edges) {
    ++graph.waits[static_cast<std::size_t>(edge.to)];
    ++graph.next_begin[static_cast<std::size_t>(edge.from) + 1];
  }
  for (std::size_t n = 0; n < nodes; ++n) graph.next_begin[n + 1] += graph.next_begin[n];
  graph.next.resize(edges.size());
  std::vector<std::int32_t> fill(graph.next_begin.begin(), graph.next_begin.end() - 1);
  for (const Edge& edge : edges) {
    graph.next[static_cast<std::size_t>(fill[static_cast<std::size_t>(edge.from)]++)] = edge.to;
  }

  // Kahn's topological sort; what it cannot reach waits on a cycle.
  std::vector<std::int32_t> left = graph.waits;
  std::vector<std::int32_t> ready;
  for (std::size_t n = 0; n < nodes; ++n) {
    if (left[n] == 0) ready.push_back(static_cast<std::int32_t>(n));
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const auto node = static_cast<std::size_t>(ready.back());
    ready.pop_back();
    ++done;
    for (auto e = graph.next_begin[node]; e < graph.next_begin[node + 1]; ++e) {
      const std::int32_t successor = graph.next[static_cast<std::size_t>(e)];
      if (--left[static_cast<std::size_t>(successor)] == 0) ready.push_back(successor);
    }
  }
  if (done < nodes) return std::unexpected(name_cycle(schedule, graph, edges, left));
  return graph;
}

}  // namespace longhaul
