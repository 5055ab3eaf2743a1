// The control half of a Mesh in memory and virtual time: messages between two ranks stay in order
// and take a time drawn by a seed; ranks can fall silent, and connections can be lost.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/frame.h"
#include "executor/transport/mesh.h"

namespace longhaul::fixtures {

class FakeMesh;

/// Joins the meshes of all ranks. Must outlive the loop's tasks.
class FakeNetwork {
 public:
  /// Each message takes between `delay_min` and `delay_max`, longer where an earlier one must pass.
  FakeNetwork(EventLoop& loop, int ranks, std::uint64_t seed, Seconds delay_min, Seconds delay_max);

  Mesh& mesh(int rank);
  /// Nothing that is under way from this rank or to it arrives any more, nor what is sent later;
  /// nobody is told.
  void silence(int rank) { silent_[index(rank)] = true; }
  bool silent(int rank) const { return silent_[index(rank)]; }
  /// Every other rank loses this one.
  void lose(int rank, const std::string& why);
  /// Sees every message when it is sent.
  std::function<void(int from, int to, const std::string& text)> on_send;

 private:
  friend class FakeMesh;
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void send(int from, int to, const std::string& text);
  void deliver(int from, int to);

  EventLoop& loop_;
  Rng rng_;
  Seconds delay_min_;
  Seconds delay_max_;
  std::vector<std::unique_ptr<FakeMesh>> meshes_;
  std::vector<bool> silent_;
  std::map<std::pair<int, int>, std::deque<std::string>> under_way_;
};

class FakeMesh final : public Mesh {
 public:
  FakeMesh(FakeNetwork& network, int rank) : network_(network), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(network_.meshes_.size()); }
  void send(int, std::uint64_t, std::uint32_t, std::span<const std::byte>, Task) override {
    LH_CHECK(false, "only control messages are faked");
  }
  void receive(int, std::uint64_t, std::uint32_t, std::span<std::byte>, Task) override {
    LH_CHECK(false, "only control messages are faked");
  }
  void send_growing(int, std::uint64_t, std::uint32_t, std::span<const std::byte>, Task) override {
    LH_CHECK(false, "only control messages are faked");
  }
  void grow(int, std::uint64_t, std::uint32_t, std::size_t) override {
    LH_CHECK(false, "only control messages are faked");
  }
  void receive_growing(int, std::uint64_t, std::uint32_t, std::span<std::byte>, Arrived) override {
    LH_CHECK(false, "only control messages are faked");
  }
  void send_control(int peer, const std::string& text) override {
    LH_CHECK(peer != rank_ && text.size() <= kMaxControlPayload, "a message that can be sent");
    network_.send(rank_, peer, text);
  }
  void on_control(std::function<void(int, const std::string&)> handler) override {
    control_ = std::move(handler);
  }
  void on_lost(std::function<void(int, const Error&)> handler) override {
    lost_ = std::move(handler);
  }
  void set_term(std::uint32_t) override {}

 private:
  friend class FakeNetwork;
  FakeNetwork& network_;
  int rank_;
  std::function<void(int, const std::string&)> control_;
  std::function<void(int, const Error&)> lost_;
};

inline FakeNetwork::FakeNetwork(EventLoop& loop, int ranks, std::uint64_t seed, Seconds delay_min,
                                Seconds delay_max)
    : loop_(loop),
      rng_("fake network", seed),
      delay_min_(delay_min),
      delay_max_(delay_max),
      silent_(index(ranks), false) {
  for (int r = 0; r < ranks; ++r) meshes_.push_back(std::make_unique<FakeMesh>(*this, r));
}

inline Mesh& FakeNetwork::mesh(int rank) {
  return *meshes_[index(rank)];
}

inline void FakeNetwork::send(int from, int to, const std::string& text) {
  if (silent(from)) return;
  if (on_send) on_send(from, to, text);
  // Every message has a delivery of its own time; each delivery takes the oldest message.
  under_way_[{from, to}].push_back(text);
  loop_.after(delay_min_ + (delay_max_ - delay_min_) * rng_.uniform(),
              [this, from, to] { deliver(from, to); });
}

inline void FakeNetwork::deliver(int from, int to) {
  std::deque<std::string>& queue = under_way_[{from, to}];
  const std::string text = std::move(queue.front());
  queue.pop_front();
  if (silent(from) || silent(to)) return;
  if (meshes_[index(to)]->control_) meshes_[index(to)]->control_(from, text);
}

inline void FakeNetwork::lose(int rank, const std::string& why) {
  silence(rank);
  for (const auto& mesh : meshes_) {
    if (mesh->rank() == rank || silent(mesh->rank())) continue;
    loop_.post([mesh = mesh.get(), rank, why] {
      Error error;
      error.message = why;
      if (mesh->lost_) mesh->lost_(rank, error);
    });
  }
}

}  // namespace longhaul::fixtures
