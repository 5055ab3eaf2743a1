#include "netsim/latency_model.h"

#include <gtest/gtest.h>

#include <numbers>
#include <string_view>

#include "netsim/cities.h"

namespace longhaul {
namespace {

using enum RouteZone;

// Landing points of the model's own table.
constexpr RouteEnd kLondon{{51.51, -0.13}, kEurope};
constexpr RouteEnd kNewYork{{40.71, -74.01}, kNorthAmerica};
constexpr RouteEnd kMarseille{{43.30, 5.38}, kEurope};
constexpr RouteEnd kSuez{{29.97, 32.55}, kRedSea};
constexpr RouteEnd kJeddah{{21.49, 39.19}, kMiddleEast};
constexpr RouteEnd kFujairah{{25.13, 56.33}, kMiddleEast};
constexpr RouteEnd kMumbai{{19.07, 72.88}, kSouthAsia};

double km(const RouteEnd& a, const RouteEnd& b) {
  return great_circle_km(a.at, b.at);
}

// ---- Great circles.

TEST(GreatCircle, a_quarter_and_a_half_of_the_globe) {
  // 6371.0088 km x pi / 2 and x pi.
  EXPECT_NEAR(great_circle_km({0, 0}, {90, 0}), 10007.557, 1e-3);
  EXPECT_NEAR(great_circle_km({0, -90}, {0, 90}), 20015.115, 1e-3);
  EXPECT_NEAR(great_circle_km({30, 20}, {-30, -160}), 20015.115, 1e-3);
}

TEST(GreatCircle, one_degree_is_60_nautical_miles_or_so) {
  // 6371.0088 x pi / 180 = 111.195 km; across the date line as well.
  EXPECT_NEAR(great_circle_km({0, 0}, {1, 0}), 111.195, 1e-3);
  EXPECT_NEAR(great_circle_km({0, 179.5}, {0, -179.5}), 111.195, 1e-3);
  // At 60 degrees a degree of longitude is half as long, and the circle a little shorter.
  EXPECT_NEAR(great_circle_km({60, 0}, {60, 1}), 111.195 / 2, 0.01);
}

TEST(GreatCircle, known_distances_between_cities) {
  // Published great-circle distances, on the ellipsoid: within 0.5 %.
  EXPECT_NEAR(great_circle_km({51.507, -0.128}, {40.713, -74.006}), 5570, 0.005 * 5570);
  EXPECT_NEAR(great_circle_km({35.690, 139.692}, {37.775, -122.419}), 8270, 0.005 * 8270);
  EXPECT_NEAR(great_circle_km({-33.869, 151.209}, {1.290, 103.850}), 6300, 0.005 * 6300);
}

TEST(GreatCircle, nothing_is_far_from_itself_and_ways_are_as_long_as_back) {
  EXPECT_EQ(great_circle_km({12.34, 56.78}, {12.34, 56.78}), 0);
  EXPECT_EQ(great_circle_km({12, 34}, {-56, 78}), great_circle_km({-56, 78}, {12, 34}));
}

// ---- Routes.

TEST(Route, within_a_zone_it_is_the_great_circle) {
  const RouteEnd madrid{{40.42, -3.70}, kEurope};
  EXPECT_EQ(route_km(kLondon, madrid), km(kLondon, madrid));
}

TEST(Route, a_direct_cable_is_its_great_circle) {
  EXPECT_DOUBLE_EQ(route_km(kLondon, kNewYork), km(kLondon, kNewYork));
}

TEST(Route, europe_reaches_india_past_suez_and_the_gulf) {
  // By hand: Suez - Jeddah - Fujairah - Mumbai is 1,153 + 1,795 + 1,831 km, past Djibouti it is
  // 2,319 + 3,290 km.
  const double gulf =
      km(kMarseille, kSuez) + km(kSuez, kJeddah) + km(kJeddah, kFujairah) + km(kFujairah, kMumbai);
  EXPECT_NEAR(route_km(kMarseille, kMumbai), gulf, 1e-6);
  EXPECT_GT(gulf, 1.1 * km(kMarseille, kMumbai));
}

TEST(Route, brazil_reaches_portugal_past_north_america) {
  // As the measured round trips say: Sao Paulo - London is 189 ms, and 116 + 77 ms past Virginia.
  const RouteEnd fortaleza{{-3.72, -38.54}, kSouthAmerica};
  const RouteEnd lisbon{{38.72, -9.14}, kEurope};
  EXPECT_GT(route_km(fortaleza, lisbon), km(fortaleza, kNewYork) + km(kNewYork, lisbon) - 1);
}

TEST(Route, is_never_shorter_than_the_great_circle_and_the_same_both_ways) {
  const Result<CityTable> cities = CityTable::load();
  ASSERT_TRUE(cities);
  const std::vector<Place>& places = cities->places();
  for (std::size_t i = 0; i < places.size(); i += 7) {
    for (std::size_t j = 3; j < places.size(); j += 11) {
      const RouteEnd& a = places[i].end;
      const RouteEnd& b = places[j].end;
      EXPECT_GE(route_km(a, b), km(a, b) - 1e-6) << places[i].name << " " << places[j].name;
      EXPECT_NEAR(route_km(a, b), route_km(b, a), 1e-6);
      EXPECT_LT(route_km(a, b), 40'000) << places[i].name << " " << places[j].name;
      EXPECT_GE(modelled_round_trip(a, b), light_round_trip(a.at, b.at));
    }
  }
}

TEST(Route, zones_have_names) {
  EXPECT_EQ(parse_route_zone("na"), kNorthAmerica);
  EXPECT_EQ(parse_route_zone("rs"), kRedSea);
  EXPECT_EQ(parse_route_zone("oc"), kOceania);
  EXPECT_EQ(parse_route_zone("NA"), std::nullopt);
  EXPECT_EQ(parse_route_zone(""), std::nullopt);
}

// ---- Models.

TEST(LatencyModel, near_and_far_kilometres_have_their_own_price) {
  constexpr LatencyModel model{5, 0.02, 0.01};
  // Along the equator, in one zone: 1,000 km and 5,000 km.
  const double degree = 6371.0088 * std::numbers::pi / 180;
  const RouteEnd here{{0, 0}, kAfrica};
  const RouteEnd near{{0, 1000 / degree}, kAfrica};
  const RouteEnd far{{0, 5000 / degree}, kAfrica};
  EXPECT_NEAR(modelled_round_trip(here, here, model).value(), 5e-3, 1e-12);
  EXPECT_NEAR(modelled_round_trip(here, near, model).value(), 25e-3, 1e-9);  // 5 + 20
  EXPECT_NEAR(modelled_round_trip(here, far, model).value(), 75e-3, 1e-9);   // 5 + 40 + 30
}

TEST(LatencyModel, nothing_is_faster_than_light_in_fibre) {
  // 5,570 km x 9.8 us: London - New York takes 54.6 ms at least.
  EXPECT_NEAR(light_round_trip(kLondon.at, kNewYork.at).value(), 54.6e-3, 0.1e-3);
  EXPECT_EQ(modelled_round_trip(kLondon, kNewYork, {0, 0, 0}),
            light_round_trip(kLondon.at, kNewYork.at));
}

TEST(RateModel, near_pairs_are_capped_and_far_ones_wait_for_the_window) {
  constexpr RateModel model{BytesPerSecond(125e6), Bytes(10e6)};
  EXPECT_EQ(modelled_rate(milliseconds(1), model), BytesPerSecond(125e6));
  EXPECT_EQ(modelled_rate(milliseconds(80), model), BytesPerSecond(125e6));  // where they meet
  EXPECT_NEAR(modelled_rate(milliseconds(200), model).value(), 50e6, 1);
  EXPECT_EQ(modelled_rate(Seconds(0), model), BytesPerSecond(125e6));
}

}  // namespace
}  // namespace longhaul
