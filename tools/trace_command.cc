// `longhaul trace`: looks at network traces.

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "netsim/trace.h"
#include "tools/command.h"

namespace longhaul {

void add_trace_command(CLI::App& app, int& exit_status) {
  CLI::App* trace = app.add_subcommand("trace", "look at network traces");
  trace->require_subcommand(1);
  CLI::App* show = trace->add_subcommand("show", "print a trace's latency and rate matrices");
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

}  // namespace longhaul
