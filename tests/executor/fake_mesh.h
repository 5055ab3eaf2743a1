// Mesh in memory for tests, on any event loop: messages take time, overtake one another, and every
// promise about buffers is checked. A payload must not change before `sent`; a posted buffer is
// filled with 0xff (NaN as floats) and must be left alone until its message is there.
//
// A growing message travels in pieces, each with a time of its own, and a growing receive is told
// of each that makes the prefix longer; the size is known with the last byte. What is not final yet
// of a payload may change, what is told of a buffer is left alone.
//
// A message holds its link for send_time, then travels for latency. With jitter j each of the two
// is stretched by up to that factor, by seed, and `sent` may come long after the message arrived.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "executor/transport/mesh.h"

namespace longhaul {

class FakeMeshNetwork {
 public:
  FakeMeshNetwork(EventLoop& loop, int ranks, std::uint64_t seed)
      : loop_(loop), rng_("mesh", seed) {
    for (int rank = 0; rank < ranks; ++rank) {
      ends_.push_back(std::make_unique<End>(*this, rank));
    }
  }

  Mesh& mesh(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }

  Seconds send_time;
  Seconds latency;
  double jitter = 0;
  Seconds sent_lag;  // of `sent`, after the payload has left
  /// Ranks whose messages are lost; their `sent` comes all the same.
  std::set<int> mute;

  /// Messages that came before their receive was posted.
  int early() const { return early_; }
  /// Of growing messages.
  int pieces() const { return pieces_; }
  /// Receives that are posted and have no message yet.
  std::size_t waiting() const { return posted_.size(); }

 private:
  using Payload = std::vector<std::byte>;
  /// from, to, operation, segment.
  using Name = std::tuple<int, int, std::uint64_t, std::uint32_t>;
  struct Posted {
    std::span<std::byte> buffer;
    Task received;
    std::shared_ptr<Mesh::Arrived> arrived;  // in place of it: a growing receive
  };
  struct Growing {
    std::span<const std::byte> payload;
    Task sent;
    std::size_t taken = 0;  // bytes
    std::size_t under_way = 0;
    Payload copy;                              // of what was taken
    std::map<std::size_t, std::size_t> there;  // pieces that have arrived: begin, end
    std::size_t told = 0;
  };

  class End final : public Mesh {
   public:
    End(FakeMeshNetwork& network, int rank) : network_(network), rank_(rank) {}
    int rank() const override { return rank_; }
    int ranks() const override { return static_cast<int>(network_.ends_.size()); }
    void send(int peer, std::uint64_t operation, std::uint32_t segment,
              std::span<const std::byte> payload, Task sent) override {
      ASSERT_NE(peer, rank_);
      network_.send({rank_, peer, operation, segment}, payload, std::move(sent));
    }
    void receive(int peer, std::uint64_t operation, std::uint32_t segment,
                 std::span<std::byte> buffer, Task received) override {
      network_.receive({peer, rank_, operation, segment}, {buffer, std::move(received), nullptr});
    }
    void send_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                      std::span<const std::byte> payload, Task sent) override {
      network_.send_growing({rank_, peer, operation, segment}, payload, std::move(sent));
    }
    void grow(int peer, std::uint64_t operation, std::uint32_t segment,
              std::size_t ready) override {
      network_.grow({rank_, peer, operation, segment}, ready);
    }
    void receive_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                         std::span<std::byte> buffer, Arrived arrived) override {
      network_.receive({peer, rank_, operation, segment},
                       {buffer, nullptr, std::make_shared<Arrived>(std::move(arrived))});
    }
    void send_control(int, const std::string&) override { FAIL() << "not used by a pipeline"; }
    void on_control(std::function<void(int, const std::string&)>) override {}
    void on_lost(std::function<void(int, const Error&)>) override {}
    void set_term(std::uint32_t) override { network_.forget(rank_); }

   private:
    FakeMeshNetwork& network_;
    const int rank_;
  };

  Seconds stretched(Seconds time) { return time * (1 + jitter * rng_.uniform()); }

  void send(const Name& name, std::span<const std::byte> payload, Task sent) {
    ASSERT_TRUE(sent_names_.insert(name).second) << "a message is sent once";
    auto copy = std::make_shared<const Payload>(payload.begin(), payload.end());
    const Seconds arrival = stretched(send_time) + stretched(latency);
    const Seconds release = jitter > 0 ? arrival * (2 * rng_.uniform()) : send_time + sent_lag;
    loop_.after(release, [copy, payload, sent = std::move(sent)]() mutable {
      EXPECT_TRUE(std::ranges::equal(*copy, payload)) << "changed before it was sent";
      sent();
    });
    if (mute.contains(std::get<0>(name))) return;
    loop_.after(arrival, [this, name, copy] {
      const auto posted = posted_.find(name);
      if (posted == posted_.end()) {
        ++early_;
        arrived_.emplace(name, copy);
        return;
      }
      Posted receive = std::move(posted->second);
      posted_.erase(posted);
      deliver(std::move(receive), *copy);
    });
  }

  void send_growing(const Name& name, std::span<const std::byte> payload, Task sent) {
    ASSERT_TRUE(sent_names_.insert(name).second) << "a message is sent once";
    growing_[name] =
        std::make_shared<Growing>(Growing{payload, std::move(sent), {}, {}, {}, {}, {}});
    if (payload.empty()) take_piece(name, growing_[name], 0);
  }

  void grow(const Name& name, std::size_t ready) {
    const auto found = growing_.find(name);
    if (found == growing_.end()) return;
    const std::shared_ptr<Growing> message = found->second;
    ASSERT_LE(ready, message->payload.size());
    ASSERT_GE(ready, message->taken);
    // With jitter in two pieces, so that pieces overtake one another.
    if (jitter > 0 && ready - message->taken > 1) {
      take_piece(name, message, message->taken + (ready - message->taken) / 2);
    }
    if (ready > message->taken) take_piece(name, message, ready);
  }

  void take_piece(const Name& name, const std::shared_ptr<Growing>& message, std::size_t end) {
    const std::size_t begin = message->taken;
    message->copy.insert(message->copy.end(),
                         message->payload.begin() + static_cast<std::ptrdiff_t>(begin),
                         message->payload.begin() + static_cast<std::ptrdiff_t>(end));
    message->taken = end;
    ++message->under_way;
    ++pieces_;
    const Seconds arrival = stretched(send_time) + stretched(latency);
    loop_.after(arrival, [this, name, message, begin, end] {
      --message->under_way;
      if (message->taken == message->payload.size() && message->under_way == 0) {
        EXPECT_TRUE(std::ranges::equal(message->copy, message->payload)) << "changed too early";
        growing_.erase(name);
        if (message->sent) loop_.after(sent_lag, std::exchange(message->sent, nullptr));
      }
      if (mute.contains(std::get<0>(name))) return;
      message->there[begin] = end;
      const auto posted = posted_.find(name);
      if (posted == posted_.end()) {
        ++early_;
        arrived_growing_[name] = message;
        return;
      }
      deliver_pieces(name, *message);
    });
  }

  void deliver_pieces(const Name& name, Growing& message) {
    const auto found = posted_.find(name);
    Posted& posted = found->second;
    ASSERT_GE(posted.buffer.size(), message.payload.size());
    const std::size_t before = message.told;
    for (const auto& [begin, end] : message.there) {
      if (begin > message.told) break;
      if (end <= message.told) continue;
      std::copy(message.copy.begin() + static_cast<std::ptrdiff_t>(begin),
                message.copy.begin() + static_cast<std::ptrdiff_t>(end),
                posted.buffer.begin() + static_cast<std::ptrdiff_t>(begin));
      message.told = end;
    }
    const bool is_last = message.told == message.payload.size();
    if (message.told == before && !is_last) return;
    if (posted.arrived) {
      loop_.post([arrived = posted.arrived, bytes = message.told, is_last] {
        (*arrived)(bytes, is_last);
      });
    } else if (is_last) {
      EXPECT_EQ(posted.buffer.size(), message.payload.size());
      loop_.post(std::move(posted.received));
    }
    if (is_last) posted_.erase(found);
  }

  void receive(const Name& name, Posted receive) {
    ASSERT_TRUE(posted_names_.insert(name).second) << "a name is posted once";
    std::ranges::fill(receive.buffer, std::byte{0xff});
    if (const auto growing = arrived_growing_.find(name); growing != arrived_growing_.end()) {
      posted_.emplace(name, std::move(receive));
      deliver_pieces(name, *growing->second);
      return;
    }
    const auto arrived = arrived_.find(name);
    if (arrived == arrived_.end()) {
      posted_.emplace(name, std::move(receive));
      return;
    }
    const auto payload = arrived->second;
    arrived_.erase(arrived);
    deliver(std::move(receive), *payload);
  }

  void deliver(Posted receive, const Payload& payload) {
    if (receive.arrived) {
      ASSERT_GE(receive.buffer.size(), payload.size());
      std::ranges::copy(payload, receive.buffer.begin());
      loop_.post([arrived = receive.arrived, bytes = payload.size()] { (*arrived)(bytes, true); });
      return;
    }
    ASSERT_EQ(receive.buffer.size(), payload.size());
    EXPECT_TRUE(std::ranges::all_of(receive.buffer, [](std::byte b) {
      return b == std::byte{0xff};
    })) << "touched while the mesh had it";
    std::ranges::copy(payload, receive.buffer.begin());
    loop_.post(std::move(receive.received));
  }

  void forget(int rank) {
    std::erase_if(posted_, [rank](const auto& entry) { return std::get<1>(entry.first) == rank; });
    std::erase_if(growing_, [rank](const auto& entry) { return std::get<0>(entry.first) == rank; });
  }

  EventLoop& loop_;
  Rng rng_;
  std::vector<std::unique_ptr<End>> ends_;
  std::map<Name, Posted> posted_;
  std::map<Name, std::shared_ptr<const Payload>> arrived_;
  std::map<Name, std::shared_ptr<Growing>> growing_;          // not all taken or under way
  std::map<Name, std::shared_ptr<Growing>> arrived_growing_;  // before their receive was posted
  std::set<Name> sent_names_, posted_names_;
  int early_ = 0;
  int pieces_ = 0;
};

}  // namespace longhaul
