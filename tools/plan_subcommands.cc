// `longhaul plan export`: a plan as the files of another trainer. `longhaul plan compare`: what
// differs between two plans.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "core/file.h"
#include "tools/command.h"
#include "tools/plan_compare.h"
#include "tools/plan_export.h"

namespace longhaul {
namespace {

struct ExportOptions {
  std::string plan;
  std::string target;
  std::string folder;
};

struct CompareOptions {
  std::string before;
  std::string after;
};

Result<void> write_export(const ExportOptions& options) {
  LH_ASSIGN(const LoadedPlan loaded, load_plan_with_inputs(options.plan));
  LH_TRY(check_memory(loaded.file.plan, loaded.topology, loaded.job));
  const ExportTarget target = export_target(options.target).value();  // checked by its option
  LH_ASSIGN(const ExportedPlan exported,
            export_plan(target, loaded.file.plan, loaded.topology, loaded.job, options.plan));
  const std::filesystem::path plan(options.plan);
  const std::string folder =
      options.folder.empty()
          ? (plan.parent_path() / (plan.stem().string() + "-" + options.target)).string()
          : options.folder;
  for (const std::string& note : exported.notes) fmt::print(stderr, "note: {}\n", note);
  for (const ExportedFile& file : exported.files) {
    const std::string path = (std::filesystem::path(folder) / file.name).string();
    LH_TRY(write_file(path, file.text));
    fmt::print("{}\n", path);
  }
  return {};
}

/// Whether they are the same.
Result<bool> compare(const CompareOptions& options) {
  LH_ASSIGN(const LoadedPlan before, load_plan_with_inputs(options.before));
  LH_ASSIGN(const LoadedPlan after, load_plan_with_inputs(options.after));
  const PlanComparison compared = compare_plans(before, after);
  fmt::print("{}", compared.text);
  return compared.same;
}

}  // namespace

void add_plan_export(CLI::App& plan, int& exit_status) {
  CLI::App* command = plan.add_subcommand("export", "write a plan as the files of another trainer");
  const auto options = std::make_shared<ExportOptions>();  // owned by the callback below
  command->add_option("plan", options->plan, "plan file (YAML)")->required();
  command->add_option("--for", options->target, "the trainer")
      ->required()
      ->check(CLI::IsMember({"torchrun", "megatron", "torchtitan"}));
  command->add_option("-o,--output", options->folder,
                      "folder to write; default: PLAN-TRAINER, beside the plan");
  command->callback([options, &exit_status] {
    const Result<void> done = write_export(*options);
    exit_status = done ? 0 : report_error(done.error());
  });
}

void add_plan_compare(CLI::App& plan, int& exit_status) {
  CLI::App* command =
      plan.add_subcommand("compare", "show what differs between two plans; status 3: something");
  const auto options = std::make_shared<CompareOptions>();  // owned by the callback below
  command->add_option("before", options->before, "plan file (YAML)")->required();
  command->add_option("after", options->after, "another")->required();
  command->callback([options, &exit_status] {
    const Result<bool> same = compare(*options);
    exit_status =
        !same ? report_error(same.error()) : (*same ? 0 : static_cast<int>(ErrorCode::kInfeasible));
  });
}

}  // namespace longhaul
