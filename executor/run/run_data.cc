#include "executor/run/run_data.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "executor/control/messages.h"

namespace longhaul {
namespace {

constexpr std::int64_t kSequenceMax = std::int64_t{1} << 62;

std::string_view name_of(DataPart part) {
  return part == DataPart::kTrain ? "train" : "validation";
}

SlotMap slots_of(const RunSpec& spec) {
  const auto map = SlotMap::make({.sequences = spec.train.sequences(),
                                  .slots = spec.job.global_batch,
                                  .seed = spec.job.training->seed});
  LH_CHECK(map, "the run's data and batch were checked");
  return *map;
}

/// Puts the tokens where the pipeline wants them.
MicroBatchReader::Completion into(const TokenSource::Request& request, TokenSource::Done done) {
  return [inputs = request.inputs, targets = request.targets,
          d = std::move(done)](Result<MicroBatch> batch) mutable {
    if (!batch) return d(std::unexpected(std::move(batch).error()));
    if (!inputs.empty()) std::ranges::copy(batch->inputs, inputs.begin());
    if (!targets.empty()) std::ranges::copy(batch->targets, targets.begin());
    d({});
  };
}

}  // namespace

// ---- from another rank

void RemoteSequences::fetch(std::vector<std::int64_t> sequences, Completion done) {
  const std::size_t tokens = sequences.size() * (static_cast<std::size_t>(identity_.context) + 1);
  requests_.ask(
      holder_,
      fmt::format("sequences part={} numbers={}", name_of(part_), fmt::join(sequences, ",")),
      tokens * sizeof(Token),
      [tokens, holder = holder_, vocabulary = identity_.vocabulary,
       d = std::move(done)](Result<std::vector<std::byte>> bytes) mutable {
        if (!bytes) return d(std::unexpected(std::move(bytes).error()));
        std::vector<Token> answer(tokens);
        std::memcpy(answer.data(), bytes->data(), bytes->size());
        const auto is_token = [vocabulary](Token t) { return t >= 0 && t < vocabulary; };
        if (!std::ranges::all_of(answer, is_token)) {
          return d(failed(fmt::format("rank {} sent what is no token", holder)));
        }
        d(std::move(answer));
      });
}

std::optional<WantedSequences> parse_wanted_sequences(std::string_view what) {
  WantedSequences wanted;
  constexpr std::string_view kTrain = "sequences part=train numbers=";
  constexpr std::string_view kValidation = "sequences part=validation numbers=";
  if (what.starts_with(kTrain)) {
    what.remove_prefix(kTrain.size());
  } else if (what.starts_with(kValidation)) {
    what.remove_prefix(kValidation.size());
    wanted.part = DataPart::kValidation;
  } else {
    return std::nullopt;
  }
  while (true) {
    const std::string_view digits = what.substr(0, what.find(','));
    std::uint64_t number = 0;
    if (!parse_whole(digits, kSequenceMax, number)) return std::nullopt;
    wanted.numbers.push_back(static_cast<std::int64_t>(number));
    if (digits.size() == what.size()) return wanted;
    what.remove_prefix(digits.size() + 1);
  }
}

void serve_sequences(SequenceSource* source, const WantedSequences& wanted,
                     MeshRequests::Answer answer) {
  if (source == nullptr) return answer(failed("the data is not here"));
  const DataIdentity& data = source->identity();
  for (const std::int64_t number : wanted.numbers) {
    if (number >= data.sequences()) return answer(failed("no such sequence"));
  }
  // Before anything is read: a short question must not cost much memory.
  const std::size_t bytes_each = (static_cast<std::size_t>(data.context) + 1) * sizeof(Token);
  if (wanted.numbers.size() > kAnswerBytesMax / bytes_each) {
    return answer(failed("that many sequences are asked for in pieces"));
  }
  source->fetch(wanted.numbers, [a = std::move(answer)](Result<std::vector<Token>> tokens) mutable {
    if (!tokens) return a(std::unexpected(std::move(tokens).error()));
    const auto bytes = std::as_bytes(std::span(*tokens));
    a(std::vector<std::byte>(bytes.begin(), bytes.end()));
  });
}

// ---- training

TrainTokens::TrainTokens(const RunSpec& spec, MicroBatchReader reader)
    : spec_(spec),
      reader_(std::move(reader)),
      slots_(pipeline_slots(spec.plan.micro_batches, spec.plan.micro_batch)) {}

Result<std::unique_ptr<TrainTokens>> TrainTokens::make(const RunSpec& spec,
                                                       SequenceSource& source) {
  LH_ASSIGN(
      MicroBatchReader reader,
      MicroBatchReader::make(source, spec.train, spec.job.global_batch, spec.job.training->seed));
  return std::unique_ptr<TrainTokens>(new TrainTokens(spec, std::move(reader)));
}

void TrainTokens::fetch(const Request& request, Done done) {
  const SlotRange slots = micro_batch_slots(slots_[static_cast<std::size_t>(request.pipeline)],
                                            spec_.plan.micro_batch, request.micro_batch);
  reader_.request(request.step, slots, into(request, std::move(done)));
}

std::vector<std::int64_t> samples_of(const RunSpec& spec, int pipeline, std::uint64_t step,
                                     int micro_batch) {
  const SlotMap map = slots_of(spec);
  const SlotRange all = pipeline_slots(spec.plan.micro_batches,
                                       spec.plan.micro_batch)[static_cast<std::size_t>(pipeline)];
  const SlotRange slots = micro_batch_slots(all, spec.plan.micro_batch, micro_batch);
  std::vector<std::int64_t> samples;
  for (std::int64_t slot = slots.first; slot < slots.first + slots.count; ++slot) {
    samples.push_back(map.sequence(static_cast<std::int64_t>(step), slot).value_or(-1));
  }
  return samples;
}

double targets_of_step(const RunSpec& spec, std::uint64_t step) {
  return static_cast<double>(slots_of(spec).sequences_of(static_cast<std::int64_t>(step))) *
         spec.job.model.context;
}

double targets_before(const RunSpec& spec, std::uint64_t step) {
  // All steps of an epoch but its last are full, and an epoch has each sequence once.
  const SlotMap map = slots_of(spec);
  const std::int64_t steps = map.steps_per_epoch();
  const auto done = static_cast<std::int64_t>(step);
  const std::int64_t of_last_epoch = std::min(done % steps * map.slots(), map.sequences());
  return static_cast<double>(done / steps * map.sequences() + of_last_epoch) *
         spec.job.model.context;
}

// ---- validation

ValidationTokens::ValidationTokens(const RunSpec& spec, MicroBatchReader reader)
    : spec_(spec), reader_(std::move(reader)) {}

Result<std::unique_ptr<ValidationTokens>> ValidationTokens::make(const RunSpec& spec,
                                                                 SequenceSource& source) {
  // The reader's own order is not used.
  LH_ASSIGN(MicroBatchReader reader, MicroBatchReader::make(source, *spec.validation, 1, 0));
  return std::unique_ptr<ValidationTokens>(new ValidationTokens(spec, std::move(reader)));
}

void ValidationTokens::fetch(const Request& request, Done done) {
  const auto [first, end] = validation_share(spec_, request.pipeline);
  const SlotRange slots = {first + std::int64_t{request.micro_batch} * spec_.plan.micro_batch,
                           spec_.plan.micro_batch};
  std::vector<std::optional<std::int64_t>> sequences;
  for (std::int64_t s = slots.first; s < slots.first + slots.count; ++s) {
    sequences.push_back(s < end ? std::optional(s) : std::nullopt);
  }
  reader_.read(slots, std::move(sequences), into(request, std::move(done)));
}

std::uint64_t ValidationTokens::targets(const RunSpec& spec, int pipeline) {
  const auto [first, end] = validation_share(spec, pipeline);
  return static_cast<std::uint64_t>((end - first) * spec.job.model.context);
}

}  // namespace longhaul
