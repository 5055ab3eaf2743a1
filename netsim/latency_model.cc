#include "netsim/latency_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>

namespace longhaul {
namespace {

constexpr double kEarthRadiusKm = 6371.0088;
constexpr double kLightMsPerKm = 2 * 4.9e-3;  // there and back

// Where sea cables land, and which coasts they join (public cable maps; coordinates of the towns).
// Only cables that the clouds' measured round trips show in use: with those between Brazil and
// Portugal or Angola, which exist, traffic would go ways that it does not. Landing points of one
// zone are joined by great circles.
struct Landing {
  std::string_view name;
  RouteZone zone;
  Coordinates at;
};
using enum RouteZone;
constexpr Landing kLandings[] = {
    {"halifax", kNorthAmerica, {44.65, -63.57}},
    {"new-york", kNorthAmerica, {40.71, -74.01}},
    {"miami", kNorthAmerica, {25.77, -80.19}},
    {"los-angeles", kNorthAmerica, {34.05, -118.24}},
    {"portland", kNorthAmerica, {45.52, -122.68}},
    {"honolulu", kNorthAmerica, {21.31, -157.86}},
    {"fortaleza", kSouthAmerica, {-3.72, -38.54}},
    {"valparaiso", kSouthAmerica, {-33.05, -71.60}},
    {"dublin", kEurope, {53.35, -6.26}},
    {"london", kEurope, {51.51, -0.13}},
    {"lisbon", kEurope, {38.72, -9.14}},
    {"marseille", kEurope, {43.30, 5.38}},
    {"suez", kRedSea, {29.97, 32.55}},
    {"djibouti", kRedSea, {11.59, 43.15}},
    {"jeddah", kMiddleEast, {21.49, 39.19}},
    {"fujairah", kMiddleEast, {25.13, 56.33}},
    {"dakar", kAfrica, {14.69, -17.44}},
    {"lagos", kAfrica, {6.45, 3.39}},
    {"mombasa", kAfrica, {-4.05, 39.67}},
    {"mumbai", kSouthAsia, {19.07, 72.88}},
    {"chennai", kSouthAsia, {13.09, 80.28}},
    {"singapore", kSouthEastAsia, {1.29, 103.85}},
    {"manila", kSouthEastAsia, {14.60, 120.98}},
    {"da-nang", kSouthEastAsia, {16.07, 108.22}},
    {"hong-kong", kEastAsia, {22.28, 114.17}},
    {"tokyo", kEastAsia, {35.69, 139.69}},
    {"guam", kOceania, {13.44, 144.79}},
    {"perth", kOceania, {-31.95, 115.86}},
    {"sydney", kOceania, {-33.87, 151.21}},
    {"auckland", kOceania, {-36.85, 174.76}},
};
constexpr std::size_t kCount = std::size(kLandings);

constexpr std::pair<std::string_view, std::string_view> kCables[] = {
    {"halifax", "dublin"},         {"new-york", "dublin"},      {"new-york", "london"},
    {"new-york", "fortaleza"},     {"miami", "fortaleza"},      {"miami", "valparaiso"},
    {"los-angeles", "valparaiso"}, {"marseille", "suez"},       {"suez", "jeddah"},
    {"djibouti", "fujairah"},      {"djibouti", "mumbai"},      {"djibouti", "mombasa"},
    {"lisbon", "dakar"},           {"lisbon", "lagos"},         {"fujairah", "mumbai"},
    {"chennai", "singapore"},      {"singapore", "hong-kong"},  {"manila", "hong-kong"},
    {"da-nang", "hong-kong"},      {"singapore", "perth"},      {"tokyo", "portland"},
    {"tokyo", "los-angeles"},      {"tokyo", "guam"},           {"sydney", "los-angeles"},
    {"sydney", "portland"},        {"auckland", "los-angeles"}, {"tokyo", "honolulu"},
    {"auckland", "honolulu"},
};

constexpr std::size_t index_of(std::string_view name) {
  std::size_t i = 0;
  while (kLandings[i].name != name) ++i;  // a name that is not there fails the compilation
  return i;
}
constexpr auto kCableEnds = [] {
  std::array<std::pair<std::size_t, std::size_t>, std::size(kCables)> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ends[i] = {index_of(kCables[i].first), index_of(kCables[i].second)};
  }
  return ends;
}();

using Lengths = std::array<std::array<double, kCount>, kCount>;

/// Shortest ways between landing points (Floyd and Warshall).
Lengths shortest_ways() {
  Lengths km;
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t j = 0; j < kCount; ++j) {
      km[i][j] = kLandings[i].zone == kLandings[j].zone
                     ? great_circle_km(kLandings[i].at, kLandings[j].at)
                     : std::numeric_limits<double>::infinity();
    }
  }
  for (const auto& [a, b] : kCableEnds) {
    km[a][b] = km[b][a] = great_circle_km(kLandings[a].at, kLandings[b].at);
  }
  for (std::size_t via = 0; via < kCount; ++via) {
    for (std::size_t i = 0; i < kCount; ++i) {
      for (std::size_t j = 0; j < kCount; ++j) {
        km[i][j] = std::min(km[i][j], km[i][via] + km[via][j]);
      }
    }
  }
  return km;
}

}  // namespace

std::optional<RouteZone> parse_route_zone(std::string_view text) {
  constexpr std::string_view names[] = {"na", "sa", "eu", "rs", "af", "me", "in", "se", "ea", "oc"};
  const auto found = std::find(std::begin(names), std::end(names), text);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<RouteZone>(found - std::begin(names));
}

double great_circle_km(Coordinates a, Coordinates b) {
  // Haversine: exact to rounding for short distances too.
  constexpr double kRadians = std::numbers::pi / 180;
  const double north = std::sin((b.latitude - a.latitude) * kRadians / 2);
  const double east = std::sin((b.longitude - a.longitude) * kRadians / 2);
  const double h = north * north +
                   std::cos(a.latitude * kRadians) * std::cos(b.latitude * kRadians) * east * east;
  return 2 * kEarthRadiusKm * std::asin(std::min(1.0, std::sqrt(h)));
}

double route_km(const RouteEnd& a, const RouteEnd& b) {
  if (a.zone == b.zone) return great_circle_km(a.at, b.at);
  static const Lengths ways = shortest_ways();
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kCount; ++i) {
    if (kLandings[i].zone != a.zone) continue;
    const double there = great_circle_km(a.at, kLandings[i].at);
    for (std::size_t j = 0; j < kCount; ++j) {
      if (kLandings[j].zone != b.zone) continue;
      best = std::min(best, there + ways[i][j] + great_circle_km(kLandings[j].at, b.at));
    }
  }
  return best;
}

Seconds light_round_trip(Coordinates a, Coordinates b) {
  return milliseconds(kLightMsPerKm * great_circle_km(a, b));
}

Seconds modelled_round_trip(const RouteEnd& a, const RouteEnd& b, const LatencyModel& model) {
  const double km = route_km(a, b);
  const Seconds modelled =
      milliseconds(model.base_ms + model.near_ms_per_km * std::min(km, kRouteKneeKm) +
                   model.far_ms_per_km * std::max(km - kRouteKneeKm, 0.0));
  return std::max(modelled, light_round_trip(a.at, b.at));
}

BytesPerSecond modelled_rate(Seconds round_trip, const RateModel& model) {
  return std::min(model.cap, model.window / round_trip);
}

}  // namespace longhaul
