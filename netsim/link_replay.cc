#include "netsim/link_replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace longhaul {
namespace {

/// Rows with a time by directed pair of places, in order of time; of one time the later row counts.
std::map<std::pair<int, int>, std::vector<const TraceRow*>> timed_rows(const Trace& trace) {
  std::map<std::pair<int, int>, std::vector<const TraceRow*>> rows;
  for (const TraceRow& row : trace.rows) {
    if (row.time_s) rows[{row.from, row.to}].push_back(&row);
  }
  for (auto& [pair, of_pair] : rows) {
    std::stable_sort(of_pair.begin(), of_pair.end(),
                     [](const TraceRow* a, const TraceRow* b) { return *a->time_s < *b->time_s; });
  }
  return rows;
}

}  // namespace

Result<LinkReplay> LinkReplay::make(const Topology& topology, const Trace& trace, bool loop) {
  LinkReplay replay;
  replay.sites_ = topology.site_count();
  const auto rows = timed_rows(trace);
  if (rows.empty()) {
    return invalid(fmt::format("the trace {} has no times to replay", trace.name),
                   "give its rows a `time_s`");
  }
  std::vector<int> places;
  for (const Site& site : topology.sites) {
    places.push_back(trace.find_place(site.trace_name.empty() ? site.name : site.trace_name));
  }
  bool is_known = false;
  for (int from = 0; from < replay.sites_; ++from) {
    for (int to = 0; to < replay.sites_; ++to) {
      const Link& link = topology.link(from, to);
      const Link& back = topology.link(to, from);
      std::vector<Point>& points = replay.points_.emplace_back();
      points.push_back({0, {link.latency, link.rate, link.pipe()}});
      const int place_from = places[static_cast<std::size_t>(from)];
      const int place_to = places[static_cast<std::size_t>(to)];
      const auto of_pair = rows.find({place_from, place_to});
      if (of_pair == rows.end()) continue;  // places that the trace does not know have none
      BytesPerSecond measured = link.pipe();
      double loss = link.loss;
      for (const TraceRow* row : of_pair->second) {
        is_known = true;
        State state = points.back().state;
        if (row->latency) state.latency = *row->latency;
        if (row->rate) measured = *row->rate;
        if (row->loss) loss = *row->loss;
        // The way back is the cluster's: its own changes come at times of their own.
        const Seconds round_trip = state.latency + (from == to ? state.latency : back.latency);
        state.rate = tcp_rate(topology.tcp, measured, round_trip, loss);
        state.pipe = std::max(measured, state.rate);
        if (*row->time_s == points.back().time) {
          points.back().state = state;
        } else {
          points.push_back({*row->time_s, state});
        }
        replay.times_.push_back(*row->time_s);
      }
    }
  }
  if (!is_known) {
    return invalid(
        fmt::format("the trace {} has no row with a time for two of the sites", trace.name),
        "`trace_name` of a site says what the trace calls it");
  }
  std::sort(replay.times_.begin(), replay.times_.end());
  replay.times_.erase(std::unique(replay.times_.begin(), replay.times_.end()), replay.times_.end());
  const double last = replay.times_.back();
  const auto count = static_cast<double>(replay.times_.size());
  if (loop && last > 0) replay.period_ = last + last / std::max(count - 1, 1.0);
  return replay;
}

double LinkReplay::inside(Seconds time) const {
  return period_ > 0 ? std::fmod(time.value(), period_) : time.value();
}

const LinkReplay::State& LinkReplay::at(int from_site, int to_site, Seconds time) const {
  const std::vector<Point>& points =
      points_[static_cast<std::size_t>(from_site * sites_ + to_site)];
  const auto after =
      std::upper_bound(points.begin(), points.end(), inside(time),
                       [](double moment, const Point& point) { return moment < point.time; });
  return std::prev(after)->state;
}

std::size_t LinkReplay::interval(Seconds time) const {
  const auto after = std::upper_bound(times_.begin(), times_.end(), inside(time));
  return static_cast<std::size_t>(after - times_.begin());
}

Seconds LinkReplay::next_change(Seconds time) const {
  const double moment = inside(time);
  const double begin = time.value() - moment;  // of the pass at hand
  auto next = std::upper_bound(times_.begin(), times_.end(), moment);
  // A sum may round down to the moment itself, which would never end.
  while (next != times_.end() && begin + *next <= time.value()) ++next;
  if (next != times_.end()) return Seconds(begin + *next);
  if (period_ == 0) return Seconds(std::numeric_limits<double>::infinity());
  return Seconds(std::max(begin + period_, std::nextafter(time.value(), 1e300)));
}

}  // namespace longhaul
