// A worker's side of its boundaries: the format of what its stage gives and gets, and what the
// format needs from the run: which samples a micro-batch has, answers of the neighbours, histories
// beside checkpoints.
//
//   resend op=activation step=7 micro_batch=3 sequence=1     answered with a frame of the format's
//
// is the question for one sequence of a tensor again, from the stage that could not decode it to
// the one that sent it; `sequence` is its place in the micro-batch. See mesh_requests.h.
//
// Belongs to the loop's thread; the format's memory is touched on the codec stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/control/messages.h"
#include "executor/history/aq_boundary.h"
#include "executor/pipeline/pipeline_step.h"
#include "executor/run/file_transfer.h"
#include "executor/run/link_pace.h"
#include "executor/run/mesh_requests.h"
#include "executor/run/run_spec.h"

namespace longhaul {

struct WantedResend {
  Op op = Op::kSendActivation;  // or kSendGradient
  std::uint32_t step = 0;
  int micro_batch = 0;
  int sequence = 0;
  bool operator==(const WantedResend&) const = default;
};
std::string resend_text(const WantedResend& wanted);
/// None when it is another question.
std::optional<WantedResend> parse_resend(std::string_view what);

/// What boundary tensors may be written in that a plan wants in `planned`, the finest first, within
/// the job's floor; with a history where that has one. Only that where the job leaves nothing open.
std::vector<Codec> codec_ladder(const Job& job, CodecUse use, Codec planned);

class StageBoundaries {
 public:
  struct Context {
    const RunSpec* spec = nullptr;
    int cell = 0;
    ComputeQueue* queue = nullptr;
    MeshRequests* requests = nullptr;
    Storage* storage = nullptr;
    std::string folder;  // for what histories have no room for in RAM; it is there
    /// Null for the plan's codecs between sites.
    std::unique_ptr<BoundaryFormat> format{};
  };
  using Done = std::move_only_function<void(Result<void>)>;

  /// What the context names outlives this, and this outlives the queue's work. Error: no room for
  /// the histories.
  static Result<std::unique_ptr<StageBoundaries>> create(Context context);
  StageBoundaries(const StageBoundaries&) = delete;
  StageBoundaries& operator=(const StageBoundaries&) = delete;

  BoundaryFormat& format() { return *format_; }
  /// Of the longest message, either way.
  std::size_t wire_bytes_max() const;
  /// Sets what a step needs of all this.
  void prepare(PipelineContext& context);
  /// A training step begins; histories of the one after it begin to be read.
  void begin_step(std::uint64_t step);
  /// After a training step: where codecs follow the links (RunSpec::adapts_codecs), what is written
  /// otherwise from the next step on. `compute` is the stage's own work in it.
  std::vector<Recoded> adapt(std::uint64_t step, const TaskletSchedule& tasklet,
                             const std::vector<InstructionTimes>& times, Seconds compute);
  /// After a training step: how its sequences left. Nothing where none of them has a history.
  std::optional<HistoryVisits> history_visits(std::uint64_t step);
  /// Whether there are histories that the job wants beside its checkpoints.
  bool keeps_histories() const;
  /// Between steps: writes them into a checkpoint's folder here, and reads what is there of them.
  /// `done` comes later, unless the queue ends before.
  void save_histories(const std::string& folder, Done done);
  void load_histories(const std::string& folder, Done done);
  /// Answers a neighbour's question.
  void serve(const WantedResend& wanted, MeshRequests::Answer answer);

 private:
  /// What goes to a neighbour of another site, where it may vary.
  struct Way {
    Op op = Op::kSendActivation;
    int peer = 0;
    std::vector<Codec> ladder;
    LinkPace pace;
  };

  explicit StageBoundaries(const Context& context);
  CodecBoundary planned_codecs();
  void let_vary(CodecBoundary& format, Op op, int peer, Codec planned);
  bool is_neighbour(int peer) const;
  std::size_t resend_bytes_max() const;

  const RunSpec& spec_;
  const int cell_;
  const QueueRunner runner_;  // beside the stage's work
  MeshRequests& requests_;
  Storage& storage_;
  std::vector<Way> ways_;
  std::unique_ptr<BoundaryFormat> format_;
  AqBoundary* histories_ = nullptr;  // the format, where it has some
  HistoryCounts told_;               // of what leaves, by history_visits
};

}  // namespace longhaul
