#include "planner/search.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "core/quantity.h"
#include "planner/codec_choice.h"
#include "planner/layouts.h"
#include "planner/parallel.h"
#include "planner/placement_search.h"
#include "planner/refinement.h"
#include "planner/relaxation.h"

namespace longhaul {
namespace {

constexpr int kMaxMicroBatch = 16;         // sequences; larger ones only help tiny models
constexpr std::size_t kPopulation = 16;    // of a grid
constexpr std::size_t kLookedAt = 2;       // layouts kept at the first look
constexpr std::size_t kLookedAround = 24;  // grids whose neighbours are looked at as well
constexpr std::size_t kJudged = 96;        // plans that are simulated
constexpr double kJudgedTransfers = 4e6;   // transfers in all their simulations
constexpr std::size_t kRefined = 4;        // grids whose best plans are refined
constexpr double kRefinedTransfers = 1.5e6;
constexpr std::size_t kJudgedPerGrid = 3;
constexpr double kIncumbentTransfers = 2e5;  // of a plan that may rule grids out
constexpr double kSeedTransfers = 5e6;       // in the simulations of all seeds

/// One round: how many grids stay, how many islands breed in each, and how long each climbs.
struct Round {
  std::size_t grids;
  int islands;
  int evaluations;
};
constexpr double kCells = 32;  // of a grid, up to which a climb is as long as it says
constexpr Round kRounds[] = {
    {64, 1, 1500}, {24, 2, 3000}, {8, 4, 6000}, {4, 8, 8000}, {3, 10, 8000}};

struct Branch {
  const Problem* problem;  // with the devices of one choice of sites
  std::size_t choice;
  Grid grid;
  double least;                    // no plan's value is less
  std::vector<Scored> population;  // best first

  double best() const {
    return population.empty() ? std::numeric_limits<double>::infinity() : population.front().value;
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

/// Where a simulated plan comes from.
struct Origin {
  std::size_t choice;
  Grid grid;

  bool operator==(const Origin&) const = default;
};

/// " of 4 stages, 2 pipelines", for messages; empty where nothing is fixed.
std::string text_of(const GridLimits& limits) {
  std::vector<std::string> parts;
  if (limits.stages > 0) parts.push_back(fmt::format("{} stages", limits.stages));
  if (limits.pipelines > 0) parts.push_back(fmt::format("{} pipelines", limits.pipelines));
  if (limits.micro_batch > 0)
    parts.push_back(fmt::format("micro-batches of {}", limits.micro_batch));
  return parts.empty() ? "" : fmt::format(" of {}", fmt::join(parts, ", "));
}

bool uses_only(const Plan& plan, const std::vector<char>& admitted) {
  return std::ranges::all_of(plan.devices, [&](const std::vector<int>& row) {
    return std::ranges::all_of(
        row, [&](int device) { return admitted[static_cast<std::size_t>(device)] != 0; });
  });
}

class Search {
 public:
  /// `price_share`: of the price allowed, what the closed form may reach.
  Search(const Topology& topology, const Job& job, const SearchOptions& options, double price_share)
      : topology_(topology),
        job_(job),
        options_(options),
        closed_form_goal_{options.goal.cost, options.goal.usd_max * price_share},
        limits_(text_of(options.devices)),
        pins_(text_of(options.rules.pins, topology)) {}

  Result<SearchResult> run() {
    LH_TRY(choose_devices());
    LH_TRY(open_branches());
    constexpr int kAtLeast = 4;       // rounds
    constexpr double kGain = 0.9995;  // of a round after which another may bring something
    double before = std::numeric_limits<double>::infinity();
    for (const Round& round : kRounds) {
      if (!breed(round)) break;
      report_progress();
      if (options_.should_stop && options_.should_stop()) break;
      if (round_ >= kAtLeast && branches_.front().best() > kGain * before) break;
      before = branches_.front().best();
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
    LH_TRY(check_pins(all));
    admitted_of_ = site_choices(all, options_.devices.sites_max);
    std::erase_if(admitted_of_, [this](const std::vector<char>& choice) {
      return std::ranges::any_of(options_.rules.pins, [&](const Pin& pin) {
        return choice[static_cast<std::size_t>(pin.device)] == 0;
      });
    });
    if (admitted_of_.empty()) admitted_of_.push_back(sites_of_pins(all));
    // Where the job leaves it open, with recomputation and without.
    jobs_ = {job_};
    if (job_.recompute == Recompute::kAuto) {
      jobs_.push_back(job_);
      jobs_[0].recompute = Recompute::kNo;
      jobs_[1].recompute = Recompute::kYes;
      const std::vector<std::vector<char>> choices = admitted_of_;
      admitted_of_.insert(admitted_of_.end(), choices.begin(), choices.end());
    }
    const std::size_t choices = admitted_of_.size() / jobs_.size();
    for (std::size_t c = 0; c < admitted_of_.size(); ++c) {
      problems_.emplace_back(topology_, jobs_[c / choices], admitted_of_[c], closed_form_goal_,
                             options_.rules);
    }
    return {};
  }

  /// Whether the pinned devices can be used, in as many sites as there may be.
  Result<void> check_pins(const Problem& all) const {
    std::set<int> sites;
    for (const Pin& pin : options_.rules.pins) {
      sites.insert(all.site(pin.device));
      if (std::ranges::find(all.usable(), pin.device) != all.usable().end()) continue;
      return infeasible(fmt::format("device `{}` is pinned and{} has no {} speed",
                                    topology_.devices[static_cast<std::size_t>(pin.device)].name,
                                    limits_, name_of(job_.precision)),
                        "pin another device, or choose another `precision` in the job");
    }
    if (options_.devices.sites_max > 0 &&
        sites.size() > static_cast<std::size_t>(options_.devices.sites_max)) {
      return infeasible(fmt::format("the plan{} spans {} sites, and may span {}", pins_,
                                    sites.size(), options_.devices.sites_max),
                        "pin devices of fewer sites, or allow more");
    }
    return {};
  }

  /// The devices of the pinned sites, and of the fastest others up to as many as there may be.
  std::vector<char> sites_of_pins(const Problem& all) const {
    std::set<int> sites;
    for (const Pin& pin : options_.rules.pins) sites.insert(all.site(pin.device));
    for (const std::vector<char>& alone : site_choices(all, 1)) {
      if (sites.size() == static_cast<std::size_t>(options_.devices.sites_max)) break;
      sites.insert(all.site(static_cast<int>(std::ranges::find(alone, char{1}) - alone.begin())));
    }
    std::vector<char> choice(topology_.devices.size(), 0);
    for (const int device : all.usable())
      choice[static_cast<std::size_t>(device)] = sites.contains(all.site(device)) ? 1 : 0;
    return choice;
  }

  /// Bounds of every grid, and layouts of those that may win.
  Result<void> open_branches() {
    std::size_t most = 0;
    std::vector<Branch> between;
    for (std::size_t choice = 0; choice < problems_.size(); ++choice) {
      const Problem& problem = problems_[choice];
      layouts_.emplace_back(problem);
      most = std::max(most, problem.usable().size());
      const std::vector<Grid> grids = possible_grids(problem, options_.limits);
      const Bounds bounds_of(problem);
      const std::vector<Bound> bounds = bounds_of.of_each(grids, options_.threads);
      for (std::size_t g = 0; g < grids.size(); ++g) {
        if (result_.bound.name.empty() || bounds[g].seconds < result_.bound.seconds) {
          result_.bound = bounds[g];
        }
        const double least =
            options_.goal.cost ? bounds_of.least_usd(grids[g], bounds[g]) : bounds[g].seconds;
        const bool is_last = g + 1 == grids.size() || grids[g + 1].pipelines <= grids[g].pipelines;
        // Equal shares leave so few that none lies between.
        const bool is_first =
            is_last || is_step(grids[g].pipelines) || options_.rules.expressible.equal_shares;
        std::vector<Branch>& where = is_first ? branches_ : between;
        where.push_back({&problem, choice, grids[g], least, {}});
      }
    }
    if (branches_.empty()) return std::unexpected(no_grid(most));
    look_at(branches_);
    // Between two numbers of pipelines that were looked at, where that may pay.
    std::vector<Branch> near;
    for (Branch& branch : between) {
      const auto is_near = [&](const Branch& good) {
        return good.choice == branch.choice && good.grid.stages == branch.grid.stages &&
               good.grid.micro_batch == branch.grid.micro_batch &&
               next_step(branch.grid.pipelines) >= good.grid.pipelines &&
               next_step(good.grid.pipelines) >= branch.grid.pipelines;
      };
      const auto end = branches_.begin() +
                       static_cast<std::ptrdiff_t>(std::min(kLookedAround, branches_.size()));
      if (std::any_of(branches_.begin(), end, is_near)) near.push_back(std::move(branch));
    }
    look_at(near);
    std::move(near.begin(), near.end(), std::back_inserter(branches_));
    sort_branches(branches_);
    const std::size_t closer = choose_active(kRounds[0].grids);
    parallel_for(static_cast<int>(closer), options_.threads, [&](int b) {
      Branch& branch = branches_[static_cast<std::size_t>(b)];
      Evaluator evaluator(*branch.problem, branch.grid);
      branch.population =
          layouts_[branch.choice].candidates(evaluator, kPopulation, Layouts::Breadth::kAll);
    });
    sort_branches(branches_);
    return {};
  }

  /// Numbers of pipelines in steps of a quarter: what lies between is much the same.
  static int next_step(int pipelines) { return std::max(pipelines + 1, pipelines * 5 / 4); }
  static bool is_step(int pipelines) {
    int step = 1;
    while (step < pipelines) step = next_step(step);
    return step == pipelines;
  }

  /// A few layouts of each branch, fewer pipelines first; leaves the branches that may win, best
  /// first. Of one number of stages and micro-batch, those with ever more pipelines are left out
  /// once several in a row were far from the best: they divide the work further, but pay for an
  /// exchange that has become too slow.
  void look_at(std::vector<Branch>& branches) {
    constexpr int kRow = 3;
    constexpr double kFar = 2;
    struct Lane {
      std::vector<Branch*> branches;  // the one that is next is last
      double best = std::numeric_limits<double>::infinity();
      int far_off = 0;  // in a row
    };
    std::map<std::tuple<std::size_t, int, int>, Lane> lanes;
    std::ranges::sort(branches, std::greater<>(), order_of);
    for (Branch& branch : branches) {
      lanes[{branch.choice, branch.grid.micro_batch, branch.grid.stages}].branches.push_back(
          &branch);
    }
    while (!lanes.empty()) {
      std::vector<Branch*> wave;
      for (auto& [key, lane] : lanes) wave.push_back(lane.branches.back());
      parallel_for(static_cast<int>(wave.size()), options_.threads, [&](int b) {
        Branch& branch = *wave[static_cast<std::size_t>(b)];
        if (branch.least > incumbent_) return;
        Evaluator evaluator(*branch.problem, branch.grid);
        branch.population =
            layouts_[branch.choice].candidates(evaluator, kLookedAt, Layouts::Breadth::kFew);
      });
      simulate_incumbent(**std::ranges::min_element(wave, {}, &Branch::best));
      for (auto lane = lanes.begin(); lane != lanes.end();) {
        auto& [left, best, far_off] = lane->second;
        const double value = left.back()->best();
        // What fits no memory yet says nothing of the time.
        far_off = value < Evaluator::kOverPrice && value > kFar * best ? far_off + 1 : 0;
        best = std::min(best, value);
        left.pop_back();
        lane = left.empty() || far_off == kRow ? lanes.erase(lane) : std::next(lane);
      }
    }
    std::erase_if(branches, [](const Branch& branch) { return branch.population.empty(); });
    sort_branches(branches);
  }

  /// Moves the branches to work on to the front and returns how many they are: the best, but of one
  /// number of stages only a few while there are others, because such grids are much alike.
  std::size_t choose_active(std::size_t most) {
    const std::size_t alike = std::max<std::size_t>(2, most / 8);
    std::map<int, std::size_t> taken;
    std::stable_partition(branches_.begin(), branches_.end(), [&](const Branch& branch) {
      return taken[branch.grid.stages]++ < alike;
    });
    return std::min(most, branches_.size());
  }

  /// Bounds hold for simulated plans, which the closed form may undercut: only a simulated one
  /// rules a grid out. Does nothing unless the branch's best is better than what was simulated
  /// before.
  void simulate_incumbent(const Branch& branch) {
    if (branch.best() >= std::min(simulated_, Evaluator::kOverPrice)) return;
    Evaluator evaluator(*branch.problem, branch.grid);
    const Plan plan = evaluator.finish(branch.population.front().candidate);
    if (transfers_of(plan) > kIncumbentTransfers) return;
    simulated_ = branch.best();
    Result<StepResult> step = simulate_step(topology_, job_, plan);
    if (!step) return;
    const JudgedPlan judged{plan, std::move(*step), 0};
    incumbent_ = std::min(incumbent_, value_of(judged, options_.goal).first);
  }

  /// False when it was interrupted; the round then counts for nothing.
  bool breed(const Round& round) {
    // A grid whose lower bound is above the best plan found cannot win.
    simulate_incumbent(branches_.front());
    if (incumbent_ < std::numeric_limits<double>::infinity()) {
      const auto loses = [&](const Branch& branch) { return branch.least > incumbent_; };
      // Never the incumbent's own, whose bound can lie a rounding above it.
      branches_.erase(std::remove_if(branches_.begin() + 1, branches_.end(), loses),
                      branches_.end());
    }
    const std::size_t active = choose_active(round.grids);
    const auto islands = static_cast<std::size_t>(round.islands);
    std::vector<Scored> offspring(active * islands);
    // An evaluation takes time in proportion to the cells.
    const auto evaluations_of = [&](const Grid& grid) {
      const double size = std::max(1.0, grid.stages * grid.pipelines / kCells);
      return std::max(1, static_cast<int>(round.evaluations * options_.effort / size));
    };
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
      offspring[slot] =
          climb(evaluator, start, evaluations_of(branch.grid), rng, options_.interrupted);
    });
    if (options_.interrupted && options_.interrupted()) return false;
    for (std::size_t slot = 0; slot < offspring.size(); ++slot) {
      result_.evaluations += evaluations_of(branches_[slot / islands].grid);
      add_to_population(branches_[slot / islands].population, std::move(offspring[slot]),
                        kPopulation);
    }
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
    const Expressible& expressible = options_.rules.expressible;
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
        if (scored.value < Evaluator::kOverflow) entries.push_back({&branch, &scored});
      }
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.scored->value, order_of(*a.branch)) <
             std::pair(b.scored->value, order_of(*b.branch));
    });
    std::vector<Plan> plans;
    std::vector<Origin> origins;
    std::vector<double> closed_form_s;
    double transfers = 0;
    for (const Entry& entry : entries) {
      Evaluator evaluator(*entry.branch->problem, entry.branch->grid);
      Plan plan = evaluator.finish(entry.scored->candidate);
      transfers += transfers_of(plan);
      if (plans.size() >= kJudged || (transfers > kJudgedTransfers && !plans.empty())) break;
      std::vector<Plan> of_entry = {plan};
      if (expressible.has_gpipe && plan.stages() > 1) {
        const bool is_gpipe = plan.family == ScheduleFamily::kGpipe;
        plan.family = is_gpipe ? ScheduleFamily::kOneForwardOneBackward : ScheduleFamily::kGpipe;
        plan = restricted(expressible, std::move(plan), job_);
        if (check_memory(plan, topology_, job_)) of_entry.push_back(std::move(plan));
      }
      for (Plan& each : of_entry) {
        plans.push_back(std::move(each));
        origins.push_back({entry.branch->choice, entry.branch->grid});
        closed_form_s.push_back(evaluator.closed_form().seconds);
      }
    }
    LH_ASSIGN(result_.judged, judge(topology_, job_, std::move(plans), options_.threads));
    result_.simulations = result_.judged.size();
    for (std::size_t i = 0; i < closed_form_s.size(); ++i)
      result_.judged[i].closed_form_s = closed_form_s[i];
    add_seeds(origins);
    refine_best(origins);
    JudgedPlan* best = nullptr;
    for (JudgedPlan& judged : result_.judged) {
      if (judged.step.usd > options_.goal.usd_max) continue;
      if (best == nullptr || value_of(judged, options_.goal) < value_of(*best, options_.goal)) {
        best = &judged;
      }
    }
    if (best == nullptr) {
      if (branches_.front().best() < Evaluator::kOverPrice) {
        dearer_ = cheapest().step.usd / options_.goal.usd_max;
      }
      return std::unexpected(too_dear());
    }
    const Problem problem(topology_, job_, {}, options_.goal, options_.rules);
    *best = finer_codecs(problem, std::move(*best));
    result_.best = *best;
    return std::move(result_);
  }

  /// Judges the seeds that limits and rules allow, as they allow them, beside the search's own. One
  /// whose step cannot be simulated, over a link that is as good as none, is none.
  void add_seeds(std::vector<Origin>& origins) {
    std::vector<Plan> plans;
    std::vector<Origin> of_plans;
    double transfers = 0;
    for (const Plan& seed : options_.seeds) {
      std::optional<Plan> plan = as_admitted(topology_, job_, options_, seed);
      if (!plan) continue;
      // GPipe is K = M; as 1F1B its depths can be refined.
      if (plan->family == ScheduleFamily::kGpipe && !options_.rules.expressible.own_depths)
        plan->family = ScheduleFamily::kOneForwardOneBackward;
      const auto choice = std::ranges::find_if(
          admitted_of_,
          [&](const std::vector<char>& admitted) { return uses_only(*plan, admitted); });
      const bool is_known =
          std::ranges::any_of(plans, [&](const Plan& each) { return is_same(each, *plan); }) ||
          std::ranges::any_of(result_.judged, [&](const JudgedPlan& judged) {
            return is_same(judged.plan, *plan);
          });
      if (choice == admitted_of_.end() || is_known) continue;
      transfers += transfers_of(*plan);
      if (transfers > kSeedTransfers && !plans.empty()) break;
      of_plans.push_back({static_cast<std::size_t>(choice - admitted_of_.begin()), grid_of(*plan)});
      plans.push_back(*std::move(plan));
    }
    std::vector<Result<StepResult>> steps = simulate_all(topology_, job_, plans, options_.threads);
    for (std::size_t p = 0; p < plans.size(); ++p) {
      if (!steps[p]) continue;
      ++result_.simulations;
      origins.push_back(of_plans[p]);
      result_.judged.push_back({std::move(plans[p]), *std::move(steps[p]), 0});
    }
  }

  /// The best plans of a few grids are refined by simulation, then the best of them once more.
  void refine_best(const std::vector<Origin>& origins) {
    std::vector<std::size_t> order(result_.judged.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto better = [&](std::size_t a, std::size_t b) {
      return value_of(result_.judged[a], options_.goal) <
             value_of(result_.judged[b], options_.goal);
    };
    std::stable_sort(order.begin(), order.end(), better);
    std::vector<std::size_t> chosen;
    for (const std::size_t i : order) {
      const auto same = [&](std::size_t other) { return origins[other] == origins[i]; };
      if (chosen.size() < kRefined && std::none_of(chosen.begin(), chosen.end(), same)) {
        chosen.push_back(i);
      }
    }
    const auto refine_one = [&](std::size_t i, std::string_view start, double transfers) {
      const auto& [choice, grid] = origins[i];
      const Problem problem(topology_, job_, admitted_of_[choice], options_.goal, options_.rules);
      Refinement refined =
          refine(problem, std::move(result_.judged[i]),
                 {.name = fmt::format("refine {}x{}x{} choice {}{}", grid.stages, grid.pipelines,
                                      grid.micro_batch, choice, start),
                  .seed = options_.seed,
                  .threads = options_.threads,
                  .transfers = transfers,
                  .greedy = !options_.rules.expressible.own_depths,
                  .interrupted = options_.interrupted});
      result_.judged[i] = std::move(refined.best);
      return refined.transfers;
    };
    const double budget = kRefinedTransfers * options_.effort;
    for (const std::size_t first : chosen) {
      // What the best plan of a grid leaves, the next ones get: where plans are small, all of them.
      double left = budget / 2 / static_cast<double>(kRefined);
      left -= refine_one(first, "", left);
      for (const std::size_t i : order) {
        if (i == first || !(origins[i] == origins[first]) || left <= 0) continue;
        left -= refine_one(i, fmt::format(" start {}", i), left);
      }
    }
    refine_one(*std::min_element(order.begin(), order.end(), better), "", budget / 2);
  }

  const JudgedPlan& cheapest() const {
    return *std::min_element(
        result_.judged.begin(), result_.judged.end(),
        [](const JudgedPlan& a, const JudgedPlan& b) { return a.step.usd < b.step.usd; });
  }

  /// What to say when there is no grid at all.
  Error no_grid(std::size_t most) const {
    const auto has_grids = [&](const PlanRules& rules) {
      return std::ranges::any_of(admitted_of_, [&](const std::vector<char>& choice) {
        return !possible_grids(Problem(topology_, job_, choice, {}, rules), options_.limits)
                    .empty();
      });
    };
    const PlanRules& rules = options_.rules;
    if (!rules.pins.empty() && has_grids({rules.expressible, {}})) {
      return infeasible(
                 fmt::format("no grid{} can hold the plan{}", text_of(options_.limits), pins_),
                 "a device runs one stage, each stage as many as there are pipelines")
          .error();
    }
    if (rules.expressible != Expressible{} && has_grids({{}, rules.pins})) {
      return infeasible(fmt::format("no grid{}{} is one that the trainer can express",
                                    text_of(options_.limits), pins_),
                        "fix less of the grid, or plan without that limit")
          .error();
    }
    return infeasible(
               fmt::format(
                   "no grid{} fits: {} usable devices{}, {} layers, a batch of {} sequences",
                   text_of(options_.limits), most, limits_, job_.model.layers, job_.global_batch),
               "a plan needs stages x pipelines <= devices, stages <= layers, and at least one "
               "micro-batch a pipeline")
        .error();
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
        fmt::format("the job fits the memory of no grid{}{}: the nearest, {} stages x {} pipelines "
                    "with micro-batches of {}, lacks {} in all",
                    limits_, pins_, nearest.grid.stages, nearest.grid.pipelines,
                    nearest.grid.micro_batch, format_size(missing)),
        hint,
        {},
        "",
        {}};
  }

  Error too_dear() const {
    const double per_billion = 1e9 / job_.tokens_per_step();
    return Error{ErrorCode::kInfeasible,
                 fmt::format("no plan found{}{} costs at most {:.2f} USD a billion tokens: the "
                             "cheapest of them costs {:.2f}",
                             limits_, pins_, options_.goal.usd_max * per_billion,
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
  const std::string limits_;                    // on devices, for messages
  const std::string pins_;                      // for messages
  std::vector<std::vector<char>> admitted_of_;  // by choice of sites: devices
  std::vector<Job> jobs_;                       // one, or without recomputation and with
  std::deque<Problem> problems_;
  std::deque<Layouts> layouts_;  // by choice of sites, as the problems
  std::vector<Branch> branches_;
  SearchResult result_;
  double simulated_ = std::numeric_limits<double>::infinity();  // T1 of the last incumbent
  double incumbent_ = std::numeric_limits<double>::infinity();  // T3 of the best incumbent
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
        const Grid grid{stages, pipelines, micro_batch};
        if (allows(problem.rules(), grid, job)) grids.push_back(grid);
      }
    }
  }
  return grids;
}

bool is_same(const Plan& a, const Plan& b) {
  return a.devices == b.devices && a.layers == b.layers && a.micro_batches == b.micro_batches &&
         a.in_flight == b.in_flight && a.family == b.family && a.orders == b.orders &&
         a.recompute == b.recompute && a.activation_codecs == b.activation_codecs &&
         a.reductions == b.reductions && a.coordinator_site == b.coordinator_site;
}

std::optional<Plan> as_admitted(const Topology& topology, const Job& job,
                                const SearchOptions& options, Plan plan) {
  const GridLimits& limits = options.limits;
  const int micro_batch = limits.micro_batch > 0 ? limits.micro_batch : job.micro_batch;
  const auto is_other = [](int limit, int value) { return limit > 0 && limit != value; };
  if (is_other(limits.stages, plan.stages()) || is_other(limits.pipelines, plan.pipelines()) ||
      is_other(micro_batch, plan.micro_batch) || !allows(options.rules, grid_of(plan), job)) {
    return std::nullopt;
  }
  const Result<std::vector<char>> admitted = admitted_devices(topology, options.devices);
  if (!admitted || !uses_only(plan, *admitted)) return std::nullopt;
  std::set<int> sites;
  for (const std::vector<int>& row : plan.devices) {
    for (const int device : row) sites.insert(topology.site_of(device));
  }
  const int sites_max = options.devices.sites_max;
  if (sites_max > 0 && sites.size() > static_cast<std::size_t>(sites_max)) return std::nullopt;
  plan = restricted(options.rules.expressible, std::move(plan), job);
  if (!keeps(options.rules, plan, job) || !check_memory(plan, topology, job)) return std::nullopt;
  return plan;
}

namespace {

Result<SearchResult> search_with_prices(const Topology& topology, const Job& job,
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

}  // namespace

Result<SearchResult> search_plan(const Topology& topology, const Job& job,
                                 const SearchOptions& options) {
  Result<SearchResult> found = search_with_prices(topology, job, options);
  const std::optional<Job> direct = without_histories(job);
  if (found || !direct) return found;
  // Perhaps it is the histories that no device has room for.
  Result<SearchResult> again = search_with_prices(topology, *direct, options);
  if (!again) return found;
  const auto name = [&](JudgedPlan& judged) {
    judged.plan = with_codecs_of(topology, *direct, std::move(judged.plan));
  };
  name(again->best);
  for (JudgedPlan& judged : again->judged) name(judged);
  return again;
}

}  // namespace longhaul
