#include "executor/data/slots.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/hash.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kRounds = 64;
constexpr std::int64_t kSequencesMax = std::int64_t{1} << 62;
constexpr std::int64_t kSlotsMax = std::int64_t{1} << 31;

std::uint64_t key_of_places(std::uint64_t seed) {
  return mix(hash_text("data/places") ^ mix(seed));
}

std::uint64_t key_of_rows(std::uint64_t seed, std::int64_t epoch, std::int64_t slot) {
  const std::uint64_t run = mix(hash_text("data/rows") ^ mix(seed));
  return mix(mix(run ^ static_cast<std::uint64_t>(epoch)) ^ static_cast<std::uint64_t>(slot));
}

}  // namespace

std::int64_t Shuffle::round(std::uint64_t number, std::int64_t x) const {
  const std::uint64_t round_key = mix(key_ ^ mix(number));
  __extension__ using Wide = unsigned __int128;
  const auto pivot = static_cast<std::int64_t>(
      (static_cast<Wide>(round_key) * static_cast<std::uint64_t>(size_)) >> 64);
  const std::int64_t partner = pivot >= x ? pivot - x : pivot - x + size_;
  const auto name_of_pair = static_cast<std::uint64_t>(std::max(x, partner));
  return (mix(~round_key ^ name_of_pair) & 1) != 0 ? partner : x;
}

std::int64_t Shuffle::operator()(std::int64_t x) const {
  LH_CHECK(x >= 0 && x < size_, "only members of the set are permuted");
  for (std::uint64_t number = 0; number < kRounds; ++number) x = round(number, x);
  return x;
}

std::int64_t Shuffle::inverse(std::int64_t y) const {
  LH_CHECK(y >= 0 && y < size_, "only members of the set are permuted");
  for (std::uint64_t number = kRounds; number > 0; --number) y = round(number - 1, y);
  return y;
}

SlotMap::SlotMap(const Options& options)
    : options_(options),
      full_rows_(options.sequences / options.slots),
      partial_row_(options.sequences % options.slots),
      places_(key_of_places(options.seed), options.sequences) {}

Result<SlotMap> SlotMap::make(const Options& options) {
  if (options.sequences < 1) {
    return invalid("the data has no sequence: it needs more tokens than the context has",
                   "use more text or a shorter context");
  }
  if (options.sequences > kSequencesMax) return invalid("the data has more than 2^62 sequences");
  if (options.slots < 1 || options.slots > kSlotsMax) {
    return invalid(fmt::format("a batch has 1 to {} sequences, not {}", kSlotsMax, options.slots));
  }
  return SlotMap(options);
}

std::optional<std::int64_t> SlotMap::sequence(std::int64_t step, std::int64_t slot) const {
  LH_CHECK(step >= 0, "steps count from 0");
  LH_CHECK(slot >= 0 && slot < options_.slots, "a slot is one of the batch's");
  std::int64_t row = step % steps_per_epoch();
  if (row < full_rows_) {
    const std::uint64_t key = key_of_rows(options_.seed, epoch_of(step), slot);
    row = Shuffle(key, full_rows_)(row);
  } else if (slot >= partial_row_) {
    return std::nullopt;
  }
  return places_(row * options_.slots + slot);
}

std::int64_t SlotMap::slot_of(std::int64_t sequence) const {
  return places_.inverse(sequence) % options_.slots;
}

std::int64_t SlotMap::sequences_of(std::int64_t step) const {
  LH_CHECK(step >= 0, "steps count from 0");
  return step % steps_per_epoch() < full_rows_ ? options_.slots : partial_row_;
}

std::vector<SlotRange> pipeline_slots(std::span<const int> micro_batches, int micro_batch) {
  LH_CHECK(micro_batch >= 1, "a micro-batch has a sequence");
  std::vector<SlotRange> ranges;
  std::int64_t first = 0;
  for (const int count : micro_batches) {
    LH_CHECK(count >= 1, "a pipeline has a micro-batch");
    ranges.push_back({first, std::int64_t{count} * micro_batch});
    first += ranges.back().count;
  }
  return ranges;
}

SlotRange micro_batch_slots(SlotRange pipeline, int micro_batch, int index) {
  const SlotRange range = {pipeline.first + std::int64_t{index} * micro_batch, micro_batch};
  LH_CHECK(index >= 0 && micro_batch >= 1 &&
               range.first + range.count <= pipeline.first + pipeline.count,
           "a micro-batch is one of its pipeline's");
  return range;
}

std::int64_t sequences_in(std::int64_t tokens, int context) {
  LH_CHECK(context >= 1, "a sequence predicts a token");
  return std::max<std::int64_t>(tokens - 1, 0) / context;
}

}  // namespace longhaul
