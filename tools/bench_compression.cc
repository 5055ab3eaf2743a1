// Suite `compression`: what codecs do to a model (tools/compression_study.h) and to its time
// (bench_compression_times.cc). Results are kept in build/bench/compression-study and used again as
// long as neither inputs nor program change, so an interrupted suite goes on where it was.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>

#include "kernels/parallel.h"
#include "tools/bench.h"
#include "tools/bench_compression.h"
#include "tools/compression_figures.h"
#include "tools/compression_study.h"
#include "tools/side_by_side.h"

namespace longhaul {
namespace {

constexpr const char* kTexts = "build/demo";
constexpr std::uint64_t kSeeds = 3;
constexpr const char* kAqName = "AQ fw3bw6";
constexpr const char* kAqGradientsName = "AQ fw3bw6, gradients int4";
constexpr double kFallMin = 1;  // nats that fp32 learns while fine-tuning

/// A setting, what it is held against and how far off it may be.
struct Subject {
  CompressionSetting setting;
  std::string base = {};  // empty: it is a base
  double target = 0;      // of (loss - base) / base
  bool is_worse = false;  // the target is a least: the setting must be hard enough to show it
};

std::string history(const std::string& codecs) {
  return codecs + ", history: {first: int8}";
}

std::vector<Subject> subjects(bool full) {
  const CompressionSetting fp32 = {"fp32", "activations: none, gradients: none"};
  const CompressionSetting fw3bw6 = {
      kAqName, history("activations: aq-int3, activation_gradients: int6, gradients: none")};
  if (!full) return {{fp32}, {fw3bw6, "fp32", 0.01}};
  const CompressionSetting fw2bw4 = {
      "AQ fw2bw4", history("activations: aq-int2, activation_gradients: int4, gradients: none")};
  CompressionSetting direct = fw2bw4;
  direct.name = "direct fw2bw4";
  direct.past_the_file = [](Job& job) {
    job.activations = without_history(job.activations);
    job.history = std::nullopt;
  };
  // A run of its own: in the first of four epochs the rate is still high, and pairs differ by
  // chance.
  const auto one_epoch = [](const std::string& name, const std::string& codec) {
    CompressionSetting setting = {
        name,
        fmt::format("activations: {}, activation_gradients: {}, gradients: none", codec, codec)};
    setting.epochs = 1;
    return setting;
  };
  return {
      {fp32},
      {fw3bw6, "fp32", 0.01},
      {{"AQ fw4bw8", history("activations: aq-int4, activation_gradients: int8, gradients: none")},
       "fp32",
       0.005},
      {fw2bw4, "fp32", 0.02},
      {direct, "fp32", 0.03, true},
      {{kAqGradientsName,
        history("activations: aq-int3, activation_gradients: int6, gradients: int4"), 2},
       "fp32",
       0.01},
      {one_epoch("bf16, an epoch", "bf16")},
      {one_epoch("int8, an epoch", "int8"), "bf16, an epoch", 0.005},
      {one_epoch("hadamard4, an epoch", "hadamard4"), "bf16, an epoch", 0.005},
  };
}

/// Tells how far a run is, not too often. Any thread.
class Progress {
 public:
  Progress(std::string name, double tokens_per_step)
      : name_(std::move(name)), tokens_per_step_(tokens_per_step) {}
  void operator()(std::uint64_t step, std::uint64_t steps, double loss) {
    const auto now = std::chrono::steady_clock::now();
    if (first_ == 0) {
      first_ = step;
      begin_ = told_ = now;
    }
    if (now - told_ < std::chrono::seconds(10) && step < steps && step > first_) return;
    told_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double rate =
        seconds > 0 ? static_cast<double>(step - first_) * tokens_per_step_ / seconds : 0;
    fmt::print(stderr, "  {}: step {} of {}, loss {:.4f}, {:.0f} tokens/s\n", name_, step, steps,
               loss, rate);
  }

 private:
  std::string name_;
  double tokens_per_step_;
  std::uint64_t first_ = 0;
  std::chrono::steady_clock::time_point begin_, told_;
};

/// Runs that are done, in a file of one line each.
class KeptRuns {
 public:
  explicit KeptRuns(std::string path) : path_(std::move(path)) {
    std::ifstream stream(path_);
    for (std::string line; std::getline(stream, line);) {
      if (auto kept = parse_study_run(line)) runs_[kept->key] = std::move(kept->run);
    }
  }
  const StudyRun* find(const std::string& key) const {
    const auto found = runs_.find(key);
    return found == runs_.end() ? nullptr : &found->second;
  }
  void add(const std::string& key, const std::string& name, StudyRun run) {
    // A line of its own even where the last one was cut short.
    std::ofstream(path_, std::ios::app) << '\n' << study_run_text(key, name, run) << '\n';
    runs_[key] = std::move(run);
  }

 private:
  std::string path_;
  std::map<std::string, StudyRun> runs_;
};

struct Task {
  const Subject* subject;
  std::uint64_t seed;
  std::string name() const { return fmt::format("{}, seed {}", subject->setting.name, seed); }
};

/// Does what is not done yet, `threads` runs side by side.
Result<void> carry_out(const CompressionStudy& study, const std::vector<Task>& tasks, int threads,
                       KeptRuns& kept) {
  std::vector<Task> left;
  for (const Task& task : tasks) {
    if (kept.find(study.key(task.subject->setting, task.seed)) == nullptr) left.push_back(task);
  }
  fmt::print(stderr, "{} runs, {} of them done before\n", tasks.size(), tasks.size() - left.size());
  std::mutex mutex;  // of `kept`
  return side_by_side(left.size(), threads, [&](std::size_t i) -> Result<void> {
    const Task& task = left[i];
    Progress progress(task.name(), study.tokens_per_step());
    auto run = study.fine_tune(task.subject->setting, task.seed, std::ref(progress));
    if (!run) return within(task.name(), std::move(run).error());
    const std::lock_guard lock(mutex);
    kept.add(study.key(task.subject->setting, task.seed), task.name(), *std::move(run));
    return {};
  });
}

std::vector<double> last_losses(const std::vector<const StudyRun*>& runs) {
  std::vector<double> losses;
  for (const StudyRun* run : runs) losses.push_back(run->validations.back().second);
  return losses;
}

void print_runs(const std::vector<Subject>& all,
                const std::map<std::string, std::vector<const StudyRun*>>& runs,
                double tokens_per_step) {
  fmt::print("{:<28}{:<36}{:>16}\n", "", "validation loss of each seed, nats", "tokens/s a core");
  for (const Subject& subject : all) {
    const auto& of = runs.at(subject.setting.name);
    std::string losses;
    for (const double loss : last_losses(of)) losses += fmt::format("{:.4f}  ", loss);
    const StudyRun& one = *of.front();
    fmt::print("{:<28}{:<36}{:>16.0f}\n", subject.setting.name, losses,
               static_cast<double>(one.losses.size()) * tokens_per_step / one.cpu_s);
  }
}

/// What the suite's first half finds.
struct Quality {
  std::vector<BenchFigure> figures;
  SameLosses losses;
};

/// Means over the seeds.
SameLoss same_loss(const std::vector<const StudyRun*>& bases,
                   const std::vector<const StudyRun*>& runs) {
  SameLoss found = {0, 0};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double loss = common_loss(bases[i]->validations, runs[i]->validations);
    const auto share = [&](const StudyRun& run) {
      return steps_to(run.validations, loss).value() / static_cast<double>(run.losses.size()) /
             static_cast<double>(runs.size());
    };
    found.base += share(*bases[i]);
    found.setting += share(*runs[i]);
  }
  return found;
}

Result<Quality> quality(bool full, bool quick, int threads, const std::string& command) {
  fmt::print(stderr, "texts and the pre-trained state, which are made once\n");
  LH_ASSIGN(
      CompressionStudy study,
      CompressionStudy::open(fmt::format("build/bench/compression-{}", quick ? "quick" : "study"),
                             kTexts, quick ? StudySize::quick() : StudySize::whole()));
  {
    Progress progress("the Bible", study.tokens_per_step());
    set_operation_threads(threads);  // there is one run alone; results are the same bits
    const Result<void> done = study.pretrain(std::ref(progress));
    set_operation_threads(1);
    LH_TRY(done);
  }
  const std::vector<Subject> all = subjects(full);
  const std::uint64_t seeds = full && !quick ? kSeeds : 1;
  std::vector<Task> tasks;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const Subject& subject : all) tasks.push_back({&subject, seed});
  }
  KeptRuns kept(fmt::format("build/bench/compression-{}/runs.jsonl", quick ? "quick" : "study"));
  LH_TRY(carry_out(study, tasks, threads, kept));

  std::map<std::string, std::vector<const StudyRun*>> runs;  // of each setting, by seed
  for (const Task& task : tasks) {
    runs[task.subject->setting.name].push_back(
        kept.find(study.key(task.subject->setting, task.seed)));
  }
  print_runs(all, runs, study.tokens_per_step());

  std::vector<double> falls;
  for (const StudyRun* run : runs.at("fp32")) {
    falls.push_back(run->losses.front() - run->validations.back().second);
  }
  const std::string of = seeds == 1 ? "one seed" : fmt::format("{} seeds", seeds);
  const Estimate fall = estimate(falls);
  Quality found;
  found.figures = {{"fp32 learns while it is fine-tuned", fall.mean, "nats", kFallMin, "higher",
                    fall.mean >= kFallMin, fmt::format("+- {:.3f}, {}", fall.error, of), command}};
  for (const Subject& subject : all) {
    if (subject.base.empty()) continue;
    const Estimate excess = relative_excess(last_losses(runs.at(subject.setting.name)),
                                            last_losses(runs.at(subject.base)));
    found.figures.push_back(
        {fmt::format("{}: loss above {}", subject.setting.name, subject.base), 100 * excess.mean,
         "%", 100 * subject.target, subject.is_worse ? "higher" : "lower",
         subject.is_worse ? excess.mean >= subject.target : excess.mean <= subject.target,
         seeds == 1 ? of : fmt::format("+- {:.2f}, {}", 100 * excess.error, of), command});
  }
  if (quick) return found;  // so few steps say nothing about the time to a loss
  found.losses.aq = same_loss(runs.at("fp32"), runs.at(kAqName));
  const auto with_gradients = runs.find(kAqGradientsName);
  found.losses.aq_gradients = with_gradients == runs.end()
                                  ? found.losses.aq
                                  : same_loss(runs.at("fp32"), with_gradients->second);
  return found;
}

int run(bool full, bool quick, int threads, const std::string& command) {
  const auto figures = [&]() -> Result<std::vector<BenchFigure>> {
    LH_ASSIGN(Quality found, quality(full, quick, threads, command));
    LH_ASSIGN(const auto times, compression_times(found.losses, !quick, threads, command));
    found.figures.insert(found.figures.end(), times.begin(), times.end());
    return found.figures;
  }();
  if (!figures) {
    fmt::print(stderr, "{}\n", figures.error().text());
    return figures.error().code == ErrorCode::kInvalid ? 2 : 1;
  }
  return report("compression", *figures);
}

}  // namespace

int bench_compression(bool quick, int threads) {
  return run(
      false, quick, threads,
      fmt::format("tools/bench compression{} --threads {}", quick ? " --quick" : "", threads));
}

int bench_compression_full(int threads) {
  return run(true, false, threads,
             fmt::format("tools/bench compression --full --threads {}", threads));
}

}  // namespace longhaul
