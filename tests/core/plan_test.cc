#include "core/plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/config_cursor.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;

constexpr auto kGpipe = ScheduleFamily::kGpipe;
constexpr auto kGreedy = ScheduleFamily::kGreedy;
constexpr auto kOneForwardOneBackward = ScheduleFamily::kOneForwardOneBackward;

/// Two sites of two devices each: a-1/0, a-2/0, b-1/0, b-2/0.
Topology machine() {
  Topology topology = unit_topology({0, 0, 1, 1});
  topology.hash = 0x0123456789abcdefu;
  return topology;
}

Job job_of_four_layers() {
  Job job = unit_job(4, 12);
  job.hash = 0xfedcba9876543210u;
  return job;
}

/// Two pipelines of two stages, uneven in every respect.
PlanFile example() {
  PlanFile file;
  file.plan = unit_plan(kOneForwardOneBackward, 2, {4, 2});
  file.plan.layers = {3, 1};
  file.plan.devices = {{0, 2}, {3, 1}};
  file.plan.micro_batch = 2;
  file.plan.in_flight = {3, 1};
  file.plan.coordinator_site = 1;
  file.cluster_path = "../clusters/unit.yaml";
  file.job_path = "jobs/unit.yaml";
  file.cluster_hash = 0x0123456789abcdefu;
  file.job_hash = 0xfedcba9876543210u;
  file.policy = "search";
  file.seed = 7;
  file.predicted = {1.2345678901234567, 8e5, 0.1, "compute of the slowest device"};
  return file;
}

void expect_equal(const PlanFile& a, const PlanFile& b) {
  EXPECT_EQ(a.plan.layers, b.plan.layers);
  EXPECT_EQ(a.plan.devices, b.plan.devices);
  EXPECT_EQ(a.plan.micro_batches, b.plan.micro_batches);
  EXPECT_EQ(a.plan.micro_batch, b.plan.micro_batch);
  EXPECT_EQ(a.plan.family, b.plan.family);
  EXPECT_EQ(a.plan.in_flight, b.plan.in_flight);
  EXPECT_EQ(a.plan.orders, b.plan.orders);
  EXPECT_EQ(a.plan.coordinator_site, b.plan.coordinator_site);
  EXPECT_EQ(a.cluster_path, b.cluster_path);
  EXPECT_EQ(a.job_path, b.job_path);
  EXPECT_EQ(a.cluster_hash, b.cluster_hash);
  EXPECT_EQ(a.job_hash, b.job_hash);
  EXPECT_EQ(a.policy, b.policy);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.predicted.step_s, b.predicted.step_s);
  EXPECT_EQ(a.predicted.tokens_per_s, b.predicted.tokens_per_s);
  EXPECT_EQ(a.predicted.lower_bound_s, b.predicted.lower_bound_s);
  EXPECT_EQ(a.predicted.lower_bound, b.predicted.lower_bound);
}

constexpr std::string_view kExampleText = R"(schema: longhaul/plan/1
inputs:
  cluster: {file: ../clusters/unit.yaml, hash: "0123456789abcdef"}
  job: {file: jobs/unit.yaml, hash: "fedcba9876543210"}
made_by: {policy: search, seed: 7}

# 2 pipelines of 2 stages
layers: [3, 1]
pipelines:
  - [a-1/0, b-1/0]
  - [b-2/0, a-2/0]
batch:
  micro_batch: 2  # sequences
  micro_batches: [4, 2]  # of each pipeline
schedule: {family: 1f1b, in_flight: [3, 1]}
coordinator: b
predicted:
  step: 1.2345678901234567 s
  tokens_per_s: 800000
  lower_bound: 0.1 s
  bound_by: "compute of the slowest device"
)";

TEST(PlanText, is_what_a_person_would_write) {
  EXPECT_EQ(plan_text(example(), machine(), job_of_four_layers()), kExampleText);
}

TEST(PlanText, is_the_same_every_time) {
  EXPECT_EQ(plan_text(example(), machine(), job_of_four_layers()),
            plan_text(example(), machine(), job_of_four_layers()));
}

TEST(PlanText, reads_back_to_the_same_plan_and_the_same_text) {
  const Topology topology = machine();
  const Job job = job_of_four_layers();
  const std::string text = plan_text(example(), topology, job);
  const Result<PlanFile> read = parse_plan(text, "plan.yaml", topology, job);
  ASSERT_TRUE(read) << read.error().text();
  expect_equal(*read, example());
  EXPECT_EQ(plan_text(*read, topology, job), text);
}

TEST(PlanText, gpipe_and_tiny_predictions_read_back) {
  const Topology topology = machine();
  const Job job = job_of_four_layers();
  PlanFile file = example();
  file.plan.family = kGpipe;
  file.plan.in_flight = {4, 4};
  file.predicted = {1.5e-7, 1.25e9, 0, ""};
  const Result<PlanFile> read =
      parse_plan(plan_text(file, topology, job), "plan.yaml", topology, job);
  ASSERT_TRUE(read) << read.error().text();
  expect_equal(*read, file);
}

/// The example with a split backward; stage 1 waits for nothing but stage 0.
PlanFile greedy_example() {
  PlanFile file = example();
  file.plan.family = kGreedy;
  file.plan.in_flight = {3, 2};
  file.plan.orders = {*parse_order("F0 F1 F2 B0 W0 F3 B1 B2 W1 W2 B3 W3"),
                      *parse_order("F0 B0 F1 B1 W0 W1 F2 B2 W2 F3 B3 W3")};
  return file;
}

TEST(PlanText, a_greedy_schedule_has_the_order_of_every_stage_on_a_line) {
  const std::string text = plan_text(greedy_example(), machine(), job_of_four_layers());
  EXPECT_TRUE(
      text.contains("\nschedule:\n"
                    "  family: greedy\n"
                    "  in_flight: [3, 2]  # F minus W, at most\n"
                    "  orders:  # of each stage\n"
                    "    - F0 F1 F2 B0 W0 F3 B1 B2 W1 W2 B3 W3\n"
                    "    - F0 B0 F1 B1 W0 W1 F2 B2 W2 F3 B3 W3\n"
                    "coordinator: b\n"))
      << text;
}

TEST(PlanText, a_greedy_schedule_reads_back) {
  const Topology topology = machine();
  const Job job = job_of_four_layers();
  const std::string text = plan_text(greedy_example(), topology, job);
  const Result<PlanFile> read = parse_plan(text, "plan.yaml", topology, job);
  ASSERT_TRUE(read) << read.error().text();
  expect_equal(*read, greedy_example());
  EXPECT_EQ(plan_text(*read, topology, job), text);
}

TEST(PlanText, caps_that_are_left_out_are_what_the_orders_hold) {
  const Topology topology = machine();
  const Job job = job_of_four_layers();
  std::string text = plan_text(greedy_example(), topology, job);
  const std::string caps = "  in_flight: [3, 2]  # F minus W, at most\n";
  text.erase(text.find(caps), caps.size());
  const Result<PlanFile> read = parse_plan(text, "plan.yaml", topology, job);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->plan.in_flight, (std::vector{3, 2}));
}

TEST(PlanText, a_dead_lock_across_stages_is_named) {
  PlanFile file = greedy_example();
  // Stage 0 holds back F1 until it has B0; stage 1 makes B0 after F1.
  file.plan.orders = {*parse_order("F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3"),
                      *parse_order("F0 F1 B0 B1 W0 W1 F2 B2 W2 F3 B3 W3")};
  const Topology topology = machine();
  const Job job = job_of_four_layers();
  const Result<PlanFile> read =
      parse_plan(plan_text(file, topology, job), "plan.yaml", topology, job);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().count(), 1u) << read.error().text();
  EXPECT_TRUE(read.error().message.starts_with("the schedule dead-locks: "));
  for (const char* part : {"FWD 1 of stage 0", "BWD_INPUT 0 of stage 0", "FWD 1 of stage 1",
                           "BWD_INPUT 0 of stage 1"}) {
    EXPECT_TRUE(read.error().message.contains(part)) << read.error().message;
  }
}

TEST(PlanText, names_and_paths_with_signs_of_yaml_read_back) {
  Topology topology = machine();
  topology.sites[1].name = "St. John's: #1";
  topology.devices[0].name = "rack, left/0";
  topology.devices[2].name = "12";
  topology.devices[3].name = "[x]/0";
  const Job job = job_of_four_layers();
  PlanFile file = example();
  file.cluster_path = "my clusters, old/a}b.yaml";
  file.job_path = "C#: \"best\" \\ job.yaml";
  const std::string text = plan_text(file, topology, job);
  const Result<PlanFile> read = parse_plan(text, "plan.yaml", topology, job);
  ASSERT_TRUE(read) << read.error().text() << "\n" << text;
  expect_equal(*read, file);
}

TEST(YamlText, is_plain_where_it_can_be_and_always_reads_back) {
  EXPECT_EQ(yaml_text("../clusters/ten-cities.yaml"), "../clusters/ten-cities.yaml");
  EXPECT_EQ(yaml_text("oregon-1/0"), "oregon-1/0");
  EXPECT_EQ(yaml_text("a b"), "\"a b\"");
  EXPECT_EQ(yaml_text("say \"x\\y\""), R"("say \"x\\y\"")");
  for (const std::string text :
       {"12",   "true", "null", "NULL", "~",    "",  "-",  "- a",      "-1", "a: b",
        "a #b", "#",    "[x]",  "{x}",  "a, b", "'", "\"", "\\",       "&a", "*a",
        "!a",   "%a",   "@a",   "`a`",  "?",    "|", ">",  "São Paulo"}) {
    for (const std::string& document :
         {"v: " + yaml_text(text) + "\n", "{v: " + yaml_text(text) + ", w: 1}\n"}) {
      auto file = ConfigFile::parse(document, "f.yaml");
      ASSERT_TRUE(file) << document << file.error().text();
      EXPECT_EQ(file->root().key("v").text("absent"), text);
      if (document.starts_with('{')) {
        EXPECT_EQ(file->root().key("w").integer(), 1);
      }
      const Result<void> done = file->finish();
      EXPECT_TRUE(done) << document << done.error().text();
    }
  }
}

// ---- Reading what people wrote.

/// The example's text with its only `old` replaced.
std::string with(std::string_view old, std::string_view replacement,
                 std::string_view text = kExampleText) {
  std::string out(text);
  const std::size_t at = out.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return out.replace(at, old.size(), replacement);
}

std::string errors_of(const std::string& text, const Topology& topology = machine()) {
  const Result<PlanFile> read = parse_plan(text, "plan.yaml", topology, job_of_four_layers());
  if (read) return "";
  EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
  return read.error().text();
}

TEST(ParsePlan, hashes_origin_and_predictions_may_be_left_out) {
  const std::string text = R"(schema: longhaul/plan/1
inputs: {cluster: {file: c.yaml}, job: {file: j.yaml}}
layers: [2, 2]
pipelines: [[a-1/0, b-1/0]]
batch: {micro_batch: 3, micro_batches: [4]}
schedule: {family: 1f1b}
coordinator: a
)";
  const Result<PlanFile> read = parse_plan(text, "plan.yaml", machine(), job_of_four_layers());
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->cluster_hash, 0u);
  EXPECT_EQ(read->plan.in_flight, (std::vector{2, 1}));  // min(P - i, M)
  EXPECT_EQ(read->predicted.step_s, 0);
}

struct BadPlan {
  std::string_view old;
  std::string_view replacement;
  std::string_view says;
};

TEST(ParsePlan, what_does_not_fit_is_refused_with_the_reason) {
  const BadPlan cases[] = {
      {"plan/1", "plan/2", "has version `2`"},
      {"[3, 1]\npipelines", "[3, 2]\npipelines",
       "the stages hold 5 layers together, but the model has 4"},
      {"[3, 1]\npipelines", "[4, 0]\npipelines", "layers[1]"},
      {"[a-1/0, b-1/0]", "[a-1/0]", "this pipeline has 1 devices, but `layers` has 2 stages"},
      {"[a-1/0, b-1/0]", "[a-1/0, b-1/0, a-2/0]", "has 3 devices"},
      {"b-2/0", "b-9/0", "cluster `unit` has no device `b-9/0`"},
      {"b-2/0", "b-2/0x", "did you mean `b-2/0`?"},
      {"b-2/0", "a-1/0", "device `a-1/0` is used twice"},
      {"micro_batch: 2", "micro_batch: 0", "micro_batch"},
      {"micro_batch: 2", "micro_batch: 13", "12"},
      {"micro_batch: 2", "micro_batch: 1",
       "6 micro-batches of 1 make 6 sequences, but the job's global batch is 12"},
      {"[4, 2]", "[4, 3]", "7 micro-batches of 2 make 14 sequences"},
      {"[4, 2]", "[6]", "1 shares for 2 pipelines"},
      {"[4, 2]", "[6, 0]", "micro_batches[1]"},
      {"family: 1f1b", "family: zigzag", "gpipe"},
      {"family: 1f1b", "family: gpipe", "gpipe holds all 4 micro-batches at every stage"},
      {"in_flight: [3, 1]", "in_flight: [1]", "1 depths for 2 stages"},
      {"in_flight: [3, 1]", "in_flight: [5, 1]",
       "stage 0 holds 5 micro-batches in flight, but no pipeline has more than 4"},
      {"in_flight: [3, 1]", "in_flight: [1, 2]",
       "in-flight depth rises from 1 at stage 0 to 2 at stage 1"},
      {"coordinator: b", "coordinator: c", "cluster `unit` has no site `c`"},
      {"coordinator: b", "coordinator: c", "sites: a, b"},
      {"\"0123456789abcdef\"", "\"0123456789abcde\"", "not a hash of 16 hexadecimal digits"},
      {"\"0123456789abcdef\"", "\"0123456789abcdeg\"", "not a hash of 16 hexadecimal digits"},
      {"schedule:", "shedule:", "did you mean `schedule`?"},
  };
  ASSERT_EQ(errors_of(std::string(kExampleText)), "");
  for (const BadPlan& bad : cases) {
    const std::string errors = errors_of(with(bad.old, bad.replacement));
    EXPECT_TRUE(errors.contains(bad.says)) << bad.replacement << "\n" << errors;
  }
}

TEST(ParsePlan, the_deepest_in_flight_is_the_largest_share) {
  EXPECT_EQ(errors_of(with("in_flight: [3, 1]", "in_flight: [4, 4]")), "");
  EXPECT_EQ(errors_of(with("in_flight: [3, 1]", "in_flight: [1, 1]")), "");
}

TEST(ParsePlan, a_device_without_speed_for_the_precision_is_refused) {
  Topology topology = machine();
  topology.kinds[3].rate[static_cast<std::size_t>(Precision::kFp32)] = FlopsPerSecond(0);
  EXPECT_TRUE(errors_of(std::string(kExampleText), topology)
                  .contains("device `b-2/0` is a kind-3, which has no fp32 speed"));
  // One that the plan does not use is of no matter.
  topology.devices.push_back({"spare/0", 0, 0, 3});
  topology.devices[3].kind = 2;
  EXPECT_EQ(errors_of(std::string(kExampleText), topology), "");
}

TEST(ParsePlan, all_errors_are_reported_at_once) {
  const std::string text =
      with("coordinator: b", "coordinator: c", with("b-2/0", "b-9/0", with("[4, 2]", "[4, 3]")));
  const Result<PlanFile> read = parse_plan(text, "plan.yaml", machine(), job_of_four_layers());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().count(), 3u) << read.error().text();
}

TEST(ParsePlan, the_largest_seed_that_a_file_holds_reads_back) {
  const Topology topology = machine();
  const Job job = job_of_four_layers();
  PlanFile file = example();
  for (const std::uint64_t seed : {std::uint64_t{0}, (std::uint64_t{1} << 63) - 1}) {
    file.seed = seed;
    const Result<PlanFile> read =
        parse_plan(plan_text(file, topology, job), "plan.yaml", topology, job);
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(read->seed, seed);
  }
}

TEST(LoadPlan, a_missing_file_is_refused_by_name) {
  const Result<PlanFile> plan =
      load_plan("/nonexistent/plan.yaml", machine(), job_of_four_layers());
  ASSERT_FALSE(plan);
  EXPECT_TRUE(plan.error().text().contains("/nonexistent/plan.yaml"));
  EXPECT_FALSE(load_plan_inputs("/nonexistent/plan.yaml"));
}

// ---- Orders.

TEST(StageOrder, text_and_order_are_each_other) {
  const std::string text = "F0 F1 B0 W0 B1 W1";
  const Result<StageOrder> order = parse_order(text);
  ASSERT_TRUE(order);
  EXPECT_EQ(*order,
            (StageOrder{Pass::kForward, Pass::kForward, Pass::kBackwardInput, Pass::kBackwardWeight,
                        Pass::kBackwardInput, Pass::kBackwardWeight}));
  EXPECT_EQ(order_text(*order), text);
  EXPECT_EQ(*parse_order("  F0   B0 "), (StageOrder{Pass::kForward, Pass::kBackwardInput}));
  EXPECT_TRUE(parse_order("")->empty());
}

TEST(StageOrder, words_that_are_no_pass_are_refused) {
  for (const char* text : {"F", "f0", "0", "F-1", "F0,F1", "F00", "F0\tB0", "F0B0", "B1", "F0 F0",
                           "F0 F2", "F0 F99999999999999999999"}) {
    EXPECT_FALSE(parse_order(text)) << text;
  }
}

TEST(StageOrder, a_cap_is_forwards_above_weight_gradients) {
  const StageOrder order = *parse_order("F0 F1 B0 B1 F2 W0 W1 B2 W2");
  EXPECT_TRUE(check_order(order, 3, 3));
  EXPECT_FALSE(check_order(order, 3, 2));  // F2 is the third: W0 comes after it
  EXPECT_FALSE(check_order(order, 2, 3));
  EXPECT_FALSE(check_order(order, 4, 3));
  EXPECT_EQ(peaks_of(order).in_flight, 3);
  EXPECT_EQ(peaks_of(order).for_weights, 2);  // B0 and B1
}

TEST(StageOrder, a_smaller_pipeline_leaves_out_what_it_does_not_have) {
  const StageOrder order = *parse_order("F0 F1 B0 F2 W0 B1 W1 B2 W2");
  EXPECT_EQ(order_text(order_for(order, 2)), "F0 F1 B0 W0 B1 W1");
  EXPECT_EQ(order_for(order, 3), order);
  EXPECT_TRUE(order_for(order, 0).empty());
}

// ---- In flight.

TEST(DefaultInFlight, gpipe_holds_everything) {
  EXPECT_EQ(default_in_flight(kGpipe, 3, 5), (std::vector{5, 5, 5}));
  EXPECT_EQ(default_in_flight(kGpipe, 1, 1), std::vector{1});
}

TEST(DefaultInFlight, one_forward_one_backward_holds_what_is_downstream) {
  EXPECT_EQ(default_in_flight(kOneForwardOneBackward, 4, 8), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(default_in_flight(kOneForwardOneBackward, 4, 4), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(default_in_flight(kOneForwardOneBackward, 4, 3), (std::vector{3, 3, 2, 1}));
  EXPECT_EQ(default_in_flight(kOneForwardOneBackward, 4, 1), (std::vector{1, 1, 1, 1}));
}

TEST(DefaultInFlight, greedy_may_hold_everywhere_what_1f1b_holds_at_its_peak) {
  EXPECT_EQ(default_in_flight(kGreedy, 4, 8), (std::vector{4, 4, 4, 4}));
  EXPECT_EQ(default_in_flight(kGreedy, 4, 3), (std::vector{3, 3, 3, 3}));
}

// ---- Memory.

/// One pipeline of two stages on a-1/0 and b-1/0 whose kinds have exactly the given memory.
struct MemoryCase {
  Topology topology = machine();
  Job job = unit_job(2, 3);
  Plan plan = unit_plan(kOneForwardOneBackward, 2, {3});

  MemoryCase() { plan.devices = {{0, 2}}; }
  Result<void> check(double first, double second) {
    topology.kinds[0].memory = bytes(first);
    topology.kinds[2].memory = bytes(second);
    return check_memory(plan, topology, job);
  }
};

// Stage 0: 18 parameters x 16 = 288; K = 2 x 44 = 88; MLP 8; boundaries 4 x 4 = 16: 400 bytes.
// Stage 1: 16 + token 1 + final norm 2 = 19 parameters x 16 = 304; K = 1 x 44; 8; 16: 372 bytes.
TEST(CheckMemory, exactly_full_is_accepted_and_a_byte_less_is_not) {
  MemoryCase c;
  EXPECT_TRUE(c.check(400, 372));
  EXPECT_FALSE(c.check(399, 372));
  EXPECT_FALSE(c.check(400, 371));
}

TEST(CheckMemory, the_worst_device_is_named_with_need_and_size) {
  MemoryCase c;
  const Result<void> first_worse = c.check(200, 300);  // 400 / 200 against 372 / 300
  ASSERT_FALSE(first_worse);
  EXPECT_EQ(first_worse.error().code, ErrorCode::kInfeasible);
  EXPECT_TRUE(first_worse.error().message.starts_with(
      "stage 0 needs 400 B on a-1/0, a kind-0 with 200 B (states 288 B, 2 activations 88 B, "
      "workspace 8 B, buffers 16 B, runtime 0 B)"))
      << first_worse.error().message;
  const Result<void> second_worse = c.check(399, 100);
  ASSERT_FALSE(second_worse);
  EXPECT_TRUE(second_worse.error().message.starts_with("stage 1 needs 372 B on b-1/0"))
      << second_worse.error().message;
}

TEST(CheckMemory, in_flight_is_capped_by_the_pipelines_own_micro_batches) {
  // GPipe's K is 3, but a pipeline of one micro-batch holds one: 288 + 44 + 8 + 16 = 356 bytes and
  // a bucket of 4 MiB for its peer.
  MemoryCase c;
  c.plan = unit_plan(kGpipe, 2, {3, 1});
  c.plan.devices = {{1, 3}, {0, 2}};
  EXPECT_TRUE(c.check(356 + 4'194'304, 400 + 4'194'304));
  EXPECT_FALSE(c.check(355 + 4'194'304, 400 + 4'194'304));
}

TEST(CheckMemory, output_gradients_wait_for_the_weight_gradients) {
  // As above with K = 2 at stage 0, and one output gradient of 4 bytes from B to W: 404. Stage 1
  // has K = 2 (416 with its 44 bytes more) and two output gradients: 424.
  MemoryCase c;
  c.plan.family = kGreedy;
  c.plan.in_flight = {2, 2};
  c.plan.orders = {*parse_order("F0 F1 B0 W0 F2 B1 W1 B2 W2"),
                   *parse_order("F0 F1 B0 B1 W0 W1 F2 B2 W2")};
  EXPECT_TRUE(c.check(404, 424));
  EXPECT_FALSE(c.check(403, 424));
  EXPECT_FALSE(c.check(404, 423));
}

TEST(CheckMemory, recompute_makes_room) {
  MemoryCase c;
  c.plan.layers = {2, 1};
  c.job.model.layers = 3;
  c.plan.micro_batches = {3};
  c.plan.in_flight = {3, 1};
  // Stage 0 with two layers: 34 x 16 = 544; 3 x 88 = 264 or 3 x 4 + 88 = 100; 8; 16.
  EXPECT_FALSE(c.check(831, 1000));
  EXPECT_TRUE(c.check(832, 1000));
  c.job.recompute = Recompute::kYes;
  EXPECT_TRUE(c.check(668, 1000));
  EXPECT_FALSE(c.check(667, 1000));
}

}  // namespace
}  // namespace longhaul
