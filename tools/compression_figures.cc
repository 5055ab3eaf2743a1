#include "tools/compression_figures.h"

#include <algorithm>
#include <cmath>

#include "core/result.h"

namespace longhaul {
namespace {

double least(const LossCurve& curve) {
  LH_CHECK(!curve.empty(), "a curve has points");
  return std::ranges::min_element(curve, {}, &LossCurve::value_type::second)->second;
}

}  // namespace

Estimate estimate(std::span<const double> values) {
  LH_CHECK(!values.empty(), "an estimate is one of something");
  const auto count = static_cast<double>(values.size());
  Estimate found;
  for (const double value : values) found.mean += value / count;
  if (values.size() == 1) return found;
  double squares = 0;
  for (const double value : values) squares += (value - found.mean) * (value - found.mean);
  found.error = std::sqrt(squares / (count - 1) / count);
  return found;
}

Estimate relative_excess(std::span<const double> values, std::span<const double> bases) {
  LH_CHECK(values.size() == bases.size(), "values and bases are pairs");
  std::vector<double> excess;
  for (std::size_t i = 0; i < values.size(); ++i) excess.push_back(values[i] / bases[i] - 1);
  return estimate(excess);
}

std::optional<double> steps_to(const LossCurve& curve, double loss) {
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const auto [step, here] = curve[i];
    if (here > loss) continue;
    const auto at = static_cast<double>(step);
    if (i == 0) return at;
    const auto [step_before, before] = curve[i - 1];
    const auto from = static_cast<double>(step_before);
    return from + (at - from) * (before - loss) / (before - here);
  }
  return std::nullopt;
}

double common_loss(const LossCurve& a, const LossCurve& b) {
  return std::max(least(a), least(b));
}

}  // namespace longhaul
