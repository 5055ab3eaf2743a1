#include "core/history_budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace longhaul {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Of a run's data (executor/data/slots.h).
constexpr std::int64_t kMostSamples = std::int64_t{1} << 62;

/// Histories that fit in `room`; of nothing, as many as one likes.
std::int64_t fitting(Bytes room, Bytes each) {
  const double count = std::floor(room / each);
  return count < 9e15 ? static_cast<std::int64_t>(count) : kUnknownSamples;
}

}  // namespace

Bytes history_bytes(const ModelShape& model) {
  return Bytes(2.0 * model.context * model.width);
}

std::int64_t samples_at_most(const Job& job) {
  if (job.history && job.history->samples > 0) return job.history->samples;
  if (!job.training) return kUnknownSamples;
  return static_cast<std::int64_t>(job.training->steps) * job.global_batch;
}

std::vector<BoundaryHistory> boundary_histories(const Plan& plan, const Job& job, int pipeline,
                                                const std::vector<int>& sites,
                                                std::int64_t samples) {
  const int hops = plan.stages() - 1;
  std::vector<BoundaryHistory> boundaries(at(std::max(hops, 0)));
  const auto keeps = [&](int hop) {
    return hop >= 0 && hop < hops && sites[at(hop)] != sites[at(hop + 1)] &&
           has_history(activation_codec(plan, job, sites[at(hop)], sites[at(hop + 1)]));
  };
  if (samples > kMostSamples) samples = kUnknownSamples;
  // A sample keeps its slot in the batch, and a pipeline its slots (executor/data/slots.h).
  const std::int64_t slots = std::int64_t{plan.micro_batches[at(pipeline)]} * plan.micro_batch;
  const std::int64_t rows = samples / job.global_batch + (samples % job.global_batch > 0 ? 1 : 0);
  const std::int64_t own = samples == kUnknownSamples ? samples : std::min(samples, rows * slots);
  const HistorySettings room = job.history.value_or(HistorySettings{});
  const Bytes each = history_bytes(job.model);
  for (int hop = 0; hop < hops; ++hop) {
    if (!keeps(hop)) continue;
    BoundaryHistory& boundary = boundaries[at(hop)];
    boundary.samples = own;
    boundary.capacity = own;
    std::int64_t in_memory[2] = {};
    for (const int end : {0, 1}) {
      // The stage's other boundary is on its other side.
      const double shares = keeps(end == 0 ? hop - 1 : hop + 1) ? 2 : 1;
      in_memory[end] = fitting(room.memory / shares, each);
      boundary.capacity =
          std::min(boundary.capacity, fitting((room.memory + room.disk) / shares, each));
    }
    for (const int end : {0, 1}) {
      boundary.in_memory[end] = std::min(in_memory[end], boundary.capacity);
    }
  }
  return boundaries;
}

std::vector<BoundaryHistory> boundary_histories(const Plan& plan, const Topology& topology,
                                                const Job& job, int pipeline) {
  std::vector<int> sites;
  for (int i = 0; i < plan.stages(); ++i) {
    sites.push_back(topology.site_of(plan.device(pipeline, i)));
  }
  return boundary_histories(plan, job, pipeline, sites, samples_at_most(job));
}

HistoryUse history_use(const ModelShape& model, const std::vector<BoundaryHistory>& boundaries,
                       int stage) {
  HistoryUse use;
  const double each = history_bytes(model).value();
  const auto add = [&](int hop, int end) {
    if (hop < 0 || at(hop) >= boundaries.size()) return;
    const BoundaryHistory& boundary = boundaries[at(hop)];
    const auto in_memory = static_cast<double>(boundary.in_memory[end]);
    use.memory += Bytes(in_memory * each);
    use.disk += Bytes((static_cast<double>(boundary.capacity) - in_memory) * each);
  };
  add(stage - 1, 1);
  add(stage, 0);
  return use;
}

double hit_rate(const Job& job, const BoundaryHistory& boundary) {
  if (boundary.samples == 0 || !job.history || job.history->samples == 0) return 1;
  return static_cast<double>(boundary.capacity) / static_cast<double>(boundary.samples);
}

}  // namespace longhaul
