#include "executor/run/stage_boundaries.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "executor/control/messages.h"
#include "executor/run/run_data.h"
#include "executor/run/stage_histories.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kResendStepMax = (std::uint64_t{1} << 28) - 1;
constexpr std::uint64_t kIntMax = std::numeric_limits<int>::max();

/// Takes ` NAME=NUMBER` from the front of the text.
std::optional<std::uint64_t> take(std::string_view& text, std::string_view name,
                                  std::uint64_t max) {
  const std::string key = fmt::format(" {}=", name);
  if (!text.starts_with(key)) return std::nullopt;
  text.remove_prefix(key.size());
  const std::string_view digits = text.substr(0, text.find(' '));
  std::uint64_t value = 0;
  if (!parse_whole(digits, max, value)) return std::nullopt;
  text.remove_prefix(digits.size());
  return value;
}

}  // namespace

std::string resend_text(const WantedResend& wanted) {
  return fmt::format("resend op={} step={} micro_batch={} sequence={}",
                     wanted.op == Op::kSendActivation ? "activation" : "gradient", wanted.step,
                     wanted.micro_batch, wanted.sequence);
}

std::optional<WantedResend> parse_resend(std::string_view what) {
  constexpr std::string_view kActivation = "resend op=activation";
  constexpr std::string_view kGradient = "resend op=gradient";
  WantedResend wanted;
  if (what.starts_with(kActivation)) {
    what.remove_prefix(kActivation.size());
  } else if (what.starts_with(kGradient)) {
    what.remove_prefix(kGradient.size());
    wanted.op = Op::kSendGradient;
  } else {
    return std::nullopt;
  }
  const auto step = take(what, "step", kResendStepMax);
  const auto micro_batch = step ? take(what, "micro_batch", kIntMax) : std::nullopt;
  const auto sequence = micro_batch ? take(what, "sequence", kIntMax) : std::nullopt;
  if (!sequence || !what.empty()) return std::nullopt;
  wanted.step = static_cast<std::uint32_t>(*step);
  wanted.micro_batch = static_cast<int>(*micro_batch);
  wanted.sequence = static_cast<int>(*sequence);
  return wanted;
}

StageBoundaries::StageBoundaries(const Context& context)
    : spec_(*context.spec),
      cell_(context.cell),
      runner_{context.queue, context.queue->create_stream()},
      requests_(*context.requests),
      storage_(*context.storage) {}

Result<std::unique_ptr<StageBoundaries>> StageBoundaries::create(Context context) {
  std::unique_ptr<StageBoundaries> made(new StageBoundaries(context));
  if (context.format) {
    made->format_ = std::move(context.format);
    return made;
  }
  CodecBoundary codecs = made->planned_codecs();
  const std::vector<AqBoundary::Edge> edges =
      history_edges(*context.spec, context.cell, context.folder);
  if (edges.empty()) {
    made->format_ = std::make_unique<CodecBoundary>(std::move(codecs));
    return made;
  }
  LH_ASSIGN(std::unique_ptr<AqBoundary> histories,
            AqBoundary::make(std::move(codecs), edges, *context.storage));
  made->histories_ = histories.get();
  made->format_ = std::move(histories);
  return made;
}

std::vector<Codec> codec_ladder(const Job& job, CodecUse use, Codec planned) {
  std::vector<Codec> ladder;
  for (const Codec codec : kCodecs) {
    // The others have codes of as many bits as one that is there.
    const bool is_usual = codec != Codec::kFp16 && codec != Codec::kHadamard4 &&
                          has_history(codec) == has_history(planned) && is_auto(job, use) &&
                          allows(job, use, codec) &&
                          format_of(codec).code_bits != format_of(planned).code_bits;
    if (is_usual || codec == planned) ladder.push_back(codec);
  }
  return ladder;
}

bool StageBoundaries::is_neighbour(int peer) const {
  return (peer == cell_ - 1 || peer == cell_ + 1) && peer >= 0 && peer < spec_.cells() &&
         spec_.pipeline_of(peer) == spec_.pipeline_of(cell_);
}

/// The plan's codecs between sites, none inside one.
CodecBoundary StageBoundaries::planned_codecs() {
  std::vector<Codec> activations, gradients;
  const int site = spec_.place_of_cell(cell_).site;
  for (int cell = 0; cell < spec_.cells(); ++cell) {
    const int other = spec_.place_of_cell(cell).site;
    const bool is_far = site != other;
    activations.push_back(is_far ? activation_codec(spec_.plan, spec_.job, site, other)
                                 : Codec::kNone);
    gradients.push_back(is_far ? activation_gradient_codec(spec_.plan, spec_.job, site, other)
                               : Codec::kNone);
  }
  CodecBoundary format(activations, spec_.job.precision, spec_.job.training->seed);
  for (const int peer : {cell_ - 1, cell_ + 1}) {
    if (!is_neighbour(peer)) continue;
    const auto at = static_cast<std::size_t>(peer);
    format.set_gradients(peer, gradients[at]);
    if (!spec_.adapts_codecs || spec_.place_of_cell(peer).site == site) continue;
    let_vary(format, Op::kSendActivation, peer, activations[at]);
    let_vary(format, Op::kSendGradient, peer, gradients[at]);
  }
  return format;
}

/// What comes may vary as well as what goes; this end decides about what goes.
void StageBoundaries::let_vary(CodecBoundary& format, Op op, int peer, Codec planned) {
  const bool is_gradient = op == Op::kSendGradient;
  const std::vector<Codec> ladder = codec_ladder(
      spec_.job, is_gradient ? CodecUse::kActivationGradients : CodecUse::kActivations, planned);
  if (ladder.size() < 2) return;
  format.let_vary(peer, op, ladder.front());
  if (is_gradient != (peer < cell_)) return;
  const double computed = spec_.job.precision == Precision::kFp32 ? 32 : 16;
  std::vector<double> bits;
  for (const Codec codec : ladder) bits.push_back(bits_of(codec, computed));
  const auto rung = static_cast<std::size_t>(std::ranges::find(ladder, planned) - ladder.begin());
  ways_.push_back({op, peer, ladder, LinkPace(std::move(bits), rung)});
}

std::vector<Recoded> StageBoundaries::adapt(std::uint64_t step, const TaskletSchedule& tasklet,
                                            const std::vector<InstructionTimes>& times,
                                            Seconds compute) {
  std::vector<Recoded> changes;
  for (Way& way : ways_) {
    Seconds busy;
    for (std::size_t i = 0; i < tasklet.instructions.size(); ++i) {
      const Instruction& instruction = tasklet.instructions[i];
      if (instruction.op != way.op || instruction.peer != way.peer) continue;
      busy = busy + (times[i].end - times[i].start);
    }
    const std::size_t before = way.pace.rung();
    const std::size_t after = way.pace.next({busy.value(), compute.value()});
    if (after == before) continue;
    // On the codec stream, and so before the next step's messages.
    runner_.run(
        kCodecTag,
        [format = format_.get(), op = way.op, peer = way.peer,
         codec = way.ladder[after]]() -> Result<void> {
          format->set_codec(peer, op, codec);
          return {};
        },
        [](const Result<void>&) {});
    changes.push_back({.step = step,
                       .peer = RunSpec::rank_of_cell(way.peer),
                       .are_gradients = way.op == Op::kSendGradient,
                       .from = way.ladder[before],
                       .to = way.ladder[after],
                       .busy = busy.value(),
                       .compute = compute.value()});
  }
  return changes;
}

std::size_t StageBoundaries::wire_bytes_max() const {
  const ModelShape& model = spec_.job.model;
  const auto elements = static_cast<std::size_t>(spec_.plan.micro_batch) *
                        static_cast<std::size_t>(model.context) *
                        static_cast<std::size_t>(model.width);
  std::size_t most = 0;
  for (const int peer : {cell_ - 1, cell_ + 1}) {
    if (!is_neighbour(peer)) continue;
    for (const Op op : {Op::kSendActivation, Op::kSendGradient}) {
      most = std::max(most, format_->wire_bytes_max(op, peer, elements));
    }
  }
  return most;
}

void StageBoundaries::prepare(PipelineContext& context) {
  context.codec_stream = runner_.stream;
  context.format = format_.get();
  context.samples = [this](std::uint32_t step, int micro_batch) {
    return samples_of(spec_, spec_.pipeline_of(cell_), step, micro_batch);
  };
  context.resend = [this](const BoundaryTensor& which, int sequence, MeshRequests::Answer done) {
    requests_.ask_at_most(RunSpec::rank_of_cell(which.peer),
                          resend_text({which.op, which.step, which.micro_batch, sequence}),
                          resend_bytes_max(), std::move(done));
  };
}

void StageBoundaries::begin_step(std::uint64_t step) {
  if (histories_ == nullptr || step + 1 >= spec_.last_step) return;
  const int pipeline = spec_.pipeline_of(cell_);
  std::vector<std::int64_t> samples;
  for (int m = 0; m < spec_.plan.micro_batches[static_cast<std::size_t>(pipeline)]; ++m) {
    for (const std::int64_t sample : samples_of(spec_, pipeline, step + 1, m)) {
      samples.push_back(sample);
    }
  }
  runner_.run(
      kCodecTag,
      [format = histories_, samples = std::move(samples)]() -> Result<void> {
        format->prefetch(samples);
        return {};
      },
      [](const Result<void>&) {});
}

std::optional<HistoryVisits> StageBoundaries::history_visits(std::uint64_t step) {
  const int next = cell_ + 1;
  if (histories_ == nullptr || !is_neighbour(next) || histories_->store(next) == nullptr) {
    return std::nullopt;
  }
  // The step is over, so nothing counts on the other stream.
  const HistoryCounts now = histories_->counts(next);
  const HistoryCounts before = std::exchange(told_, now);
  return HistoryVisits{.step = step,
                       .first = now.first - before.first,
                       .deltas = now.deltas - before.deltas,
                       .whole = now.full - before.full,
                       .healed = now.healed - before.healed};
}

bool StageBoundaries::keeps_histories() const {
  return histories_ != nullptr && spec_.job.history && spec_.job.history->in_checkpoints;
}

void StageBoundaries::save_histories(const std::string& folder, Done done) {
  runner_.run(
      kStorageTag,
      [this, folder] {
        return longhaul::save_histories(storage_, folder, spec_, cell_, *histories_);
      },
      std::move(done));
}

void StageBoundaries::load_histories(const std::string& folder, Done done) {
  runner_.run(
      kStorageTag,
      [this, folder] {
        return longhaul::load_histories(storage_, folder, spec_, cell_, *histories_);
      },
      std::move(done));
}

/// Nothing that is sent again of a sequence is longer: its numbers as they are, and headers.
std::size_t StageBoundaries::resend_bytes_max() const {
  const ModelShape& model = spec_.job.model;
  constexpr std::size_t kHeadersMax = 1024;
  return kHeadersMax + sizeof(float) * static_cast<std::size_t>(model.context) *
                           static_cast<std::size_t>(model.width);
}

void StageBoundaries::serve(const WantedResend& wanted, MeshRequests::Answer answer) {
  const bool is_forward = wanted.op == Op::kSendActivation;
  const int pipeline = spec_.pipeline_of(cell_);
  const int stage = spec_.stage_of(cell_);
  const bool has_peer = is_forward ? stage + 1 < spec_.plan.stages() : stage > 0;
  if (!has_peer || wanted.sequence >= spec_.plan.micro_batch || wanted.step >= spec_.last_step ||
      wanted.micro_batch >= spec_.plan.micro_batches[static_cast<std::size_t>(pipeline)]) {
    return answer(failed("no such tensor is sent from here"));
  }
  // Owners: the work and its completion. A format's refusal is an answer, not the device's failure.
  struct Resend {
    std::vector<std::int64_t> samples;
    Result<std::vector<std::byte>> frame;
  };
  const auto resend = std::make_shared<Resend>();
  resend->samples = samples_of(spec_, pipeline, wanted.step, wanted.micro_batch);
  runner_.run(
      kCodecTag,
      [format = format_.get(), resend, wanted,
       peer = cell_ + (is_forward ? 1 : -1)]() -> Result<void> {
        resend->frame = format->resend({.op = wanted.op,
                                        .micro_batch = wanted.micro_batch,
                                        .peer = peer,
                                        .step = wanted.step,
                                        .samples = resend->samples},
                                       wanted.sequence);
        return {};
      },
      [resend, a = std::move(answer)](Result<void> device) mutable {
        if (!device) return a(std::unexpected(std::move(device).error()));
        a(std::move(resend->frame));
      });
}

}  // namespace longhaul
