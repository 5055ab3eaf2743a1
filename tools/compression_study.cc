#include "tools/compression_study.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "executor/checkpoint/model_source.h"
#include "executor/data/prepare.h"
#include "executor/run/file_transfer.h"
#include "executor/run/simulated_run.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

// 2.5 million parameters; micro-batches of 1,024 rows keep the kernels near their peak.
constexpr int kStages = 4, kLayers = 8, kBatch = 32, kMicroBatch = 8, kContext = 128;
constexpr const char* kModel =
    "{family: gpt2, layers: 8, width: 160, heads: 5, context: 128, vocabulary: 256}";
constexpr std::uint64_t kRunId = 7;
constexpr std::uint64_t kTextBytesMax = std::uint64_t{1} << 26;
/// The Jargon File begins with chapters about itself and lists of its entries.
constexpr std::size_t kJargonSkipped = 400'000;
/// Of the first text, which is only looked at as it is learned.
constexpr double kFirstValidation = 0.02;

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// `bytes` of a text from a line's start on.
Result<std::string> part_of_text(const std::string& path, std::size_t skipped, std::int64_t bytes) {
  RealStorage storage;
  Result<std::string> text = read_text(storage, path, kTextBytesMax);
  if (!text) {
    Error error = std::move(text).error();
    error.code = ErrorCode::kInvalid;
    error.hint = "tools/setup --compression fetches it";
    return std::unexpected(std::move(error));
  }
  const std::size_t begin = skipped == 0 ? 0 : text->find('\n', skipped) + 1;
  if (begin + static_cast<std::size_t>(bytes) > text->size()) {
    return invalid(fmt::format("{} has {} bytes, {} of them behind byte {} are needed", path,
                               text->size(), bytes, begin));
  }
  return text->substr(begin, static_cast<std::size_t>(bytes));
}

Result<Dataset> prepared(const std::string& text, const std::string& folder, double validation) {
  RealStorage storage;
  LH_TRY(make_folders(storage, folder));
  const std::string path = folder + ".txt";
  LH_TRY(write_file(storage, path, text));
  PrepareOptions options;
  options.inputs.paths = {path};
  options.folder = folder;
  options.validation = validation;
  return prepare_dataset(storage, options, *make_byte_tokenizer(),
                         [](const PrepareProgress&) { return true; });
}

DataIdentity identity_of(const DatasetPart& part, const Dataset& dataset) {
  return {part.fingerprint, part.tokens, dataset.vocabulary, kContext};
}

/// Both parts of a text, read anew for each run.
struct Sources {
  RealStorage storage;
  std::unique_ptr<SequenceSource> train, validation;
  static Result<std::unique_ptr<Sources>> open(const std::string& folder, const Dataset& dataset) {
    auto sources = std::make_unique<Sources>();
    const auto part = [&](const DatasetPart& of) {
      return open_local_sequences(sources->storage, shard_paths(folder, of), dataset.vocabulary,
                                  kContext);
    };
    LH_ASSIGN(sources->train, part(dataset.train));
    LH_ASSIGN(sources->validation, part(dataset.validation));
    return sources;
  }
};

/// Disks in memory, but for rank 0 where it is to keep something.
class Disks {
 public:
  explicit Disks(int ranks) : disks_(static_cast<std::size_t>(ranks)) {
    for (SimStorage& disk : disks_) disk.put("run/made", "");
  }
  SimStorage& of(int rank) { return disks_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<SimStorage> disks_;
};

/// Runs to the end. Devices take next to no time here: what is asked is what is learned.
Result<StudyRun> carry_out(const RunSpec& spec, Sources& sources,
                           std::function<SimulatedDisk(int)> disk,
                           const CompressionStudy::Progress& progress) {
  StudyRun outcome;
  const double begin = cpu_seconds();
  SimulatedRunOptions options;
  options.link = {milliseconds(1), BytesPerSecond(1e9)};
  options.times = [](int, std::uint64_t, std::size_t) { return milliseconds(1); };
  options.disk = std::move(disk);
  options.train = sources.train.get();
  options.validation = sources.validation.get();
  options.hooks.committed = [&](const JournalEntry& entry) {
    outcome.losses.push_back(entry.loss);
    if (progress) progress(entry.step + 1, spec.last_step, entry.loss);
  };
  options.hooks.validated = [&](std::uint64_t step, double loss) {
    outcome.validations.emplace_back(step, loss);
  };
  SimulatedRun run(spec, std::move(options));
  if (!run.run_until_ended(Seconds(1e7))) {
    if (const auto error = run.error()) return std::unexpected(*error);
    return failed("the run does not end");
  }
  if (!run.ending->ending.clean()) return failed(run.ending->ending.text());
  if (run.ending->checkpoint_error) return std::unexpected(*run.ending->checkpoint_error);
  outcome.cpu_s = cpu_seconds() - begin;
  return outcome;
}

std::string job_head(const std::string& name, const std::string& compression) {
  return fmt::format(
      "schema: longhaul/job/1\nname: {}\nmodel: {}\nbatch: {{global: {}, micro_batch: {}}}\n"
      "precision: fp32\ncompression: {{{}}}\n",
      name, kModel, kBatch, kMicroBatch, compression);
}

std::uint64_t steps_in_epoch(const DataIdentity& train) {
  return static_cast<std::uint64_t>((train.sequences() + kBatch - 1) / kBatch);
}

}  // namespace

StudySize StudySize::whole() {
  return {.pretrain_tokens = 2'500'000,
          .fine_tune_tokens = 400'000,
          .validation_tokens = 50'000,
          .rate_max = 1e-3};
}

StudySize StudySize::quick() {
  return {.pretrain_tokens = 125'000,
          .fine_tune_tokens = 20'000,
          .validation_tokens = 5'000,
          .rate_max = 1e-3};
}

std::string study_run_text(const std::string& key, const std::string& name, const StudyRun& run) {
  Json json = {{"key", key}, {"name", name}, {"cpu_s", run.cpu_s}, {"losses", run.losses}};
  json["validations"] = run.validations;
  return json.dump();
}

std::optional<KeptStudyRun> parse_study_run(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    KeptStudyRun kept;
    kept.key = json.at("key").get<std::string>();
    kept.run.cpu_s = json.at("cpu_s").get<double>();
    kept.run.losses = json.at("losses").get<std::vector<double>>();
    kept.run.validations =
        json.at("validations").get<std::vector<std::pair<std::uint64_t, double>>>();
    return kept;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string study_key(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += fmt::format("{}:{}\n", part.size(), part);
  return ContentHash::of(std::as_bytes(std::span(all))).text().substr(0, 16);
}

// ---- data

Result<CompressionStudy> CompressionStudy::open(const std::string& folder, const std::string& texts,
                                                const StudySize& size) {
  CompressionStudy study;
  study.folder_ = folder;
  study.size_ = size;
  RealStorage storage;
  LH_TRY(make_folders(storage, folder));
  const auto first_bytes =
      static_cast<std::int64_t>(static_cast<double>(size.pretrain_tokens) / (1 - kFirstValidation));
  LH_ASSIGN(const std::string first, part_of_text(texts + "/bible.txt", 0, first_bytes));
  const std::int64_t second_bytes = size.fine_tune_tokens + size.validation_tokens;
  LH_ASSIGN(const std::string second,
            part_of_text(texts + "/jargon.txt", kJargonSkipped, second_bytes));
  study.first_.folder = folder + "/bible";
  LH_ASSIGN(study.first_.dataset, prepared(first, study.first_.folder, kFirstValidation));
  study.second_.folder = folder + "/jargon";
  LH_ASSIGN(study.second_.dataset, prepared(second, study.second_.folder,
                                            static_cast<double>(size.validation_tokens) /
                                                static_cast<double>(second_bytes)));
  LH_ASSIGN(const std::string program,
            read_text(storage, "/proc/self/exe", std::uint64_t{1} << 30));
  study.program_ = study_key({program});
  return study;
}

std::uint64_t CompressionStudy::steps_per_epoch() const {
  return steps_in_epoch(identity_of(second_.dataset.train, second_.dataset));
}

double CompressionStudy::tokens_per_step() const {
  return double{kBatch} * kContext;
}

Result<RunSpec> CompressionStudy::spec_of(const std::string& job_text, const Text& text,
                                          int pipelines) const {
  RunSpec spec;
  spec.id = kRunId;
  spec.job_text = job_text;
  LH_ASSIGN(spec.job, parse_job(job_text, "job"));
  spec.plan.layers.assign(kStages, kLayers / kStages);
  spec.plan.micro_batch = kMicroBatch;
  spec.plan.micro_batches.assign(static_cast<std::size_t>(pipelines),
                                 kBatch / kMicroBatch / pipelines);
  spec.plan.devices.assign(static_cast<std::size_t>(pipelines), std::vector<int>(kStages, 0));
  spec.plan.in_flight =
      default_in_flight(spec.plan.family, kStages, spec.plan.micro_batches.front());
  spec.ranks.push_back({"coordinator", "coordinator", 0});
  for (int cell = 0; cell < spec.cells(); ++cell) {  // each on a site of its own
    const std::string node = fmt::format("n{}", cell);
    spec.ranks.push_back({node + "/0", node, cell});
  }
  spec.train = identity_of(text.dataset.train, text.dataset);
  spec.validation = identity_of(text.dataset.validation, text.dataset);
  spec.last_step = spec.job.training->steps;
  spec.limits.step_deadline = Seconds(1e6);
  LH_TRY(check_runnable(spec.job, spec.plan));
  return spec;
}

// ---- the pre-trained state

std::string CompressionStudy::pretrain_job() const {
  const std::uint64_t steps = steps_in_epoch(identity_of(first_.dataset.train, first_.dataset));
  return job_head("bible", "activations: none, gradients: none") +
         fmt::format(
             "training:\n  data: data\n  seed: 1\n  steps: {}\n"
             "  learning_rate: {{max: 2e-3, min: 2e-4, warm_up: {}}}\n"
             "  validation: {{every: 0, sequences: 256}}\n  checkpoints: {{every: 25, keep: 1}}\n",
             steps, std::max<std::uint64_t>(1, steps / 20));
}

Result<void> CompressionStudy::pretrain(const Progress& progress) {
  const std::string job = pretrain_job();
  LH_ASSIGN(RunSpec spec, spec_of(job, first_, 1));
  const std::string key = study_key({job, spec.train.text()});
  const std::string folder = folder_ + "/start-" + key;
  const std::string root = checkpoints_root(folder);
  RealStorage storage;
  LH_TRY(make_folders(storage, folder));
  const auto newest = [&] {
    return find_newest_checkpoint(storage, root,
                                  [&](const CheckpointManifest& manifest, const std::string& at) {
                                    return verify_all_files(storage, at, manifest);
                                  });
  };
  LH_ASSIGN(CheckpointSearch found, newest());
  if (found.newest) {
    spec.first_step = found.newest->id.step;
    spec.updates = found.newest->updates;
    spec.term = static_cast<std::uint32_t>(found.newest->id.term) + 1;
    spec.resume = ResumePoint{found.newest->id, found.newest->contents()};
  }
  if (spec.first_step < spec.last_step) {
    LH_ASSIGN(const auto sources, Sources::open(first_.folder, first_.dataset));
    Disks disks(spec.cells() + 1);
    const auto disk = [&](int rank) {
      return rank == kCoordinatorRank ? SimulatedDisk{&storage, folder}
                                      : SimulatedDisk{&disks.of(rank)};
    };
    LH_TRY(carry_out(spec, *sources, disk, progress));
    LH_ASSIGN(found, newest());
  }
  if (!found.newest || found.newest->id.step != spec.last_step) {
    return failed(fmt::format("the pre-trained state in {} is not whole", folder),
                  "remove that folder");
  }
  start_ = found.newest->id;
  start_folder_ = root + "/" + folder_name(start_);
  start_hash_ = study_key({manifest_text(*found.newest)});
  return {};
}

// ---- fine-tuning

std::string CompressionStudy::fine_tune_job(const CompressionSetting& setting,
                                            std::uint64_t seed) const {
  const std::uint64_t epoch = steps_per_epoch();
  const std::uint64_t steps = static_cast<std::uint64_t>(setting.epochs) * epoch;
  return job_head("jargon", setting.compression) +
         fmt::format(
             "training:\n  data: data\n  seed: {}\n  steps: {}\n"
             "  learning_rate: {{max: {}, min: {}, warm_up: {}}}\n"
             "  validation: {{every: {}, sequences: 1000000}}\n"
             "  checkpoints: {{every: 0, keep: 1}}\n",
             seed, steps, size_.rate_max, size_.rate_max / 10,
             std::max<std::uint64_t>(1, epoch / 10), std::max<std::uint64_t>(1, epoch / 2));
}

std::string CompressionStudy::key(const CompressionSetting& setting, std::uint64_t seed) const {
  const auto data = [](const DatasetPart& part) {
    return fmt::format("{:016x}", part.fingerprint);
  };
  return study_key({setting.name, fine_tune_job(setting, seed),
                    fmt::format("{}", setting.pipelines), data(second_.dataset.train),
                    data(second_.dataset.validation), start_hash_, program_});
}

Result<StudyRun> CompressionStudy::fine_tune(const CompressionSetting& setting, std::uint64_t seed,
                                             const Progress& progress) const {
  LH_CHECK(!start_folder_.empty(), "pretrain() comes first");
  LH_ASSIGN(RunSpec spec, spec_of(fine_tune_job(setting, seed), second_, setting.pipelines));
  if (setting.past_the_file) setting.past_the_file(spec.job);
  LH_ASSIGN(const auto sources, Sources::open(second_.folder, second_.dataset));

  // As `launch --from` begins: the weights as a checkpoint of step 0, an optimiser of zeros.
  Disks disks(spec.cells() + 1);
  RealStorage storage;
  LH_ASSIGN(const CheckpointManifest manifest,
            read_manifest(storage, std::string(start_folder_).substr(0, start_folder_.rfind('/')),
                          start_));
  LH_ASSIGN(const ModelSource source, open_checkpoint(storage, start_folder_, manifest));
  const CheckpointId first;
  LH_ASSIGN(const auto files, import_model(disks.of(kCoordinatorRank), source,
                                           checkpoints_root("run") + "/" + folder_name(first)));
  spec.resume = ResumePoint{first, files};
  return carry_out(
      spec, *sources, [&](int rank) { return SimulatedDisk{&disks.of(rank)}; }, progress);
}

}  // namespace longhaul
