// `longhaul profile`: the fit by hand, what is measured, and a device file that clusters can name.
// No assertion is about speed.

#include "tools/profile.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "core/config_cursor.h"
#include "core/job.h"
#include "netsim/cluster_file.h"
#include "netsim/device_file.h"
#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTinyJob = R"(schema: longhaul/job/1
name: tiny
model: {family: gpt2, layers: 2, width: 16, heads: 2, context: 8, vocabulary: 32}
batch: {global: 4, micro_batch: auto}
precision: fp32
)";

PassTime pass(double flops, double seconds) {
  return {PassKind::kForward, {1, false, false}, 1, Flops(flops), 0, Seconds(seconds), 1};
}
PassTime update(double parameters, double seconds) {
  return {PassKind::kUpdate, {1, false, false}, 0, Flops(0), parameters, Seconds(seconds), 1};
}

TEST(ProfileFit, a_line_is_found_again) {
  // 1 GFLOP/s and 1 ms: 1, 3 and 9 MFLOP take 2, 4 and 10 ms. 1e6 parameters, 28e6 bytes, in 4 ms
  // are 7 GB/s.
  const DeviceKind device = fit_device(
      std::vector{pass(1e6, 2e-3), pass(3e6, 4e-3), pass(9e6, 10e-3), update(1e6, 4e-3)});
  EXPECT_NEAR(device.rate_at(Precision::kFp32).value(), 1e9, 1);
  EXPECT_NEAR(device.overhead.value(), 1e-3, 1e-12);
  EXPECT_NEAR(device.memory_rate.value(), 7e9, 1);
  EXPECT_NEAR(fitted_time(device, pass(5e6, 1)).value(), 6e-3, 1e-9);
  EXPECT_NEAR(fitted_time(device, update(2e6, 1)).value(), 8e-3, 1e-9);
}

TEST(ProfileFit, an_overhead_is_never_negative) {
  // The larger pass is the more efficient: 1 MFLOP in 2 ms, 4 in 4 would be 1.33 ms at 0 FLOP and
  // is kept; 1 in 1 ms and 4 in 6 ms meet 0 FLOP at -0.67 ms. Then rate = sum xx / sum x with x =
  // FLOP / s of 1e9 and 2/3e9: (1 + 4/9) / (1 + 2/3) = 13/15 GFLOP/s.
  const DeviceKind kept = fit_device(std::vector{pass(1e6, 2e-3), pass(4e6, 4e-3), update(1, 1)});
  EXPECT_NEAR(kept.overhead.value(), 4e-3 / 3, 1e-12);
  const DeviceKind zero = fit_device(std::vector{pass(1e6, 1e-3), pass(4e6, 6e-3), update(1, 1)});
  EXPECT_EQ(zero.overhead.value(), 0);
  EXPECT_NEAR(zero.rate_at(Precision::kFp32).value(), 13e9 / 15, 1);
}

TEST(ProfileFit, passes_of_one_size_have_no_overhead) {
  const DeviceKind device = fit_device(std::vector{pass(1e6, 1e-3), pass(1e6, 1e-3), update(1, 1)});
  EXPECT_EQ(device.overhead.value(), 0);
  EXPECT_NEAR(device.rate_at(Precision::kFp32).value(), 1e9, 1);
}

ModelShape tiny_model() {
  const Result<Job> job = parse_job(kTinyJob, "job.yaml");
  EXPECT_TRUE(job) << job.error().text();
  return job->model;
}

TEST(ProfileMeasure, every_size_is_measured_where_there_is_time) {
  const ModelShape model = tiny_model();
  int rounds = 0;
  ProfileOptions options;
  options.budget = Seconds(60);
  options.should_stop = [&] { return rounds == 3; };  // rounds, so that no clock decides
  options.on_round = [&](int round, std::size_t passes) {
    rounds = round;
    EXPECT_EQ(passes, 21u);
  };
  const Result<std::vector<PassTime>> measured = measure_passes(model, options);
  ASSERT_TRUE(measured) << measured.error().text();
  // One layer, one with the head, two: forward and backward at 1, 2 and 4 sequences, and an update.
  ASSERT_EQ(measured->size(), 21u);
  int updates = 0;
  for (const PassTime& at : *measured) {
    EXPECT_GT(at.time.value(), 0);
    EXPECT_EQ(at.repeats, 2);  // of three rounds, the first warms up
    EXPECT_EQ(at.parameters, stage_parameters(model, at.stage));
    if (at.kind == PassKind::kUpdate) ++updates;
    if (at.kind == PassKind::kForward) {
      EXPECT_EQ(at.work.value(), stage_work(model, at.stage, at.micro_batch).forward.value());
    }
  }
  EXPECT_EQ(updates, 3);
}

TEST(ProfileMeasure, the_smallest_is_measured_whatever_the_budget) {
  ProfileOptions options;
  options.budget = Seconds(0);
  const Result<std::vector<PassTime>> measured = measure_passes(tiny_model(), options);
  ASSERT_TRUE(measured) << measured.error().text();
  ASSERT_EQ(measured->size(), 3u);  // forward, backward and update of a layer
  for (const PassTime& at : *measured) EXPECT_EQ(at.repeats, 1);
  EXPECT_GT(fit_device(*measured).rate_at(Precision::kFp32).value(), 0);
}

TEST(ProfileMeasure, the_rate_is_that_of_the_precision_asked_for) {
  ProfileOptions options;
  options.budget = Seconds(0);
  options.precision = Precision::kBf16;
  const Result<std::vector<PassTime>> measured = measure_passes(tiny_model(), options);
  ASSERT_TRUE(measured) << measured.error().text();
  const DeviceKind device = fit_device(*measured);
  EXPECT_GT(device.rate_at(Precision::kBf16).value(), 0);
  EXPECT_EQ(device.rate_at(Precision::kFp32).value(), 0);
  EXPECT_LT(fitted_time(device, measured->front()), Seconds(1e6)) << "priced by its own rate";
  EXPECT_TRUE(device_text(device).contains("peak: {bf16: ")) << device_text(device);
}

TEST(ProfileMeasure, what_is_stopped_at_once_measures_nothing) {
  ProfileOptions options;
  options.budget = Seconds(60);
  options.should_stop = [] { return true; };
  const Result<std::vector<PassTime>> measured = measure_passes(tiny_model(), options);
  ASSERT_TRUE(measured) << measured.error().text();
  EXPECT_TRUE(measured->empty());
}

TEST(ProfileMeasure, a_layer_too_large_for_the_machine_is_refused) {
  ModelShape model = tiny_model();
  model.heads = 1;
  model.kv_heads = 1;
  model.width = 1 << 20;  // 12 TiB of weights
  model.head_width = model.width;
  model.ffn_width = 4 * model.width;
  const Result<std::vector<PassTime>> measured = measure_passes(model, {});
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code, ErrorCode::kInfeasible);
  EXPECT_TRUE(measured.error().message.contains("more than half of this machine's"));
}

TEST(ProfileText, a_device_reads_back_as_it_was_written) {
  DeviceKind device;
  device.name = "odd: name";
  device.title = "one core of \"X\" # 1";
  device.memory = gibibytes(4);
  device.reserved = gibibytes(0.25);
  device.rate[static_cast<std::size_t>(Precision::kFp32)] = FlopsPerSecond(61.5e9);
  device.overhead = microseconds(12.5);
  device.memory_rate = BytesPerSecond(9.25e9);
  device.source = "a test: of text";
  Result<ConfigFile> file = ConfigFile::parse(device_text(device), "d.yaml");
  ASSERT_TRUE(file);
  const Result<DeviceKind> read = read_device_kind(*file);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->name, device.name);
  EXPECT_EQ(read->title, device.title);
  EXPECT_EQ(read->memory, device.memory);
  EXPECT_EQ(read->reserved, device.reserved);
  EXPECT_NEAR(read->rate_at(Precision::kFp32).value(), 61.5e9, 1);
  EXPECT_EQ(read->rate_at(Precision::kFp16), FlopsPerSecond(0));
  EXPECT_NEAR(read->overhead.value(), 12.5e-6, 1e-15);
  EXPECT_NEAR(read->memory_rate.value(), 9.25e9, 1);
  EXPECT_EQ(read->origin, Origin::kMeasured);
  EXPECT_EQ(read->source, device.source);
}

TEST(CliProfile, writes_a_device_that_a_cluster_can_name) {
  const TemporaryFolder folder;
  folder.write("job.yaml", kTinyJob);
  const RunResult run = run_longhaul(
      {"profile", "--job", "job.yaml", "--time", "0.1s", "-o", "mine.yaml"}, folder.path());
  ASSERT_EQ(run.status, 0) << run.err;
  for (const std::string part :
       {"backward", "update", "measured", "fitted", "off", "device mine.yaml"}) {
    EXPECT_TRUE(run.out.contains(part)) << part << "\n" << run.out;
  }
  EXPECT_TRUE(run.err.contains("profiling one core on layers of tiny")) << run.err;
  const Result<Topology> topology = parse_cluster(
      "schema: longhaul/cluster/1\nname: c\ndevice_files: {mine: mine.yaml}\n"
      "sites: [{name: a, nodes: [{devices: 2xmine}]}]\nnetwork: {}\n",
      "c.yaml", folder.path());
  ASSERT_TRUE(topology) << topology.error().text();
  const DeviceKind& kind = topology->kind_of(0);
  EXPECT_EQ(kind.name, "mine");
  EXPECT_EQ(kind.origin, Origin::kMeasured);
  EXPECT_GT(kind.rate_at(Precision::kFp32).value(), 0);
  EXPECT_TRUE(kind.source.contains("longhaul profile on layers of tiny")) << kind.source;
}

TEST(CliProfile, a_llama_is_measured_as_one) {
  const TemporaryFolder folder;
  folder.write("job.yaml", edited(kTinyJob, "gpt2, ", "llama, ffn_width: 24, kv_heads: 1, "));
  const RunResult run = run_longhaul(
      {"profile", "--job", "job.yaml", "--time", "0s", "-o", "mine.yaml"}, folder.path());
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(read_text(folder / "mine.yaml").contains("on layers of tiny"));
}

TEST(CliProfile, the_precision_is_the_jobs_unless_given) {
  const TemporaryFolder folder;
  folder.write("job.yaml", edited(kTinyJob, "fp32", "bf16"));
  const auto profile = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"profile", "--job", "job.yaml", "--time", "0s"};
    words.insert(words.end(), more.begin(), more.end());
    return run_longhaul(words, folder.path());
  };
  EXPECT_TRUE(profile({}).out.contains(" in bf16, "));
  EXPECT_TRUE(profile({"--precision", "fp32"}).out.contains(" in fp32, "));
  EXPECT_EQ(profile({"--precision", "fp16"}).status, 2);
  folder.write("job.yaml", edited(kTinyJob, "fp32", "fp16"));
  EXPECT_TRUE(profile({}).out.contains(" in fp32, ")) << "fp16 is not computed here";
}

TEST(CliProfile, the_model_of_no_job_is_the_demos) {
  const TemporaryFolder folder;
  const Result<Job> demo = load_job(LONGHAUL_SOURCE_DIR "/configs/jobs/demo-gpt.yaml");
  ASSERT_TRUE(demo) << demo.error().text();
  folder.write("job.yaml", read_text(LONGHAUL_SOURCE_DIR "/configs/jobs/demo-gpt.yaml"));
  const RunResult run = run_longhaul({"profile", "--time", "0s", "-o", "a.yaml"}, folder.path());
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(read_text(folder / "a.yaml").contains("on layers of demo-gpt: 3 passes"));
  EXPECT_EQ(demo_model().layers, demo->model.layers);
  EXPECT_EQ(demo_model().width, demo->model.width);
  EXPECT_EQ(demo_model().heads, demo->model.heads);
  EXPECT_EQ(demo_model().kv_heads, demo->model.kv_heads);
  EXPECT_EQ(demo_model().head_width, demo->model.head_width);
  EXPECT_EQ(demo_model().ffn_width, demo->model.ffn_width);
  EXPECT_EQ(demo_model().context, demo->model.context);
  EXPECT_EQ(demo_model().vocabulary, demo->model.vocabulary);
  EXPECT_EQ(demo_model().tied_embedding, demo->model.tied_embedding);
}

TEST(CliProfile, an_interrupt_leaves_no_file) {
  const TemporaryFolder folder;
  Process process({"profile", "--time", "1h", "-o", "a.yaml"}, folder.path());
  ASSERT_TRUE(process.wait_for_error_text("profiling one core"));
  process.send(SIGINT);
  const RunResult run = process.wait();
  EXPECT_EQ(run.status, 128 + SIGINT);
  EXPECT_TRUE(run.err.contains("no device file is written")) << run.err;
  EXPECT_FALSE(fs::exists(folder / "a.yaml"));
}

struct BadProfile {
  std::vector<std::string> arguments;
  std::string says;
};

TEST(CliProfile, wrong_command_lines_are_refused_before_anything_is_measured) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("odd.yaml",
               "schema: longhaul/job/1\nname: odd\n"
               "model: {family: llama, layers: 1, width: 15, heads: 3, ffn_width: 8, context: 8, "
               "vocabulary: 8}\n"
               "batch: {global: 1, micro_batch: 1}\nprecision: fp32\n");
  for (const BadProfile& bad : {
           BadProfile{{"profile", "--time", "10"}, "--time: `10` has no unit"},
           {{"profile", "-o", "8xmine.yaml"}, "`8xmine` cannot be the name of a device kind"},
           {{"profile", "--job", "absent.yaml"}, "absent.yaml"},
           {{"profile", "--job", "odd.yaml"}, "a head cannot be 5 wide"},
           {{"profile", "-o", "job.yaml/a.yaml"}, "cannot write"},
       }) {
    const RunResult run = run_longhaul(bad.arguments, folder.path());
    EXPECT_NE(run.status, 0) << bad.says;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.contains(bad.says)) << run.err;
  }
}

}  // namespace
}  // namespace longhaul
