// Which messages may leave for a peer that has not asked for them yet. Without a limit a rank that
// runs ahead (its peer is saving a checkpoint, say) would fill the peer's memory; the peer takes
// MeshLimits::early_bytes and ends the connection of who sends more.
//
// A receiver tells the name of each message when it posts its receive (a CREDIT frame). What was
// asked for may leave at once. Anything else may leave as long as it fits the window together with
// all that left so and was not asked for since; the rest waits here, in its order, until it is
// asked for or the window has room. In a pipeline receives are posted long before, so nothing ever
// waits for a credit; and nobody waits for ever, because every message is asked for in the end.
//
// Sizes only, no payloads. Belongs to one link.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace longhaul {

struct MessageName {
  std::uint32_t term;
  std::uint64_t operation;
  std::uint32_t segment;
  auto operator<=>(const MessageName&) const = default;
};

class SendWindow {
 public:
  /// Credits of messages that were not sent yet; more is no honest peer's.
  static constexpr std::size_t kCreditsMax = std::size_t{1} << 16;

  explicit SendWindow(std::size_t bytes) : bytes_(bytes) {}

  /// Whether the message may leave now. Else it waits, until credit() or set_term() names it.
  bool may_leave(const MessageName& name, std::size_t size) {
    if (asked_for_.erase(name) > 0) return true;
    if (size > bytes_ - used_) {
      waiting_.emplace_back(name, size);
      return false;
    }
    take(name, size);
    return true;
  }

  /// The receiver has asked for it. Answers the messages that waited and may leave now, in order.
  std::vector<MessageName> credit(const MessageName& name) {
    if (const auto sent = unasked_.find(name); sent != unasked_.end()) {
      used_ -= sent->second;
      unasked_.erase(sent);
      return release();
    }
    const auto waits = std::ranges::find(waiting_, name, &Waiting::first);
    if (waits == waiting_.end()) {
      asked_for_.insert(name);
      return {};
    }
    waiting_.erase(waits);
    return {name};
  }

  /// Forgets messages of older terms; answers as credit().
  std::vector<MessageName> set_term(std::uint32_t term) {
    const auto is_old = [term](const MessageName& name) { return name.term < term; };
    std::erase_if(unasked_, [&](const auto& sent) {
      if (is_old(sent.first)) used_ -= sent.second;
      return is_old(sent.first);
    });
    std::erase_if(waiting_, [&](const Waiting& waits) { return is_old(waits.first); });
    std::erase_if(asked_for_, is_old);
    return release();
  }

  bool has_too_many_credits() const { return asked_for_.size() > kCreditsMax; }
  std::size_t used() const { return used_; }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  using Waiting = std::pair<MessageName, std::size_t>;

  void take(const MessageName& name, std::size_t size) {
    unasked_.emplace(name, size);
    used_ += size;
  }
  std::vector<MessageName> release() {
    std::vector<MessageName> free;
    while (!waiting_.empty() && waiting_.front().second <= bytes_ - used_) {
      take(waiting_.front().first, waiting_.front().second);
      free.push_back(waiting_.front().first);
      waiting_.pop_front();
    }
    return free;
  }

  const std::size_t bytes_;
  std::size_t used_ = 0;                        // by what has left and was not asked for
  std::map<MessageName, std::size_t> unasked_;  // that
  std::deque<Waiting> waiting_;
  std::set<MessageName> asked_for_;  // and not sent yet
};

}  // namespace longhaul
