// For tests of reports: is a text well-formed XML, and a step that is small enough to draw by hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/topology.h"
#include "netsim/step_simulation.h"

namespace longhaul::fixtures {

/// What is wrong with elements, attributes or entities of an XML fragment; empty: nothing.
inline std::string xml_problem(std::string_view text) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '&') {
      const std::string_view entity = text.substr(at, text.find(';', at) + 1 - at);
      bool is_known = false;
      for (const std::string_view known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        is_known = is_known || entity == known;
      if (!is_known) return "entity " + std::string(entity.substr(0, 20));
      at += entity.size();
      continue;
    }
    if (text[at] != '<') {
      ++at;
      continue;
    }
    const std::size_t end = text.find('>', at);
    if (end == std::string_view::npos) return "an element does not end";
    std::string_view inside = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (inside.starts_with('/')) {
      if (open.empty() || open.back() != inside.substr(1))
        return "closes " + std::string(inside.substr(1));
      open.pop_back();
      continue;
    }
    const bool is_empty = inside.ends_with('/');
    if (is_empty) inside.remove_suffix(1);
    const std::string name(inside.substr(0, inside.find(' ')));
    inside.remove_prefix(name.size());
    while (!inside.empty()) {  // ` name="value"`
      const std::size_t equal = inside.find("=\"");
      const std::size_t close = inside.find('"', equal + 2);
      if (inside[0] != ' ' || equal == std::string_view::npos || close == std::string_view::npos)
        return "attributes of " + name + ": " + std::string(inside);
      if (inside.substr(equal + 2, close - equal - 2).find('<') != std::string_view::npos)
        return "< in an attribute of " + name;
      inside.remove_prefix(close + 1);
    }
    if (!is_empty) open.push_back(name);
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

inline SimTime at_s(double time) {
  return SimTime::from(Seconds(time));
}

/// One pipeline of two stages, a device in each of two sites: `a` at 0 N 0 E and `b` at 0 N 90 E.
/// The link carries 2 MB/s; each device has 16 GiB.
struct SmallStep {
  Topology topology;
  Job job;
  Plan plan;
  StepResult step;

  SmallStep() {
    topology.name = "small";
    topology.sites = {
        {"a", "", BytesPerSecond::infinity(), BytesPerSecond::infinity(), 0, Coordinates{0, 0}},
        {"b", "", BytesPerSecond::infinity(), BytesPerSecond::infinity(), 0, Coordinates{0, 90}}};
    for (int n = 0; n < 2; ++n) {
      topology.nodes.push_back({n == 0 ? "a-1" : "b-1", n, BytesPerSecond::infinity(),
                                BytesPerSecond(1e9), Seconds(0), ""});
      topology.devices.push_back({n == 0 ? "a-1/0" : "b-1/0", n, n, 0});
    }
    DeviceKind kind;
    kind.name = "card";
    kind.memory = gibibytes(16);
    topology.kinds = {kind};
    topology.links.resize(4);
    for (Link& link : topology.links) {
      link.latency = milliseconds(10);
      link.rate = BytesPerSecond(2e6);
      link.scope = LinkScope::kSitePair;
    }
    job.name = "tiny";
    job.model = {ModelFamily::kGpt2, 2, 64, 2, 2, 32, 256, 16, 100, true};
    job.global_batch = 2;
    plan.layers = {1, 1};
    plan.devices = {{0, 1}};
    plan.micro_batches = {2};
    plan.in_flight = {2, 1};

    // In a step of 10 s each stage computes 4 s; 5 MB go from a to b in the first 5 s.
    step.step = Seconds(10);
    step.tasklets.resize(2);
    for (TaskletTimes& times : step.tasklets) {
      times = {Seconds(4), Seconds(1), Seconds(2), Seconds(2), Seconds(0.5), Seconds(0.5)};
    }
    step.traffic = {{0, 1, Bytes(5e6), Bytes(5e6)}};
    step.timeline = {
        {Op::kForward, 0, 0, -1, at_s(0), at_s(2), {}},
        {Op::kSendActivation, 0, 0, 1, at_s(0), at_s(5), Bytes(5e6)},
        {Op::kForward, 0, 1, -1, at_s(5), at_s(6), {}},
        {Op::kBackward, 0, 1, -1, at_s(6), at_s(7), {}},
        {Op::kBackward, 0, 0, -1, at_s(7), at_s(8), {}},
        {Op::kReduce, -1, 0, -1, at_s(8), at_s(9), {}},
        {Op::kUpdate, -1, 0, -1, at_s(9.5), at_s(10), {}},
    };
  }
};

}  // namespace longhaul::fixtures
