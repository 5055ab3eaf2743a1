// What people get wrong in the files they write: each row of the tables is a good file with one
// edit, and says where the edit is found and in which words. The rows die at different checks of
// the code, which a test of its own holds.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "netsim/cluster_file.h"
#include "netsim/trace.h"
#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

enum class Kind { kJob, kDevice, kCluster, kTrace, kPlan };

struct KindOfFile {
  std::string_view file;
  std::string_view good;
  std::vector<std::string> command;  // of the binary, that reads the file
};

KindOfFile kind_of_file(Kind kind) {
  const std::vector<std::string> plan = {"plan", "--cluster", "cluster.yaml", "--job", "job.yaml"};
  switch (kind) {
    case Kind::kJob:
      return {"job.yaml", kJobText, plan};
    case Kind::kDevice:
      return {"lab.yaml", kDeviceText, plan};
    case Kind::kCluster:
      return {"cluster.yaml", kClusterText, plan};
    case Kind::kTrace:
      return {"links.csv", kTraceText, {"trace", "show", "links.csv"}};
    case Kind::kPlan:
      return {"plan.yaml", kPlanText, {"simulate", "plan.yaml"}};
  }
  return {};
}

struct BadInput {
  Kind kind;
  std::string old;
  std::string replacement;
  std::string place;  // line:column
  std::string says;   // part of "message | hint"
};

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Syntax and what every YAML file shares; jobs stand for all.
std::vector<BadInput> bad_yaml() {
  const auto row = [](std::string old, std::string replacement, std::string place,
                      std::string says) {
    return BadInput{Kind::kJob, std::move(old), std::move(replacement), std::move(place),
                    std::move(says)};
  };
  return {
      row("tiny", "t\xffny", "2:8", "not UTF-8 text"),
      row("tiny", "ti\x01ny", "2:9", "control character 0x01"),
      // The 4,096 brackets that may be open end in column 4,102.
      row("tiny", repeated("[", 4097), "2:4103", "more than 4096 brackets are open here"),
      // 63 lists inside the file's map are 64 levels; the 64th list begins in column 70.
      row("tiny", repeated("[", 64) + repeated("]", 64), "2:70", "more than 64 levels of nesting"),
      row(std::string(kJobText), "# nothing\n", "1:1", "the file is empty"),
      row("{activations: bf16}\n", "{activations: bf16}\n---\n", "9:1", "a second document begins"),
      row("schema: longhaul/job/1", "- schema: longhaul/job/1", "2:1",
          "this does not belong to the value that ends before it"),
      row("tiny", "\"tiny", "2:7", "this quote is not closed"),
      row("tiny", R"("ti\0ny")", "2:7", "a text with a NUL character"),
      row("tiny", "&x tiny", "2:7", "anchors (`&name`) are not supported"),
      row("tiny", "*x", "2:7", "aliases (`*name`) are not supported"),
      row("tiny", "!x tiny", "2:7", "tags (`!name`) are not supported"),
      row("bf16}", "bf16", "8:14", "this `{` is not closed"),
      row("recompute:", "[a]: 1\nrecompute:", "7:1", "a key of a map must be a word"),
      row("tiny", "ti: ny", "2:9", "not valid YAML: illegal map value"),
      row("precision: fp16", "precision: fp16\nprecision: fp32", "7:1",
          "repeated key `precision`: the first one is at job.yaml:6:1"),
      row("recompute", "recompote", "7:1",
          "unknown key `recompote` | did you mean `recompute`? known keys: schema, name"),
      row("schema: longhaul/job/1\n", "", "1:1", "missing key `schema`"),
      row("longhaul/job/1", "job", "1:9", "unknown schema `job`"),
      row("longhaul/job/1", "longhaul/job/2", "1:9", "has version `2` of longhaul/job"),
      row("longhaul/job/1", "longhaul/plan/1", "1:9", "this is a `longhaul/plan/1` file"),
      row("name: tiny\n", "", "1:1", "missing key `name`"),
      row("{global: 24, micro_batch: auto}", "24", "5:8", "`batch` must be a map"),
      row("tiny", "[tiny]", "2:7", "`name` must be a text: found a list"),
      row("layers: 8", "layers: 4097", "4:27", "`model.layers` must be a whole number from 1 to"),
      row("context: 128", "context: \"128\"", "4:90", "found the text `128` | remove the quotes"),
      row("context: 128", "context: 1.28e2", "4:90", "`1.28e2` | write 128"),
      row("context: 128", "context: 99999999999999999999", "4:90", "does not fit into 64 bits"),
      row("recompute: false", "recompute: non", "7:12",
          "`recompute` must be one of no, yes, auto, false, true: found `non` | did you mean "
          "`no`?"),
      row("precision: fp16", "precision: fp15", "6:12",
          "`precision` must be one of fp32, fp16, bf16: found `fp15` | did you mean `fp16`?"),
  };
}

std::vector<BadInput> bad_jobs() {
  const auto row = [](std::string old, std::string replacement, std::string place,
                      std::string says) {
    return BadInput{Kind::kJob, std::move(old), std::move(replacement), std::move(place),
                    std::move(says)};
  };
  // A training section in lines 8 and 9, with one mistake.
  const auto training = [&](const std::string& what, std::string column, std::string says) {
    return row("recompute: false", "recompute: false\ntraining:\n  {" + what + "}",
               "9:" + std::move(column), std::move(says));
  };
  return {
      row("kv_heads: 2", "kv_heads: 3", "4:62",
          "8 query heads cannot share 3 key-value heads evenly"),
      row("kv_heads: 2", "kv_heads: 2, head_width: 31", "4:77",
          "rotary positions turn pairs: a head cannot be 31 wide | make it even"),
      row("llama", "gpt2", "4:61", "gpt2 has one key-value head for each query head"),
      row("width: 256", "width: 250", "4:49", "width 250 is not a multiple of 8 heads"),
      row("ffn_width: 512, ", "", "4:3", "a llama model needs `ffn_width`"),
      row("auto", "5", "5:34", "the global batch of 24 sequences is not a multiple of 5"),
      row("{activations: bf16}", "{activations: bf16, floor: none}", "8:41",
          "a floor is for codecs that the plan chooses | write `activations: auto`"),
      row("{activations: bf16}", "{activations: auto, floor: fine}", "8:41",
          "`compression.floor` is from `2 bits` to `32 bits`, `lossless` or the name of a codec: "
          "found `fine` | write for example `floor: 4 bits`"),
      row("recompute: false", "dropout: 0.1", "7:10",
          "dropout is always 0 here | leave `dropout` out"),
      training("data: d", "3", "missing key `steps` in `training`"),
      training("data: \"\", steps: 9", "10", "the data is a folder, and this names none"),
      training("data: d, steps: 9, learning_rate: {max: -1}", "44",
               "`training.learning_rate.max` must be a number from 0 to 1000"),
      training("data: d, steps: 9, learning_rate: {max: 0}", "44",
               "a learning rate of 0 trains nothing"),
      training("data: d, steps: 9, learning_rate: {max: 1e-4, min: 1e-3}", "55",
               "a learning rate cannot fall from 0.0001 to 0.001 | give `min` <= `max`"),
      training("data: d, steps: 9, learning_rate: {warm_up: 9}", "48",
               "a warm-up of 9 steps is not shorter than the run of 9"),
      training("data: d, steps: 9, optimiser: {beta2: 1}", "42",
               "an average with a beta of 1 never changes | give a value below 1"),
      training("data: d, steps: 9, optimiser: {clip: -1}", "41",
               "`training.optimiser.clip` must be a number of at least 0"),
      training("data: d, steps: 9, optimiser: {epsilon: 0}", "44",
               "an epsilon of 0 in fp32 divides by zero where a gradient is always 0"),
  };
}

std::vector<BadInput> bad_devices() {
  const auto row = [](std::string old, std::string replacement, std::string place,
                      std::string says) {
    return BadInput{Kind::kDevice, std::move(old), std::move(replacement), std::move(place),
                    std::move(says)};
  };
  return {
      row("reserved: 1 GiB", "reserved: 8 GiB", "5:11", "the runtime leaves no memory for a plan"),
      row("\nefficiency: 0.5", "\nefficiency: 1.01", "7:13",
          "`efficiency` must be a number from 0.01 to 1"),
      row("50 us", "50", "10:11", "`overhead`: `50` has no unit"),
      row("50 us", "[50 us]", "10:11", "`overhead` must be a duration with its unit"),
      row("400 GB/s", "400 Gbps", "8:19",
          "unknown unit `Gbps` for a rate | write Gbit/s for bits or GB/s for bytes"),
      row("400 GB/s", "0 GB/s", "8:19", "`memory_bandwidth` must be more than zero"),
      row("50 us", "-50 us", "10:11", "`-50 us` is negative: a duration cannot be"),
      row("10 TFLOP/s", "1e308 TFLOP/s", "6:14", "too large or too small to be computed with"),
      row("1 USD/h", "dear", "11:8", "`dear` is not a price per hour"),
  };
}

std::vector<BadInput> bad_clusters() {
  const auto row = [](std::string old, std::string replacement, std::string place,
                      std::string says) {
    return BadInput{Kind::kCluster, std::move(old), std::move(replacement), std::move(place),
                    std::move(says)};
  };
  const std::string links =
      "  links:\n    - {between: [delft, riga], latency: 20 ms, bandwidth: 500 Mbit/s}\n";
  std::string more_sites;  // beside two others
  for (int i = 0; i < 1023; ++i) {
    more_sites += fmt::format("  - {{name: s{}, nodes: [{{devices: lab}}]}}\n", i);
  }
  const std::string nodes =
      "      - {name: big, devices: 3xlab, inside: {bandwidth: 8 GB/s, latency: 10 us}}\n";
  return {
      row("  - name: riga", "  - {name: delft, nodes: [{devices: lab}]}\n  - name: riga", "13:12",
          "site `delft` appears twice"),
      row("sites:\n", "sites:\n  - {name: a/b, nodes: [{name: n, devices: lab}]}\n", "9:12",
          "a site's name may not contain `/`"),
      row("name: big", "name: b/g", "15:9", "a node's name may not contain `/`"),
      row("name: big", "name: delft-2", "15:9", "node `delft-2` appears twice"),
      row("{devices: lab}", "{count: 2, address: lab.org, devices: lab}", "12:29",
          "2 nodes cannot share one address"),
      row("2xlab", "0xlab", "11:19", "`0xlab` is not a number of devices"),
      row("2xlab", "2xlob", "11:19", "unknown device kind `lob` | shipped kinds: a100, h100"),
      row("{devices: lab}", "{count: 98, devices: 1024xlab}", "9:3", "more than 100000 devices"),
      row("sites:\n", "sites:\n" + more_sites, "9:3", "more than 1024 sites"),
      row("4 MiB", "0 MiB", "5:17", "a window of no bytes lets nothing through"),
      row("\n" + nodes, " lab\n", "14:12", "`sites[1].nodes` must be a list"),
      row("\n" + nodes, " []\n", "14:12", "`sites[1].nodes` must have at least one item"),
      row(links, "", "5:3", "the network has neither a `trace` nor `links`"),
      row("[delft, riga]", "[delft, riga, delft]", "7:17", "`between` takes two sites, not 3"),
      row("[delft, riga]", "[delft, rega]", "7:25",
          "no site is named `rega` | did you mean `riga`?"),
      row("between: [delft, riga], ", "", "7:7", "a link needs `between: [a, b]`"),
      row(", latency: 20 ms, bandwidth: 500 Mbit/s", "", "7:7",
          "a link needs `latency` or `bandwidth`"),
      row("latency: 20 ms, ", "", "5:3", "nothing says how far delft and riga are apart"),
  };
}

std::vector<BadInput> bad_traces() {
  const auto row = [](std::string old, std::string replacement, std::string place,
                      std::string says) {
    return BadInput{Kind::kTrace, std::move(old), std::move(replacement), std::move(place),
                    std::move(says)};
  };
  const std::string body(kTraceText.substr(kTraceText.find("delft")));
  std::string many;  // places 0 to 1,023, two a row, and in line 515 one more
  for (int i = 0; i < 1024; i += 2) many += fmt::format("{},{},1,rtt,1,1,,\n", i, i + 1);
  many += "1024,0,1,rtt,1,1,,\n";
  return {
      row(std::string(kTraceText), "# Two labs.\n", "1:1", "the trace is empty"),
      row("Two labs", "Two\x1blabs", "1:6", "control character 0x1b"),
      row(body, "", "2:1", "the trace has a header but no measurement"),
      row("streams", "stream", "2:37", "unknown column `stream` | did you mean `streams`?"),
      row("streams", "basis", "2:37", "column `basis` appears twice"),
      row("from,to", "to", "2:1", "column `from` is missing"),
      row("latency_ms,basis,gbit_per_s", "basis", "2:1", "neither `latency_ms` nor `gbit_per_s`"),
      row("basis,", "", "2:1", "`latency_ms` needs a column `basis`"),
      row("iperf3\"", "iperf3", "3:34", "a quoted field is not closed"),
      row("iperf3\"", "iperf3\" 2", "3:48", "a quoted field must end at a comma"),
      row("\"ping, iperf3\"", "ping, iperf3", "3:1", "9 fields, but the header has 8 columns"),
      row("delft,riga", ",riga", "3:1", "the name of a place is empty"),
      row(body, many, "515:1", "more than 1024 places"),
      row("40,", "40 ms,", "3:12", "`40 ms` is not a number for `latency_ms`"),
      row("0.5,1,measured", "0,1,measured", "3:19", "gbit_per_s 0 is outside 1e-06 to 1000000"),
      row("measured", "meassured", "3:25", "`meassured` is not a value of `origin`"),
      row("rtt", "", "3:12", "this latency has no `basis`"),
      row("40,rtt,0.5", ",,", "3:1", "this row has neither a latency nor a rate"),
      row("0.5,1,measured", "0.5,1.5,measured", "3:23", "`streams` must be a whole number"),
  };
}

/// A greedy schedule for the sample plan: the orders of stages 0 and 2 are one micro-batch after
/// another, stage 1's is given.
std::string greedy(std::string_view order, int cap = 6) {
  constexpr std::string_view plain = "F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4 F5 B5 W5";
  return fmt::format(
      "schedule:\n"
      "  family: greedy\n"
      "  in_flight: [6, {}, 6]\n"
      "  orders:\n"
      "    - {}\n"
      "    - {}\n"
      "    - {}",
      cap, plain, order, plain);
}

std::vector<BadInput> bad_plans() {
  const auto row = [](std::string old, std::string replacement, std::string place,
                      std::string says) {
    return BadInput{Kind::kPlan, std::move(old), std::move(replacement), std::move(place),
                    std::move(says)};
  };
  const auto order_row = [&row](std::string replacement, std::string place, std::string says) {
    return row("schedule: {family: 1f1b, in_flight: [3, 2, 1]}", std::move(replacement),
               std::move(place), std::move(says));
  };
  // One line more: line 14.
  const auto choice = [&row](const std::string& what, std::string column, std::string says) {
    return row("coordinator: delft", "coordinator: delft\n" + what, "14:" + std::move(column),
               std::move(says));
  };
  return {
      choice("recompute: true", "12",
             "the plan says `recompute: true`, the job `recompute: no` | leave it out of the plan"),
      choice("recompute: perhaps", "12", "`recompute` must be true or false"),
      choice("codecs: [{between: [delft, rega], activations: bf16}]", "28",
             "cluster `two-labs` has no site `rega` | did you mean `riga`?"),
      choice("codecs: [{between: [riga, riga], activations: bf16}]", "20",
             "codecs act between two sites"),
      choice("codecs: [{between: [delft, riga], activations: bf16}, {between: [riga, delft], "
             "activations: bf16}]",
             "65", "delft and riga have a codec already"),
      choice("codecs: [{between: [delft, riga], activations: none}]", "48",
             "the plan's codec is none, the job says `activations: bf16` | write `activations: "
             "auto`"),
      choice("reductions: [{shape: ring}]", "14",
             "a reduction is of a stage or of the tied embedding | write `stage: 0`"),
      choice("reductions: [{tied: true}]", "21", "no embedding is tied over two stages here"),
      choice("reductions: [{stage: 1}, {stage: 1}]", "26", "stage 1 has a reduction already"),
      choice("reductions: [{stage: 1, shape: star}]", "32", "one of sharded, ring, hierarchical"),
      choice("reductions: [{stage: 1, shape: ring, shares: [0.5, 0.5]}]", "46",
             "a ring exchange has equal parts | leave `shares` out"),
      choice("reductions: [{stage: 1, shares: [1]}]", "33", "1 shares for 2 members"),
      choice("reductions: [{stage: 1, shares: [0.5, 0.6]}]", "33", "the shares add up to 1.1"),
      choice("reductions: [{stage: 1, codec: bf16}]", "32",
             "the plan's codec is bf16, the job says `gradients: none`"),
      order_row(greedy("F0 B0 W0 G1"), "17:7", "`G1` is no pass | write F (forward), B (gradient"),
      order_row(greedy("F0 B0 W0 F2 B1"), "17:7", "pass 4 is `F2`, where `F1` is next"),
      order_row(greedy("B0 F0"), "17:7", "B0 comes before its forward F0"),
      order_row(greedy("F0 F1 W0 B0"), "17:7", "W0 comes before its input gradient B0"),
      order_row(greedy("F0 F1 B0 F2", 2), "17:7",
                "F2 would be micro-batch 3 in flight, but the stage's cap is 2"),
      order_row(greedy("F0 F1 B0 B1 W0 W1"), "17:7",
                "the order has 2 F, 2 B and 2 W, but the largest pipeline runs 6 micro-batches"),
      order_row("schedule: {family: greedy, orders: [F0 B0 W0, F0 B0 W0]}", "12:36",
                "2 orders for 3 stages"),
      // Stage 0 holds back F1 until B0 has come, stage 1 sends B0 after F1.
      order_row(greedy("F0 F1 B0 B1 W0 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4 F5 B5 W5"), "16:5",
                "the schedule dead-locks"),
      row("{file: job.yaml}", "{file: job.yaml, hash: 0123456789abcdeg}", "4:31",
          "`0123456789abcdeg` is not a hash of 16 hexadecimal digits"),
      row("[3, 3, 2]", "[3, 3, 3]", "5:9",
          "the stages hold 9 layers together, but the model has 8"),
      row("delft-1/1, ", "", "7:5", "this pipeline has 2 devices, but `layers` has 3 stages"),
      row("big/0", "big/3", "8:6",
          "cluster `two-labs` has no device `big/3` | did you mean `big/0`?"),
      row("big/0", "big/1", "8:13", "device `big/1` is used twice"),
      row("[6, 6]", "[12]", "11:18", "1 shares for 2 pipelines"),
      row("[6, 6]", "[6, 5]", "11:18",
          "11 micro-batches of 2 make 22 sequences, but the job's global batch is 24"),
      row("[3, 2, 1]", "[3, 2]", "12:37", "2 depths for 3 stages"),
      row("1f1b", "gpipe", "12:38", "gpipe holds all 6 micro-batches at every stage"),
      row("[3, 2, 1]", "[7, 2, 1]", "12:37",
          "stage 0 holds 7 micro-batches in flight, but no pipeline has more than 6"),
      row("[3, 2, 1]", "[2, 3, 1]", "12:37",
          "in-flight depth rises from 2 at stage 0 to 3 at stage 1"),
      row("coordinator: delft", "coordinator: daft", "13:14",
          "cluster `two-labs` has no site `daft` | sites: delft, riga"),
  };
}

std::vector<BadInput> all_rows() {
  std::vector<BadInput> all;
  for (auto table :
       {bad_yaml(), bad_jobs(), bad_devices(), bad_clusters(), bad_traces(), bad_plans()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

template <class T>
std::optional<Error> error_of(Result<T> result) {
  return result ? std::nullopt : std::optional(std::move(result).error());
}

/// The error that the loader of `kind` answers for `text`; the other files are the good ones.
std::optional<Error> refusal(Kind kind, const std::string& text, const TemporaryFolder& folder) {
  const std::string name(kind_of_file(kind).file);
  switch (kind) {
    case Kind::kJob:
      return error_of(parse_job(text, name));
    case Kind::kDevice:
      folder.write(name, text);
      return error_of(load_device_kind(folder / name));
    case Kind::kCluster:
      return error_of(parse_cluster(text, name, folder.path()));
    case Kind::kTrace:
      return error_of(parse_trace(text, name));
    case Kind::kPlan: {
      const Result<Topology> topology = load_cluster(folder / "cluster.yaml");
      const Result<Job> job = load_job(folder / "job.yaml");
      EXPECT_TRUE(topology && job);
      return topology && job ? error_of(parse_plan(text, name, *topology, *job)) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string message_and_hint(const Error& error) {
  return error.hint.empty() ? error.message : error.message + " | " + error.hint;
}

std::string shown(const BadInput& bad) {
  return fmt::format("{}: `{}` for `{}`", kind_of_file(bad.kind).file,
                     bad.replacement.substr(0, 80), bad.old.substr(0, 80));
}

TEST(Malformed, the_good_files_are_accepted) {
  for (const Kind kind : {Kind::kJob, Kind::kDevice, Kind::kCluster, Kind::kTrace, Kind::kPlan}) {
    const TemporaryFolder folder;
    folder.write_samples();
    const auto error = refusal(kind, std::string(kind_of_file(kind).good), folder);
    EXPECT_FALSE(error) << error->text();
  }
}

TEST(Malformed, one_mistake_is_one_error_at_its_place) {
  for (const BadInput& bad : all_rows()) {
    SCOPED_TRACE(shown(bad));
    const TemporaryFolder folder;
    folder.write_samples();
    const std::string text = edited(kind_of_file(bad.kind).good, bad.old, bad.replacement);
    const auto error = refusal(bad.kind, text, folder);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kInvalid);
    EXPECT_EQ(error->count(), 1u) << error->text();
    EXPECT_EQ(fmt::format("{}:{}", error->place.line, error->place.column), bad.place)
        << error->text();
    EXPECT_TRUE(error->place.file.ends_with(kind_of_file(bad.kind).file)) << error->place.file;
    EXPECT_TRUE(message_and_hint(*error).contains(bad.says)) << message_and_hint(*error);
    // The line of the file with a caret under the column.
    EXPECT_TRUE(error->excerpt.empty() || error->excerpt.ends_with("^")) << error->excerpt;
  }
}

TEST(Malformed, the_rows_die_at_different_checks) {
  // Two errors are of the same check when they differ only in what they quote and in numbers.
  std::map<std::string, std::string> row_of;
  for (const BadInput& bad : all_rows()) {
    const TemporaryFolder folder;
    folder.write_samples();
    const std::string text = edited(kind_of_file(bad.kind).good, bad.old, bad.replacement);
    const auto error = refusal(bad.kind, text, folder);
    ASSERT_TRUE(error) << shown(bad);
    std::string check;
    bool quoted = false;
    for (const char c : message_and_hint(*error)) {
      if (c == '`') quoted = !quoted;
      if (!quoted && (c < '0' || c > '9')) check += c;
    }
    const auto [other, fresh] = row_of.emplace(check, shown(bad));
    EXPECT_TRUE(fresh) << shown(bad) << "\nis refused like\n" << other->second << "\n" << check;
  }
  EXPECT_GE(row_of.size(), 45u);
}

TEST(Malformed, the_binary_prints_one_error_and_exits_with_2) {
  for (const BadInput& bad : all_rows()) {
    SCOPED_TRACE(shown(bad));
    const TemporaryFolder folder;
    folder.write_samples();
    const KindOfFile kind = kind_of_file(bad.kind);
    folder.write(kind.file, edited(kind.good, bad.old, bad.replacement));
    const RunResult run = run_longhaul(kind.command, folder.path());
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    const std::string says = bad.says.substr(0, bad.says.find(" | "));
    EXPECT_TRUE(run.err.contains(says)) << run.err;
    EXPECT_TRUE(run.err.contains(fmt::format("{}:{}: ", kind.file, bad.place))) << run.err;
    // A device file is read for a cluster; the line that first needs it is shown.
    const bool is_device = bad.kind == Kind::kDevice;
    EXPECT_TRUE(run.err.starts_with(is_device ? "cluster.yaml:11:19: " : kind.file)) << run.err;
    EXPECT_EQ(run.err.find("error:"), run.err.rfind("error:")) << run.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "plan.yaml.part"));
  }
}

// ---------------------------------------------------------------------------------------------
// Several mistakes, and mistakes across files.

TEST(Malformed, all_errors_of_a_file_are_reported_in_the_order_of_the_file) {
  const std::string text = edited(
      edited(edited(edited(kJobText, "name: tiny", "nam: tiny"), "layers: 8", "layers: many"),
             "context: 128", "context: 0"),
      "recompute: false", "recompute: perhaps");
  const auto error = error_of(parse_job(text, "job.yaml"));
  ASSERT_TRUE(error);
  std::vector<std::string> places = {error->place.text()};
  for (const Error& other : error->others) places.push_back(other.place.text());
  // The missing `name` is reported at the start of its map.
  EXPECT_EQ(places, (std::vector<std::string>{"job.yaml:1:1", "job.yaml:2:1", "job.yaml:4:27",
                                              "job.yaml:4:93", "job.yaml:7:12"}))
      << error->text();

  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("job.yaml", text);
  const RunResult run = run_longhaul(kind_of_file(Kind::kJob).command, folder.path());
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, error->text() + "\n");
}

TEST(Malformed, errors_of_a_cluster_and_of_a_plan_are_reported_together) {
  const TemporaryFolder folder;
  folder.write_samples();
  const auto cluster = error_of(parse_cluster(
      edited(edited(kClusterText, "20 ms", "20"), "3xlab", "3xlob"), "c.yaml", folder.path()));
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->count(), 2u) << cluster->text();
  EXPECT_EQ(cluster->place.text(), "c.yaml:7:41");
  EXPECT_EQ(cluster->others.front().place.text(), "c.yaml:15:30");

  const auto plan = refusal(
      Kind::kPlan, edited(edited(kPlanText, "big/2", "big/3"), "delft-1/0", "delft-3/0"), folder);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->count(), 2u) << plan->text();
  EXPECT_EQ(plan->place.text(), "plan.yaml:7:6");
  EXPECT_EQ(plan->others.front().place.text(), "plan.yaml:8:20");
}

TEST(Malformed, a_plan_needs_devices_with_a_speed_in_the_precision_of_the_job) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("job.yaml", edited(kJobText, "precision: fp16", "precision: bf16"));
  const auto error = refusal(Kind::kPlan, std::string(kPlanText), folder);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->count(), 6u) << error->text();  // one a device
  EXPECT_EQ(error->place.text(), "plan.yaml:7:6");
  EXPECT_EQ(error->message, "device `delft-1/0` is a lab, which has no bf16 speed");
}

TEST(Malformed, a_cluster_answers_for_the_trace_that_it_names) {
  const auto with_network = [](std::string_view network) {
    const std::size_t begin = kClusterText.find("  tcp:");
    return edited(kClusterText, kClusterText.substr(begin, kClusterText.find("sites:") - begin),
                  network);
  };
  const TemporaryFolder folder;
  folder.write_samples();
  EXPECT_FALSE(refusal(Kind::kCluster, with_network("  trace: links.csv\n"), folder));

  folder.write("links.csv", edited(kTraceText, "riga", "rega"));
  const auto place = refusal(Kind::kCluster, with_network("  trace: links.csv\n"), folder);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->count(), 1u) << place->text();
  EXPECT_EQ(place->place.text(), "cluster.yaml:5:10");
  EXPECT_EQ(place->message, "the trace has no place `riga`, the site's name");
  EXPECT_EQ(place->hint, "did you mean `rega`? (`trace_name` maps a site to a place)");

  folder.write("links.csv", edited(kTraceText, "40", "-40"));
  const auto row = refusal(Kind::kCluster, with_network("  trace: links.csv\n"), folder);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->place.text(), folder / "links.csv:3:12");

  const auto missing = refusal(Kind::kCluster, with_network("  trace: none.csv\n"), folder);
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->place.text(), "cluster.yaml:5:10");
  EXPECT_TRUE(missing->message.contains("none.csv: No such file")) << missing->message;

  const auto list = refusal(Kind::kCluster, with_network("  trace: [links.csv]\n"), folder);
  ASSERT_TRUE(list);
  EXPECT_EQ(list->count(), 1u) << list->text();
  EXPECT_EQ(list->message, "`network.trace` must be a text: found a list");
}

TEST(Malformed, all_errors_of_a_device_file_are_reported_once) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("lab.yaml", edited(edited(kDeviceText, "50 us", "50"), "8 GiB", "8"));
  const auto error = refusal(Kind::kCluster, std::string(kClusterText), folder);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->count(), 2u) << error->text();  // three nodes have such cards
  EXPECT_TRUE(error->message.ends_with("lab.yaml:4:9: `memory`: `8` has no unit"));
  EXPECT_TRUE(
      error->others.front().message.ends_with("lab.yaml:10:11: `overhead`: `50` has no unit"));
}

TEST(Malformed, a_device_kind_may_not_be_longer_than_a_file_name) {
  const TemporaryFolder folder;
  folder.write_samples();
  const auto error =
      refusal(Kind::kCluster, edited(kClusterText, "2xlab", std::string(300, 'k')), folder);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->place.text(), "cluster.yaml:11:19");
  EXPECT_TRUE(error->message.starts_with("unknown device kind `kkk")) << error->message;
}

}  // namespace
}  // namespace longhaul
