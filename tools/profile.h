// How fast this machine computes, in the terms of a device file: times of passes over a few layers
// with the CPU kernels, on the calling thread, and the device that explains them best.
//
// The formulas are core/model_math.h's: a pass takes FLOPs / rate + overhead, an update 28 bytes a
// parameter / memory rate. Backwards, heads and small micro-batches each have a rate of their own;
// the residuals say how much is lost by giving them one.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/model_math.h"
#include "core/result.h"
#include "core/topology.h"

namespace longhaul {

enum class PassKind { kForward, kBackward, kUpdate };
std::string_view name_of(PassKind kind);

struct PassTime {
  PassKind kind = PassKind::kForward;
  StageShape stage;
  int micro_batch = 0;    // 0 for an update
  Flops work;             // 0 for an update
  double parameters = 0;  // of the stage
  Seconds time;           // median
  int repeats = 0;        // that it is the median of
  Precision precision = Precision::kFp32;
};

struct ProfileOptions {
  Seconds budget;
  Precision precision = Precision::kFp32;
  std::function<bool()> should_stop = [] { return false; };
  /// After each pass over what is measured.
  std::function<void(int round, std::size_t passes)> on_round = [](int, std::size_t) {};
};

/// One layer, one with the head, and up to four, each at micro-batches of 1, 2 and 4 sequences as
/// far as the budget and half of the memory go; the smallest is measured whatever the budget. Fails
/// (kInvalid) on a model that the CPU kernels do not have, (kInfeasible) on a layer too large for
/// the machine. Stopped: what there is, which may be nothing.
Result<std::vector<PassTime>> measure_passes(const ModelShape& model,
                                             const ProfileOptions& options);

/// Rate (of the passes' precision), overhead and memory rate, by least squares of relative errors;
/// the overhead is at least 0. There must be a forward or backward and an update.
DeviceKind fit_device(std::span<const PassTime> passes);

/// What the device takes for the pass by the formulas.
Seconds fitted_time(const DeviceKind& device, const PassTime& pass);

/// The model of configs/jobs/demo-gpt.yaml, for a machine that has no job at hand.
ModelShape demo_model();

/// Memory of this machine, and one line about its processor.
Bytes machine_memory();
std::string processor_name();

/// The device file. `device` has every field of a device file but the peaks, which are its rates.
std::string device_text(const DeviceKind& device);

}  // namespace longhaul
