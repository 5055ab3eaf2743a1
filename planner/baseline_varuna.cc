// Varuna [Athlur et al., EuroSys 2022; code commit a2145cc read for facts]: "one profile, measured
// send, long-send and all-reduce, brute force over depth and micro-batch". Its simulator plays one
// pipeline; here the closed form of pipeline_time.h does. Exhaustive over grids, schedules and the
// two layouts of ranks.
#include <algorithm>
#include <limits>
#include <optional>

#include "planner/baseline_parts.h"

namespace longhaul {
namespace {

/// Mean times of what was measured on a layout.
struct Measured {
  HopTime send;       // in a site
  HopTime long_send;  // between sites
  double reduce = 0;  // seconds a byte of a ring, and
  double reduce_latency = 0;
};

void add_hop(const Problem& problem, double bytes, int device, int next, HopTime& sum) {
  sum.forward_send += bytes / problem.rate(device, next);
  sum.forward_latency += problem.latency(device, next);
  sum.backward_send += bytes / problem.rate(next, device);
  sum.backward_latency += problem.latency(next, device);
}

void divide(HopTime& sum, int count) {
  for (double* part :
       {&sum.forward_send, &sum.forward_latency, &sum.backward_send, &sum.backward_latency}) {
    *part /= std::max(1, count);
  }
}

bool is_long(const Problem& problem, const Layout& layout, std::size_t hop) {
  return std::any_of(layout.begin(), layout.end(), [&](const std::vector<int>& row) {
    return problem.site(row[hop]) != problem.site(row[hop + 1]);
  });
}

Measured measure(const Problem& problem, const Layout& layout, int micro_batch) {
  Measured out;
  int sends = 0;
  int long_sends = 0;
  for (const std::vector<int>& row : layout) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      const bool far = problem.site(row[i]) != problem.site(row[i + 1]);
      ++(far ? long_sends : sends);
      add_hop(problem, boundary_wire_bytes(problem, micro_batch, row[i], row[i + 1]), row[i],
              row[i + 1], far ? out.long_send : out.send);
    }
  }
  divide(out.send, sends);
  divide(out.long_send, long_sends);
  // A ring from each replica to the next one.
  int pairs = 0;
  for (std::size_t i = 0; i < layout.front().size() && layout.size() > 1; ++i) {
    for (std::size_t d = 0; d < layout.size(); ++d, ++pairs) {
      const int from = layout[d][i];
      const int to = layout[(d + 1) % layout.size()][i];
      out.reduce += 1 / problem.rate(from, to);
      out.reduce_latency += problem.latency(from, to);
    }
  }
  out.reduce /= std::max(1, pairs);
  out.reduce_latency /= std::max(1, pairs);
  return out;
}

/// Seconds a FLOP and a pass of the one profile.
struct Profile {
  double seconds_per_flop = 0;
  double overhead = 0;
};

Profile profile_of(const Problem& problem, const std::vector<int>& devices, bool of_slowest) {
  Profile out;
  for (const int device : devices) {
    if (of_slowest) {
      out.seconds_per_flop = std::max(out.seconds_per_flop, problem.seconds_per_flop(device));
      out.overhead = std::max(out.overhead, problem.overhead(device));
    } else {
      out.seconds_per_flop +=
          problem.seconds_per_flop(device) / static_cast<double>(devices.size());
      out.overhead += problem.overhead(device) / static_cast<double>(devices.size());
    }
  }
  return out;
}

double estimate(const Problem& problem, const Plan& plan, const Profile& profile) {
  const Measured measured = measure(problem, plan.devices, plan.micro_batch);
  std::vector<StageTime> stages;
  std::vector<HopTime> hops;
  const std::vector<StageShape> shapes = stage_shapes(plan.layers);
  double bytes = 0;
  for (const StageShape& shape : shapes) {
    stages.push_back(stage_time(problem.job(), shape, plan.micro_batch, profile.seconds_per_flop,
                                profile.overhead));
    bytes = std::max(bytes, gradient_wire_bytes(problem, shape, plan.stages()));
  }
  for (std::size_t i = 0; i + 1 < shapes.size(); ++i)
    hops.push_back(is_long(problem, plan.devices, i) ? measured.long_send : measured.send);
  const double replicas = plan.pipelines();
  return pipeline_closed_form(stages, hops, plan.in_flight, plan.micro_batches.front()) +
         2 * ((replicas - 1) / replicas * bytes * measured.reduce +
              (replicas - 1) * measured.reduce_latency);
}

std::optional<Plan> best_for(const Problem& problem, const PolicyOptions& options,
                             bool of_slowest) {
  std::optional<Plan> best;
  double least = std::numeric_limits<double>::infinity();
  for (const BoundedGrid& bounded : grids_by_bound(problem, options.limits)) {
    const Grid& grid = bounded.grid;
    const std::vector<int> devices = fastest_by_name(problem, grid);
    const Profile profile = profile_of(problem, devices, of_slowest);
    for (const auto& make_layout : {stages_outermost, pipelines_outermost}) {
      const Layout layout = make_layout(devices, grid.stages);
      for (const ScheduleFamily family :
           {ScheduleFamily::kOneForwardOneBackward, ScheduleFamily::kGpipe}) {
        Plan plan = even_plan(problem.topology(), problem.job(), layout, grid.micro_batch, family);
        const double seconds = estimate(problem, plan, profile);
        if (seconds >= least || !check_memory(plan, problem.topology(), problem.job())) continue;
        least = seconds;
        best = std::move(plan);
      }
    }
  }
  return best;
}

}  // namespace

std::vector<Plan> varuna_candidates(const Problem& problem, const PolicyOptions& options) {
  std::vector<Plan> plans;
  for (const bool of_slowest : {false, true}) {
    if (std::optional<Plan> best = best_for(problem, options, of_slowest))
      plans.push_back(std::move(*best));
  }
  return plans;
}

}  // namespace longhaul
