// The tokens of a run, as its pipelines ask for them: which sequences a micro-batch has, from
// shards that are here or from a rank that has them.
//
//   sequences part=train numbers=17,4,99     answered with T + 1 int32 tokens a sequence
//
// Belongs to the loop's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/data/sequence_source.h"
#include "executor/pipeline/token_source.h"
#include "executor/run/mesh_requests.h"
#include "executor/run/run_spec.h"

namespace longhaul {

enum class DataPart { kTrain, kValidation };

/// Sequences of another rank.
class RemoteSequences final : public SequenceSource {
 public:
  RemoteSequences(MeshRequests& requests, int holder, DataPart part, const DataIdentity& identity)
      : requests_(requests), holder_(holder), part_(part), identity_(identity) {}
  const DataIdentity& identity() const override { return identity_; }
  void fetch(std::vector<std::int64_t> sequences, Completion done) override;

 private:
  MeshRequests& requests_;
  const int holder_;
  const DataPart part_;
  const DataIdentity identity_;
};

/// What a question for sequences asks for; none when it is another question.
struct WantedSequences {
  DataPart part = DataPart::kTrain;
  std::vector<std::int64_t> numbers;
};
std::optional<WantedSequences> parse_wanted_sequences(std::string_view what);
/// Answers it from a source that is here; null: there is none.
void serve_sequences(SequenceSource* source, const WantedSequences& wanted,
                     MeshRequests::Answer answer);

/// A training step's micro-batches, by slots.
class TrainTokens final : public TokenSource {
 public:
  /// kInvalid when the source is not the run's data. Spec and source outlive this.
  static Result<std::unique_ptr<TrainTokens>> make(const RunSpec& spec, SequenceSource& source);
  void fetch(const Request& request, Done done) override;

 private:
  TrainTokens(const RunSpec& spec, MicroBatchReader reader);
  const RunSpec& spec_;
  MicroBatchReader reader_;
  std::vector<SlotRange> slots_;  // by pipeline
};

/// The validation sequences, the same at every step.
class ValidationTokens final : public TokenSource {
 public:
  static Result<std::unique_ptr<ValidationTokens>> make(const RunSpec& spec,
                                                        SequenceSource& source);
  void fetch(const Request& request, Done done) override;
  /// Target tokens that a pipeline has.
  static std::uint64_t targets(const RunSpec& spec, int pipeline);

 private:
  ValidationTokens(const RunSpec& spec, MicroBatchReader reader);
  const RunSpec& spec_;
  MicroBatchReader reader_;
};

/// The sequences of a training step's micro-batch, in slot order; -1 is padding. Needs no data.
std::vector<std::int64_t> samples_of(const RunSpec& spec, int pipeline, std::uint64_t step,
                                     int micro_batch);
/// Target tokens of a step: of the slots that hold a sequence.
double targets_of_step(const RunSpec& spec, std::uint64_t step);
/// Of all steps before `step`, from the run's very first on.
double targets_before(const RunSpec& spec, std::uint64_t step);

}  // namespace longhaul
