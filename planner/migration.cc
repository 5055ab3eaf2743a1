#include "planner/migration.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/model_math.h"
#include "netsim/flow_network.h"
#include "netsim/network_paths.h"

namespace longhaul {
namespace {

constexpr double kStateBytes = 12;  // a parameter: fp32 weight, m, v
/// Times beyond what the flow network counts are added up instead; nobody waits for them.
constexpr Seconds kLongest(4e6);

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// The model cut into what a stage has or lacks as a whole: its layers, then these.
struct Parts {
  explicit Parts(const ModelShape& model)
      : layers(at(model.layers)),
        token_embedding(layers),
        position_embedding(layers + 1),
        final_norm(layers + 2),
        head(model.tied_embedding ? token_embedding : layers + 3),
        parameters(layers + 4, 0) {
    std::fill_n(parameters.begin(), layers, layer_parameters(model));
    parameters[token_embedding] = token_embedding_parameters(model);
    parameters[position_embedding] = position_embedding_parameters(model);
    parameters[final_norm] = final_norm_parameters(model);
    if (!model.tied_embedding) parameters[head] = token_embedding_parameters(model);
  }

  /// Adds what stage `stage` of the plan has, by part.
  void add_stage(const Plan& plan, int stage, std::vector<char>& has) const {
    int first = 0;
    for (int i = 0; i < stage; ++i) first += plan.layers[at(i)];
    std::fill_n(has.begin() + first, plan.layers[at(stage)], 1);
    if (stage == 0) has[token_embedding] = has[position_embedding] = 1;
    if (stage + 1 == plan.stages()) has[final_norm] = has[head] = 1;
  }

  std::size_t layers, token_embedding, position_embedding, final_norm, head;
  std::vector<double> parameters;  // by part
};

using Held = std::vector<std::vector<char>>;  // [device][part]

Held held_by(const Topology& topology, const Parts& parts, const Plan& plan) {
  Held held(topology.devices.size(), std::vector<char>(parts.parameters.size(), 0));
  for (const std::vector<int>& row : plan.devices) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i] != kGone) parts.add_stage(plan, static_cast<int>(i), held[at(row[i])]);
    }
  }
  return held;
}

/// The one of `holders` that sends fastest to `to`; -1 of none.
int best_sender(const Topology& topology, const std::vector<int>& holders, int to,
                const std::vector<double>& sent) {
  int best = -1;
  for (const int device : holders) {
    if (best >= 0) {
      const BytesPerSecond rate = topology.rate(device, to);
      const BytesPerSecond best_rate = topology.rate(best, to);
      if (rate < best_rate || (rate == best_rate && sent[at(device)] >= sent[at(best)])) continue;
    }
    best = device;
  }
  return best;
}

/// Stands for the checkpoint: the first device of the coordinator's site, `to` itself where it is
/// there, which then reads its own disk.
int checkpoint_device(const Topology& topology, int site, int to) {
  if (topology.site_of(to) == site) return to;
  for (int device = 0; device < topology.device_count(); ++device) {
    if (topology.site_of(device) == site) return device;
  }
  return to;
}

Seconds time_of(const Topology& topology, const std::vector<Move>& moves) {
  const auto wire = [&](const Move& move) { return move.bytes * topology.tcp.wire_factor; };
  std::map<int, Seconds> of_receiver;
  Seconds all;
  for (const Move& move : moves) {
    if (move.from_device == move.to_device) continue;
    const Seconds alone = wire(move) / topology.rate(move.from_device, move.to_device) +
                          topology.latency(move.from_device, move.to_device);
    of_receiver[move.to_device] += alone;
    all += alone;
  }
  if (all > kLongest) {
    Seconds longest;
    for (const auto& [device, time] : of_receiver) longest = std::max(longest, time);
    return longest;
  }

  FlowNetwork network;
  NetworkPaths paths(topology, network);
  std::map<FlowId, Seconds> latency_of;
  for (const Move& move : moves) {
    if (move.from_device == move.to_device) continue;
    const NetworkPath& path = paths.path(move.from_device, move.to_device);
    latency_of[network.start(SimTime(), path.resources, wire(move), path.cap)] = path.latency;
  }
  Seconds last(0);
  while (network.running() > 0) {
    const Seconds now = network.next_completion().seconds();
    last = std::max(last, now + latency_of[network.pop_completed()]);
  }
  return last;
}

/// Parameters that a device lacks for a stage: [device][stage].
std::vector<std::vector<double>> lack_table(const Topology& topology, const Job& job,
                                            const Plan& before, const Plan& after) {
  const Parts parts(job.model);
  const Held held = held_by(topology, parts, before);
  std::vector<std::vector<double>> lacks(held.size(), std::vector<double>(after.layers.size(), 0));
  for (int stage = 0; stage < after.stages(); ++stage) {
    std::vector<char> wanted(parts.parameters.size(), 0);
    parts.add_stage(after, stage, wanted);
    for (std::size_t device = 0; device < held.size(); ++device) {
      for (std::size_t p = 0; p < wanted.size(); ++p) {
        if (wanted[p] != 0 && held[device][p] == 0) lacks[device][at(stage)] += parts.parameters[p];
      }
    }
  }
  return lacks;
}

bool are_alike(const Topology& topology, const std::vector<int>& devices,
               const std::vector<int>& others) {
  const Node& node = topology.nodes[at(topology.node_of(devices.front()))];
  const Node& other = topology.nodes[at(topology.node_of(others.front()))];
  return node.site == other.site && node.nic == other.nic &&
         node.inside_rate == other.inside_rate && node.inside_latency == other.inside_latency &&
         std::ranges::equal(devices, others, [&](int a, int b) {
           return topology.devices[at(a)].kind == topology.devices[at(b)].kind;
         });
}

}  // namespace

Migration migration_between(const Topology& topology, const Job& job, const Plan& before,
                            const Plan& after) {
  const Parts parts(job.model);
  const Held held = held_by(topology, parts, before);
  std::vector<std::vector<int>> holders(parts.parameters.size());
  for (int device = 0; device < topology.device_count(); ++device) {
    for (std::size_t p = 0; p < holders.size(); ++p) {
      if (held[at(device)][p] != 0) holders[p].push_back(device);
    }
  }
  std::vector<double> sent(topology.devices.size(), 0);
  Migration out;
  for (const std::vector<int>& row : after.devices) {
    for (int stage = 0; stage < after.stages(); ++stage) {
      const int to = row[at(stage)];
      std::vector<char> wanted(parts.parameters.size(), 0);
      parts.add_stage(after, stage, wanted);
      std::map<std::pair<int, bool>, Move> moves;  // by sender
      for (std::size_t p = 0; p < wanted.size(); ++p) {
        if (wanted[p] == 0 || held[at(to)][p] != 0 || parts.parameters[p] == 0) continue;
        int from = best_sender(topology, holders[p], to, sent);
        const bool from_checkpoint = from < 0;
        if (from_checkpoint) from = checkpoint_device(topology, after.coordinator_site, to);
        Move& move = moves[{from, from_checkpoint}];
        move.from_device = from;
        move.to_device = to;
        move.from_checkpoint = from_checkpoint;
        if (p < parts.layers) {
          move.layers.push_back(static_cast<int>(p));
        } else {
          move.ends = true;
        }
        const Bytes bytes(kStateBytes * parts.parameters[p]);
        move.bytes += bytes;
        sent[at(from)] += bytes.value();
      }
      for (auto& [sender, move] : moves) {
        out.bytes += move.bytes;
        out.moves.push_back(std::move(move));
      }
    }
  }
  out.time = time_of(topology, out.moves);
  return out;
}

Plan with_less_to_move(const Topology& topology, const Job& job, const Plan& before, Plan after) {
  const std::vector<std::vector<double>> table = lack_table(topology, job, before, after);
  std::vector<std::vector<int>> devices_of(topology.nodes.size());
  for (int d = 0; d < topology.device_count(); ++d)
    devices_of[at(topology.node_of(d))].push_back(d);
  std::erase_if(devices_of, [](const std::vector<int>& devices) { return devices.empty(); });
  std::vector<int> stage_of(topology.devices.size(), -1);
  for (const std::vector<int>& row : after.devices) {
    for (std::size_t i = 0; i < row.size(); ++i) stage_of[at(row[i])] = static_cast<int>(i);
  }
  // Who does the work of each device.
  std::vector<int> now(topology.devices.size());
  for (int d = 0; d < topology.device_count(); ++d) now[at(d)] = d;
  std::vector<int> work_of = now;  // the reverse
  const auto lacks = [&](int device, int work) {
    const int stage = stage_of[at(work)];
    return stage < 0 ? 0.0 : table[at(device)][at(stage)];  // an idle device lacks nothing
  };
  // Exchanges the works of two devices, or of two nodes device by device, if less moves then.
  const auto exchange = [&](const std::vector<int>& devices, const std::vector<int>& others) {
    double gain = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const int a = devices[i];
      const int b = others[i];
      gain += lacks(a, work_of[at(a)]) + lacks(b, work_of[at(b)]) - lacks(a, work_of[at(b)]) -
              lacks(b, work_of[at(a)]);
    }
    if (gain <= 0) return false;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      std::swap(work_of[at(devices[i])], work_of[at(others[i])]);
      now[at(work_of[at(devices[i])])] = devices[i];
      now[at(work_of[at(others[i])])] = others[i];
    }
    return true;
  };
  // Every exchange lessens what moves by a whole part, so that there is an end.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t n = 0; n < devices_of.size(); ++n) {
      const std::vector<int>& devices = devices_of[n];
      for (std::size_t a = 0; a < devices.size(); ++a) {
        for (std::size_t b = a + 1; b < devices.size(); ++b) {
          const bool same =
              topology.devices[at(devices[a])].kind == topology.devices[at(devices[b])].kind;
          if (same && exchange({devices[a]}, {devices[b]})) changed = true;
        }
      }
      for (std::size_t m = n + 1; m < devices_of.size(); ++m) {
        if (are_alike(topology, devices, devices_of[m]) && exchange(devices, devices_of[m]))
          changed = true;
      }
    }
  }
  for (std::vector<int>& row : after.devices) {
    for (int& device : row) device = now[at(device)];
  }
  return after;
}

}  // namespace longhaul
