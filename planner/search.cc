#include "planner/search.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <tuple>

#include "core/quantity.h"
#include "planner/parallel.h"
#include "planner/placement_search.h"
#include "planner/relaxation.h"

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
  const Problem* problem;  // with the devices of one choice of sites
  std::size_t choice;
  Grid grid;
  Bound bound;
  double least;                    // no plan's value is less
  std::vector<Scored> population;  // best first

  double best() const {
    return population.empty() ? std::numeric_limits<double>::infinity()
                              : population.front().seconds;
  }
};

auto order_of(const Branch& branch) {
  return std::tuple(branch.grid.stages, branch.grid.pipelines, branch.grid.micro_batch,
                    branch.choice);
}

/// Best first; equal ones by grid and choice of sites.
void sort_branches(std::vector<Branch>& branches) {
  std::sort(branches.begin(), branches.end(), [](const Branch& a, const Branch& b) {
    return std::pair(a.best(), order_of(a)) < std::pair(b.best(), order_of(b));
  });
}

/// " of 4 stages, 2 pipelines", for messages; empty where nothing is fixed.
std::string text_of(const GridLimits& limits) {
  std::vector<std::string> parts;
  if (limits.stages > 0) parts.push_back(fmt::format("{} stages", limits.stages));
  if (limits.pipelines > 0) parts.push_back(fmt::format("{} pipelines", limits.pipelines));
  if (limits.micro_batch > 0)
    parts.push_back(fmt::format("micro-batches of {}", limits.micro_batch));
  return parts.empty() ? "" : fmt::format(" of {}", fmt::join(parts, ", "));
}

class Search {
 public:
  /// `price_share`: of the price allowed, what the closed form may reach.
  Search(const Topology& topology, const Job& job, const SearchOptions& options, double price_share)
      : topology_(topology),
        job_(job),
        options_(options),
        closed_form_goal_{options.goal.cost, options.goal.usd_max * price_share},
        limits_(text_of(options.devices)) {}

  Result<SearchResult> run() {
    LH_TRY(choose_devices());
    LH_TRY(open_branches());
    for (const Round& round : kRounds) {
      if (!breed(round)) break;
      report_progress();
      if (options_.should_stop && options_.should_stop()) break;
    }
    return finish();
  }

  /// Where the closed form found plans that were cheap enough but simulation none: how many times
  /// the price allowed the cheapest costs; else 0.
  double dearer() const { return dearer_; }

 private:
  /// One problem for each choice of sites.
  Result<void> choose_devices() {
    LH_ASSIGN(const std::vector<char> admitted, admitted_devices(topology_, options_.devices));
    const Problem all(topology_, job_, admitted);
    if (std::find(admitted.begin(), admitted.end(), 1) == admitted.end()) {
      return infeasible(fmt::format("cluster `{}`{} has no device left", topology_.name,
                                    text_of(DeviceLimits{options_.devices.excluded, 0})),
                        "exclude less");
    }
    if (all.usable().empty()) {
      return infeasible(fmt::format("no device of cluster `{}`{} has a {} speed", topology_.name,
                                    limits_, name_of(job_.precision)),
                        limits_.empty() ? "choose another `precision` in the job"
                                        : "exclude less, or choose another `precision` in the job");
    }
    for (const std::vector<char>& choice : site_choices(all, options_.devices.sites_max))
      problems_.emplace_back(topology_, job_, choice, closed_form_goal_);
    return {};
  }

  /// Bounds and structured candidates of every grid.
  Result<void> open_branches() {
    std::size_t most = 0;
    for (std::size_t choice = 0; choice < problems_.size(); ++choice) {
      const Problem& problem = problems_[choice];
      most = std::max(most, problem.usable().size());
      for (const Grid& grid : possible_grids(problem, options_.limits)) {
        const Bound bound = lower_bound(problem, grid);
        const double least = options_.goal.cost ? least_usd(problem, grid, bound) : bound.seconds;
        branches_.push_back({&problem, choice, grid, bound, least, {}});
      }
    }
    if (branches_.empty()) {
      return infeasible(
          fmt::format("no grid{} fits: {} usable devices{}, {} layers, a batch of {} sequences",
                      text_of(options_.limits), most, limits_, job_.model.layers,
                      job_.global_batch),
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
      Evaluator evaluator(*branch.problem, branch.grid);
      branch.population = structured_candidates(evaluator, kPopulation);
    });
    sort_branches(branches_);
    return {};
  }

  /// False when it was interrupted; the round then counts for nothing.
  bool breed(const Round& round) {
    // A grid whose lower bound is above the best plan found cannot win.
    const double incumbent = branches_.front().best();
    if (incumbent < Evaluator::kOverPrice) {
      const auto loses = [&](const Branch& branch) { return branch.least > incumbent; };
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
      std::string name =
          fmt::format("plan {}x{}x{} round {} island {}", branch.grid.stages, branch.grid.pipelines,
                      branch.grid.micro_batch, round_, island);
      if (branch.choice > 0) name += fmt::format(" choice {}", branch.choice);
      Rng rng(name, options_.seed);
      Evaluator evaluator(*branch.problem, branch.grid);
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
    Evaluator evaluator(*best.problem, best.grid);
    const bool fits = evaluator.evaluate(best.population.front().candidate) < Evaluator::kOverPrice;
    options_.on_round(
        {round_, static_cast<int>(std::size(kRounds)), result_.evaluations,
         fits ? evaluator.closed_form().seconds : std::numeric_limits<double>::infinity(),
         fits ? evaluator.closed_form().usd : 0, result_.bound.seconds, best.grid});
  }

  Result<SearchResult> finish() {
    if (branches_.front().best() >= Evaluator::kOverflow) {
      return std::unexpected(no_room());
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
      return std::pair(a.scored->seconds, order_of(*a.branch)) <
             std::pair(b.scored->seconds, order_of(*b.branch));
    });
    if (entries.size() > kJudged) entries.resize(kJudged);
    std::vector<Plan> plans;
    std::vector<double> closed_form_s;
    for (const Entry& entry : entries) {
      Evaluator evaluator(*entry.branch->problem, entry.branch->grid);
      plans.push_back(evaluator.finish(entry.scored->candidate));
      closed_form_s.push_back(evaluator.closed_form().seconds);
    }
    LH_ASSIGN(result_.judged, judge(topology_, job_, std::move(plans), options_.threads));
    result_.simulations = result_.judged.size();
    for (std::size_t i = 0; i < closed_form_s.size(); ++i)
      result_.judged[i].closed_form_s = closed_form_s[i];
    const JudgedPlan* best = nullptr;
    for (const JudgedPlan& judged : result_.judged) {
      if (judged.step.usd > options_.goal.usd_max) continue;
      if (best == nullptr || value_of(judged) < value_of(*best)) best = &judged;
    }
    if (best == nullptr) {
      if (branches_.front().best() < Evaluator::kOverPrice) {
        dearer_ = cheapest().step.usd / options_.goal.usd_max;
      }
      return std::unexpected(too_dear());
    }
    result_.best = *best;
    return std::move(result_);
  }

  /// What the goal makes small, then the other of the two.
  std::pair<double, double> value_of(const JudgedPlan& judged) const {
    const double seconds = judged.step.step.value();
    if (options_.goal.cost) return {judged.step.usd, seconds};
    return {seconds, 0};
  }

  const JudgedPlan& cheapest() const {
    return *std::min_element(
        result_.judged.begin(), result_.judged.end(),
        [](const JudgedPlan& a, const JudgedPlan& b) { return a.step.usd < b.step.usd; });
  }

  /// What to say when no grid holds the job.
  Error no_room() const {
    // The branch that comes nearest; what it lacks is in its value (see Evaluator::kOverflow).
    const Branch& nearest = branches_.front();
    const Bytes missing(nearest.best() / Evaluator::kOverflow - 1);
    const Relaxations changes = relaxations(topology_, job_, options_, missing);
    std::string hint =
        changes.enough.empty()
            ? "no single change is known to be enough: add devices"
            : fmt::format("it fits with {}", fmt::join(changes.enough, "; or with "));
    if (!changes.not_enough.empty()) {
      hint += fmt::format("; not enough alone: {}", fmt::join(changes.not_enough, ", "));
    }
    return Error{
        ErrorCode::kInfeasible,
        fmt::format("the job fits the memory of no grid{}: the nearest, {} stages x {} pipelines "
                    "with micro-batches of {}, lacks {} in all",
                    limits_, nearest.grid.stages, nearest.grid.pipelines, nearest.grid.micro_batch,
                    format_size(missing)),
        hint,
        {},
        "",
        {}};
  }

  Error too_dear() const {
    const double per_billion = 1e9 / job_.tokens_per_step();
    return Error{ErrorCode::kInfeasible,
                 fmt::format("no plan found{} costs at most {:.2f} USD a billion tokens: the "
                             "cheapest of them costs {:.2f}",
                             limits_, options_.goal.usd_max * per_billion,
                             cheapest().step.usd * per_billion),
                 "allow a higher price, or ask for the cheapest plan with `--objective cost`",
                 {},
                 "",
                 {}};
  }

  const Topology& topology_;
  const Job& job_;
  const SearchOptions& options_;
  const Goal closed_form_goal_;
  const std::string limits_;  // on devices, for messages
  std::deque<Problem> problems_;
  std::vector<Branch> branches_;
  SearchResult result_;
  int round_ = 0;
  double dearer_ = 0;
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
  double price_share = 1;
  for (int attempt = 1;; ++attempt) {
    Search search(topology, job, options, price_share);
    Result<SearchResult> found = search.run();
    constexpr int kAttempts = 3;
    if (found || search.dearer() == 0 || attempt == kAttempts) return found;
    price_share *= 0.99 / search.dearer();
  }
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
