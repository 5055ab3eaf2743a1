// The simulated side of the Transport door: processes of one job in one thread and in virtual time,
// on a network with latencies, rates and faults. Frames are really encoded and decoded.
//
// A SimNetwork joins SimTransports, one a simulated process. Belongs to one thread; must outlive
// the transports and connections made on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/rng.h"
#include "executor/runtime/sim_event_loop.h"
#include "executor/transport/transport.h"

namespace longhaul {

struct SimLink {
  Seconds latency{0.001};
  BytesPerSecond rate = BytesPerSecond::infinity();
};

class SimTransport;

class SimNetwork {
 public:
  SimNetwork(SimEventLoop& loop, std::uint64_t seed);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// Of every pair of hosts that set_link did not name.
  void set_default_link(SimLink link) { default_link_ = link; }
  /// From one host to another, one direction.
  void set_link(const std::string& from, const std::string& to, SimLink link);

  /// A process on a host (the part of an address before the colon).
  std::unique_ptr<Transport> make_transport(const std::string& host);

  // Faults.
  /// Every connection between the two hosts breaks now; both ends learn of it after the latency.
  void cut(const std::string& host, const std::string& other);
  /// Nothing sent between the two arrives any more, and nobody is told.
  void black_hole(const std::string& host, const std::string& other);
  /// The host's process dies: its handlers are never called again, its peers see a reset.
  void kill(const std::string& host);
  /// Flips one bit, drawn by the seed, of the next frame that travels between the two.
  void corrupt_next(const std::string& from, const std::string& to);

  /// Frames delivered so far.
  std::uint64_t delivered() const { return delivered_; }

 private:
  friend class SimTransport;
  friend class SimConnection;
  struct Pipe;  // one connection, shared by its two ends

  const SimLink& link(const std::string& from, const std::string& to) const;

  SimEventLoop& loop_;
  Rng rng_;
  SimLink default_link_;
  std::map<std::pair<std::string, std::string>, SimLink> links_;
  std::map<std::string, SimTransport*> listeners_;  // by address
  std::vector<std::weak_ptr<Pipe>> pipes_;
  std::map<std::pair<std::string, std::string>, int> corrupt_;
  std::map<std::pair<std::string, std::string>, bool> black_holes_;
  std::map<std::string, bool> dead_;
  int next_port_ = 40000;
  std::uint64_t delivered_ = 0;
};

}  // namespace longhaul
