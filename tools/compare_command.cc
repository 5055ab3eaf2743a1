// `longhaul compare`: what two runs came to, side by side.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "core/file.h"
#include "core/quantity.h"
#include "executor/storage/real_storage.h"
#include "tools/command.h"
#include "tools/run_result.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kResultBytesMax = std::uint64_t{16} << 20;
constexpr std::size_t kLinks = 12;

struct Options {
  std::string run;
  std::string other;
  std::string summary;
};

std::string number(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string time(const std::optional<double>& seconds) {
  return seconds ? format_duration(Seconds(*seconds)) : "-";
}

std::string share(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f} %", 100 * *value) : "-";
}

std::string ratio(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b && *b > 0 ? fmt::format("{:.3f}", *a / *b) : "-";
}

std::string link_table(const RunResult& run) {
  std::vector<RunResult::LinkTotal> links = run.links;
  std::ranges::stable_sort(links, std::ranges::greater(), &RunResult::LinkTotal::bytes_sent);
  std::vector<std::vector<std::string>> rows = {{"link", "raw", "sent"}};
  for (std::size_t i = 0; i < std::min(links.size(), kLinks); ++i) {
    rows.push_back({fmt::format("{} -> {}", links[i].from, links[i].to),
                    format_size(Bytes(static_cast<double>(links[i].bytes_raw))),
                    format_size(Bytes(static_cast<double>(links[i].bytes_sent)))});
  }
  return fmt::format("bytes over the whole run, {} of {} links\n{}", rows.size() - 1, links.size(),
                     aligned(rows));
}

Result<void> compare(const Options& options) {
  RealStorage storage;
  const auto load = [&storage](const std::string& folder) -> Result<RunResult> {
    const std::string path = folder + "/result.json";
    LH_ASSIGN(const std::string text, read_text(storage, path, kResultBytesMax));
    return parse_result(text, path);
  };
  LH_ASSIGN(const RunResult run, load(options.run));
  std::vector<RunResult> others;
  if (!options.other.empty()) {
    LH_ASSIGN(RunResult other, load(options.other));
    others.push_back(std::move(other));
  }

  std::vector<std::vector<std::string>> rows(10);
  rows[0] = {"run", options.run};
  const auto add = [&rows](const RunResult& of) {
    const std::string cells[] = {
        std::to_string(of.steps),  std::to_string(of.parameters), number(of.loss_first, 4),
        number(of.loss_last, 4),   number(of.validation_loss, 4), number(of.tokens_per_s, 0),
        time(of.step_predicted_s), time(of.step_measured_s),      share(of.late_fraction)};
    for (std::size_t i = 0; i < std::size(cells); ++i) rows[i + 1].push_back(cells[i]);
  };
  const char* const names[] = {"steps",           "parameters",      "loss, first",
                               "loss, last",      "validation loss", "tokens/s",
                               "step, predicted", "step, measured",  "late"};
  for (std::size_t i = 0; i < std::size(names); ++i) rows[i + 1].push_back(names[i]);
  add(run);
  if (!others.empty()) {
    rows[0].push_back(options.other);
    add(others.front());
  }
  fmt::print("{}", aligned(rows));
  if (run.bigram_loss) fmt::print("a bigram model's validation loss: {:.4f}\n", *run.bigram_loss);
  if (!others.empty()) {
    fmt::print("measured step, first run / second: {}\n",
               ratio(run.step_measured_s, others.front().step_measured_s));
  }
  fmt::print("\n{}", link_table(run));
  if (options.summary.empty()) return {};
  return write_file(options.summary, summary_text(run, others.empty() ? nullptr : &others.front()));
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("compare", "show what a run came to, beside another of the same job");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  command->add_option("run", options->run, "a run's folder")->required();
  command->add_option("other", options->other, "another's, such as that of rank order");
  command->add_option("--summary", options->summary, "write it to this file, as JSON");
  command->callback([options, &exit_status] {
    const Result<void> done = compare(*options);
    exit_status = done ? 0 : report_error(done.error());
  });
}

}  // namespace longhaul
