// Watching a run: what the hooks of its coordinator tell (executor/run/run_coordinator.h) becomes
// lines of progress, records of steps (run_record.h), a timeline of the measured step beside the
// simulated one, and what was measured against what was predicted. It prints and writes nothing
// itself, and reads no clock.
//
// Times. All that is printed and written is the run's own time: emulated time where the run is
// emulated, which is the wall's divided by the dilation. Only the time that is left (ETA) is the
// wall's, for whoever waits.
//
// The time of a step runs from the commit before it to its own. A validation, and the writing of a
// checkpoint, fall into the time of the step that follows; until the coordinator has the files of
// the checkpoint they share the links with the steps. Such steps, and the first two of the run,
// which warm up, are not typical: predictions are compared with typical steps only.
//
// Robust against what does not come: a worker that died tells nothing more, a step that made no
// finite loss has none. Belongs to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "core/topology.h"
#include "core/units.h"
#include "executor/control/journal.h"
#include "executor/control/messages.h"
#include "executor/run/run_spec.h"
#include "netsim/step_simulation.h"
#include "tools/run_record.h"
#include "tools/run_result.h"

namespace longhaul {

struct RunReportInputs {
  RunSpec spec;  // its job has `training`
  Topology topology;
  Plan plan;             // the spec's, with the topology's device numbers
  StepResult predicted;  // of one step; with its timeline, if the report's is wanted
  std::optional<double> bigram_loss;
  bool is_terminal = false;  // where progress goes
  Seconds start;             // when the run began, on the clock of `now` below
};

class RunReport {
 public:
  explicit RunReport(RunReportInputs inputs);

  // ---- from the hooks; `now` is wall time

  void committed(const JournalEntry& entry, Seconds now);
  void validated(std::uint64_t steps_done, double loss, Seconds now);
  void kept(const CheckpointId& checkpoint, Seconds now);
  void measured(int cell, const Measured& measured);
  void times(int cell, const Times& times);
  void histories(int cell, const HistoryVisits& visits);
  /// A sentence about it; empty when the worker makes no sense.
  std::string recoded(int cell, const Recoded& recoded, Seconds now);
  /// What has not come by now will not.
  void ended();

  // ---- while it runs

  /// Whether the progress line is worth showing, which then counts as shown. On a terminal ten
  /// times a second, else every 5 s or 10 steps, whichever comes first; the first and the last step
  /// always.
  bool should_print(Seconds now);
  /// `step 37/200  loss 2.913  5.2k tokens/s  12.3 MB/s oregon>london  exposed comm 31 %  ETA 2 min
  /// 10 s`, without what is not known yet. Rates are of the last typical steps. Exposed
  /// communication is the share of a step in which a device neither computes nor updates.
  std::string progress_line() const;
  /// What is new since the last call; may be empty. A step has its record when all workers have
  /// told its times, or when the second step after it is committed.
  std::vector<RunRecord> take_records();

  // ---- when it has ended

  /// A Chrome trace (netsim/timeline.h) of the simulated step and of the measured one, both from 0.
  /// The measured step begins where its first instruction does, on the clock that all workers of a
  /// machine share.
  std::string timeline() const;
  /// What was predicted beside what was measured.
  std::string final_table(std::optional<double> late_fraction) const;
  RunResult result(std::optional<double> late_fraction) const;

 private:
  using Parts = StepParts;
  struct Traffic {
    double sent = 0, raw = 0;  // bytes
    Traffic& operator+=(const Traffic& other);
  };
  using SitePair = std::pair<int, int>;  // from, to
  using Links = std::map<SitePair, Traffic>;

  /// A committed step that has no record yet.
  struct Step {
    JournalEntry entry;
    Seconds when;
    double time_s = 0;
    std::optional<double> step_s;
    bool is_typical = false;
    std::vector<std::optional<Parts>> parts;  // by cell; none: not told, or no finite times
    std::vector<bool> has_told;               // by cell
    std::vector<std::uint64_t> sent;          // by cell, bytes
    std::optional<HistoryVisits> histories;   // of all cells that have some
    Links links;

    bool is_complete() const;
    /// Of the cells that told theirs.
    std::optional<Parts> mean_parts() const;
  };
  struct Recent {
    double step_s = 0;
    double exposed = 0;  // share of the step
    Links links;
  };

  double run_seconds(double wall) const { return wall / dilation_; }
  int site_of_rank(int rank) const;
  const std::string& site_name(int site) const;
  bool is_typical(std::uint64_t step) const;
  void record_steps(bool all);
  StepRecord record_of(const Step& step) const;
  void count_typical(const Step& step);
  std::optional<double> typical_step() const;
  std::optional<double> recent_step() const;
  std::optional<std::pair<SitePair, double>> busiest_link() const;
  std::vector<TimelineSlice> measured_slices() const;
  Parts predicted_parts(int stage) const;
  std::string stage_table() const;
  std::string link_table() const;
  std::string history_line() const;
  std::string loss_lines() const;

  const RunReportInputs in_;
  const double dilation_;
  const int cells_;

  std::uint64_t committed_ = 0;  // steps
  std::optional<JournalEntry> first_, last_;
  Seconds first_commit_, last_commit_;
  bool is_saving_ = false;   // from the step that a checkpoint follows until it is kept
  bool was_saving_ = false;  // at some time since the last commit
  std::map<std::uint64_t, Step> open_;
  std::vector<double> typical_steps_, other_steps_;  // s
  std::deque<Recent> recent_;                        // typical ones
  std::optional<double> validation_loss_;
  std::map<int, Times> times_;  // by cell

  Links links_;              // of the whole run
  HistoryVisits histories_;  // likewise
  Links typical_links_;      // of the typical steps of which all workers told
  std::uint64_t typical_complete_ = 0;
  struct StageSum {
    Parts parts;
    std::uint64_t count = 0;
  };
  std::vector<StageSum> stages_;  // over typical steps and pipelines

  std::vector<RunRecord> records_;
  std::optional<Seconds> shown_at_;
  std::uint64_t shown_step_ = 0;  // committed_ then
};

}  // namespace longhaul
