#include "netsim/trace_check.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/median.h"
#include "core/quantity.h"
#include "netsim/cities.h"
#include "netsim/known_links.h"

namespace longhaul {
namespace {

using Weight = TraceFinding::Weight;

constexpr std::size_t kPairsNamed = 5;      // in one sentence
constexpr std::size_t kFindingsShown = 12;  // of one kind, in the text
constexpr std::size_t kSeriesMin = 8;       // points that make a series worth judging
/// One-way latencies on the Internet are 1.5 to 2.3 times what light takes in fibre along the
/// surface; taken for one way, round trips are 3 to 4.6 times that.
constexpr double kFibreTimesOneWay = 2.8;
/// More than Linux keeps in flight on one connection without special tuning.
constexpr Bytes kWindowMax(64.0 * 1048576);
constexpr double kRoundingOfLatency = 0.52e-3;  // one way: tables have whole ms of round trips
constexpr double kLossHigh = 0.05;
const BytesPerSecond kRateHigh = gigabits_per_second(400);
const BytesPerSecond kRateLow = gigabits_per_second(0.001);

class Checker {
 public:
  explicit Checker(const Trace& trace)
      : trace_(trace), places_(trace.places.size()), pairs_(summarise(trace, 50)) {}

  TraceCheck check() {
    gaps();
    asymmetry();
    detours();
    distances();
    rates();
    losses();
    series();
    assumptions();
    std::ranges::stable_sort(check_.findings, std::ranges::greater(), &TraceFinding::weight);
    return std::move(check_);
  }

 private:
  const PairSummary& pair(std::size_t from, std::size_t to) const {
    return pairs_[from * places_ + to];
  }
  std::string name(std::size_t from, std::size_t to) const {
    return fmt::format("{} -> {}", trace_.places[from], trace_.places[to]);
  }
  void find(Weight weight, std::string_view kind, std::string message) {
    check_.findings.push_back({weight, kind, "", "", std::move(message)});
  }
  void find(Weight weight, std::string_view kind, std::size_t from, std::size_t to,
            std::string message) {
    check_.findings.push_back({weight, kind, trace_.places[from], trace_.places[to],
                               fmt::format("{}: {}", name(from, to), std::move(message))});
  }
  /// `3 pairs have no latency (a - b, ...): what follows`.
  void find_pairs(Weight weight, const std::vector<std::string>& names, std::string_view what,
                  std::string_view follows) {
    if (names.empty()) return;
    const std::size_t shown = std::min(names.size(), kPairsNamed);
    find(weight, "gap",
         fmt::format(
             "{} {} ({}{}): {}", names.size(), what,
             fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
             shown < names.size() ? ", ..." : "", follows));
  }

  void gaps() {
    std::vector<std::string> apart, latency_way, rate_none, rate_way, inside;
    for (std::size_t i = 0; i < places_; ++i) {
      if (!pair(i, i).latency || !pair(i, i).rate) inside.push_back(trace_.places[i]);
      for (std::size_t j = i + 1; j < places_; ++j) {
        const PairSummary& there = pair(i, j);
        const PairSummary& back = pair(j, i);
        const std::string both = fmt::format("{} - {}", trace_.places[i], trace_.places[j]);
        if (!there.latency && !back.latency) {
          apart.push_back(both);
        } else if (!there.latency || !back.latency) {
          latency_way.push_back(there.latency ? name(j, i) : name(i, j));
        }
        if (!there.rate && !back.rate) {
          rate_none.push_back(both);
        } else if (!there.rate || !back.rate) {
          rate_way.push_back(there.rate ? name(j, i) : name(i, j));
        }
      }
    }
    find_pairs(Weight::kWarning, apart, "pairs of places have no latency in either direction",
               "a cluster that has both is refused");
    find_pairs(Weight::kNote, latency_way, "directions have no latency",
               "a cluster mirrors the other direction");
    find_pairs(Weight::kNote, rate_none, "pairs of places have no rate",
               "a cluster takes min(NIC, streams x window / RTT)");
    find_pairs(Weight::kNote, rate_way, "directions have no rate",
               "a cluster mirrors the other direction");
    find_pairs(Weight::kNote, inside, "places have no latency or no rate inside",
               "a cluster takes 0.25 ms and 10 Gbit/s between their nodes");
  }

  void asymmetry() {
    for (std::size_t i = 0; i < places_; ++i) {
      for (std::size_t j = i + 1; j < places_; ++j) {
        const PairSummary& there = pair(i, j);
        const PairSummary& back = pair(j, i);
        if (there.latency && back.latency) {
          const double high = std::max(there.latency->value(), back.latency->value());
          const double low = std::min(there.latency->value(), back.latency->value());
          if (high > low * (1 + kAsymmetryOfLatency) && high - low > kRoundingOfLatency) {
            find(Weight::kNote, "asymmetry", i, j,
                 fmt::format("one-way latency {} there, {} back", format_duration(*there.latency),
                             format_duration(*back.latency)));
          }
        }
        if (there.rate && back.rate) {
          const BytesPerSecond high = std::max(*there.rate, *back.rate);
          if (high > std::min(*there.rate, *back.rate) * (1 + kAsymmetryOfRate)) {
            find(Weight::kNote, "asymmetry", i, j,
                 fmt::format("rate {} there, {} back", format_bit_rate(*there.rate),
                             format_bit_rate(*back.rate)));
          }
        }
      }
    }
  }

  /// The latency of a pair, mirrored like a cluster's; infinite where there is none.
  double latency(std::size_t from, std::size_t to) const {
    const auto& there = pair(from, to).latency;
    const auto& back = pair(to, from).latency;
    return there ? there->value() : back ? back->value() : HUGE_VAL;
  }

  void detours() {
    std::vector<double> table(places_ * places_);
    for (std::size_t i = 0; i < places_; ++i) {
      for (std::size_t j = 0; j < places_; ++j) table[i * places_ + j] = latency(i, j);
    }
    for (std::size_t i = 0; i < places_; ++i) {
      for (std::size_t j = 0; j < places_; ++j) {
        const double direct = table[i * places_ + j];
        if (i == j || !pair(i, j).latency) continue;
        std::size_t best = i;
        double least = kDetour * direct;
        for (std::size_t k = 0; k < places_; ++k) {
          const double by = table[i * places_ + k] + table[k * places_ + j];
          if (k != i && k != j && by < least) {
            least = by;
            best = k;
          }
        }
        if (best == i) continue;
        find(
            Weight::kWarning, "outlier", i, j,
            fmt::format("one-way latency {}, but {} by way of {}", format_duration(Seconds(direct)),
                        format_duration(Seconds(least)), trace_.places[best]));
      }
    }
  }

  /// Compares with light in fibre where both places are known.
  void distances() {
    std::map<LatencyBasis, std::vector<double>> ratios;
    std::vector<std::optional<Coordinates>> where(places_);
    // Without the table, or for places that it does not know, there is nothing to compare with.
    if (const Result<CityTable> table = CityTable::load(); table) {
      for (std::size_t i = 0; i < places_; ++i) {
        std::string name = trace_.places[i];
        std::replace(name.begin(), name.end(), ':', '/');  // `aws:us-west-2`
        const Place* place = table->find_if_clear(name);
        if (place != nullptr) where[i] = place->end.at;
      }
    }
    std::vector<bool> told(places_ * places_, false);
    for (const TraceRow& row : trace_.rows) {
      const auto from = static_cast<std::size_t>(row.from);
      const auto to = static_cast<std::size_t>(row.to);
      if (from == to || !row.latency) continue;
      if (*row.latency == Seconds(0) && !told[from * places_ + to]) {
        told[from * places_ + to] = true;
        find(Weight::kWarning, "outlier", from, to, "latency 0 between two places");
        continue;
      }
      if (!where[from] || !where[to]) continue;
      const double km = great_circle_km(*where[from], *where[to]);
      if (km < 100) continue;
      const Seconds fibre = light_round_trip(*where[from], *where[to]) / 2;
      ratios[row.basis].push_back(*row.latency / fibre);
      if (*row.latency >= fibre || told[from * places_ + to]) continue;
      told[from * places_ + to] = true;
      find(Weight::kWarning, "unit", from, to,
           fmt::format("one-way latency {}, but light in fibre takes {} for {:.0f} km: {}",
                       format_duration(*row.latency), format_duration(fibre), km,
                       row.basis == LatencyBasis::kRoundTrip
                           ? "was it one way, and is halved?"
                           : "are these the places of that name?"));
    }
    const std::vector<double>& one_way = ratios[LatencyBasis::kOneWay];
    if (one_way.empty() || median(one_way) <= kFibreTimesOneWay) return;
    find(
        Weight::kWarning, "unit",
        fmt::format("latencies declared one way are {:.1f} times what light takes in fibre (median "
                    "of {} rows); one way it is about 2, so they look like round trips",
                    median(one_way), one_way.size()));
  }

  void rates() {
    std::vector<bool> told(places_ * places_, false);
    for (const TraceRow& row : trace_.rows) {
      const auto from = static_cast<std::size_t>(row.from);
      const auto to = static_cast<std::size_t>(row.to);
      if (!row.rate || told[from * places_ + to]) continue;
      const double one_way = latency(from, to);
      const std::string rate = fmt::format("{} with {} stream{}", format_bit_rate(*row.rate),
                                           row.streams, row.streams == 1 ? "" : "s");
      std::string message;
      if (*row.rate > kRateHigh) {
        message = fmt::format("{}: bytes taken for bits, or the wrong prefix?", rate);
      } else if (*row.rate < kRateLow) {
        message = fmt::format("{}: bits taken for bytes, or the wrong prefix?", rate);
      } else if (from != to && std::isfinite(one_way)) {
        const Bytes in_flight = *row.rate * Seconds(2 * one_way) / row.streams;
        if (in_flight <= kWindowMax) continue;
        message = fmt::format(
            "{} over a round trip of {} needs {} in flight on each, more than TCP keeps: bytes "
            "taken for bits, or more streams?",
            rate, format_duration(Seconds(2 * one_way)), format_size(in_flight));
      } else {
        continue;
      }
      told[from * places_ + to] = true;
      find(Weight::kWarning, "unit", from, to, std::move(message));
    }
  }

  void losses() {
    for (std::size_t i = 0; i < places_; ++i) {
      for (std::size_t j = 0; j < places_; ++j) {
        if (pair(i, j).loss <= kLossHigh) continue;
        find(Weight::kWarning, "outlier", i, j,
             fmt::format("{:.1f} % of the packets are lost: TCP hardly works there",
                         100 * pair(i, j).loss));
      }
    }
  }

  struct Point {
    double time_s = 0;
    double value = 0;
  };

  void series() {
    std::map<std::pair<int, int>, std::vector<Point>> latencies;
    std::map<std::pair<int, int>, std::vector<Point>> rates;
    for (const TraceRow& row : trace_.rows) {
      if (!row.time_s) continue;
      if (row.latency) latencies[{row.from, row.to}].push_back({*row.time_s, row.latency->value()});
      if (row.rate) rates[{row.from, row.to}].push_back({*row.time_s, row.rate->value()});
    }
    for (auto& [key, points] : latencies) {
      judge(key, points, "latencies", [](double value) { return format_duration(Seconds(value)); });
    }
    for (auto& [key, points] : rates) {
      judge(key, points, "rates",
            [](double value) { return format_bit_rate(BytesPerSecond(value)); });
    }
  }

  void judge(std::pair<int, int> key, std::vector<Point>& points, std::string_view what,
             std::string (*text)(double)) {
    if (points.size() < kSeriesMin) return;
    const auto from = static_cast<std::size_t>(key.first);
    const auto to = static_cast<std::size_t>(key.second);
    std::ranges::stable_sort(points, {}, &Point::time_s);
    std::vector<double> steps;
    std::vector<double> values;
    for (std::size_t i = 0; i < points.size(); ++i) {
      values.push_back(points[i].value);
      if (i > 0) steps.push_back(points[i].time_s - points[i - 1].time_s);
    }
    const double step = median(steps);
    const auto longest = std::ranges::max_element(steps);
    const auto gaps = std::ranges::count_if(steps, [&](double s) { return s > kSeriesGap * step; });
    if (gaps > 0 && step > 0) {
      find(Weight::kNote, "series", from, to,
           fmt::format(
               "{} gap{} in the {}, the longest {} from second {:.6g} on (points come every {})",
               gaps, gaps == 1 ? "" : "s", what, format_duration(Seconds(*longest)),
               points[static_cast<std::size_t>(longest - steps.begin())].time_s,
               format_duration(Seconds(step))));
    }
    const double middle = median(values);
    std::vector<double> distances;
    for (const double value : values) distances.push_back(std::abs(value - middle));
    const double spread = median(distances);
    if (spread <= 0) return;
    std::size_t outliers = 0;
    std::size_t worst = 0;
    for (std::size_t i = 0; i < distances.size(); ++i) {
      outliers += 0.6745 * distances[i] / spread > kOutlierScore ? 1 : 0;
      if (distances[i] > distances[worst]) worst = i;
    }
    if (outliers == 0) return;
    find(
        Weight::kNote, "outlier", from, to,
        fmt::format("{} of {} {} lie far from their median of {}, the farthest {} at second {:.6g}",
                    outliers, values.size(), what, text(middle), text(values[worst]),
                    points[worst].time_s));
  }

  /// What a cluster of all places, two nodes in each, has to assume: its own code says it.
  void assumptions() {
    Topology topology;
    std::vector<KnownLink> known;
    for (std::size_t i = 0; i < places_; ++i) {
      Site site;
      site.name = trace_.places[i];
      site.uplink = site.downlink = BytesPerSecond::infinity();
      topology.sites.push_back(std::move(site));
      Node node;
      node.site = static_cast<int>(i);
      node.nic = BytesPerSecond::infinity();
      topology.nodes.insert(topology.nodes.end(), 2, node);
    }
    for (const PairSummary& pair : pairs_) {
      known.push_back({pair.latency, pair.rate, pair.scope, pair.loss, pair.jitter,
                       pair.latency_origin, pair.rate_origin});
    }
    static_cast<void>(complete_links(topology, known));  // gaps() has said what is impossible
    check_.assumptions = std::move(topology.assumptions);
  }

  const Trace& trace_;
  std::size_t places_;
  std::vector<PairSummary> pairs_;
  TraceCheck check_;
};

std::string_view name_of(Weight weight) {
  return weight == Weight::kWarning ? "warning" : "note";
}

}  // namespace

std::size_t TraceCheck::count(TraceFinding::Weight weight) const {
  return static_cast<std::size_t>(std::ranges::count(findings, weight, &TraceFinding::weight));
}

TraceCheck check_trace(const Trace& trace) {
  return Checker(trace).check();
}

std::string trace_check_text(const Trace& trace, const TraceCheck& check) {
  std::string out =
      fmt::format("{}: {} places, {} rows\n", trace.name, trace.places.size(), trace.rows.size());
  std::map<std::pair<Weight, std::string_view>, std::size_t> seen;
  for (const TraceFinding& finding : check.findings) {
    const std::size_t number = ++seen[{finding.weight, finding.kind}];
    if (number > kFindingsShown) continue;
    out += fmt::format("{}: {}: {}\n", name_of(finding.weight), finding.kind, finding.message);
  }
  for (const auto& [kind, count] : seen) {
    if (count <= kFindingsShown) continue;
    out += fmt::format("{}: {}: and {} more (--json has all)\n", name_of(kind.first), kind.second,
                       count - kFindingsShown);
  }
  for (const std::string& assumption : check.assumptions) {
    out += fmt::format("a cluster of all places would assume: {}\n", assumption);
  }
  const std::size_t warnings = check.count(Weight::kWarning);
  const std::size_t notes = check.count(Weight::kNote);
  out += fmt::format("{} warning{}, {} note{}\n", warnings, warnings == 1 ? "" : "s", notes,
                     notes == 1 ? "" : "s");
  return out;
}

std::string trace_check_json(const Trace& trace, const TraceCheck& check) {
  using nlohmann::ordered_json;
  ordered_json findings = ordered_json::array();
  for (const TraceFinding& finding : check.findings) {
    ordered_json one = {{"weight", name_of(finding.weight)}, {"kind", finding.kind}};
    if (!finding.from.empty()) {
      one["from"] = finding.from;
      one["to"] = finding.to;
    }
    one["message"] = finding.message;
    findings.push_back(std::move(one));
  }
  const ordered_json document = {{"version", 1},
                                 {"trace", trace.name},
                                 {"places", trace.places.size()},
                                 {"rows", trace.rows.size()},
                                 {"warnings", check.count(Weight::kWarning)},
                                 {"notes", check.count(Weight::kNote)},
                                 {"findings", std::move(findings)},
                                 {"assumptions", check.assumptions}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace longhaul
