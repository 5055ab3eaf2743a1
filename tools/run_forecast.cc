#include "tools/run_forecast.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/quantity.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr double kDay = 86400;
constexpr double kStepsMax = 1e12;

/// `3.2 d`, `5.4 h`, `12 min`; shorter ones as everywhere.
std::string long_duration(Seconds time) {
  if (time.value() >= 2 * kDay) return fmt::format("{:.3g} d", time.value() / kDay);
  if (time.value() >= 2 * 3600) return fmt::format("{:.3g} h", time.value() / 3600);
  if (time.value() >= 120) return fmt::format("{:.3g} min", time.value() / 60);
  return format_duration(time);
}

std::string short_count(double count) {
  constexpr std::pair<double, const char*> units[] = {
      {1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}};
  for (const auto& [unit, name] : units) {
    if (count >= unit) return fmt::format("{:.4g}{}", count / unit, name);
  }
  return fmt::format("{:.0f}", count);
}

Result<double> parse_count(const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const bool has_digits = end != text.c_str();
  if (unit == "k") {
    value *= 1e3;
  } else if (unit == "M") {
    value *= 1e6;
  } else if (unit == "B") {
    value *= 1e9;
  } else if (unit == "T") {
    value *= 1e12;
  } else if (!unit.empty() || !has_digits) {
    return invalid(fmt::format("--tokens: `{}` is not a number of tokens", text),
                   "write 10B; k, M, B and T stand for 10^3, 10^6, 10^9 and 10^12");
  }
  if (!(value >= 1) || !(value <= 1e18)) {
    return invalid(fmt::format("--tokens: {} is not between 1 and 10^18", text));
  }
  return value;
}

}  // namespace

Result<RunLimits> limits_of(const RunLength& length, const Job& job) {
  RunLimits limits;
  if (length.steps > 0) limits.steps = length.steps;
  if (length.days > 0) limits.time = Seconds(length.days * kDay);
  if (!length.tokens.empty()) {
    LH_ASSIGN(const double tokens, parse_count(length.tokens));
    const double steps = std::ceil(tokens / job.tokens_per_step());
    if (steps > kStepsMax) return invalid("--tokens: that is more than 10^12 steps");
    limits.steps = std::min(limits.steps, static_cast<std::uint64_t>(steps));
  }
  return limits;
}

void complete_checkpoints(Conditions& conditions, const Job& job, const Plan& plan,
                          std::string& assumed) {
  Checkpoints& checkpoints = conditions.checkpoints;
  if (checkpoints.every > 0 || !job.training || job.training->checkpoint_every == 0) return;
  checkpoints.every = static_cast<int>(job.training->checkpoint_every);
  checkpoints.time = assumed_checkpoint_time(job, plan);
  assumed = fmt::format(
      "a checkpoint every {} steps, as the job says, holds a step up for {} (12 bytes a parameter "
      "of the largest stage at 1 GB/s)",
      checkpoints.every, format_duration(checkpoints.time));
}

std::string forecast_text(const RunForecast& run) {
  const auto part = [&](Seconds time) {
    return fmt::format("{}, {:.1f} %", long_duration(time), 100 * (time / run.time));
  };
  std::vector<std::vector<std::string>> rows = {
      {"steps", fmt::format("{}", run.steps)},
      {"tokens", short_count(run.tokens)},
      {"time", long_duration(run.time)},
      {"  productive", part(run.productive)},
      {"  done again after failures", part(run.lost)},
      {"  waiting for devices, restarts", part(run.waiting)},
      {"  checkpoints", part(run.checkpoints)},
      {"effective training time ratio", fmt::format("{:.4f}", run.effective())},
      {"failures", fmt::format("{}", run.failures)},
      {"step, nothing unusual", format_duration(run.step_undisturbed)},
      {"step, mean", format_duration(run.step_mean)},
      {"step, p50", format_duration(run.step_p50)},
      {"step, p95", format_duration(run.step_p95)},
      {"step, p99", format_duration(run.step_p99)},
      {"step, longest", format_duration(run.step_longest)}};
  if (run.steps > 0) {
    rows.push_back({"tokens/s, all time", fmt::format("{:.0f}", run.tokens / run.time.value())});
    rows.push_back({"USD", fmt::format("{:.2f}", run.usd)});
    rows.push_back({"USD a billion tokens", fmt::format("{:.2f}", run.usd / run.tokens * 1e9)});
  }
  std::string out = aligned(rows);
  out += fmt::format("{} steps were simulated, the others are like them\n", run.simulated);
  if (run.interrupted) out += "interrupted: the figures are of the run until then\n";
  return out;
}

std::string forecast_json(const RunForecast& run) {
  nlohmann::ordered_json out;
  out["version"] = 1;
  out["steps"] = run.steps;
  out["tokens"] = run.tokens;
  out["time_s"] = run.time.value();
  out["productive_s"] = run.productive.value();
  out["lost_s"] = run.lost.value();
  out["waiting_s"] = run.waiting.value();
  out["checkpoints_s"] = run.checkpoints.value();
  out["effective_training_time_ratio"] = run.effective();
  out["failures"] = run.failures;
  out["step_s"] = {{"undisturbed", run.step_undisturbed.value()},
                   {"mean", run.step_mean.value()},
                   {"p50", run.step_p50.value()},
                   {"p95", run.step_p95.value()},
                   {"p99", run.step_p99.value()},
                   {"longest", run.step_longest.value()}};
  out["usd"] = run.usd;
  if (run.steps > 0) {
    out["tokens_per_s"] = run.tokens / run.time.value();
    out["usd_per_billion_tokens"] = run.usd / run.tokens * 1e9;
  }
  out["simulated_steps"] = run.simulated;
  out["interrupted"] = run.interrupted;
  out["points"] = nlohmann::ordered_json::array();
  for (const RunPoint& point : run.points) {
    nlohmann::ordered_json row = {
        {"end_s", point.end.value()}, {"steps", point.steps}, {"failures", point.failures}};
    if (point.steps > 0) {
      row["step_mean_s"] = point.total.value() / static_cast<double>(point.steps);
      row["step_longest_s"] = point.longest.value();
    }
    out["points"].push_back(std::move(row));
  }
  return out.dump(2) + "\n";
}

std::string forecast_progress(const RunForecast& run, const RunLimits& limits) {
  const std::string end =
      limits.time.finite() ? fmt::format(" of {}", long_duration(limits.time)) : "";
  const std::string all = limits.steps != UINT64_MAX ? fmt::format(" of {}", limits.steps) : "";
  return fmt::format("{}{}, {}{} steps, {} failures", long_duration(run.time), end, run.steps, all,
                     run.failures);
}

}  // namespace longhaul
