#include "netsim/import/units.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/config_errors.h"

namespace longhaul {
namespace {

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

/// `MeanThroughputMbps` -> Mean Throughput Mbps; `bitrate_Bps` -> bitrate Bps; `gbit_per_s` ->
/// gbit/s. A capital begins a word only after two small letters, so that MiB stays whole.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool joins = is_lower(c) || is_upper(c) || (c >= '0' && c <= '9') || c == '/' ||
                       c == '%' || static_cast<unsigned char>(c) >= 0x80;
    const bool begins = i >= 2 && is_upper(c) && is_lower(name[i - 1]) && is_lower(name[i - 2]);
    if ((!joins || begins) && !words.back().empty()) words.emplace_back();
    if (joins) words.back() += c;
  }
  if (words.back().empty()) words.pop_back();
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const bool divides = lowered(words[i + 1]) == "per" && i + 2 < words.size();
    const std::string low = lowered(words[i]);
    const bool bit_s =
        (low.ends_with("bit") || low.ends_with("bits")) && lowered(words[i + 1]) == "s";
    if (!divides && !bit_s) continue;
    words[i] += "/" + words[divides ? i + 2 : i + 1];
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                words.begin() + static_cast<std::ptrdiff_t>(i) + (divides ? 3 : 2));
  }
  return words;
}

std::optional<UnitScale> time_unit(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, double>, 17> units = {{{"ms", 1e3},
                                                                          {"msec", 1e3},
                                                                          {"msecs", 1e3},
                                                                          {"millisecond", 1e3},
                                                                          {"milliseconds", 1e3},
                                                                          {"us", 1e6},
                                                                          {"usec", 1e6},
                                                                          {"usecs", 1e6},
                                                                          {"microsecond", 1e6},
                                                                          {"microseconds", 1e6},
                                                                          {"\u00b5s", 1e6},
                                                                          {"ns", 1e9},
                                                                          {"nanoseconds", 1e9},
                                                                          {"s", 1},
                                                                          {"sec", 1},
                                                                          {"second", 1},
                                                                          {"seconds", 1}}};
  const auto found = std::ranges::find(units, word, &std::pair<std::string_view, double>::first);
  if (found == units.end()) return std::nullopt;
  return UnitScale{1, found->second};
}

struct RateUnit {
  UnitScale scale;
  bool ambiguous = false;
};

/// `Mbps`, `mbit/s`, `MB/s`, `Bps`, `bits/sec`, `GiB/s`.
std::optional<RateUnit> rate_unit_of(std::string_view word) {
  std::string_view rest = word;
  const std::string low = lowered(word);
  std::size_t end = 0;
  for (const std::string_view ending : {"/second", "/sec", "/s", "ps"}) {
    if (low.ends_with(ending)) {
      end = ending.size();
      break;
    }
  }
  if (end == 0) return std::nullopt;
  rest.remove_suffix(end);
  const bool slash = low[low.size() - end] == '/';
  bool bits = false;
  bool spelled = false;
  const std::string low_rest = lowered(rest);
  for (const std::string_view noun : {"bits", "bit", "bytes", "byte", "b"}) {
    if (!low_rest.ends_with(noun)) continue;
    spelled = noun != "b";
    bits = spelled ? noun.starts_with("bit") : rest.back() == 'b';
    rest.remove_suffix(noun.size());
    break;
  }
  if (rest.size() == low_rest.size()) return std::nullopt;
  double multiply = 1;
  const bool binary = rest.size() == 2 && rest[1] == 'i';
  if (rest.size() > (binary ? 2u : 1u)) return std::nullopt;
  if (!rest.empty()) {
    const std::size_t power = std::string_view("kmgt").find(lowered(rest.substr(0, 1)));
    if (power == std::string_view::npos) return std::nullopt;
    for (std::size_t i = 0; i <= power; ++i) multiply *= binary ? 1024 : 1000;
  }
  RateUnit unit{{multiply, bits ? 8.0 : 1.0}, false};
  // In `mb/s` and `MBPS` the letter b says nothing; `gbps` and `bps` are always bits.
  const bool all_small = std::ranges::none_of(word, is_upper);
  const bool all_capital = std::ranges::none_of(word, is_lower);
  unit.ambiguous = !spelled && ((all_small && slash) || all_capital);
  return unit;
}

bool has(const std::vector<std::string>& words, std::initializer_list<std::string_view> any) {
  return std::ranges::any_of(words, [&](const std::string& word) {
    return std::ranges::find(any, std::string_view(word)) != any.end();
  });
}

int preference_of(const std::vector<std::string>& words) {
  if (has(words, {"avg", "mean", "average"})) return 0;
  if (has(words, {"median", "p50", "50th"})) return 2;
  if (has(words, {"min", "max", "minimum", "maximum", "p10", "p25", "p75", "p90", "p95", "p98",
                  "p99", "90th", "95th", "99th", "sent", "receiver", "sender"})) {
    return 3;
  }
  return 1;
}

bool is_end(std::string_view name, bool from) {
  constexpr std::array<std::string_view, 13> sources = {
      "from",          "src",        "source",     "src_region",     "from_region",
      "source_region", "from_place", "src_host",   "sending_region", "sending_zone",
      "origin",        "from_city",  "source_name"};
  constexpr std::array<std::string_view, 15> targets = {"to",
                                                        "dst",
                                                        "dest",
                                                        "destination",
                                                        "target",
                                                        "to_region",
                                                        "dst_region",
                                                        "dest_region",
                                                        "destination_region",
                                                        "target_region",
                                                        "to_place",
                                                        "dst_host",
                                                        "receiving_region",
                                                        "receiving_zone",
                                                        "to_city"};
  return from ? std::ranges::find(sources, name) != sources.end()
              : std::ranges::find(targets, name) != targets.end();
}

}  // namespace

ColumnMeaning meaning_of(std::string_view name) {
  ColumnMeaning meaning;
  const std::vector<std::string> words = words_of(name);
  std::vector<std::string> low;
  std::string joined;
  for (const std::string& word : words) {
    low.push_back(lowered(word));
    joined += (joined.empty() ? "" : "_") + low.back();
  }
  if (is_end(joined, true)) return {.role = ColumnRole::kFrom};
  if (is_end(joined, false)) return {.role = ColumnRole::kTo};
  meaning.preference = preference_of(low);
  std::optional<UnitScale> time;
  std::optional<RateUnit> rate;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (const auto unit = time_unit(low[i])) {
      time = unit;
      meaning.unit_text = words[i];
    } else if (const auto speed = rate_unit_of(words[i])) {
      rate = speed;
      meaning.unit_text = words[i];
    }
  }
  const bool round_trip =
      has(low, {"rtt", "ping", "roundtrip"}) || (has(low, {"round"}) && has(low, {"trip"}));
  const bool one_way = has(low, {"owd", "oneway"}) || (has(low, {"one"}) && has(low, {"way"}));
  if (has(low, {"jitter", "mdev", "stddev"})) {
    meaning.role = ColumnRole::kJitter;
    meaning.unit = time;
  } else if (has(low, {"loss", "lost"})) {
    meaning.role = ColumnRole::kLoss;
    if (has(low, {"%", "percent", "percentage", "pct"})) meaning.unit = UnitScale{1, 100};
    if (has(low, {"fraction", "ratio", "rate", "probability"})) meaning.unit = UnitScale{};
  } else if (round_trip || one_way || has(low, {"latency", "delay"})) {
    meaning.role = ColumnRole::kLatency;
    meaning.unit = time;
    if (round_trip != one_way) {
      meaning.basis = round_trip ? LatencyBasis::kRoundTrip : LatencyBasis::kOneWay;
    }
  } else if (rate || has(low, {"bandwidth", "bw", "throughput", "bitrate", "goodput", "rate"})) {
    meaning.role = ColumnRole::kRate;
    if (rate) {
      meaning.unit = rate->scale;
      meaning.unit_is_ambiguous = rate->ambiguous;
    }
  } else if (has(low, {"streams", "connections", "parallel"})) {
    meaning.role = ColumnRole::kStreams;
  } else if (has(low, {"time", "timestamp", "date", "datetime"})) {
    meaning.role = ColumnRole::kTime;
  } else if (time && words.size() == 1 && time->divide > 1) {
    meaning.role = ColumnRole::kLatency;
    meaning.unit = time;
  }
  return meaning;
}

}  // namespace longhaul
