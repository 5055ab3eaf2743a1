#include "planner/warm_start.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "core/config_cursor.h"
#include "planner/placement_search.h"

namespace longhaul {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// The topology with stand-ins at its end for the devices, and for the coordinator's site, that a
/// plan file names and the cluster has no more, so that the file can be read and checked.
Topology with_what_is_gone(const Topology& topology, const std::vector<std::string>& devices,
                           const std::string& coordinator, Precision precision) {
  Topology out = topology;
  if (topology.find_site(coordinator) < 0) {
    Site site;
    site.name = coordinator;
    site.uplink = site.downlink = BytesPerSecond::infinity();
    out.sites.push_back(site);
    out.links.assign(out.sites.size() * out.sites.size(), Link{});
  }
  // Any kind that has the speed.
  int kind = 0;
  for (std::size_t k = 0; k < topology.kinds.size(); ++k) {
    if (topology.kinds[k].rate_at(precision) > FlopsPerSecond(0)) kind = static_cast<int>(k);
  }
  for (const std::string& name : devices) {
    if (out.find_device(name) < 0) out.devices.push_back({name, 0, 0, kind});
  }
  return out;
}

}  // namespace

Result<OldPlan> load_old_plan(const std::string& path, const Topology& topology, const Job& job) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(path));
  return parse_old_plan(file.text(), path, topology, job);
}

Result<OldPlan> parse_old_plan(std::string_view text, const std::string& name,
                               const Topology& topology, const Job& job) {
  // Names alone; what is wrong with the file is said by parse_plan.
  std::vector<std::string> names;
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  const Cursor root = file.root();
  const Cursor rows = root.is_map() ? root.optional("pipelines") : root;
  for (const Cursor& row : rows.is_list() ? rows.items() : std::vector<Cursor>()) {
    for (const Cursor& cell : row.is_list() ? row.items() : std::vector<Cursor>())
      names.push_back(cell.text());
  }
  const std::string coordinator = root.is_map() ? root.optional("coordinator").text() : "";
  LH_ASSIGN(
      PlanFile read,
      parse_plan(text, name, with_what_is_gone(topology, names, coordinator, job.precision), job));
  OldPlan old{std::move(read.plan), {}, read.job_hash == 0 || read.job_hash == job.hash};
  for (const std::string& each : names) {
    const bool is_known = std::ranges::find(old.gone, each) != old.gone.end();
    if (topology.find_device(each) < 0 && !is_known) old.gone.push_back(each);
  }
  for (std::vector<int>& row : old.plan.devices) {
    for (int& device : row) device = device < topology.device_count() ? device : kGone;
  }
  if (old.plan.coordinator_site >= topology.site_count()) {
    // Any will do: the best one is chosen again with the devices.
    old.plan.coordinator_site = 0;
    for (const std::vector<int>& row : old.plan.devices) {
      for (const int device : row) {
        if (device != kGone) old.plan.coordinator_site = topology.site_of(device);
      }
    }
  }
  return old;
}

std::optional<Plan> repaired(const Problem& problem, const Plan& old) {
  std::vector<char> is_usable(problem.topology().devices.size(), 0);
  for (const int device : problem.usable()) is_usable[at(device)] = 1;
  const auto is_lost = [&](int device) { return device == kGone || is_usable[at(device)] == 0; };
  std::vector<std::vector<int>> rows = old.devices;
  std::vector<int> idle;
  const auto losses = [&] {
    idle = problem.usable();
    std::ptrdiff_t lost = 0;
    for (const std::vector<int>& row : rows) {
      lost += std::ranges::count_if(row, is_lost);
      std::erase_if(idle, [&](int device) { return std::ranges::find(row, device) != row.end(); });
    }
    return static_cast<std::size_t>(lost);
  };
  std::size_t lost = losses();
  const auto if_it_fits = [&](const Plan& plan) {
    return check_memory(plan, problem.topology(), problem.job()) ? std::optional(plan)
                                                                 : std::nullopt;
  };
  if (lost == 0) return if_it_fits(old);
  while (lost > idle.size()) {
    rows.erase(std::ranges::max_element(rows, {}, [&](const std::vector<int>& row) {
      return std::ranges::count_if(row, is_lost);
    }));
    if (rows.empty()) return std::nullopt;
    lost = losses();
  }
  const Grid grid{old.stages(), static_cast<int>(rows.size()), old.micro_batch};
  if (!allows(problem.rules(), grid, problem.job())) return std::nullopt;
  Evaluator evaluator(problem, grid);
  Candidate candidate;
  candidate.layers = old.layers;
  std::vector<std::size_t> replaced;  // cells
  for (const std::vector<int>& row : rows) {
    for (const int device : row) {
      if (is_lost(device)) {
        replaced.push_back(candidate.cells.size());
        candidate.cells.push_back(idle.front());
        idle.erase(idle.begin());
      } else {
        candidate.cells.push_back(device);
      }
    }
  }
  place_pins(evaluator, candidate.cells);
  for (const std::size_t cell : replaced) {
    double best = evaluator.evaluate(candidate);
    for (int& other : idle) {
      std::swap(candidate.cells[cell], other);
      const double value = evaluator.evaluate(candidate);
      if (value < best) {
        best = value;
      } else {
        std::swap(candidate.cells[cell], other);
      }
    }
  }
  if (evaluator.evaluate(candidate) >= Evaluator::kOverflow)
    candidate.layers = evaluator.split_layers(candidate.cells);
  if (evaluator.evaluate(candidate) >= Evaluator::kOverflow) return std::nullopt;
  return if_it_fits(evaluator.finish(candidate));
}

Result<WarmStart> search_from(const Topology& topology, const Job& job, SearchOptions options,
                              const OldPlan& old, Seconds horizon) {
  WarmStart out;
  LH_ASSIGN(const std::vector<char> admitted, admitted_devices(topology, options.devices));
  const Problem problem(topology, job, admitted, options.goal, options.rules);
  const auto worth = [&](const JudgedPlan& judged, const Migration& move) {
    return value_of(judged, options.goal).first * (1 + move.time / horizon);
  };
  bool may_keep = false;
  if (const std::optional<Plan> plan = repaired(problem, old.plan)) {
    LH_ASSIGN(StepResult step, simulate_step(topology, job, *plan));
    out.old = JudgedPlan{*plan, std::move(step), 0};
    out.old_move = migration_between(topology, job, old.plan, *plan);
    const std::optional<Plan> admitted_plan = as_admitted(topology, job, options, *plan);
    may_keep = admitted_plan && is_same(*admitted_plan, *plan) &&
               out.old->step.usd <= options.goal.usd_max;
    options.seeds.insert(options.seeds.begin(), *plan);
  }
  LH_ASSIGN(out.found, search_plan(topology, job, options));

  std::vector<JudgedPlan*> others;
  for (JudgedPlan& judged : out.found.judged) {
    if (judged.step.usd <= options.goal.usd_max &&
        !(out.old && is_same(judged.plan, out.old->plan)))
      others.push_back(&judged);
  }
  std::ranges::stable_sort(
      others, {}, [&](const JudgedPlan* judged) { return value_of(*judged, options.goal); });
  double least = std::numeric_limits<double>::infinity();
  for (JudgedPlan* each : others) {
    JudgedPlan& judged = *each;
    if (value_of(judged, options.goal).first >= least) break;  // however little moves
    Plan plan = with_less_to_move(topology, job, old.plan, judged.plan);
    // A pinned device stays where it is pinned.
    if (keeps(options.rules, plan, job)) judged.plan = std::move(plan);
    Migration move = migration_between(topology, job, old.plan, judged.plan);
    if (worth(judged, move) >= least) continue;
    least = worth(judged, move);
    out.other = judged;
    out.move = std::move(move);
  }
  const bool has_other = std::isfinite(least);
  if (has_other) {
    // Equal devices were exchanged: the same step, but for the order of what happens at one time.
    LH_ASSIGN(out.other.step, simulate_step(topology, job, out.other.plan));
  }
  out.kept =
      may_keep && (!has_other || worth(*out.old, out.old_move) <= worth(out.other, out.move));
  if (!has_other) out.other = out.kept ? *out.old : out.found.best;
  out.found.best = out.kept ? *out.old : out.other;
  if (out.old) {
    const double gain = (out.old->step.step - out.other.step.step).value();
    const double extra = std::max(0.0, (out.move.time - out.old_move.time).value());
    out.pays_after = gain > 0 ? std::ceil(extra / gain) : std::numeric_limits<double>::infinity();
  }
  return out;
}

}  // namespace longhaul
