// `longhaul trace`: reads what was measured into a trace, looks at traces.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "core/file.h"
#include "core/quantity.h"
#include "netsim/import/import.h"
#include "netsim/trace.h"
#include "netsim/trace_check.h"
#include "tools/command.h"

namespace longhaul {
namespace {

constexpr std::size_t kConflictsShown = 10;

// ---- import

struct ImportArguments {
  std::vector<std::string> files;
  std::string output;
  std::string basis;
  int streams = 0;
  std::string message;
  ImportOptions options;
};

Result<std::vector<ImportFile>> read_files(const std::vector<std::string>& paths) {
  std::vector<ImportFile> files;
  for (const std::string& path : paths) {
    LH_ASSIGN(std::string text, read_trace_text(path));
    files.push_back({path, std::move(text)});
  }
  return files;
}

void tell(const ImportedTrace& imported) {
  for (const std::string& line : imported.recognised) fmt::print(stderr, "recognised: {}\n", line);
  for (const std::string& line : imported.assumptions) fmt::print(stderr, "assumed: {}\n", line);
  const std::size_t shown = std::min(imported.conflicts.size(), kConflictsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    fmt::print(stderr, "conflict: {}\n", imported.conflicts[i]);
  }
  if (shown < imported.conflicts.size()) {
    fmt::print(stderr, "conflict: and {} more, the newest of each kept\n",
               imported.conflicts.size() - shown);
  }
}

Result<void> import_files(ImportArguments& arguments) {
  if (!arguments.basis.empty()) {
    arguments.options.basis =
        arguments.basis == "rtt" ? LatencyBasis::kRoundTrip : LatencyBasis::kOneWay;
  }
  if (arguments.streams > 0) arguments.options.streams = arguments.streams;
  if (!arguments.message.empty()) {
    const Result<Bytes> message = parse_size(arguments.message);
    if (!message) {
      return invalid("--message: " + message.error().message, message.error().hint);
    }
    arguments.options.message = *message;
  }
  LH_ASSIGN(const std::vector<ImportFile> files, read_files(arguments.files));
  LH_ASSIGN(const ImportedTrace imported, import_traces(files, arguments.options));
  tell(imported);
  std::vector<std::string> comments;
  for (const std::string& line : imported.recognised) comments.push_back("imported: " + line);
  for (const std::string& line : imported.sources) comments.push_back(line);
  for (const std::string& line : imported.assumptions) comments.push_back("assumed: " + line);
  const std::string text = trace_csv(imported.trace, comments);
  if (arguments.output.empty()) {
    fmt::print("{}", text);
    return {};
  }
  LH_TRY(write_file(arguments.output, text));
  fmt::print(stderr, "{}: {} rows between {} places; `longhaul trace check` says what is missing\n",
             arguments.output, imported.trace.rows.size(), imported.trace.places.size());
  return {};
}

void add_import(CLI::App& trace, int& exit_status) {
  CLI::App* command = trace.add_subcommand(
      "import", "read measurements of other programs (cloud tables, iperf3, ping, ...)");
  const auto arguments = std::make_shared<ImportArguments>();  // owned by the callback below
  std::vector<std::string> names;
  for (const ImportFormat& format : import_formats()) names.emplace_back(format.name);
  ImportOptions& options = arguments->options;
  command->add_option("files", arguments->files, "files of measurements; they are merged")
      ->required();
  command->add_option("-o,--output", arguments->output, "trace file to write (default: stdout)");
  command->add_option(
      "--format", options.format,
      fmt::format("of all files, where their content does not tell: {}", fmt::join(names, ", ")));
  command->add_option("--basis", arguments->basis, "of latencies, where the files do not say")
      ->check(CLI::IsMember({"rtt", "one_way"}));
  command->add_option("--latency-unit", options.latency_unit, "such as ms");
  command->add_option("--rate-unit", options.rate_unit, "such as Mbit/s or MB/s");
  command->add_option("--streams", arguments->streams, "TCP connections of each measured rate")
      ->check(CLI::Range(1, 4096));
  const auto repeatable = [command](const std::string& name, std::vector<std::string>& values,
                                    const std::string& help) {
    command->add_option(name, values, help)->allow_extra_args(false);
  };
  repeatable("--from", options.from,
             "where a file that measures one pair (ping, iperf3) was run; repeated: one for each");
  repeatable("--to", options.to, "the other end");
  repeatable("--rename", options.rename,
             "OLD=NEW: a place under another name; `aws:*=*` takes a beginning off; repeatable");
  command->add_option("--message", arguments->message,
                      "size at which a rate that depends on it is taken, such as '64 MiB'");
  command->add_option("--event-type", options.event_type, "of perfSONAR's points: throughput, ...");
  command->callback([arguments, &exit_status] {
    const Result<void> done = import_files(*arguments);
    exit_status = done ? 0 : report_error(done.error());
  });
}

// ---- check and show

void add_check(CLI::App& trace, int& exit_status) {
  CLI::App* command = trace.add_subcommand(
      "check", "gaps, asymmetry and outliers of a trace, and what a cluster would assume");
  struct Arguments {
    std::string file;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();  // owned by the callback below
  command->add_option("trace", arguments->file, "trace file (CSV)")->required();
  command->add_flag("--json", arguments->json, "one JSON document");
  command->callback([arguments, &exit_status] {
    const Result<Trace> loaded = load_trace(arguments->file);
    if (!loaded) {
      exit_status = report_error(loaded.error());
      return;
    }
    const TraceCheck check = check_trace(*loaded);
    fmt::print("{}", arguments->json ? trace_check_json(*loaded, check)
                                     : trace_check_text(*loaded, check));
    exit_status = check.count(TraceFinding::Weight::kWarning) == 0
                      ? 0
                      : static_cast<int>(ErrorCode::kInfeasible);
  });
}

void add_show(CLI::App& trace, int& exit_status) {
  CLI::App* show = trace.add_subcommand("show", "print a trace's latency and rate matrices");
  struct Options {
    std::string file;
    double percentile = 50;
  };
  const auto options = std::make_shared<Options>();  // owned by the callback below
  show->add_option("trace", options->file, "trace file (CSV)")->required();
  show->add_option("--percentile", options->percentile, "of latency; 100 minus it of the rate")
      ->check(CLI::Range(0.0, 100.0))
      ->check(not_a_number)
      ->capture_default_str();
  show->callback([options, &exit_status] {
    const Result<Trace> loaded = load_trace(options->file);
    if (!loaded) {
      exit_status = report_error(loaded.error());
      return;
    }
    fmt::print("{}", trace_table(*loaded, options->percentile));
  });
}

}  // namespace

void add_trace_command(CLI::App& app, int& exit_status) {
  CLI::App* trace = app.add_subcommand("trace", "import, check and show network traces");
  trace->require_subcommand(1);
  add_import(*trace, exit_status);
  add_check(*trace, exit_status);
  add_show(*trace, exit_status);
}

}  // namespace longhaul
