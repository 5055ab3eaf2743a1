#include "tools/report/run_data.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace longhaul {
namespace {

using Json = nlohmann::json;

constexpr int kTracks = 4;                     // threads of a tasklet in a timeline
constexpr double kWarmUp = 2;                  // steps that say nothing of the others
constexpr double kLongestUs = 50.0 * 86400e6;  // what the simulated clock may hold

std::optional<double> number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return {};
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Steps by number: a run that was resumed may have made some of them twice.
struct Metrics {
  std::map<double, double> loss, validation, step_s, tokens_per_s;
  std::map<double, MeasuredParts> parts;
  std::set<double> disturbed;  // a validation or a checkpoint falls into their time
};

void read_line(const Json& json, double step, Metrics& metrics) {
  const auto keep = [&](const char* key, std::map<double, double>& where) {
    if (const auto value = number(json, key)) where[step] = *value;
  };
  keep("validation_loss", metrics.validation);
  if (json.contains("validation_loss") || json.contains("checkpoint"))
    metrics.disturbed.insert(step);
  keep("loss", metrics.loss);
  keep("step_s", metrics.step_s);
  keep("tokens_per_s", metrics.tokens_per_s);
  const auto step_s = number(json, "step_s");
  const auto compute = number(json, "compute");
  if (!step_s || !compute || step < kWarmUp) return;
  MeasuredParts parts;
  parts.compute = *compute;
  parts.reduce = number(json, "reduce").value_or(0);
  parts.commit = number(json, "commit").value_or(0);
  parts.update = number(json, "update").value_or(0);
  // What is left is waiting, too: for the first tensor to come. The simulation counts it so.
  parts.wait = std::max(0.0, *step_s - parts.total());
  metrics.parts[step] = parts;
}

Result<Metrics> parse_metrics(std::string_view text, const std::string& name) {
  Metrics metrics;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t length = text.find('\n');
    const bool is_whole = length != std::string_view::npos;
    const std::string_view row = text.substr(0, length);
    text.remove_prefix(is_whole ? length + 1 : text.size());
    if (row.empty()) continue;
    const Json json = Json::parse(row, nullptr, false);
    const auto step = json.is_object() ? number(json, "step") : std::nullopt;
    if (step) {
      read_line(json, *step, metrics);
    } else if (is_whole) {
      return invalid(fmt::format("{}:{}: no line of a run's metrics", name, line),
                     "each line is an object with a `step`, see docs/formats.md");
    }
  }
  return metrics;
}

std::vector<Point> points_of(const std::map<double, double>& values) {
  std::vector<Point> points;
  for (const auto& [step, value] : values) points.push_back({step, value});
  return points;
}

/// Of the typical steps; of a run that has none, of all.
std::optional<MeasuredParts> mean_of(const Metrics& metrics) {
  std::map<double, MeasuredParts> all = metrics.parts;
  std::erase_if(all, [&](const auto& step) { return metrics.disturbed.contains(step.first); });
  if (all.empty()) all = metrics.parts;
  if (all.empty()) return {};
  MeasuredParts sum;
  for (const auto& [step, parts] : all) {
    sum.compute += parts.compute;
    sum.wait += parts.wait;
    sum.reduce += parts.reduce;
    sum.commit += parts.commit;
    sum.update += parts.update;
  }
  const auto count = static_cast<double>(all.size());
  return MeasuredParts{sum.compute / count, sum.wait / count, sum.reduce / count,
                       sum.commit / count, sum.update / count};
}

/// The operation and the micro-batch of "FWD 3".
std::optional<std::pair<Op, int>> op_of(std::string_view name) {
  const std::string_view word = name.substr(0, name.find(' '));
  for (int op = 0; op <= static_cast<int>(Op::kUpdate); ++op) {
    if (name_of(static_cast<Op>(op)) != word) continue;
    int micro_batch = -1;
    if (word.size() < name.size()) {
      micro_batch = 0;
      for (const char c : name.substr(word.size() + 1)) {
        if (c < '0' || c > '9' || micro_batch >= kMaxMicroBatches) return {};
        micro_batch = 10 * micro_batch + (c - '0');
      }
    }
    return std::pair(static_cast<Op>(op), micro_batch);
  }
  return {};
}

}  // namespace

Result<std::vector<TimelineSlice>> parse_timeline(std::string_view input, const std::string& name,
                                                  std::string_view group, const Topology& topology,
                                                  const Plan& plan) {
  const auto wrong = [&] {
    return invalid(fmt::format("{} is no timeline of ours", name),
                   "it is written by `launch` and by `simulate --timeline`");
  };
  const Json json = Json::parse(input, nullptr, false);
  if (!json.is_object()) return wrong();
  const auto events = json.find("traceEvents");
  if (events == json.end() || !events->is_array()) return wrong();
  std::map<double, bool> is_in_group;  // by process
  std::map<int, int> cell_of;          // by device
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (int i = 0; i < plan.stages(); ++i) cell_of[plan.device(d, i)] = d * plan.stages() + i;
  }
  std::vector<TimelineSlice> slices;
  for (const Json& event : *events) {
    if (!event.is_object()) return wrong();
    const double process = number(event, "pid").value_or(-1);
    const auto args = event.find("args");
    const bool has_args = args != event.end() && args->is_object();
    if (text(event, "name") == "process_name" && has_args)
      is_in_group[process] = text(*args, "name").starts_with(std::string(group) + " ");
    const auto start = number(event, "ts");
    const auto length = number(event, "dur");
    const auto thread = number(event, "tid");
    if (text(event, "ph") != "X" || !is_in_group[process] || !start || !length || !thread) continue;
    const auto op = op_of(text(event, "name"));
    const bool is_on_clock =
        *start >= 0 && *length >= 0 && *start <= kLongestUs && *length <= kLongestUs;
    if (!op || !is_on_clock || *thread < 1 ||
        *thread > kTracks * plan.stages() * static_cast<double>(plan.pipelines()))
      continue;
    const int cell = (static_cast<int>(*thread) - 1) / kTracks;
    int peer = -1;
    if (has_args && args->contains("to")) {
      const auto found = cell_of.find(topology.find_device(text(*args, "to")));
      if (found == cell_of.end()) continue;
      peer = found->second;
    }
    const SimTime begin = SimTime::from(microseconds(*start));
    slices.push_back(
        {op->first, op->second, cell, peer, begin, begin + SimTime::from(microseconds(*length))});
  }
  return slices;
}

Result<RunData> parse_run(const RunTexts& texts, const std::string& folder,
                          const Topology& topology, const Plan& plan) {
  RunData run;
  LH_ASSIGN(run.result, parse_result(texts.result, folder + "/result.json"));
  LH_ASSIGN(const Metrics metrics, parse_metrics(texts.metrics, folder + "/metrics.jsonl"));
  run.loss = points_of(metrics.loss);
  run.validation = points_of(metrics.validation);
  run.step_s = points_of(metrics.step_s);
  run.tokens_per_s = points_of(metrics.tokens_per_s);
  run.parts = mean_of(metrics);
  if (texts.timeline.empty()) return run;
  LH_ASSIGN(run.measured,
            parse_timeline(texts.timeline, folder + "/timeline.json", "measured", topology, plan));
  return run;
}

}  // namespace longhaul
