#include "tools/run_result.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "longhaul/result/1";

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json links_json(const RunResult& result) {
  Json out = Json::array();
  for (const RunResult::LinkTotal& link : result.links) {
    out.push_back({{"from", link.from},
                   {"to", link.to},
                   {"bytes_raw", link.bytes_raw},
                   {"bytes_sent", link.bytes_sent}});
  }
  return out;
}

Json step_json(const RunResult& result) {
  return {{"predicted", number(result.step_predicted_s)},
          {"measured", number(result.step_measured_s)}};
}

/// What both files begin with.
Json common_json(const RunResult& result) {
  return {{"steps", result.steps},
          {"parameters", result.parameters},
          {"loss_first", number(result.loss_first)},
          {"loss_last", number(result.loss_last)},
          {"validation_loss", number(result.validation_loss)},
          {"bigram_loss", number(result.bigram_loss)},
          {"tokens_per_s", number(result.tokens_per_s)}};
}

/// Names come from files that people wrote: bytes that are not UTF-8 are replaced.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Reads fields of one object; keeps the first complaint.
class Fields {
 public:
  Fields(const Json& json, std::string& complaint) : json_(json), complaint_(complaint) {}

  const Json* field(const char* key) {
    const auto found = json_.find(key);
    if (found != json_.end()) return &*found;
    complain(fmt::format("`{}` is missing", key));
    return nullptr;
  }
  std::uint64_t whole(const char* key) {
    const Json* const value = field(key);
    if (value != nullptr && value->is_number_unsigned()) return value->get<std::uint64_t>();
    complain(fmt::format("`{}` is no whole number", key));
    return 0;
  }
  std::optional<double> number(const char* key) {
    const Json* const value = field(key);
    if (value != nullptr && value->is_number()) return value->get<double>();
    if (value != nullptr && !value->is_null()) complain(fmt::format("`{}` is no number", key));
    return {};
  }
  std::string text(const char* key) {
    const Json* const value = field(key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    complain(fmt::format("`{}` is no text", key));
    return "";
  }
  void complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
  }

 private:
  const Json& json_;
  std::string& complaint_;
};

RunResult read_result(const Json& json, std::string& complaint) {
  Fields fields(json, complaint);
  RunResult result;
  if (fields.text("schema") != kSchema) {
    fields.complain(fmt::format("its schema is not {}", kSchema));
  }
  result.steps = fields.whole("steps");
  result.parameters = fields.whole("parameters");
  result.loss_first = fields.number("loss_first");
  result.loss_last = fields.number("loss_last");
  result.validation_loss = fields.number("validation_loss");
  result.bigram_loss = fields.number("bigram_loss");
  result.tokens_per_s = fields.number("tokens_per_s");
  result.step_predicted_s = fields.number("step_predicted_s");
  result.step_measured_s = fields.number("step_measured_s");
  result.late_fraction = fields.number("late_fraction");
  const Json* const links = fields.field("links");
  if (links == nullptr || !links->is_array()) {
    fields.complain("`links` is no list");
    return result;
  }
  for (const Json& link : *links) {
    Fields of_link(link, complaint);
    result.links.push_back({of_link.text("from"), of_link.text("to"), of_link.whole("bytes_raw"),
                            of_link.whole("bytes_sent")});
  }
  return result;
}

}  // namespace

std::string result_text(const RunResult& result) {
  Json json;
  json["schema"] = kSchema;
  json.update(common_json(result));
  json["step_predicted_s"] = number(result.step_predicted_s);
  json["step_measured_s"] = number(result.step_measured_s);
  json["late_fraction"] = number(result.late_fraction);
  json["links"] = links_json(result);
  return text_of(json);
}

Result<RunResult> parse_result(std::string_view text, const std::string& name) {
  constexpr std::string_view kHint = "it is written at the end of a run: run again";
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    return invalid(fmt::format("{} is no JSON object", name), std::string(kHint));
  }
  std::string complaint;
  RunResult result = read_result(json, complaint);
  if (!complaint.empty()) {
    return invalid(fmt::format("{} is no result of a run: {}", name, complaint),
                   std::string(kHint));
  }
  return result;
}

std::string summary_text(const RunResult& plan, const RunResult* rank_order) {
  Json json = common_json(plan);
  json["step_s"]["plan"] = step_json(plan);
  std::optional<double> late = plan.late_fraction;
  if (rank_order != nullptr) {
    json["step_s"]["rank_order"] = step_json(*rank_order);
    late = std::max(late, rank_order->late_fraction);  // none is less than any
  }
  json["late_fraction"] = number(late);
  json["links"] = links_json(plan);
  return text_of(json);
}

}  // namespace longhaul
