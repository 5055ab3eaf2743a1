// What-if edits that take sites, nodes, devices and links away or add them, and the percentile of
// the trace that all links come from.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/config_cursor.h"
#include "core/quantity.h"
#include "netsim/known_links.h"
#include "tools/what_if_world.h"

namespace longhaul {
namespace {

/// Of a link that was removed: whatever takes it, an empty message included, takes forever. Finite,
/// so that a search finds its way around it.
constexpr Seconds kRemovedLatency(86400);
constexpr BytesPerSecond kRemovedRate(1);

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// What stays of a topology, by site, node and device.
struct Kept {
  std::vector<char> sites;
  std::vector<char> nodes;
  std::vector<char> devices;
};

/// The numbers that the kept ones get.
std::vector<int> renumbered(const std::vector<char>& kept) {
  std::vector<int> numbers;
  int next = 0;
  for (const char each : kept) numbers.push_back(each != 0 ? next++ : -1);
  return numbers;
}

template <class T>
void keep(std::vector<T>& all, const std::vector<char>& kept) {
  std::size_t next = 0;
  std::erase_if(all, [&](const T&) { return kept[next++] == 0; });
}

Topology with_only(const Topology& topology, Kept kept) {
  for (std::size_t n = 0; n < topology.nodes.size(); ++n)
    kept.nodes[n] = kept.nodes[n] != 0 && kept.sites[at(topology.nodes[n].site)] != 0;
  for (std::size_t d = 0; d < topology.devices.size(); ++d)
    kept.devices[d] = kept.devices[d] != 0 && kept.nodes[at(topology.devices[d].node)] != 0;
  Topology out = topology;
  std::vector<char> links;
  for (const char from : kept.sites) {
    for (const char to : kept.sites) links.push_back(from != 0 && to != 0);
  }
  keep(out.links, links);
  keep(out.sites, kept.sites);
  keep(out.nodes, kept.nodes);
  keep(out.devices, kept.devices);
  const std::vector<int> sites = renumbered(kept.sites);
  const std::vector<int> nodes = renumbered(kept.nodes);
  for (Node& node : out.nodes) node.site = sites[at(node.site)];
  for (Device& device : out.devices) {
    device.site = sites[at(device.site)];
    device.node = nodes[at(device.node)];
  }
  return out;
}

Kept everything(const Topology& topology) {
  return {std::vector<char>(topology.sites.size(), 1), std::vector<char>(topology.nodes.size(), 1),
          std::vector<char>(topology.devices.size(), 1)};
}

/// `site-N` that no node has yet.
std::string free_node_name(const Topology& topology, const std::string& site) {
  for (int n = 1;; ++n) {
    std::string name = fmt::format("{}-{}", site, n);
    if (std::ranges::find(topology.nodes, name, &Node::name) == topology.nodes.end()) return name;
  }
}

std::unexpected<Error> at_target(const Edit& edit, std::string message, std::string hint = "") {
  return wrong_edit(edit.text, edit.target.column, std::move(message), std::move(hint));
}

/// Adds the node and the devices of a cluster of one site to a site.
void add_devices(Topology& topology, const Topology& one, int site, Node node) {
  node.site = site;
  topology.nodes.push_back(node);
  int index = 0;
  for (const Device& device : one.devices) {
    const DeviceKind& kind = one.kind_of(static_cast<int>(&device - one.devices.data()));
    auto known = std::ranges::find(topology.kinds, kind.name, &DeviceKind::name);
    if (known == topology.kinds.end()) {
      topology.kinds.push_back(kind);
      known = topology.kinds.end() - 1;
    }
    topology.devices.push_back({fmt::format("{}/{}", node.name, index++),
                                static_cast<int>(topology.nodes.size()) - 1, site,
                                static_cast<int>(known - topology.kinds.begin())});
  }
}

}  // namespace

Result<void> World::edit_percentile(const Edit& edit) {
  const double value = edit.change.number;
  if (edit.change.how != Change::How::kSet || value < 0 || value > 100) {
    return wrong_edit(edit.text, edit.value.column,
                      fmt::format("`{}` is no percentile", edit.value.text),
                      "give a number from 0 to 100; 95 is a bad day in every respect");
  }
  Result<Topology> other = cluster_at_percentile(base_, value);
  if (!other) return wrong_edit(edit.text, 1, other.error().message, other.error().hint);
  const auto is_same = [](const Link& a, const Link& b) {
    return a.latency == b.latency && a.measured == b.measured && a.loss == b.loss;
  };
  percentile_ = value;
  if (std::ranges::equal(topology_.links, other->links, is_same))
    note("the trace says the same at other percentiles: it has one measurement a pair");
  topology_.links = std::move(other->links);
  return {};
}

Result<void> World::remove(const Edit& edit) {
  Kept kept = everything(topology_);
  if (edit.noun == "site") {
    LH_ASSIGN(const std::vector<int> sites, sites_of(edit, edit.target));
    for (const int s : sites) kept.sites[at(s)] = 0;
  } else if (edit.noun == "device") {
    LH_ASSIGN(const std::vector<int> devices, devices_of(edit));
    for (const int d : devices) kept.devices[at(d)] = 0;
  } else {
    const auto found = std::ranges::find(topology_.nodes, edit.target.text, &Node::name);
    if (found == topology_.nodes.end()) {
      std::vector<std::string> names;
      for (const Node& node : topology_.nodes) names.push_back(node.name);
      return at_target(edit, fmt::format("no node is named `{}`", edit.target.text),
                       did_you_mean(edit.target.text, names,
                                    "nodes are named as in the cluster file, such as oregon-1"));
    }
    kept.nodes[at(static_cast<int>(found - topology_.nodes.begin()))] = 0;
  }
  Topology left = with_only(topology_, std::move(kept));
  if (left.devices.empty())
    return at_target(edit,
                     fmt::format("without {} {} no device is left", edit.noun, edit.target.text));
  topology_ = std::move(left);
  std::erase_if(new_links_, [&](const auto& entry) {
    return topology_.find_site(entry.first.first) < 0 ||
           topology_.find_site(entry.first.second) < 0;
  });
  limit_all_by_tcp();  // where a rate is the slowest NIC's, that may be gone
  return {};
}

Result<void> World::remove_links(const Edit& edit) {
  LH_ASSIGN(const std::vector<Pair> pairs, links_of(edit));
  for (const Pair pair : pairs) removed_links_.insert(names_of(pair));
  return {};
}

Result<void> World::add_site(const Edit& edit) {
  const std::string& name = edit.target.text;
  if (topology_.find_site(name) >= 0) {
    return at_target(edit, fmt::format("there is a site `{}` already", name),
                     fmt::format("`add node {}:{}` adds a node to it", name, edit.devices));
  }
  Result<Topology> one = cluster_of_one_site(base_, name, edit.devices);
  if (!one) return at_target(edit, one.error().message, one.error().hint);
  LH_ASSIGN(const NewSiteLinks known, links_of_new_site(base_, topology_, name, percentile_));
  const int site = topology_.site_count();
  std::vector<Link> links;
  const auto add = [&](int from, int to, const std::optional<Link>& link) {
    links.push_back(link.value_or(Link{}));
    if (from == to) {
      if (!link) links.back() = one->link(0, 0);
      return;
    }
    const auto& from_name = from == site ? name : topology_.sites[at(from)].name;
    const auto& to_name = to == site ? name : topology_.sites[at(to)].name;
    new_links_[{from_name, to_name}] = link.has_value();
  };
  for (int from = 0; from < site; ++from) {
    for (int to = 0; to < site; ++to) links.push_back(topology_.link(from, to));
    add(from, site, known.others[at(from)].back);
  }
  for (int to = 0; to < site; ++to) add(site, to, known.others[at(to)].out);
  add(site, site, known.inside);
  topology_.sites.push_back(one->sites[0]);
  topology_.links = std::move(links);
  Node node = one->nodes[0];
  node.name = free_node_name(topology_, name);
  add_devices(topology_, *one, site, node);
  std::string source = known.source;
  if (!source.empty()) source += "; ";
  note(fmt::format(
      "{} is new: {}its uplink and NICs are unlimited and its egress is free, unless edits say it",
      name, source));
  return {};
}

Result<void> World::add_node(const Edit& edit) {
  LH_ASSIGN(const std::vector<int> sites, sites_of(edit, edit.target));
  Result<Topology> one = cluster_of_one_site(base_, edit.target.text, edit.devices);
  if (!one) return at_target(edit, one.error().message, one.error().hint);
  Node node = one->nodes[0];
  const auto like = std::ranges::find(topology_.nodes, sites[0], &Node::site);
  if (like != topology_.nodes.end()) {
    node = *like;
    node.address.clear();
  }
  node.name = free_node_name(topology_, edit.target.text);
  if (like != topology_.nodes.end() && node.nic.finite())
    note(fmt::format("{} is new: its NIC is that of {}", node.name, like->name));
  add_devices(topology_, *one, sites[0], node);
  limit_all_by_tcp();
  return {};
}

Result<void> World::check_rates() const {
  for (int from = 0; from < topology_.site_count(); ++from) {
    for (int to = 0; to < topology_.site_count(); ++to) {
      if (topology_.link(from, to).rate.finite()) continue;
      const auto [a, b] = names_of({from, to});
      return invalid(fmt::format("nothing limits the rate from {} to {}", a, b),
                     fmt::format("`link {}->{} bandwidth 500Mbit/s` says it", a, b));
    }
  }
  return {};
}

Result<void> World::complete_new_links() {
  std::map<int, std::set<int>> missing;  // by new site
  bool assumed = false;
  for (auto& [names, is_known] : new_links_) {
    if (removed_links_.contains(names)) continue;
    const Pair pair{topology_.find_site(names.first), topology_.find_site(names.second)};
    Link& own = link(pair);
    const Link& back = link({pair.second, pair.first});
    const bool back_known = new_links_.at({names.second, names.first});
    if (!is_known && !back_known) {
      if (pair.first < pair.second) missing[pair.second].insert(pair.first);
      continue;
    }
    if (!is_known) own.latency = back.latency;
    if (!own.measured.finite() && back.measured.finite()) {
      own.measured = back.measured;
      own.scope = back.scope;
      own.loss = back.loss;
    }
    assumed = assumed || !own.measured.finite();
  }
  if (!missing.empty()) {
    const auto& [site, others] = *missing.begin();
    const std::string& name = topology_.sites[at(site)].name;
    std::vector<std::string> names;
    for (const int other : others) names.push_back(topology_.sites[at(other)].name);
    return invalid(
        fmt::format("nothing says how far {} is from {}", name, fmt::join(names, ", ")),
        fmt::format(
            "--set 'link {}->* rtt 120ms' says it, and --links-like SITE takes the links of "
            "a site nearby",
            name));
  }
  new_links_.clear();
  if (assumed) note("links without a bandwidth get min(NIC, streams x window / RTT)");
  limit_all_by_tcp();
  LH_TRY(check_rates());
  for (const Pair pair : removed_links()) {
    link(pair).latency = kRemovedLatency;
    link(pair).rate = kRemovedRate;
  }
  return {};
}

}  // namespace longhaul
