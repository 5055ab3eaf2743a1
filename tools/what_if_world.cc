#include "tools/what_if_world.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/config_cursor.h"
#include "core/config_edit.h"
#include "core/quantity.h"
#include "netsim/known_links.h"

namespace longhaul {
namespace {

using How = Change::How;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// How far a value may go, and what to say of one that goes too far.
struct Range {
  double min = 0;
  double max = HUGE_VAL;
  bool min_allowed = true;
  std::string_view text = "not be negative";
};

std::unexpected<Error> at_value(const Edit& edit, std::string message, std::string hint = "") {
  return wrong_edit(edit.text, edit.value.column, std::move(message), std::move(hint));
}

/// The new value of `old`; `subject` is what has it.
Result<double> changed(const Edit& edit, double old, const std::string& subject,
                       const Range& range = {}) {
  const double value = edit.change.of(old);
  const bool is_in = std::isfinite(value) && value <= range.max &&
                     (range.min_allowed ? value >= range.min : value > range.min);
  if (!is_in) return at_value(edit, fmt::format("{} must {}", subject, range.text));
  return value;
}

constexpr Range kPositive{0, HUGE_VAL, false, "be more than 0"};

/// A rate or a window, which may be unlimited. `old` infinite: there is nothing to change.
Result<double> changed_limit(const Edit& edit, double old, const std::string& subject) {
  if (edit.change.how == How::kWord) return HUGE_VAL;
  if (edit.change.how != How::kSet && !std::isfinite(old)) {
    return at_value(
        edit,
        fmt::format("{} is unlimited, which cannot be changed by `{}`", subject, edit.value.text),
        "give the value itself, such as 10 Gbit/s");
  }
  return changed(edit, old, subject, kPositive);
}

/// A count of streams; 0: auto.
Result<int> changed_streams(const Edit& edit, int old, const std::string& subject) {
  if (edit.change.how == How::kWord) return 0;
  static const std::string text =
      fmt::format("be a whole number from 1 to {}, or auto", kMaxStreams);
  const Range range{1, kMaxStreams, true, text};
  LH_ASSIGN(const double value, changed(edit, old, subject, range));
  if (edit.change.how == How::kSet && value != std::floor(value)) {
    return at_value(edit, fmt::format("{} must {}", subject, text));
  }
  return static_cast<int>(std::round(value));
}

std::vector<std::string> names_in(const auto& all) {
  std::vector<std::string> names;
  for (const auto& each : all) names.push_back(each.name);
  return names;
}

std::string list_of(std::string_view what, const std::vector<std::string>& names) {
  constexpr std::size_t kListed = 12;
  const std::size_t shown = std::min(names.size(), kListed);
  return fmt::format(
      "{}: {}{}", what,
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < names.size() ? ", ..." : "");
}

}  // namespace

World::World(const WhatIfBase& base)
    : base_(base), topology_(base.topology), job_(base.job), job_text_(base.job_text) {}

Result<void> World::apply(const std::vector<Edit>& edits) {
  for (const bool percentiles : {true, false}) {
    for (const Edit& edit : edits) {
      if ((edit.verb == EditVerb::kPercentile) != percentiles) continue;
      if (Result<void> done = apply_one(edit); !done)
        return in_option(edit.option, std::move(done).error());
    }
  }
  LH_TRY(complete_new_links());
  if (topology_.devices.empty()) return invalid("no device is left");
  return {};
}

Result<void> World::apply_one(const Edit& edit) {
  switch (edit.verb) {
    case EditVerb::kLink:
    case EditVerb::kInside:
      return edit_link(edit);
    case EditVerb::kSite:
      return edit_site(edit);
    case EditVerb::kNode:
      return edit_node(edit);
    case EditVerb::kDevice:
      return edit_device(edit);
    case EditVerb::kTcp:
      return edit_tcp(edit);
    case EditVerb::kJob:
      return edit_job(edit);
    case EditVerb::kPercentile:
      return edit_percentile(edit);
    case EditVerb::kRemove:
      return edit.noun == "link" ? remove_links(edit) : remove(edit);
    case EditVerb::kAdd:
      return edit.noun == "site" ? add_site(edit) : add_node(edit);
  }
  return {};
}

// ---- who is meant

Result<std::vector<int>> World::sites_of(const Edit& edit, const EditWord& word) const {
  std::vector<int> sites;
  for (int s = 0; s < topology_.site_count(); ++s) {
    if (word.text == "*" || topology_.sites[at(s)].name == word.text) sites.push_back(s);
  }
  if (!sites.empty()) return sites;
  const std::vector<std::string> names = names_in(topology_.sites);
  return wrong_edit(edit.text, word.column, fmt::format("no site is named `{}`", word.text),
                    did_you_mean(word.text, names, list_of("sites", names)));
}

Result<std::vector<World::Pair>> World::links_of(const Edit& edit) const {
  LH_ASSIGN(const std::vector<int> from, sites_of(edit, edit.target));
  std::vector<Pair> pairs;
  if (edit.verb == EditVerb::kInside) {
    for (const int site : from) pairs.emplace_back(site, site);
    return pairs;
  }
  LH_ASSIGN(const std::vector<int> to, sites_of(edit, edit.to));
  const bool goes_back = edit.both_ways || edit.property == Property::kRoundTrip;
  for (const int a : from) {
    for (const int b : to) {
      if (a == b) continue;
      pairs.emplace_back(a, b);
      if (goes_back) pairs.emplace_back(b, a);
    }
  }
  std::ranges::sort(pairs);
  const auto again = std::ranges::unique(pairs);
  pairs.erase(again.begin(), again.end());
  if (!pairs.empty()) return pairs;
  if (from == to && from.size() == 1 && edit.target.text != "*") {
    return wrong_edit(edit.text, edit.target.column, "a link leads from one site to another",
                      fmt::format("write `inside {}` for the network inside it", edit.target.text));
  }
  return wrong_edit(edit.text, edit.target.column, "one site has no links to others");
}

Result<std::vector<int>> World::devices_of(const Edit& edit) const {
  const std::string& name = edit.target.text;
  std::vector<int> devices;
  for (int d = 0; d < topology_.device_count(); ++d) {
    if (name == "*" || topology_.devices[at(d)].name == name || topology_.kind_of(d).name == name)
      devices.push_back(d);
  }
  if (!devices.empty()) return devices;
  std::vector<std::string> kinds;
  for (int d = 0; d < topology_.device_count(); ++d) {
    if (std::ranges::find(kinds, topology_.kind_of(d).name) == kinds.end())
      kinds.push_back(topology_.kind_of(d).name);
  }
  std::vector<std::string> names = kinds;
  for (const Device& device : topology_.devices) names.push_back(device.name);
  return wrong_edit(
      edit.text, edit.target.column, fmt::format("no device and no kind is named `{}`", name),
      did_you_mean(name, names, list_of("kinds", kinds) + "; devices are named node/index"));
}

World::Names World::names_of(Pair pair) const {
  return {topology_.sites[at(pair.first)].name, topology_.sites[at(pair.second)].name};
}

Link& World::link(Pair pair) {
  return topology_.links[at(pair.first * topology_.site_count() + pair.second)];
}

std::vector<std::pair<int, int>> World::removed_links() const {
  std::vector<Pair> pairs;
  for (const auto& [from, to] : removed_links_) {
    const Pair pair{topology_.find_site(from), topology_.find_site(to)};
    if (pair.first >= 0 && pair.second >= 0) pairs.push_back(pair);
  }
  return pairs;
}

void World::note(std::string text) {
  if (std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(std::move(text));
}

// ---- edits of the network

void World::limit_all_by_tcp() {
  for (int from = 0; from < topology_.site_count(); ++from) {
    for (int to = 0; to < topology_.site_count(); ++to) {
      if (!new_links_.contains(names_of({from, to}))) limit_by_tcp(topology_, from, to);
    }
  }
}

Result<void> World::edit_link(const Edit& edit) {
  LH_ASSIGN(const std::vector<Pair> pairs, links_of(edit));
  for (const Pair pair : pairs) {
    if (removed_links_.contains(names_of(pair))) {
      return wrong_edit(edit.text, edit.target.column,
                        fmt::format("the link {} -> {} was removed", names_of(pair).first,
                                    names_of(pair).second));
    }
    LH_TRY(change_link(edit, pair));
  }
  // Of new sites' links, both directions must be known first: complete_new_links does those.
  std::size_t bound = 0;
  Pair first_bound;
  for (const Pair pair : pairs) {
    const bool is_new = new_links_.contains(names_of(pair));
    if (is_new) continue;
    limit_by_tcp(topology_, pair.first, pair.second);
    limit_by_tcp(topology_, pair.second, pair.first);
    const bool is_bound =
        edit.property == Property::kBandwidth && link(pair).rate < link(pair).measured * (1 - 1e-9);
    if (is_bound && bound++ == 0) first_bound = pair;
  }
  if (bound > 0) {
    const Link& one = link(first_bound);
    const auto [from, to] = names_of(first_bound);
    note(fmt::format(
        "{}: TCP lets no more than {} through from {} to {} ({} {} at {} round trip){}", edit.text,
        format_bit_rate(one.rate), from, to, one.streams, one.streams == 1 ? "stream" : "streams",
        format_duration(one.latency + link({first_bound.second, first_bound.first}).latency),
        bound > 1 ? fmt::format(", and so on {} more links", bound - 1) : ""));
  }
  if (edit.property == Property::kJitter) note("jitter is not simulated: it changes no step");
  if (edit.property == Property::kLoss && topology_.tcp.congestion == CongestionControl::kBbr)
    note("loss slows no link under bbr; `tcp congestion cubic` prices it");
  return {};
}

Result<void> World::change_link(const Edit& edit, Pair pair) {
  Link& changing = link(pair);
  const auto [from, to] = names_of(pair);
  const std::string subject = pair.first == pair.second
                                  ? fmt::format("the {{}} inside {}", from)
                                  : fmt::format("the {{}} from {} to {}", from, to);
  const auto named = [&](std::string_view what) {
    return fmt::format(fmt::runtime(subject), what);
  };
  const auto fresh = new_links_.find({from, to});
  switch (edit.property) {
    case Property::kBandwidth: {
      const bool is_relative = edit.change.how != How::kSet;
      // Where nothing was measured, what it is taken to be is what is changed.
      const BytesPerSecond old = fresh != new_links_.end()
                                     ? changing.measured
                                     : limit_by_tcp(topology_, pair.first, pair.second);
      if (is_relative && !old.finite()) {
        return at_value(edit, fmt::format("{} is not known yet", named("bandwidth")),
                        "give the bandwidth itself first");
      }
      LH_ASSIGN(const double rate, changed(edit, old.value(), named("bandwidth"), kPositive));
      if (is_relative && rate == old.value()) return {};
      changing.measured = BytesPerSecond(rate);
      changing.rate_origin = Origin::kGiven;
      return {};
    }
    case Property::kLatency:
    case Property::kRoundTrip: {
      if (fresh != new_links_.end() && !fresh->second && edit.change.how != How::kSet) {
        return at_value(edit, fmt::format("{} is not known yet", named("latency")),
                        "give the latency itself first");
      }
      Edit one_way = edit;
      const bool is_amount = edit.change.how != How::kTimes && edit.change.how != How::kOver;
      if (edit.property == Property::kRoundTrip && is_amount) one_way.change.number /= 2;
      LH_ASSIGN(const double latency, changed(one_way, changing.latency.value(), named("latency")));
      changing.latency = Seconds(latency);
      changing.latency_origin = Origin::kGiven;
      if (fresh != new_links_.end()) fresh->second = true;
      return {};
    }
    case Property::kLoss: {
      const Range range{0, 0.999, true, "lie between 0 and 0.999"};
      LH_ASSIGN(changing.loss, changed(edit, changing.loss, named("loss"), range));
      return {};
    }
    case Property::kJitter: {
      LH_ASSIGN(const double jitter, changed(edit, changing.jitter.value(), named("jitter")));
      changing.jitter = Seconds(jitter);
      return {};
    }
    case Property::kScope:
      changing.scope = edit.change.word == "node" ? LinkScope::kNode : LinkScope::kSitePair;
      return {};
    default: {
      LH_ASSIGN(changing.streams_wanted,
                changed_streams(edit, changing.streams, named("number of streams")));
      return {};
    }
  }
}

Result<void> World::edit_site(const Edit& edit) {
  LH_ASSIGN(const std::vector<int> sites, sites_of(edit, edit.target));
  for (const int s : sites) {
    Site& site = topology_.sites[at(s)];
    if (edit.property == Property::kEgress) {
      LH_ASSIGN(site.egress_usd_per_byte,
                changed(edit, site.egress_usd_per_byte,
                        fmt::format("the egress price of {}", site.name)));
      continue;
    }
    const bool is_up = edit.property == Property::kUplink;
    BytesPerSecond& limit = is_up ? site.uplink : site.downlink;
    LH_ASSIGN(const double rate,
              changed_limit(edit, limit.value(),
                            fmt::format("the {} of {}", is_up ? "uplink" : "downlink", site.name)));
    limit = BytesPerSecond(rate);
  }
  return {};
}

Result<void> World::edit_node(const Edit& edit) {
  bool found = false;
  for (Node& node : topology_.nodes) {
    if (edit.target.text != "*" && node.name != edit.target.text) continue;
    found = true;
    LH_ASSIGN(const double rate,
              changed_limit(edit, node.nic.value(), fmt::format("the NIC of {}", node.name)));
    node.nic = BytesPerSecond(rate);
  }
  if (!found) {
    const std::vector<std::string> names = names_in(topology_.nodes);
    return wrong_edit(edit.text, edit.target.column,
                      fmt::format("no node is named `{}`", edit.target.text),
                      did_you_mean(edit.target.text, names, list_of("nodes", names)));
  }
  limit_all_by_tcp();  // a rate that nobody measured is the NIC's
  return {};
}

/// Index of a kind, which is taken from where the cluster takes kinds from when it is not there
/// yet.
Result<int> World::kind_named(const Edit& edit, const std::string& name) {
  const auto known = std::ranges::find(topology_.kinds, name, &DeviceKind::name);
  if (known != topology_.kinds.end()) return static_cast<int>(known - topology_.kinds.begin());
  const Result<Topology> one = cluster_of_one_site(base_, "one", name);
  if (!one) return at_value(edit, one.error().message, one.error().hint);
  if (one->kinds[0].name != name) {
    return at_value(edit, fmt::format("`{}` is more than the name of a kind", name),
                    fmt::format("write `kind {}`", one->kinds[0].name));
  }
  topology_.kinds.push_back(one->kinds[0]);
  return static_cast<int>(topology_.kinds.size()) - 1;
}

Result<void> World::edit_device(const Edit& edit) {
  LH_ASSIGN(const std::vector<int> devices, devices_of(edit));
  if (edit.property == Property::kKind) {
    LH_ASSIGN(const int kind, kind_named(edit, edit.change.word));
    for (const int d : devices) topology_.devices[at(d)].kind = kind;
    return {};
  }
  // A kind that only some devices are meant of is split; the new one keeps the name, so that what
  // is said of the kind later holds for it, too.
  std::map<int, int> split;  // old kind -> new kind
  for (const int d : devices) {
    const int kind = topology_.devices[at(d)].kind;
    if (split.contains(kind)) continue;
    const auto is_meant = [&](int other) { return std::ranges::binary_search(devices, other); };
    bool all = true;
    for (int other = 0; other < topology_.device_count(); ++other)
      all = all && (topology_.devices[at(other)].kind != kind || is_meant(other));
    split[kind] = all ? kind : static_cast<int>(topology_.kinds.size());
    if (!all) topology_.kinds.push_back(DeviceKind(topology_.kinds[at(kind)]));
  }
  for (const int d : devices) topology_.devices[at(d)].kind = split[topology_.devices[at(d)].kind];
  for (const auto& [old, own] : split) {
    DeviceKind& kind = topology_.kinds[at(own)];
    const auto named = [&](std::string_view what) {
      return fmt::format("the {} of {}", what, kind.name);
    };
    switch (edit.property) {
      case Property::kSpeed: {
        const bool is_relative = edit.change.how == How::kTimes || edit.change.how == How::kOver;
        for (std::size_t p = 0; p < kPrecisions; ++p) {
          if (!is_relative && p != static_cast<std::size_t>(job_.precision)) continue;
          if (kind.rate[p] == FlopsPerSecond(0) && edit.change.how != How::kSet) continue;
          LH_ASSIGN(const double rate,
                    changed(edit, kind.rate[p].value(), named("speed"), kPositive));
          kind.rate[p] = FlopsPerSecond(rate);
        }
        break;
      }
      case Property::kMemory: {
        LH_ASSIGN(const double memory,
                  changed(edit, kind.memory.value(), named("memory"), kPositive));
        kind.memory = Bytes(memory);
        break;
      }
      case Property::kPrice: {
        LH_ASSIGN(kind.usd_per_hour, changed(edit, kind.usd_per_hour, named("price")));
        break;
      }
      default: {
        const Range range{0, 1, true, "lie between 0 and 1 an hour"};
        LH_ASSIGN(kind.failures_per_hour,
                  changed(edit, kind.failures_per_hour, named("failures"), range));
        note("failures are not simulated: they change no step");
      }
    }
  }
  return {};
}

Result<void> World::edit_tcp(const Edit& edit) {
  TcpModel& tcp = topology_.tcp;
  switch (edit.property) {
    case Property::kWindow: {
      LH_ASSIGN(const double window, changed_limit(edit, tcp.window.value(), "the window"));
      tcp.window = Bytes(window);
      break;
    }
    case Property::kStreams: {
      if (tcp.streams == 0 && edit.change.how != How::kSet && edit.change.how != How::kWord)
        return at_value(edit,
                        "the number of streams is auto, which cannot be changed by an operator",
                        fmt::format("give a number from 1 to {}", kMaxStreams));
      LH_ASSIGN(tcp.streams, changed_streams(edit, tcp.streams, "the number of streams"));
      break;
    }
    case Property::kCongestion:
      tcp.congestion =
          edit.change.word == "bbr" ? CongestionControl::kBbr : CongestionControl::kCubic;
      break;
    default: {
      const Range range{1, 2, true, "lie between 1 and 2"};
      LH_ASSIGN(tcp.wire_factor, changed(edit, tcp.wire_factor, "the wire factor", range));
    }
  }
  limit_all_by_tcp();
  return {};
}

// ---- edits of the job

Result<void> World::edit_job(const Edit& edit) {
  const std::string& path = edit.target.text;
  const auto at_path = [&](Error error) {
    return wrong_edit(edit.text, edit.target.column, std::move(error.message),
                      std::move(error.hint));
  };
  std::string value = edit.change.word;
  if (edit.change.how != How::kWord) {
    const Result<std::string> now = value_at(job_text_, base_.job_path, path);
    if (!now) return at_path(now.error());
    const Result<double> number = parse_number(*now);
    if (!number) {
      return at_value(edit,
                      now->empty() ? fmt::format("the job has no `{}` to be changed", path)
                                   : fmt::format("the job's `{}` is `{}`, no number", path, *now),
                      "give the value itself");
    }
    double result = edit.change.of(*number);
    // A count stays one.
    if (*number == std::floor(*number) && std::abs(result) < 1e15) result = std::round(result);
    value = std::abs(result) < 1e15 && result == std::floor(result) ? fmt::format("{:.0f}", result)
                                                                    : format_exact(result);
  }
  Result<std::string> text = with_value(job_text_, base_.job_path, path, value);
  if (!text) return at_path(std::move(text).error());
  if (path == "compression.activations") {
    // A job that keeps no histories says nothing about them.
    const std::optional<Codec> codec = codec_named(value);
    if (codec && !has_history(*codec)) {
      text = without_key(*text, base_.job_path, "compression.history");
    }
  }
  Result<Job> job = parse_job(*text, base_.job_path);
  if (!job) {
    // The job was sound before, so the first thing that is wrong is this; its place is in a text
    // that nobody wrote.
    if (job.error().message.starts_with("unknown key")) return at_path(std::move(job).error());
    return at_value(edit, job.error().message, job.error().hint);
  }
  job_ = *std::move(job);
  job_text_ = *std::move(text);
  return {};
}

}  // namespace longhaul
