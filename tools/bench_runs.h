// What suites that carry plans out have in common: the `longhaul` beside this program, data of
// their own, and what an emulated run came to. All files go below build/bench, seen from the
// current directory.
//
// Another program's work shows in a run's figures: late completions say how much. Where the system
// allows it (to root it does) runs are scheduled before other programs, at real-time priority; they
// fill a third of the cores, so these go on.
#pragma once

#include <string>

#include "core/result.h"

namespace longhaul {

inline constexpr double kLateMax = 0.01;  // beyond it a run's timings do not count

/// A run, with all three numbers.
struct EmulatedRun {
  double predicted_s = 0;
  double measured_s = 0;  // median of its steps
  double late = 0;
  bool counts() const { return late <= kLateMax; }
};

class BenchRuns {
 public:
  /// Removes what an earlier run of the suite left and prepares data; what is trained on is a
  /// made-up text, since times do not depend on it.
  static Result<BenchRuns> prepare(const std::string& suite);

  /// Writes a file of the suite; returns its path.
  Result<std::string> write(const std::string& name, const std::string& text) const;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  /// Plans with the policy and returns the plan's path, beside the job.
  Result<std::string> plan(const std::string& cluster, const std::string& job,
                           const std::string& policy, const std::string& name, int threads) const;
  Result<EmulatedRun> launch(const std::string& plan, const std::string& name, int steps) const;
  /// The same, once more where it was late: the machine had other work for a while. The better one.
  Result<EmulatedRun> launch_in_time(const std::string& plan, const std::string& name,
                                     int steps) const;

 private:
  explicit BenchRuns(std::string folder) : folder_(std::move(folder)) {}
  /// Runs `longhaul`; what it prints goes to the log.
  Result<void> longhaul(const std::string& arguments, bool is_first = false) const;

  std::string folder_;  // with `data`, `runs` and `log`
};

}  // namespace longhaul
