// The `longhaul` binary: parses the command line and hands over to one command.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "core/config_cursor.h"
#include "tools/command.h"

int main(int argc, char** argv) {
  CLI::App app{
      "longhaul trains transformers on GPUs that sit in different cities: it plans which device "
      "runs which part of the model, simulates what a plan costs, and carries it out."};
  app.name("longhaul");
  app.require_subcommand(1);
  app.set_version_flag("--version", LONGHAUL_VERSION);
  int exit_status = 0;
  longhaul::add_plan_command(app, exit_status);
  longhaul::add_simulate_command(app, exit_status);
  longhaul::add_profile_command(app, exit_status);
  longhaul::add_cluster_command(app, exit_status);
  longhaul::add_trace_command(app, exit_status);
  longhaul::add_data_command(app, exit_status);
  longhaul::add_model_command(app, exit_status);
  longhaul::add_launch_command(app, exit_status);
  longhaul::add_compare_command(app, exit_status);
  longhaul::add_report_command(app, exit_status);
  longhaul::add_agent_command(app, exit_status);
  longhaul::add_generate_command(app, exit_status);
  longhaul::add_eval_command(app, exit_status);
  longhaul::add_worker_command(app, exit_status);
  try {
    // CLI11 takes the arguments from the back.
    std::vector<std::string> arguments =
        longhaul::with_joined_words({argv + 1, argv + std::max(argc, 1)});
    std::ranges::reverse(arguments);
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    // CLI11 only says that a subcommand is required when the first word is none of them.
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
    const std::string first = argc > 1 ? argv[1] : "-";
    if (first.front() != '-' &&
        std::find(commands.begin(), commands.end(), first) == commands.end()) {
      const std::string all = fmt::format("commands: {}", fmt::join(commands, ", "));
      return longhaul::report_error(longhaul::invalid(fmt::format("`{}` is not a command", first),
                                                      longhaul::did_you_mean(first, commands, all))
                                        .error());
    }
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_status;
}
