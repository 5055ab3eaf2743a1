// The text of a run's description, and what is checked when it is read.

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/config_edit.h"
#include "executor/run/run_spec.h"
#include "executor/transport/frame.h"

namespace longhaul {
namespace {

constexpr std::string_view kSchema = "longhaul/run/1";
constexpr std::size_t kQuotedMax = 200;  // of a peer's text in a message
using Json = nlohmann::ordered_json;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// A whole number; the library would convert one that does not fit without a word.
template <std::integral T>
T whole(const Json& json) {
  const bool fits = json.is_number_unsigned()
                        ? std::in_range<T>(json.get<std::uint64_t>())
                        : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
  if (!fits) throw std::out_of_range("a number is not whole or not in its range");
  return json.get<T>();
}

std::vector<int> wholes(const Json& json) {
  std::vector<int> all;
  for (const Json& at : json) all.push_back(whole<int>(at));
  return all;
}

Json identity_json(const DataIdentity& data) {
  return {{"fingerprint", data.fingerprint},
          {"tokens", data.tokens},
          {"vocabulary", data.vocabulary},
          {"context", data.context}};
}

DataIdentity read_identity(const Json& json) {
  return {whole<std::uint64_t>(json.at("fingerprint")), whole<std::int64_t>(json.at("tokens")),
          whole<std::int64_t>(json.at("vocabulary")), whole<int>(json.at("context"))};
}

Codec read_codec(const Json& json) {
  const std::optional<Codec> codec = codec_named(json.get<std::string>());
  if (!codec) throw std::out_of_range("no such codec");
  return *codec;
}

ReduceShape read_shape(const Json& json) {
  const auto name = json.get<std::string>();
  for (const ReduceShape shape :
       {ReduceShape::kSharded, ReduceShape::kRing, ReduceShape::kHierarchical}) {
    if (name == name_of(shape)) return shape;
  }
  throw std::out_of_range("no such shape of an all-reduce");
}

/// What the plan chooses beside its grid; keys that say nothing are left out.
void add_choices(const Plan& plan, Json& json) {
  if (plan.recompute) json["recompute"] = true;
  for (const PairCodec& pair : plan.activation_codecs) {
    Json row = {{"site", pair.site}, {"other", pair.other}, {"activations", name_of(pair.codec)}};
    if (pair.gradients) row["activation_gradients"] = name_of(*pair.gradients);
    json["codecs"].push_back(std::move(row));
  }
  for (const Reduction& reduction : plan.reductions) {
    json["reductions"].push_back({{"shape", name_of(reduction.shape)},
                                  {"shares", reduction.shares},
                                  {"codec", name_of(reduction.codec)}});
  }
}

void read_choices(const Json& json, Plan& plan) {
  if (json.contains("recompute")) plan.recompute = json.at("recompute").get<bool>();
  if (json.contains("codecs")) {
    for (const Json& at : json.at("codecs")) {
      PairCodec& pair = plan.activation_codecs.emplace_back();
      pair.site = whole<int>(at.at("site"));
      pair.other = whole<int>(at.at("other"));
      pair.codec = read_codec(at.at("activations"));
      if (at.contains("activation_gradients")) {
        pair.gradients = read_codec(at.at("activation_gradients"));
      }
    }
  }
  if (json.contains("reductions")) {
    for (const Json& at : json.at("reductions")) {
      plan.reductions.push_back({read_shape(at.at("shape")),
                                 at.at("shares").get<std::vector<double>>(),
                                 read_codec(at.at("codec"))});
    }
  }
}

Json plan_json(const Plan& plan) {
  Json json = {{"layers", plan.layers},
               {"micro_batches", plan.micro_batches},
               {"micro_batch", plan.micro_batch},
               {"family", name_of(plan.family)},
               {"in_flight", plan.in_flight}};
  if (plan.family == ScheduleFamily::kGreedy) {
    Json orders = Json::array();
    for (const StageOrder& order : plan.orders) orders.push_back(order_text(order));
    json["orders"] = std::move(orders);
  }
  add_choices(plan, json);
  return json;
}

Plan read_plan(const Json& json) {
  Plan plan;
  plan.layers = wholes(json.at("layers"));
  plan.micro_batches = wholes(json.at("micro_batches"));
  plan.micro_batch = whole<int>(json.at("micro_batch"));
  const auto family = json.at("family").get<std::string>();
  for (const ScheduleFamily each :
       {ScheduleFamily::kGpipe, ScheduleFamily::kOneForwardOneBackward, ScheduleFamily::kGreedy}) {
    if (family == name_of(each)) plan.family = each;
  }
  if (family != name_of(plan.family)) throw std::out_of_range("no such schedule family");
  plan.in_flight = wholes(json.at("in_flight"));
  if (plan.family == ScheduleFamily::kGreedy) {
    for (const Json& at : json.at("orders")) {
      Result<StageOrder> order = parse_order(at.get<std::string>());
      if (!order) throw std::out_of_range(order.error().message);
      plan.orders.push_back(*std::move(order));
    }
  }
  read_choices(json, plan);
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
  limits.missed_heartbeats = whole<int>(json.at("missed_heartbeats"));
  limits.step_deadline = Seconds(json.at("step_deadline_s").get<double>());
  limits.journal_deadline = Seconds(json.at("journal_deadline_s").get<double>());
  limits.stop_deadline = Seconds(json.at("stop_deadline_s").get<double>());
  limits.skips_in_a_row = whole<int>(json.at("skips_in_a_row"));
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
  resume.checkpoint.term = whole<std::uint64_t>(json.at("term"));
  resume.checkpoint.step = whole<std::uint64_t>(json.at("step"));
  for (const Json& at : json.at("files")) {
    CheckpointFile file;
    file.name = at.at("name").get<std::string>();
    file.bytes = whole<std::uint64_t>(at.at("bytes"));
    const auto hash = ContentHash::parse(at.at("hash").get<std::string>());
    if (!hash) throw std::out_of_range("a file's hash is none");
    file.hash = *hash;
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
                       {"update_s", device.update_s},
                       {"backward_input_s", device.backward_input_s},
                       {"backward_weight_s", device.backward_weight_s}});
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
         at.at("backward_s").get<double>(), at.at("update_s").get<double>(),
         at.at("backward_input_s").get<double>(), at.at("backward_weight_s").get<double>()});
  }
  return emulation;
}

/// Whether the run can train on this data: sequences of the model's context, of tokens it has.
bool fits_model(const DataIdentity& data, const ModelShape& model) {
  return data.context == model.context && data.tokens >= 1 && data.sequences() >= 1 &&
         data.vocabulary >= 1 && data.vocabulary <= model.vocabulary;
}

bool is_sound(const ControlLimits& limits) {
  return std::min({limits.heartbeat_interval, limits.step_deadline, limits.journal_deadline,
                   limits.stop_deadline}) > Seconds(0) &&
         limits.missed_heartbeats >= 1 && limits.skips_in_a_row >= 1;
}

Json streams_json(const std::vector<StreamCount>& counts) {
  Json json = Json::array();
  for (const StreamCount& count : counts) {
    json.push_back({{"site", count.site}, {"other", count.other}, {"streams", count.streams}});
    if (count.rate.finite()) json.back()["rate"] = count.rate.value();
    if (count.rate_back.finite()) json.back()["rate_back"] = count.rate_back.value();
  }
  return json;
}

std::vector<StreamCount> read_streams(const Json& json) {
  std::vector<StreamCount> counts;
  for (const Json& at : json) {
    counts.push_back(
        {whole<int>(at.at("site")), whole<int>(at.at("other")), whole<int>(at.at("streams"))});
    StreamCount& count = counts.back();
    if (at.contains("rate")) count.rate = BytesPerSecond(at.at("rate").get<double>());
    if (at.contains("rate_back"))
      count.rate_back = BytesPerSecond(at.at("rate_back").get<double>());
  }
  return counts;
}

/// Whether both ends of a link find the same number, and one that a mesh takes, and rates.
bool are_sound(const std::vector<StreamCount>& counts) {
  std::set<std::pair<int, int>> pairs;
  return std::ranges::all_of(counts, [&](const StreamCount& count) {
    return count.site < count.other && count.streams >= 1 && count.streams <= kMaxStreams &&
           std::min(count.rate, count.rate_back) > BytesPerSecond(0) &&
           pairs.emplace(count.site, count.other).second;
  });
}

/// A schedule that ends. The grid is sound.
Result<void> check_schedule(const RunSpec& spec) {
  const Plan& plan = spec.plan;
  if (plan.family != ScheduleFamily::kGreedy) {
    // In-flight numbers that grow along the pipeline would dead-lock it.
    if (std::ranges::is_sorted(plan.in_flight, std::greater{})) return {};
    return invalid("the run's in-flight numbers grow along the pipeline");
  }
  if (plan.orders.size() != plan.layers.size()) {
    return invalid("the run does not have an order for each stage");
  }
  const int most = std::ranges::max(plan.micro_batches);
  for (std::size_t i = 0; i < plan.orders.size(); ++i) {
    if (auto checked = check_order(plan.orders[i], most, plan.in_flight[i]); !checked) {
      return within(fmt::format("stage {}", i), checked.error());
    }
  }
  if (const auto graph = build_graph(make_schedule(plan, spec.job)); !graph) {
    return std::unexpected(graph.error());
  }
  return {};
}

/// Codecs that the job allows, each pair of sites once, and shares of each exchange's members. The
/// grid is sound.
Result<void> check_choices(const RunSpec& spec) {
  const Plan& plan = spec.plan;
  LH_TRY(check_shapes(plan));
  std::set<std::pair<int, int>> pairs;
  const bool good_pairs = std::ranges::all_of(plan.activation_codecs, [&](const PairCodec& pair) {
    return pair.site < pair.other && pairs.emplace(pair.site, pair.other).second &&
           allows(spec.job, CodecUse::kActivations, pair.codec) &&
           (!pair.gradients || allows(spec.job, CodecUse::kActivationGradients, *pair.gradients));
  });
  if (!good_pairs) return invalid("the run's codecs between sites are not what its job allows");
  const std::size_t exchanges = plan.layers.size() + (spec.has_tied_exchange() ? 1 : 0);
  if (!plan.reductions.empty() && plan.reductions.size() != exchanges) {
    return invalid(fmt::format("the run has {} reductions for {} exchanges of gradients",
                               plan.reductions.size(), exchanges));
  }
  for (std::size_t i = 0; i < plan.reductions.size(); ++i) {
    const Reduction& reduction = plan.reductions[i];
    const std::size_t members = plan.devices.size() * (i < plan.layers.size() ? 1 : 2);
    const auto is_share = [](double share) { return share >= 0 && share <= 1; };
    const bool sound =
        reduction.shares.empty() ||
        (reduction.shares.size() == members && std::ranges::all_of(reduction.shares, is_share) &&
         std::ranges::max(reduction.shares) > 0);
    if (!sound || !allows(spec.job, CodecUse::kGradients, reduction.codec)) {
      return invalid(
          fmt::format("reduction {} of the run has shares or a codec that cannot be", i));
    }
  }
  return {};
}

/// What the sizes of the parts must have to do with each other.
Result<void> check_spec(const RunSpec& spec) {
  const Plan& plan = spec.plan;
  LH_TRY(check_runnable(spec.job, plan));
  const auto layers = std::accumulate(plan.layers.begin(), plan.layers.end(), std::int64_t{0});
  const auto is_positive = [](int n) { return n >= 1; };
  const bool sound = !plan.layers.empty() && !plan.micro_batches.empty() &&
                     layers == spec.job.model.layers && plan.layers.size() <= kMaxStages &&
                     std::ranges::all_of(plan.layers, is_positive) &&
                     std::ranges::all_of(plan.micro_batches, is_positive) &&
                     std::ranges::all_of(plan.in_flight, is_positive) &&
                     plan.in_flight.size() == plan.layers.size() && plan.micro_batch >= 1 &&
                     spec.ranks.size() == plan.layers.size() * plan.micro_batches.size() + 1;
  if (!sound) return invalid("the run's grid does not fit its model and its ranks");
  LH_TRY(check_schedule(spec));
  LH_TRY(check_choices(spec));
  if (spec.first_step >= spec.last_step || spec.last_step > spec.job.training->steps) {
    return invalid(fmt::format("the run has no step to do: it would go from {} to {} of {}",
                               spec.first_step, spec.last_step, spec.job.training->steps));
  }
  if (spec.updates > spec.first_step || spec.skips_before < 0) {
    return invalid("the run's steps before its first do not add up");
  }
  if (!fits_model(spec.train, spec.job.model) ||
      (spec.validation && !fits_model(*spec.validation, spec.job.model))) {
    return invalid("the run's data has no sequence of the model's context and vocabulary");
  }
  const std::vector<StageGroup> groups = coordinator_config(spec).stages;
  if (std::ranges::any_of(groups, [](const auto& g) { return g.tensors > kStageTensorsMax; }) ||
      (spec.validation && std::ranges::max(validation_micro_batches(spec)) > kMaxMicroBatches)) {
    return invalid(
        "the run has more tensors in a stage, or more to validate on, than messages "
        "can name");
  }
  if (spec.resume &&
      (spec.resume->checkpoint.term > kTermMax || spec.resume->checkpoint.step > kStepMax)) {
    return invalid("the run begins at a checkpoint that cannot be");
  }
  if (!are_sound(spec.streams)) {
    return invalid(
        fmt::format("the run's streams between sites are not 1 to {} for each pair once, or a rate "
                    "is not above 0",
                    kMaxStreams));
  }
  if (!is_sound(spec.limits)) return invalid("the run's deadlines and limits are not positive");
  if (!spec.emulation) return {};
  if (spec.emulation->devices.size() != index(spec.cells())) {
    return invalid("the run's emulation does not have a device for each cell");
  }
  const auto is_time = [](const EmulationSpec::Device& device) {
    return std::min({device.forward_s, device.recompute_s, device.backward_s, device.update_s,
                     device.backward_input_s, device.backward_weight_s}) >= 0;
  };
  if (!(spec.emulation->dilation > 0) || !std::ranges::all_of(spec.emulation->devices, is_time)) {
    return invalid("the run's emulation has a time that cannot be");
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
  if (!spec.streams.empty()) json["streams"] = streams_json(spec.streams);
  json["data_folder"] = spec.data_folder;
  json["train"] = identity_json(spec.train);
  if (spec.validation) json["validation"] = identity_json(*spec.validation);
  json["first_step"] = spec.first_step;
  json["last_step"] = spec.last_step;
  json["updates"] = spec.updates;
  json["skips_before"] = spec.skips_before;
  if (spec.resume) json["resume"] = resume_json(*spec.resume);
  if (spec.timeline_step) json["timeline_step"] = *spec.timeline_step;
  if (spec.adapts_codecs) json["adapts_codecs"] = true;
  if (spec.emulation) json["emulation"] = emulation_json(*spec.emulation);
  json["limits"] = limits_json(spec.limits);
  // A folder's name need not be UTF-8, which JSON must be.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<RunSpec> parse_run_spec(std::string_view text) {
  RunSpec spec;
  try {
    const Json json = Json::parse(text);
    if (const auto schema = json.at("schema").get<std::string>(); schema != kSchema) {
      return invalid(fmt::format("a run of schema `{}`; this version reads `{}`",
                                 schema.substr(0, kQuotedMax), kSchema),
                     "run the same version of longhaul everywhere");
    }
    spec.id = whole<std::uint64_t>(json.at("id"));
    spec.term = whole<std::uint32_t>(json.at("term"));
    spec.job_text = json.at("job").get<std::string>();
    spec.plan = read_plan(json.at("plan"));
    for (const Json& at : json.at("ranks")) {
      spec.ranks.push_back({at.at("name").get<std::string>(), at.at("node").get<std::string>(),
                            whole<int>(at.at("site"))});
    }
    if (json.contains("streams")) spec.streams = read_streams(json.at("streams"));
    spec.data_folder = json.at("data_folder").get<std::string>();
    spec.train = read_identity(json.at("train"));
    if (json.contains("validation")) spec.validation = read_identity(json.at("validation"));
    spec.first_step = whole<std::uint64_t>(json.at("first_step"));
    spec.last_step = whole<std::uint64_t>(json.at("last_step"));
    spec.updates = whole<std::uint64_t>(json.at("updates"));
    spec.skips_before = whole<int>(json.at("skips_before"));
    if (json.contains("resume")) spec.resume = read_resume(json.at("resume"));
    if (json.contains("adapts_codecs")) {
      spec.adapts_codecs = json.at("adapts_codecs").get<bool>();
    }
    if (json.contains("timeline_step")) {
      spec.timeline_step = whole<std::uint64_t>(json.at("timeline_step"));
    }
    if (json.contains("emulation")) spec.emulation = read_emulation(json.at("emulation"));
    spec.limits = read_limits(json.at("limits"));
  } catch (const std::exception& error) {  // of the library, or of the readers above
    return invalid(fmt::format("the description of the run cannot be read: {}",
                               std::string_view(error.what()).substr(0, kQuotedMax)),
                   "run the same version of longhaul everywhere");
  }
  // A worker reads no folder that a message names.
  if (const auto from = value_at(spec.job_text, "the run's job", "model.from");
      from && !from->empty()) {
    return invalid("the run's job has its model in a folder, which workers need not have");
  }
  LH_ASSIGN(spec.job, parse_job(spec.job_text, "the run's job"));
  LH_TRY(check_spec(spec));
  return spec;
}

}  // namespace longhaul
