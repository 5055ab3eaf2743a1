// What the runs of suite `compression` come to: pure arithmetic on losses. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace longhaul {

/// A mean with its standard error, the sample's deviation over the root of their number; 0 of one.
struct Estimate {
  double mean = 0;
  double error = 0;
};
/// There is a value.
Estimate estimate(std::span<const double> values);

/// The mean of (value - base) / base over pairs, for example the runs of one seed: what a seed does
/// to both falls out. As many values as bases, at least one.
Estimate relative_excess(std::span<const double> values, std::span<const double> bases);

/// A loss by the steps behind it, ascending.
using LossCurve = std::vector<std::pair<std::uint64_t, double>>;

/// After how many steps the curve first is at `loss` or below, between two points by a straight
/// line; none where it never is. Before its first point a curve is unknown: a loss that is reached
/// there counts as reached at that point.
std::optional<double> steps_to(const LossCurve& curve, double loss);

/// The lowest loss that both curves reach: the larger of their least losses. Neither
/// is empty.
double common_loss(const LossCurve& a, const LossCurve& b);

}  // namespace longhaul
