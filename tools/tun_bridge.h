// Places on one machine, joined by links with latency, rate, a finite queue and loss: a test tool,
// with which real TCP is held against the link model.
//
// Each place is a network namespace of its own, made here, with a TUN device in it; a thread of
// this process reads IP packets from all devices and writes each to its place when it is due.
// Nothing outside these namespaces is touched, and they end with the object. Needs /dev/net/tun and
// the capabilities to make namespaces and devices, which root has; create() says what is missing.
//
// A packet from a to b leaves a's uplink, then the link from a to b, each one packet after the
// other at its rate, and is there one latency later. What finds more than `queue` waiting is
// dropped.
//
// Packets cost time: see the rate that `tools/bench tcp` measures first. Rates count IP bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

struct BridgeLink {
  Seconds latency;  // one way
  BytesPerSecond rate = BytesPerSecond::infinity();
  Bytes queue{1e6};  // of what may wait
  double loss = 0;   // probability of losing a packet
};

struct BridgeOptions {
  int places = 2;                 // at most 200
  std::vector<BridgeLink> links;  // places x places, [from][to]; the diagonal is not used
  /// Of each place, shared by all that leaves it; empty: infinite.
  std::vector<BytesPerSecond> uplinks = {};
  std::uint64_t seed = 1;  // of losses
};

class TunBridge {
 public:
  /// Errors (kFailed): what the system does not allow, with the reason.
  static Result<std::unique_ptr<TunBridge>> create(BridgeOptions options);
  ~TunBridge();
  TunBridge(const TunBridge&) = delete;
  TunBridge& operator=(const TunBridge&) = delete;

  /// IPv4 address of a place.
  std::string address(int place) const;
  /// Puts the calling thread into a place, for good: sockets that it opens are there.
  Result<void> enter(int place) const;
  /// Packets that found a full queue, and packets forwarded.
  std::uint64_t dropped() const;
  std::uint64_t forwarded() const;

 private:
  struct State;
  explicit TunBridge(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
