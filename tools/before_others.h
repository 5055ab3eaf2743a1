// Real-time priority, for measurements: what is timed wakes in time though other programs fill the
// machine. It helps what works little and often; what computes for long must not have it.
#pragma once

#include <sched.h>

namespace longhaul {

/// While it lives, this thread and what it starts go before all others, if the system allows it (to
/// root it does). Belongs to its thread.
class BeforeOthers {
 public:
  explicit BeforeOthers(bool is_wanted = true) {
    const sched_param lowest{.sched_priority = 1};
    is_set_ = is_wanted && sched_setscheduler(0, SCHED_RR, &lowest) == 0;
  }
  ~BeforeOthers() {
    const sched_param none{.sched_priority = 0};
    if (is_set_) sched_setscheduler(0, SCHED_OTHER, &none);
  }
  BeforeOthers(const BeforeOthers&) = delete;
  BeforeOthers& operator=(const BeforeOthers&) = delete;

 private:
  bool is_set_ = false;
};

}  // namespace longhaul
