#include "netsim/latency_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "netsim/shipped.h"

namespace longhaul {
namespace {

std::vector<MeasuredPair> shipped_pairs(bool ShippedTrace::* fits) {
  const Result<CityTable> cities = CityTable::load();
  EXPECT_TRUE(cities);
  std::vector<Trace> traces;
  for (const ShippedTrace& shipped : kShippedTraces) {
    if (!(shipped.*fits)) continue;
    Result<Trace> trace = load_shipped_trace(shipped);
    EXPECT_TRUE(trace) << trace.error().text();
    traces.push_back(std::move(trace).value());
  }
  Result<std::vector<MeasuredPair>> pairs = measured_pairs(traces, cities.value());
  EXPECT_TRUE(pairs) << pairs.error().text();
  return std::move(pairs).value();
}

/// A pair along the equator with the round trip of a model times `factor`.
MeasuredPair synthetic(double degrees, const LatencyModel& model, double factor = 1) {
  MeasuredPair pair;
  pair.a = {{0, 0}, RouteZone::kAfrica};
  pair.b = {{0, degrees}, RouteZone::kAfrica};
  pair.round_trip = modelled_round_trip(pair.a, pair.b, model) * factor;
  return pair;
}

// ---- The shipped constants.

TEST(LatencyFit, the_shipped_traces_give_the_shipped_constants) {
  const LatencyModel fitted = fit_latency(shipped_pairs(&ShippedTrace::fits_latency));
  EXPECT_NEAR(fitted.base_ms / kLatencyModel.base_ms, 1, 0.01);
  EXPECT_NEAR(fitted.near_ms_per_km / kLatencyModel.near_ms_per_km, 1, 0.01);
  EXPECT_NEAR(fitted.far_ms_per_km / kLatencyModel.far_ms_per_km, 1, 0.01);
}

TEST(LatencyFit, the_shipped_residuals_are_those_of_cities_that_the_fit_has_not_seen) {
  const std::vector<MeasuredPair> pairs = shipped_pairs(&ShippedTrace::fits_latency);
  const Residuals unseen = latency_residuals(pairs, true, kLatencyModel);
  EXPECT_EQ(unseen.pairs, kLatencyResiduals.pairs);
  EXPECT_NEAR(unseen.median, kLatencyResiduals.median, 0.002);
  EXPECT_NEAR(unseen.p90, kLatencyResiduals.p90, 0.005);
  // Found: 5.6 % and 15.2 %. Great circles alone: 12 % and 34 %.
  EXPECT_LT(unseen.median, 0.06);
  EXPECT_LT(unseen.p90, 0.17);
  const Residuals seen = latency_residuals(pairs, false, kLatencyModel);
  EXPECT_EQ(seen.pairs + unseen.pairs, static_cast<int>(pairs.size()));
  EXPECT_GT(seen.pairs, unseen.pairs);
}

TEST(LatencyFit, routes_along_cables_halve_the_error_of_great_circles) {
  const std::vector<MeasuredPair> pairs = shipped_pairs(&ShippedTrace::fits_latency);
  const Residuals routes = latency_residuals(pairs, true, fit_latency(pairs));
  const Residuals circles = latency_residuals(pairs, true, fit_latency(pairs, true), true);
  EXPECT_LT(routes.median, 0.6 * circles.median);
  EXPECT_LT(routes.p90, 0.6 * circles.p90);
}

TEST(LatencyFit, a_trace_that_no_fit_saw_is_met_as_well) {
  const std::vector<MeasuredPair> pairs = shipped_pairs(&ShippedTrace::fits_rate);  // ten regions
  ASSERT_EQ(pairs.size(), 45u);
  std::vector<MeasuredPair> all = pairs;
  for (MeasuredPair& pair : all) pair.held_out = false;
  EXPECT_LT(latency_residuals(all, false, kLatencyModel).median, 0.09);
}

TEST(RateFit, the_shipped_trace_gives_the_shipped_constants_and_residuals) {
  const std::vector<MeasuredPair> pairs = shipped_pairs(&ShippedTrace::fits_rate);
  const RateModel fitted = fit_rate(pairs);
  EXPECT_NEAR(fitted.cap / kRateModel.cap, 1, 0.01);
  EXPECT_NEAR(fitted.window / kRateModel.window, 1, 0.01);
  const Residuals unseen = rate_residuals(pairs, true, kRateModel);
  EXPECT_EQ(unseen.pairs, kRateResiduals.pairs);
  EXPECT_NEAR(unseen.median, kRateResiduals.median, 0.003);
  EXPECT_NEAR(unseen.p90, kRateResiduals.p90, 0.005);
}

// ---- The method.

TEST(LatencyFit, exact_pairs_give_back_their_constants_whatever_one_in_ten_says) {
  constexpr LatencyModel truth{6, 0.02, 0.0125};
  std::vector<MeasuredPair> pairs;
  for (int i = 1; i <= 100; ++i) {
    pairs.push_back(synthetic(i, truth, i % 10 == 0 ? 3 : 1));  // 111 to 11,120 km
  }
  const LatencyModel fitted = fit_latency(pairs);
  EXPECT_NEAR(fitted.base_ms, truth.base_ms, 1e-3);
  EXPECT_NEAR(fitted.near_ms_per_km, truth.near_ms_per_km, 1e-6);
  EXPECT_NEAR(fitted.far_ms_per_km, truth.far_ms_per_km, 1e-6);
}

TEST(LatencyFit, what_is_held_out_has_no_say) {
  constexpr LatencyModel truth{6, 0.02, 0.0125};
  std::vector<MeasuredPair> pairs;
  for (int i = 1; i <= 40; ++i) {
    pairs.push_back(synthetic(2 * i, truth, i % 2 == 0 ? 5 : 1));
    pairs.back().held_out = i % 2 == 0;
  }
  EXPECT_NEAR(fit_latency(pairs).base_ms, truth.base_ms, 1e-6);
  // Each held-out pair was measured at five times the model: off by 1 - 1 / 5.
  EXPECT_NEAR(latency_residuals(pairs, true, truth).median, 0.8, 1e-9);
  EXPECT_NEAR(latency_residuals(pairs, false, truth).p90, 0, 1e-9);
}

TEST(LatencyFit, one_city_in_four_is_held_out_with_all_its_pairs) {
  const Result<CityTable> cities = CityTable::load();
  ASSERT_TRUE(cities);
  // In the order of the alphabet: Berlin, Dublin, London, Madrid, Oslo: the first and the fifth.
  const Result<Trace> trace = parse_trace(
      "from,to,latency_ms,basis\nberlin,dublin,24,rtt\ndublin,berlin,26,rtt\n"
      "london,madrid,30,rtt\nmadrid,oslo,45,rtt\ndublin,london,12,rtt\n",
      "t.csv");
  ASSERT_TRUE(trace);
  const auto pairs = measured_pairs(std::span(&*trace, 1), *cities);
  ASSERT_TRUE(pairs);
  ASSERT_EQ(pairs->size(), 4u);
  EXPECT_EQ((*pairs)[0].from, "Berlin, DE");
  EXPECT_NEAR((*pairs)[0].round_trip.value(), 25e-3, 1e-12);  // the mean of both directions
  EXPECT_TRUE((*pairs)[0].held_out);
  EXPECT_FALSE((*pairs)[1].held_out);  // Dublin - London
  EXPECT_FALSE((*pairs)[2].held_out);  // London - Madrid
  EXPECT_TRUE((*pairs)[3].held_out);   // Madrid - Oslo
}

TEST(LatencyFit, pairs_within_a_city_and_modelled_rows_do_not_count) {
  const Result<CityTable> cities = CityTable::load();
  ASSERT_TRUE(cities);
  const Result<Trace> trace = parse_trace(
      "from,to,latency_ms,basis,origin\naws/eu-west-2,uksouth,2,rtt,measured\n"
      "london,paris,9,rtt,modelled\nlondon,berlin,20,rtt,assumed\n",
      "t.csv");
  ASSERT_TRUE(trace);
  const auto pairs = measured_pairs(std::span(&*trace, 1), *cities);
  ASSERT_TRUE(pairs);
  EXPECT_TRUE(pairs->empty());
}

TEST(LatencyFit, a_place_that_the_table_lacks_is_an_error) {
  const Result<CityTable> cities = CityTable::load();
  ASSERT_TRUE(cities);
  const Result<Trace> trace =
      parse_trace("from,to,latency_ms,basis\natlantis,paris,9,rtt\n", "t.csv");
  ASSERT_TRUE(trace);
  const auto pairs = measured_pairs(std::span(&*trace, 1), *cities);
  ASSERT_FALSE(pairs);
  EXPECT_TRUE(pairs.error().text().contains("`atlantis`"));
}

TEST(RateFit, medians_below_and_above_the_knee) {
  // 1 Gbit/s up to 80 ms, then 10 MB a round trip; one pair of each half is far off.
  std::vector<MeasuredPair> pairs;
  for (const auto& [ms, rate] : {std::pair(10, 125e6),
                                 {20, 125e6},
                                 {40, 20e6},
                                 {100, 100e6},
                                 {200, 50e6},
                                 {250, 200e6},
                                 {50, 125e6},
                                 {400, 25e6}}) {
    MeasuredPair pair;
    pair.round_trip = milliseconds(ms);
    pair.rate = BytesPerSecond(rate);
    pairs.push_back(pair);
  }
  const RateModel fitted = fit_rate(pairs);
  EXPECT_NEAR(fitted.cap.value(), 125e6, 1);
  EXPECT_NEAR(fitted.window.value(), 10e6, 1);
}

}  // namespace
}  // namespace longhaul
