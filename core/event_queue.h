// Virtual-time event queue: events come out by time, and events of one time in the order they were
// put in, so that a simulation does the same thing on every run. Belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

template <class Event>
class EventQueue {
 public:
  void push(SimTime time, Event event) {
    heap_.push_back({time, sequence_++, std::move(event)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool empty() const { return heap_.empty(); }
  /// Time of the next event; SimTime::never() when there is none.
  SimTime next_time() const { return heap_.empty() ? SimTime::never() : heap_.front().time; }
  /// Takes out the next event. There must be one.
  Event pop() {
    LH_CHECK(!heap_.empty(), "pop needs an event");
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Event event = std::move(heap_.back().event);
    heap_.pop_back();
    return event;
  }

 private:
  struct Entry {
    SimTime time;
    std::uint64_t sequence;
    Event event;
  };
  static bool later(const Entry& a, const Entry& b) {
    return std::pair(a.time, a.sequence) > std::pair(b.time, b.sequence);
  }

  std::vector<Entry> heap_;
  std::uint64_t sequence_ = 0;
};

}  // namespace longhaul
