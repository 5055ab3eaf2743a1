// Every deadline and limit of the control plane, in one place. Times are wall time, emulated runs
// included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/units.h"

namespace longhaul {

struct ControlLimits {
  /// The coordinator pings each worker this often; its first missed answer is due one interval
  /// later.
  Seconds heartbeat_interval = milliseconds(500);
  /// A peer is dead after so many in a row: 3 to 3.5 s after it fell silent.
  int missed_heartbeats = 6;
  /// From a COMMIT to the last PREPARED of the next step: finds workers that answer heartbeats and
  /// do nothing else. Also bounds a worker's wait for COMMIT.
  Seconds step_deadline{1800};
  /// For a line of the journal to be on the medium.
  Seconds journal_deadline{30};
  /// From STOP to the last STOPPED.
  Seconds stop_deadline{30};
  /// Steps that are not finite; the one that reaches this number stops the run.
  int skips_in_a_row = 10;
};

/// Largest number of tensors of a stage: their sums of squares fit a control message.
inline constexpr std::size_t kStageTensorsMax = std::size_t{1} << 15;
/// Longer reasons are cut.
inline constexpr std::size_t kReasonBytesMax = 4096;
/// Steps fit the 28 bits that the wire's operation has for them.
inline constexpr std::uint64_t kControlStepMax = (std::uint64_t{1} << 28) - 1;

}  // namespace longhaul
