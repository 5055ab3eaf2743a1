#include "tools/run_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/median.h"
#include "core/model_math.h"
#include "core/quantity.h"
#include "core/schedule.h"
#include "executor/run/run_data.h"
#include "netsim/timeline.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kWarmUpSteps = 2;
constexpr std::size_t kRecentSteps = 8;
constexpr Seconds kTerminalInterval(0.1);
constexpr Seconds kLineInterval(5);
constexpr std::uint64_t kLineSteps = 10;
constexpr std::size_t kLinkRows = 12;

std::optional<double> finite(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<double> median_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(median(values));
}

std::vector<double> last_of(const std::vector<double>& values, std::size_t count) {
  const std::size_t first = values.size() - std::min(count, values.size());
  return {values.begin() + static_cast<std::ptrdiff_t>(first), values.end()};
}

std::string byte_rate_text(double rate) {
  if (rate >= 1e9) return fmt::format("{:.1f} GB/s", rate / 1e9);
  if (rate >= 1e6) return fmt::format("{:.1f} MB/s", rate / 1e6);
  return fmt::format("{:.1f} kB/s", rate / 1e3);
}

}  // namespace

// ---- what is added up

RunReport::Traffic& RunReport::Traffic::operator+=(const Traffic& other) {
  sent += other.sent;
  raw += other.raw;
  return *this;
}

bool RunReport::Step::is_complete() const {
  return std::ranges::all_of(has_told, [](bool has) { return has; });
}

std::optional<RunReport::Parts> RunReport::Step::mean_parts() const {
  Parts sum;
  int count = 0;
  for (const std::optional<Parts>& of_cell : parts) {
    if (!of_cell) continue;
    sum += *of_cell;
    ++count;
  }
  if (count == 0) return {};
  return sum / count;
}

// ---- from the hooks

RunReport::RunReport(RunReportInputs inputs)
    : in_(std::move(inputs)),
      dilation_(in_.spec.emulation ? in_.spec.emulation->dilation : 1),
      cells_(in_.spec.cells()),
      stages_(static_cast<std::size_t>(in_.spec.plan.stages())) {}

int RunReport::site_of_rank(int rank) const {
  if (rank == kCoordinatorRank) return in_.plan.coordinator_site;
  const int cell = rank - 1;
  return in_.topology.site_of(in_.plan.device(in_.spec.pipeline_of(cell), in_.spec.stage_of(cell)));
}

const std::string& RunReport::site_name(int site) const {
  return in_.topology.sites[static_cast<std::size_t>(site)].name;
}

bool RunReport::is_typical(std::uint64_t step) const {
  return committed_ >= kWarmUpSteps && !was_saving_ && !validates_after(in_.spec, step) &&
         !saves_after(in_.spec, step);
}

void RunReport::committed(const JournalEntry& entry, Seconds now) {
  Step step;
  step.entry = entry;
  step.when = now;
  step.time_s = run_seconds((now - in_.start).value());
  step.parts.resize(static_cast<std::size_t>(cells_));
  step.has_told.resize(static_cast<std::size_t>(cells_));
  step.sent.resize(static_cast<std::size_t>(cells_));
  if (last_ && now > last_commit_) {
    step.step_s = run_seconds((now - last_commit_).value());
    step.is_typical = is_typical(entry.step);
    (step.is_typical ? typical_steps_ : other_steps_).push_back(*step.step_s);
  }
  if (!first_) {
    first_ = entry;
    first_commit_ = now;
  }
  last_ = entry;
  last_commit_ = now;
  ++committed_;
  is_saving_ = is_saving_ || saves_after(in_.spec, entry.step + 1);
  was_saving_ = is_saving_;
  open_[entry.step] = std::move(step);
  record_steps(false);
}

void RunReport::validated(std::uint64_t steps_done, double loss, Seconds now) {
  validation_loss_ = loss;
  records_.push_back(ValidationRecord{steps_done, loss, now});
}

void RunReport::kept(const CheckpointId& checkpoint, Seconds now) {
  is_saving_ = false;
  records_.push_back(CheckpointRecord{checkpoint, now});
}

void RunReport::measured(int cell, const Measured& measured) {
  if (cell < 0 || cell >= cells_) return;
  Links links;
  const int from = site_of_rank(RunSpec::rank_of_cell(cell));
  for (const Measured::Sent& sent : measured.sent) {
    if (sent.peer < 0 || sent.peer > cells_) continue;
    // What the coordinator is sent is files, which have no codec and which workers do not count.
    const std::uint64_t raw = sent.peer == kCoordinatorRank ? sent.bytes : sent.raw;
    links[{from, site_of_rank(sent.peer)}] +=
        Traffic{static_cast<double>(sent.bytes), static_cast<double>(raw)};
  }
  for (const auto& [pair, traffic] : links) links_[pair] += traffic;

  const auto found = open_.find(measured.step);
  if (found == open_.end()) return;
  Step& step = found->second;
  if (step.has_told[static_cast<std::size_t>(cell)]) return;
  step.has_told[static_cast<std::size_t>(cell)] = true;
  for (const auto& [pair, traffic] : links) step.links[pair] += traffic;
  for (const Measured::Sent& sent : measured.sent) {
    step.sent[static_cast<std::size_t>(cell)] += sent.bytes;
  }
  const Parts parts =
      Parts{measured.compute, measured.wait, measured.reduce, measured.commit, measured.update} /
      dilation_;
  const bool is_finite =
      std::isfinite(parts.compute + parts.wait + parts.reduce + parts.commit + parts.update);
  if (is_finite) step.parts[static_cast<std::size_t>(cell)] = parts;
  record_steps(false);
}

void RunReport::times(int cell, const Times& times) {
  if (cell < 0 || cell >= cells_ || in_.spec.timeline_step != times.step) return;
  times_[cell] = times;
}

void RunReport::histories(int cell, const HistoryVisits& visits) {
  const auto found = open_.find(visits.step);
  if (cell < 0 || cell >= cells_ || found == open_.end()) return;
  if (!found->second.histories) found->second.histories.emplace();
  *found->second.histories += visits;
  histories_ += visits;
}

std::string RunReport::recoded(int cell, const Recoded& recoded, Seconds now) {
  if (cell < 0 || cell >= cells_ || recoded.peer <= kCoordinatorRank || recoded.peer > cells_) {
    return "";
  }
  const int rank = RunSpec::rank_of_cell(cell);
  const auto name = [this](int r) { return in_.spec.ranks[static_cast<std::size_t>(r)].name; };
  const CodecRecord record = {.step = recoded.step,
                              .from = name(rank),
                              .to = name(recoded.peer),
                              .from_site = site_name(site_of_rank(rank)),
                              .to_site = site_name(site_of_rank(recoded.peer)),
                              .tensors = recoded.are_gradients ? "gradients" : "activations",
                              .before = recoded.from,
                              .after = recoded.to,
                              .busy = run_seconds(recoded.busy),
                              .compute = run_seconds(recoded.compute),
                              .when = now};
  records_.push_back(record);
  return codec_sentence(record);
}

void RunReport::ended() {
  record_steps(true);
}

// ---- records

/// In the order of the steps: one that is not due holds up those after it.
void RunReport::record_steps(bool all) {
  while (!open_.empty()) {
    const auto& [number, step] = *open_.begin();
    if (!all && !step.is_complete() && number + 2 > last_->step) return;
    records_.push_back(record_of(step));
    if (step.is_typical) count_typical(step);
    open_.erase(open_.begin());
  }
}

StepRecord RunReport::record_of(const Step& step) const {
  const std::uint64_t number = step.entry.step;
  StepRecord record;
  record.entry = step.entry;
  record.when = step.when;
  record.learning_rate = rates_of(in_.spec).rate(number);
  record.time_s = step.time_s;
  record.step_s = step.step_s;
  if (step.step_s) record.tokens_per_s = in_.spec.job.tokens_per_step() / *step.step_s;
  record.tokens_seen = targets_before(in_.spec, number + 1);
  record.tokens = record.tokens_seen - targets_before(in_.spec, number);
  for (const auto& [pair, traffic] : step.links) {
    record.links.push_back({site_name(pair.first), site_name(pair.second),
                            static_cast<std::uint64_t>(traffic.sent),
                            static_cast<std::uint64_t>(traffic.raw)});
  }
  record.bytes_by_cell = step.sent;
  record.histories = step.histories;
  record.parts = step.mean_parts();
  return record;
}

std::vector<RunRecord> RunReport::take_records() {
  return std::exchange(records_, {});
}

void RunReport::count_typical(const Step& step) {
  for (int cell = 0; cell < cells_; ++cell) {
    std::optional<Parts> parts = step.parts[static_cast<std::size_t>(cell)];
    if (!parts) continue;
    // What is left of the step is waiting, too: for the first tensor to come. The simulation counts
    // it so.
    const double busy = parts->compute + parts->reduce + parts->commit + parts->update;
    parts->wait = std::max(0.0, *step.step_s - busy);
    StageSum& stage = stages_[static_cast<std::size_t>(in_.spec.stage_of(cell))];
    stage.parts += *parts;
    ++stage.count;
  }
  if (!step.is_complete()) return;
  ++typical_complete_;
  for (const auto& [pair, traffic] : step.links) typical_links_[pair] += traffic;
  const std::optional<Parts> mean = step.mean_parts();
  if (!mean) return;
  const double exposed = 1 - (mean->compute + mean->update) / *step.step_s;
  recent_.push_back({*step.step_s, std::clamp(exposed, 0.0, 1.0), step.links});
  if (recent_.size() > kRecentSteps) recent_.pop_front();
}

// ---- progress

bool RunReport::should_print(Seconds now) {
  if (committed_ == shown_step_) return false;
  const std::uint64_t steps = committed_ - shown_step_;
  const bool is_edge = !shown_at_ || last_->step + 1 == in_.spec.last_step;
  const bool is_due = is_edge ||
                      now - *shown_at_ >= (in_.is_terminal ? kTerminalInterval : kLineInterval) ||
                      (!in_.is_terminal && steps >= kLineSteps);
  if (!is_due) return false;
  shown_at_ = now;
  shown_step_ = committed_;
  return true;
}

std::optional<double> RunReport::typical_step() const {
  return median_of(typical_steps_.empty() ? other_steps_ : typical_steps_);
}

std::optional<double> RunReport::recent_step() const {
  return median_of(last_of(typical_steps_.empty() ? other_steps_ : typical_steps_, kRecentSteps));
}

/// Between two sites: the most bytes in the last steps, and their rate.
std::optional<std::pair<RunReport::SitePair, double>> RunReport::busiest_link() const {
  std::map<SitePair, double> sent;
  double time = 0;
  for (const Recent& step : recent_) {
    time += step.step_s;
    for (const auto& [pair, traffic] : step.links) {
      if (pair.first != pair.second) sent[pair] += traffic.sent;
    }
  }
  const auto most = std::ranges::max_element(sent, {}, [](const auto& at) { return at.second; });
  if (most == sent.end() || most->second == 0) return {};
  return std::pair(most->first, most->second / time);
}

std::string RunReport::progress_line() const {
  const std::uint64_t done = last_ ? last_->step + 1 : in_.spec.first_step;
  std::string line = fmt::format("step {}/{}", done, in_.spec.last_step);
  if (!last_) return line;
  line += fmt::format("  loss {:.3f}", last_->loss);
  if (last_->decision == Decision::kSkip) line += " (skipped)";
  if (const auto step_s = recent_step()) {
    line += fmt::format("  {} tokens/s", count_text(in_.spec.job.tokens_per_step() / *step_s));
  }
  if (const auto busiest = busiest_link()) {
    const auto& [pair, rate] = *busiest;
    line += fmt::format("  {} {}>{}", byte_rate_text(rate), site_name(pair.first),
                        site_name(pair.second));
  }
  if (!recent_.empty()) {
    double exposed = 0;
    for (const Recent& step : recent_) exposed += step.exposed;
    line +=
        fmt::format("  exposed comm {:.0f} %", 100 * exposed / static_cast<double>(recent_.size()));
  }
  if (committed_ > 1 && done < in_.spec.last_step) {
    const double a_step =
        (last_commit_ - first_commit_).value() / static_cast<double>(committed_ - 1);
    line += fmt::format("  ETA {}",
                        time_left_text(a_step * static_cast<double>(in_.spec.last_step - done)));
  }
  return line;
}

// ---- timeline

/// What the simulated timeline shows, as the workers told it: work, sends and reductions.
std::vector<TimelineSlice> RunReport::measured_slices() const {
  if (times_.empty()) return {};
  const Schedule schedule = make_schedule(in_.spec.plan, in_.spec.job);
  std::uint64_t origin = times_.begin()->second.origin_ns;
  for (const auto& [cell, times] : times_) origin = std::min(origin, times.origin_ns);
  struct Slice {
    Seconds start, end;
    int cell;
    const Instruction* what;
  };
  std::vector<Slice> slices;
  Seconds first = Seconds::infinity();
  for (const auto& [cell, times] : times_) {
    const auto& list = schedule.tasklets[static_cast<std::size_t>(cell)].instructions;
    if (times.spans.size() != list.size()) continue;
    const double shift = static_cast<double>(times.origin_ns - origin) / 1e9;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Seconds start(run_seconds(shift + times.spans[i].first));
      const Seconds end(run_seconds(shift + times.spans[i].second));
      const bool is_shown = lane_of(list[i].op) != Lane::kReceive && list[i].op != Op::kPrepare;
      if (!is_shown || !start.finite() || !end.finite() || end < start) continue;
      first = std::min(first, start);
      slices.push_back({start, end, cell, &list[i]});
    }
  }
  std::ranges::stable_sort(slices, {}, &Slice::end);
  std::vector<TimelineSlice> out;
  for (const Slice& slice : slices) {
    // The simulated clock counts 106 days; a worker whose clock is another is not shown.
    if (slice.end - first > Seconds(50.0 * 86400)) continue;
    const bool is_send = lane_of(slice.what->op) == Lane::kSend;
    out.push_back({slice.what->op, slice.what->micro_batch, slice.cell,
                   is_send ? slice.what->peer : -1, SimTime::from(slice.start - first),
                   SimTime::from(slice.end - first)});
  }
  return out;
}

std::string RunReport::timeline() const {
  const std::vector<TimelineSlice> measured = measured_slices();
  const TimelineGroup groups[] = {{"simulated", in_.predicted.timeline}, {"measured", measured}};
  return timeline_json(groups, in_.topology, in_.plan);
}

// ---- the end

RunReport::Parts RunReport::predicted_parts(int stage) const {
  Parts sum;
  int count = 0;
  for (std::size_t cell = 0; cell < in_.predicted.tasklets.size(); ++cell) {
    if (in_.spec.stage_of(static_cast<int>(cell)) != stage) continue;
    const TaskletTimes& times = in_.predicted.tasklets[cell];
    sum += Parts{times.compute.value(), (times.transfer + times.bubble).value(),
                 times.reduce.value(), times.commit.value(), times.update.value()};
    ++count;
  }
  return count == 0 ? sum : sum / count;
}

std::string RunReport::stage_table() const {
  std::vector<std::vector<std::string>> rows = {
      {"stage", "compute", "wait", "reduce", "commit", "update"}};
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].count == 0) continue;
    const Parts predicted = predicted_parts(static_cast<int>(i));
    const Parts measured = stages_[i].parts / static_cast<double>(stages_[i].count);
    rows.push_back({fmt::format("{}", i)});
    for (const auto part :
         {&Parts::compute, &Parts::wait, &Parts::reduce, &Parts::commit, &Parts::update}) {
      rows.back().push_back(fmt::format("{} / {}", format_duration(Seconds(predicted.*part)),
                                        format_duration(Seconds(measured.*part))));
    }
  }
  if (rows.size() == 1) return "";
  return "where the step goes, predicted / measured (a stage's pipelines averaged)\n" +
         aligned(rows);
}

std::string RunReport::link_table() const {
  // A run too short for typical steps shows what it has.
  const bool has_typical = typical_complete_ > 0;
  const Links& links = has_typical ? typical_links_ : links_;
  const auto steps = static_cast<double>(has_typical ? typical_complete_ : committed_);
  if (links.empty() || steps == 0) return "";
  std::vector<std::pair<SitePair, Traffic>> busiest(links.begin(), links.end());
  std::ranges::stable_sort(busiest, std::greater(), [](const auto& at) { return at.second.sent; });
  busiest.resize(std::min(busiest.size(), kLinkRows));
  std::vector<std::vector<std::string>> rows = {{"from", "to", "raw MB", "sent MB"}};
  for (const auto& [pair, traffic] : busiest) {
    rows.push_back({site_name(pair.first), site_name(pair.second),
                    fmt::format("{:.3f}", traffic.raw / steps / 1e6),
                    fmt::format("{:.3f}", traffic.sent / steps / 1e6)});
  }
  const std::string what = links.size() > kLinkRows
                               ? fmt::format("the busiest {} of {} links", kLinkRows, links.size())
                               : std::string("links");
  return what + ", a step (from = to: inside a site)\n" + aligned(rows);
}

std::string RunReport::history_line() const {
  const std::uint64_t all = histories_.sequences();
  if (all == 0) return "";
  const auto share = [all](std::uint64_t part) {
    return 100 * static_cast<double>(part) / static_cast<double>(all);
  };
  std::string out = fmt::format("activations: {:.1f} % of {} sequences as differences to a history",
                                share(histories_.deltas), all);
  if (histories_.whole > 0) {
    out += fmt::format(", {:.1f} % whole for want of room", share(histories_.whole));
  }
  if (histories_.healed > 0) out += fmt::format(", {} asked for again", histories_.healed);
  return out + "\n";
}

std::string RunReport::loss_lines() const {
  std::string out;
  if (first_) {
    out += fmt::format("loss {:.4f} -> {:.4f} in {} step{}\n", first_->loss, last_->loss,
                       committed_, committed_ == 1 ? "" : "s");
  }
  if (validation_loss_) out += fmt::format("validation loss {:.4f}\n", *validation_loss_);
  if (validation_loss_ && in_.bigram_loss) {
    out.back() = ',';
    out += fmt::format(" of a bigram model {:.4f}\n", *in_.bigram_loss);
  }
  return out;
}

std::string RunReport::final_table(std::optional<double> late_fraction) const {
  const double predicted = in_.predicted.step.value();
  std::string out = fmt::format("step: predicted {}", format_duration(in_.predicted.step));
  const std::optional<double> measured = typical_step();
  if (measured) {
    const std::size_t count = typical_steps_.empty() ? other_steps_.size() : typical_steps_.size();
    out += fmt::format(", measured {} (median of {})", format_duration(Seconds(*measured)), count);
    if (predicted > 0) out += fmt::format(", ratio {:.3f}", *measured / predicted);
  }
  out += "\n" + stage_table() + link_table() + history_line() + loss_lines();
  if (measured) {
    out += fmt::format("{} tokens/s{}\n", count_text(in_.spec.job.tokens_per_step() / *measured),
                       in_.spec.emulation ? " in emulated time" : "");
  }
  if (late_fraction) {
    out += fmt::format("late: {:.2f} % of what was emulated\n", 100 * *late_fraction);
  }
  return out;
}

RunResult RunReport::result(std::optional<double> late_fraction) const {
  RunResult result;
  result.steps = committed_;
  result.parameters = static_cast<std::uint64_t>(model_parameters(in_.spec.job.model));
  if (first_) result.loss_first = finite(first_->loss);
  if (last_) result.loss_last = finite(last_->loss);
  result.validation_loss = finite(validation_loss_);
  result.bigram_loss = finite(in_.bigram_loss);
  result.step_predicted_s = finite(in_.predicted.step.value());
  result.step_measured_s = typical_step();
  if (result.step_measured_s) {
    result.tokens_per_s = in_.spec.job.tokens_per_step() / *result.step_measured_s;
  }
  result.late_fraction = finite(late_fraction);
  for (const auto& [pair, traffic] : links_) {
    result.links.push_back({site_name(pair.first), site_name(pair.second),
                            static_cast<std::uint64_t>(traffic.raw),
                            static_cast<std::uint64_t>(traffic.sent)});
  }
  return result;
}

}  // namespace longhaul
