// Fits the constants of netsim/latency_model.h to measured traces and says how far off they are.
//
// One city in four is held out (by its place in the alphabet, the same in every run): the fit sees
// no pair that it is part of, so the residuals of those pairs are what a new city must expect.
// Deterministic; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "netsim/cities.h"
#include "netsim/latency_model.h"
#include "netsim/trace.h"

namespace longhaul {

/// Two cities with a measurement between them, directions averaged.
struct MeasuredPair {
  std::string from;  // "Tokyo, JP"
  std::string to;
  RouteEnd a;
  RouteEnd b;
  Seconds round_trip;
  std::optional<BytesPerSecond> rate;
  bool held_out = false;  // has a city that the fit must not see
};

/// The measured round trips of traces whose places are all in the table; pairs within one city are
/// left out. Median rows of a trace count, of every trace for itself.
Result<std::vector<MeasuredPair>> measured_pairs(std::span<const Trace> traces,
                                                 const CityTable& cities);

/// Least absolute relative error (iteratively reweighted least squares) over the pairs that are not
/// held out. `straight` measures great circles instead of routes, for comparison.
LatencyModel fit_latency(std::span<const MeasuredPair> pairs, bool straight = false);
/// Median rate of the pairs below the knee, median product of rate and round trip of those above,
/// the knee being where the two rules meet; over the pairs with a rate that are not held out.
RateModel fit_rate(std::span<const MeasuredPair> pairs);

/// Of the pairs that are (not) held out.
Residuals latency_residuals(std::span<const MeasuredPair> pairs, bool held_out,
                            const LatencyModel& model, bool straight = false);
Residuals rate_residuals(std::span<const MeasuredPair> pairs, bool held_out,
                         const RateModel& model);

}  // namespace longhaul
