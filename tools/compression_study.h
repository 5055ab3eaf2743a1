// What codecs do to a model: the study of suite `compression`. A small GPT is pre-trained on one
// text (the King James Bible) and fine-tuned on another (the Jargon File) for four epochs, which is
// AQ-SGD's case, once for each codec setting and seed. Runs go through the real executor in virtual
// time (executor/run/simulated_run.h): four stages, frames, mesh, commit; only wires are simulated.
//
// Everything is kept in one folder and is taken up where it was left: the data, the pre-trained
// state (a checkpoint) and the result of every finished run, under a key of all that decides it.
// The same key gives the same result to the last bit.
//
// Any thread, if each has its own run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/checkpoint/content_hash.h"
#include "executor/data/dataset.h"
#include "executor/run/run_spec.h"

namespace longhaul {

/// One way to send things; all else is equal.
struct CompressionSetting {
  std::string name;
  std::string compression;  // the job's section: `activations: int8, gradients: none`
  int pipelines = 1;
  int epochs = 4;  // the learning rate falls until their end
  /// What the job file refuses, put into the job that was read; empty: nothing.
  std::function<void(Job&)> past_the_file = {};
};

/// How much is read and done. A byte is a token.
struct StudySize {
  std::int64_t pretrain_tokens = 0;
  std::int64_t fine_tune_tokens = 0;   // of an epoch
  std::int64_t validation_tokens = 0;  // of the second text
  double rate_max = 0;                 // of the fine-tuning's learning rate
  static StudySize whole();
  static StudySize quick();  // a twentieth of the tokens
};

/// Loss of a run as it went.
struct StudyRun {
  std::vector<double> losses;                                 // of each step, a mean target in nats
  std::vector<std::pair<std::uint64_t, double>> validations;  // steps done, loss
  double cpu_s = 0;                                           // of this process's thread
};
std::string study_run_text(const std::string& key, const std::string& name, const StudyRun& run);
/// None where the line is damaged (a process that was killed while it wrote).
struct KeptStudyRun {
  std::string key;
  StudyRun run;
};
std::optional<KeptStudyRun> parse_study_run(std::string_view line);

/// 16 hexadecimal digits over all parts, which are kept apart: {"ab", "c"} is not {"a", "bc"}.
std::string study_key(const std::vector<std::string>& parts);

class CompressionStudy {
 public:
  /// Called after each step, from the thread of the run.
  using Progress = std::function<void(std::uint64_t step, std::uint64_t steps, double loss)>;

  /// Prepares the data. `folder` is made; `texts` holds bible.txt and jargon.txt. Errors: a text
  /// that is missing or too short.
  static Result<CompressionStudy> open(const std::string& folder, const std::string& texts,
                                       const StudySize& size);

  /// Makes the pre-trained state, or goes on making it, or finds it.
  Result<void> pretrain(const Progress& progress);

  /// What decides a run: its inputs, the start and this program.
  std::string key(const CompressionSetting& setting, std::uint64_t seed) const;
  /// One run; needs the pre-trained state.
  Result<StudyRun> fine_tune(const CompressionSetting& setting, std::uint64_t seed,
                             const Progress& progress) const;

  std::uint64_t steps_per_epoch() const;
  double tokens_per_step() const;

 private:
  struct Text {
    std::string folder;
    Dataset dataset;
  };
  std::string pretrain_job() const;
  std::string fine_tune_job(const CompressionSetting& setting, std::uint64_t seed) const;
  Result<RunSpec> spec_of(const std::string& job_text, const Text& text, int pipelines) const;

  std::string folder_;
  StudySize size_;
  Text first_, second_;
  std::string program_;  // hash of what is running
  CheckpointId start_;   // the pre-trained state
  std::string start_folder_;
  std::string start_hash_;
};

}  // namespace longhaul
