// The texts that processes of a run give one another: its description, and questions for pieces of
// files and for sequences. What comes from another process may be anything.
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "executor/run/file_transfer.h"
#include "executor/run/mesh_requests.h"
#include "executor/run/run_data.h"
#include "executor/run/run_spec.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/mesh_fixtures.h"
#include "tests/executor/run_fixtures.h"
#include "tests/executor/storage_sides.h"

namespace longhaul {
namespace {

using fixtures::MemorySequences;
using Json = nlohmann::json;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// ---- the description of a run

/// 2 x 2 cells, resumed and emulated: every field has a value.
RunSpec full_spec() {
  const DataIdentity data = {0xfedcba9876543210, 161, 16, 8};
  RunSpec spec = fixtures::spec_of({.layers = {2, 1}, .micro_batches = {3, 2}, .steps = 9}, data,
                                   {5, 81, 16, 8});
  spec.term = 2;
  spec.data_folder = "/data";
  spec.first_step = 3;
  spec.updates = 2;
  spec.skips_before = 1;
  ResumePoint resume;
  resume.checkpoint = {1, 3};
  resume.files.push_back({"head.safetensors", 4096, ContentHash{1, 2}});
  spec.resume = resume;
  spec.timeline_step = 5;
  spec.adapts_codecs = true;
  EmulationSpec emulation;
  emulation.page = "/dev/shm/page";
  emulation.dilation = 1.5;
  emulation.devices.assign(4, {0.5, 0.125, 1, 0.25});
  spec.emulation = emulation;
  return spec;
}

std::string error_of(const Json& json) {
  const auto spec = parse_run_spec(json.dump());
  if (spec) return "";
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalid);
  EXPECT_LT(spec.error().message.size(), 1000u);
  return spec.error().message;
}

TEST(RunSpecText, comes_back_the_same) {
  const RunSpec spec = full_spec();
  const std::string text = run_spec_text(spec);
  const auto again = parse_run_spec(text);
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(run_spec_text(*again), text);
  EXPECT_EQ(again->train, spec.train);
  EXPECT_EQ(again->validation, spec.validation);
  EXPECT_EQ(again->resume->files[0].hash, (ContentHash{1, 2}));
  EXPECT_EQ(again->job.training->steps, 9u);
  EXPECT_EQ(again->plan.devices, spec.plan.devices);
}

/// Two stages with a split backward, emulated.
RunSpec greedy_spec() {
  const DataIdentity data = {0xfedcba9876543210, 161, 16, 8};
  RunSpec spec =
      fixtures::spec_of({.layers = {2, 1},
                         .micro_batches = {3, 1},
                         .family = ScheduleFamily::kGreedy,
                         .in_flight = {3, 2},
                         .orders = {"F0 F1 F2 B0 W0 B1 B2 W1 W2", "F0 B0 F1 W0 B1 W1 F2 B2 W2"},
                         .steps = 9},
                        data, {5, 81, 16, 8});
  EmulationSpec emulation;
  emulation.page = "/dev/shm/page";
  emulation.devices.assign(4, {0.5, 0.125, 1, 0.25, 0.625, 0.375});
  spec.emulation = emulation;
  return spec;
}

TEST(RunSpecText, the_orders_of_a_greedy_plan_and_the_halves_of_a_backward_come_back) {
  const RunSpec spec = greedy_spec();
  const auto again = parse_run_spec(run_spec_text(spec));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(run_spec_text(*again), run_spec_text(spec));
  EXPECT_EQ(again->plan.family, ScheduleFamily::kGreedy);
  EXPECT_EQ(again->plan.orders, spec.plan.orders);
  EXPECT_EQ(again->plan.in_flight, (std::vector{3, 2}));
  EXPECT_EQ(again->emulation->devices[3].backward_input_s, 0.625);
  EXPECT_EQ(again->emulation->devices[3].backward_weight_s, 0.375);
}

TEST(RunSpecText, orders_that_would_not_end_are_refused) {
  struct Row {
    const char* at;  // JSON pointer
    Json value;
    const char* message;
  };
  const Row rows[] = {
      {"/plan/orders", Json::array(), "does not have an order for each stage"},
      {"/plan/orders/1", 7, "cannot be read"},
      {"/plan/orders/1", "F0 B0 G0", "`G0` is no pass"},
      {"/plan/orders/1", "F0 B0 W0 F2", "pass 4 is `F2`"},
      {"/plan/orders/1", "F0 B0 W0", "stage 1: the order has 1 F"},
      {"/plan/orders/1", "B0 F0 W0", "stage 1: B0 comes before its forward"},
      {"/plan/in_flight", {2, 2}, "stage 0: F2 would be micro-batch 3 in flight"},
      // Stage 1 sends B0 when it has F2, which stage 0 holds back until it has B0.
      {"/plan/orders", {"F0 F1 B0 F2 W0 B1 B2 W1 W2", "F0 F1 F2 B0 W0 B1 W1 B2 W2"}, "stage 1: F2"},
      {"/plan/orders", {"F0 B0 F1 F2 W0 B1 B2 W1 W2", "F0 F1 B0 W0 F2 B1 W1 B2 W2"}, "dead-locks"},
      {"/emulation/devices/3/backward_input_s", -1, "a time that cannot be"},
      {"/emulation/devices/3/backward_weight_s", -1, "a time that cannot be"},
  };
  const Json good = Json::parse(run_spec_text(greedy_spec()));
  ASSERT_EQ(error_of(good), "");
  for (const Row& row : rows) {
    Json bad = good;
    ASSERT_TRUE(bad.contains(Json::json_pointer(row.at))) << row.at;
    bad[Json::json_pointer(row.at)] = row.value;
    EXPECT_NE(error_of(bad).find(row.message), std::string::npos)
        << row.at << " = " << row.value.dump() << "\n"
        << error_of(bad);
  }
}

TEST(RunSpecText, a_validation_runs_forwards_as_1f1b_whatever_the_orders) {
  const RunSpec spec = greedy_spec();
  const Plan plan = validation_plan(spec);
  EXPECT_EQ(plan.family, ScheduleFamily::kOneForwardOneBackward);
  EXPECT_EQ(plan.micro_batches, validation_micro_batches(spec));
  EXPECT_EQ(plan.in_flight, (std::vector{2, 1}));
  EXPECT_TRUE(build_graph(make_schedule(plan, spec.job)));
}

/// That leaves codecs and recomputation to the plan, which chooses some of each.
RunSpec chosen_spec() {
  fixtures::RunOptions options;
  options.layers = {1, 1};
  options.micro_batches = {2, 2};
  options.activations = Codec::kBf16;
  options.is_auto = true;
  options.recompute = true;
  options.activation_codecs = {{0, 1, Codec::kNone, Codec::kBf16}};
  options.reductions = {{.shares = {0.25, 0.75}},
                        {.codec = Codec::kBf16},
                        {.shares = {0.1, 0.2, 0.3, 0.4}, .codec = Codec::kBf16}};
  const DataIdentity data{1, 161, 16, 8};
  return fixtures::spec_of(options, data, data);
}

TEST(RunSpecText, what_a_plan_chooses_comes_back_and_is_done) {
  const RunSpec spec = chosen_spec();
  const auto again = parse_run_spec(run_spec_text(spec));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(run_spec_text(*again), run_spec_text(spec));
  EXPECT_TRUE(recomputes(again->plan, again->job));
  EXPECT_EQ(again->plan.activation_codecs, spec.plan.activation_codecs);
  EXPECT_EQ(again->plan.reductions, spec.plan.reductions);
  const auto shares = [](const ExchangeOptions& options) {
    std::vector<double> all;
    for (const ExchangeMember& member : options.members) all.push_back(member.share);
    return all;
  };
  EXPECT_EQ(shares(stage_exchange(*again, 0)), (std::vector{0.25, 0.75}));
  EXPECT_EQ(stage_exchange(*again, 0).codec, TensorCodec::kRaw);
  EXPECT_EQ(shares(stage_exchange(*again, 1)), (std::vector{1.0, 1.0}));
  EXPECT_EQ(stage_exchange(*again, 1).codec, TensorCodec::kBf16);
  EXPECT_EQ(shares(tied_exchange(*again)), (std::vector{0.1, 0.2, 0.3, 0.4}));
}

TEST(RunSpecText, histories_are_of_the_samples_that_come_to_a_boundary) {
  fixtures::RunOptions options;
  options.layers = {1, 1};
  options.micro_batches = {2, 2};
  options.activations = Codec::kAqInt3;
  // 20 sequences of 8 tokens in batches of 4 are five rows, and each pipeline has two slots.
  const DataIdentity data{1, 161, 16, 8};
  const RunSpec spec = fixtures::spec_of(options, data, data);
  const auto again = parse_run_spec(run_spec_text(spec));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(*again->job.history, HistorySettings{});
  for (const int pipeline : {0, 1}) {
    EXPECT_EQ(histories_of(*again, pipeline), (std::vector{BoundaryHistory{10, 10, {10, 10}}}));
  }
}

TEST(RunSpecText, choices_that_the_job_or_the_executor_does_not_have_are_refused) {
  struct Row {
    const char* at;  // JSON pointer
    Json value;
    const char* message;
  };
  const char* const codecs = "codecs between sites are not what its job allows";
  const Row rows[] = {
      {"/plan/recompute", 7, "cannot be read"},
      {"/plan/codecs/0/activations", "zip", "no such codec"},
      {"/plan/codecs/0/activations", "int8", codecs},
      {"/plan/codecs/0/activation_gradients", "zip", "no such codec"},
      {"/plan/codecs/0/activation_gradients", "int8", codecs},
      {"/plan/codecs/0/site", 1, codecs},
      {"/plan/codecs/0/site", 0.5, "not whole or not in its range"},
      {"/plan/reductions",
       Json::array({Json{{"shape", "sharded"}, {"shares", Json::array()}, {"codec", "none"}}}),
       "the run has 1 reductions for 3 exchanges"},
      {"/plan/reductions/0/shape", "star", "no such shape of an all-reduce"},
      {"/plan/reductions/0/shape", "ring", "the executor does not run the ring all-reduce yet"},
      {"/plan/reductions/2/shape", "hierarchical", "does not run the hierarchical all-reduce"},
      {"/plan/reductions/0/shares", {1}, "reduction 0 of the run"},
      {"/plan/reductions/0/shares", {0, 0}, "reduction 0 of the run"},
      {"/plan/reductions/0/shares", {-0.5, 1}, "reduction 0 of the run"},
      {"/plan/reductions/2/shares", {0.5, 0.5}, "reduction 2 of the run"},
      {"/plan/reductions/1/codec", "int8", "reduction 1 of the run"},
  };
  const Json good = Json::parse(run_spec_text(chosen_spec()));
  ASSERT_EQ(error_of(good), "");
  for (const Row& row : rows) {
    Json bad = good;
    ASSERT_TRUE(bad.contains(Json::json_pointer(row.at))) << row.at;
    bad[Json::json_pointer(row.at)] = row.value;
    EXPECT_NE(error_of(bad).find(row.message), std::string::npos)
        << row.at << " = " << row.value.dump() << "\n"
        << error_of(bad);
  }
}

TEST(RunSpecText, a_folder_that_is_not_utf8_does_not_stop_a_run) {
  RunSpec spec = full_spec();
  spec.data_folder = "/d\xff";
  const auto again = parse_run_spec(run_spec_text(spec));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(again->data_folder, "/d\xef\xbf\xbd");  // U+FFFD
}

TEST(RunSpecText, each_malformed_field_is_refused_at_its_own_check) {
  struct Row {
    const char* at;  // JSON pointer
    Json value;
    const char* message;
  };
  const std::string grid = "the run's grid does not fit its model and its ranks";
  const std::string data = "no sequence of the model's context and vocabulary";
  const Row rows[] = {
      {"/schema", "longhaul/run/2", "a run of schema `longhaul/run/2`"},
      {"/schema", std::string(5000, 'x'), "a run of schema `xxx"},
      {"/id", -1, "not whole or not in its range"},
      {"/id", 0.5, "not whole or not in its range"},
      {"/id", "7", "not whole or not in its range"},
      {"/term", 4294967296, "not whole or not in its range"},
      {"/term", 1e30, "not whole or not in its range"},
      {"/job", 7, "cannot be read"},
      {"/job", "schema: longhaul/job/1\n", "missing key `name`"},
      {"/job", "model: {from: /proc}\n", "its model in a folder, which workers need not have"},
      {"/plan", 7, "cannot be read"},
      {"/plan/layers", Json::array(), grid.c_str()},
      {"/plan/layers", {2, 2}, grid.c_str()},
      {"/plan/layers", {3, 0}, grid.c_str()},
      {"/plan/layers", {2147483647, 2147483647}, grid.c_str()},  // their sum is no int
      {"/plan/layers", {2, 1.5}, "not whole or not in its range"},
      {"/plan/micro_batches", Json::array(), "micro-batches"},
      {"/plan/micro_batches", {3, 3}, "the plan's 6 micro-batches of 1 sequences"},
      {"/plan/micro_batches", {6, -1}, grid.c_str()},
      {"/plan/micro_batches", {2147483647, 2147483647}, "micro-batches"},
      {"/plan/micro_batch", 0, "micro-batches of 0 sequences"},
      {"/plan/family", "zigzag", "no such schedule family"},
      {"/plan/in_flight", {1, 2}, "in-flight numbers grow"},  // stage 1 would wait for ever
      {"/plan/in_flight", {2, 0}, grid.c_str()},
      {"/plan/in_flight", {2}, grid.c_str()},
      {"/ranks", Json::array(), grid.c_str()},
      {"/ranks/0/site", 2147483648, "not whole or not in its range"},
      {"/ranks/0/name", nullptr, "cannot be read"},
      {"/train/context", 7, data.c_str()},
      {"/train/tokens", 8, data.c_str()},  // one short of a sequence and its last target
      {"/train/tokens", std::numeric_limits<std::int64_t>::min(), data.c_str()},
      {"/train/vocabulary", 17, data.c_str()},
      {"/train/vocabulary", 0, data.c_str()},
      {"/validation/context", 0, data.c_str()},
      {"/validation/tokens", 8, data.c_str()},
      {"/first_step", 9, "no step to do: it would go from 9 to 9 of 9"},
      {"/last_step", 10, "no step to do: it would go from 3 to 10 of 9"},
      {"/updates", 4, "steps before its first do not add up"},
      {"/skips_before", -1, "steps before its first do not add up"},
      {"/resume/term", 4294967296, "a checkpoint that cannot be"},
      {"/resume/step", 268435456, "a checkpoint that cannot be"},
      {"/resume/files/0/hash", "0123", "a file's hash is none"},
      {"/resume/files/0/bytes", -1, "not whole or not in its range"},
      {"/timeline_step", -1, "not whole or not in its range"},
      {"/emulation/devices", Json::array(), "does not have a device for each cell"},
      {"/emulation/dilation", 0, "a time that cannot be"},
      {"/emulation/devices/3/update_s", -0.25, "a time that cannot be"},
      {"/limits/heartbeat_interval_s", 0, "deadlines and limits are not positive"},
      {"/limits/stop_deadline_s", -1, "deadlines and limits are not positive"},
      {"/limits/missed_heartbeats", 0, "deadlines and limits are not positive"},
      {"/limits/skips_in_a_row", 0, "deadlines and limits are not positive"},
      {"/limits/step_deadline_s", nullptr, "cannot be read"},
  };
  const Json good = Json::parse(run_spec_text(full_spec()));
  ASSERT_EQ(error_of(good), "");
  for (const Row& row : rows) {
    Json bad = good;
    ASSERT_TRUE(bad.contains(Json::json_pointer(row.at))) << row.at;
    bad[Json::json_pointer(row.at)] = row.value;
    EXPECT_NE(error_of(bad).find(row.message), std::string::npos)
        << row.at << " = " << row.value.dump().substr(0, 80) << "\n"
        << error_of(bad);
  }
}

TEST(RunSpecText, a_field_that_is_missing_is_named) {
  const Json good = Json::parse(run_spec_text(full_spec()));
  for (const auto& [key, value] : good.items()) {
    Json bad = good;
    bad.erase(key);
    const bool may_be_missing = key == "validation" || key == "resume" || key == "timeline_step" ||
                                key == "emulation" || key == "adapts_codecs";
    EXPECT_EQ(error_of(bad).find("'" + key + "'") == std::string::npos, may_be_missing) << key;
  }
}

TEST(RunSpecText, what_is_no_json_is_refused_shortly) {
  const std::string good = run_spec_text(full_spec());
  for (const std::string& text : std::initializer_list<std::string>{
           "", "[", "7", "null", good.substr(0, good.size() - 1), good + "}",
           std::string(100000, '['), "{\"schema\":\"\xff\"}", "\"" + std::string(100000, 'x')}) {
    const auto spec = parse_run_spec(text);
    ASSERT_FALSE(spec) << text.substr(0, 80);
    EXPECT_LT(spec.error().message.size(), 300u);
  }
}

TEST(RunSpecText, a_stage_of_more_tensors_than_a_message_names_is_refused) {
  // 12 tensors a layer, and 4 of embedding and final norm: 2730 layers have 32764, one more 32776;
  // 32768 are allowed.
  const auto with_layers = [](int layers) {
    const RunSpec spec = fixtures::spec_of({.layers = {layers}, .micro_batches = {2}},
                                           {1, 161, 16, 8}, {2, 81, 16, 8});
    return error_of(Json::parse(run_spec_text(spec)));
  };
  EXPECT_EQ(with_layers(2730), "");
  EXPECT_NE(with_layers(2731).find("more tensors in a stage"), std::string::npos);
}

// ---- questions

TEST(RunQuestions, a_piece_of_a_file_is_read_back) {
  const auto piece = parse_file_piece(
      "file folder=term-000001-step-000000100 name=h.0.safetensors offset=18446744073709551615");
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->folder, "term-000001-step-000000100");
  EXPECT_EQ(piece->name, "h.0.safetensors");
  EXPECT_EQ(piece->offset, 18446744073709551615u);
}

TEST(RunQuestions, malformed_pieces_are_no_questions) {
  for (const char* text :
       {"", "file", "files folder=a name=b offset=0", "file folder=a", "file folder=a name=b",
        "file name=b folder=a offset=0", "file folder=a name=b offset=",
        "file folder=a name=b offset=-1", "file folder=a name=b offset=01",
        "file folder=a name=b offset=18446744073709551616", "file folder=a name=b offset=0 more",
        "file folder=a name=b c offset=0", " file folder=a name=b offset=0",
        "file  folder=a name=b offset=0", "file folder=a  name=b offset=0"}) {
    EXPECT_FALSE(parse_file_piece(text)) << text;
  }
}

TEST(RunQuestions, sequences_are_read_back) {
  const auto wanted = parse_wanted_sequences("sequences part=validation numbers=17,4,0");
  ASSERT_TRUE(wanted);
  EXPECT_EQ(wanted->part, DataPart::kValidation);
  EXPECT_EQ(wanted->numbers, (std::vector<std::int64_t>{17, 4, 0}));
  const auto largest = parse_wanted_sequences("sequences part=train numbers=4611686018427387904");
  ASSERT_TRUE(largest);
  EXPECT_EQ(largest->part, DataPart::kTrain);
}

TEST(RunQuestions, malformed_sequences_are_no_questions) {
  for (const char* text :
       {"", "sequences", "sequences part=test numbers=1", "sequences part=train",
        "sequences part=train numbers=", "sequences part=train numbers=,",
        "sequences part=train numbers=1,", "sequences part=train numbers=,1",
        "sequences part=train numbers=1,,2", "sequences part=train numbers=1, 2",
        "sequences part=train numbers=-1", "sequences part=train numbers=01",
        "sequences part=train numbers=1.5", "sequences part=train numbers=4611686018427387905",
        "sequences part=train  numbers=1", "Sequences part=train numbers=1"}) {
    EXPECT_FALSE(parse_wanted_sequences(text)) << text;
  }
}

// ---- files, on both sides of the Storage door

class ServedFiles : public fixtures::StorageSides {
 protected:
  void SetUp() override {
    StorageSides::SetUp();
    ASSERT_TRUE(make_folders(*storage_, root() + "/" + kFolder));
    ASSERT_TRUE(write_file(*storage_, folder_ + "/secret", "0123456789"));
    ASSERT_TRUE(write_file(*storage_, root() + "/secret", "0123456789"));
    ASSERT_TRUE(write_file(*storage_, root() + "/" + kFolder + "/head", "0123456789"));
    ASSERT_TRUE(write_file(*storage_, root() + "/" + kFolder + "/.hidden", "0123456789"));
  }
  std::string root() const { return checkpoints_root(folder_); }
  std::string read(const FilePiece& piece, std::size_t bytes) {
    const auto read = read_file_piece(*storage_, root(), piece, bytes);
    return read ? text_of(*read) : "error: " + read.error().message;
  }

  const std::string kFolder = "term-000001-step-000000100";
};

INSTANTIATE_TEST_SUITE_P(Sides, ServedFiles, testing::Bool(),
                         [](const auto& param) { return param.param ? "real" : "simulated"; });

TEST_P(ServedFiles, pieces_inside_a_file_are_answered) {
  EXPECT_EQ(read({kFolder, "head", 0}, 10), "0123456789");
  EXPECT_EQ(read({kFolder, "head", 7}, 3), "789");
  EXPECT_EQ(read({kFolder, "head", 10}, 0), "");
}

TEST_P(ServedFiles, pieces_beyond_the_end_are_refused_before_memory_is_taken) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  const std::string answer = "error: head has only 10 bytes";
  EXPECT_EQ(read({kFolder, "head", 0}, 11), answer);
  EXPECT_EQ(read({kFolder, "head", 7}, 4), answer);
  EXPECT_EQ(read({kFolder, "head", 11}, 0), answer);
  EXPECT_EQ(read({kFolder, "head", kMost}, 2), answer);  // the sum is 1 in 64 bits
  EXPECT_EQ(read({kFolder, "head", 0}, std::size_t{1} << 60), answer);
}

TEST_P(ServedFiles, no_name_leads_out_of_a_checkpoint) {
  const std::string answer = "error: no file of a checkpoint";
  const std::pair<std::string, std::string> tricks[] = {
      {kFolder, "../secret"},
      {kFolder, "../../secret"},
      {kFolder, folder_ + "/secret"},
      {kFolder, "/etc/passwd"},
      {kFolder, "./head"},
      {kFolder, "head/"},
      {kFolder, "."},
      {kFolder, ".."},
      {kFolder, ".hidden"},
      {"..", "secret"},
      {".", "secret"},
      {"", "secret"},
      {"/", "secret"},
      {folder_, "secret"},
      {kFolder + "/..", "secret"},
      {kFolder + "/../..", "secret"},
      {"../" + kFolder, "head"},
      {kFolder + "/", "head"},
      {"term-1-step-100", "head"},  // only the one spelling
      {"term-000001-step-268435456", "head"},
  };
  for (const auto& [folder, name] : tricks) {
    EXPECT_EQ(read({folder, name, 0}, 1), answer) << folder << " " << name;
  }
}

TEST_P(ServedFiles, what_is_not_there_is_an_error) {
  EXPECT_TRUE(read({kFolder, "tail", 0}, 1).starts_with("error: "));
  EXPECT_TRUE(read({kFolder, "", 0}, 1).starts_with("error: "));
  EXPECT_TRUE(read({"term-000002-step-000000100", "head", 0}, 1).starts_with("error: "));
}

// ---- sequences

std::string served(SequenceSource* source, std::vector<std::int64_t> numbers) {
  std::string text = "no answer";
  serve_sequences(source, {DataPart::kTrain, std::move(numbers)},
                  [&](Result<std::vector<std::byte>> answer) {
                    text = answer ? text_of(*answer) : "error: " + answer.error().message;
                  });
  return text;
}

TEST(ServedSequences, are_tokens_and_their_targets) {
  MemorySequences source({0, 1, 2, 3, 4, 5, 6}, 3);  // two sequences: 0 1 2 (3), 3 4 5 (6)
  const std::vector<Token> expected = {3, 4, 5, 6, 0, 1, 2, 3};
  const auto bytes = std::as_bytes(std::span(expected));
  EXPECT_EQ(served(&source, {1, 0}), text_of({bytes.begin(), bytes.end()}));
}

TEST(ServedSequences, outside_the_data_are_refused) {
  MemorySequences source({0, 1, 2, 3, 4, 5, 6}, 3);
  EXPECT_EQ(served(&source, {0, 2}), "error: no such sequence");
  EXPECT_EQ(served(&source, {std::int64_t{1} << 62}), "error: no such sequence");
  EXPECT_EQ(served(nullptr, {0}), "error: the data is not here");
}

TEST(ServedSequences, a_short_question_cannot_cost_much_memory) {
  // Of 2^20 - 1 tokens and a target, 4 MiB a sequence: 16 are the 64 MiB of the longest answer.
  class Counted final : public SequenceSource {
   public:
    const DataIdentity& identity() const override { return identity_; }
    void fetch(std::vector<std::int64_t> sequences, Completion done) override {
      fetched += sequences.size();
      done(std::vector<Token>());
    }
    std::size_t fetched = 0;

   private:
    DataIdentity identity_ = {1, std::int64_t{1} << 40, 16, (1 << 20) - 1};
  } source;
  EXPECT_EQ(served(&source, std::vector<std::int64_t>(16, 0)), "");
  EXPECT_EQ(source.fetched, 16u);
  EXPECT_EQ(served(&source, std::vector<std::int64_t>(17, 0)),
            "error: that many sequences are asked for in pieces");
  EXPECT_EQ(source.fetched, 16u);
}

// ---- on both sides of the Transport door

template <class World>
class Questions : public testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<MeshRequests> requests;
    std::vector<std::string> others;  // texts that were no message of ours
    int told = 0;                     // messages
  };

  void start(int count) {
    world_.connect(count);
    ranks_.resize(static_cast<std::size_t>(count));
    for (int r = 0; r < count; ++r) {
      Rank& rank = ranks_[static_cast<std::size_t>(r)];
      rank.requests = std::make_unique<MeshRequests>(world_.mesh(r), nullptr);
      world_.mesh(r).on_control([&rank](int peer, const std::string& text) {
        if (!rank.requests->received(peer, text)) rank.others.push_back(text);
        ++rank.told;
      });
      world_.mesh(r).on_lost(
          [&rank](int peer, const Error& why) { rank.requests->lost(peer, why); });
    }
  }
  void serve(int rank, MeshRequests::Serve with) {
    auto& requests = ranks_[static_cast<std::size_t>(rank)].requests;
    requests = std::make_unique<MeshRequests>(world_.mesh(rank), std::move(with));
  }
  /// The answer comes into the list.
  std::shared_ptr<std::vector<std::string>> ask(int from, int to, const std::string& what,
                                                std::size_t bytes) {
    auto answers = std::make_shared<std::vector<std::string>>();  // owners: the test, the question
    requests(from).ask(to, what, bytes, [answers](Result<std::vector<std::byte>> answer) {
      answers->push_back(answer ? text_of(*answer) : "error: " + answer.error().message);
    });
    return answers;
  }
  std::string answer_to(int from, int to, const std::string& what, std::size_t bytes) {
    const auto answers = ask(from, to, what, bytes);
    world_.run_until([&] { return !answers->empty(); });
    return answers->empty() ? "no answer" : answers->front();
  }
  MeshRequests& requests(int rank) { return *ranks_[static_cast<std::size_t>(rank)].requests; }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  World world_;
  std::vector<Rank> ranks_;
};
using Worlds = testing::Types<fixtures::SimMeshWorld, fixtures::AsioMeshWorld>;
TYPED_TEST_SUITE(Questions, Worlds);

TYPED_TEST(Questions, are_answered_with_the_bytes_that_were_asked_for) {
  this->start(2);
  this->serve(1, [](const std::string& what, std::size_t bytes, MeshRequests::Answer answer) {
    answer(bytes_of(what + ":" + std::to_string(bytes)));
  });
  EXPECT_EQ(this->answer_to(0, 1, "the sky", 9), "the sky:9");
  EXPECT_EQ(this->answer_to(0, 1, "a  b ", 7), "a  b :7");
}

TYPED_TEST(Questions, with_an_empty_answer_are_answered) {
  this->start(2);
  this->serve(1, [](const std::string&, std::size_t, MeshRequests::Answer answer) {
    answer(std::vector<std::byte>());
  });
  EXPECT_EQ(this->answer_to(0, 1, "nothing", 0), "");
}

TYPED_TEST(Questions, for_at_most_so_much_are_answered_with_less_and_not_with_more) {
  this->start(2);
  this->serve(1, [](const std::string& what, std::size_t, MeshRequests::Answer answer) {
    answer(bytes_of(what));
  });
  for (const std::string& what : {std::string("1234"), std::string("12"), std::string()}) {
    std::optional<std::string> got;
    this->requests(0).ask_at_most(1, what, 4, [&](Result<std::vector<std::byte>> answer) {
      got = answer ? text_of(*answer) : answer.error().message;
    });
    this->world_.run_until([&] { return got.has_value(); });
    EXPECT_EQ(got, what);
  }
  std::string refusal;
  this->requests(0).ask_at_most(1, "12345", 4, [&](Result<std::vector<std::byte>> answer) {
    refusal = answer ? "an answer" : answer.error().message;
  });
  this->world_.run_until([&] { return !refusal.empty(); });
  EXPECT_EQ(refusal, "rank 1 has not what is wanted: it has 5 bytes, not 4");
}

TYPED_TEST(Questions, may_be_answered_in_any_order) {
  this->start(2);
  std::vector<MeshRequests::Answer> waiting;
  this->serve(1, [&](const std::string&, std::size_t, MeshRequests::Answer answer) {
    waiting.push_back(std::move(answer));
  });
  const auto first = this->ask(0, 1, "first", 1);
  const auto second = this->ask(0, 1, "second", 1);
  this->world_.run_until([&] { return waiting.size() == 2; });
  waiting[1](bytes_of("2"));
  this->world_.run_until([&] { return !second->empty(); });
  EXPECT_TRUE(first->empty());
  waiting[0](bytes_of("1"));
  this->world_.run_until([&] { return !first->empty(); });
  EXPECT_EQ(first->front() + second->front(), "12");
}

TYPED_TEST(Questions, that_cannot_be_answered_fail_with_the_reason) {
  this->start(2);
  EXPECT_EQ(this->answer_to(0, 1, "x", 4),
            "error: rank 1 has not what is wanted: nothing is served here");
  this->serve(1, [](const std::string& what, std::size_t, MeshRequests::Answer answer) {
    if (what == "short") return answer(bytes_of("abc"));
    if (what == "long") return answer(bytes_of("abcde"));
    answer(failed(what == "why" ? std::string(1 << 21, 'y') : "it is gone"));
  });
  EXPECT_EQ(this->answer_to(0, 1, "x", 4), "error: rank 1 has not what is wanted: it is gone");
  EXPECT_EQ(this->answer_to(0, 1, "short", 4),
            "error: rank 1 has not what is wanted: it has 3 bytes, not 4");
  EXPECT_EQ(this->answer_to(0, 1, "long", 4),
            "error: rank 1 has not what is wanted: it has 5 bytes, not 4");
  // A reason as long as this one would not fit a message.
  EXPECT_LT(this->answer_to(0, 1, "why", 4).size(), 5000u);
}

TYPED_TEST(Questions, to_a_lost_rank_fail_and_others_stay_open) {
  this->start(3);
  MeshRequests::Answer kept;
  const auto never = [](const std::string&, std::size_t, MeshRequests::Answer) {};
  this->serve(1, never);
  this->serve(2, [&](const std::string&, std::size_t, MeshRequests::Answer answer) {
    kept = std::move(answer);
  });
  const auto of_lost = this->ask(0, 1, "x", 4);
  const auto of_lost_too = this->ask(0, 1, "y", 4);
  const auto of_other = this->ask(0, 2, "x", 4);
  this->world_.run_until([&] { return kept != nullptr; });
  this->at(1).requests = nullptr;
  this->world_.meshes[1] = nullptr;
  this->world_.run_until([&] { return !of_lost->empty() && !of_lost_too->empty(); });
  EXPECT_NE(of_lost->front().find("the peer closed the connection"), std::string::npos)
      << of_lost->front();
  EXPECT_EQ(of_lost->size() + of_lost_too->size(), 2u);
  EXPECT_TRUE(of_other->empty());
  kept(bytes_of("four"));
  this->world_.run_until([&] { return !of_other->empty(); });
  EXPECT_EQ(of_other->front(), "four");
}

TYPED_TEST(Questions, are_not_refused_by_a_rank_that_was_not_asked) {
  this->start(3);
  MeshRequests::Answer kept;
  this->serve(1, [&](const std::string&, std::size_t, MeshRequests::Answer answer) {
    kept = std::move(answer);
  });
  const auto answers = this->ask(0, 1, "x", 4);  // of id 0
  this->world_.run_until([&] { return kept != nullptr; });
  this->world_.mesh(2).send_control(0, "LHQ1 no id=0 I say so");
  this->world_.mesh(1).send_control(0, "LHQ1 no id=1 there is no such question");
  this->world_.run_until([&] { return this->at(0).told == 2; });
  EXPECT_TRUE(answers->empty());
  kept(bytes_of("four"));
  this->world_.run_until([&] { return !answers->empty(); });
  EXPECT_EQ(*answers, std::vector<std::string>{"four"});
}

TYPED_TEST(Questions, answers_that_come_after_the_end_of_either_side_are_dropped) {
  this->start(2);
  MeshRequests::Answer kept;
  const auto keep = [&](const std::string&, std::size_t, MeshRequests::Answer answer) {
    kept = std::move(answer);
  };
  this->serve(1, keep);
  const auto answers = this->ask(0, 1, "x", 4);
  this->world_.run_until([&] { return kept != nullptr; });
  this->serve(1, keep);  // the one that was asked is gone
  kept(bytes_of("four"));
  // The next question has an answer, and it is not that one.
  kept = nullptr;
  const auto second = this->ask(0, 1, "y", 5);
  this->world_.run_until([&] { return kept != nullptr; });
  this->serve(0, nullptr);  // and now the asker is gone
  kept(bytes_of("fiver"));
  this->world_.mesh(1).send_control(0, "the end");
  this->world_.run_until([&] { return this->at(0).told == 1; });
  EXPECT_TRUE(answers->empty());
  EXPECT_TRUE(second->empty());
}

TYPED_TEST(Questions, malformed_texts_are_left_to_others) {
  this->start(2);
  int served = 0;
  this->serve(1, [&](const std::string&, std::size_t, MeshRequests::Answer) { ++served; });
  const std::vector<std::string> texts = {
      "",
      "LHC1 ping number=1",
      "LHQ1",
      "LHQ2 want id=1 bytes=4 x",
      "LHQ1 want",
      "LHQ1 want id=1",
      "LHQ1 want id=1 bytes=4",  // and nothing that is wanted
      "LHQ1 want bytes=4 id=1 x",
      "LHQ1 want id= bytes=4 x",
      "LHQ1 want id=01 bytes=4 x",
      "LHQ1 want id=-1 bytes=4 x",
      "LHQ1 want id=268435456 bytes=4 x",  // of 28 bits
      "LHQ1 want id=1 bytes=67108865 x",   // of 64 MiB
      "LHQ1 want id=1  bytes=4 x",
      "LHQ1 no",
      "LHQ1 no id=1",
      "LHQ1 no id=x y",
      "LHQ1 no id=268435456 y",
  };
  for (const std::string& text : texts) this->world_.mesh(0).send_control(1, text);
  this->world_.run_until([&] { return this->at(1).told == static_cast<int>(texts.size()); });
  EXPECT_EQ(this->at(1).others, texts);
  EXPECT_EQ(served, 0);
  EXPECT_TRUE(this->requests(1).received(0, "LHQ1 want id=268435455 bytes=67108864 x"));
  EXPECT_TRUE(this->requests(1).received(0, "LHQ1 no id=268435455 y"));
  EXPECT_EQ(served, 1);
}

TYPED_TEST(Questions, sequences_of_another_rank_are_those_of_its_data) {
  MemorySequences source({0, 1, 2, 3, 4, 5, 6}, 3);
  this->start(2);
  this->serve(1, [&](const std::string& what, std::size_t, MeshRequests::Answer answer) {
    const auto wanted = parse_wanted_sequences(what);
    ASSERT_TRUE(wanted);
    serve_sequences(&source, *wanted, std::move(answer));
  });
  RemoteSequences remote(this->requests(0), 1, DataPart::kTrain, source.identity());
  std::optional<Result<std::vector<Token>>> got;
  remote.fetch({1, 0}, [&](Result<std::vector<Token>> tokens) { got = std::move(tokens); });
  this->world_.run_until([&] { return got.has_value(); });
  ASSERT_TRUE(*got) << got->error().message;
  EXPECT_EQ(**got, (std::vector<Token>{3, 4, 5, 6, 0, 1, 2, 3}));
}

TYPED_TEST(Questions, a_token_outside_the_vocabulary_is_refused) {
  this->start(2);
  Token last = 15;
  this->serve(1, [&](const std::string&, std::size_t, MeshRequests::Answer answer) {
    const Token tokens[] = {0, 1, 2, last};
    const auto bytes = std::as_bytes(std::span(tokens));
    answer(std::vector<std::byte>(bytes.begin(), bytes.end()));
  });
  RemoteSequences remote(this->requests(0), 1, DataPart::kTrain, {1, 100, 16, 3});
  for (const Token token : {15, 16, -1}) {
    last = token;
    std::optional<Result<std::vector<Token>>> got;
    remote.fetch({0}, [&](Result<std::vector<Token>> tokens) { got = std::move(tokens); });
    this->world_.run_until([&] { return got.has_value(); });
    EXPECT_EQ(got->has_value(), token == 15) << token;
    if (!*got) {
      EXPECT_EQ(got->error().message, "rank 1 sent what is no token");
    }
  }
}

// ---- tokens of steps

TEST(RunTokens, those_of_all_steps_before_one_are_their_sum) {
  // Batches of 5: more, as many, fewer than the data has, and with and without a partial last row.
  for (const std::int64_t sequences : {1, 4, 5, 6, 10, 13}) {
    const DataIdentity data = {1, sequences * 8 + 1, 16, 8};
    const RunSpec spec = fixtures::spec_of({.micro_batches = {3, 2}}, data, data);
    double sum = 0;
    for (std::uint64_t step = 0; step < 12; ++step) {
      EXPECT_EQ(targets_before(spec, step), sum) << sequences << " sequences, step " << step;
      sum += targets_of_step(spec, step);
    }
  }
}

}  // namespace
}  // namespace longhaul
