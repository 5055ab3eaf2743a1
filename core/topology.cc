#include "core/topology.h"

#include <algorithm>
#include <cmath>

namespace longhaul {

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::kMeasured:
      return "measured";
    case Origin::kMirrored:
      return "mirrored";
    case Origin::kAssumed:
      return "assumed";
    case Origin::kModelled:
      return "modelled";
    case Origin::kGiven:
      return "given";
  }
  return "?";
}

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kFp16:
      return "fp16";
    case Precision::kBf16:
      return "bf16";
  }
  return "?";
}

double element_bytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : 2;
}

int tcp_streams(const TcpModel& tcp, BytesPerSecond measured, Seconds round_trip) {
  if (tcp.streams != 0) return tcp.streams;
  const Bytes in_flight = measured * round_trip;
  const double needed = std::ceil(1.5 * (in_flight / tcp.window));
  if (!(needed > 1)) return 1;  // also where both are infinite
  return static_cast<int>(std::min(needed, static_cast<double>(kMaxStreams)));
}

BytesPerSecond tcp_rate(const TcpModel& tcp, BytesPerSecond measured, Seconds round_trip,
                        double loss) {
  if (round_trip <= Seconds(0)) return measured;
  const double streams = tcp_streams(tcp, measured, round_trip);
  BytesPerSecond rate = std::min(measured, streams * (tcp.window / round_trip));
  if (tcp.congestion == CongestionControl::kCubic && loss > 0) {
    rate =
        std::min(rate, streams * (Bytes(1.22 * kMaxSegmentBytes) / round_trip) / std::sqrt(loss));
  }
  return rate;
}

Seconds Topology::latency(int from_device, int to_device) const {
  if (from_device == to_device) return Seconds(0);
  if (node_of(from_device) == node_of(to_device)) {
    return nodes[static_cast<std::size_t>(node_of(from_device))].inside_latency;
  }
  return link(site_of(from_device), site_of(to_device)).latency;
}

BytesPerSecond Topology::rate(int from_device, int to_device) const {
  if (from_device == to_device) return BytesPerSecond::infinity();
  const Node& from = nodes[static_cast<std::size_t>(node_of(from_device))];
  const Node& to = nodes[static_cast<std::size_t>(node_of(to_device))];
  if (node_of(from_device) == node_of(to_device)) return from.inside_rate;
  BytesPerSecond rate = std::min({link(from.site, to.site).rate, from.nic, to.nic});
  if (from.site != to.site) {
    rate = std::min({rate, sites[static_cast<std::size_t>(from.site)].uplink,
                     sites[static_cast<std::size_t>(to.site)].downlink});
  }
  return rate;
}

int Topology::find_site(std::string_view name_wanted) const {
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].name == name_wanted) return static_cast<int>(i);
  }
  return -1;
}

int Topology::find_device(std::string_view name_wanted) const {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].name == name_wanted) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace longhaul
