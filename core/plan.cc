#include "core/plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "core/config_cursor.h"
#include "core/gradient_exchange.h"
#include "core/history_budget.h"
#include "core/model_math.h"
#include "core/plan_choices.h"
#include "core/quantity.h"
#include "core/schedule.h"

namespace longhaul {
namespace {

constexpr std::string_view kSchema = "longhaul/plan/1";

std::vector<int> read_counts(const Cursor& at, std::int64_t max) {
  std::vector<int> counts;
  for (const Cursor& item : at.items()) {
    counts.push_back(static_cast<int>(item.integer({.min = 1, .max = max}, 1)));
  }
  return counts;
}

std::uint64_t read_hash(const Cursor& at) {
  const std::string text = at.text();
  std::uint64_t hash = 0;
  bool good = text.size() == 16;
  for (const char c : text) {
    const auto digit = std::string_view("0123456789abcdef").find(c);
    good = good && digit != std::string_view::npos;
    hash = hash * 16 + (digit & 15);
  }
  if (at.present() && !good)
    at.fail(fmt::format("`{}` is not a hash of 16 hexadecimal digits", text));
  return hash;
}

void read_grid(const Cursor& at, const Topology& topology, const Job& job, Plan& plan) {
  std::vector<std::string> names;
  for (const Device& device : topology.devices) names.push_back(device.name);
  std::set<int> used;
  for (const Cursor& row : at.items()) {
    std::vector<int> pipeline;
    const std::vector<Cursor> cells = row.items();
    if (cells.size() != plan.layers.size()) {
      row.fail(fmt::format("this pipeline has {} devices, but `layers` has {} stages", cells.size(),
                           plan.layers.size()));
    }
    for (const Cursor& cell : cells) {
      const std::string name = cell.text();
      const int device = topology.find_device(name);
      if (device < 0) {
        cell.fail(fmt::format("cluster `{}` has no device `{}`", topology.name, name),
                  did_you_mean(name, names, "devices are named node/index, such as oregon-1/0"));
        continue;
      }
      if (!used.insert(device).second) cell.fail(fmt::format("device `{}` is used twice", name));
      const DeviceKind& kind = topology.kind_of(device);
      if (kind.rate_at(job.precision) <= FlopsPerSecond(0)) {
        cell.fail(fmt::format("device `{}` is a {}, which has no {} speed", name, kind.name,
                              name_of(job.precision)),
                  "choose another `precision` in the job, or add the rate to the device file");
      }
      pipeline.push_back(device);
    }
    plan.devices.push_back(std::move(pipeline));
  }
}

void check_in_flight(const Cursor& at, const Plan& plan, int most) {
  for (std::size_t i = 0; i < plan.in_flight.size(); ++i) {
    if (plan.in_flight[i] > most) {
      at.fail(
          fmt::format("stage {} holds {} micro-batches in flight, but no pipeline has more than {}",
                      i, plan.in_flight[i], most));
      return;
    }
    if (i > 0 && plan.in_flight[i] > plan.in_flight[i - 1]) {
      at.fail(
          fmt::format("in-flight depth rises from {} at stage {} to {} at stage {}: stage {} would "
                      "wait for forwards that stage {} holds back until it gets a backward",
                      plan.in_flight[i - 1], i - 1, plan.in_flight[i], i, i, i - 1),
          "make the depths non-increasing along the pipeline");
      return;
    }
  }
}

constexpr std::string_view kLetters = "FBW";  // by Pass

std::string pass_text(Pass pass, int micro_batch) {
  return fmt::format("{}{}", kLetters[static_cast<std::size_t>(pass)], micro_batch);
}

/// The orders of a greedy schedule, and its caps; `given` are those of the file, if it has some.
void read_orders(const Cursor& at, const Cursor& caps, const std::vector<int>& given, int most,
                 Plan& plan) {
  const std::vector<Cursor> items = at.items();
  if (items.empty()) return;
  if (items.size() != plan.layers.size()) {
    return at.fail(fmt::format("{} orders for {} stages", items.size(), plan.stages()));
  }
  if (caps.present() && given.size() != plan.layers.size()) return;
  bool sound = true;
  plan.in_flight = given;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string text = items[i].text();
    Result<StageOrder> order = parse_order(text);
    if (!order || !items[i].is_scalar()) {
      if (items[i].is_scalar()) items[i].fail(order.error().message, order.error().hint);
      sound = false;
      continue;
    }
    if (!caps.present()) plan.in_flight.push_back(std::max(1, peaks_of(*order).in_flight));
    if (Result<void> checked = check_order(*order, most, plan.in_flight[i]); !checked) {
      items[i].fail(checked.error().message, checked.error().hint);
      sound = false;
    }
    plan.orders.push_back(*std::move(order));
  }
  if (!sound) return;
  // Each order may make sense and yet wait for another that waits for it.
  Plan largest = plan;
  largest.devices.resize(1);
  largest.micro_batches = {most};
  if (const auto graph = build_graph(make_schedule(largest, Job{})); !graph) {
    at.fail(graph.error().message);
  }
}

Result<PlanFile> read_plan(ConfigFile file, const Topology& topology, const Job& job) {
  PlanFile out;
  Plan& plan = out.plan;
  file.expect_schema(kSchema);
  const Cursor root = file.root();

  const Cursor inputs = root.key("inputs");
  out.cluster_path = inputs.key("cluster").key("file").text();
  out.cluster_hash = read_hash(inputs.key("cluster").optional("hash"));
  out.job_path = inputs.key("job").key("file").text();
  out.job_hash = read_hash(inputs.key("job").optional("hash"));
  const Cursor made = root.optional("made_by");
  out.policy = made.optional("policy").text();
  out.seed = static_cast<std::uint64_t>(made.optional("seed").integer({.min = 0}, 0));

  const Cursor layers = root.key("layers");
  plan.layers = read_counts(layers, kMaxStages);
  if (plan.stages() > kMaxStages) {
    layers.fail(fmt::format("{} stages are more than the {} that messages can name", plan.stages(),
                            kMaxStages));
  }
  const std::int64_t sum = std::accumulate(plan.layers.begin(), plan.layers.end(), std::int64_t{0});
  if (!plan.layers.empty() && sum != job.model.layers) {
    layers.fail(fmt::format("the stages hold {} layers together, but the model has {}", sum,
                            job.model.layers));
  }

  read_grid(root.key("pipelines"), topology, job, plan);

  const Cursor batch = root.key("batch");
  plan.micro_batch =
      static_cast<int>(batch.key("micro_batch").integer({.min = 1, .max = job.global_batch}, 1));
  const Cursor shares = batch.key("micro_batches");
  plan.micro_batches = read_counts(shares, kMaxMicroBatches - 1);
  if (!plan.micro_batches.empty() && plan.micro_batches.size() != plan.devices.size()) {
    shares.fail(
        fmt::format("{} shares for {} pipelines", plan.micro_batches.size(), plan.devices.size()));
  }
  const std::int64_t total =
      std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), std::int64_t{0});
  if (!plan.micro_batches.empty() && total * plan.micro_batch != job.global_batch) {
    shares.fail(
        fmt::format("{} micro-batches of {} make {} sequences, but the job's global batch is {}",
                    total, plan.micro_batch, total * plan.micro_batch, job.global_batch));
  }
  const int most = plan.micro_batches.empty()
                       ? 1
                       : *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end());

  const Cursor schedule = root.key("schedule");
  constexpr std::array families = {ScheduleFamily::kGpipe, ScheduleFamily::kOneForwardOneBackward,
                                   ScheduleFamily::kGreedy};
  plan.family = families[schedule.key("family").choice(
      {name_of(families[0]), name_of(families[1]), name_of(families[2])})];
  plan.in_flight = default_in_flight(plan.family, plan.stages(), most);
  const Cursor in_flight = schedule.optional("in_flight");
  std::vector<int> given;
  if (in_flight.present()) {
    given = read_counts(in_flight, kMaxMicroBatches - 1);
    if (given.size() != plan.layers.size()) {
      in_flight.fail(fmt::format("{} depths for {} stages", given.size(), plan.stages()));
    } else if (plan.family == ScheduleFamily::kGpipe && given != plan.in_flight) {
      in_flight.fail(fmt::format("gpipe holds all {} micro-batches at every stage", most),
                     "leave `in_flight` out, or use family 1f1b");
    } else if (plan.family != ScheduleFamily::kGreedy) {
      plan.in_flight = given;
      check_in_flight(in_flight, plan, most);
    }
  }
  if (plan.family == ScheduleFamily::kGreedy) {
    const Cursor orders = schedule.key("orders");
    // Without a batch there is nothing to hold them against.
    if (!plan.micro_batches.empty()) read_orders(orders, in_flight, given, most, plan);
  }

  const Cursor coordinator = root.key("coordinator");
  plan.coordinator_site = topology.find_site(coordinator.text());
  if (coordinator.present() && plan.coordinator_site < 0) {
    std::vector<std::string> names;
    for (const Site& site : topology.sites) names.push_back(site.name);
    coordinator.fail(
        fmt::format("cluster `{}` has no site `{}`", topology.name, coordinator.text()),
        fmt::format("sites: {}", fmt::join(names, ", ")));
  }

  read_plan_choices(root, topology, job, plan);

  const Cursor predicted = root.optional("predicted");
  out.predicted.step_s = predicted.optional("step").duration().value();
  out.predicted.tokens_per_s = predicted.optional("tokens_per_s").number({.min = 0});
  out.predicted.lower_bound_s = predicted.optional("lower_bound").duration().value();
  out.predicted.lower_bound = predicted.optional("bound_by").text();
  LH_TRY(file.finish());
  return out;
}

}  // namespace

std::string_view name_of(ScheduleFamily family) {
  switch (family) {
    case ScheduleFamily::kGpipe:
      return "gpipe";
    case ScheduleFamily::kOneForwardOneBackward:
      return "1f1b";
    case ScheduleFamily::kGreedy:
      return "greedy";
  }
  return "?";
}

std::string order_text(const StageOrder& order) {
  std::string text;
  std::array<int, 3> next = {};
  for (const Pass pass : order) {
    if (!text.empty()) text += ' ';
    text += pass_text(pass, next[static_cast<std::size_t>(pass)]++);
  }
  return text;
}

Result<StageOrder> parse_order(std::string_view text) {
  StageOrder order;
  std::array<int, 3> next = {};
  for (std::size_t begin = text.find_first_not_of(' '); begin != text.npos;) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t kind = kLetters.find(word.front());
    if (kind == kLetters.npos || word.size() < 2 ||
        word.find_first_not_of("0123456789", 1) != word.npos) {
      return invalid(fmt::format("`{}` is no pass", word.substr(0, 40)),
                     "write F (forward), B (gradient of the input) or W (of the weights) and the "
                     "number of the micro-batch: F0 F1 B0 W0 B1 W1");
    }
    const auto pass = static_cast<Pass>(kind);
    const std::string expected = pass_text(pass, next[kind]);
    if (word != expected) {
      return invalid(fmt::format("pass {} is `{}`, where `{}` is next", order.size() + 1,
                                 word.substr(0, 40), expected),
                     "F, B and W each take the micro-batches in ascending order, 0 first");
    }
    ++next[kind];
    order.push_back(pass);
    begin = text.find_first_not_of(' ', end);
  }
  return order;
}

Result<void> check_order(const StageOrder& order, int micro_batches, int in_flight) {
  int forwards = 0, inputs = 0, weights = 0;
  for (const Pass pass : order) {
    if (pass == Pass::kForward) {
      if (forwards - weights == in_flight) {
        return invalid(fmt::format("F{} would be micro-batch {} in flight, but the stage's cap is "
                                   "{}",
                                   forwards, in_flight + 1, in_flight),
                       "a weight gradient (W) lets the next forward in; or raise `in_flight`");
      }
      ++forwards;
    } else if (pass == Pass::kBackwardInput) {
      if (inputs == forwards) {
        return invalid(fmt::format("B{} comes before its forward F{}", inputs, inputs));
      }
      ++inputs;
    } else {
      if (weights == inputs) {
        return invalid(fmt::format("W{} comes before its input gradient B{}", weights, weights));
      }
      ++weights;
    }
  }
  if (forwards != micro_batches || inputs != micro_batches || weights != micro_batches) {
    return invalid(
        fmt::format("the order has {} F, {} B and {} W, but the largest pipeline runs "
                    "{} micro-batches",
                    forwards, inputs, weights, micro_batches));
  }
  return {};
}

StageOrder order_for(const StageOrder& order, int micro_batches) {
  StageOrder kept;
  std::array<int, 3> next = {};
  for (const Pass pass : order) {
    if (next[static_cast<std::size_t>(pass)]++ < micro_batches) kept.push_back(pass);
  }
  return kept;
}

OrderPeaks peaks_of(const StageOrder& order) {
  OrderPeaks peaks;
  std::array<int, 3> done = {};
  for (const Pass pass : order) {
    ++done[static_cast<std::size_t>(pass)];
    peaks.in_flight = std::max(peaks.in_flight, done[0] - done[2]);
    peaks.for_weights = std::max(peaks.for_weights, done[1] - done[2]);
  }
  return peaks;
}

std::vector<int> default_in_flight(ScheduleFamily family, int stages, int micro_batches) {
  std::vector<int> in_flight;
  for (int i = 0; i < stages; ++i) {
    int depth = micro_batches;
    if (family == ScheduleFamily::kOneForwardOneBackward) depth = stages - i;
    if (family == ScheduleFamily::kGreedy) depth = stages;
    in_flight.push_back(std::min(depth, micro_batches));
  }
  return in_flight;
}

std::string plan_text(const PlanFile& file, const Topology& topology, const Job& job) {
  const Plan& plan = file.plan;
  std::string out = fmt::format("schema: {}\n", kSchema);
  out += "inputs:\n";
  out += fmt::format("  cluster: {{file: {}, hash: \"{:016x}\"}}\n", yaml_text(file.cluster_path),
                     topology.hash);
  out +=
      fmt::format("  job: {{file: {}, hash: \"{:016x}\"}}\n", yaml_text(file.job_path), job.hash);
  out += fmt::format("made_by: {{policy: {}, seed: {}}}\n", yaml_text(file.policy), file.seed);
  out += fmt::format("\n# {} pipelines of {} stages\n", plan.pipelines(), plan.stages());
  out += fmt::format("layers: [{}]\n", fmt::join(plan.layers, ", "));
  out += "pipelines:\n";
  for (const std::vector<int>& pipeline : plan.devices) {
    std::vector<std::string> names;
    for (const int device : pipeline) {
      names.push_back(yaml_text(topology.devices[static_cast<std::size_t>(device)].name));
    }
    out += fmt::format("  - [{}]\n", fmt::join(names, ", "));
  }
  out += "batch:\n";
  out += fmt::format("  micro_batch: {}  # sequences\n", plan.micro_batch);
  out += fmt::format("  micro_batches: [{}]  # of each pipeline\n",
                     fmt::join(plan.micro_batches, ", "));
  if (plan.family == ScheduleFamily::kGreedy) {
    out += fmt::format("schedule:\n  family: {}\n  in_flight: [{}]  # F minus W, at most\n",
                       name_of(plan.family), fmt::join(plan.in_flight, ", "));
    out += "  orders:  # of each stage\n";
    for (const StageOrder& order : plan.orders) {
      out += fmt::format("    - {}\n", order_text(order));
    }
  } else {
    out += fmt::format("schedule: {{family: {}, in_flight: [{}]}}\n", name_of(plan.family),
                       fmt::join(plan.in_flight, ", "));
  }
  out +=
      fmt::format("coordinator: {}\n",
                  yaml_text(topology.sites[static_cast<std::size_t>(plan.coordinator_site)].name));
  out += plan_choices_text(plan, topology, job);
  out += "predicted:\n";
  out += fmt::format("  step: {} s\n", format_exact(file.predicted.step_s));
  out += fmt::format("  tokens_per_s: {}\n", format_exact(file.predicted.tokens_per_s));
  out += fmt::format("  lower_bound: {} s\n", format_exact(file.predicted.lower_bound_s));
  out += fmt::format("  bound_by: \"{}\"\n", file.predicted.lower_bound);
  return out;
}

Result<PlanInputs> load_plan_inputs(const std::string& path) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(path));
  file.expect_schema(kSchema);
  const Cursor root = file.root();
  for (const std::string_view later :
       {"made_by", "layers", "pipelines", "batch", "schedule", "coordinator", "recompute", "codecs",
        "reductions", "predicted"}) {
    root.optional(later);  // known, and read by load_plan
  }
  const Cursor inputs = root.key("inputs");
  PlanInputs out;
  for (const auto& [name, target] :
       {std::pair{"cluster", &out.cluster_path}, std::pair{"job", &out.job_path}}) {
    const Cursor input = inputs.key(name);
    input.optional("hash");
    const Cursor path_at = input.key("file");
    *target = path_at.text();
    if (path_at.is_scalar() && target->empty()) path_at.fail("the path is empty");
  }
  LH_TRY(file.finish());
  return out;
}

Result<PlanFile> load_plan(const std::string& path, const Topology& topology, const Job& job) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(path));
  return read_plan(std::move(file), topology, job);
}

Result<PlanFile> parse_plan(std::string_view text, const std::string& name,
                            const Topology& topology, const Job& job) {
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  return read_plan(std::move(file), topology, job);
}

Job resolved_job(const Plan& plan, const Job& job) {
  Job resolved = job;
  resolved.recompute = recomputes(plan, job) ? Recompute::kYes : Recompute::kNo;
  return resolved;
}

Bytes feedback_memory(const Plan& plan, const Topology& topology, const Job& job, int stage) {
  Bytes bytes;
  const auto add = [&](int exchange, const GradientElements& elements) {
    const std::vector<int> devices = reduction_devices(plan, exchange);
    const bool is_between_sites = std::ranges::any_of(devices, [&](int device) {
      return topology.site_of(device) != topology.site_of(devices.front());
    });
    if (!is_between_sites) return;
    bytes += feedback_bytes(reduction_of(plan, job, exchange).codec, elements.coded);
  };
  const int last = plan.stages() - 1;
  const StageShape shape = stage_shapes(plan.layers)[static_cast<std::size_t>(stage)];
  add(stage, stage_gradient_elements(job.model, shape, plan.stages()));
  if (has_tied_exchange(plan, job) && (stage == 0 || stage == last)) {
    add(plan.stages(), tied_gradient_elements(job.model));
  }
  return bytes;
}

std::vector<MemoryUse> memory_of(const Plan& plan, const Topology& topology, const Job& job) {
  const Job resolved = resolved_job(plan, job);
  const std::vector<StageShape> shapes = stage_shapes(plan.layers);
  std::vector<MemoryUse> memory;
  for (int d = 0; d < plan.pipelines(); ++d) {
    const std::vector<BoundaryHistory> histories = boundary_histories(plan, topology, job, d);
    for (int i = 0; i < plan.stages(); ++i) {
      const auto stage = static_cast<std::size_t>(i);
      const HistoryUse history = history_use(job.model, histories, i);
      const bool is_greedy = plan.family == ScheduleFamily::kGreedy;
      memory.push_back(memory_use(
          resolved, topology.kind_of(plan.device(d, i)),
          {.stage = shapes[stage],
           .micro_batch = plan.micro_batch,
           .in_flight =
               std::min(plan.in_flight[stage], plan.micro_batches[static_cast<std::size_t>(d)]),
           .pipelines = plan.pipelines(),
           .for_weights = is_greedy ? peaks_of(plan.orders[stage]).for_weights : 0,
           .history = history.memory,
           .history_on_disk = history.disk}));
      memory.back().buffers += feedback_memory(plan, topology, job, i);
    }
  }
  return memory;
}

Result<void> check_memory(const Plan& plan, const Topology& topology, const Job& job) {
  const std::vector<MemoryUse> memory = memory_of(plan, topology, job);
  double worst = 1;
  std::string message;
  std::string hint;
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (int i = 0; i < plan.stages(); ++i) {
      const int device = plan.device(d, i);
      const DeviceKind& kind = topology.kind_of(device);
      const int in_flight = std::min(plan.in_flight[static_cast<std::size_t>(i)],
                                     plan.micro_batches[static_cast<std::size_t>(d)]);
      const MemoryUse& use = memory[static_cast<std::size_t>(d * plan.stages() + i)];
      const double fill = use.total() / kind.memory;
      if (fill <= worst) continue;
      worst = fill;
      message = fmt::format(
          "stage {} needs {} on {}, a {} with {} (states {}, {} activations {}, workspace {}, "
          "buffers {}, {}"
          "runtime {})",
          i, format_size(use.total()), topology.devices[static_cast<std::size_t>(device)].name,
          kind.name, format_size(kind.memory), format_size(use.states), in_flight,
          format_size(use.activations), format_size(use.workspace), format_size(use.buffers),
          use.history > Bytes(0) ? fmt::format("histories {}, ", format_size(use.history)) : "",
          format_size(use.reserved));
      hint = "give the stage fewer layers, use a smaller micro-batch, or set `recompute: true`";
      if (use.history > kind.memory / 8) hint = "lower `memory` of the job's `compression.history`";
    }
  }
  if (!message.empty()) return infeasible(message, hint);
  return {};
}

}  // namespace longhaul
