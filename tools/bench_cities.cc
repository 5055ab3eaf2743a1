// Suite `cities`: how far modelled round trips and rates are from measured ones, on pairs with a
// city that the fit has not seen, beside simpler models.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/median.h"
#include "netsim/latency_fit.h"
#include "netsim/shipped.h"
#include "tools/bench.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr const char* kCommand = "tools/bench cities";

std::vector<std::string> row(const std::string& name, const std::string& pairs,
                             const Residuals& residuals) {
  return {name, pairs, fmt::format("{}", residuals.pairs),
          fmt::format("{:.1f} %", 100 * residuals.median),
          fmt::format("{:.1f} %", 100 * residuals.p90)};
}

Result<std::vector<MeasuredPair>> pairs_of(const CityTable& cities, bool ShippedTrace::* fits) {
  std::vector<Trace> traces;
  for (const ShippedTrace& shipped : kShippedTraces) {
    if (!(shipped.*fits)) continue;
    LH_ASSIGN(Trace trace, load_shipped_trace(shipped));
    traces.push_back(std::move(trace));
  }
  return measured_pairs(traces, cities);
}

/// What continents and coasts would do without cables: great circles, and for each pair of zones
/// the median factor that its fitted pairs are off by. Of the held-out pairs.
Residuals by_zone_factors(std::span<const MeasuredPair> pairs, const LatencyModel& straight) {
  const auto off = [&](const MeasuredPair& pair) {
    const RouteEnd a{pair.a.at, RouteZone::kEurope};  // one zone: a great circle
    const RouteEnd b{pair.b.at, RouteZone::kEurope};
    return pair.round_trip / modelled_round_trip(a, b, straight);
  };
  const auto zones = [](const MeasuredPair& pair) { return std::minmax(pair.a.zone, pair.b.zone); };
  std::map<std::pair<RouteZone, RouteZone>, std::vector<double>> factors;
  for (const MeasuredPair& pair : pairs) {
    if (!pair.held_out) factors[zones(pair)].push_back(off(pair));
  }
  std::vector<double> errors;
  for (const MeasuredPair& pair : pairs) {
    if (!pair.held_out) continue;
    const auto known = factors.find(zones(pair));
    const double factor = known == factors.end() ? 1 : median(known->second);
    errors.push_back(std::abs(factor / off(pair) - 1));
  }
  std::ranges::sort(errors);
  return {static_cast<int>(errors.size()), errors[errors.size() / 2],
          errors[errors.size() * 9 / 10]};
}

/// Residuals of the shipped constants on each trace; with what they say of traces that no fit saw.
Result<void> add_traces(const CityTable& cities, std::vector<std::vector<std::string>>& rows) {
  for (const ShippedTrace& shipped : kShippedTraces) {
    LH_ASSIGN(const Trace trace, load_shipped_trace(shipped));
    LH_ASSIGN(std::vector<MeasuredPair> pairs, measured_pairs(std::span(&trace, 1), cities));
    for (MeasuredPair& pair : pairs) pair.held_out = false;
    const std::string name(shipped.file);
    rows.push_back(row("round trip, " + name, shipped.fits_latency ? "all" : "all, not in the fit",
                       latency_residuals(pairs, false, kLatencyModel)));
    const Residuals rate = rate_residuals(pairs, false, kRateModel);
    if (rate.pairs > 0) {
      rows.push_back(row("rate, " + name, shipped.fits_rate ? "all" : "all, not in the fit", rate));
    }
  }
  return {};
}

Result<std::vector<BenchFigure>> measure() {
  LH_ASSIGN(const CityTable cities, CityTable::load());
  LH_ASSIGN(const std::vector<MeasuredPair> pairs, pairs_of(cities, &ShippedTrace::fits_latency));
  LH_ASSIGN(const std::vector<MeasuredPair> rated, pairs_of(cities, &ShippedTrace::fits_rate));
  const LatencyModel fitted = fit_latency(pairs);
  const LatencyModel straight = fit_latency(pairs, true);
  const RateModel rate = fit_rate(rated);
  fmt::print("round trip: {:.2f} ms + {:.5f} ms/km up to {} km + {:.5f} ms/km beyond\n",
             fitted.base_ms, fitted.near_ms_per_km, kRouteKneeKm, fitted.far_ms_per_km);
  fmt::print("rate: min({:.3f} Gbit/s, {:.2f} MB / round trip)\n\n", rate.cap.value() * 8 / 1e9,
             rate.window.value() / 1e6);
  std::vector<std::vector<std::string>> rows = {{"model", "on", "pairs", "median", "90 % within"}};
  rows.push_back(row("round trip", "fitted", latency_residuals(pairs, false, fitted)));
  const Residuals unseen = latency_residuals(pairs, true, fitted);
  rows.push_back(row("round trip", "held out", unseen));
  const Residuals on_circles = latency_residuals(pairs, true, straight, true);
  rows.push_back(row("round trip by great circles", "held out", on_circles));
  const Residuals by_zone = by_zone_factors(pairs, straight);
  rows.push_back(row("the same, a factor a pair of zones", "held out", by_zone));
  rows.push_back(row("rate", "fitted", rate_residuals(rated, false, rate)));
  const Residuals unseen_rate = rate_residuals(rated, true, rate);
  rows.push_back(row("rate", "held out", unseen_rate));
  LH_TRY(add_traces(cities, rows));
  fmt::print("{}\n", aligned(rows));
  const auto figure = [](const std::string& name, double value, double target,
                         const std::string& peer) {
    return BenchFigure{name, value, "ratio", target, "lower", value <= target, peer, kCommand};
  };
  return std::vector<BenchFigure>{
      figure("held-out round trips, median |modelled / measured - 1|", unseen.median,
             by_zone.median, "great circles with a factor a pair of zones"),
      figure("held-out round trips, 90th percentile", unseen.p90, by_zone.p90,
             "great circles with a factor a pair of zones"),
      figure("held-out rates, median", unseen_rate.median, 0.25, ""),
  };
}

}  // namespace

int bench_cities(bool /*quick*/, int /*threads*/) {
  const auto figures = measure();
  if (!figures) {
    fmt::print(stderr, "{}\n", figures.error().text());
    return 1;
  }
  return report("cities", *figures);
}

}  // namespace longhaul
