#include "tools/tables.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/model_math.h"
#include "core/quantity.h"

namespace longhaul {
namespace {

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", 100 * part / whole);
}

/// "3 v100, 1 a100" of a count by name.
std::string counts_text(const std::map<std::string, int>& counts, std::string_view separator) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(fmt::format("{} {}", count, name));
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == widths.size()) widths.push_back(0);
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += c == 0 ? fmt::format("{:<{}}", row[c], widths[c])
                     : fmt::format("  {:>{}}", row[c], widths[c]);
    }
    out += "  " + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string headline(const Topology& topology, const Job& job) {
  std::map<std::string, int> kinds;
  for (int d = 0; d < topology.device_count(); ++d) ++kinds[topology.kind_of(d).name];
  return fmt::format(
      "cluster {}: {} devices in {} sites ({})\n"
      "job {}: {}, {:.4g} M parameters, {} sequences of {} tokens a step, {}\n",
      topology.name, topology.device_count(), topology.site_count(), counts_text(kinds, ", "),
      job.name, name_of(job.model.family), model_parameters(job.model) / 1e6, job.global_batch,
      job.model.context, name_of(job.precision));
}

std::string plan_table(const Plan& plan, const Topology& topology) {
  std::vector<std::vector<std::string>> rows = {{"stage"}, {"layers"}, {"in flight"}};
  for (int i = 0; i < plan.stages(); ++i) {
    const auto stage = static_cast<std::size_t>(i);
    rows[0].push_back(fmt::format("{}", i));
    rows[1].push_back(fmt::format("{}", plan.layers[stage]));
    rows[2].push_back(fmt::format("{}", plan.in_flight[stage]));
  }
  rows[0].push_back("idle");
  // Devices of each stage by site, then by kind; the last column counts those without a tasklet.
  const auto idle = static_cast<std::size_t>(plan.stages());
  std::vector<std::size_t> stage_of(topology.devices.size(), idle);
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (int i = 0; i < plan.stages(); ++i) {
      stage_of[static_cast<std::size_t>(plan.device(d, i))] = static_cast<std::size_t>(i);
    }
  }
  const auto count_by = [&](std::size_t groups, auto&& group_of, auto&& name_of_group) {
    std::vector<std::vector<int>> counts(groups, std::vector<int>(idle + 1, 0));
    for (std::size_t d = 0; d < stage_of.size(); ++d)
      ++counts[group_of(topology.devices[d])][stage_of[d]];
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<std::string> row = {name_of_group(g)};
      for (const int count : counts[g]) row.push_back(count == 0 ? "." : fmt::format("{}", count));
      rows.push_back(std::move(row));
    }
  };
  count_by(
      topology.sites.size(),
      [](const Device& device) { return static_cast<std::size_t>(device.site); },
      [&](std::size_t g) { return "in " + topology.sites[g].name; });
  count_by(
      topology.kinds.size(),
      [](const Device& device) { return static_cast<std::size_t>(device.kind); },
      [&](std::size_t g) { return "of kind " + topology.kinds[g].name; });
  const auto [fewest, most] =
      std::minmax_element(plan.micro_batches.begin(), plan.micro_batches.end());
  return fmt::format(
             "plan: {} stages x {} pipelines of {} micro-batches of {} sequence{}, {}, coordinator "
             "in {}\n",
             plan.stages(), plan.pipelines(),
             *fewest == *most ? fmt::format("{}", *most) : fmt::format("{} to {}", *fewest, *most),
             plan.micro_batch, plan.micro_batch == 1 ? "" : "s", name_of(plan.family),
             topology.sites[static_cast<std::size_t>(plan.coordinator_site)].name) +
         aligned(rows);
}

std::string summary(const Job& job, const StepResult& step) {
  return fmt::format("step {}: {:.0f} tokens/s, {:.2f} USD a billion tokens\n",
                     format_duration(step.step), job.tokens_per_step() / step.step.value(),
                     step.usd / job.tokens_per_step() * 1e9);
}

TaskletSum sum_of_tasklets(const Plan& plan, const StepResult& step, int first, int last) {
  TaskletSum out;
  for (std::size_t c = 0; c < step.tasklets.size(); ++c) {
    const int stage = static_cast<int>(c) % plan.stages();
    if (stage < first || stage > last) continue;
    const TaskletTimes& times = step.tasklets[c];
    out.sum.compute += times.compute;
    out.sum.transfer += times.transfer;
    out.sum.bubble += times.bubble;
    out.sum.reduce += times.reduce;
    out.sum.commit += times.commit;
    out.sum.update += times.update;
    ++out.count;
  }
  return out;
}

std::string step_table(const Plan& plan, const StepResult& step) {
  std::vector<std::vector<std::string>> rows = {
      {"stage", "compute", "transfer", "bubble", "reduce", "commit", "update"}};
  const auto add = [&](const std::string& name, int first, int last) {
    const auto [sum, count] = sum_of_tasklets(plan, step, first, last);
    const double whole = step.step.value() * count;
    rows.push_back({name, percent(sum.compute.value(), whole), percent(sum.transfer.value(), whole),
                    percent(sum.bubble.value(), whole), percent(sum.reduce.value(), whole),
                    percent(sum.commit.value(), whole), percent(sum.update.value(), whole)});
  };
  for (int i = 0; i < plan.stages(); ++i) add(fmt::format("{}", i), i, i);
  if (plan.stages() > 1) add("all", 0, plan.stages() - 1);
  return "where the step goes (transfer: exposed communication of activations and gradients)\n" +
         aligned(rows);
}

std::string traffic_table(const Topology& topology, const StepResult& step,
                          std::size_t rows_wanted) {
  std::vector<LinkTraffic> between;
  std::copy_if(step.traffic.begin(), step.traffic.end(), std::back_inserter(between),
               [](const LinkTraffic& traffic) { return traffic.from_site != traffic.to_site; });
  if (between.empty()) return "no traffic between sites\n";
  std::stable_sort(between.begin(), between.end(),
                   [](const LinkTraffic& a, const LinkTraffic& b) { return a.wire > b.wire; });
  const std::size_t all = between.size();
  between.resize(std::min(rows_wanted, all));
  std::vector<std::vector<std::string>> rows = {
      {"link", "sent a step", "one flow's rate", "one-way latency"}};
  for (const LinkTraffic& traffic : between) {
    const Link& link = topology.link(traffic.from_site, traffic.to_site);
    rows.push_back(
        {fmt::format("{} -> {}", topology.sites[static_cast<std::size_t>(traffic.from_site)].name,
                     topology.sites[static_cast<std::size_t>(traffic.to_site)].name),
         format_size(traffic.wire), format_bit_rate(link.rate), format_duration(link.latency)});
  }
  return fmt::format("busiest of {} links between sites\n", all) + aligned(rows);
}

std::string count_text(double value) {
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format(fmt::runtime(value >= 10 ? "{:.0f}" : "{:.1f}"), value);
}

std::string time_left_text(double seconds) {
  // A time that is longer than a person waits is as good as any other.
  const auto s = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e9)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

}  // namespace longhaul
