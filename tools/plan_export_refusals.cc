// What the targets of an export cannot express. Facts: Megatron-LM's pipeline schedules and layout
// flag, torchtitan's parallelism section and its Llama, PyTorch's Schedule1F1B and ScheduleGPipe.
// All of them have zero-bubble schedules, but none reads the order of the passes from a plan.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tools/plan_export.h"

namespace longhaul {
namespace {

class Refusals {
 public:
  Refusals(ExportTarget target, const Plan& plan, const Topology& topology, const Job& job)
      : target_(target),
        plan_(plan),
        topology_(topology),
        job_(job),
        model_(job.model),
        name_(name_of(target)) {}

  std::vector<Error> find() {
    refuse_what_no_target_has();
    if (target_ == ExportTarget::kTorchrun) refuse_for_torchrun();
    if (target_ == ExportTarget::kMegatron) refuse_for_megatron();
    if (target_ == ExportTarget::kTorchtitan) refuse_for_torchtitan();
    return std::move(refusals_);
  }

 private:
  int stages() const { return plan_.stages(); }

  void refuse(std::string message, std::string hint) {
    refusals_.push_back(infeasible(std::move(message), std::move(hint)).error());
  }

  void refuse_what_no_target_has() {
    const auto [fewest, most] = std::ranges::minmax(plan_.micro_batches);
    if (fewest != most) {
      std::set<std::string> kinds;
      for (const std::vector<int>& pipeline : plan_.devices) {
        for (const int device : pipeline) kinds.insert(topology_.kind_of(device).name);
      }
      const std::string why =
          kinds.size() == 1 ? ""
                            : fmt::format(" (their devices differ: {})", fmt::join(kinds, ", "));
      refuse(fmt::format("the pipelines run [{}] micro-batches{}, but {} gives every replica the "
                         "same number",
                         fmt::join(plan_.micro_batches, ", "), why, name_),
             "make the numbers of `micro_batches` equal in the plan file; pipelines of equal "
             "devices lose least by it");
    }
    // One stage runs a forward and its backward in turn, whatever depth the plan allows.
    if (stages() == 1 || plan_.family == ScheduleFamily::kGpipe) return;
    if (plan_.family == ScheduleFamily::kGreedy) {
      refuse(
          fmt::format("the plan's schedule is greedy, with the passes of every stage in an order "
                      "of its own, but {} takes no order from outside",
                      name_),
          "use family 1f1b in the plan file, and look with `longhaul simulate` at what that "
          "costs");
      return;
    }
    const std::vector<int> own = default_in_flight(plan_.family, stages(), most);
    if (plan_.in_flight != own) {
      refuse(fmt::format("the stages hold [{}] micro-batches in flight, but the 1F1B of {} holds "
                         "[{}]",
                         fmt::join(plan_.in_flight, ", "), name_, fmt::join(own, ", ")),
             "leave `in_flight` out of the plan file, and look with `longhaul simulate` at what "
             "that costs");
    }
  }

  void refuse_for_torchrun() {
    if (std::ranges::all_of(plan_.layers, [&](int n) { return n == plan_.layers.front(); })) return;
    refuse(fmt::format("the stages have [{}] layers, but a plain torchrun script cuts its model "
                       "into equal parts",
                       fmt::join(plan_.layers, ", ")),
           "make `layers` equal in the plan file, or export for megatron or torchtitan");
  }

  void refuse_for_megatron() {
    if (stages() > 1 && plan_.family == ScheduleFamily::kGpipe) {
      refuse("the plan's schedule is gpipe, but Megatron has no GPipe", "use family 1f1b");
    }
  }

  void refuse_for_torchtitan() {
    if (model_.family == ModelFamily::kGpt2) {
      refuse("the job's model is a GPT-2, but torchtitan has no GPT-2",
             "export for megatron, or plan a job of family llama");
      return;  // what follows is about its Llama
    }
    if (job_.precision == Precision::kFp16) {
      refuse("the job computes in fp16, but torchtitan knows bfloat16 and float32 only",
             "plan the job with `precision: bf16`");
    }
    if (model_.tied_embedding && stages() > 1) {
      refuse("the job's embedding is tied, but torchtitan ties none across pipeline stages",
             "plan the job with `tied_embedding: false`, which is another model");
    }
    if (model_.heads * model_.head_width != model_.width) {
      refuse(fmt::format("{} heads of width {} are not the model's width {}, as they are in "
                         "torchtitan's Llama",
                         model_.heads, model_.head_width, model_.width),
             "leave `head_width` out of the job");
    }
    const int fewest = std::ranges::min(plan_.micro_batches);
    if (stages() > 1 && fewest < stages()) {
      refuse(fmt::format("a pipeline runs {} micro-batches over {} stages, but PyTorch's schedules "
                         "want one a stage at least",
                         fewest, stages()),
             "plan with a smaller micro-batch or fewer stages");
    }
  }

  const ExportTarget target_;
  const Plan& plan_;
  const Topology& topology_;
  const Job& job_;
  const ModelShape& model_;
  const std::string_view name_;
  std::vector<Error> refusals_;
};

}  // namespace

std::string_view name_of(ExportTarget target) {
  constexpr std::string_view names[] = {"torchrun", "megatron", "torchtitan"};
  return names[static_cast<std::size_t>(target)];
}

std::vector<Error> export_refusals(ExportTarget target, const Plan& plan, const Topology& topology,
                                   const Job& job) {
  return Refusals(target, plan, topology, job).find();
}

}  // namespace longhaul
