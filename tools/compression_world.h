// GPT-2 XL on V100s, made small: files of a cluster, a job and a plan in which a step of tiny
// tensors takes as long as one of GPT-2 XL (48 layers, width 1,600, context 1,024, fp32, an output
// head of its own, as AQ-SGD trained it) on 8 V100s a pipeline, so that the real executor can carry
// it out. What decides a step is bytes over rates and FLOPs over speeds, so these are kept:
//
//   compute   the small stage's device is a kind of its own, slower than a V100 by the ratio of
//             FLOPs: a forward takes what one of GPT-2 XL's stage takes, so does an update
//   boundary  a micro-batch's tensor has 1/25 of the elements, and a link between stages 1/25 of
//             the rate: every codec takes the time that it would take, but for a frame's header
//             (0.5 % of the smallest message here, 0.02 % there)
//   gradients each stage's exchange has a link of its own, slower by the ratio of parameters
//
// Latencies stay as they are. Layers are shared among the stages as AQ-SGD's code does it: three
// fewer on the last, which has the head, one more on the three before. Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "core/job.h"
#include "core/model_math.h"
#include "core/plan.h"
#include "core/result.h"

namespace longhaul {

/// GPT-2 XL, and the shape that stands for it here.
ModelShape gpt2_xl();
ModelShape small_xl();
inline constexpr int kXlStages = 8;
/// Layers of each stage; one of each of the small model.
std::vector<int> gpt2_xl_layers();

struct CompressionWorld {
  std::string name;
  std::string compression = {};  // the job's section
  double link_mbit_per_s = 100;  // of GPT-2 XL's links between any two devices
  int pipelines = 1;
  int micro_batches = 32;  // of a pipeline, of one sequence each
  ScheduleFamily family = ScheduleFamily::kGpipe;
  std::vector<int> in_flight = {};  // empty: the family's
};

/// A stage's device, as a device file's text.
std::string small_device_text(const DeviceKind& v100, int stage);
/// Names its device files `stage-N.yaml`, beside itself.
std::string small_cluster_text(const CompressionWorld& world);
std::string small_job_text(const CompressionWorld& world, int steps);
/// The plan on that cluster: device n is cell n.
Plan small_plan(const CompressionWorld& world);

/// Text whose training part, in bytes, is exactly `sequences` sequences of the small model, with
/// the fraction that validation is to have.
struct SmallText {
  std::string text;
  double validation = 0;
};
SmallText small_text(int sequences);

}  // namespace longhaul
