#include "planner/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "core/quantity.h"
#include "planner/parallel.h"
#include "planner/placement_search.h"

namespace longhaul {
namespace {

constexpr int kMaxMicroBatch = 16;       // sequences; larger ones only help tiny models
constexpr std::size_t kPopulation = 12;  // of a grid
constexpr std::size_t kJudged = 96;      // plans that are simulated
constexpr std::size_t kJudgedPerGrid = 3;

/// One round: how many grids stay, how many islands breed in each, and how long each climbs.
struct Round {
  std::size_t grids;
  int islands;
  int evaluations;
};
constexpr Round kRounds[] = {
    {64, 1, 1500}, {24, 2, 3000}, {8, 4, 6000}, {4, 8, 8000}, {3, 10, 8000}};

struct Branch {
  Grid grid;
  Bound bound;
  std::vector<Scored> population;  // best first

  double best() const {
    return population.empty() ? std::numeric_limits<double>::infinity()
                              : population.front().seconds;
  }
};

auto order_of(const Grid& grid) {
  return std::tuple(grid.stages, grid.pipelines, grid.micro_batch);
}

/// Best first; equal ones by grid.
void sort_branches(std::vector<Branch>& branches) {
  std::sort(branches.begin(), branches.end(), [](const Branch& a, const Branch& b) {
    return std::pair(a.best(), order_of(a.grid)) < std::pair(b.best(), order_of(b.grid));
  });
}

/// What to say when no grid holds the job.
Error no_room(const Problem& problem, const std::vector<Branch>& branches) {
  // The branch that comes nearest; what it lacks is in its cost (see Evaluator::kOverflow).
  const Branch& nearest = branches.front();
  const double missing = nearest.best() / Evaluator::kOverflow - 1;
  const Job& job = problem.job();
  std::string hint = "add devices or memory, ";
  hint += job.recompute ? "or use a smaller micro-batch" : "or set `recompute: true` in the job";
  return Error{
      ErrorCode::kInfeasible,
      fmt::format("the job fits the memory of no grid: the nearest, {} stages x {} pipelines with "
                  "micro-batches of {}, lacks {} in all",
                  nearest.grid.stages, nearest.grid.pipelines, nearest.grid.micro_batch,
                  format_size(Bytes(missing))),
      hint,
      {},
      "",
      {}};
}

class Search {
 public:
  Search(const Topology& topology, const Job& job, const SearchOptions& options)
      : topology_(topology), job_(job), options_(options), problem_(topology, job) {}

  Result<SearchResult> run() {
    if (problem_.usable().empty()) {
      return infeasible(fmt::format("no device of cluster `{}` has a {} speed", topology_.name,
                                    name_of(job_.precision)),
                        "choose another `precision` in the job");
    }
    LH_TRY(open_branches());
    for (const Round& round : kRounds) {
      if (!breed(round)) break;
      report_progress();
      if (options_.should_stop && options_.should_stop()) break;
    }
    return finish();
  }

 private:
  /// Bounds and structured candidates of every grid.
  Result<void> open_branches() {
    for (const Grid& grid : possible_grids(problem_, options_.limits)) {
      branches_.push_back({grid, lower_bound(problem_, grid), {}});
    }
    if (branches_.empty()) {
      return infeasible(
          fmt::format("no grid fits: {} usable devices, {} layers, a batch of {} sequences",
                      problem_.usable().size(), job_.model.layers, job_.global_batch),
          "a plan needs stages x pipelines <= devices, stages <= layers, and at least one "
          "micro-batch a "
          "pipeline");
    }
    for (const Branch& branch : branches_) {
      if (result_.bound.name.empty() || branch.bound.seconds < result_.bound.seconds) {
        result_.bound = branch.bound;
      }
    }
    parallel_for(static_cast<int>(branches_.size()), options_.threads, [&](int b) {
      Branch& branch = branches_[static_cast<std::size_t>(b)];
      Evaluator evaluator(problem_, branch.grid);
      branch.population = structured_candidates(evaluator, kPopulation);
    });
    sort_branches(branches_);
    return {};
  }

  /// False when it was interrupted; the round then counts for nothing.
  bool breed(const Round& round) {
    // A grid whose lower bound is above the best plan found cannot win.
    const double incumbent = branches_.front().best();
    if (incumbent < Evaluator::kOverflow) {
      const auto loses = [&](const Branch& branch) { return branch.bound.seconds > incumbent; };
      // Never the incumbent's own, whose bound can lie a rounding above it.
      branches_.erase(std::remove_if(branches_.begin() + 1, branches_.end(), loses),
                      branches_.end());
    }
    const std::size_t active = std::min(round.grids, branches_.size());
    const auto islands = static_cast<std::size_t>(round.islands);
    std::vector<Scored> offspring(active * islands);
    const auto evaluations = std::max(1, static_cast<int>(round.evaluations * options_.effort));
    parallel_for(static_cast<int>(offspring.size()), options_.threads, [&](int task) {
      const auto slot = static_cast<std::size_t>(task);
      const Branch& branch = branches_[slot / islands];
      const std::size_t island = slot % islands;
      Rng rng(fmt::format("plan {}x{}x{} round {} island {}", branch.grid.stages,
                          branch.grid.pipelines, branch.grid.micro_batch, round_, island),
              options_.seed);
      Evaluator evaluator(problem_, branch.grid);
      const std::vector<Scored>& parents = branch.population;
      // The first island improves the best; the others breed.
      Scored start = parents.front();
      if (island > 0 && parents.size() > 1) {
        start = cross(evaluator, parents[rng.index(parents.size())],
                      parents[rng.index(parents.size())], rng);
      }
      offspring[slot] = climb(evaluator, start, evaluations, rng, options_.interrupted);
    });
    if (options_.interrupted && options_.interrupted()) return false;
    for (std::size_t slot = 0; slot < offspring.size(); ++slot) {
      add_to_population(branches_[slot / islands].population, std::move(offspring[slot]),
                        kPopulation);
    }
    result_.evaluations += static_cast<std::int64_t>(active * islands) * evaluations;
    sort_branches(branches_);
    ++round_;
    return true;
  }

  void report_progress() const {
    if (!options_.on_round) return;
    const Branch& best = branches_.front();
    const bool fits = best.best() < Evaluator::kOverflow;
    options_.on_round({round_, static_cast<int>(std::size(kRounds)), result_.evaluations,
                       fits ? best.best() : std::numeric_limits<double>::infinity(),
                       result_.bound.seconds, best.grid});
  }

  Result<SearchResult> finish() {
    if (branches_.front().best() >= Evaluator::kOverflow) {
      return std::unexpected(no_room(problem_, branches_));
    }
    // The best candidates of all grids, judged by simulation.
    struct Entry {
      const Branch* branch;
      const Scored* scored;
    };
    std::vector<Entry> entries;
    for (const Branch& branch : branches_) {
      if (branch.best() < Evaluator::kOverflow) ++result_.grids;
      for (std::size_t i = 0; i < std::min(kJudgedPerGrid, branch.population.size()); ++i) {
        const Scored& scored = branch.population[i];
        if (scored.seconds < Evaluator::kOverflow) entries.push_back({&branch, &scored});
      }
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.scored->seconds, order_of(a.branch->grid)) <
             std::pair(b.scored->seconds, order_of(b.branch->grid));
    });
    if (entries.size() > kJudged) entries.resize(kJudged);
    std::vector<Plan> plans;
    for (const Entry& entry : entries) {
      plans.push_back(Evaluator(problem_, entry.branch->grid).finish(entry.scored->candidate));
    }
    LH_ASSIGN(std::vector<JudgedPlan> judged,
              judge(topology_, job_, std::move(plans), options_.threads));
    std::size_t best = 0;
    for (std::size_t i = 0; i < judged.size(); ++i) {
      judged[i].closed_form_s = entries[i].scored->seconds;
      if (judged[i].step.step < judged[best].step.step) best = i;
    }
    result_.simulations = judged.size();
    result_.best = std::move(judged[best]);
    return std::move(result_);
  }

  const Topology& topology_;
  const Job& job_;
  const SearchOptions& options_;
  Problem problem_;
  std::vector<Branch> branches_;
  SearchResult result_;
  int round_ = 0;
};

}  // namespace

std::vector<Grid> possible_grids(const Problem& problem, const GridLimits& limits) {
  const Job& job = problem.job();
  const auto devices = static_cast<int>(problem.usable().size());
  const int fixed_micro_batch = limits.micro_batch > 0 ? limits.micro_batch : job.micro_batch;
  std::vector<Grid> grids;
  for (int micro_batch = 1; micro_batch <= job.global_batch; ++micro_batch) {
    if (fixed_micro_batch > 0 ? micro_batch != fixed_micro_batch : micro_batch > kMaxMicroBatch)
      continue;
    if (job.global_batch % micro_batch != 0) continue;
    for (int stages = 1; stages <= std::min(devices, job.model.layers); ++stages) {
      if (limits.stages > 0 && stages != limits.stages) continue;
      for (int pipelines = 1; pipelines <= devices / stages; ++pipelines) {
        if (limits.pipelines > 0 && pipelines != limits.pipelines) continue;
        if (job.global_batch / micro_batch < pipelines) break;
        grids.push_back({stages, pipelines, micro_batch});
      }
    }
  }
  return grids;
}

Result<SearchResult> search_plan(const Topology& topology, const Job& job,
                                 const SearchOptions& options) {
  return Search(topology, job, options).run();
}

Result<std::vector<JudgedPlan>> judge(const Topology& topology, const Job& job,
                                      std::vector<Plan> plans, int threads) {
  std::vector<std::optional<Result<StepResult>>> steps(plans.size());
  parallel_for(static_cast<int>(plans.size()), threads, [&](int p) {
    const auto slot = static_cast<std::size_t>(p);
    steps[slot] = simulate_step(topology, job, plans[slot]);
  });
  std::vector<JudgedPlan> judged;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    LH_ASSIGN(StepResult step, std::move(*steps[i]));
    judged.push_back({std::move(plans[i]), std::move(step), 0});
  }
  return judged;
}

}  // namespace longhaul
