// The binary as people use it: what it prints, writes and answers. Usage errors are in
// usage_test.cc, malformed files in malformed_test.cc.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

using nlohmann::json;

const std::string kSource = LONGHAUL_SOURCE_DIR;

/// Plans the sample job on the sample cluster with little effort; further options follow.
RunResult plan_samples(const TemporaryFolder& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"plan",     "--cluster", "cluster.yaml", "--job",
                                        "job.yaml", "--effort",  "0.1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_longhaul(arguments, folder.path());
}

json parsed(const RunResult& run) {
  EXPECT_EQ(run.status, 0) << run.err;
  json document = json::parse(run.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << run.out;
  return document;
}

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;  // sorted: json keeps its keys in a map
}

// ---------------------------------------------------------------------------------------------
// trace show

TEST(CliTrace, every_shipped_trace_is_shown_as_two_matrices) {
  int traces = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource + "/traces")) {
    if (entry.path().extension() != ".csv") continue;
    SCOPED_TRACE(entry.path());
    ++traces;
    const RunResult run = run_longhaul({"trace", "show", entry.path().string()}, "/");
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    const std::size_t latency = run.out.find("\none-way latency, ms");
    const std::size_t rate = run.out.find("\nrate, Gbit/s");
    ASSERT_TRUE(latency != std::string::npos && rate != std::string::npos) << run.out;
    // A title, a line of places and a line for each place.
    const auto lines = [&](std::size_t begin, std::size_t end) {
      return std::count(run.out.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                        run.out.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    };
    EXPECT_EQ(lines(latency, rate), lines(rate, run.out.size())) << run.out;
    EXPECT_GE(lines(rate, run.out.size()), 2 + 2) << run.out;
  }
  EXPECT_GE(traces, 6);
}

TEST(CliTrace, a_round_trip_is_shown_as_half_of_it) {
  const RunResult run =
      run_longhaul({"trace", "show", kSource + "/traces/aws-ten-regions.csv"}, "/");
  // Oregon to Tokyo: 96 ms round trip, 0.523 Gbit/s.
  EXPECT_TRUE(run.out.contains(" 48 ")) << run.out;
  EXPECT_TRUE(run.out.contains(" 0.523 ")) << run.out;
}

// ---------------------------------------------------------------------------------------------
// plan and simulate

TEST(Cli, simulate_gives_the_step_that_plan_announced) {
  const TemporaryFolder folder;
  folder.write_samples();
  const json plan = parsed(plan_samples(folder, {"--json", "-o", "made.yaml"}));
  const json step = parsed(run_longhaul({"simulate", "made.yaml", "--json"}, folder.path()));
  EXPECT_EQ(plan["step_s"], step["step_s"]);
  EXPECT_EQ(plan["tokens_per_s"], step["tokens_per_s"]);
  EXPECT_EQ(plan["usd_per_step"], step["usd_per_step"]);
  // 24 sequences of 128 tokens.
  EXPECT_DOUBLE_EQ(step["tokens_per_s"], 24 * 128 / step["step_s"].get<double>());
  // The plan file keeps the same number for people.
  const std::string text = read_text(folder / "made.yaml");
  EXPECT_TRUE(text.contains(fmt::format("step: {} s\n", plan["step_s"].get<double>()))) << text;
}

TEST(Cli, the_json_of_plan_holds_the_documented_keys) {
  const TemporaryFolder folder;
  folder.write_samples();
  const json plan = parsed(plan_samples(folder, {"--json", "--baselines"}));
  EXPECT_EQ(keys_of(plan), (std::vector<std::string>{
                               "baselines", "binding", "closed_form_s", "devices", "evaluations",
                               "gap", "in_flight", "layers", "lower_bound_s", "micro_batch",
                               "micro_batches", "pipelines", "plan_file", "policy", "stages",
                               "step_s", "tokens_per_s", "usd_per_step", "version"}));
  EXPECT_EQ(plan["version"], 1);
  EXPECT_EQ(plan["policy"], "search");
  EXPECT_EQ(plan["plan_file"], "plan.yaml");
  EXPECT_EQ(plan["layers"].size(), plan["stages"]);
  EXPECT_EQ(plan["in_flight"].size(), plan["stages"]);
  EXPECT_EQ(plan["devices"].size(), plan["pipelines"]);
  EXPECT_EQ(plan["micro_batches"].size(), plan["pipelines"]);
  EXPECT_LE(plan["lower_bound_s"], plan["step_s"]);
  EXPECT_DOUBLE_EQ(plan["gap"],
                   plan["step_s"].get<double>() / plan["lower_bound_s"].get<double>() - 1);
  // The seven that plan, and the median and the best of random ones.
  ASSERT_EQ(plan["baselines"].size(), 9u);
  for (const json& baseline : plan["baselines"]) {
    EXPECT_EQ(keys_of(baseline), (std::vector<std::string>{"policy", "ratio", "step_s"}));
    EXPECT_LE(baseline["ratio"], 1.0) << baseline;
  }
}

TEST(Cli, the_json_of_simulate_holds_the_documented_keys) {
  const TemporaryFolder folder;
  folder.write_samples();
  const json step = parsed(run_longhaul({"simulate", "plan.yaml", "--json"}, folder.path()));
  EXPECT_EQ(keys_of(step),
            (std::vector<std::string>{"codecs", "links", "recompute", "reductions", "step_s",
                                      "tasklets", "tokens_per_s", "usd_per_step", "version"}));
  EXPECT_EQ(step["recompute"], false);
  EXPECT_TRUE(step["codecs"].empty() && step["reductions"].empty());
  EXPECT_EQ(step["version"], 1);
  ASSERT_EQ(step["tasklets"].size(), 6u);  // two pipelines of three stages
  for (const json& tasklet : step["tasklets"]) {
    EXPECT_EQ(keys_of(tasklet),
              (std::vector<std::string>{"bubble_s", "commit_s", "compute_s", "device", "pipeline",
                                        "reduce_s", "stage", "transfer_s", "update_s"}));
    double sum = 0;
    for (const char* part :
         {"compute_s", "transfer_s", "bubble_s", "reduce_s", "commit_s", "update_s"}) {
      sum += tasklet[part].get<double>();
    }
    EXPECT_NEAR(sum, step["step_s"].get<double>(), 1e-9);
  }
  EXPECT_EQ(step["tasklets"][5]["device"], "big/2");
  ASSERT_FALSE(step["links"].empty());
  for (const json& link : step["links"]) {
    EXPECT_EQ(keys_of(link), (std::vector<std::string>{"bytes_raw", "bytes_wire", "from", "to"}));
  }
}

TEST(Cli, simulate_does_and_shows_what_the_plan_chooses) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("job.yaml", edited(edited(kJobText, "recompute: false", "recompute: auto"),
                                  "{activations: bf16}", "{activations: auto, floor: int8}"));
  folder.write("chosen.yaml", std::string(kPlanText) +
                                  "recompute: true\n"
                                  "codecs: [{between: [delft, riga], activations: none}]\n"
                                  "reductions: [{stage: 1, shape: ring}]\n");
  const RunResult shown = run_longhaul({"simulate", "chosen.yaml"}, folder.path());
  EXPECT_TRUE(
      shown.out.contains("3 stages x 2 pipelines\n"
                         "  recompute                  yes\n"
                         "  activations delft - riga  none\n"
                         "  gradients of stage 1      ring\n"))
      << shown.out;
  const json chosen = parsed(run_longhaul({"simulate", "chosen.yaml", "--json"}, folder.path()));
  EXPECT_EQ(chosen["recompute"], true);
  EXPECT_EQ(chosen["codecs"], json::parse(R"([{"between": ["delft", "riga"],
                                               "activations": "none",
                                               "activation_gradients": "none"}])"));
  ASSERT_EQ(chosen["reductions"].size(), 3u);
  EXPECT_EQ(chosen["reductions"][1],
            json::parse(R"({"stage": 1, "shape": "ring", "shares": [], "codec": "none"})"));
  // Recomputing takes a third of the forwards and backwards more.
  const json plain = parsed(run_longhaul({"simulate", "plan.yaml", "--json"}, folder.path()));
  EXPECT_GT(chosen["tasklets"][0]["compute_s"].get<double>(),
            1.3 * plain["tasklets"][0]["compute_s"].get<double>());
}

TEST(Cli, histories_and_the_first_epoch_are_shown) {
  // Two pipelines from delft to riga; 48 samples are two rows, of which each pipeline has 12 slots.
  // A sample's 128 x 256 numbers take 64 KiB, so 1 MiB has 16 of the 24.
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("job.yaml", edited(kJobText, "{activations: bf16}",
                                  "{activations: aq-int4, history: {memory: 1 MiB, disk: 0 GiB, "
                                  "first: int8, samples: 48}}"));
  folder.write("plan.yaml",
               edited(edited(edited(edited(kPlanText, "[3, 3, 2]", "[4, 4]"),
                                    "[delft-1/0, delft-1/1, delft-2/0]", "[delft-1/0, big/0]"),
                             "[big/0, big/1, big/2]", "[delft-1/1, big/1]"),
                      "[3, 2, 1]", "[2, 1]"));
  const RunResult shown = run_longhaul({"simulate", "plan.yaml"}, folder.path());
  EXPECT_TRUE(
      shown.out.contains("its samples have no history yet and travel as int8\n\n"
                         "histories at each end of a boundary, 64 KiB a sample\n"
                         "  boundary      count  samples  kept  memory  disk\n"
                         "  delft - riga      2       24    16   1 MiB   0 B\n"))
      << shown.out << shown.err;
  const json step = parsed(run_longhaul({"simulate", "plan.yaml", "--json"}, folder.path()));
  EXPECT_GT(step["first_epoch_step_s"].get<double>(), step["step_s"].get<double>());
  EXPECT_EQ(step["histories"], json::parse(R"([{"between": ["delft", "riga"], "boundaries": 2,
      "samples": 24, "kept": 16, "bytes_memory": 1048576.0, "bytes_disk": 0.0}])"));
  const RunResult refused = run_longhaul(
      {"simulate", "plan.yaml", "--set", "job compression.activations int3"}, folder.path());
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(refused.err.contains("3 bits without a history lose 17 %")) << refused.err;
}

struct Outputs {
  std::string plan_out;
  std::string plan_file;
  std::string simulate_out;
  std::string timeline;
  bool operator==(const Outputs&) const = default;
};

Outputs outputs_of(const std::vector<std::string>& options) {
  const TemporaryFolder folder;
  folder.write_samples();
  const RunResult plan = plan_samples(folder, options);
  EXPECT_EQ(plan.status, 0) << plan.err;
  const RunResult step =
      run_longhaul({"simulate", "plan.yaml", "--timeline", "timeline.json"}, folder.path());
  EXPECT_EQ(step.status, 0) << step.err;
  return {plan.out, read_text(folder / "plan.yaml"), step.out, read_text(folder / "timeline.json")};
}

TEST(Cli, neither_a_repetition_nor_the_thread_count_changes_a_byte) {
  const Outputs first = outputs_of({"--threads", "1", "--baselines"});
  EXPECT_TRUE(first.plan_out.contains("random, best of"));
  EXPECT_FALSE(json::parse(first.timeline)["traceEvents"].empty());
  for (const std::string threads : {"1", "2", "4"}) {
    const Outputs again = outputs_of({"--threads", threads, "--baselines"});
    EXPECT_EQ(again.plan_out, first.plan_out) << threads;
    EXPECT_EQ(again.plan_file, first.plan_file) << threads;
    EXPECT_TRUE(again == first) << threads;
  }
  const Outputs other = outputs_of({"--threads", "1", "--baselines", "--seed", "2"});
  EXPECT_TRUE(other.plan_file.contains("seed: 2"));
  EXPECT_NE(other.plan_file, first.plan_file);
}

TEST(Cli, a_plan_moves_with_its_cluster_and_job) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a/inputs");
  std::filesystem::create_directories(folder / "a/plans, all");
  for (const auto& [name, text] : {std::pair{"lab.yaml", kDeviceText},
                                   {"cluster.yaml", kClusterText},
                                   {"job.yaml", kJobText}}) {
    folder.write(fmt::format("a/inputs/{}", name), text);
  }
  const std::string plan = "a/plans, all/p.yaml";
  EXPECT_EQ(run_longhaul({"plan", "--cluster", "a/inputs/cluster.yaml", "--job",
                          "a/inputs/job.yaml", "--effort", "0.1", "-o", plan},
                         folder.path())
                .status,
            0);
  const RunResult before = run_longhaul({"simulate", plan, "--json"}, folder.path());
  EXPECT_EQ(before.status, 0) << before.err;
  std::filesystem::rename(folder / "a", folder / "b");
  const RunResult after = run_longhaul({"simulate", "p.yaml", "--json"}, folder / "b/plans, all");
  EXPECT_EQ(after.status, 0) << after.err;
  EXPECT_EQ(after.out, before.out);
  EXPECT_EQ(after.err, "");  // no input has changed
}

TEST(Cli, a_trace_and_a_list_of_devices_are_enough) {
  const TemporaryFolder folder;
  folder.write("job.yaml", kJobText);
  const RunResult plan = run_longhaul({"plan", "--trace", kSource + "/traces/aws-ten-regions.csv",
                                       "--devices", "oregon:2xv100,tokyo:2xa100", "--job",
                                       "job.yaml", "--effort", "0.1", "-o", "made.yaml", "--json"},
                                      folder.path());
  const json planned = parsed(plan);
  EXPECT_TRUE(plan.err.contains("made.cluster.yaml")) << plan.err;
  // What the files did not say is said on stderr.
  EXPECT_TRUE(plan.err.contains("assumed: ")) << plan.err;
  const std::string cluster = read_text(folder / "made.cluster.yaml");
  EXPECT_TRUE(cluster.contains("2xv100")) << cluster;
  const json step = parsed(run_longhaul({"simulate", "made.yaml", "--json"}, folder.path()));
  EXPECT_EQ(planned["step_s"], step["step_s"]);
}

TEST(Cli, every_policy_plans) {
  for (const std::string policy : {"search", "random", "rank-order", "even", "megatron", "varuna",
                                   "metis", "sailor", "dtfm"}) {
    SCOPED_TRACE(policy);
    const TemporaryFolder folder;
    folder.write_samples();
    const json plan = parsed(plan_samples(folder, {"--policy", policy, "--json"}));
    EXPECT_EQ(plan["policy"], policy);
    EXPECT_EQ(plan.contains("lower_bound_s"), policy == "search");
    const json step = parsed(run_longhaul({"simulate", "plan.yaml", "--json"}, folder.path()));
    EXPECT_EQ(plan["step_s"], step["step_s"]);
  }
}

TEST(Cli, a_grid_that_is_fixed_is_kept_by_every_policy) {
  for (const std::string policy : {"search", "random", "rank-order", "even", "megatron", "varuna",
                                   "metis", "sailor", "dtfm"}) {
    SCOPED_TRACE(policy);
    const TemporaryFolder folder;
    folder.write_samples();
    const json plan =
        parsed(plan_samples(folder, {"--policy", policy, "--stages", "2", "--pipelines", "3",
                                     "--micro-batch", "4", "--json"}));
    EXPECT_EQ(plan["stages"], 2);
    EXPECT_EQ(plan["pipelines"], 3);
    EXPECT_EQ(plan["micro_batch"], 4);
    EXPECT_EQ(plan["micro_batches"], (std::vector<int>{2, 2, 2}));  // 24 / 4 over 3
  }
}

TEST(Cli, progress_goes_to_stderr_alone) {
  const TemporaryFolder folder;
  folder.write_samples();
  const RunResult run = plan_samples(folder, {"--baselines"});
  EXPECT_EQ(run.status, 0);
  // The fifth is left out where the fourth brought nothing.
  EXPECT_TRUE(run.err.contains("round 4 of 5")) << run.err;
  EXPECT_TRUE(run.err.contains("baseline: dtfm")) << run.err;
  for (const char* progress :
       {"round ", "searching", "baseline: ", "evaluations", "assumed", "\r", "\x1b"}) {
    EXPECT_FALSE(run.out.contains(progress)) << progress << "\n" << run.out;
  }
  // No terminal, no control characters.
  EXPECT_FALSE(run.err.contains("\x1b"));
}

TEST(Cli, a_time_limit_ends_the_search_after_a_round) {
  const TemporaryFolder folder;
  folder.write_samples();
  const RunResult run = plan_samples(folder, {"--time-limit", "0s", "--json"});
  const json plan = parsed(run);
  EXPECT_TRUE(run.err.contains("round 1 of 5")) << run.err;
  EXPECT_FALSE(run.err.contains("round 2 of 5")) << run.err;
  const json step = parsed(run_longhaul({"simulate", "plan.yaml", "--json"}, folder.path()));
  EXPECT_EQ(plan["step_s"], step["step_s"]);
}

TEST(Cli, an_interrupt_ends_the_search_with_a_plan) {
  // A first round of 96 million evaluations, which take an hour.
  const TemporaryFolder folder;
  Process process({"plan", "--cluster", kSource + "/configs/clusters/ten-cities.yaml", "--job",
                   kSource + "/configs/jobs/gpt3-xl.yaml", "--effort", "1000", "--json"},
                  folder.path());
  ASSERT_TRUE(process.wait_for_error_text("searching"));
  process.send(SIGINT);
  const RunResult run = process.wait();
  EXPECT_EQ(run.status, 128 + SIGINT) << run.err;
  EXPECT_FALSE(run.err.contains("round 1 of 5")) << run.err;
  const json plan = json::parse(run.out, nullptr, false);
  ASSERT_FALSE(plan.is_discarded()) << run.out;
  const json step = parsed(run_longhaul({"simulate", "plan.yaml", "--json"}, folder.path()));
  EXPECT_EQ(plan["step_s"], step["step_s"]);
}

TEST(Cli, an_input_that_changed_since_the_plan_was_written_is_noted) {
  for (const std::string name : {"job.yaml", "cluster.yaml", "lab.yaml"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    folder.write_samples();
    EXPECT_EQ(plan_samples(folder).status, 0);
    const RunResult before = run_longhaul({"simulate", "plan.yaml"}, folder.path());
    EXPECT_EQ(before.err, "");
    folder.write(name, read_text(folder / name) + "# a comment\n");
    const RunResult after = run_longhaul({"simulate", "plan.yaml"}, folder.path());
    EXPECT_EQ(after.status, 0);
    EXPECT_EQ(after.out, before.out);
    // A device file is an input of the cluster.
    const std::string changed = name == "lab.yaml" ? "cluster.yaml" : name;
    EXPECT_TRUE(after.err.starts_with("note: ")) << after.err;
    EXPECT_TRUE(after.err.contains(changed + " has changed")) << after.err;
    EXPECT_EQ(std::count(after.err.begin(), after.err.end(), '\n'), 1) << after.err;
  }
}

TEST(Cli, another_cluster_or_job_can_stand_in_for_the_one_of_the_plan) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("slow.yaml", edited(kClusterText, "500 Mbit/s", "5 Mbit/s"));
  folder.write("long.yaml", edited(kJobText, "context: 128", "context: 256"));
  const auto step_s = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"simulate", "plan.yaml", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return parsed(run_longhaul(arguments, folder.path()))["step_s"].get<double>();
  };
  EXPECT_GT(step_s({"--cluster", "slow.yaml"}), step_s({}));
  EXPECT_GT(step_s({"--job", "long.yaml"}), step_s({}));
}

// ---------------------------------------------------------------------------------------------
// The honest answer is no: exit status 3.

void expect_infeasible(const RunResult& run) {
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.contains("error: ")) << run.err;
  EXPECT_TRUE(run.err.contains("\n  hint: ")) << run.err;
}

/// About 94 M parameters a layer: 1.5 GB of states, so that a card of 8 GiB holds four layers.
std::string large_job() {
  return edited(edited(kJobText, "width: 256", "width: 2560"), "ffn_width: 512",
                "ffn_width: 10240");
}

TEST(Cli, a_model_that_fits_no_grid_is_refused_with_a_hint) {
  const TemporaryFolder folder;
  folder.write_samples();
  // 80 layers need 120 GB; the six cards have 48 GiB.
  folder.write("job.yaml", edited(large_job(), "layers: 8", "layers: 80"));
  std::filesystem::remove(folder / "plan.yaml");
  for (const std::string policy : {"search", "random", "rank-order", "even", "megatron", "varuna",
                                   "metis", "sailor", "dtfm"}) {
    SCOPED_TRACE(policy);
    expect_infeasible(plan_samples(folder, {"--policy", policy}));
  }
  const RunResult search = plan_samples(folder);
  EXPECT_TRUE(search.err.contains("the job fits the memory of no grid")) << search.err;
  EXPECT_TRUE(search.err.contains("recompute: true")) << search.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "plan.yaml"));
}

TEST(Cli, limits_that_admit_no_grid_are_refused_with_a_hint) {
  const TemporaryFolder folder;
  folder.write_samples();
  // Seven devices, and more stages than layers.
  expect_infeasible(plan_samples(folder, {"--stages", "7", "--pipelines", "1"}));
  expect_infeasible(plan_samples(folder, {"--stages", "9"}));
  expect_infeasible(plan_samples(folder, {"--micro-batch", "7"}));  // does not divide 24
  expect_infeasible(plan_samples(folder, {"--policy", "rank-order", "--stages", "7"}));
}

TEST(Cli, a_precision_that_no_device_has_is_refused_with_a_hint) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("job.yaml", edited(kJobText, "precision: fp16", "precision: bf16"));
  const RunResult run = plan_samples(folder);
  expect_infeasible(run);
  EXPECT_TRUE(run.err.contains("bf16")) << run.err;
}

TEST(Cli, a_plan_edited_beyond_the_memory_is_refused_with_its_needs) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("job.yaml", large_job());
  EXPECT_EQ(run_longhaul({"simulate", "plan.yaml"}, folder.path()).status, 0);
  folder.write("plan.yaml", edited(kPlanText, "[3, 3, 2]", "[1, 6, 1]"));
  const RunResult run = run_longhaul({"simulate", "plan.yaml"}, folder.path());
  expect_infeasible(run);
  EXPECT_TRUE(run.err.contains("stage 1 needs ")) << run.err;
  EXPECT_TRUE(run.err.contains("8 GiB")) << run.err;
}

}  // namespace
}  // namespace longhaul
