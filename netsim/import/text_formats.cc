// Formats that are neither tables nor JSON: ping, Shadow's graphs, ASTRA-sim's network files, and
// SimGrid platforms.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "core/config_cursor.h"
#include "core/config_errors.h"
#include "core/quantity.h"
#include "netsim/csv_text.h"
#include "netsim/import/importer.h"
#include "netsim/simgrid_platform.h"

namespace longhaul {
namespace {

// ---- ping

/// The number that begins right after `before` in `line`.
std::optional<double> number_after(std::string_view line, std::string_view before) {
  const std::size_t at = line.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + before.size());
  const std::size_t end = rest.find_first_not_of("0123456789.");
  const Result<double> number = parse_number(rest.substr(0, end));
  return number ? std::optional(*number) : std::nullopt;
}

/// The number that ends right before `after`.
std::optional<double> number_before(std::string_view line, std::string_view after) {
  const std::size_t end = line.find(after);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view head = line.substr(0, end);
  const std::size_t last = head.find_last_not_of("0123456789.");
  const Result<double> number =
      parse_number(head.substr(last == std::string_view::npos ? 0 : last + 1));
  return number ? std::optional(*number) : std::nullopt;
}

struct Reply {
  int line = 0;
  double rtt_ms = 0;
  std::optional<double> unix_s;
};

struct PingOutput {
  std::vector<Reply> replies;
  std::optional<double> loss;
  std::optional<double> mean_ms;
  std::optional<double> deviation_ms;
  int summary_line = 0;
  bool has_unread_replies = false;  // in a language other than English
};

PingOutput read_ping(std::string_view text) {
  PingOutput out;
  TextLines lines(text);
  while (lines.next()) {
    const std::string_view line = lines.line();
    if (line.contains("icmp_seq") || line.contains("bytes from")) {
      // `time<1 ms` is below what was measured: taken for it.
      auto rtt = number_after(line, " time=");
      if (!rtt) rtt = number_after(line, " time<");
      if (rtt) {
        out.replies.push_back({lines.number(), *rtt, std::nullopt});
        if (line.starts_with('[')) out.replies.back().unix_s = number_after(line, "[");
      } else if (line.contains("ttl=")) {
        out.has_unread_replies = true;
      }
    } else if (line.contains("packet loss")) {
      if (const auto percent = number_before(line, "% packet loss")) out.loss = *percent / 100;
    } else if (line.starts_with("rtt ") || line.starts_with("round-trip ")) {
      // rtt min/avg/max/mdev = 0.039/0.103/0.227/0.087 ms
      out.summary_line = lines.number();
      const std::size_t equals = line.find('=');
      std::string_view rest = equals == std::string_view::npos ? "" : line.substr(equals + 1);
      std::array<std::optional<double>, 4> values;
      for (auto& value : values) {
        const std::size_t end = std::min(rest.find_first_of("/ ", 1), rest.size());
        const Result<double> number = parse_number(trimmed(rest.substr(0, end)));
        if (number) value = *number;
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      out.mean_ms = values[1];
      out.deviation_ms = values[3];
    }
  }
  return out;
}

// ---- Shadow's GML

/// A quantity as Shadow writes it: `10 ms`, `1 Gbit`, `50 milliseconds`.
std::optional<double> shadow_quantity(std::string_view text,
                                      const std::map<std::string_view, double>& units) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  const Result<double> number = parse_number(text.substr(0, end));
  const auto unit = units.find(trimmed(text.substr(end)));
  if (!number || unit == units.end()) return std::nullopt;
  return *number * unit->second;
}

std::optional<double> shadow_seconds(std::string_view text) {
  static const std::map<std::string_view, double> units = {{"ns", 1e-9},
                                                           {"nanosecond", 1e-9},
                                                           {"nanoseconds", 1e-9},
                                                           {"us", 1e-6},
                                                           {"\u03bcs", 1e-6},
                                                           {"microsecond", 1e-6},
                                                           {"microseconds", 1e-6},
                                                           {"ms", 1e-3},
                                                           {"millisecond", 1e-3},
                                                           {"milliseconds", 1e-3},
                                                           {"s", 1},
                                                           {"sec", 1},
                                                           {"secs", 1},
                                                           {"second", 1},
                                                           {"seconds", 1}};
  return shadow_quantity(text, units);
}

std::optional<double> shadow_bits(std::string_view text) {
  static const std::map<std::string_view, double> units = {
      {"bit", 1},           {"bits", 1},           {"Kbit", 1e3},
      {"kilobit", 1e3},     {"kilobits", 1e3},     {"Mbit", 1e6},
      {"megabit", 1e6},     {"megabits", 1e6},     {"Gbit", 1e9},
      {"gigabit", 1e9},     {"gigabits", 1e9},     {"Kibit", 1024},
      {"kibibit", 1024},    {"kibibits", 1024},    {"Mibit", 1048576},
      {"mebibit", 1048576}, {"Gibit", 1073741824}, {"gibibit", 1073741824}};
  return shadow_quantity(text, units);
}

/// One `node [ ... ]` or `edge [ ... ]`: its keys, flat.
struct GmlItem {
  std::string kind;
  int line = 0;
  std::map<std::string, std::string> values;
};

struct GmlToken {
  std::string text;
  int line = 0;
  bool quoted = false;
};

Result<std::vector<GmlToken>> gml_tokens(std::string_view text, const Importer& importer) {
  std::vector<GmlToken> tokens;
  TextLines lines(text);
  while (lines.next()) {
    std::string_view line = lines.line();
    while (!(line = trimmed(line)).empty() && line.front() != '#') {
      std::size_t end = 1;
      const bool quoted = line.front() == '"';
      if (quoted) {
        end = line.find('"', 1);
        if (end == std::string_view::npos) {
          return importer.error(lines.number(), 0, "a text in quotes does not end on its line");
        }
        tokens.push_back({std::string(line.substr(1, end - 1)), lines.number(), true});
        ++end;
      } else {
        if (line.front() != '[' && line.front() != ']') end = line.find_first_of(" \t[]\"");
        end = std::min(end, line.size());
        tokens.push_back({std::string(line.substr(0, end)), lines.number(), false});
      }
      line.remove_prefix(end);
    }
  }
  return tokens;
}

struct GmlGraph {
  bool directed = false;
  std::vector<GmlItem> items;
};

Result<GmlGraph> read_gml(std::string_view text, const Importer& importer) {
  LH_ASSIGN(const std::vector<GmlToken> tokens, gml_tokens(text, importer));
  GmlGraph graph;
  std::size_t at = 0;
  const auto is = [&](std::string_view word) {
    return at < tokens.size() && !tokens[at].quoted && tokens[at].text == word;
  };
  const auto line = [&] {
    return tokens.empty() ? 0 : tokens[std::min(at, tokens.size() - 1)].line;
  };
  const auto early = [&] { return importer.error(line(), 0, "the graph ends too early"); };
  if (!is("graph")) return importer.error(line(), 0, "a Shadow graph begins with `graph [`");
  ++at;
  if (!is("[")) return importer.error(line(), 0, "`[` is missing after `graph`");
  ++at;
  while (!is("]")) {
    if (at + 1 >= tokens.size()) return early();
    const GmlToken& key = tokens[at++];
    if (!is("[")) {
      if (key.text == "directed") graph.directed = tokens[at].text == "1";
      ++at;
      continue;
    }
    ++at;
    GmlItem item{key.text, key.line, {}};
    if (item.kind != "node" && item.kind != "edge") {
      return importer.error(key.line, 0, fmt::format("{} in a graph is not read", shown(key.text)));
    }
    while (!is("]")) {
      if (at + 1 >= tokens.size()) return early();
      const GmlToken& name = tokens[at++];
      if (is("[") || is("]")) {
        return importer.error(name.line, 0, fmt::format("{} has no value", shown(name.text)));
      }
      item.values[name.text] = tokens[at++].text;
    }
    ++at;
    graph.items.push_back(std::move(item));
  }
  return graph;
}

struct ShadowNode {
  std::string name;
  double up = 0;
  double down = 0;
};

class ShadowReader {
 public:
  ShadowReader(const GmlGraph& graph, Importer& importer) : graph_(graph), importer_(importer) {}

  Result<void> read() {
    for (const GmlItem& item : graph_.items) {
      if (item.kind == "node") LH_TRY(read_node(item));
    }
    importer_.assume(
        "latencies of edges are one way; a pair's rate is the lesser of what the source "
        "may send and the target receive; ways over several edges are not built");
    for (const GmlItem& item : graph_.items) {
      if (item.kind == "edge") LH_TRY(read_edge(item));
    }
    return {};
  }

 private:
  static std::string value(const GmlItem& item, const std::string& key) {
    const auto found = item.values.find(key);
    return found == item.values.end() ? "" : found->second;
  }

  Result<void> read_node(const GmlItem& item) {
    const std::string id = value(item, "id");
    if (id.empty()) return importer_.error(item.line, 0, "a node has no `id`");
    ShadowNode node{value(item, "label").empty() ? "node " + id : value(item, "label")};
    for (const auto& [key, target] :
         {std::pair("host_bandwidth_up", &node.up), std::pair("host_bandwidth_down", &node.down)}) {
      const std::string text = value(item, key);
      if (text.empty()) continue;
      const auto bits = shadow_bits(text);
      if (!bits) {
        return importer_.error(item.line, 0,
                               fmt::format("{} is no value of `{}`", shown(text), key),
                               "bits with their unit, such as \"1 Gbit\"");
      }
      *target = *bits / 8;
    }
    if (!nodes_.emplace(id, node).second) {
      return importer_.error(item.line, 0, fmt::format("node {} appears twice", shown(id)));
    }
    return {};
  }

  Result<void> read_edge(const GmlItem& item) {
    const auto from = nodes_.find(value(item, "source"));
    const auto to = nodes_.find(value(item, "target"));
    if (from == nodes_.end() || to == nodes_.end()) {
      return importer_.error(item.line, 0, "an edge's `source` or `target` is no node's id");
    }
    const auto latency = shadow_seconds(value(item, "latency"));
    if (!latency) {
      return importer_.error(
          item.line, 0, fmt::format("{} is no value of `latency`", shown(value(item, "latency"))),
          "a time with its unit, such as \"10 ms\"");
    }
    Measurement one{
        .latency = Seconds(*latency), .basis = LatencyBasis::kOneWay, .line = item.line};
    if (const std::string loss = value(item, "packet_loss"); !loss.empty()) {
      const Result<double> number = parse_number(loss);
      if (!number) {
        return importer_.error(item.line, 0, fmt::format("{} is no packet_loss", shown(loss)));
      }
      one.loss = *number;
    }
    if (const auto jitter = shadow_seconds(value(item, "jitter"))) one.jitter = Seconds(*jitter);
    one.origin = Origin::kModelled;
    LH_TRY(add(one, from->second, to->second));
    if (graph_.directed || from == to) return {};
    return add(one, to->second, from->second);
  }

  Result<void> add(Measurement one, const ShadowNode& from, const ShadowNode& to) {
    one.from = from.name;
    one.to = to.name;
    if (from.up > 0 && to.down > 0) one.rate = BytesPerSecond(std::min(from.up, to.down));
    return importer_.add(std::move(one));
  }

  const GmlGraph& graph_;
  Importer& importer_;
  std::map<std::string, ShadowNode> nodes_;
};

// ---- ASTRA-sim

struct Dimension {
  std::string topology;
  std::int64_t size = 0;
  BytesPerSecond bandwidth;
  Seconds latency;
};

/// What a message between two members of a dimension takes; nothing where pairs differ.
std::optional<Seconds> latency_between(const Dimension& dimension) {
  if (dimension.topology == "FullyConnected") return dimension.latency;
  if (dimension.topology == "Switch") return dimension.latency * 2;  // to the switch and on
  if (dimension.topology == "Ring" && dimension.size <= 3) return dimension.latency;
  return std::nullopt;
}

}  // namespace

Result<void> import_ping(const ImportFile& file, Importer& importer) {
  importer.recognise("ping");
  const PingOutput ping = read_ping(file.text);
  const std::size_t received = ping.replies.size();
  if (received == 0 && !ping.mean_ms) {
    if (ping.loss == 1.0) return importer.error("every packet was lost");
    const bool foreign = ping.has_unread_replies;
    return importer.error(
        foreign ? "this ping was printed in another language" : "no reply to a ping",
        foreign ? "run it as: LC_ALL=C ping -D HOST" : "");
  }
  LH_ASSIGN(const LatencyBasis basis,
            importer.basis(LatencyBasis::kRoundTrip, "ping times them, in ms", 0, "the latencies"));
  LH_ASSIGN(const auto pair, importer.pair());
  if (!ping.loss)
    importer.assume("the summary is missing (was ping cut off?), so losses are not known");
  Measurement one{.from = pair.first, .to = pair.second, .basis = basis, .loss = ping.loss};
  if (ping.deviation_ms) one.jitter = milliseconds(*ping.deviation_ms);
  const double divide = basis == LatencyBasis::kRoundTrip ? 2 : 1;
  const bool timed = received > 0 && std::ranges::all_of(ping.replies, [](const Reply& reply) {
                       return reply.unix_s.has_value();
                     });
  if (timed) {
    importer.expect_series();
    for (const Reply& reply : ping.replies) {
      one.unix_s = reply.unix_s;
      one.latency = milliseconds(reply.rtt_ms / divide);
      one.line = reply.line;
      LH_TRY(importer.add(one));
    }
    return {};
  }
  double mean = ping.mean_ms.value_or(0);
  if (!ping.mean_ms) {
    for (const Reply& reply : ping.replies) mean += reply.rtt_ms / static_cast<double>(received);
  }
  one.latency = milliseconds(mean / divide);
  one.line = ping.summary_line;
  return importer.add(std::move(one));
}

Result<void> import_shadow(const ImportFile& file, Importer& importer) {
  importer.recognise("shadow");
  LH_ASSIGN(const GmlGraph graph, read_gml(file.text, importer));
  return ShadowReader(graph, importer).read();
}

Result<void> import_astra(const ImportFile& file, Importer& importer) {
  importer.recognise("astra-sim");
  LH_ASSIGN(ConfigFile config, ConfigFile::parse(file.text, file.name));
  std::vector<Dimension> dimensions;
  const Cursor root = config.root();
  const auto topology = root.key("topology").items();
  const auto sizes = root.key("npus_count").items();
  const auto bandwidths = root.key("bandwidth").items();
  const auto latencies = root.key("latency").items();
  if (topology.size() != sizes.size() || topology.size() != bandwidths.size() ||
      topology.size() != latencies.size()) {
    root.fail("topology, npus_count, bandwidth and latency have different numbers of dimensions");
  } else {
    for (std::size_t i = 0; i < topology.size(); ++i) {
      dimensions.push_back(
          {topology[i].text(), sizes[i].integer({.min = 1, .max = 1024}, 1),
           gibibytes(bandwidths[i].number({.min = 1e-6, .max = 1e6}, 1)) / seconds(1),
           Seconds(latencies[i].number({.min = 0, .max = 6e10}) / 1e9)});
    }
  }
  LH_TRY(config.finish());
  const std::size_t last = dimensions.size() - 1;
  const Dimension& outer = dimensions[last];
  const std::optional<Seconds> between = latency_between(outer);
  if (!between) {
    return importer.error(
        fmt::format("the last dimension is a {} of {}: its pairs are not alike, and a trace is "
                    "about pairs",
                    shown(outer.topology), outer.size),
        "Switch, FullyConnected, and a Ring of at most 3 are read");
  }
  importer.assume(
      fmt::format("the last dimension joins {} places, the others lie inside them; GB/s is 2^30 "
                  "bytes a second, "
                  "latency is one way in ns, a Switch is two links; one stream",
                  outer.size));
  const auto place = [](std::int64_t index) { return fmt::format("place-{}", index); };
  Measurement one{.basis = LatencyBasis::kOneWay, .origin = Origin::kModelled};
  one.latency = *between;
  one.rate = outer.bandwidth;
  for (std::int64_t i = 0; i < outer.size; ++i) {
    for (std::int64_t j = 0; j < outer.size; ++j) {
      one.from = place(i);
      one.to = place(j);
      if (i != j) LH_TRY(importer.add(one));
    }
  }
  if (dimensions.size() == 1) return {};
  if (dimensions.size() == 2) {
    importer.assume("dimension 1 lies inside a node: a cluster file has it as the node's `inside`");
    return {};
  }
  const Dimension& inner = dimensions[last - 1];
  const std::optional<Seconds> inside = latency_between(inner);
  if (!inside) {
    importer.assume(fmt::format("dimension {} (a {}) is left out: its pairs are not alike", last,
                                shown(inner.topology)));
    return {};
  }
  one.latency = *inside;
  one.rate = inner.bandwidth;
  for (std::int64_t i = 0; i < outer.size; ++i) {
    one.from = one.to = place(i);
    LH_TRY(importer.add(one));
  }
  return {};
}

Result<void> import_simgrid(const ImportFile& file, Importer& importer) {
  importer.recognise("simgrid");
  LH_ASSIGN(const SimGridPlatform platform, parse_simgrid_platform(file.text, file.name));
  constexpr std::size_t kMaxHosts = 1024;
  if (platform.hosts.size() > kMaxHosts) {
    return importer.error(
        fmt::format("{} hosts; a trace has at most {} places", platform.hosts.size(), kMaxHosts));
  }
  importer.assume(
      "each pair of hosts gets its route's latency (one way) and least bandwidth, one stream; that "
      "routes share links is not in a trace, nor are SimGrid's factors (0.97 of the bandwidth)");
  std::size_t without = 0;
  for (const SimGridHost& from : platform.hosts) {
    for (const SimGridHost& to : platform.hosts) {
      if (&from == &to) continue;
      const Result<SimGridRoute> route = platform.route(from.name, to.name);
      if (!route || route->links.empty()) {
        ++without;
        continue;
      }
      const BytesPerSecond rate = platform.bottleneck(*route);
      const bool shared = std::ranges::any_of(route->links, [&](int link) {
        const SimGridLink& at = platform.links[static_cast<std::size_t>(link)];
        return at.bandwidth == rate && at.policy == SimGridPolicy::kShared;
      });
      LH_TRY(importer.add({.from = from.name,
                           .to = to.name,
                           .latency = route->latency,
                           .basis = LatencyBasis::kOneWay,
                           .rate = rate,
                           .scope = shared ? LinkScope::kSitePair : LinkScope::kNode,
                           .origin = Origin::kModelled}));
    }
  }
  if (without > 0) importer.assume(fmt::format("{} pairs of hosts have no route", without));
  return {};
}

}  // namespace longhaul
