// `longhaul report`: a plan or a run as one HTML page of pictures.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/file.h"
#include "core/hash.h"
#include "core/quantity.h"
#include "executor/storage/real_storage.h"
#include "netsim/cluster_file.h"
#include "planner/trade_off.h"
#include "tools/command.h"
#include "tools/histories.h"
#include "tools/plan_choices.h"
#include "tools/plan_explain.h"
#include "tools/report/page.h"
#include "tools/report/sweep_file.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTextMax = std::uint64_t{256} << 20;
constexpr std::size_t kLinkRows = 60;
/// A series that is longer is also drawn by the chart library: its steps cannot be told apart in a
/// picture.
constexpr std::size_t kLongSeries = 200;

struct Options {
  std::string target;
  std::string output;
  std::string cluster;
  std::string job;
  std::vector<std::string> sweeps;
  bool pareto = false;
  double effort = 1;
};

/// The files behind a report.
struct Sources {
  std::string plan;
  std::string cluster;
  std::string job;
  std::string output;
  std::string run;  // a run's folder; empty: a plan alone
};

/// Everything that a page shows.
struct Shown {
  Sources sources;
  Topology topology;
  Job job;
  PlanFile file;
  std::string plan_text;
  StepResult step;
  Explanation explanation;
  std::optional<RunData> run;
  std::vector<PricedPlan> priced;
  std::vector<WhatIfTable> sweeps;

  bool is_as_planned() const {
    return file.cluster_hash == topology.hash && file.job_hash == job.hash;
  }
  double usd_per_billion_tokens() const { return step.usd / job.tokens_per_step() * 1e9; }
};

/// "" or "-term-N": the ending of the plan that a run's folder was last launched with.
std::string last_term(const std::string& folder) {
  std::string ending;
  for (int term = 2; fs::exists(fmt::format("{}/plan-term-{}.yaml", folder, term)); ++term)
    ending = fmt::format("-term-{}", term);
  return ending;
}

Result<Sources> sources_of(const Options& options) {
  Sources sources;
  std::error_code ignored;
  if (fs::is_directory(options.target, ignored)) {
    sources.run = options.target;
    while (sources.run.size() > 1 && sources.run.ends_with('/')) sources.run.pop_back();
    if (!fs::exists(sources.run + "/run.json", ignored)) {
      return invalid(fmt::format("{} is no run's folder: it has no run.json", options.target),
                     "give a plan file, or the folder that `launch` has printed");
    }
    const std::string term = last_term(sources.run);
    sources.plan = fmt::format("{}/plan{}.yaml", sources.run, term);
    sources.job = fmt::format("{}/job{}.yaml", sources.run, term);
    sources.output = sources.run + "/report.html";
  } else {
    sources.plan = options.target;
    sources.output = fs::path(options.target).replace_extension(".html").string();
  }
  LH_ASSIGN(const PlanInputs inputs, load_plan_inputs(sources.plan));
  sources.cluster =
      options.cluster.empty() ? resolve_from(sources.plan, inputs.cluster_path) : options.cluster;
  if (!options.job.empty()) {
    sources.job = options.job;
  } else if (sources.job.empty()) {
    sources.job = resolve_from(sources.plan, inputs.job_path);
  }
  if (!options.output.empty()) sources.output = options.output;
  for (const std::string& input : {sources.plan, sources.cluster, sources.job}) {
    if (!fs::equivalent(input, sources.output, ignored)) continue;
    return invalid(fmt::format("the page would take the place of {}", input),
                   "give it another name with -o");
  }
  return sources;
}

Result<RunData> load_run(Storage& storage, const Sources& sources, const Topology& topology,
                         const Plan& plan) {
  RunTexts texts;
  auto result = read_text(storage, sources.run + "/result.json", kTextMax);
  if (!result) {
    return invalid(fmt::format("{} has no result.json: {}", sources.run, result.error().message),
                   "a run's report is made when it has ended; its plan has one before");
  }
  texts.result = std::move(*result);
  LH_ASSIGN(texts.metrics, read_text(storage, sources.run + "/metrics.jsonl", kTextMax));
  if (auto timeline = read_text(storage, sources.run + "/timeline.json", kTextMax))
    texts.timeline = std::move(*timeline);
  return parse_run(texts, sources.run, topology, plan);
}

Result<std::vector<PricedPlan>> priced_plans(const Shown& shown, const Options& options,
                                             int threads) {
  if (!has_prices(shown.topology, {})) {
    return invalid(
        fmt::format("cluster `{}` has no prices: every plan costs nothing", shown.topology.name),
        "leave out --pareto, or give its device kinds a `price` (USD/h)");
  }
  SearchOptions search;
  search.threads = threads;
  search.effort = options.effort;
  search.seed = shown.file.seed;
  LH_ASSIGN(const SearchResult found, search_trade_offs(shown.topology, shown.job, search));
  const std::vector<const JudgedPlan*> front = non_dominated(found.judged);
  const int knee = knee_of(front);
  std::vector<PricedPlan> plans;
  for (const JudgedPlan& judged : found.judged) {
    const auto place = std::ranges::find(front, &judged);
    plans.push_back({judged.step.step.value(), usd_per_billion_tokens(judged, shown.job),
                     fmt::format("{} x {}", judged.plan.stages(), judged.plan.pipelines()),
                     place != front.end(), knee >= 0 && place - front.begin() == knee});
  }
  return plans;
}

// ---- what stands on the page

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

Tile bound_tile(const Shown& shown) {
  const Prediction& predicted = shown.file.predicted;
  const double step = shown.step.step.value();
  const bool is_known = predicted.lower_bound_s > 0 && shown.is_as_planned();
  if (!is_known && shown.explanation.bounds.empty()) return {"Lower bound", "–", "not known"};
  const double bound =
      is_known ? predicted.lower_bound_s : shown.explanation.bounds.front().seconds;
  const std::string& name =
      is_known ? predicted.lower_bound : shown.explanation.bounds.front().name;
  return {is_known ? "No plan is faster than" : "No plan of this grid is faster than",
          format_duration(Seconds(bound)),
          fmt::format("gap {:.1f} %; {}", 100 * (step / bound - 1), name)};
}

Tile limit_tile(const Shown& shown) {
  if (const LinkSensitivity* link = limiting_link(shown.explanation)) {
    const auto site = [&](int s) { return shown.topology.sites[static_cast<std::size_t>(s)].name; };
    return {"Limiting link", fmt::format("{} – {}", site(link->site), site(link->other)),
            fmt::format("10 % more rate saves {}", format_duration(link->saved_by_rate))};
  }
  double compute = 0;
  for (const TaskletTimes& times : shown.step.tasklets) compute += times.compute.value();
  compute /= shown.step.step.value() * static_cast<double>(shown.step.tasklets.size());
  return {"Limiting link", "none", fmt::format("devices compute {} of the step", percent(compute))};
}

std::vector<Tile> tiles_of(const Shown& shown) {
  const Plan& plan = shown.file.plan;
  std::vector<Tile> tiles;
  const double step = shown.step.step.value();
  tiles.push_back({"Step", format_duration(shown.step.step), "simulated"});
  if (shown.run && shown.run->result.step_measured_s) {
    const double measured = *shown.run->result.step_measured_s;
    std::string note = fmt::format("{:.3f} of the simulated one", measured / step);
    if (const auto late = shown.run->result.late_fraction) {
      constexpr double kTooLate = 0.01;
      note += fmt::format("; {:.2f} % late{}", 100 * *late,
                          *late > kTooLate ? ", so it does not count" : "");
    }
    tiles.push_back({"Step, measured", format_duration(Seconds(measured)), std::move(note)});
  }
  const double rate = shown.job.tokens_per_step() / step;
  tiles.push_back(
      {"Tokens a second", short_number(rate),
       shown.run && shown.run->result.tokens_per_s
           ? "measured " + short_number(*shown.run->result.tokens_per_s)
           : fmt::format("{} tokens a step", short_number(shown.job.tokens_per_step()))});
  if (shown.step.usd > 0) {
    tiles.push_back({"Price of a billion tokens",
                     fmt::format("{:.2f} USD", shown.usd_per_billion_tokens()),
                     "devices and egress"});
  }
  tiles.push_back(bound_tile(shown));
  tiles.push_back(limit_tile(shown));
  tiles.push_back(
      {"Devices in use",
       fmt::format("{} of {}", plan.stages() * plan.pipelines(), shown.topology.device_count()),
       fmt::format("{} stage{} x {} pipeline{}, {}", plan.stages(), plan.stages() == 1 ? "" : "s",
                   plan.pipelines(), plan.pipelines() == 1 ? "" : "s", name_of(plan.family))});
  if (!shown.run) return tiles;
  const RunResult& result = shown.run->result;
  if (result.loss_first && result.loss_last) {
    std::string note = fmt::format("{} steps", result.steps);
    if (result.validation_loss) note += fmt::format("; validation {:.4f}", *result.validation_loss);
    if (result.bigram_loss) note += fmt::format(", a bigram model {:.4f}", *result.bigram_loss);
    tiles.push_back(
        {"Loss", fmt::format("{:.3f} → {:.3f}", *result.loss_first, *result.loss_last), note});
  }
  return tiles;
}

TableRows measured_rows(const Shown& shown) {
  if (!shown.run) return {};
  TableRows rows = {{"", "predicted", "measured"}};
  const auto time = [](std::optional<double> seconds) {
    return seconds ? format_duration(Seconds(*seconds)) : std::string("–");
  };
  const RunResult& result = shown.run->result;
  const double step = shown.step.step.value();
  rows.push_back({"step", time(step), time(result.step_measured_s)});
  rows.push_back({"tokens a second", short_number(shown.job.tokens_per_step() / step),
                  result.tokens_per_s ? short_number(*result.tokens_per_s) : "–"});
  if (!shown.run->parts) return rows;
  MeasuredParts predicted;
  for (const TaskletTimes& times : shown.step.tasklets) {
    const auto cells = static_cast<double>(shown.step.tasklets.size());
    predicted.compute += times.compute.value() / cells;
    predicted.wait += (times.transfer + times.bubble).value() / cells;
    predicted.reduce += times.reduce.value() / cells;
    predicted.commit += times.commit.value() / cells;
    predicted.update += times.update.value() / cells;
  }
  const MeasuredParts& parts = *shown.run->parts;
  rows.push_back({"compute", time(predicted.compute), time(parts.compute)});
  rows.push_back({"waiting for tensors", time(predicted.wait), time(parts.wait)});
  rows.push_back({"exchange of gradients", time(predicted.reduce), time(parts.reduce)});
  rows.push_back({"waiting for the commit", time(predicted.commit), time(parts.commit)});
  rows.push_back({"update", time(predicted.update), time(parts.update)});
  return rows;
}

TableRows link_rows(const Shown& shown) {
  std::vector<LinkTraffic> links;
  for (const LinkTraffic& traffic : shown.step.traffic) {
    if (traffic.from_site != traffic.to_site) links.push_back(traffic);
  }
  if (links.empty()) return {};
  std::ranges::stable_sort(links, std::greater(), &LinkTraffic::wire);
  links.resize(std::min(links.size(), kLinkRows));
  TableRows rows = {
      {"link", "one flow's rate", "one-way latency", "tensors a step", "sent a step"}};
  for (const LinkTraffic& traffic : links) {
    const Link& link = shown.topology.link(traffic.from_site, traffic.to_site);
    rows.push_back(
        {fmt::format("{} → {}",
                     shown.topology.sites[static_cast<std::size_t>(traffic.from_site)].name,
                     shown.topology.sites[static_cast<std::size_t>(traffic.to_site)].name),
         format_bit_rate(link.rate), format_duration(link.latency), format_size(traffic.raw),
         format_size(traffic.wire)});
  }
  return rows;
}

TableRows sweep_rows(const WhatIfTable& table) {
  TableRows rows = {{"change", "step", "tokens/s", "USD a billion tokens", "binds", ""}};
  for (const WhatIfRow& row : table.rows) {
    if (!row.problem.empty()) {
      rows.push_back({row.change, "–", "–", "–", "–", row.problem});
      continue;
    }
    rows.push_back(
        {row.change, format_duration(row.step), short_number(row.tokens_per_s),
         row.usd_per_billion_tokens ? fmt::format("{:.2f}", *row.usd_per_billion_tokens) : "–",
         row.binding, row.replanned ? "another plan" : ""});
  }
  return rows;
}

TableRows input_rows(const Shown& shown) {
  const auto state = [](std::uint64_t planned, std::uint64_t now) {
    return planned == 0     ? "the plan does not say"
           : planned == now ? "as planned"
                            : "changed since it was planned";
  };
  const auto hash = [](std::uint64_t value) { return fmt::format("{:016x}", value); };
  return {
      {"", "file", "hash", ""},
      {"plan", shown.sources.plan, hash(hash_text(shown.plan_text)),
       fmt::format("{}, seed {}", shown.file.policy.empty() ? "by hand" : shown.file.policy,
                   shown.file.seed)},
      {"cluster", shown.sources.cluster, hash(shown.topology.hash),
       state(shown.file.cluster_hash, shown.topology.hash)},
      {"job", shown.sources.job, hash(shown.job.hash), state(shown.file.job_hash, shown.job.hash)}};
}

Page page_of(const Shown& shown) {
  const Plan& plan = shown.file.plan;
  const Planned planned = {shown.topology, shown.job, plan};
  Page page;
  page.title = fmt::format("{} on {}", shown.job.name, shown.topology.name);
  page.subtitle = headline(shown.topology, shown.job);
  std::ranges::replace(page.subtitle, '\n', ' ');
  page.tiles = tiles_of(shown);
  page.measured = measured_rows(shown);
  if (shown.run) {
    for (SeriesChart& chart : run_charts(*shown.run)) {
      page.items.push_back({series_picture(chart)});
      if (chart.lines.front().points.size() > kLongSeries) page.series.push_back(std::move(chart));
    }
  }
  page.items.push_back({map_picture(planned, shown.step, shown.explanation), link_rows(shown)});
  page.items.push_back(
      {gantt_picture(planned, shown.step,
                     shown.run ? std::span<const TimelineSlice>(shown.run->measured)
                               : std::span<const TimelineSlice>{})});
  page.items.push_back({stages_picture(planned, shown.step, shown.run ? &*shown.run : nullptr)});
  page.items.push_back({memory_picture(planned)});
  if (Picture critical = critical_picture(planned, shown.step); !critical.heading.empty())
    page.items.push_back({std::move(critical)});
  if (!shown.priced.empty()) {
    const PricedPlan own = {shown.step.step.value(), shown.usd_per_billion_tokens(),
                            fmt::format("{} x {}", plan.stages(), plan.pipelines())};
    page.items.push_back({pareto_picture(shown.priced, own)});
  }
  for (std::size_t i = 0; i < shown.sweeps.size(); ++i) {
    page.items.push_back(
        {sweep_picture(shown.sweeps[i], fmt::format("sweep{}", i)), sweep_rows(shown.sweeps[i])});
  }
  page.items.push_back({links_picture(planned, shown.step)});
  page.plan = plan_table(plan, shown.topology) + choices_table(plan, shown.topology, shown.job) +
              histories_text(plan, shown.topology, shown.job);
  page.assumptions = shown.topology.assumptions;
  page.inputs = input_rows(shown);
  return page;
}

Result<void> report(const Options& options) {
  Shown shown;
  LH_ASSIGN(shown.sources, sources_of(options));
  LH_ASSIGN(shown.topology, load_cluster(shown.sources.cluster));
  LH_ASSIGN(shown.job, load_job(shown.sources.job));
  LH_ASSIGN(shown.file, load_plan(shown.sources.plan, shown.topology, shown.job));
  const Plan& plan = shown.file.plan;
  LH_TRY(check_memory(plan, shown.topology, shown.job));
  RealStorage storage;
  LH_ASSIGN(shown.plan_text, read_text(storage, shown.sources.plan, kTextMax));
  if (!shown.sources.run.empty()) {
    LH_ASSIGN(shown.run, load_run(storage, shown.sources, shown.topology, plan));
  }
  for (const std::string& path : options.sweeps) {
    LH_ASSIGN(const std::string text, read_text(storage, path, kTextMax));
    LH_ASSIGN(WhatIfTable table, parse_sweep(text, path));
    shown.sweeps.push_back(std::move(table));
  }
  LH_TRY(check_writable(shown.sources.output));

  ProgressLine progress;
  progress.show("simulating the step, and with better links");
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  LH_ASSIGN(shown.step, simulate_step(shown.topology, shown.job, plan, {.timeline = true}));
  const bool has_other_shapes = std::ranges::any_of(
      plan.reductions, [](const Reduction& r) { return r.shape != ReduceShape::kSharded; });
  LH_ASSIGN(shown.explanation,
            explain_plan(shown.topology, shown.job, plan, {}, has_other_shapes, threads));
  if (options.pareto) {
    progress.show("searching for faster and for cheaper plans");
    LH_ASSIGN(shown.priced, priced_plans(shown, options, threads));
  }
  LH_TRY(write_file(shown.sources.output, page_html(page_of(shown))));
  fmt::print("{}\n", shown.sources.output);
  return {};
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand(
      "report", "write a plan or a run as one HTML page of pictures, and print its path");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  command->add_option("target", options->target, "plan file (YAML), or a run's folder")->required();
  command->add_option("-o,--output", options->output,
                      "page to write; default: beside the plan, or in the run's folder");
  command->add_option("--cluster", options->cluster, "cluster file in place of the plan's");
  command->add_option("--job", options->job, "job file in place of the plan's");
  command
      ->add_option("--sweep", options->sweeps,
                   "also draw what `simulate --sweep ... --json` printed; may be repeated")
      ->allow_extra_args(false);
  CLI::Option* pareto = command->add_flag(
      "--pareto", options->pareto, "also search for faster and cheaper plans, which takes a while");
  command->add_option("--effort", options->effort, "with --pareto: of those searches")
      ->check(CLI::Range(0.01, 100.0))
      ->check(not_a_number)
      ->needs(pareto)
      ->capture_default_str();
  command->callback([options, &exit_status] {
    if (const Result<void> done = report(*options); !done) exit_status = report_error(done.error());
  });
}

}  // namespace longhaul
