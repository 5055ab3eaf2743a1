// A message on its way in, in pieces that may come in any order and over several streams at once.
//
// A piece is claimed when its header comes and counted when its last byte is there. Claims never
// overlap, so no two streams write to one place of a posted buffer, and a message with a piece
// still under way is not complete: its buffer stays in use until nobody writes to it.
//
// A plain value; any thread.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"

namespace longhaul {

/// Disjoint ranges; those that touch are one.
class Ranges {
 public:
  bool overlaps(std::uint64_t begin, std::uint64_t end) const {
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end() && next->first < end) return true;
    return next != ranges_.begin() && std::prev(next)->second > begin;
  }
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    auto at = ranges_.emplace(begin, end).first;
    if (const auto next = std::next(at); next != ranges_.end() && next->first == end) {
      at->second = next->second;
      ranges_.erase(next);
    }
    if (at == ranges_.begin()) return;
    if (const auto before = std::prev(at); before->second == begin) {
      before->second = at->second;
      ranges_.erase(at);
    }
  }
  std::uint64_t end() const { return ranges_.empty() ? 0 : ranges_.rbegin()->second; }
  /// Where the range from 0 on ends.
  std::uint64_t prefix() const {
    return ranges_.empty() || ranges_.begin()->first != 0 ? 0 : ranges_.begin()->second;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

/// Whom a growing receive tells. The prefix may have grown again before a task that tells of it
/// runs: then it tells of all at once. Owners: the message, until it is complete or forgotten, and
/// the task.
struct GrowingReceive {
  Mesh::Arrived arrived;
  std::uint64_t prefix = 0;
  bool is_last = false;
  bool is_posted = false;  // a task that will tell
};

struct IncomingMessage {
  bool is_posted = false;
  std::span<std::byte> buffer;
  Task received;
  std::shared_ptr<GrowingReceive> growing;  // in place of `received`; then the size is at most
  std::optional<std::uint64_t> size;        // once its last piece is claimed
  Ranges claimed;
  Ranges there;                                           // of them, arrived
  std::uint64_t arrived = 0;                              // bytes
  std::map<std::uint64_t, std::vector<std::byte>> early;  // by offset; empty once posted

  /// Why the piece cannot belong to the message; empty when it can.
  std::string misfit(std::uint64_t offset, std::uint64_t bytes, bool is_last) const {
    const std::uint64_t most = is_posted ? buffer.size() : std::uint64_t{1} << 62;
    if (offset > most || bytes > most - offset ||
        (is_posted && !growing && is_last && offset + bytes != buffer.size())) {
      return wrong_size();
    }
    const std::uint64_t end = offset + bytes;
    if (bytes == 0 && !is_last) return "has an empty piece";
    if (claimed.overlaps(offset, end) || (is_last && size)) return "came twice";
    if ((size && end > *size) || (is_last && claimed.end() > end)) return "goes on after its end";
    return "";
  }
  std::string wrong_size() const {
    return fmt::format("does not have the {}{} bytes that were asked for",
                       growing ? "at most " : "", buffer.size());
  }
  void claim(std::uint64_t offset, std::uint64_t bytes, bool is_last) {
    claimed.add(offset, offset + bytes);
    if (is_last) size = offset + bytes;
  }
  void arrive(std::uint64_t offset, std::uint64_t bytes) {
    there.add(offset, offset + bytes);
    arrived += bytes;
  }
  /// Claims are disjoint and end at `size`, so that many bytes are all of them.
  bool is_complete() const { return is_posted && size && arrived == *size; }
};

}  // namespace longhaul
