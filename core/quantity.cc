#include "core/quantity.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

namespace longhaul {
namespace {

/// value = number * multiply / divide. Two factors, because a power of ten below one is not a
/// double: 48 ms must be 48 / 1e3, the same double as `milliseconds(48)`.
struct Unit {
  std::string_view name;
  double multiply = 1;
  double divide = 1;
};

constexpr double kKibi = 1024.0;
constexpr double kMebi = kKibi * kKibi;
constexpr double kGibi = kMebi * kKibi;
constexpr double kTebi = kGibi * kKibi;

constexpr std::array kDurationUnits = {Unit{"ps", 1, 1e12}, Unit{"ns", 1, 1e9}, Unit{"us", 1, 1e6},
                                       Unit{"ms", 1, 1e3},  Unit{"s"},          Unit{"min", 60},
                                       Unit{"h", 3600},     Unit{"d", 86400}};
constexpr std::array kSizeUnits = {Unit{"B"},          Unit{"kB", 1e3},    Unit{"MB", 1e6},
                                   Unit{"GB", 1e9},    Unit{"TB", 1e12},   Unit{"KiB", kKibi},
                                   Unit{"MiB", kMebi}, Unit{"GiB", kGibi}, Unit{"TiB", kTebi}};
constexpr std::array kRateUnits = {
    Unit{"bit/s", 1, 8},    Unit{"kbit/s", 1e3, 8},  Unit{"Mbit/s", 1e6, 8},
    Unit{"Gbit/s", 1e9, 8}, Unit{"Tbit/s", 1e12, 8}, Unit{"B/s"},
    Unit{"kB/s", 1e3},      Unit{"MB/s", 1e6},       Unit{"GB/s", 1e9},
    Unit{"TB/s", 1e12},     Unit{"KiB/s", kKibi},    Unit{"MiB/s", kMebi},
    Unit{"GiB/s", kGibi},   Unit{"TiB/s", kTebi}};
constexpr std::array kFlopRateUnits = {Unit{"FLOP/s"},        Unit{"kFLOP/s", 1e3},
                                       Unit{"MFLOP/s", 1e6},  Unit{"GFLOP/s", 1e9},
                                       Unit{"TFLOP/s", 1e12}, Unit{"PFLOP/s", 1e15}};
constexpr std::array kUsdPerHourUnits = {Unit{"USD/h"}};
constexpr std::array kUsdPerByteUnits = {Unit{"USD/GB", 1, 1e9}, Unit{"USD/TB", 1, 1e12},
                                         Unit{"USD/GiB", 1, kGibi}};

struct Kind {
  std::string_view noun;
  std::string_view example;
  std::span<const Unit> units;
};

constexpr Kind kDuration{"a duration", "48 ms", kDurationUnits};
constexpr Kind kSize{"a size", "16 GiB", kSizeUnits};
constexpr Kind kRate{"a rate", "0.6 Gbit/s", kRateUnits};
constexpr Kind kFlopRate{"a compute rate", "125 TFLOP/s", kFlopRateUnits};
constexpr Kind kUsdPerHour{"a price per hour", "3.06 USD/h", kUsdPerHourUnits};
constexpr Kind kUsdPerByte{"a price per byte", "0.02 USD/GB", kUsdPerByteUnits};
constexpr std::array kKinds = {&kDuration, &kSize, &kRate, &kFlopRate, &kUsdPerHour, &kUsdPerByte};

std::string unit_list(const Kind& kind) {
  std::string out;
  for (const Unit& unit : kind.units) {
    if (!out.empty()) out += ", ";
    out += unit.name;
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// What a person wrote, short and on one line.
std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::size_t size = std::min(text.size(), kShown);
  // Never cuts inside a UTF-8 sequence, whose later bytes are 10xxxxxx.
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) >> 6) == 2) {
    --size;
  }
  std::string out = "`";
  for (const char c : text.substr(0, size)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out + (size < text.size() ? "...`" : "`");
}

/// The prefix letter as SI writes it (k, M, G, T, P), when `word` is `stem` with one prefix letter
/// of any case before it; an empty text when it is `stem` alone.
std::optional<std::string> prefix_before(std::string_view word, std::string_view stem) {
  if (word == stem) return "";
  if (word.size() != stem.size() + 1 || word.substr(1) != stem) return std::nullopt;
  if (word[0] == 'k') return "k";
  if (!std::string_view("mgtp").contains(word[0])) return std::nullopt;
  return std::string(1, static_cast<char>(word[0] - 'a' + 'A'));
}

/// The cure for the spellings that people do use, or empty.
std::string known_confusion(const Kind& kind, std::string_view unit) {
  const std::string word = lower(unit);
  if (&kind == &kRate) {
    for (const std::string_view stem : {"bps", "b/s", "bit/sec", "bits/s", "bit", "b"}) {
      if (const auto p = prefix_before(word, stem)) {
        return fmt::format("write {}bit/s for bits or {}B/s for bytes", *p, *p);
      }
    }
  }
  if (&kind == &kSize) {
    if (word == "b" || word == "byte" || word == "bytes") return "write B for bytes";
    for (const std::string_view stem : {"b", ""}) {
      if (const auto p = prefix_before(word, stem); p && !p->empty()) {
        return fmt::format("write {}B for a power of 1000 or {}iB for a power of 1024", *p,
                           *p == "k" ? "K" : *p);
      }
    }
  }
  if (&kind == &kFlopRate) {
    for (const std::string_view stem : {"flops", "flop", "flop/sec", "flops/s"}) {
      if (const auto p = prefix_before(word, stem)) return fmt::format("write {}FLOP/s", *p);
    }
  }
  if (&kind == &kDuration) {
    if (word == "m") return "write min for minutes or ms for milliseconds";
    // The micro sign (U+00B5) and the Greek letter mu (U+03BC).
    if (word == "\u00b5s" || word == "\u03bcs") return "write us for microseconds";
    for (const std::string_view prefix : {"sec", "min", "hour", "hr", "day", "msec", "millisec"}) {
      if (!word.starts_with(prefix)) continue;
      const std::string_view name = prefix[0] == 'h'   ? "h"
                                    : prefix[0] == 'd' ? "d"
                                    : prefix == "min"  ? "min"
                                    : prefix == "sec"  ? "s"
                                                       : "ms";
      return fmt::format("write {}", name);
    }
  }
  if (&kind == &kUsdPerHour && (word.starts_with("usd") || word.starts_with("$"))) {
    return "write USD/h";
  }
  return "";
}

std::string hint_for_unit(const Kind& kind, std::string_view unit) {
  if (unit.starts_with(',') || unit.starts_with('_')) {
    return "write digits without separators and `.` before the decimals";
  }
  if (std::string cure = known_confusion(kind, unit); !cure.empty()) return cure;
  const std::string word = lower(unit);
  for (const Unit& known : kind.units) {
    if (lower(known.name) == word) {
      return fmt::format("write {}: units are case-sensitive", known.name);
    }
  }
  for (const Kind* other : kKinds) {
    for (const Unit& known : other->units) {
      if (other != &kind && known.name == unit) {
        return fmt::format("{} is a unit of {}; {} takes one of: {}", unit, other->noun.substr(2),
                           kind.noun, unit_list(kind));
      }
    }
  }
  return fmt::format("known units: {}", unit_list(kind));
}

/// The number at the start of `text` and what follows it; nullopt when there is none. A sign is
/// taken, infinity and NaN are not. `value` is infinite when the number has no double.
struct LeadingNumber {
  double value = 0;
  std::string_view rest;
};
std::optional<LeadingNumber> leading_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text;
  if (negative || text.starts_with('+')) digits.remove_prefix(1);
  const bool begins =
      !digits.empty() && (digits[0] == '.' || (digits[0] >= '0' && digits[0] <= '9'));
  if (!begins) return std::nullopt;
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = Seconds::infinity().value();
  return LeadingNumber{negative ? -value : value,
                       std::string_view(stop, static_cast<std::size_t>(end - stop))};
}

Result<double> parse_quantity(const Kind& kind, std::string_view text) {
  const auto number = leading_number(text);
  if (!number) {
    return invalid(fmt::format("{} is not {}", shown(text), kind.noun),
                   fmt::format("write a number and a unit, for example {}", kind.example));
  }
  if (std::signbit(number->value)) {
    return invalid(fmt::format("{} is negative: {} cannot be", shown(text), kind.noun));
  }
  std::string_view name = number->rest;
  while (name.starts_with(' ')) name.remove_prefix(1);
  if (name.empty()) {
    return invalid(fmt::format("{} has no unit", shown(text)),
                   fmt::format("{} takes one of: {}", kind.noun, unit_list(kind)));
  }
  const auto unit = std::ranges::find(kind.units, name, &Unit::name);
  if (unit == kind.units.end()) {
    return invalid(fmt::format("unknown unit {} for {}", shown(name), kind.noun),
                   hint_for_unit(kind, name));
  }
  const double value = number->value * unit->multiply / unit->divide;
  if (!std::isfinite(value) || (value == 0 && number->value != 0)) {
    return invalid(fmt::format("{} is too large or too small to be computed with", shown(text)));
  }
  return value;
}

template <class T>
Result<T> parse_as(const Kind& kind, std::string_view text) {
  LH_ASSIGN(const double value, parse_quantity(kind, text));
  return T(value);
}

/// One step of a printing scale: `scale` base units, used while the rounded mantissa is below
/// `limit`.
struct Step {
  std::string_view unit;
  double multiply;
  double divide;
  double limit;
};

std::string format_scaled(double value, std::string_view base, std::span<const Step> steps) {
  if (!std::isfinite(value)) return fmt::format("{} {}", value, base);
  if (value == 0) return fmt::format("0 {}", base);
  for (const Step& step : steps) {
    const std::string mantissa = fmt::format("{:.4g}", value * step.multiply / step.divide);
    // The limit is for the rounded mantissa: 999.96 ms prints as 1 s, never as 1000 ms.
    // A mantissa that overflowed is not a number, and does not fit either.
    const bool fits = std::abs(parse_number(mantissa).value_or(HUGE_VAL)) < step.limit;
    if (fits || &step == &steps.back()) return fmt::format("{} {}", mantissa, step.unit);
  }
  return "";  // not reached: the last step takes every value
}

}  // namespace

Result<Seconds> parse_duration(std::string_view text) {
  return parse_as<Seconds>(kDuration, text);
}
Result<Bytes> parse_size(std::string_view text) {
  return parse_as<Bytes>(kSize, text);
}
Result<BytesPerSecond> parse_rate(std::string_view text) {
  return parse_as<BytesPerSecond>(kRate, text);
}
Result<FlopsPerSecond> parse_flop_rate(std::string_view text) {
  return parse_as<FlopsPerSecond>(kFlopRate, text);
}
Result<double> parse_usd_per_hour(std::string_view text) {
  return parse_quantity(kUsdPerHour, text);
}
Result<double> parse_usd_per_byte(std::string_view text) {
  return parse_quantity(kUsdPerByte, text);
}

Result<double> parse_number(std::string_view text) {
  const auto number = leading_number(text);
  if (!number || !number->rest.empty()) {
    return invalid(fmt::format("{} is not a number", shown(text)));
  }
  if (!std::isfinite(number->value)) {
    return invalid(fmt::format("{} is too large or too small to be computed with", shown(text)));
  }
  return number->value;
}

std::string format_duration(Seconds time) {
  // Seconds go to 1000, so that step times of a few minutes still compare at a glance.
  static constexpr std::array kSteps = {Step{"ps", 1e12, 1, 1000}, Step{"ns", 1e9, 1, 1000},
                                        Step{"us", 1e6, 1, 1000},  Step{"ms", 1e3, 1, 1000},
                                        Step{"s", 1, 1, 1000},     Step{"min", 1, 60, 60},
                                        Step{"h", 1, 3600, 24},    Step{"d", 1, 86400, 0}};
  return format_scaled(time.value(), "s", kSteps);
}

std::string format_size(Bytes amount) {
  static constexpr std::array kSteps = {Step{"B", 1, 1, 1024}, Step{"KiB", 1, kKibi, 1024},
                                        Step{"MiB", 1, kMebi, 1024}, Step{"GiB", 1, kGibi, 1024},
                                        Step{"TiB", 1, kTebi, 0}};
  return format_scaled(amount.value(), "B", kSteps);
}

std::string format_bit_rate(BytesPerSecond rate) {
  static constexpr std::array kSteps = {Step{"bit/s", 8, 1, 1000}, Step{"kbit/s", 8, 1e3, 1000},
                                        Step{"Mbit/s", 8, 1e6, 1000}, Step{"Gbit/s", 8, 1e9, 1000},
                                        Step{"Tbit/s", 8, 1e12, 0}};
  return format_scaled(rate.value(), "bit/s", kSteps);
}

std::string format_flop_rate(FlopsPerSecond rate) {
  static constexpr std::array kSteps = {
      Step{"FLOP/s", 1, 1, 1000},    Step{"kFLOP/s", 1, 1e3, 1000},  Step{"MFLOP/s", 1, 1e6, 1000},
      Step{"GFLOP/s", 1, 1e9, 1000}, Step{"TFLOP/s", 1, 1e12, 1000}, Step{"PFLOP/s", 1, 1e15, 0}};
  return format_scaled(rate.value(), "FLOP/s", kSteps);
}

std::string format_exact(double value) {
  return fmt::format("{}", value);
}

}  // namespace longhaul
