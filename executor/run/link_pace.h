// Whether tensors to a neighbour should be written in fewer bits, because the link is slower than
// the plan thought, or may be written in more. Decided from what the last steps took, between the
// codecs of a ladder, the finest first; its end is the job's floor.
//
// A stage sends about as long as it computes when its link just keeps up: both are sums over the
// micro-batches of a step, and in the steady state of a pipeline the longer of the two is what a
// micro-batch takes. So with load = busy / compute of a step
//
//   coarser   load above kSlow in kSlowSteps steps running: to the finest rung whose load would be
//             at most 1 by its bits, or the last
//   finer     the next finer rung's load would be at most kRoomy in kRoomySteps steps running,
//   each:
//             by one rung
//
// Between the two bounds lies more than a rung's difference of load, so what was changed stays.
// Where it does not (the link itself goes to and fro), each return from a rung that proved too fine
// doubles the steps that the next try waits for, up to kPatienceMax times. A change needs
// kSettleSteps steps before anything is counted.
//
// A plain value; any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace longhaul {

struct PaceSample {
  double busy = 0;     // s that a step's sends to the neighbour had the lane
  double compute = 0;  // s of the stage's own work in the step
};

class LinkPace {
 public:
  static constexpr double kSlow = 1.1;
  static constexpr int kSlowSteps = 3;
  static constexpr double kRoomy = 0.7;
  static constexpr int kRoomySteps = 10;
  static constexpr int kSettleSteps = 1;
  static constexpr int kPatienceMax = 64;

  /// `bits` of an element on each rung, falling; `rung` is where it begins.
  LinkPace(std::vector<double> bits, std::size_t rung);

  std::size_t rung() const { return rung_; }
  /// After a step; answers the rung of the next. A sample that says nothing (no time, not finite)
  /// changes nothing.
  std::size_t next(const PaceSample& sample);

 private:
  void go_to(std::size_t rung);

  std::vector<double> bits_;
  std::size_t rung_;
  int settling_ = 0;
  int slow_steps_ = 0;
  double slow_load_ = 0;  // the least of those steps
  int roomy_steps_ = 0;
  int patience_ = 1;
  bool is_on_trial_ = false;  // the present rung was taken because it seemed to have room
};

}  // namespace longhaul
