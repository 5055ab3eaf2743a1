#include "netsim/simgrid_platform.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <pugixml.hpp>

#include "core/config_cursor.h"
#include "core/quantity.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxPoints = 100'000;
constexpr std::size_t kMaxLinks = 1'000'000;
constexpr int kMaxDepth = 32;  // zones in zones: routes go down them one by one

/// A number and a unit of SimGrid's: `98.75MBps`, `33.5ms`, `100Gf`.
std::optional<double> simgrid_quantity(std::string_view text, std::string_view base_units) {
  static const std::map<std::string_view, double> prefixes = {
      {"", 1},     {"k", 1e3},     {"M", 1e6},     {"G", 1e9},        {"T", 1e12},
      {"P", 1e15}, {"E", 1e18},    {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0},
      {"m", 1e-3}, {"Ti", 0x1p40}, {"K", 1e3}};
  const std::size_t unit = text.find_last_of("0123456789.");
  if (unit == std::string_view::npos) return std::nullopt;
  const Result<double> number = parse_number(text.substr(0, unit + 1));
  if (!number || *number < 0) return std::nullopt;
  const std::string_view name = text.substr(unit + 1);
  double value = 0;
  if (base_units == "s") {
    static const std::map<std::string_view, double> units = {
        {"ps", 1e12}, {"ns", 1e9},     {"us", 1e6},       {"ms", 1e3},
        {"s", 1},     {"m", 1.0 / 60}, {"h", 1.0 / 3600}, {"d", 1.0 / 86400}};
    const auto found = units.find(name);
    if (found == units.end()) return std::nullopt;
    value = *number / found->second;
  } else {
    const bool bits = base_units == "Bps" && name.ends_with("bps");
    const std::string_view base = bits ? "bps" : base_units;
    if (!name.ends_with(base)) return std::nullopt;
    const auto prefix = prefixes.find(name.substr(0, name.size() - base.size()));
    if (prefix == prefixes.end() || prefix->first == "m") return std::nullopt;
    value = *number * prefix->second / (bits ? 8 : 1);
  }
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

/// Turns the document into a platform; holds what every error needs.
class SimGridReader {
 public:
  SimGridReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<SimGridPlatform> read() {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed =
        document.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed) {
      return error_at(parsed.offset, fmt::format("not well-formed XML: {}", parsed.description()));
    }
    const pugi::xml_node root = document.document_element();
    if (std::string_view(root.name()) != "platform") {
      return error(root, fmt::format("`{}` is not SimGrid's `platform`", root.name()));
    }
    LH_TRY(known_attributes(root, {"version"}));
    const std::string_view version = root.attribute("version").value();
    if (version != "4" && version != "4.1") {
      return error(
          root, fmt::format("platform version `{}` is not read", version),
          "versions 4 and 4.1 are; SimGrid's simgrid_update_xml brings older files to 4.1");
    }
    int zones = 0;
    for (const pugi::xml_node& node : root.children()) {
      if (node.type() != pugi::node_element) continue;
      if (!is_zone(node)) return unknown(node, "a platform");
      if (++zones > 1) return error(node, "a platform has one outermost zone");
      LH_TRY(read_zone(node, -1, 0));
    }
    if (platform_.hosts.empty()) return error(root, "the platform has no host");
    return std::move(platform_);
  }

 private:
  using Point = SimGridPlatform::Point;
  using Edge = SimGridPlatform::Edge;
  using Zone = SimGridPlatform::Zone;

  std::unexpected<Error> error_at(std::ptrdiff_t offset, std::string message,
                                  std::string hint = "") const {
    const auto end = static_cast<std::size_t>(
        std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text_.size())));
    const std::string_view before = text_.substr(0, end);
    const auto line = 1 + std::ranges::count(before, '\n');
    const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
    return invalid_at({name_, static_cast<int>(line), static_cast<int>(end - start) + 1},
                      std::move(message), std::move(hint));
  }
  std::unexpected<Error> error(const pugi::xml_node& node, std::string message,
                               std::string hint = "") const {
    return error_at(node.offset_debug() - 1, std::move(message), std::move(hint));
  }
  std::unexpected<Error> unknown(const pugi::xml_node& node, std::string_view where) const {
    static const std::map<std::string_view, std::string_view> reasons = {
        {"bypassRoute", "bypasses change routes by rules that are not followed here"},
        {"bypassZoneRoute", "bypasses change routes by rules that are not followed here"},
        {"bypassASroute", "bypasses change routes by rules that are not followed here"},
        {"cluster", "write its hosts, links and routes out in a zone"},
        {"cabinet", "write its hosts, links and routes out in a zone"},
        {"peer", "coordinates of Vivaldi zones are not read"},
        {"config", "it changes SimGrid's models, which a platform alone does not show"},
        {"include", "put the file's text in its place"},
        {"trace", "availability profiles are not read"},
        {"trace_connect", "availability profiles are not read"},
    };
    const auto reason = reasons.find(node.name());
    return error(node, fmt::format("`{}` in {} is not read", node.name(), where),
                 reason == reasons.end() ? "" : std::string(reason->second));
  }

  Result<void> known_attributes(const pugi::xml_node& node,
                                std::initializer_list<std::string_view> known) const {
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      if (std::ranges::find(known, std::string_view(attribute.name())) != known.end()) continue;
      return error(node,
                   fmt::format("attribute `{}` of `{}` is not read", attribute.name(), node.name()),
                   fmt::format("known: {}", fmt::join(known, ", ")));
    }
    return {};
  }

  Result<std::string> text_of(const pugi::xml_node& node, const char* attribute) const {
    const std::string value = node.attribute(attribute).value();
    if (value.empty()) {
      return error(node, fmt::format("`{}` needs `{}`", node.name(), attribute));
    }
    if (std::ranges::any_of(value, [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
      return error(node, fmt::format("`{}` has a control character", attribute));
    }
    return value;
  }

  Result<double> quantity(const pugi::xml_node& node, const char* attribute,
                          std::string_view base_units, std::string_view example) const {
    LH_ASSIGN(const std::string text, text_of(node, attribute));
    const std::optional<double> value =
        simgrid_quantity(text.substr(0, text.find(',')), base_units);
    if (!value) {
      return error(node, fmt::format("`{}` is not a value of `{}`", text, attribute),
                   fmt::format("a number with its unit, such as {}", example));
    }
    return *value;
  }

  static bool is_zone(const pugi::xml_node& node) {
    const std::string_view name = node.name();
    return name == "zone" || name == "AS";
  }

  Result<int> add_point(const pugi::xml_node& node, int zone) {
    LH_ASSIGN(std::string name, text_of(node, "id"));
    if (platform_.points_.size() == kMaxPoints) {
      return error(node, fmt::format("more than {} hosts, routers and zones", kMaxPoints));
    }
    const int index = static_cast<int>(platform_.points_.size());
    if (!platform_.point_by_name_.emplace(name, index).second) {
      return error(node, fmt::format("the name `{}` appears twice", name));
    }
    platform_.points_.push_back({std::move(name), zone, -1});
    return index;
  }

  Result<void> read_zone(const pugi::xml_node& node, int outer, int depth) {
    if (depth == kMaxDepth) return error(node, fmt::format("zones nest deeper than {}", kMaxDepth));
    LH_TRY(known_attributes(node, {"id", "routing"}));
    LH_ASSIGN(const int point, add_point(node, outer));
    const std::string_view routing = node.attribute("routing").value();
    const bool full = routing == "Full";
    if (!full && routing != "Floyd" && routing != "Dijkstra" && routing != "DijkstraCache") {
      return error(node, fmt::format("routing `{}` is not read", routing),
                   "Full, Floyd, Dijkstra and DijkstraCache are");
    }
    const int zone = static_cast<int>(platform_.zones_.size());
    platform_.zones_.push_back(
        {point,
         full ? SimGridPlatform::Routing::kFull : SimGridPlatform::Routing::kShortest,
         {},
         {}});
    platform_.points_[static_cast<std::size_t>(point)].inner = zone;
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() == pugi::node_element) LH_TRY(read_element(child, zone, depth));
    }
    return {};
  }

  Result<void> read_element(const pugi::xml_node& node, int zone, int depth) {
    const std::string_view name = node.name();
    if (is_zone(node)) return read_zone(node, zone, depth + 1);
    if (name == "host") return read_host(node, zone);
    if (name == "link") return read_link(node);
    if (name == "route" || name == "zoneRoute" || name == "ASroute") {
      return read_route(node, zone, name != "route");
    }
    if (name == "router") {
      LH_TRY(known_attributes(node, {"id"}));
      LH_TRY(add_point(node, zone));
      return {};
    }
    if (name == "prop") return {};
    return unknown(node, "a zone");
  }

  Result<void> read_host(const pugi::xml_node& node, int zone) {
    LH_TRY(known_attributes(node, {"id", "speed", "core", "pstate"}));
    for (const pugi::xml_node& child : node.children()) {
      const std::string_view name = child.name();
      if (child.type() == pugi::node_element && name != "prop" && name != "disk") {
        return unknown(child, "a host");
      }
    }
    LH_ASSIGN(const int point, add_point(node, zone));
    LH_ASSIGN(const double speed, quantity(node, "speed", "f", "100Gf"));
    const std::string& name = platform_.points_[static_cast<std::size_t>(point)].name;
    platform_.host_by_name_.emplace(name, static_cast<int>(platform_.hosts.size()));
    platform_.hosts.push_back({name, FlopsPerSecond(speed)});
    return {};
  }

  Result<void> read_link(const pugi::xml_node& node) {
    LH_TRY(known_attributes(node, {"id", "bandwidth", "latency", "sharing_policy"}));
    LH_ASSIGN(const std::string name, text_of(node, "id"));
    LH_ASSIGN(const double bandwidth, quantity(node, "bandwidth", "Bps", "98.75MBps"));
    if (bandwidth == 0) return error(node, "a link's bandwidth is more than 0");
    double latency = 0;  // SimGrid's default
    if (node.attribute("latency")) {
      LH_ASSIGN(latency, quantity(node, "latency", "s", "33.5ms"));
    }
    const std::string_view policy = node.attribute("sharing_policy").as_string("SHARED");
    SimGridLink link{name, BytesPerSecond(bandwidth), Seconds(latency), SimGridPolicy::kShared};
    if (policy == "FATPIPE") link.policy = SimGridPolicy::kFatPipe;
    if (policy == "SPLITDUPLEX" || policy == "FULLDUPLEX") {
      if (link_exists(name)) return error(node, fmt::format("link `{}` appears twice", name));
      split_[name] = true;
      for (const char* end : {"_UP", "_DOWN"}) {
        link.name = name + end;
        LH_TRY(add_link(node, link));
      }
      return {};
    }
    if (policy != "SHARED" && policy != "FATPIPE") {
      return error(node, fmt::format("sharing policy `{}` is not read", policy),
                   "SHARED, FATPIPE and SPLITDUPLEX are");
    }
    return add_link(node, link);
  }

  bool link_exists(const std::string& name) const {
    return platform_.link_by_name_.contains(name) || split_.contains(name);
  }

  Result<void> add_link(const pugi::xml_node& node, const SimGridLink& link) {
    if (platform_.links.size() == kMaxLinks) return error(node, "too many links");
    if (link_exists(link.name))
      return error(node, fmt::format("link `{}` appears twice", link.name));
    platform_.link_by_name_.emplace(link.name, static_cast<int>(platform_.links.size()));
    platform_.links.push_back(link);
    return {};
  }

  /// The point that `attribute` names, which must be in `zone` (or below it when `inside`).
  Result<int> point_of(const pugi::xml_node& node, const char* attribute, int zone) const {
    LH_ASSIGN(const std::string name, text_of(node, attribute));
    const auto found = platform_.point_by_name_.find(name);
    if (found == platform_.point_by_name_.end()) {
      std::vector<std::string> names;
      for (const auto& [known, index] : platform_.point_by_name_) names.push_back(known);
      return error(node, fmt::format("`{}` names no host, router or zone above", name),
                   did_you_mean(name, names));
    }
    if (zone >= 0 && platform_.points_[static_cast<std::size_t>(found->second)].zone != zone) {
      return error(node, fmt::format("`{}` does not lie directly in this zone", name));
    }
    return found->second;
  }

  bool lies_inside(int point, int zone) const {
    for (int at = point; at >= 0;) {
      const int around = platform_.points_[static_cast<std::size_t>(at)].zone;
      if (around == zone) return true;
      at = around < 0 ? -1 : platform_.zones_[static_cast<std::size_t>(around)].point;
    }
    return false;
  }

  Result<int> gateway_of(const pugi::xml_node& node, const char* attribute, int end) const {
    const int inner = platform_.points_[static_cast<std::size_t>(end)].inner;
    if (inner < 0) return end;
    LH_ASSIGN(const int gateway, point_of(node, attribute, -1));
    if (!lies_inside(gateway, inner) ||
        platform_.points_[static_cast<std::size_t>(gateway)].inner >= 0) {
      return error(node, fmt::format("`{}` is no host or router inside `{}`",
                                     node.attribute(attribute).value(),
                                     platform_.points_[static_cast<std::size_t>(end)].name));
    }
    return gateway;
  }

  Result<void> read_route(const pugi::xml_node& node, int zone, bool between_zones) {
    if (between_zones) {
      LH_TRY(known_attributes(node, {"src", "dst", "gw_src", "gw_dst", "symmetrical"}));
    } else {
      LH_TRY(known_attributes(node, {"src", "dst", "symmetrical"}));
    }
    Edge edge;
    LH_ASSIGN(edge.from, point_of(node, "src", zone));
    LH_ASSIGN(edge.to, point_of(node, "dst", zone));
    if (!between_zones) {
      for (const int end : {edge.from, edge.to}) {
        if (platform_.points_[static_cast<std::size_t>(end)].inner >= 0) {
          return error(node, "a `route` joins hosts and routers; between zones write `zoneRoute`");
        }
      }
    }
    LH_ASSIGN(edge.gateway_from, gateway_of(node, "gw_src", edge.from));
    LH_ASSIGN(edge.gateway_to, gateway_of(node, "gw_dst", edge.to));
    Edge back{edge.to, edge.from, edge.gateway_to, edge.gateway_from, {}};
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() != pugi::node_element) continue;
      if (std::string_view(child.name()) != "link_ctn") return unknown(child, "a route");
      LH_TRY(read_crossing(child, edge, back));
    }
    std::ranges::reverse(back.links);
    const std::string_view symmetrical = node.attribute("symmetrical").as_string("YES");
    if (symmetrical != "YES" && symmetrical != "NO" && symmetrical != "yes" &&
        symmetrical != "no") {
      return error(node, fmt::format("`{}` is not a value of `symmetrical`", symmetrical),
                   "YES or NO");
    }
    LH_TRY(add_edge(node, zone, edge));
    if ((symmetrical == "YES" || symmetrical == "yes") && edge.from != edge.to) {
      return add_edge(node, zone, back);
    }
    return {};
  }

  /// One link of a route, and what the way back crosses there.
  Result<void> read_crossing(const pugi::xml_node& node, Edge& edge, Edge& back) const {
    LH_TRY(known_attributes(node, {"id", "direction"}));
    LH_ASSIGN(const std::string name, text_of(node, "id"));
    const std::string_view direction = node.attribute("direction").as_string("NONE");
    const bool split = split_.contains(name);
    if (split && direction != "UP" && direction != "DOWN") {
      return error(node,
                   fmt::format("link `{}` is SPLITDUPLEX: its `direction` is UP or DOWN", name));
    }
    if (!split && direction != "NONE") {
      return error(node, fmt::format("link `{}` has no directions", name),
                   "its sharing_policy would be SPLITDUPLEX");
    }
    const bool up = direction == "UP";
    const auto there = platform_.link_by_name_.find(!split ? name : name + (up ? "_UP" : "_DOWN"));
    const auto again = platform_.link_by_name_.find(!split ? name : name + (up ? "_DOWN" : "_UP"));
    if (there == platform_.link_by_name_.end() || again == platform_.link_by_name_.end()) {
      std::vector<std::string> names;
      for (const auto& [known, index] : platform_.link_by_name_) names.push_back(known);
      return error(node, fmt::format("no link above is named `{}`", name),
                   did_you_mean(name, names));
    }
    edge.links.push_back(there->second);
    back.links.push_back(again->second);
    return {};
  }

  Result<void> add_edge(const pugi::xml_node& node, int zone_index, Edge edge) {
    Zone& zone = platform_.zones_[static_cast<std::size_t>(zone_index)];
    const std::pair key{edge.from, edge.to};
    if (!zone.edge_between.emplace(key, static_cast<int>(zone.edges.size())).second) {
      const auto name = [this](int point) {
        return platform_.points_[static_cast<std::size_t>(point)].name;
      };
      return error(
          node,
          fmt::format("a route from `{}` to `{}` is already there", name(edge.from), name(edge.to)),
          "routes are symmetrical unless they say symmetrical=\"NO\"");
    }
    zone.edges.push_back(std::move(edge));
    return {};
  }

  std::string_view text_;
  const std::string& name_;
  SimGridPlatform platform_;
  std::map<std::string, bool> split_;  // SPLITDUPLEX links
};

Result<SimGridPlatform> parse_simgrid_platform(std::string_view text, const std::string& name) {
  return SimGridReader(text, name).read();
}

}  // namespace longhaul
