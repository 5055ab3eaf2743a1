#include "executor/run/run_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "executor/transport/frame.h"

namespace longhaul {
namespace {

constexpr std::string_view kSchema = "longhaul/run/1";
using Json = nlohmann::ordered_json;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// A stage's tensors with their gaps: where one begins to where the next does.
std::vector<std::size_t> padded_lengths(const std::vector<Gpt2Parameter>& parameters,
                                        std::size_t first, std::size_t end) {
  constexpr std::size_t kAlignment = 16;
  std::vector<std::size_t> lengths;
  for (std::size_t i = first; i < end; ++i) {
    lengths.push_back((parameters[i].size + kAlignment - 1) / kAlignment * kAlignment);
  }
  return lengths;
}

/// Places of a stage's tensors that its own exchange covers: [first, end).
struct Tensors {
  std::vector<Gpt2Parameter> parameters;
  std::size_t first = 0;
  std::size_t end = 0;
};
Tensors own_tensors(const RunSpec& spec, int stage) {
  Tensors own;
  own.parameters = gpt2_parameters(spec.job.model, slice_of_stage(spec, stage));
  own.end = own.parameters.size();
  // The token embedding is the first tensor of the first stage and the last one of the last.
  if (spec.has_tied_exchange() && stage == 0) own.first = 1;
  if (spec.has_tied_exchange() && stage == spec.plan.stages() - 1) --own.end;
  return own;
}

ExchangeMember member(const RunSpec& spec, int pipeline, int stage) {
  const int cell = pipeline * spec.plan.stages() + stage;
  return {.rank = RunSpec::rank_of_cell(cell), .site = spec.place_of_cell(cell).site, .share = 1};
}

std::uint64_t exchange_name(Op op, int stage, std::uint32_t step) {
  return encode_operation({.step = step,
                           .kind = static_cast<std::uint8_t>(op),
                           .stage = static_cast<std::uint16_t>(stage)});
}

}  // namespace

Gpt2Slice slice_of_stage(const RunSpec& spec, int stage) {
  const auto& layers = spec.plan.layers;
  Gpt2Slice slice;
  slice.first_layer = std::accumulate(layers.begin(), layers.begin() + stage, 0);
  slice.end_layer = slice.first_layer + layers[index(stage)];
  slice.has_embedding = stage == 0;
  slice.has_head = stage == spec.plan.stages() - 1;
  return slice;
}

RateSchedule rates_of(const RunSpec& spec) {
  const Training& training = *spec.job.training;
  return {training.decay, training.rate_max, training.rate_min, training.warm_up_steps,
          training.steps};
}

CoordinatorConfig coordinator_config(const RunSpec& spec) {
  CoordinatorConfig config;
  for (int stage = 0; stage < spec.plan.stages(); ++stage) {
    StageGroup group;
    for (int pipeline = 0; pipeline < spec.plan.pipelines(); ++pipeline) {
      group.ranks.push_back(RunSpec::rank_of_cell(pipeline * spec.plan.stages() + stage));
    }
    group.tensors = gpt2_parameters(spec.job.model, slice_of_stage(spec, stage)).size();
    config.stages.push_back(std::move(group));
  }
  if (spec.has_tied_exchange()) config.tied = TiedTensor{0, config.stages.back().tensors - 1};
  config.term = spec.term;
  config.first_step = spec.first_step;
  config.steps = spec.last_step;
  config.skips_before = spec.skips_before;
  config.limits = spec.limits;
  return config;
}

ExchangeOptions stage_exchange(const RunSpec& spec, int stage, std::uint32_t step) {
  ExchangeOptions options;
  options.operation = exchange_name(Op::kReduce, stage, step);
  for (int d = 0; d < spec.plan.pipelines(); ++d) options.members.push_back(member(spec, d, stage));
  const Tensors own = own_tensors(spec, stage);
  options.tensor_lengths = padded_lengths(own.parameters, own.first, own.end);
  options.codec = tensor_codec(spec.job.gradients);
  return options;
}

ExchangeOptions tied_exchange(const RunSpec& spec, std::uint32_t step) {
  ExchangeOptions options;
  options.operation = exchange_name(Op::kTiedReduce, 0, step);
  for (const int stage : {spec.plan.stages() - 1, 0}) {
    for (int d = 0; d < spec.plan.pipelines(); ++d) {
      options.members.push_back(member(spec, d, stage));
    }
  }
  options.tensor_lengths = {tied_gradient(spec, 0).count};
  options.codec = tensor_codec(spec.job.gradients);
  return options;
}

GradientRange stage_gradient(const RunSpec& spec, int stage) {
  const Tensors own = own_tensors(spec, stage);
  const auto lengths = padded_lengths(own.parameters, own.first, own.end);
  if (lengths.empty()) return {};
  return {own.parameters[own.first].offset,
          std::accumulate(lengths.begin(), lengths.end(), std::size_t{0})};
}

GradientRange tied_gradient(const RunSpec& spec, int stage) {
  const auto parameters = gpt2_parameters(spec.job.model, slice_of_stage(spec, stage));
  const std::size_t at = stage == 0 ? 0 : parameters.size() - 1;
  return {parameters[at].offset, padded_lengths(parameters, at, at + 1).front()};
}

std::int64_t validation_sequences(const RunSpec& spec) {
  if (!spec.validation) return 0;
  return std::min(spec.job.training->validation_sequences, spec.validation->sequences());
}

std::vector<int> validation_micro_batches(const RunSpec& spec) {
  const std::int64_t b = spec.plan.micro_batch;
  const std::int64_t all = (validation_sequences(spec) + b - 1) / b;
  const std::vector<int>& trained = spec.plan.micro_batches;
  const std::int64_t sum = std::accumulate(trained.begin(), trained.end(), std::int64_t{0});
  std::vector<int> counts;
  std::int64_t before = 0;
  std::int64_t given = 0;
  for (const int n : trained) {
    before += n;
    const std::int64_t until = all * before / sum;
    // A pipeline without a sequence has a micro-batch of padding: every stage takes part.
    counts.push_back(static_cast<int>(std::max<std::int64_t>(1, until - given)));
    given = until;
  }
  return counts;
}

bool validates_after(const RunSpec& spec, std::uint64_t steps_done) {
  const std::uint64_t every = spec.job.training->validation_every;
  return spec.validation &&
         (steps_done == spec.last_step || (every > 0 && steps_done % every == 0));
}

bool saves_after(const RunSpec& spec, std::uint64_t steps_done) {
  const std::uint64_t every = spec.job.training->checkpoint_every;
  return steps_done == spec.last_step || (every > 0 && steps_done % every == 0);
}

Result<void> check_runnable(const Job& job, const Plan& plan) {
  if (!job.training) {
    return invalid(fmt::format("job `{}` has no `training` section", job.name),
                   "say what to train on and for how long; docs/formats.md has an example");
  }
  if (job.model.family != ModelFamily::kGpt2) {
    return invalid("only models of family gpt2 can be trained yet",
                   "plan and simulate know llama; the kernels do not");
  }
  if (job.precision != Precision::kFp32) {
    return invalid(
        fmt::format("the CPU kernels compute in fp32, the job asks for {}", name_of(job.precision)),
        "set `precision: fp32`");
  }
  const int micro_batches =
      std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), 0);
  if (std::int64_t{micro_batches} * plan.micro_batch != job.global_batch) {
    return invalid(fmt::format("the plan's {} micro-batches of {} sequences are not the job's "
                               "batch of {}",
                               micro_batches, plan.micro_batch, job.global_batch),
                   "make the plan again for this job");
  }
  LH_TRY(Gpt2Stage::create(job.model, {.end_layer = 0, .has_embedding = true}));
  return RateSchedule{job.training->decay, job.training->rate_max, job.training->rate_min,
                      job.training->warm_up_steps, job.training->steps}
      .check();
}

// ---- text

namespace {

Json identity_json(const DataIdentity& data) {
  return {{"fingerprint", data.fingerprint},
          {"tokens", data.tokens},
          {"vocabulary", data.vocabulary},
          {"context", data.context}};
}

DataIdentity read_identity(const Json& json) {
  return {json.at("fingerprint").get<std::uint64_t>(), json.at("tokens").get<std::int64_t>(),
          json.at("vocabulary").get<std::int64_t>(), json.at("context").get<int>()};
}

Json plan_json(const Plan& plan) {
  return {{"layers", plan.layers},
          {"micro_batches", plan.micro_batches},
          {"micro_batch", plan.micro_batch},
          {"family", name_of(plan.family)},
          {"in_flight", plan.in_flight}};
}

Plan read_plan(const Json& json) {
  Plan plan;
  plan.layers = json.at("layers").get<std::vector<int>>();
  plan.micro_batches = json.at("micro_batches").get<std::vector<int>>();
  plan.micro_batch = json.at("micro_batch").get<int>();
  plan.family = json.at("family").get<std::string>() == name_of(ScheduleFamily::kGpipe)
                    ? ScheduleFamily::kGpipe
                    : ScheduleFamily::kOneForwardOneBackward;
  plan.in_flight = json.at("in_flight").get<std::vector<int>>();
  plan.devices.assign(plan.micro_batches.size(), std::vector<int>(plan.layers.size(), 0));
  return plan;
}

Json limits_json(const ControlLimits& limits) {
  return {{"heartbeat_interval_s", limits.heartbeat_interval.value()},
          {"missed_heartbeats", limits.missed_heartbeats},
          {"step_deadline_s", limits.step_deadline.value()},
          {"journal_deadline_s", limits.journal_deadline.value()},
          {"stop_deadline_s", limits.stop_deadline.value()},
          {"skips_in_a_row", limits.skips_in_a_row}};
}

ControlLimits read_limits(const Json& json) {
  ControlLimits limits;
  limits.heartbeat_interval = Seconds(json.at("heartbeat_interval_s").get<double>());
  limits.missed_heartbeats = json.at("missed_heartbeats").get<int>();
  limits.step_deadline = Seconds(json.at("step_deadline_s").get<double>());
  limits.journal_deadline = Seconds(json.at("journal_deadline_s").get<double>());
  limits.stop_deadline = Seconds(json.at("stop_deadline_s").get<double>());
  limits.skips_in_a_row = json.at("skips_in_a_row").get<int>();
  return limits;
}

Json resume_json(const ResumePoint& resume) {
  Json files = Json::array();
  for (const CheckpointFile& file : resume.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"hash", file.hash.text()}});
  }
  return {{"term", resume.checkpoint.term}, {"step", resume.checkpoint.step}, {"files", files}};
}

ResumePoint read_resume(const Json& json) {
  ResumePoint resume;
  resume.checkpoint.term = json.at("term").get<std::uint64_t>();
  resume.checkpoint.step = json.at("step").get<std::uint64_t>();
  for (const Json& at : json.at("files")) {
    CheckpointFile file;
    file.name = at.at("name").get<std::string>();
    file.bytes = at.at("bytes").get<std::uint64_t>();
    file.hash = ContentHash::parse(at.at("hash").get<std::string>()).value_or(ContentHash{});
    resume.files.push_back(std::move(file));
  }
  return resume;
}

Json emulation_json(const EmulationSpec& emulation) {
  Json devices = Json::array();
  for (const EmulationSpec::Device& device : emulation.devices) {
    devices.push_back({{"forward_s", device.forward_s},
                       {"recompute_s", device.recompute_s},
                       {"backward_s", device.backward_s},
                       {"update_s", device.update_s}});
  }
  return {{"page", emulation.page}, {"dilation", emulation.dilation}, {"devices", devices}};
}

EmulationSpec read_emulation(const Json& json) {
  EmulationSpec emulation;
  emulation.page = json.at("page").get<std::string>();
  emulation.dilation = json.at("dilation").get<double>();
  for (const Json& at : json.at("devices")) {
    emulation.devices.push_back(
        {at.at("forward_s").get<double>(), at.at("recompute_s").get<double>(),
         at.at("backward_s").get<double>(), at.at("update_s").get<double>()});
  }
  return emulation;
}

/// What the sizes of the parts must have to do with each other.
Result<void> check_spec(const RunSpec& spec) {
  const Plan& plan = spec.plan;
  LH_TRY(check_runnable(spec.job, plan));
  const int layers = std::accumulate(plan.layers.begin(), plan.layers.end(), 0);
  const auto is_positive = [](int n) { return n >= 1; };
  const bool sound = !plan.layers.empty() && !plan.micro_batches.empty() &&
                     layers == spec.job.model.layers && plan.stages() <= kMaxStages &&
                     std::ranges::all_of(plan.layers, is_positive) &&
                     std::ranges::all_of(plan.micro_batches, is_positive) &&
                     std::ranges::all_of(plan.in_flight, is_positive) &&
                     plan.in_flight.size() == plan.layers.size() && plan.micro_batch >= 1 &&
                     spec.ranks.size() == index(spec.cells()) + 1;
  if (!sound) return invalid("the run's grid does not fit its model and its ranks");
  if (spec.first_step >= spec.last_step || spec.last_step > spec.job.training->steps) {
    return invalid(fmt::format("the run has no step to do: it would go from {} to {} of {}",
                               spec.first_step, spec.last_step, spec.job.training->steps));
  }
  if (spec.train.context != spec.job.model.context || spec.train.sequences() < 1) {
    return invalid("the run's data has no sequence of the model's context");
  }
  if (spec.emulation && spec.emulation->devices.size() != index(spec.cells())) {
    return invalid("the run's emulation does not have a device for each cell");
  }
  return {};
}

}  // namespace

std::string run_spec_text(const RunSpec& spec) {
  Json json = {{"schema", kSchema},
               {"id", spec.id},
               {"term", spec.term},
               {"job", spec.job_text},
               {"plan", plan_json(spec.plan)}};
  for (const RankPlace& place : spec.ranks) {
    json["ranks"].push_back({{"name", place.name}, {"node", place.node}, {"site", place.site}});
  }
  json["data_folder"] = spec.data_folder;
  json["train"] = identity_json(spec.train);
  if (spec.validation) json["validation"] = identity_json(*spec.validation);
  json["first_step"] = spec.first_step;
  json["last_step"] = spec.last_step;
  json["updates"] = spec.updates;
  json["skips_before"] = spec.skips_before;
  if (spec.resume) json["resume"] = resume_json(*spec.resume);
  if (spec.timeline_step) json["timeline_step"] = *spec.timeline_step;
  if (spec.emulation) json["emulation"] = emulation_json(*spec.emulation);
  json["limits"] = limits_json(spec.limits);
  return json.dump();
}

Result<RunSpec> parse_run_spec(std::string_view text) {
  RunSpec spec;
  try {
    const Json json = Json::parse(text);
    if (const auto schema = json.at("schema").get<std::string>(); schema != kSchema) {
      return invalid(fmt::format("a run of schema `{}`; this version reads `{}`", schema, kSchema),
                     "run the same version of longhaul everywhere");
    }
    spec.id = json.at("id").get<std::uint64_t>();
    spec.term = json.at("term").get<std::uint32_t>();
    spec.job_text = json.at("job").get<std::string>();
    spec.plan = read_plan(json.at("plan"));
    for (const Json& at : json.at("ranks")) {
      spec.ranks.push_back({at.at("name").get<std::string>(), at.at("node").get<std::string>(),
                            at.at("site").get<int>()});
    }
    spec.data_folder = json.at("data_folder").get<std::string>();
    spec.train = read_identity(json.at("train"));
    if (json.contains("validation")) spec.validation = read_identity(json.at("validation"));
    spec.first_step = json.at("first_step").get<std::uint64_t>();
    spec.last_step = json.at("last_step").get<std::uint64_t>();
    spec.updates = json.at("updates").get<std::uint64_t>();
    spec.skips_before = json.at("skips_before").get<int>();
    if (json.contains("resume")) spec.resume = read_resume(json.at("resume"));
    if (json.contains("timeline_step")) {
      spec.timeline_step = json.at("timeline_step").get<std::uint64_t>();
    }
    if (json.contains("emulation")) spec.emulation = read_emulation(json.at("emulation"));
    spec.limits = read_limits(json.at("limits"));
  } catch (const Json::exception& error) {
    return invalid(fmt::format("the description of the run cannot be read: {}", error.what()),
                   "run the same version of longhaul everywhere");
  }
  LH_ASSIGN(spec.job, parse_job(spec.job_text, "the run's job"));
  LH_TRY(check_spec(spec));
  return spec;
}

}  // namespace longhaul
