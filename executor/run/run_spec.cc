#include "executor/run/run_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "core/gradient_exchange.h"
#include "executor/transport/frame.h"

namespace longhaul {
namespace {

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// A stage's tensors with their gaps: where one begins to where the next does.
std::vector<std::size_t> padded_lengths(const std::vector<ModelParameter>& parameters,
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
  std::vector<ModelParameter> parameters;
  std::size_t first = 0;
  std::size_t end = 0;
};
Tensors own_tensors(const RunSpec& spec, int stage) {
  Tensors own;
  own.parameters = parameters_of(spec.job.model, slice_of_stage(spec, stage));
  own.end = own.parameters.size();
  // The token embedding is the first tensor of the first stage and the last one of the last.
  if (spec.has_tied_exchange() && stage == 0) own.first = 1;
  if (spec.has_tied_exchange() && stage == spec.plan.stages() - 1) --own.end;
  return own;
}

bool is_coded(const ModelParameter& parameter) {
  return is_coded_gradient(static_cast<int>(parameter.shape.size()),
                           static_cast<double>(parameter.size));
}

ExchangeMember member(const RunSpec& spec, int pipeline, int stage) {
  const int cell = pipeline * spec.plan.stages() + stage;
  return {.rank = RunSpec::rank_of_cell(cell), .site = spec.place_of_cell(cell).site, .share = 1};
}

/// Gives an exchange, whose members are there, the plan's codec and shares.
void apply(const Reduction& reduction, ExchangeOptions& options) {
  options.codec = tensor_codec(reduction.codec);
  for (std::size_t i = 0; i < reduction.shares.size(); ++i) {
    options.members[i].share = reduction.shares[i];
  }
}

/// Whether the workers of two different cells give one another tensors.
bool exchange_tensors(const RunSpec& spec, int cell, int other) {
  const int stage = spec.stage_of(cell);
  const int other_stage = spec.stage_of(other);
  const int last = spec.plan.stages() - 1;
  const bool is_tied = spec.has_tied_exchange() && (stage == 0 || stage == last) &&
                       (other_stage == 0 || other_stage == last);
  const bool are_neighbours =
      spec.pipeline_of(cell) == spec.pipeline_of(other) && std::abs(stage - other_stage) == 1;
  return stage == other_stage || are_neighbours || is_tied;
}

/// Calls `use(rank, count, is_back)` for every rank that gives this one tensors from another site,
/// where something is known of their path; is_back: this rank is in the pair's higher site.
template <class Use>
void for_each_path(const RunSpec& spec, int rank, Use use) {
  if (rank == kCoordinatorRank) return;
  const int cell = rank - 1;
  const int site = spec.place_of_cell(cell).site;
  for (int other = 0; other < spec.cells(); ++other) {
    if (other == cell || !exchange_tensors(spec, cell, other)) continue;
    const int other_site = spec.place_of_cell(other).site;
    for (const StreamCount& count : spec.streams) {
      if (count.site == std::min(site, other_site) && count.other == std::max(site, other_site)) {
        use(index(RunSpec::rank_of_cell(other)), count, site > other_site);
      }
    }
  }
}

}  // namespace

std::vector<int> streams_of(const RunSpec& spec, int rank) {
  std::vector<int> streams(spec.ranks.size(), 1);
  for_each_path(spec, rank, [&](std::size_t other, const StreamCount& count, bool) {
    streams[other] = count.streams;
  });
  return streams;
}

std::vector<BytesPerSecond> link_rates_of(const RunSpec& spec, int rank) {
  std::vector<BytesPerSecond> rates(spec.ranks.size(), BytesPerSecond::infinity());
  for_each_path(spec, rank, [&](std::size_t other, const StreamCount& count, bool is_back) {
    rates[other] = is_back ? count.rate_back : count.rate;
  });
  return rates;
}

ModelSlice slice_of_stage(const RunSpec& spec, int stage) {
  const auto& layers = spec.plan.layers;
  ModelSlice slice;
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
    group.tensors = parameters_of(spec.job.model, slice_of_stage(spec, stage)).size();
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

std::uint64_t exchange_operation(Op op, int stage, std::uint32_t step) {
  return encode_operation({.step = step,
                           .kind = static_cast<std::uint8_t>(op),
                           .stage = static_cast<std::uint16_t>(stage)});
}

ExchangeOptions stage_exchange(const RunSpec& spec, int stage) {
  ExchangeOptions options;
  for (int d = 0; d < spec.plan.pipelines(); ++d) options.members.push_back(member(spec, d, stage));
  const Tensors own = own_tensors(spec, stage);
  options.tensor_lengths = padded_lengths(own.parameters, own.first, own.end);
  for (std::size_t i = own.first; i < own.end; ++i) {
    options.is_coded.push_back(is_coded(own.parameters[i]));
  }
  apply(reduction_of(spec.plan, spec.job, stage), options);
  return options;
}

ExchangeOptions tied_exchange(const RunSpec& spec) {
  ExchangeOptions options;
  for (const int stage : {spec.plan.stages() - 1, 0}) {
    for (int d = 0; d < spec.plan.pipelines(); ++d) {
      options.members.push_back(member(spec, d, stage));
    }
  }
  options.tensor_lengths = {tied_gradient(spec, 0).count};
  options.is_coded = {is_coded(parameters_of(spec.job.model, slice_of_stage(spec, 0)).front())};
  apply(reduction_of(spec.plan, spec.job, spec.plan.stages()), options);
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
  const auto parameters = parameters_of(spec.job.model, slice_of_stage(spec, stage));
  const std::size_t at = stage == 0 ? 0 : parameters.size() - 1;
  return {parameters[at].offset, padded_lengths(parameters, at, at + 1).front()};
}

std::vector<BoundaryHistory> histories_of(const RunSpec& spec, int pipeline) {
  std::vector<int> sites;
  for (int stage = 0; stage < spec.plan.stages(); ++stage) {
    sites.push_back(spec.place_of_cell(pipeline * spec.plan.stages() + stage).site);
  }
  return boundary_histories(spec.plan, spec.job, pipeline, sites, spec.train.sequences());
}

std::int64_t validation_sequences(const RunSpec& spec) {
  if (!spec.validation) return 0;
  return std::min(spec.job.training->validation_sequences, spec.validation->sequences());
}

ValidationShare validation_share(const RunSpec& spec, int pipeline) {
  const std::int64_t b = spec.plan.micro_batch;
  const std::int64_t count = validation_sequences(spec);
  const std::int64_t all = (count + b - 1) / b;  // micro-batches
  const std::vector<int>& trained = spec.plan.micro_batches;
  const std::int64_t sum = std::accumulate(trained.begin(), trained.end(), std::int64_t{0});
  const std::int64_t before =
      std::accumulate(trained.begin(), trained.begin() + pipeline, std::int64_t{0});
  const std::int64_t through = before + trained[index(pipeline)];
  return {std::min(count, all * before / sum * b), std::min(count, all * through / sum * b)};
}

std::vector<int> validation_micro_batches(const RunSpec& spec) {
  const std::int64_t b = spec.plan.micro_batch;
  std::vector<int> counts;
  for (int pipeline = 0; pipeline < spec.plan.pipelines(); ++pipeline) {
    const auto [first, end] = validation_share(spec, pipeline);
    // A pipeline without a sequence has a micro-batch of padding: every stage takes part.
    counts.push_back(static_cast<int>(std::max<std::int64_t>(1, (end - first + b - 1) / b)));
  }
  return counts;
}

Plan validation_plan(const RunSpec& spec) {
  Plan plan = spec.plan;
  plan.micro_batches = validation_micro_batches(spec);
  if (plan.family != ScheduleFamily::kGreedy) return plan;
  plan.family = ScheduleFamily::kOneForwardOneBackward;
  plan.in_flight =
      default_in_flight(plan.family, plan.stages(), std::ranges::max(plan.micro_batches));
  plan.orders.clear();
  return plan;
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
  if (job.precision == Precision::kFp16) {
    return invalid("the CPU kernels compute in fp32 or bf16, the job asks for fp16",
                   "set `precision: bf16`; it needs no loss scaling");
  }
  const std::int64_t micro_batches =
      std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), std::int64_t{0});
  if (micro_batches < 1 || micro_batches > job.global_batch ||
      micro_batches * plan.micro_batch != job.global_batch) {
    return invalid(fmt::format("the plan's {} micro-batches of {} sequences are not the job's "
                               "batch of {}",
                               micro_batches, plan.micro_batch, job.global_batch),
                   "make the plan again for this job");
  }
  ModelShape shape = job.model;
  shape.vocabulary = shape.context = 1;  // only the shape is looked at, whatever the model's size
  LH_TRY(ModelStage::create(shape, {.end_layer = 0, .has_embedding = true}));
  return RateSchedule{job.training->decay, job.training->rate_max, job.training->rate_min,
                      job.training->warm_up_steps, job.training->steps}
      .check();
}

Result<void> check_shapes(const Plan& plan) {
  for (const Reduction& reduction : plan.reductions) {
    if (reduction.shape == ReduceShape::kSharded) continue;
    return invalid(
        fmt::format("the executor does not run the {} all-reduce yet", name_of(reduction.shape)),
        "write `shape: sharded` in the plan's `reductions`, and look with `longhaul simulate` at "
        "what that costs");
  }
  return {};
}

}  // namespace longhaul
