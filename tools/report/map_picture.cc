// Sites on the world and the links between them.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "core/quantity.h"
#include "tools/report/globe.h"
#include "tools/report/labels.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 1000;
constexpr double kCircleHeight = 460;
constexpr double kStrip = 84;  // for sites without coordinates, below the map
constexpr std::size_t kLinksMax = 150;
constexpr std::size_t kClasses = 5;
constexpr double kThickest = 7, kThinnest = 1;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Both directions between two sites.
struct PairTraffic {
  int site = 0;
  int other = 0;
  Bytes wire;
  BytesPerSecond rate = BytesPerSecond::infinity();  // of the slower direction that is used
};

/// The most loaded last, so that it is drawn on top.
std::vector<PairTraffic> pairs_of(const Topology& topology, const StepResult& step) {
  std::map<std::pair<int, int>, PairTraffic> pairs;
  for (const LinkTraffic& traffic : step.traffic) {
    if (traffic.from_site == traffic.to_site) continue;
    const std::pair<int, int> key = std::minmax(traffic.from_site, traffic.to_site);
    PairTraffic& pair = pairs[key];
    pair.site = key.first;
    pair.other = key.second;
    pair.wire += traffic.wire;
    pair.rate = std::min(pair.rate, topology.link(traffic.from_site, traffic.to_site).rate);
  }
  std::vector<PairTraffic> out;
  for (const auto& [key, pair] : pairs) out.push_back(pair);
  std::ranges::stable_sort(out, {}, &PairTraffic::wire);
  return out;
}

/// Classes of rates with round borders; colours run from the slowest to the fastest.
class RateScale {
 public:
  explicit RateScale(const std::vector<PairTraffic>& pairs) {
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (const PairTraffic& pair : pairs) {
      if (!pair.rate.finite()) continue;
      least = std::min(least, 8 * pair.rate.value());
      most = std::max(most, 8 * pair.rate.value());
    }
    if (least >= most) return;
    for (const double tick : log_ticks(least, most, static_cast<int>(kClasses) - 1)) {
      if (tick > least) borders_.push_back(tick);
    }
    if (borders_.size() >= kClasses) borders_.erase(borders_.begin(), borders_.end() - 4);
  }
  std::size_t classes() const { return borders_.size() + 1; }
  std::size_t class_of(BytesPerSecond rate) const {
    const auto above = std::ranges::upper_bound(borders_, 8 * rate.value() * (1 + 1e-12));
    return static_cast<std::size_t>(above - borders_.begin());
  }
  /// Colours far apart where there are few classes.
  std::string colour(std::size_t of_class) const {
    if (classes() == 1) return "rate2";
    return fmt::format("rate{}", of_class * (kClasses - 1) / (classes() - 1));
  }
  std::string text(std::size_t of_class) const {
    const auto rate = [this](std::size_t border) {
      return format_bit_rate(BytesPerSecond(borders_[border] / 8));
    };
    if (classes() == 1) return "all links alike";
    if (of_class == 0) return fmt::format("below {}", rate(0));
    if (of_class + 1 == classes()) return fmt::format("{} and more", rate(of_class - 1));
    return fmt::format("{} to {}", rate(of_class - 1), rate(of_class));
  }

 private:
  std::vector<double> borders_;  // bit/s, ascending
};

/// Where everything lies.
struct Layout {
  double height = 0;
  double map_height = 0;        // what coastlines are drawn on; 0: no map
  std::vector<Point> sites;     // by site
  std::vector<char> is_placed;  // by site: on the map
  std::string land;
};

/// A link as lines. Off the map it is bent towards the middle.
std::vector<std::vector<Point>> bent(const Point& from, const Point& to, const Point& middle) {
  std::vector<Point> line;
  const Point half = {(from.x + to.x) / 2, (from.y + to.y) / 2};
  const Point pull = {half.x + 0.35 * (middle.x - half.x), half.y + 0.35 * (middle.y - half.y)};
  for (int i = 0; i <= 16; ++i) {
    const double t = i / 16.0;
    const double a = (1 - t) * (1 - t);
    const double b = 2 * t * (1 - t);
    line.push_back(
        {a * from.x + b * pull.x + t * t * to.x, a * from.y + b * pull.y + t * t * to.y});
  }
  return {line};
}

class MapDrawing {
 public:
  MapDrawing(const Planned& planned, const StepResult& step, const Explanation& explanation)
      : topology_(planned.topology),
        plan_(planned.plan),
        limit_(limiting_link(explanation)),
        pairs_(pairs_of(topology_, step)),
        scale_(pairs_) {
    used_.assign(topology_.sites.size(), 0);
    present_.assign(topology_.sites.size(), 0);
    for (const Device& device : topology_.devices) ++present_[at(device.site)];
    for (const std::vector<int>& pipeline : plan_.devices) {
      for (const int device : pipeline) ++used_[at(topology_.site_of(device))];
    }
    if (pairs_.size() > kLinksMax) {
      left_out_ = pairs_.size() - kLinksMax;
      pairs_.erase(pairs_.begin(), pairs_.begin() + static_cast<std::ptrdiff_t>(left_out_));
    }
    lay_out();
    labels_ = LabelPlacer({0, 0, kWidth, layout_.height});
  }

  Picture draw() && {
    Picture picture{
        .id = "map", .heading = "Where it runs", .svg = "", .caption = "", .is_wide = true};
    picture.caption = caption();
    constexpr double kLegend = 46;
    Svg svg("map", kWidth, layout_.height + kLegend,
            globe_ ? "Map of sites and links" : "Sites and links", picture.caption);
    svg.begin_clip(0, 0, kWidth, layout_.height);
    svg.rect(0, 0, kWidth, layout_.height, "sea");
    svg.path(layout_.land, "land");
    if (globe_ && layout_.map_height < layout_.height) {
      svg.rect(0, layout_.map_height, kWidth, layout_.height - layout_.map_height, "strip");
      svg.text(10, layout_.height - 8, "without coordinates", "small");
    }
    draw_links(svg);
    draw_sites(svg);
    svg.end_group();
    draw_legend_below(svg);
    picture.svg = std::move(svg).finish();
    return picture;
  }

 private:
  void lay_out() {
    const int sites = topology_.site_count();
    std::vector<int> placed;
    for (int s = 0; s < sites; ++s) {
      if (topology_.sites[at(s)].coordinates) placed.push_back(s);
    }
    layout_.sites.resize(at(sites));
    layout_.is_placed.assign(at(sites), 0);
    if (placed.empty() || 2 * placed.size() < at(sites)) return lay_out_circle();
    std::vector<Coordinates> places;
    std::map<int, int> index;
    for (const int s : placed) {
      index[s] = static_cast<int>(places.size());
      places.push_back(*topology_.sites[at(s)].coordinates);
    }
    std::vector<std::pair<int, int>> links;
    for (const PairTraffic& pair : pairs_) {
      if (index.contains(pair.site) && index.contains(pair.other))
        links.emplace_back(index[pair.site], index[pair.other]);
    }
    globe_.emplace(places, links, kWidth);
    layout_.land = globe_->land();
    layout_.map_height = globe_->height();
    layout_.height = layout_.map_height;
    for (const int s : placed) {
      layout_.sites[at(s)] = globe_->at(*topology_.sites[at(s)].coordinates);
      layout_.is_placed[at(s)] = 1;
    }
    const auto others = static_cast<double>(at(sites) - placed.size());
    if (others == 0) return;
    layout_.height += kStrip;
    double n = 0;
    for (int s = 0; s < sites; ++s) {
      if (layout_.is_placed[at(s)] != 0) continue;
      layout_.sites[at(s)] = {kWidth * (n + 0.5) / others, layout_.map_height + 0.4 * kStrip};
      n += 1;
    }
  }

  void lay_out_circle() {
    layout_.height = kCircleHeight;
    const auto sites = static_cast<double>(topology_.site_count());
    for (int s = 0; s < topology_.site_count(); ++s) {
      const double angle = 2 * std::numbers::pi * (s / sites) - std::numbers::pi / 2;
      const double far = sites == 1 ? 0 : 1;
      layout_.sites[at(s)] = {kWidth / 2 + far * 330 * std::cos(angle),
                              kCircleHeight / 2 + far * 170 * std::sin(angle)};
    }
  }

  std::vector<std::vector<Point>> lines_of(const PairTraffic& pair) const {
    if (layout_.is_placed[at(pair.site)] != 0 && layout_.is_placed[at(pair.other)] != 0) {
      return globe_->way(*topology_.sites[at(pair.site)].coordinates,
                         *topology_.sites[at(pair.other)].coordinates);
    }
    const Point middle = {kWidth / 2, (globe_ ? layout_.map_height : layout_.height) / 2};
    return bent(layout_.sites[at(pair.site)], layout_.sites[at(pair.other)], middle);
  }

  bool limits(const PairTraffic& pair) const {
    return limit_ != nullptr && limit_->site == pair.site && limit_->other == pair.other;
  }

  std::string pair_text(const PairTraffic& pair) const {
    return fmt::format("{} – {}: {}, {} a step", name_of_site(pair.site), name_of_site(pair.other),
                       format_bit_rate(pair.rate), format_size(pair.wire));
  }

  const std::string& name_of_site(int site) const { return topology_.sites[at(site)].name; }

  double thickness(Bytes wire) const {
    const Bytes most = pairs_.back().wire;
    // Many links leave little room for each.
    const double all = static_cast<double>(pairs_.size());
    const double thickest = std::clamp(24 / std::sqrt(all), 2.5, kThickest);
    return kThinnest + (thickest - kThinnest) * std::sqrt(wire / most);
  }

  void draw_links(Svg& svg) {
    for (const PairTraffic& pair : pairs_) {
      std::string d;
      for (const std::vector<Point>& line : lines_of(pair)) {
        for (std::size_t i = 0; i < line.size(); ++i) {
          d += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', line[i].x, line[i].y);
          avoid(line[i == 0 ? 0 : i - 1], line[i]);
        }
      }
      if (limits(pair)) svg.path(d, "limit-halo", thickness(pair.wire) + 5, "");
      svg.path(d, "link " + scale_.colour(scale_.class_of(pair.rate)), thickness(pair.wire),
               pair_text(pair));
    }
  }

  /// Labels do better not to lie on the line between two points.
  void avoid(const Point& from, const Point& to) {
    constexpr double kApart = 8;
    const double parts = std::ceil(std::hypot(to.x - from.x, to.y - from.y) / kApart);
    for (double i = 1; i <= parts; i += 1) {
      labels_.avoid({from.x + (to.x - from.x) * i / parts, from.y + (to.y - from.y) * i / parts});
    }
  }

  double radius(int site) const {
    return present_[at(site)] == 0 ? 3 : 4 + 1.1 * std::sqrt(used_[at(site)]);
  }

  void draw_sites(Svg& svg) {
    std::vector<int> order;  // those in use choose their labels' places first
    for (int s = 0; s < topology_.site_count(); ++s) order.push_back(s);
    std::ranges::stable_sort(order, std::greater(), [&](int s) { return used_[at(s)]; });
    for (const int s : order) {
      const double r = radius(s) + 2;
      const Point& p = layout_.sites[at(s)];
      labels_.block({p.x - r, p.y - r, 2 * r, 2 * r});
      if (s == plan_.coordinator_site) svg.circle(p.x, p.y, radius(s) + 4, "coordinator");
      svg.circle(p.x, p.y, radius(s), used_[at(s)] > 0 ? "site" : "site-idle",
                 fmt::format("{}{}: {} of {} devices in use", name_of_site(s),
                             s == plan_.coordinator_site ? " (coordinator)" : "", used_[at(s)],
                             present_[at(s)]));
    }
    draw_limit_label(svg);
    for (const int s : order) draw_site_label(svg, s);
  }

  void draw_site_label(Svg& svg, int site) {
    constexpr double kSize = 14, kSmall = 11.5;
    const std::string name = shortened(name_of_site(site), kSize, 170);
    const std::string count = used_[at(site)] == 0
                                  ? std::string("idle")
                                  : fmt::format("{} of {}", used_[at(site)], present_[at(site)]);
    const double wide = std::max(text_width(name, kSize), text_width(count, kSmall)) + 4;
    const Point& p = layout_.sites[at(site)];
    const Box box = labels_.place(p, wide, 29, radius(site) + 4);
    if (box.width == 0) return;  // no room: its hint names it
    const double x = box.x + wide / 2;
    const Point near = {std::clamp(p.x, box.x, box.x + wide),
                        std::clamp(p.y, box.y, box.y + box.height)};
    if (std::hypot(near.x - p.x, near.y - p.y) > radius(site) + 9)
      svg.line(p.x, p.y, near.x, near.y, "leader");
    const std::string_view style = used_[at(site)] > 0 ? "site-name" : "site-name idle";
    svg.text(x, box.y + 13, name, style, Anchor::kMiddle);
    svg.text(x, box.y + 26, count, "halo small", Anchor::kMiddle);
  }

  /// The middle of the longest piece of a link that can be seen.
  Point middle_of(const PairTraffic& pair) const {
    std::vector<Point> seen;
    for (const std::vector<Point>& line : lines_of(pair)) {
      std::vector<Point> inside;
      for (const Point& p : line) {
        if (p.x >= 0 && p.x <= kWidth && p.y >= 0 && p.y <= layout_.height) inside.push_back(p);
      }
      if (inside.size() > seen.size()) seen = std::move(inside);
    }
    return seen.empty() ? layout_.sites[at(pair.site)] : seen[seen.size() / 2];
  }

  void draw_limit_label(Svg& svg) {
    const auto pair = std::ranges::find_if(pairs_, [&](const PairTraffic& p) { return limits(p); });
    if (pair == pairs_.end()) return;
    const std::string text = fmt::format("limits the step: {} – {}, {}", name_of_site(pair->site),
                                         name_of_site(pair->other), format_bit_rate(pair->rate));
    const double wide = text_width(text, 13) + 14;
    const Point middle = middle_of(*pair);
    const Box box = labels_.place(middle, wide, 24, 12);
    if (box.width == 0) return;
    svg.line(middle.x, middle.y, std::clamp(middle.x, box.x, box.x + wide),
             std::clamp(middle.y, box.y, box.y + box.height), "limit-leader");
    svg.rect(box.x, box.y, box.width, box.height, "limit-box");
    svg.text(box.x + wide / 2, box.y + 16.5, text, "limit-text", Anchor::kMiddle);
  }

  void draw_legend_below(Svg& svg) const {
    std::vector<std::string> styles;
    std::vector<LegendItem> items;
    for (std::size_t c = 0; c < scale_.classes(); ++c) styles.push_back(scale_.colour(c) + " key");
    for (std::size_t c = 0; c < scale_.classes() && !pairs_.empty(); ++c)
      items.push_back({styles[c], scale_.text(c)});
    draw_legend(svg, 4, layout_.height + 10, kWidth, items);
    const double y = layout_.height + 36;
    double x = 4;
    const auto add = [&](double mark, const std::string& text) {
      svg.text(x + mark + 6, y + 4, text, "small");
      x += mark + 6 + text_width(text, 12) + 16;
    };
    if (!pairs_.empty()) {
      for (const double part : {1.0, 0.25}) {
        const Bytes wire = part * pairs_.back().wire;
        svg.path(fmt::format("M{} {}h26", coordinate(x), coordinate(y)), "link key-line",
                 thickness(wire), "");
        add(26, format_size(wire) + " a step");
      }
    }
    svg.circle(x + 6, y, 5, "site");
    add(12, "in use (of its devices)");
    svg.circle(x + 6, y, 5, "site-idle");
    add(12, "idle");
    svg.circle(x + 9, y, 8, "coordinator");
    svg.circle(x + 9, y, 4, "site");
    add(18, "coordinator");
  }

  std::string caption() const {
    std::string text;
    if (limit_ != nullptr) {
      text = fmt::format("The link {} – {} limits the step: 10 % more rate would save {}. ",
                         name_of_site(limit_->site), name_of_site(limit_->other),
                         format_duration(limit_->saved_by_rate));
    } else if (!pairs_.empty()) {
      text = "No single link's rate limits the step. ";
    }
    text += pairs_.empty() ? "Nothing is sent between sites."
                           : "Colour: what one flow gets on the slower of the two directions; "
                             "width: bytes of both directions in a step.";
    const auto leaves = [&](const PairTraffic& pair) { return lines_of(pair).size() > 1; };
    if (std::ranges::any_of(pairs_, leaves))
      text += " A link that leaves the map at one edge comes back at the other.";
    if (left_out_ > 0) text += fmt::format(" {} links that carry less are not drawn.", left_out_);
    if (!globe_) text += " The sites have no coordinates, so they stand in a circle.";
    return text;
  }

  const Topology& topology_;
  const Plan& plan_;
  const LinkSensitivity* const limit_;
  std::vector<PairTraffic> pairs_;
  RateScale scale_;
  std::size_t left_out_ = 0;
  std::vector<int> used_, present_;  // devices, by site
  std::optional<Globe> globe_;
  Layout layout_;
  LabelPlacer labels_{{}};
};

}  // namespace

Picture map_picture(const Planned& planned, const StepResult& step,
                    const Explanation& explanation) {
  return MapDrawing(planned, step, explanation).draw();
}

}  // namespace longhaul
