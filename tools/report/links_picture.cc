// How full the network is over the step: a row a link, as a curve of what is used of its rate.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/quantity.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 1000, kLabels = 190, kFigures = 222, kTop = 30, kRow = 30, kCurve = 22;
constexpr std::size_t kRowsMax = 14;
constexpr std::size_t kBins = 240;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Something that transfers share.
struct Shared {
  std::string name;
  BytesPerSecond capacity;
  std::vector<double> bytes = std::vector<double>(kBins);  // of each part of the step
  double total = 0;
  std::set<std::pair<int, int>> nodes;  // that send and receive

  double used(Seconds step) const { return total / (capacity.value() * step.value()); }
  double used_in(std::size_t bin, Seconds step) const {
    return bytes[bin] / (capacity.value() * step.value() / kBins);
  }
};

void add(Shared& shared, double bytes, double from, double to) {
  shared.total += bytes;
  const double length = to - from;
  const auto last = std::min(kBins - 1, static_cast<std::size_t>(to));
  for (auto bin = std::min(kBins - 1, static_cast<std::size_t>(from)); bin <= last; ++bin) {
    const auto left = static_cast<double>(bin);
    const double part =
        length > 0 ? std::max(0.0, std::min(to, left + 1) - std::max(from, left)) / length : 1;
    shared.bytes[bin] += part * bytes;
    if (length <= 0) return;
  }
}

/// Links between sites and finite uplinks and downlinks that are used, the fullest first.
std::vector<Shared> shared_of(const Planned& planned, const StepResult& step) {
  const Topology& topology = planned.topology;
  enum What { kLink, kUplink, kDownlink };
  std::map<std::tuple<What, int, int>, Shared> all;
  const int stages = planned.plan.stages();
  const auto count = [&](const TimelineSlice& slice) {
    if (slice.peer < 0) return;
    const int from = planned.plan.device(slice.cell / stages, slice.cell % stages);
    const int to = planned.plan.device(slice.peer / stages, slice.peer % stages);
    const int from_site = topology.site_of(from);
    const int to_site = topology.site_of(to);
    if (from_site == to_site) return;
    const auto bin_of = [&](SimTime time) { return kBins * (time.seconds() / step.step); };
    const auto use = [&](What what, int a, int b) -> Shared& {
      Shared& shared = all[{what, a, b}];
      add(shared, slice.wire.value(), bin_of(slice.start), bin_of(slice.end));
      return shared;
    };
    use(kLink, from_site, to_site).nodes.emplace(topology.node_of(from), topology.node_of(to));
    if (topology.sites[at(from_site)].uplink.finite()) use(kUplink, from_site, 0);
    if (topology.sites[at(to_site)].downlink.finite()) use(kDownlink, to_site, 0);
  };
  std::ranges::for_each(step.timeline, count);
  std::ranges::for_each(step.exchange_messages, count);
  std::vector<Shared> out;
  for (auto& [key, shared] : all) {
    const auto& [what, a, b] = key;
    const Site& site = topology.sites[at(a)];
    if (what == kLink) {
      const Link& link = topology.link(a, b);
      shared.name = fmt::format("{} → {}", site.name, topology.sites[at(b)].name);
      shared.capacity = link.scope == LinkScope::kSitePair
                            ? link.pipe()
                            : link.rate * static_cast<double>(shared.nodes.size());
    } else {
      shared.name = site.name + (what == kUplink ? " uplink" : " downlink");
      shared.capacity = what == kUplink ? site.uplink : site.downlink;
    }
    if (shared.capacity.finite() && shared.capacity > BytesPerSecond(0))
      out.push_back(std::move(shared));
  }
  std::ranges::stable_sort(out, std::greater(),
                           [&](const Shared& shared) { return shared.used(step.step); });
  return out;
}

/// The curve of a row whose ground is `bottom`.
std::string curve(const Shared& shared, Seconds step, double left, double width, double bottom) {
  const auto y = [&](std::size_t bin) {
    return coordinate(bottom - kCurve * std::min(1.0, shared.used_in(bin, step)));
  };
  const auto x = [&](std::size_t bin) {
    return coordinate(left + width * static_cast<double>(bin) / kBins);
  };
  std::string d = fmt::format("M{} {}", x(0), coordinate(bottom));
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    if (bin > 0 && y(bin) == y(bin - 1)) continue;
    if (bin > 0) d += fmt::format("H{}", x(bin));
    d += fmt::format("V{}", y(bin));
  }
  return d + fmt::format("H{}V{}z", x(kBins), coordinate(bottom));
}

}  // namespace

Picture links_picture(const Planned& planned, const StepResult& step) {
  Picture picture{.id = "links",
                  .heading = "How full the links are",
                  .svg = "",
                  .caption = "",
                  .is_wide = true};
  const std::vector<Shared> all = shared_of(planned, step);
  if (all.empty()) {
    picture.caption = "No activations or gradients are sent between sites.";
    return picture;
  }
  const std::size_t rows = std::min(all.size(), kRowsMax);
  picture.caption = fmt::format(
      "What is used of each link's rate over the step, the fullest first{}. A link whose nodes "
      "each have a rate of their own counts all pairs of nodes that use it.",
      all.size() > rows ? fmt::format(" ({} of {})", rows, all.size()) : "");
  const double bottom = kTop + kRow * static_cast<double>(rows);
  const double width = kWidth - kLabels - kFigures;
  Svg svg("links", kWidth, bottom + 8, picture.heading, picture.caption);
  const TimeUnit unit = time_unit(step.step.value());
  for (const double tick : linear_ticks(0, step.step.value() / unit.seconds, 7)) {
    const double x = kLabels + width * tick * unit.seconds / step.step.value();
    svg.line(x, kTop - 8, x, bottom, "time-grid");
    svg.text(x, kTop - 13, fmt::format("{} {}", short_number(tick), unit.name), "tick",
             Anchor::kMiddle);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const Shared& shared = all[r];
    const double ground = kTop + kRow * static_cast<double>(r + 1) - 2;
    double peak = 0;
    for (std::size_t bin = 0; bin < kBins; ++bin)
      peak = std::max(peak, shared.used_in(bin, step.step));
    svg.rect(kLabels, ground - kCurve, width, kCurve, "curve-ground");
    svg.path(
        curve(shared, step.step, kLabels, width, ground), "curve",
        fmt::format("{}: {} a step, {:.1f} % of {}", shared.name, format_size(Bytes(shared.total)),
                    100 * shared.used(step.step), format_bit_rate(shared.capacity)));
    svg.text(4, ground - 6, shortened(shared.name, 12.5, kLabels - 12), "row");
    svg.text(kWidth - kFigures + 8, ground - 6,
             fmt::format("{:.0f} %, peak {:.0f} % of {}", 100 * shared.used(step.step),
                         100 * std::min(1.0, peak), format_bit_rate(shared.capacity)),
             "small");
  }
  picture.svg = std::move(svg).finish();
  return picture;
}

}  // namespace longhaul
