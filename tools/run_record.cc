#include "tools/run_record.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json json_of(const StepRecord& step) {
  const auto part = [&](double StepParts::* which) {
    return step.parts ? Json((*step.parts).*which) : Json();
  };
  Json json;
  json["step"] = step.entry.step;
  json["loss"] = number(step.entry.loss);
  json["norm"] = number(step.entry.norm);
  json["learning_rate"] = step.learning_rate;
  json["decision"] = name_of(step.entry.decision);
  json["time_s"] = step.time_s;
  json["step_s"] = number(step.step_s);
  json["tokens_per_s"] = number(step.tokens_per_s);
  json["links"] = Json::array();
  for (const StepRecord::Link& link : step.links) {
    json["links"].push_back({{"from", link.from},
                             {"to", link.to},
                             {"bytes_sent", link.bytes_sent},
                             {"bytes_raw", link.bytes_raw}});
  }
  json["compute"] = part(&StepParts::compute);
  json["wait"] = part(&StepParts::wait);
  json["reduce"] = part(&StepParts::reduce);
  json["commit"] = part(&StepParts::commit);
  json["update"] = part(&StepParts::update);
  if (step.histories) {
    json["histories"] = {{"first", step.histories->first},
                         {"deltas", step.histories->deltas},
                         {"whole", step.histories->whole},
                         {"healed", step.histories->healed}};
  }
  return json;
}

Json json_of(const ValidationRecord& validation) {
  return {{"step", validation.steps_done}, {"validation_loss", number(validation.loss)}};
}

Json json_of(const CheckpointRecord& checkpoint) {
  return {{"step", checkpoint.id.step}, {"checkpoint", folder_name(checkpoint.id)}};
}

Json json_of(const CodecRecord& record) {
  return {{"step", record.step},
          {"recoded",
           {{"from", record.from},
            {"to", record.to},
            {"tensors", record.tensors},
            {"before", name_of(record.before)},
            {"after", name_of(record.after)},
            {"busy", number(record.busy)},
            {"compute", number(record.compute)}}}};
}

}  // namespace

std::string codec_sentence(const CodecRecord& record) {
  return fmt::format(
      "step {}: {} sends {} to {} in {} instead of {}: sending took {:.3g} s beside {:.3g} s of "
      "computing",
      record.step, record.from, record.tensors, record.to, name_of(record.after),
      name_of(record.before), record.busy, record.compute);
}

StepParts& StepParts::operator+=(const StepParts& other) {
  compute += other.compute;
  wait += other.wait;
  reduce += other.reduce;
  commit += other.commit;
  update += other.update;
  return *this;
}

StepParts StepParts::operator/(double divisor) const {
  return {compute / divisor, wait / divisor, reduce / divisor, commit / divisor, update / divisor};
}

std::string metrics_line(const RunRecord& record) {
  const Json json = std::visit([](const auto& what) { return json_of(what); }, record);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace longhaul
