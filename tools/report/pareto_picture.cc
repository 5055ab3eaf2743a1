// Time against money, of plans that were simulated.

#include <fmt/core.h>

#include <algorithm>

#include "core/quantity.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 440, kHeight = 340;
constexpr std::size_t kBehindMax = 400;  // dominated plans that are drawn

}  // namespace

Picture pareto_picture(std::span<const PricedPlan> plans, const PricedPlan& own) {
  Picture picture{
      .id = "pareto", .heading = "Time against money", .svg = "", .caption = "", .is_wide = false};
  std::vector<double> times = {own.step_s};
  std::vector<double> prices = {own.usd_per_billion_tokens};
  std::vector<Point> front;
  std::vector<Point> behind;
  for (const PricedPlan& plan : plans) {
    if (!plan.is_in_front) {
      behind.push_back({plan.step_s, plan.usd_per_billion_tokens});
      continue;
    }
    front.push_back({plan.step_s, plan.usd_per_billion_tokens});
    times.push_back(plan.step_s);
    prices.push_back(plan.usd_per_billion_tokens);
  }
  std::ranges::stable_sort(front, {}, &Point::x);
  // The picture is of the front; what lies far behind would flatten it.
  const double time_max = 1.6 * *std::ranges::max_element(times);
  const double price_max = 1.6 * *std::ranges::max_element(prices);
  std::erase_if(behind, [&](const Point& p) { return p.x > time_max || p.y > price_max; });
  if (behind.size() > kBehindMax) behind.resize(kBehindMax);
  for (const Point& point : behind) {
    times.push_back(point.x);
    prices.push_back(point.y);
  }
  const TimeUnit unit = time_unit(*std::ranges::max_element(times));
  for (double& time : times) time /= unit.seconds;
  picture.caption =
      fmt::format("{} plan{} that none found beats in both (line), and others that were simulated.",
                  front.size(), front.size() == 1 ? "" : "s");
  Svg svg("pareto", kWidth, kHeight, picture.heading, picture.caption);
  const Chart chart(svg, axis_for(fmt::format("step, {}", unit.name), times, false, false),
                    axis_for("USD a billion tokens", prices, false, false));
  const auto place = [&](const Point& p) {
    return Point{chart.x(p.x / unit.seconds), chart.y(p.y)};
  };
  for (const Point& point : behind) svg.circle(place(point).x, place(point).y, 2.5, "behind");
  // Between two plans of the front lies no plan: what is promised goes down in steps.
  std::string d;
  for (const Point& point : front) {
    const Point p = place(point);
    d += d.empty() ? fmt::format("M{} {}", coordinate(p.x), coordinate(p.y))
                   : fmt::format("H{}V{}", coordinate(p.x), coordinate(p.y));
  }
  svg.path(d, "front-line");
  for (const PricedPlan& plan : plans) {
    if (!plan.is_in_front) continue;
    const Point p = place({plan.step_s, plan.usd_per_billion_tokens});
    svg.circle(p.x, p.y, plan.is_knee ? 6.5 : 4.5, plan.is_knee ? "front knee" : "front",
               fmt::format("{}: {}, {:.2f} USD a billion tokens", plan.grid,
                           format_duration(Seconds(plan.step_s)), plan.usd_per_billion_tokens));
    if (plan.is_knee) svg.text(p.x + 9, p.y - 8, "knee: " + plan.grid, "halo row");
  }
  const Point p = place({own.step_s, own.usd_per_billion_tokens});
  svg.path(fmt::format("M{} {}l6 6l-6 6l-6 -6z", coordinate(p.x), coordinate(p.y - 6)), "own",
           "this plan, " + own.grid);
  const bool is_right = p.x > chart.right() - 90;
  svg.text(p.x + (is_right ? -10 : 10), p.y + 16, "this plan", "halo row",
           is_right ? Anchor::kEnd : Anchor::kStart);
  picture.svg = std::move(svg).finish();
  return picture;
}

}  // namespace longhaul
