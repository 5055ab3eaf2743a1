// The `longhaul` binary: parses the command line and hands over to one command.

#include <CLI/CLI.hpp>

#include "tools/command.h"

int main(int argc, char** argv) {
  CLI::App app{
      "longhaul trains transformers on GPUs that sit in different cities: it plans which device "
      "runs "
      "which part of the model, and simulates what a plan costs."};
  app.name("longhaul");
  app.require_subcommand(1);
  app.set_version_flag("--version", LONGHAUL_VERSION);
  int exit_status = 0;
  longhaul::add_plan_command(app, exit_status);
  longhaul::add_simulate_command(app, exit_status);
  longhaul::add_trace_command(app, exit_status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_status;
}
