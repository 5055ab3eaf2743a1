#include "netsim/latency_fit.h"
#include "core/median.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace longhaul {
namespace {

constexpr std::size_t kHeldOutEvery = 4;
constexpr int kReweightings = 100;
constexpr int kKneeRounds = 50;

Residuals residuals_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  const auto pairs = static_cast<int>(errors.size());
  return {pairs, quantile(errors, 0.5), quantile(errors, 0.9)};
}

/// Solves the 3 x 3 system by Gauss with pivots.
std::array<double, 3> solve(std::array<std::array<double, 4>, 3> rows) {
  for (std::size_t column = 0; column < 3; ++column) {
    std::size_t pivot = column;
    for (std::size_t r = column + 1; r < 3; ++r) {
      if (std::abs(rows[r][column]) > std::abs(rows[pivot][column])) pivot = r;
    }
    std::swap(rows[column], rows[pivot]);
    LH_CHECK(rows[column][column] != 0, "pairs of many lengths determine three constants");
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == column) continue;
      const double factor = rows[r][column] / rows[column][column];
      for (std::size_t c = column; c < 4; ++c) rows[r][c] -= factor * rows[column][c];
    }
  }
  return {rows[0][3] / rows[0][0], rows[1][3] / rows[1][1], rows[2][3] / rows[2][2]};
}

double length_km(const MeasuredPair& pair, bool straight) {
  return straight ? great_circle_km(pair.a.at, pair.b.at) : route_km(pair.a, pair.b);
}

std::array<double, 3> features(double km) {
  return {1, std::min(km, kRouteKneeKm), std::max(km - kRouteKneeKm, 0.0)};
}

/// Of one trace; `held_out` is still to be said.
Result<void> add_pairs(const Trace& trace, const CityTable& cities,
                       std::vector<MeasuredPair>& pairs) {
  std::vector<const Place*> places;
  for (const std::string& name : trace.places) {
    LH_ASSIGN(const Place* place, cities.find(name));
    places.push_back(place);
  }
  const std::vector<PairSummary> summaries = summarise(trace, 50);
  const std::size_t count = places.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      if (places[i]->location() == places[j]->location()) continue;
      double latency = 0;
      double rate = 0;
      int latencies = 0;
      int rates = 0;
      for (const PairSummary* way : {&summaries[i * count + j], &summaries[j * count + i]}) {
        if (way->latency_origin != Origin::kMeasured) continue;
        if (way->latency) latency += way->latency->value(), ++latencies;
        if (way->rate) rate += way->rate->value(), ++rates;
      }
      if (latencies == 0) continue;
      MeasuredPair pair{places[i]->location(),
                        places[j]->location(),
                        places[i]->end,
                        places[j]->end,
                        Seconds(2 * latency / latencies),
                        std::nullopt,
                        false};
      if (rates > 0) pair.rate = BytesPerSecond(rate / rates);
      pairs.push_back(std::move(pair));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<MeasuredPair>> measured_pairs(std::span<const Trace> traces,
                                                 const CityTable& cities) {
  std::vector<MeasuredPair> pairs;
  for (const Trace& trace : traces) LH_TRY(add_pairs(trace, cities, pairs));
  std::set<std::string> names;
  for (const MeasuredPair& pair : pairs) names.insert({pair.from, pair.to});
  std::map<std::string, bool> is_held_out;
  for (std::size_t index = 0; const std::string& name : names) {
    is_held_out[name] = index++ % kHeldOutEvery == 0;
  }
  for (MeasuredPair& pair : pairs) pair.held_out = is_held_out[pair.from] || is_held_out[pair.to];
  return pairs;
}

LatencyModel fit_latency(std::span<const MeasuredPair> pairs, bool straight) {
  std::array<double, 3> found{};
  for (int round = 0; round <= kReweightings; ++round) {
    std::array<std::array<double, 4>, 3> normal{};
    for (const MeasuredPair& pair : pairs) {
      if (pair.held_out) continue;
      const double measured = pair.round_trip.value() * 1e3;
      const std::array<double, 3> x = features(length_km(pair, straight));
      const double error =
          std::abs(found[0] * x[0] + found[1] * x[1] + found[2] * x[2] - measured) / measured;
      // Dividing by the error makes least squares least absolute values; the first round is plain.
      const double weight = 1 / (measured * measured) / (round == 0 ? 1 : std::max(error, 1e-4));
      for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t c = 0; c < 3; ++c) normal[r][c] += weight * x[r] * x[c];
        normal[r][3] += weight * x[r] * measured;
      }
    }
    found = solve(normal);
  }
  return {found[0], found[1], found[2]};
}

RateModel fit_rate(std::span<const MeasuredPair> pairs) {
  double knee = 0.05;  // s; where to start does not matter
  RateModel model{};
  for (int round = 0; round < kKneeRounds; ++round) {
    std::vector<double> caps, windows;
    for (const MeasuredPair& pair : pairs) {
      if (pair.held_out || !pair.rate) continue;
      if (pair.round_trip.value() <= knee) {
        caps.push_back(pair.rate->value());
      } else {
        windows.push_back((*pair.rate * pair.round_trip).value());
      }
    }
    LH_CHECK(!caps.empty() && !windows.empty(), "near and far pairs determine two constants");
    model = {BytesPerSecond(quantile(caps, 0.5)), Bytes(quantile(windows, 0.5))};
    const double next = (model.window / model.cap).value();
    if (next == knee) break;
    knee = next;
  }
  return model;
}

Residuals latency_residuals(std::span<const MeasuredPair> pairs, bool held_out,
                            const LatencyModel& model, bool straight) {
  std::vector<double> errors;
  for (const MeasuredPair& pair : pairs) {
    if (pair.held_out != held_out) continue;
    const std::array<double, 3> x = features(length_km(pair, straight));
    const Seconds modelled =
        std::max(milliseconds(model.base_ms * x[0] + model.near_ms_per_km * x[1] +
                              model.far_ms_per_km * x[2]),
                 light_round_trip(pair.a.at, pair.b.at));
    errors.push_back(std::abs(modelled / pair.round_trip - 1));
  }
  return residuals_of(std::move(errors));
}

Residuals rate_residuals(std::span<const MeasuredPair> pairs, bool held_out,
                         const RateModel& model) {
  std::vector<double> errors;
  for (const MeasuredPair& pair : pairs) {
    if (pair.held_out != held_out || !pair.rate) continue;
    errors.push_back(std::abs(modelled_rate(pair.round_trip, model) / *pair.rate - 1));
  }
  return residuals_of(std::move(errors));
}

}  // namespace longhaul
