// The Cursor of config_cursor.h: each read, and what it says when it cannot.
#include "core/config_cursor.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

#include "core/config_document.h"
#include "core/quantity.h"

namespace longhaul {
namespace {

using Kind = ConfigNode::Kind;

std::string found(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::kNothing:
      return "nothing";
    case Kind::kScalar:
      return (node.quoted ? "the text " : "") + shown(node.text);
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

ConfigNode* child(const ConfigNode& map, std::string_view name) {
  for (const auto& node : map.children) {
    if (node->key == name) return node.get();  // of repeated keys the first
  }
  return nullptr;
}

/// The bounds of an IntegerRange or a NumberRange that are not those of its type, in words.
template <class Range>
std::string range_text(const Range& range, auto print) {
  const bool has_min = range.min != Range{}.min;
  const bool has_max = range.max != Range{}.max;
  if (has_min && has_max) return fmt::format(" from {} to {}", print(range.min), print(range.max));
  if (has_min) return fmt::format(" of at least {}", print(range.min));
  if (has_max) return fmt::format(" of at most {}", print(range.max));
  return "";
}

/// What to do about a text that is no integer in plain decimals.
std::string integer_hint(std::string_view text) {
  // 1e3 and 4.0 are whole, but a count is written the way it is counted.
  const auto number = parse_number(text);
  if (number && *number == std::floor(*number) && std::abs(*number) < 0x1p53) {
    return fmt::format("write {}", static_cast<std::int64_t>(*number));
  }
  return !number && text.contains('_') ? "write digits without separators" : "";
}

}  // namespace

bool Cursor::is_map() const {
  return present() && node_->kind == Kind::kMap;
}
bool Cursor::is_list() const {
  return present() && node_->kind == Kind::kList;
}
bool Cursor::is_scalar() const {
  return present() && node_->kind == Kind::kScalar;
}

std::string Cursor::path() const {
  return present() ? node_->path() : absent_path_;
}
SourcePlace Cursor::place() const {
  return document_->text.place(nearest_->offset);
}

void Cursor::fail(std::string message, std::string hint) const {
  document_->record({nearest_->offset, std::move(message), std::move(hint)});
}

void Cursor::wrong(std::string_view wanted, std::string_view example, std::string hint) const {
  const std::string such = example.empty() ? "" : fmt::format(", for example `{}`", example);
  fail(fmt::format("{} must be {}{}: found {}", node_->subject(), wanted, such, found(*node_)),
       std::move(hint));
}

ConfigNode* Cursor::map_or_error() const {
  if (present() && node_->kind != Kind::kMap) wrong("a map", "key: value");
  return is_map() ? node_ : nullptr;
}

Cursor Cursor::optional(std::string_view name) const {
  ConfigNode* const map = map_or_error();
  ConfigNode* const value = map == nullptr ? nullptr : child(*map, name);
  if (map != nullptr && !map->was_asked_for(name)) map->asked.emplace_back(name);
  if (value != nullptr) return Cursor(document_, value, value);
  return Cursor(document_, nullptr, nearest_, path_of_key(path(), name));
}

Cursor Cursor::key(std::string_view name) const {
  Cursor value = optional(name);
  if (is_map() && !value.present()) {
    fail(fmt::format("missing key `{}`{}", name, node_->in_subject()));
  }
  return value;
}

std::vector<Cursor> Cursor::items(bool nonempty) const {
  std::vector<Cursor> out;
  if (!present()) return out;
  if (!is_list()) {
    wrong("a list", "[a, b]", "write each item on a line of its own after `- `");
    return out;
  }
  if (nonempty && node_->children.empty()) {
    fail(fmt::format("{} must have at least one item", node_->subject()));
  }
  for (const auto& item : node_->children) out.push_back(Cursor(document_, item.get(), item.get()));
  return out;
}

std::vector<std::pair<std::string, Cursor>> Cursor::entries() const {
  std::vector<std::pair<std::string, Cursor>> out;
  ConfigNode* const map = map_or_error();
  if (map == nullptr) return out;
  map->free_names = true;
  for (const auto& entry : map->children) {
    if (entry->repeated) continue;
    out.emplace_back(entry->key, Cursor(document_, entry.get(), entry.get()));
  }
  return out;
}

ConfigNode* Cursor::scalar_or_error(std::string_view wanted, std::string_view example) const {
  if (present() && !is_scalar()) wrong(wanted, example);
  return is_scalar() ? node_ : nullptr;
}

std::string Cursor::text(std::string fallback) const {
  const ConfigNode* const node = scalar_or_error("a text", "");
  return node == nullptr ? fallback : node->text;
}

std::int64_t Cursor::integer(IntegerRange range, std::int64_t fallback) const {
  const auto print = [](std::int64_t value) { return fmt::format("{}", value); };
  const std::string wanted = "a whole number" + range_text(range, print);
  const std::string example = print(std::min(std::max<std::int64_t>(12, range.min), range.max));
  const ConfigNode* const node = scalar_or_error(wanted, example);
  if (node == nullptr) return fallback;

  std::string_view digits = node->text;
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  const bool whole = stop == end && error == std::errc();
  if (whole && !node->quoted && value >= range.min && value <= range.max) return value;

  std::string hint;
  if (whole && node->quoted) {
    hint = "remove the quotes";
  } else if (stop == end && error == std::errc::result_out_of_range) {
    hint = "it does not fit into 64 bits";
  } else if (!node->quoted && stop != end) {
    hint = integer_hint(node->text);
  }
  wrong(wanted, example, std::move(hint));
  return fallback;
}

double Cursor::number(NumberRange range, double fallback) const {
  const std::string wanted = "a number" + range_text(range, format_exact);
  const std::string example = format_exact(std::min(std::max(0.5, range.min), range.max));
  const ConfigNode* const node = scalar_or_error(wanted, example);
  if (node == nullptr) return fallback;
  const auto value = parse_number(node->text);
  if (value && !node->quoted && *value >= range.min && *value <= range.max) return *value;
  wrong(wanted, example, value && node->quoted ? "remove the quotes" : "");
  return fallback;
}

bool Cursor::boolean(bool fallback) const {
  const ConfigNode* const node = scalar_or_error("true or false", "");
  if (node == nullptr) return fallback;
  if (!node->quoted && (node->text == "true" || node->text == "false")) return node->text == "true";
  const std::string word = lowered(node->text);
  std::string hint;
  for (const std::string_view yes : {"true", "yes", "on", "y", "1"}) {
    if (word == yes) hint = "write true";
  }
  for (const std::string_view no : {"false", "no", "off", "n", "0"}) {
    if (word == no) hint = "write false";
  }
  if (node->quoted && !hint.empty()) hint += " without quotes";
  wrong("true or false", "", std::move(hint));
  return fallback;
}

std::size_t Cursor::choice(std::span<const std::string_view> choices, std::size_t fallback) const {
  const std::string wanted = "one of " + list_text(choices);
  const ConfigNode* const node = scalar_or_error(wanted, "");
  if (node == nullptr) return fallback;
  const auto chosen = std::ranges::find(choices, node->text);
  if (chosen != choices.end()) return static_cast<std::size_t>(chosen - choices.begin());
  wrong(wanted, "", did_you_mean(node->text, {choices.begin(), choices.end()}));
  return fallback;
}

template <class T>
T Cursor::quantity(Result<T> (*parse)(std::string_view), std::string_view wanted,
                   std::string_view example, bool zero_allowed, T fallback) const {
  const ConfigNode* const node = scalar_or_error(wanted, example);
  if (node == nullptr) return fallback;
  auto value = parse(node->text);
  if (!value) {
    fail(fmt::format("{}: {}", node->subject(), value.error().message), value.error().hint);
    return fallback;
  }
  if (!zero_allowed && *value == T{}) {
    fail(fmt::format("{} must be more than zero: found {}", node->subject(), shown(node->text)));
    return fallback;
  }
  return *value;
}

Seconds Cursor::duration(Seconds fallback) const {
  return quantity(parse_duration, "a duration with its unit", "48 ms", true, fallback);
}
Bytes Cursor::size(Bytes fallback) const {
  return quantity(parse_size, "a size with its unit", "16 GiB", true, fallback);
}
BytesPerSecond Cursor::rate(BytesPerSecond fallback) const {
  return quantity(parse_rate, "a rate with its unit", "0.6 Gbit/s", false, fallback);
}
FlopsPerSecond Cursor::flop_rate(FlopsPerSecond fallback) const {
  return quantity(parse_flop_rate, "a compute rate with its unit", "125 TFLOP/s", false, fallback);
}
double Cursor::usd_per_hour(double fallback) const {
  return quantity(parse_usd_per_hour, "a price per hour", "3.06 USD/h", true, fallback);
}
double Cursor::usd_per_byte(double fallback) const {
  return quantity(parse_usd_per_byte, "a price per byte", "0.02 USD/GB", true, fallback);
}

}  // namespace longhaul
