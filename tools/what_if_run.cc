#include "tools/what_if_run.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "core/quantity.h"
#include "planner/parallel.h"
#include "planner/search.h"
#include "planner/trade_off.h"
#include "tools/what_if_grammar.h"
#include "tools/what_if_plan.h"

namespace longhaul {
namespace {

constexpr std::chrono::milliseconds kFirstProgress(100);
constexpr std::chrono::milliseconds kProgress(500);

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// A row to be made.
struct Question {
  std::string change;
  std::optional<double> x = {};
  std::vector<Edit> edits = {};
  enum class Kind { kAsItIs, kSets, kScenario, kSweep } kind = Kind::kAsItIs;
  bool replan = false;
  std::string note = {};
};

template <class T>
Result<T> given_in(std::string_view option, Result<T> parsed) {
  if (!parsed) return in_option(option, std::move(parsed).error());
  return parsed;
}

void append(std::vector<Edit>& all, std::vector<Edit> more, const std::string& option) {
  for (Edit& edit : more) {
    edit.option = option;
    all.push_back(std::move(edit));
  }
}

Result<Question> question_of_sets(const WhatIfRequest& request) {
  Question question;
  question.kind = Question::Kind::kSets;
  for (const auto& [option, verb, texts] :
       {std::tuple{"--remove", "remove ", &request.removed},
        std::tuple{"--add", "add ", &request.added}, std::tuple{"--set", "", &request.sets}}) {
    for (const std::string& text : *texts) {
      LH_ASSIGN(std::vector<Edit> edits, given_in(option, parse_edits(verb + text)));
      for (const Edit& edit : edits) {
        question.change += (question.change.empty() ? "" : "; ") + edit.text;
      }
      append(question.edits, std::move(edits), option);
    }
  }
  return question;
}

std::vector<std::string> all_names(const Topology& topology, const std::string& noun) {
  std::vector<std::string> names;
  if (noun == "site") {
    for (const Site& site : topology.sites) names.push_back(site.name);
  } else if (noun == "node") {
    for (const Node& node : topology.nodes) names.push_back(node.name);
  } else {
    for (const Device& device : topology.devices) names.push_back(device.name);
  }
  return names;
}

/// A sweep over everything of a kind, as points.
Result<void> fill_every(Sweep& sweep, const Topology& topology) {
  if (sweep.every.empty()) return {};
  for (const std::string& name : all_names(topology, sweep.every)) {
    const bool needs_quotes = name.find_first_of(" ;") != std::string::npos;
    const std::string text = fmt::format(
        fmt::runtime(needs_quotes ? "remove {} \"{}\"" : "remove {} {}"), sweep.every, name);
    LH_ASSIGN(Edit edit, parse_edit(text));
    sweep.points.push_back({text, std::nullopt, std::move(edit)});
  }
  if (sweep.points.size() > kSweepPointsMax)
    return invalid(fmt::format("a sweep has at most {} points", kSweepPointsMax));
  return {};
}

/// The rows of a request, the first one as it is.
Result<std::vector<Question>> questions_of(const WhatIfBase& base, const WhatIfRequest& request,
                                           WhatIfTable& table) {
  std::vector<Question> questions = {{.change = "as it is"}};
  if (request.replan) questions.push_back({.change = std::string(kPlannedAnew)});
  LH_ASSIGN(const Question sets, question_of_sets(request));
  if (!sets.edits.empty()) questions.push_back(sets);
  for (const std::string& text : request.scenarios) {
    LH_ASSIGN(NamedEdits named, given_in("--scenario", parse_scenario(text)));
    Question question{.change = named.name, .kind = Question::Kind::kScenario};
    append(question.edits, std::move(named.edits), "--scenario");
    questions.push_back(std::move(question));
  }
  std::vector<Sweep> sweeps;
  for (const std::string& text : request.sweeps) {
    LH_ASSIGN(Sweep sweep, given_in("--sweep", parse_sweep(text)));
    LH_TRY(given_in("--sweep", fill_every(sweep, base.topology)));
    sweeps.push_back(std::move(sweep));
  }
  if (sweeps.size() > 2) {
    return invalid(fmt::format("{} sweeps span more than a table", sweeps.size()),
                   "give one --sweep or two, whose points are all combined");
  }
  if (!sweeps.empty()) {
    table.axis = sweeps[0].axis;
    table.unit = sweeps[0].unit;
    table.is_log = sweeps[0].is_log;
    if (sweeps.size() == 1) sweeps.push_back({.points = {SweepPoint{}}});
    const std::size_t points = sweeps[0].points.size() * sweeps[1].points.size();
    if (points > kSweepPointsMax) {
      return invalid(fmt::format("{} x {} points are more than {}", sweeps[0].points.size(),
                                 sweeps[1].points.size(), kSweepPointsMax));
    }
    for (const SweepPoint& first : sweeps[0].points) {
      for (const SweepPoint& second : sweeps[1].points) {
        Question question{.change = first.text, .x = first.x, .edits = sets.edits};
        question.kind = Question::Kind::kSweep;
        if (!sets.edits.empty()) question.note = fmt::format("on top of {}", sets.change);
        append(question.edits, {first.edit}, "--sweep");
        if (!second.text.empty()) {
          question.change += "; " + second.text;
          append(question.edits, {second.edit}, "--sweep");
        }
        questions.push_back(std::move(question));
      }
    }
  }
  for (Question& question : questions)
    question.replan = request.replan && &question != &questions.front();
  return questions;
}

/// Refuses edits that are wrong before anything is simulated. One point of a sweep that can be is
/// enough, and then what stands without it need not be complete: a new site's distance may be what
/// is swept.
Result<void> check(const WhatIfBase& base, std::vector<Question>& questions) {
  const auto applied = [&](const Question& question) { return World(base).apply(question.edits); };
  std::optional<Error> of_sweep;
  bool sweep_can_be = false;
  for (const Question& question : questions) {
    if (question.kind != Question::Kind::kSweep || sweep_can_be) continue;
    const Result<void> done = applied(question);
    sweep_can_be = done.has_value();
    if (!done && !of_sweep) of_sweep = done.error();
  }
  if (of_sweep && !sweep_can_be) return std::unexpected(*std::move(of_sweep));
  for (std::size_t q = 0; q < questions.size(); ++q) {
    if (questions[q].kind == Question::Kind::kSweep) continue;
    const Result<void> done = applied(questions[q]);
    if (done) continue;
    if (questions[q].kind != Question::Kind::kSets || !sweep_can_be) return done;
    questions.erase(questions.begin() + static_cast<std::ptrdiff_t>(q--));
  }
  return {};
}

/// A problem in a cell: the sentence and its cure.
std::string problem_text(const Error& error) {
  return error.hint.empty() ? error.message : fmt::format("{} ({})", error.message, error.hint);
}

/// Makes rows, on any thread.
class Answerer {
 public:
  Answerer(const WhatIfBase& base, const Plan& plan, const WhatIfRequest& request,
           const WhatIfHooks& hooks)
      : base_(base), plan_(plan), request_(request), hooks_(hooks) {}

  /// Nothing once interrupted.
  std::optional<WhatIfRow> row_of(const Question& question) const {
    if (hooks_.interrupted()) return std::nullopt;
    WhatIfRow row;
    row.change = question.change;
    row.x = question.x;
    World world(base_);
    if (const Result<void> done = world.apply(question.edits); !done) {
      row.problem = problem_text(done.error());
      return row;
    }
    if (!question.note.empty()) row.notes.push_back(question.note);
    row.notes.insert(row.notes.end(), world.notes().begin(), world.notes().end());
    Result<KeptPlan> kept = kept_plan(base_, plan_, world);
    if (question.replan) {
      if (!plan_anew(world, kept, row)) return std::nullopt;
      return row;
    }
    if (!kept) {
      row.problem = problem_text(kept.error());
      return row;
    }
    row.notes.insert(row.notes.end(), kept->notes.begin(), kept->notes.end());
    fill(world, kept->plan, simulated(world, kept->plan), row);
    return row;
  }

 private:
  Result<StepResult> simulated(const World& world, const Plan& plan) const {
    if (base_.conditions_path.empty()) return simulate_step(world.topology(), world.job(), plan);
    LH_ASSIGN(const Conditions conditions,
              load_conditions(base_.conditions_path, world.topology()));
    return simulate_step(world.topology(), world.job(), plan, {.conditions = &conditions});
  }

  /// False once interrupted.
  bool plan_anew(const World& world, const Result<KeptPlan>& kept, WhatIfRow& row) const {
    SearchOptions options;
    options.seed = request_.seed;
    options.effort = request_.effort;
    options.threads = request_.threads;
    options.interrupted = hooks_.interrupted;
    if (kept) options.seeds = {kept->plan};
    Result<SearchResult> found = search_plan(world.topology(), world.job(), options);
    if (hooks_.interrupted()) return false;
    if (!found) {
      row.problem = problem_text(found.error());
      return true;
    }
    row.replanned = true;
    const Plan plan = found->best.plan;
    fill(world, plan, std::move(found->best.step), row);
    if (!kept) {
      row.notes.push_back(fmt::format("the old plan cannot be kept: {}", kept.error().message));
    } else if (is_same(kept->plan, plan)) {
      row.notes.push_back("the search found nothing faster than the old plan");
    } else if (const Result<StepResult> old = simulated(world, kept->plan)) {
      row.notes.push_back(fmt::format("with the old plan kept: {}", format_duration(old->step)));
    }
    return true;
  }

  /// What a step is worth, or why there is none.
  static void fill(const World& world, const Plan& plan, const Result<StepResult>& step,
                   WhatIfRow& row) {
    const std::vector<std::pair<int, int>> removed = world.removed_links();
    for (const auto& [from, to] : removed) {
      if (!uses(world, plan, from, to)) continue;
      row.problem =
          fmt::format("the plan needs the link {} -> {}, which was removed",
                      world.topology().sites[at(from)].name, world.topology().sites[at(to)].name);
      return;
    }
    if (!step) {
      row.problem = problem_text(step.error());
      return;
    }
    const double tokens = world.job().tokens_per_step();
    row.step = step->step;
    row.tokens_per_s = tokens / step->step.value();
    if (has_prices(world.topology(), {})) row.usd_per_billion_tokens = step->usd / tokens * 1e9;
    row.binding = binding_text(world.topology(), *step);
  }

  /// Whether anything may go from one site to another: boundary tensors, gradients of replicas, or
  /// a message of the commit.
  static bool uses(const World& world, const Plan& plan, int from, int to) {
    const auto site = [&](int device) { return world.topology().site_of(device); };
    const auto is_link = [&](int a, int b) { return site(a) == from && site(b) == to; };
    for (const std::vector<int>& row : plan.devices) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i > 0 && (is_link(row[i - 1], row[i]) || is_link(row[i], row[i - 1]))) return true;
        if ((site(row[i]) == from && plan.coordinator_site == to) ||
            (site(row[i]) == to && plan.coordinator_site == from))
          return true;
      }
    }
    const int exchanges = plan.stages() + (has_tied_exchange(plan, world.job()) ? 1 : 0);
    for (int i = 0; i < exchanges; ++i) {
      const std::vector<int> members = reduction_devices(plan, i);
      for (const int a : members) {
        for (const int b : members) {
          if (is_link(a, b)) return true;
        }
      }
    }
    return false;
  }

  const WhatIfBase& base_;
  const Plan& plan_;
  const WhatIfRequest& request_;
  const WhatIfHooks& hooks_;
};

}  // namespace

Result<WhatIfTable> what_if(const WhatIfBase& base, const Plan& plan, const WhatIfRequest& request,
                            const WhatIfHooks& hooks) {
  WhatIfTable table;
  LH_ASSIGN(std::vector<Question> questions, questions_of(base, request, table));
  LH_TRY(check(base, questions));
  // The plan as it is must have a step: what would the rows be compared with?
  LH_TRY(check_memory(plan, base.topology, base.job));
  LH_TRY(simulate_step(base.topology, base.job, plan));

  const Answerer answerer(base, plan, request, hooks);
  std::vector<std::optional<WhatIfRow>> rows(questions.size());
  std::mutex mutex;
  std::size_t done = 0;
  // A table that takes no time needs no progress.
  using Clock = std::chrono::steady_clock;
  Clock::time_point next = Clock::now() + kFirstProgress;
  const auto answer = [&](int q) {
    if (request.replan) {
      hooks.progress(
          fmt::format("row {} of {}: {}", q + 1, questions.size(), questions[at(q)].change));
    }
    rows[at(q)] = answerer.row_of(questions[at(q)]);
    const std::lock_guard lock(mutex);
    ++done;
    if (request.replan || Clock::now() < next) return;
    hooks.progress(fmt::format("{} of {} rows", done, questions.size()));
    next = Clock::now() + kProgress;
  };
  const int count = static_cast<int>(questions.size());
  if (request.replan) {  // a search has threads of its own
    for (int q = 0; q < count; ++q) answer(q);
  } else {
    parallel_for(count, request.threads, answer);
  }
  for (std::optional<WhatIfRow>& row : rows) {
    if (row) table.rows.push_back(*std::move(row));
  }
  return table;
}

}  // namespace longhaul
