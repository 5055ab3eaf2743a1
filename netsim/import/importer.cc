#include "netsim/import/importer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/config_errors.h"
#include "core/quantity.h"
#include "netsim/csv_text.h"

namespace longhaul {
namespace {

// The limits of a trace file, so that what is imported can be read back.
constexpr Seconds kLatencyMax(60);
constexpr BytesPerSecond kRateMin(1e-6 * 1e9 / 8);
constexpr BytesPerSecond kRateMax(1e6 * 1e9 / 8);
constexpr double kLossMax = 0.999;
constexpr std::size_t kMaxMeasurements = 20'000'000;

constexpr std::string_view kBasisHint =
    "say --basis rtt or --basis one_way; ping, CloudPing and cloud dashboards print round trips";

std::string_view name_of(LatencyBasis basis) {
  return basis == LatencyBasis::kRoundTrip ? "rtt" : "one_way";
}

bool has_control_character(std::string_view text) {
  return find_control_character(text) != std::string_view::npos || text.contains('\t');
}

}  // namespace

/// `aws:*=*` takes a beginning off; a whole name goes before a beginning, a longer one before a
/// shorter one.
std::string Importer::renamed(const std::string& place) const {
  if (const auto whole = renamed_.find(place); whole != renamed_.end()) return whole->second;
  for (std::size_t size = place.size(); size > 0; --size) {
    const auto start = renamed_.find(place.substr(0, size - 1) + "*");
    if (start == renamed_.end() || !start->second.ends_with('*')) continue;
    const std::string rest = place.substr(size - 1);
    std::string name = start->second.substr(0, start->second.size() - 1) + rest;
    return name.empty() ? place : name;
  }
  return place;
}

void Importer::keep_source(std::string_view text) {
  text = trimmed(text.substr(0, text.find('\n')));
  if (text.empty() || text.size() > 500) return;
  result_.sources.push_back(fmt::format("{} says: {}", files_.back(), text));
}

Result<void> Importer::read_renames() {
  for (const std::string& text : options_.rename) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return invalid(fmt::format("--rename: `{}` is not OLD=NEW", text));
    }
    if (!renamed_.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
      return invalid(fmt::format("--rename: `{}` is renamed twice", text.substr(0, equals)));
    }
  }
  return {};
}

void Importer::open(const ImportFile& file) {
  name_ = file.name;
  format_.clear();
  in_series_ = false;
  files_.push_back(base_name(file.name));
}

void Importer::recognise(std::string_view format, std::string_view more) {
  format_ = format;
  const auto known = std::ranges::find(import_formats(), format, &ImportFormat::name);
  LH_CHECK(known != import_formats().end(), "readers name formats of the list");
  result_.recognised.push_back(fmt::format("{} is {}: {}{}{}", files_.back(), format, known->title,
                                           more.empty() ? "" : ", ", more));
}

std::unexpected<Error> Importer::error(int line, int column, std::string message,
                                       std::string hint) const {
  return std::unexpected(Error{
      ErrorCode::kInvalid, std::move(message), std::move(hint), {name_, line, column}, "", {}});
}

void Importer::assume(std::string text) {
  text = fmt::format("{}: {}", files_.back(), text);
  if (std::ranges::find(result_.assumptions, text) == result_.assumptions.end()) {
    result_.assumptions.push_back(std::move(text));
  }
}

Result<void> Importer::add(Measurement one) {
  for (std::string* place : {&one.from, &one.to}) {
    *place = trimmed(*place);
    if (place->empty()) return error(one.line, 0, "the name of a place is empty");
    if (place->size() > 200 || has_control_character(*place)) {
      return error(one.line, 0, fmt::format("{} is no name of a place", shown(*place)));
    }
  }
  const auto outside = [&](std::string_view what, const std::string& value,
                           std::string_view limits) {
    return error(
        one.line, 0,
        fmt::format("{} -> {}: {} of {} is outside {}", one.from, one.to, what, value, limits),
        "is the unit right?");
  };
  // Written so that a NaN is outside.
  if (one.latency) {
    // As it is written: a round trip has the limit of a round trip.
    const Seconds written = *one.latency * (one.basis == LatencyBasis::kRoundTrip ? 2 : 1);
    if (!(written >= Seconds(0) && written <= kLatencyMax)) {
      return outside("a latency", fmt::format("{:.6g} s", written.value()), "0 to 60 s");
    }
  }
  if (one.rate && !(*one.rate >= kRateMin && *one.rate <= kRateMax)) {
    return outside("a rate", fmt::format("{:.6g} bit/s", one.rate->value() * 8),
                   "1 kbit/s to 1 Pbit/s");
  }
  if (one.loss && !(*one.loss >= 0 && *one.loss <= kLossMax)) {
    return outside("a loss", fmt::format("{:.6g}", *one.loss), "0 to 0.999");
  }
  if (one.jitter && !(*one.jitter >= Seconds(0) && *one.jitter <= kLatencyMax)) {
    return outside("a jitter", fmt::format("{:.6g} s", one.jitter->value()), "0 to 60 s");
  }
  if (one.streams < 1 || one.streams > 4096) {
    return error(one.line, 0, fmt::format("{} streams are outside 1 to 4096", one.streams));
  }
  if (!one.latency && !one.rate) return {};
  if (measurements_.size() == kMaxMeasurements) {
    return error(one.line, 0, fmt::format("more than {} measurements", kMaxMeasurements));
  }
  one.in_series = one.in_series || in_series_;
  one.file = files_.size() - 1;
  if (one.source.empty()) {
    one.source = fmt::format("{} {}", format_, files_.back());
    if (one.line > 0) one.source += fmt::format(":{}", one.line);
  }
  for (std::string* place : {&one.from, &one.to}) {
    *place = renamed(*place);
  }
  measurements_.push_back(std::move(one));
  return {};
}

Result<LatencyBasis> Importer::basis(std::optional<LatencyBasis> known, std::string_view why,
                                     int line, std::string_view what) {
  if (options_.basis) {
    assume(fmt::format("{} are {}, as declared{}", what, name_of(*options_.basis),
                       known && *known != *options_.basis
                           ? fmt::format(" (they would be read as {}: {})", name_of(*known), why)
                           : ""));
    return *options_.basis;
  }
  if (!known) {
    return error(line, 0, fmt::format("{}: round trips or one way? The file does not say", what),
                 std::string(kBasisHint));
  }
  assume(fmt::format(
      "{} are {}: {}", what,
      *known == LatencyBasis::kRoundTrip ? "round trips (half of it one way)" : "one way", why));
  return *known;
}

Result<int> Importer::streams(std::optional<int> known, std::string_view why, int line) {
  if (known) {
    if (!why.empty())
      assume(fmt::format("rates are of {} stream{}: {}", *known, *known == 1 ? "" : "s", why));
    return *known;
  }
  if (!options_.streams) {
    return error(line, 0, "rates of one stream or of many? The file does not say",
                 "say --streams N, the TCP connections that a measurement used");
  }
  assume(fmt::format("rates are of {} stream{}, as declared", *options_.streams,
                     *options_.streams == 1 ? "" : "s"));
  return *options_.streams;
}

Result<UnitScale> Importer::latency_unit(int line, std::string_view what) {
  if (options_.latency_unit.empty()) {
    return error(line, 0, fmt::format("{}: in which unit? The file does not say", what),
                 "say --latency-unit ms, or write it into the header: rtt_ms");
  }
  const Result<Seconds> one = parse_duration("1" + options_.latency_unit);
  if (!one) {
    return invalid(fmt::format("--latency-unit: {}", one.error().message), one.error().hint);
  }
  assume(fmt::format("{}: in {}, as declared", what, options_.latency_unit));
  // A power of ten below one is not a double: 48 ms must be 48 / 1e3.
  return one->value() >= 1 ? UnitScale{one->value(), 1}
                           : UnitScale{1, std::round(1 / one->value())};
}

Result<UnitScale> Importer::rate_unit(int line, std::string_view what) {
  if (options_.rate_unit.empty()) {
    return error(line, 0, fmt::format("{}: bits or bytes a second? The file does not say", what),
                 "say --rate-unit Mbit/s or --rate-unit MB/s, or write it into the header: "
                 "throughput_mbit_per_s");
  }
  const Result<BytesPerSecond> one = parse_rate("1 " + options_.rate_unit);
  if (!one) return invalid(fmt::format("--rate-unit: {}", one.error().message), one.error().hint);
  assume(fmt::format("{}: in {}, as declared", what, options_.rate_unit));
  return UnitScale{one->value(), 1};
}

Result<std::pair<std::string, std::string>> Importer::pair(const std::string& from,
                                                           const std::string& to) {
  const std::size_t index = pairs_asked_++;
  const auto declared = [index](const std::vector<std::string>& names) -> std::string {
    if (names.empty()) return "";
    return names.size() == 1 ? names[0] : index < names.size() ? names[index] : "";
  };
  const std::string source = declared(options_.from).empty() ? from : declared(options_.from);
  const std::string target = declared(options_.to).empty() ? to : declared(options_.to);
  if (source.empty() || target.empty()) {
    return error(fmt::format("this file measures one pair, and does not name {}",
                             source.empty() ? "where it was measured from" : "what it measured to"),
                 "say --from PLACE --to PLACE; with several such files repeat both for each of "
                 "them, in their order");
  }
  return std::pair{source, target};
}

}  // namespace longhaul
