#include "tools/report/sweep_file.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kRowsMax = 10'000;

/// Reads fields of one object; keeps the first complaint.
class Fields {
 public:
  Fields(const Json& json, std::string where, std::string& complaint)
      : json_(json), where_(std::move(where)), complaint_(complaint) {}

  std::string text(const char* key, bool is_needed) {
    const Json* const value = field(key, is_needed);
    if (value == nullptr) return "";
    if (value->is_string()) return value->get<std::string>();
    complain(key, "is no text");
    return "";
  }
  std::optional<double> number(const char* key, bool is_needed) {
    const Json* const value = field(key, is_needed);
    if (value == nullptr) return {};
    if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
    complain(key, "is no number");
    return {};
  }
  bool flag(const char* key) {
    const Json* const value = field(key, false);
    if (value == nullptr) return false;
    if (!value->is_boolean()) complain(key, "is neither true nor false");
    return value->is_boolean() && value->get<bool>();
  }
  void complain(const char* key, std::string_view what) {
    if (complaint_.empty()) complaint_ = fmt::format("{}`{}` {}", where_, key, what);
  }

 private:
  const Json* field(const char* key, bool is_needed) {
    const auto found = json_.find(key);
    if (found != json_.end() && !found->is_null()) return &*found;
    if (is_needed) complain(key, "is missing");
    return nullptr;
  }

  const Json& json_;
  const std::string where_;
  std::string& complaint_;
};

WhatIfRow read_row(const Json& json, std::string where, std::string& complaint) {
  Fields fields(json, std::move(where), complaint);
  WhatIfRow row;
  row.change = fields.text("change", true);
  row.x = fields.number("x", false);
  row.problem = fields.text("problem", false);
  if (!row.problem.empty()) return row;
  row.step = Seconds(fields.number("step_s", true).value_or(0));
  if (!(row.step > Seconds(0))) fields.complain("step_s", "is not above 0");
  row.tokens_per_s = fields.number("tokens_per_s", false).value_or(0);
  row.usd_per_billion_tokens = fields.number("usd_per_billion_tokens", false);
  row.binding = fields.text("binding", false);
  row.replanned = fields.flag("replanned");
  return row;
}

}  // namespace

Result<WhatIfTable> parse_sweep(std::string_view text, const std::string& name) {
  const auto wrong = [&](const std::string& why) {
    return invalid(fmt::format("{} is no table of what-ifs: {}", name, why),
                   "write it with `longhaul simulate PLAN --sweep ... --json`");
  };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return wrong("it is no JSON object");
  std::string complaint;
  Fields fields(json, "", complaint);
  if (fields.number("version", true) != 1) fields.complain("version", "is not 1");
  WhatIfTable table;
  table.axis = fields.text("axis", false);
  table.unit = fields.text("unit", false);
  table.is_log = fields.flag("log");
  const auto rows = json.find("rows");
  if (rows == json.end() || !rows->is_array() || rows->empty() || rows->size() > kRowsMax) {
    fields.complain("rows", "is no list of 1 to 10000 rows");
    return wrong(complaint);
  }
  for (const Json& row : *rows) {
    const std::string where = fmt::format("row {}: ", table.rows.size() + 1);
    if (!row.is_object()) {
      if (complaint.empty()) complaint = where + "it is no object";
      break;
    }
    table.rows.push_back(read_row(row, where, complaint));
  }
  if (!complaint.empty()) return wrong(complaint);
  return table;
}

}  // namespace longhaul
