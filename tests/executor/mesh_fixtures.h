// Ranks of a job in one thread, joined by meshes: in virtual time or over loopback.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/transport/asio_transport.h"
#include "executor/transport/sim_transport.h"
#include "executor/transport/transport_mesh.h"

namespace longhaul::fixtures {

inline constexpr std::uint64_t kTestJob = 0x10b;

class MeshWorld {
 public:
  virtual ~MeshWorld() = default;
  virtual EventLoop& event_loop() = 0;
  /// A process on a host h0, h1, ...
  virtual std::unique_ptr<Transport> make_transport(int host) = 0;
  virtual std::string free_address(int host) = 0;
  virtual void give_back_addresses() {}
  /// Fails the test when `done` cannot come true.
  virtual void run_until(const std::function<bool()>& done) = 0;

  /// Begins to connect `ranks` ranks; results come in `meshes` and `errors`.
  void begin(int ranks, MeshLimits limits = {}) {
    for (int rank = 0; rank < ranks; ++rank) addresses.push_back(free_address(rank));
    give_back_addresses();
    meshes.resize(addresses.size());
    errors.resize(addresses.size());
    for (int rank = 0; rank < ranks; ++rank) join(rank, limits);
  }
  void join(int rank, MeshLimits limits = {}, std::uint64_t job = kTestJob,
            std::uint32_t term = 0) {
    transports.push_back(make_transport(rank));
    connect_mesh(*transports.back(), event_loop(), config(rank, limits, job, term), taker(rank));
  }
  MeshConfig config(int rank, MeshLimits limits = {}, std::uint64_t job = kTestJob,
                    std::uint32_t term = 0) const {
    MeshConfig config{addresses, identities, rank, job, term, limits, Seconds(5)};
    if (streams != 1) config.streams.assign(addresses.size(), streams);
    return config;
  }
  /// What puts a rank's result in its place.
  OnMesh taker(int rank) {
    return [this, place = static_cast<std::size_t>(rank)](auto mesh) {
      if (mesh) {
        meshes[place] = std::move(*mesh);
      } else {
        errors[place] = mesh.error().text();
      }
    };
  }
  void connect(int ranks, MeshLimits limits = {}) {
    begin(ranks, limits);
    run_until([&] {
      for (const auto& mesh : meshes) {
        if (!mesh) return false;
      }
      return true;
    });
  }
  TransportMesh& mesh(int rank) { return *meshes[static_cast<std::size_t>(rank)]; }

  std::vector<std::string> addresses;
  std::vector<std::string> identities;
  int streams = 1;  // of every link
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<TransportMesh>> meshes;
  std::vector<std::string> errors;
};

class SimMeshWorld : public MeshWorld {
 public:
  explicit SimMeshWorld(std::uint64_t seed = 1) : network(loop, seed) {}
  ~SimMeshWorld() override {
    meshes.clear();  // before the network and the loop
    transports.clear();
  }
  EventLoop& event_loop() override { return loop; }
  std::unique_ptr<Transport> make_transport(int host) override {
    return network.make_transport(fmt::format("h{}", host));
  }
  std::string free_address(int host) override { return fmt::format("h{}:7000", host); }
  void run_until(const std::function<bool()>& done) override {
    while (!done()) ASSERT_TRUE(loop.step()) << "nothing more happens";
  }
  /// Until nothing is left to happen.
  void run() { ASSERT_TRUE(loop.run_until_idle(Seconds(1e6))); }

  SimEventLoop loop;
  SimNetwork network;
};

/// A world whose links have that many streams.
template <class World, int kStreams>
struct WithStreams : World {
  WithStreams() { this->streams = kStreams; }
};

class AsioMeshWorld : public MeshWorld {
 public:
  ~AsioMeshWorld() override {
    meshes.clear();
    transports.clear();
  }
  EventLoop& event_loop() override { return runtime.loop(); }
  std::unique_ptr<Transport> make_transport(int) override { return runtime.make_transport(); }
  std::string free_address(int) override {
    // A port that was free a moment ago. All are taken before any is given back, so that no two
    // ranks get the same one.
    takers_.push_back(runtime.make_transport());
    return *takers_.back()->listen("127.0.0.1:0", [](std::unique_ptr<Connection>) {});
  }
  void give_back_addresses() override { takers_.clear(); }
  void run_until(const std::function<bool()>& done) override {
    if (done()) return;
    bool late = false;
    const TimerId deadline = event_loop().after(Seconds(20), [&] {
      late = true;
      runtime.stop();
    });
    watch(done);
    runtime.run();
    event_loop().cancel(deadline);
    ASSERT_FALSE(late) << "nothing more happens";
  }

  AsioRuntime runtime;

 private:
  void watch(const std::function<bool()>& done) {
    if (done()) return runtime.stop();
    event_loop().post([this, &done] { watch(done); });
  }
  std::vector<std::unique_ptr<Transport>> takers_;
};

inline std::vector<std::byte> pattern(std::size_t size, std::size_t seed = 0) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + size + seed);
  return bytes;
}

}  // namespace longhaul::fixtures
