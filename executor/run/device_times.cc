#include "executor/run/device_times.h"

#include "executor/pipeline/pipeline_step.h"
#include "executor/run/file_transfer.h"

namespace longhaul {

WorkTimes device_times(const RunSpec& spec, int cell, const EmulationSpec::Device& device) {
  const auto list = [&](const Plan& plan) {
    return make_schedule(plan, spec.job).tasklets[static_cast<std::size_t>(cell)].instructions;
  };
  return [train_list = list(spec.plan),
          validation_list = list(spec.validation ? validation_plan(spec) : spec.plan),
          device](std::uint64_t tag, std::size_t) -> Seconds {
    if (tag == kUpdateTag) return Seconds(device.update_s);
    const bool is_validation = (tag & kValidationTag) != 0;
    const auto& instructions = is_validation ? validation_list : train_list;
    const std::uint64_t index = tag & ~kValidationTag;
    if (index >= instructions.size()) return Seconds(0);
    const Op op = instructions[index].op;
    if (op == Op::kForward) return Seconds(device.forward_s);
    if (is_validation) return Seconds(0);  // it has no other work
    if (op == Op::kRecompute) return Seconds(device.recompute_s);
    if (op == Op::kBackward) return Seconds(device.backward_s);
    if (op == Op::kBackwardInput) return Seconds(device.backward_input_s);
    return Seconds(op == Op::kBackwardWeight ? device.backward_weight_s : 0);
  };
}

}  // namespace longhaul
