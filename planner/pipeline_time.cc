#include "planner/pipeline_time.h"

#include <algorithm>

#include "core/result.h"

namespace longhaul {

double pipeline_fill(std::span<const StageTime> stages, std::span<const HopTime> hops) {
  double total = 0;
  for (const StageTime& stage : stages) total += stage.forward + stage.backward;
  for (const HopTime& hop : hops) total += hop.round_trip();
  return total;
}

double pipeline_period(std::span<const StageTime> stages, std::span<const HopTime> hops,
                       std::span<const int> in_flight, int micro_batches) {
  double period = 0;
  for (const HopTime& hop : hops) period = std::max({period, hop.forward_send, hop.backward_send});
  for (std::size_t i = 0; i < stages.size(); ++i) {
    // A stage alone is its own cycle whatever its K: it does one thing at a time.
    double sum = stages[i].forward + stages[i].backward;
    period = std::max(period, sum);
    if (in_flight[i] >= micro_batches) continue;
    for (std::size_t j = i + 1; j < stages.size(); ++j) {
      sum += stages[j].forward + stages[j].backward + hops[j - 1].round_trip();
      period = std::max(period, sum / (in_flight[i] - in_flight[j] + 1));
    }
  }
  return period;
}

double gpipe_period(std::span<const StageTime> stages, std::span<const HopTime> hops) {
  double forward = 0;
  double backward = 0;
  for (const StageTime& stage : stages) {
    forward = std::max(forward, stage.forward);
    backward = std::max(backward, stage.backward);
  }
  for (const HopTime& hop : hops) {
    forward = std::max(forward, hop.forward_send);
    backward = std::max(backward, hop.backward_send);
  }
  return forward + backward;
}

double pipeline_closed_form(std::span<const StageTime> stages, std::span<const HopTime> hops,
                            std::span<const int> in_flight, int micro_batches) {
  const double fill = pipeline_fill(stages, hops);
  const bool gpipe =
      std::all_of(in_flight.begin(), in_flight.end(), [&](int k) { return k >= micro_batches; });
  if (!gpipe) {
    return fill + (micro_batches - 1) * pipeline_period(stages, hops, in_flight, micro_batches);
  }
  return fill + (micro_batches - 1) * gpipe_period(stages, hops);
}

std::vector<double> pipeline_recursion(std::span<const StageTime> stages,
                                       std::span<const HopTime> hops,
                                       std::span<const int> in_flight, int micro_batches) {
  const std::size_t count = stages.size();
  const auto batches = static_cast<std::size_t>(micro_batches);
  constexpr double kUnknown = -1;
  struct StageState {
    std::size_t forwards = 0;   // done
    std::size_t backwards = 0;  // done
    double free = 0;            // compute lane
    double forward_lane = 0;    // sends of activations
    double backward_lane = 0;   // sends of gradients
  };
  std::vector<StageState> state(count);
  // Arrival of the activation (gradient) of a micro-batch at a stage.
  std::vector<double> activation(count * batches, kUnknown);
  std::vector<double> gradient(count * batches, kUnknown);
  for (std::size_t m = 0; m < batches; ++m) {
    activation[m] = 0;
    gradient[(count - 1) * batches + m] = 0;
  }
  // Runs the next instruction of a stage if its input has arrived.
  const auto advance = [&](std::size_t i) {
    StageState& at = state[i];
    const auto depth = static_cast<std::size_t>(std::min(in_flight[i], micro_batches));
    const bool forward = at.forwards < batches && at.forwards < at.backwards + depth;
    if (forward) {
      const double input = activation[i * batches + at.forwards];
      if (input == kUnknown) return false;
      at.free = std::max(at.free, input) + stages[i].forward;
      if (i + 1 < count) {
        at.forward_lane = std::max(at.forward_lane, at.free) + hops[i].forward_send;
        activation[(i + 1) * batches + at.forwards] = at.forward_lane + hops[i].forward_latency;
      }
      ++at.forwards;
      return true;
    }
    if (at.backwards == batches) return false;
    const double input = gradient[i * batches + at.backwards];
    if (input == kUnknown) return false;
    at.free = std::max(at.free, input) + stages[i].backward;
    if (i > 0) {
      at.backward_lane = std::max(at.backward_lane, at.free) + hops[i - 1].backward_send;
      gradient[(i - 1) * batches + at.backwards] = at.backward_lane + hops[i - 1].backward_latency;
    }
    ++at.backwards;
    return true;
  };
  bool progress = true;
  while (progress) {
    progress = false;
    for (std::size_t i = 0; i < count; ++i) {
      while (advance(i)) progress = true;
    }
  }
  std::vector<double> ends;
  for (const StageState& at : state) {
    LH_CHECK(at.backwards == batches, "a valid in-flight vector never dead-locks");
    ends.push_back(at.free);
  }
  return ends;
}

}  // namespace longhaul
