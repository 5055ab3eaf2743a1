// How long a device that is only played takes for a worker's work: its table, by the tags of the
// work (pipeline_step.h, file_transfer.h). For emulated and for simulated compute queues.
#pragma once

#include "executor/run/run_spec.h"
#include "kernels/cpu/simulated_compute_queue.h"

namespace longhaul {

/// What the plan does not price takes no time: codecs, files, hashes. Keeps what it needs of
/// `spec`.
WorkTimes device_times(const RunSpec& spec, int cell, const EmulationSpec::Device& device);

}  // namespace longhaul
