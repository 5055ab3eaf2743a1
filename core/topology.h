// The machine that a plan runs on: sites, nodes, devices, and the directed network between them.
//
// A Topology is a value, built once from a cluster file (netsim/cluster_file.h) and read-only
// afterwards; any thread may read it. Everything derived (effective rates, paths) is computed from
// the plain fields below by the functions here, so that planner, simulator and executor agree.
//
// Network model. Two devices of one node talk over the node's own interconnect. Otherwise traffic
// from node u of site a to node v of site b crosses, in order: u's NIC (out), a's uplink, the
// (a, b) link, b's downlink, v's NIC (in); inside one site the uplink and downlink are skipped. A
// link of scope `node` is a rate of its own for every ordered pair of nodes, as measured between
// two machines; a link of scope `site_pair` is one pipe that all flows from a to b share, of which
// TCP's window lets one flow have only a part.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.h"

namespace longhaul {

/// Where a number came from; written beside it wherever it is printed.
enum class Origin { kMeasured, kMirrored, kAssumed, kModelled, kGiven };
std::string_view name_of(Origin origin);

/// Type of weights on the wire and in the matrix units. kFp32 also names the master copies.
enum class Precision { kFp32, kFp16, kBf16 };
inline constexpr std::size_t kPrecisions = 3;
std::string_view name_of(Precision precision);
/// Bytes of one element.
double element_bytes(Precision precision);

/// A kind of accelerator (configs/devices/*.yaml).
struct DeviceKind {
  std::string name;   // `v100`
  std::string title;  // as on the datasheet
  Bytes memory;
  Bytes reserved;  // runtime and context, never available to a plan
  /// Sustained matrix rate by Precision, the stated efficiency included; 0 = not supported.
  std::array<FlopsPerSecond, kPrecisions> rate{};
  /// Sustained memory rate, efficiency included: prices the optimiser update.
  BytesPerSecond memory_rate;
  Seconds overhead;  // fixed time of one pass of one micro-batch over a stage
  double usd_per_hour = 0;
  double failures_per_hour = 0;
  Origin origin = Origin::kAssumed;
  std::string source;

  FlopsPerSecond rate_at(Precision precision) const {
    return rate[static_cast<std::size_t>(precision)];
  }
};

/// A place on the globe, in degrees: north and east are positive.
struct Coordinates {
  double latitude = 0;   // -90 .. 90
  double longitude = 0;  // -180 .. 180
  bool operator==(const Coordinates&) const = default;
};

struct Site {
  std::string name;
  std::string location;     // free text for people
  BytesPerSecond uplink;    // shared by all traffic that leaves the site; may be infinite
  BytesPerSecond downlink;  // shared by all traffic that enters it; may be infinite
  double egress_usd_per_byte = 0;
  std::optional<Coordinates> coordinates = {};  // for maps
  std::string trace_name = {};                  // its place in traces
};

struct Node {
  std::string name;
  int site = 0;
  BytesPerSecond nic;          // each direction; may be infinite
  BytesPerSecond inside_rate;  // between two devices of this node; may be infinite
  Seconds inside_latency;
  std::string address;  // host or host:port for the executor; may be empty
};

struct Device {
  std::string name;  // `oregon-1/0`: node, then index on the node
  int node = 0;
  int site = 0;
  int kind = 0;
};

enum class LinkScope { kNode, kSitePair };

/// Directed network from one site to another, or inside a site (the diagonal).
struct Link {
  Seconds latency;      // one way
  BytesPerSecond rate;  // what one flow gets alone, TCP limits included (see tcp_rate)
  LinkScope scope = LinkScope::kNode;
  double loss = 0;  // probability of losing a packet
  Seconds jitter;
  Origin latency_origin = Origin::kAssumed;
  Origin rate_origin = Origin::kAssumed;
  int streams = 1;               // TCP connections that `rate` takes (see tcp_streams)
  BytesPerSecond measured = {};  // before TCP's limits; 0: TCP does not limit `rate`

  /// What a pipe of scope `site_pair` carries for all its flows together.
  BytesPerSecond pipe() const { return std::max(rate, measured); }
};

enum class CongestionControl { kBbr, kCubic };

/// What TCP makes of a path. Anchors: the window is 0.8 x tcp_wmem max (3.35 MB by Debian's
/// default 4 MiB) and the header factor is 1.036 at MTU 1500, both measured.
struct TcpModel {
  Bytes window{0.8 * 4194304};  // may be infinite
  int streams = 0;              // 0: as many as the path needs, at most kMaxStreams
  CongestionControl congestion = CongestionControl::kBbr;
  double wire_factor = 1.036;  // bytes on the wire per byte of payload
};
inline constexpr int kMaxStreams = 64;
inline constexpr double kMaxSegmentBytes = 1448;  // MTU 1500, IPv4, TCP time stamps

/// TCP connections that a path takes: tcp.streams, or where that is 0 as many as fill it,
/// ceil(1.5 x rate x RTT / window), at least 1 and at most kMaxStreams.
int tcp_streams(const TcpModel& tcp, BytesPerSecond measured, Seconds round_trip);

/// Rate of one link under TCP: min(measured, streams x window / RTT, and for cubic with loss p
/// streams x 1.22 MSS / (RTT sqrt p)) [Mathis et al., CCR 1997], with the streams of tcp_streams.
BytesPerSecond tcp_rate(const TcpModel& tcp, BytesPerSecond measured, Seconds round_trip,
                        double loss);

class Topology {
 public:
  std::string name;
  std::vector<Site> sites;
  std::vector<Node> nodes;
  std::vector<DeviceKind> kinds;
  std::vector<Device> devices;
  std::vector<Link> links;  // sites x sites, row-major, [from][to]; the diagonal is inside a site
  TcpModel tcp;
  /// Sentences about what the files did not say and what was taken instead.
  std::vector<std::string> assumptions;
  /// Identifies the inputs: hash over the texts of all files that were read.
  std::uint64_t hash = 0;

  int site_count() const { return static_cast<int>(sites.size()); }
  int device_count() const { return static_cast<int>(devices.size()); }
  const Link& link(int from_site, int to_site) const {
    return links[static_cast<std::size_t>(from_site * site_count() + to_site)];
  }
  const DeviceKind& kind_of(int device) const {
    return kinds[static_cast<std::size_t>(devices[static_cast<std::size_t>(device)].kind)];
  }
  int site_of(int device) const { return devices[static_cast<std::size_t>(device)].site; }
  int node_of(int device) const { return devices[static_cast<std::size_t>(device)].node; }

  /// One-way latency between two devices; zero from a device to itself.
  Seconds latency(int from_device, int to_device) const;
  /// The most that one flow can get between two devices when it is alone: the least of the link,
  /// both NICs, uplink and downlink. Infinite from a device to itself.
  BytesPerSecond rate(int from_device, int to_device) const;

  /// Index by name, or -1.
  int find_site(std::string_view name) const;
  int find_device(std::string_view name) const;
};

}  // namespace longhaul
