// The commands of the `longhaul` binary and what they share. Each command lives in its own file,
// adds itself to the command line and leaves its exit status: 0 done, 1 failed while running, 2
// wrong usage or input, 3 the honest answer is no, 128 + n ended by signal n.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace CLI {
class App;
}

namespace longhaul {

void add_agent_command(CLI::App& app, int& exit_status);
void add_cluster_command(CLI::App& app, int& exit_status);
void add_compare_command(CLI::App& app, int& exit_status);
void add_data_command(CLI::App& app, int& exit_status);
void add_eval_command(CLI::App& app, int& exit_status);
void add_generate_command(CLI::App& app, int& exit_status);
void add_launch_command(CLI::App& app, int& exit_status);
void add_model_command(CLI::App& app, int& exit_status);
void add_plan_command(CLI::App& app, int& exit_status);
void add_profile_command(CLI::App& app, int& exit_status);
void add_report_command(CLI::App& app, int& exit_status);
void add_simulate_command(CLI::App& app, int& exit_status);
void add_trace_command(CLI::App& app, int& exit_status);
void add_worker_command(CLI::App& app, int& exit_status);
// Commands of `plan`.
void add_plan_compare(CLI::App& plan, int& exit_status);
void add_plan_export(CLI::App& plan, int& exit_status);

/// The arguments with `--remove site london` and `--add site mumbai:8xa100` as two arguments each
/// instead of three: the noun and the name are one value.
std::vector<std::string> with_joined_words(std::vector<std::string> arguments);

/// Prints an error to stderr and answers its exit status.
int report_error(const Error& error);

/// For options: why `text` is no finite number, or empty. CLI::Range lets `nan` pass.
std::string not_a_number(const std::string& text);

/// Path of `file` as seen from the folder of `from`, so that files can name each other and move
/// together.
std::string path_from(const std::string& from, const std::string& file);
/// The reverse: a path found inside the file `from`.
std::string resolve_from(const std::string& from, const std::string& path);

/// As many open files as the system lets this process have: a rank with many partners has a socket
/// for each stream of each of them, and the usual soft limit is 1,024.
void raise_open_files_limit();

/// One changing line of progress on a terminal, plain lines elsewhere; always stderr.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& text);
  bool is_terminal() const { return terminal_; }

 private:
  bool terminal_;
  bool shown_ = false;
};

/// From its construction on, SIGINT and SIGTERM only set a flag (a second one ends the process).
class InterruptFlag {
 public:
  InterruptFlag();
  /// The signal that came, or 0.
  static int signal();
};

}  // namespace longhaul
