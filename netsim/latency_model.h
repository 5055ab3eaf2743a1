// Round trips and rates between places that nobody measured, from where they lie.
//
// Round trip. Traffic follows cables, not great circles, so the length of a route is that of the
// shortest way over the great circles between a place, the landing points of its zone, and the sea
// cables between zones (two tables in the .cc); within a zone the
// great circle itself. The round trip is then
//
//   base + near x min(length, knee) + far x max(length - knee, 0),
//
// and never less than light in fibre takes over the great circle. Short ways are dearer a kilometre
// than long ones: they follow roads and rails, and routers are a larger part of them.
//
// Rate. What one process on each side reaches: min(cap, window / round trip). One connection is
// limited by the receiver's window, which the measured pairs show over a factor of ten in round
// trips.
//
// The constants are fitted by netsim/latency_fit.h on the measured traces that are shipped;
// docs/benchmarks.md has the residuals and what else was tried. Pure functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "core/topology.h"
#include "core/units.h"

namespace longhaul {

/// Shores that share their landing points; in cities.csv as `na`, `sa`, `eu`, `rs`, `af`, `me`,
/// `in`, `se`, `ea`, `oc`.
enum class RouteZone {
  kNorthAmerica,  // with Central America and the coasts of the Caribbean
  kSouthAmerica,
  kEurope,         // with the rest of the Mediterranean but Egypt, and Central Asia
  kRedSea,         // Egypt, Sudan, the Horn of Africa
  kAfrica,         // south of the Sahara
  kMiddleEast,     // the Arabian peninsula, Iraq, Iran
  kSouthAsia,      // India and its neighbours
  kSouthEastAsia,  // Myanmar to Indonesia and the Philippines
  kEastAsia,
  kOceania
};
std::optional<RouteZone> parse_route_zone(std::string_view text);

struct RouteEnd {
  Coordinates at;
  RouteZone zone;
};

/// On a sphere of 6,371.0088 km, the Earth's mean radius (IUGG): within 0.6 % of the ellipsoid.
double great_circle_km(Coordinates a, Coordinates b);

/// Length of the way that traffic takes; the great circle within a zone, never less elsewhere.
double route_km(const RouteEnd& a, const RouteEnd& b);

/// Light in fibre over the great circle, there and back: 4.9 us a kilometre and way.
Seconds light_round_trip(Coordinates a, Coordinates b);

struct LatencyModel {
  double base_ms;
  double near_ms_per_km;  // up to the knee
  double far_ms_per_km;
};
inline constexpr double kRouteKneeKm = 2000;

struct RateModel {
  BytesPerSecond cap;
  Bytes window;
};

/// How far a model is off: |modelled / measured - 1|.
struct Residuals {
  int pairs = 0;
  double median = 0;
  double p90 = 0;
};

// As netsim/latency_fit.h finds them; a test fits again and compares.
inline constexpr LatencyModel kLatencyModel = {4.43, 0.0176, 0.0124};
inline constexpr RateModel kRateModel = {BytesPerSecond(1.1e9 / 8), Bytes(10.3e6)};
/// Of pairs with a city that the fit has not seen.
inline constexpr Residuals kLatencyResiduals = {712, 0.056, 0.152};
inline constexpr Residuals kRateResiduals = {24, 0.048, 0.306};

Seconds modelled_round_trip(const RouteEnd& a, const RouteEnd& b,
                            const LatencyModel& model = kLatencyModel);
BytesPerSecond modelled_rate(Seconds round_trip, const RateModel& model = kRateModel);

}  // namespace longhaul
