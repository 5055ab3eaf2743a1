// Command lines that cannot be carried out, and files that cannot be read or written.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

struct BadUsage {
  std::vector<std::string> arguments;
  std::string says;  // on stderr
};

/// `plan` on the good files with `more`.
std::vector<std::string> plan_with(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"plan",     "--cluster", "cluster.yaml", "--job",
                                        "job.yaml", "--effort",  "0.01"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// `plan` on the good trace with `devices`.
std::vector<std::string> plan_on(const std::string& devices) {
  return {"plan", "--trace", "links.csv", "--devices", devices, "--job", "job.yaml"};
}

void expect_refused(const std::vector<BadUsage>& cases) {
  for (const BadUsage& bad : cases) {
    std::string line = "longhaul";
    for (const std::string& argument : bad.arguments) line += " " + argument;
    SCOPED_TRACE(line);
    const TemporaryFolder folder;
    folder.write_samples();
    const RunResult run = run_longhaul(bad.arguments, folder.path());
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.contains(bad.says)) << run.err;
  }
}

TEST(Usage, what_is_asked_must_be_known_and_complete) {
  expect_refused({
      {{}, "subcommand is required"},
      {{"plna"}, "did you mean `plan`?"},
      {{"trace"}, "subcommand is required"},
      {{"trace", "show"}, "trace is required"},
      {{"simulate"}, "plan is required"},
      {{"simulate", "plan.yaml", "job.yaml"}, "job.yaml"},
      {{"plan", "--cluster", "cluster.yaml"}, "--job is required"},
      {{"plan", "--job", "job.yaml"}, "plan needs a cluster"},
      {plan_with({"--frobnicate"}), "--frobnicate"},
      {plan_with({"--seed"}), "--seed"},
      {{"plan", "--trace", "links.csv", "--job", "job.yaml"}, "--devices"},
      {{"plan", "--devices", "delft:v100", "--job", "job.yaml"}, "--trace"},
      {plan_with({"--trace", "links.csv", "--devices", "delft:v100"}), "excludes"},
  });
}

TEST(Usage, values_of_options_are_checked) {
  expect_refused({
      {plan_with({"--policy", "best"}), "--policy"},
      {plan_with({"--stages", "0"}), "--stages"},
      {plan_with({"--stages", "two"}), "--stages"},
      {plan_with({"--pipelines", "-1"}), "--pipelines"},
      {plan_with({"--micro-batch", "99999999999"}), "--micro-batch"},
      {plan_with({"--threads", "0"}), "--threads"},
      {plan_with({"--threads", "1025"}), "--threads"},
      {plan_with({"--seed", "-1"}), "--seed"},
      {plan_with({"--seed", "9223372036854775808"}), "--seed"},
      {plan_with({"--time-limit", "30"}), "--time-limit: `30` has no unit"},
      {plan_with({"--time-limit", "5 m"}), "write min for minutes"},
      {{"trace", "show", "links.csv", "--percentile", "100.1"}, "--percentile"},
      {{"trace", "show", "links.csv", "--percentile", "-0.1"}, "--percentile"},
      {{"trace", "show", "links.csv", "--percentile", "nan"}, "--percentile"},
  });
  for (const std::string effort : {"0.009", "1001", "nan", "inf"}) {
    expect_refused({{{"plan", "--cluster", "cluster.yaml", "--job", "job.yaml", "--effort", effort},
                     "--effort"}});
  }
}

TEST(Usage, the_ends_of_the_ranges_are_accepted) {
  const TemporaryFolder folder;
  folder.write_samples();
  const std::vector<std::vector<std::string>> commands = {
      plan_with({"--threads", "1024"}),
      plan_with({"--seed", "0"}),
      plan_with({"--stages", "6", "--pipelines", "1", "--micro-batch", "24"}),
      plan_with({"--time-limit", "1 d"}),
      {"trace", "show", "links.csv", "--percentile", "0"},
      {"trace", "show", "links.csv", "--percentile", "100"},
      {"--help"},
      {"--version"},
      {"plan", "--help"},
  };
  for (const auto& command : commands) {
    const RunResult run = run_longhaul(command, folder.path());
    EXPECT_EQ(run.status, 0) << command.front() << " .. " << command.back() << "\n" << run.err;
    EXPECT_NE(run.out, "");
  }
}

TEST(Usage, a_plan_of_the_largest_seed_is_read_back) {
  const TemporaryFolder folder;
  folder.write_samples();
  const RunResult plan = run_longhaul(plan_with({"--seed", "9223372036854775807"}), folder.path());
  EXPECT_EQ(plan.status, 0) << plan.err;
  const RunResult step = run_longhaul({"simulate", "plan.yaml"}, folder.path());
  EXPECT_EQ(step.status, 0) << step.err;
}

TEST(Usage, the_list_of_devices_is_checked) {
  expect_refused({
      {plan_on(""), "--devices names no device"},
      {plan_on("delft"), "--devices: `delft` has no colon"},
      {plan_on("delft:2xv100,,riga:v100"), "--devices: `` has no colon"},
      {plan_on("delft:"), "`` is not a number of devices"},
      {plan_on("delft:0xv100"), "`0xv100` is not a number of devices"},
      {plan_on("delft:1025xv100"), "`1025xv100` is not a number of devices"},
      {plan_on("delft:-1xv100"), "unknown device kind `-1xv100`"},
      {plan_on("delft:2xv10"), "unknown device kind `v10`"},
      {plan_on("delft:v100,delft:a100"), "--devices: `delft` appears twice"},
      {plan_on("delft:v100,rega:a100"), "did you mean `riga`?"},
      {plan_on("delft:v100} #"), "unknown device kind `v100} #`"},
  });
}

/// Arguments that make the command read `name` as `kind`: cluster, job, trace or plan.
std::vector<std::string> command_reading(const std::string& kind, const std::string& name) {
  if (kind == "cluster") return {"plan", "--cluster", name, "--job", "job.yaml"};
  if (kind == "job") return {"plan", "--cluster", "cluster.yaml", "--job", name};
  if (kind == "trace") return {"trace", "show", name};
  return {"simulate", name};
}

void expect_one_error(const RunResult& run, const std::string& says) {
  EXPECT_EQ(run.status, 2) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.contains(says)) << run.err;
  EXPECT_NE(run.err.find("error: "), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("error: "), run.err.rfind("error: ")) << run.err;
}

TEST(Usage, a_file_that_is_none_is_refused) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("empty", "");
  std::string garbage =
      "\x7f"
      "ELF";
  for (int i = 0; i < 4096; ++i) garbage += static_cast<char>(i * 37 % 256);
  folder.write("garbage", garbage);
  std::filesystem::create_directory(folder / "folder");
  for (const std::string kind : {"cluster", "job", "trace", "plan"}) {
    SCOPED_TRACE(kind);
    const auto run = [&](const std::string& name) {
      return run_longhaul(command_reading(kind, name), folder.path());
    };
    expect_one_error(run("absent"), "absent: No such file or directory");
    expect_one_error(run("folder"), "folder");
    expect_one_error(run("empty"), "empty");
    expect_one_error(run("garbage"), "garbage:1:1");
    // A message is for a terminal: nothing in it moves the cursor.
    const std::string shown = run("garbage").err;
    EXPECT_EQ(shown.find_first_of(std::string_view("\x7f\x1b\0\b\r", 5)), std::string::npos);
  }
}

TEST(Usage, a_file_of_another_kind_is_named_as_what_it_is) {
  const TemporaryFolder folder;
  folder.write_samples();
  for (const auto& [kind, name] : {std::pair{"cluster", "job"},
                                   {"cluster", "plan"},
                                   {"job", "cluster"},
                                   {"job", "plan"},
                                   {"plan", "job"},
                                   {"plan", "cluster"}}) {
    SCOPED_TRACE(fmt::format("{} for a {}", name, kind));
    expect_one_error(
        run_longhaul(command_reading(kind, fmt::format("{}.yaml", name)), folder.path()),
        fmt::format("this is a `longhaul/{}/1` file; a `longhaul/{}/1` file is wanted", name,
                    kind));
  }
}

TEST(Usage, the_files_that_a_plan_names_are_looked_for_from_its_folder) {
  const TemporaryFolder folder;
  folder.write_samples();
  std::filesystem::create_directory(folder / "plans");
  folder.write("plans/plan.yaml", kPlanText);
  expect_one_error(run_longhaul({"simulate", "plans/plan.yaml"}, folder.path()),
                   "plans/cluster.yaml: No such file or directory");
  folder.write("plan.yaml", edited(kPlanText, "{file: job.yaml}", "{}"));
  expect_one_error(run_longhaul({"simulate", "plan.yaml"}, folder.path()),
                   "plan.yaml:4:8: error: missing key `file`");
}

TEST(Usage, an_output_that_cannot_be_written_fails_with_1) {
  const TemporaryFolder folder;
  folder.write_samples();
  std::filesystem::create_directory(folder / "folder");
  // A folder in the place of the file, and a file in the place of a folder: root is refused too.
  for (const std::string output : {"folder", "job.yaml/plan.yaml", "/proc/plan.yaml"}) {
    SCOPED_TRACE(output);
    for (const auto& command :
         {plan_with({"-o", output}), {"simulate", "plan.yaml", "--timeline", output}}) {
      const RunResult run = run_longhaul(command, folder.path());
      EXPECT_EQ(run.status, 1) << run.err;
      EXPECT_EQ(run.out, "");
      EXPECT_TRUE(run.err.contains("error: cannot write " + output + ": ")) << run.err;
    }
  }
  EXPECT_EQ(read_text(folder / "job.yaml"), kJobText);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
  }
}

TEST(Usage, extreme_values_that_files_may_hold_end_in_a_plan_or_in_a_refusal) {
  struct Extreme {
    std::string name;
    std::string_view good;
    std::string old;
    std::string replacement;
  };
  const std::vector<Extreme> cases = {
      {"cluster.yaml", kClusterText, "20 ms", "0 ms"},
      {"cluster.yaml", kClusterText, "20 ms", "1e15 s"},
      {"cluster.yaml", kClusterText, "20 ms", "1e300 d"},
      {"cluster.yaml", kClusterText, "500 Mbit/s", "1e-300 bit/s"},
      {"cluster.yaml", kClusterText, "500 Mbit/s", "1e300 bit/s"},
      {"cluster.yaml", kClusterText, "4 MiB", "1e-300 B"},
      {"cluster.yaml", kClusterText, "latency: 10 us", "latency: 1e15 s"},
      {"lab.yaml", kDeviceText, "memory: 8 GiB", "memory: 1e300 B"},
      {"lab.yaml", kDeviceText, "50 TFLOP/s", "1e-300 FLOP/s"},
      {"lab.yaml", kDeviceText, "50 TFLOP/s", "1e300 FLOP/s"},
      {"lab.yaml", kDeviceText, "400 GB/s", "1e-300 B/s"},
      {"lab.yaml", kDeviceText, "50 us", "1e15 s"},
      {"lab.yaml", kDeviceText, "1 USD/h", "1e300 USD/h"},
      {"job.yaml", kJobText, "layers: 8", "layers: 1"},
      {"job.yaml", kJobText, "context: 128", "context: 16777216"},
      {"job.yaml", kJobText, "global: 24", "global: 1"},
      {"job.yaml", kJobText, "width: 256", "width: 1048576"},
  };
  for (const Extreme& extreme : cases) {
    SCOPED_TRACE(fmt::format("{}: {}", extreme.name, extreme.replacement));
    const TemporaryFolder folder;
    folder.write_samples();
    folder.write(extreme.name, edited(extreme.good, extreme.old, extreme.replacement));
    for (const std::string policy : {"search", "rank-order"}) {
      const RunResult run = run_longhaul(plan_with({"--policy", policy}), folder.path());
      EXPECT_TRUE(run.status == 0 || run.status == 2 || run.status == 3)
          << policy << ": " << run.status << "\n"
          << run.err;
      EXPECT_FALSE(run.out.contains("nan")) << run.out;
      if (run.status != 0) continue;
      const RunResult step = run_longhaul({"simulate", "plan.yaml"}, folder.path());
      EXPECT_EQ(step.status, 0) << step.err;
      EXPECT_FALSE(step.out.contains("nan")) << step.out;
    }
  }
}

}  // namespace
}  // namespace longhaul
