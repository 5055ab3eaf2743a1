#include "tools/plan_explain.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/quantity.h"
#include "planner/trade_off.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

using Rows = std::vector<std::vector<std::string>>;

/// A saving is below what is worth a word when it rounds to less than a picosecond's noise.
std::string saved_text(Seconds saved) {
  if (std::abs(saved.value()) < 1e-9) return "nothing";
  if (saved < Seconds(0)) return "-" + format_duration(Seconds(-saved.value()));
  return format_duration(saved);
}

const std::string& site_name(const Topology& topology, int site) {
  return topology.sites[static_cast<std::size_t>(site)].name;
}

std::string pair_name(const Topology& topology, const LinkSensitivity& link) {
  return fmt::format("{} <-> {}", site_name(topology, link.site), site_name(topology, link.other));
}

std::string tiers_text(const Explanation& explanation) {
  const ClosedForm& parts = explanation.closed_form;
  const auto time = [](double seconds) { return format_duration(Seconds(seconds)); };
  std::string text = "what each tier of the cost model says\n";
  bool binding = true;
  for (const Bound& bound : explanation.bounds) {
    text += fmt::format("  T0 bound         {:>9}  {}{}\n", time(bound.seconds), bound.name,
                        binding ? ": binds" : "");
    binding = false;
  }
  text += fmt::format(
      "  T1 closed form   {:>9}  fill {} + {} of micro-batches at {} + exchange {} + "
      "commit {} + update {}\n",
      time(parts.seconds), time(parts.fill), time(parts.steady), time(parts.period),
      time(parts.exchange), time(parts.commit), time(parts.update));
  text += fmt::format(
      "  T2 one pipeline  {:>9}  last backward of pipeline {}, the slowest, on links "
      "of its own\n",
      format_duration(explanation.pipeline), explanation.slowest_pipeline);
  text += fmt::format("  T3 simulation    {:>9}  the step\n", format_duration(explanation.step));
  if (!explanation.any_all_reduce) {
    text +=
        "left out of the search: ring and hierarchical all-reduces, which `launch` does not run "
        "yet; --any-all-reduce lets them in\n";
  }
  return text;
}

std::string memory_text(const Explanation& explanation, const Topology& topology) {
  struct Row {
    int devices = 0;
    const DeviceMemory* memory = nullptr;
  };
  // Devices of one stage and kind need the same but for their number of micro-batches.
  std::vector<Row> groups;
  const auto kind_of = [&](const DeviceMemory& memory) {
    return topology.devices[static_cast<std::size_t>(memory.device)].kind;
  };
  for (const DeviceMemory& memory : explanation.memory) {
    const auto same = [&](const Row& row) {
      return row.memory->stage == memory.stage && kind_of(*row.memory) == kind_of(memory) &&
             row.memory->need == memory.need;
    };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) {
      groups.push_back({1, &memory});
    } else {
      ++found->devices;
    }
  }
  Rows rows = {{"stage", "devices", "kind", "needs", "of", "full"}};
  for (const Row& row : groups) {
    const DeviceMemory& memory = *row.memory;
    rows.push_back({fmt::format("{}", memory.stage), fmt::format("{}", row.devices),
                    topology.kind_of(memory.device).name, format_size(memory.need),
                    format_size(memory.size),
                    fmt::format("{:.1f} %", 100 * (memory.need / memory.size))});
  }
  return "memory of the devices, the fullest first\n" + aligned(rows);
}

std::string links_text(const Explanation& explanation, const Topology& topology) {
  if (explanation.links.empty()) return "no traffic between sites\n";
  Rows rows = {
      {"link", "both ways a step", "as one flow", "10 % more rate saves", "1 ms nearer saves"}};
  for (const LinkSensitivity& link : explanation.links) {
    rows.push_back({pair_name(topology, link), format_size(link.wire), format_duration(link.busy),
                    saved_text(link.saved_by_rate), saved_text(link.saved_by_latency)});
  }
  const LinkSensitivity* binding = limiting_link(explanation);
  return fmt::format(
             "busiest links between sites (as one flow: what its busier direction would then "
             "take); {}\n",
             binding == nullptr ? "no rate of theirs binds"
                                : pair_name(topology, *binding) + " binds") +
         aligned(rows);
}

struct FigureOrigin {
  std::string what;
  std::string figures;
  std::string origin;
};

/// "12 measured, 2 assumed".
std::string counts_text(const std::map<std::string, int>& counts) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(fmt::format("{} {}", count, name));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Of the constants that the plan's prediction rests on: its kinds of devices, the links between
/// and inside its sites, TCP.
std::vector<FigureOrigin> origins_of(const Explanation& explanation, const Topology& topology,
                                     const Job& job) {
  std::vector<FigureOrigin> origins;
  std::set<int> kinds, sites;
  for (const DeviceMemory& memory : explanation.memory) {
    sites.insert(topology.site_of(memory.device));
    const int index = topology.devices[static_cast<std::size_t>(memory.device)].kind;
    if (!kinds.insert(index).second) continue;
    const DeviceKind& kind = topology.kinds[static_cast<std::size_t>(index)];
    origins.push_back(
        {kind.name,
         fmt::format("{} {}, {} a pass", format_flop_rate(kind.rate_at(job.precision)),
                     name_of(job.precision), format_duration(kind.overhead)),
         fmt::format("{}: {}", name_of(kind.origin), kind.source)});
  }
  std::map<std::string, int> latencies, rates;
  for (const int from : sites) {
    for (const int to : sites) {
      const Link& link = topology.link(from, to);
      ++latencies[std::string(name_of(link.latency_origin))];
      ++rates[std::string(name_of(link.rate_origin))];
    }
  }
  const int links = static_cast<int>(sites.size() * sites.size());
  const std::string directed = fmt::format("{} directed link{}", links, links == 1 ? "" : "s");
  origins.push_back({"latencies", directed, counts_text(latencies)});
  origins.push_back({"rates", directed, counts_text(rates)});
  const TcpModel usual;
  const bool is_usual =
      topology.tcp.window == usual.window && topology.tcp.wire_factor == usual.wire_factor;
  origins.push_back(
      {"TCP",
       fmt::format("window {}, {} bytes on the wire a byte",
                   topology.tcp.window == Bytes::infinity() ? "unlimited"
                                                            : format_size(topology.tcp.window),
                   topology.tcp.wire_factor),
       is_usual ? "measured: Debian's default buffers, MTU 1500" : "given"});
  return origins;
}

std::string origins_text(const std::vector<FigureOrigin>& origins) {
  std::size_t what = 0;
  std::size_t figures = 0;
  for (const FigureOrigin& origin : origins) {
    what = std::max(what, origin.what.size());
    figures = std::max(figures, origin.figures.size());
  }
  std::string text = "where the figures come from\n";
  for (const FigureOrigin& origin : origins) {
    text += fmt::format("  {:<{}}  {:<{}}  {}\n", origin.what, what, origin.figures, figures,
                        origin.origin);
  }
  return text;
}

std::string grid_text(const JudgedPlan& judged) {
  return fmt::format("{} x {}", judged.plan.stages(), judged.plan.pipelines());
}

/// "3 a100, 4 t4": the devices of a plan by kind.
std::string devices_text(const JudgedPlan& judged, const Topology& topology) {
  std::map<std::string, int> kinds;
  for (const std::vector<int>& row : judged.plan.devices) {
    for (const int device : row) ++kinds[topology.kind_of(device).name];
  }
  return counts_text(kinds);
}

nlohmann::ordered_json judged_json(const JudgedPlan& judged, const Job& job) {
  return {{"stages", judged.plan.stages()},
          {"pipelines", judged.plan.pipelines()},
          {"micro_batch", judged.plan.micro_batch},
          {"step_s", judged.step.step.value()},
          {"usd_per_step", judged.step.usd},
          {"usd_per_billion_tokens", usd_per_billion_tokens(judged, job)}};
}

}  // namespace

double usd_per_billion_tokens(const JudgedPlan& judged, const Job& job) {
  return judged.step.usd / job.tokens_per_step() * 1e9;
}

std::string explanation_text(const Explanation& explanation, const Topology& topology,
                             const Job& job) {
  return tiers_text(explanation) + "\n" + memory_text(explanation, topology) + "\n" +
         links_text(explanation, topology) + "\n" +
         origins_text(origins_of(explanation, topology, job));
}

std::string explanation_json(const Explanation& explanation, const Topology& topology,
                             const Job& job) {
  nlohmann::ordered_json out;
  for (const Bound& bound : explanation.bounds)
    out["bounds"].push_back({{"name", bound.name}, {"bound_s", bound.seconds}});
  const ClosedForm& parts = explanation.closed_form;
  out["closed_form"] = {{"total_s", parts.seconds}, {"pipeline", parts.pipeline},
                        {"fill_s", parts.fill},     {"period_s", parts.period},
                        {"steady_s", parts.steady}, {"exchange_s", parts.exchange},
                        {"commit_s", parts.commit}, {"update_s", parts.update}};
  out["pipeline"] = {{"pipeline", explanation.slowest_pipeline},
                     {"last_backward_s", explanation.pipeline.value()}};
  out["step_s"] = explanation.step.value();
  for (const DeviceMemory& memory : explanation.memory) {
    out["memory"].push_back(
        {{"device", topology.devices[static_cast<std::size_t>(memory.device)].name},
         {"stage", memory.stage},
         {"bytes_needed", memory.need.value()},
         {"bytes_size", memory.size.value()}});
  }
  const LinkSensitivity* binding = limiting_link(explanation);
  out["links"] = nlohmann::ordered_json::array();
  for (const LinkSensitivity& link : explanation.links) {
    out["links"].push_back(
        {{"sites", {site_name(topology, link.site), site_name(topology, link.other)}},
         {"bytes_wire", link.wire.value()},
         {"busy_s", link.busy.value()},
         {"rate_up_10_percent_saves_s", link.saved_by_rate.value()},
         {"latency_down_1_ms_saves_s", link.saved_by_latency.value()},
         {"binds", &link == binding}});
  }
  for (const FigureOrigin& origin : origins_of(explanation, topology, job)) {
    out["origins"].push_back(
        {{"what", origin.what}, {"figures", origin.figures}, {"origin", origin.origin}});
  }
  return out.dump();
}

std::string alternatives_text(const JudgedPlan& best, const std::vector<const JudgedPlan*>& others,
                              const Job& job, const Goal& goal) {
  std::string text;
  for (const JudgedPlan* other : others) {
    const double ratio =
        goal.cost ? other->step.usd / best.step.usd : other->step.step / best.step.step;
    text += fmt::format(
        "also: {} step {}{} ({:+.0f} %)\n", grid_text(*other), format_duration(other->step.step),
        goal.cost
            ? fmt::format(", {:.2f} USD a billion tokens", usd_per_billion_tokens(*other, job))
            : "",
        100 * (ratio - 1));
  }
  return text;
}

std::string alternatives_json(const std::vector<const JudgedPlan*>& others, const Job& job) {
  auto out = nlohmann::ordered_json::array();
  for (const JudgedPlan* other : others) out.push_back(judged_json(*other, job));
  return out.dump();
}

std::string pareto_text(const std::vector<const JudgedPlan*>& front, const Topology& topology,
                        const Job& job) {
  Rows rows = {{"step", "USD a billion tokens", "grid", "devices", ""}};
  const int knee = knee_of(front);
  for (std::size_t i = 0; i < front.size(); ++i) {
    const JudgedPlan& judged = *front[i];
    rows.push_back({format_duration(judged.step.step),
                    fmt::format("{:.2f}", usd_per_billion_tokens(judged, job)), grid_text(judged),
                    devices_text(judged, topology), static_cast<int>(i) == knee ? "knee" : ""});
  }
  return "plans that none found beats in both time and price\n" + aligned(rows);
}

std::string pareto_json(const std::vector<const JudgedPlan*>& front, const Topology& topology,
                        const Job& job) {
  auto out = nlohmann::ordered_json::array();
  const int knee = knee_of(front);
  for (std::size_t i = 0; i < front.size(); ++i) {
    nlohmann::ordered_json entry = judged_json(*front[i], job);
    for (const std::vector<int>& row : front[i]->plan.devices) {
      nlohmann::ordered_json names;
      for (const int device : row)
        names.push_back(topology.devices[static_cast<std::size_t>(device)].name);
      entry["devices"].push_back(std::move(names));
    }
    entry["knee"] = static_cast<int>(i) == knee;
    out.push_back(std::move(entry));
  }
  return out.dump();
}

}  // namespace longhaul
