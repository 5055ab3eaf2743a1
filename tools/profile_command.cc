// `longhaul profile`: measures this machine and writes it down as a device that clusters can name.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/file.h"
#include "core/quantity.h"
#include "kernels/cpu/isa.h"
#include "netsim/device_file.h"
#include "tools/command.h"
#include "tools/profile.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

// What configs/devices/vps.yaml takes for a worker of its own.
constexpr Bytes kReserved{36.0 * 1048576};

struct Options {
  std::string job;
  std::string output = "this-core.yaml";
  std::string time = "10 s";
  std::string precision;
};

double residual(const DeviceKind& device, const PassTime& pass) {
  return fitted_time(device, pass) / pass.time - 1;
}

std::string table_text(const DeviceKind& device, const std::vector<PassTime>& passes) {
  std::vector<std::vector<std::string>> rows = {
      {"pass", "layers", "micro-batch", "repeats", "measured", "fitted", "off"}};
  for (const PassTime& pass : passes) {
    rows.push_back({std::string(name_of(pass.kind)),
                    fmt::format("{}{}", pass.stage.layers, pass.stage.has_head ? " + head" : ""),
                    pass.micro_batch == 0 ? "" : fmt::format("{}", pass.micro_batch),
                    fmt::format("{}", pass.repeats), format_duration(pass.time),
                    format_duration(fitted_time(device, pass)),
                    fmt::format("{:+.1f} %", 100 * residual(device, pass))});
  }
  return aligned(rows);
}

Result<void> profile(const Options& options) {
  Result<Seconds> budget = parse_duration(options.time);
  if (!budget) return within("--time", std::move(budget).error());
  const std::string kind = std::filesystem::path(options.output).stem().string();
  // A cluster file asks for `8xKIND`, so the name must not read as a number of something.
  const Result<DeviceCount> named = parse_device_count(kind);
  if (!named || named->kind != kind) {
    return invalid(fmt::format("`{}` cannot be the name of a device kind", kind),
                   "the device is called as its file: -o my-server.yaml");
  }
  std::string name = "demo-gpt";
  ModelShape model = demo_model();
  Precision precision = options.precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  if (!options.job.empty()) {
    LH_ASSIGN(const Job job, load_job(options.job));
    name = job.name;
    model = job.model;
    if (options.precision.empty() && job.precision == Precision::kBf16) precision = job.precision;
  }
  if (precision == Precision::kBf16 && !has_fast_bf16()) {
    fmt::print(stderr, "note: {}\n", kSlowBf16);
  }
  LH_TRY(check_writable(options.output));

  const InterruptFlag interrupt;
  std::vector<PassTime> passes;
  {
    ProgressLine progress;
    progress.show(fmt::format("profiling one core on layers of {}, for about {}", name,
                              format_duration(*budget)));
    const auto start = std::chrono::steady_clock::now();
    double shown_s = 0;
    ProfileOptions measure;
    measure.budget = *budget;
    measure.precision = precision;
    measure.should_stop = [] { return InterruptFlag::signal() != 0; };
    measure.on_round = [&](int round, std::size_t count) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (elapsed.count() < shown_s + 1) return;  // rounds of a small model last milliseconds
      shown_s = elapsed.count();
      progress.show(fmt::format("{} passes, round {}, {:.0f} s of {}", count, round, shown_s,
                                format_duration(*budget)));
    };
    LH_ASSIGN(passes, measure_passes(model, measure));
  }
  if (InterruptFlag::signal() != 0) return failed("interrupted: no device file is written");

  DeviceKind device = fit_device(passes);
  double worst = 0;
  int repeats = passes.front().repeats;
  for (const PassTime& pass : passes) {
    worst = std::max(worst, std::abs(residual(device, pass)));
    repeats = std::min(repeats, pass.repeats);
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  device.name = kind;
  device.title = fmt::format("one core of {}", processor_name());
  device.memory = machine_memory() / cores;
  device.reserved = std::min(kReserved, 0.5 * device.memory);
  device.source = fmt::format(
      "longhaul profile on layers of {}: {} passes, medians of {} repeats or more, the fit at most "
      "{:.0f} % off",
      name, passes.size(), repeats, 100 * worst);
  LH_TRY(write_file(options.output, device_text(device)));

  fmt::print("{}\n", device.title);
  fmt::print("{}\n", table_text(device, passes));
  fmt::print("fitted: {} in {}, {} a pass, {:.4g} GB/s in updates; at most {:.0f} % off\n",
             format_flop_rate(device.rate_at(precision)), name_of(precision),
             format_duration(device.overhead), device.memory_rate.value() / 1e9, 100 * worst);
  fmt::print("\ndevice {}; name it in a cluster file: device_files: {{{}: {}}}\n", options.output,
             kind, options.output);
  return {};
}

}  // namespace

void add_profile_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("profile", "measure one core of this machine as a device for plans");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  command->add_option("--job", options->job,
                      "job file (YAML) whose layers are measured; default: those of demo-gpt");
  command->add_option("-o,--output", options->output, "device file to write, called as its kind")
      ->capture_default_str();
  command->add_option("--precision", options->precision, "default: bf16 if the job is, else fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->add_option("--time", options->time, "how long to measure, such as 10s")
      ->capture_default_str();
  command->callback([options, &exit_status] {
    const Result<void> done = profile(*options);
    exit_status = done ? 0 : report_error(done.error());
    if (InterruptFlag::signal() != 0) exit_status = 128 + InterruptFlag::signal();
  });
}

}  // namespace longhaul
