#include "netsim/conditions.h"

#include <algorithm>
#include <cmath>

namespace longhaul {

bool Window::contains(Seconds time) const {
  if (time < begin || time >= end) return false;
  return every <= Seconds(0) || std::fmod((time - begin).value(), every.value()) < lasts.value();
}

Seconds Window::next_edge(Seconds time) const {
  const Seconds never(std::numeric_limits<double>::infinity());
  if (time < begin) return begin;
  if (time >= end) return never;
  if (every <= Seconds(0)) return end;
  const double period = std::floor((time - begin).value() / every.value());
  // Sums round: of the edges near by, the first that is later.
  for (double k = period; k <= period + 1; ++k) {
    const Seconds open = begin + k * every;
    if (open > time) return std::min(open, end);
    if (open + lasts > time) return std::min(open + lasts, end);
  }
  return std::min(begin + (period + 2) * every, end);
}

std::string_view name_of(Sharing sharing) {
  switch (sharing) {
    case Sharing::kFair:
      return "fair";
    case Sharing::kRtt:
      return "rtt";
    case Sharing::kTurns:
      return "turns";
  }
  return "?";
}

double Conditions::slowdown(int device, Seconds time) const {
  double factor = 1;
  for (const Slowdown& slowdown : slowdowns) {
    if (!slowdown.window.contains(time)) continue;
    if (std::ranges::binary_search(slowdown.devices, device)) factor *= slowdown.factor;
  }
  return factor;
}

Seconds Conditions::next_change(Seconds time) const {
  Seconds next(std::numeric_limits<double>::infinity());
  if (replay) next = replay->next_change(time);
  for (const Background& traffic : background) {
    next = std::min(next, traffic.window.next_edge(time));
  }
  for (const Slowdown& slowdown : slowdowns) {
    next = std::min(next, slowdown.window.next_edge(time));
  }
  return next;
}

}  // namespace longhaul
