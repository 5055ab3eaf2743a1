#include "executor/data/sequence_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/ops.h"

namespace longhaul {
namespace {

static_assert(kNoTarget == ops::kIgnoredTarget, "padding means the same to the kernels");

class LocalSequences final : public SequenceSource {
 public:
  LocalSequences(TokenStream stream, const DataIdentity& identity)
      : stream_(std::move(stream)), identity_(identity) {}

  const DataIdentity& identity() const override { return identity_; }
  void fetch(std::vector<std::int64_t> sequences, Completion done) override {
    done(read(sequences));
  }

 private:
  Result<std::vector<Token>> read(std::span<const std::int64_t> sequences) {
    const auto length = static_cast<std::size_t>(identity_.context) + 1;
    std::vector<Token> tokens(sequences.size() * length);
    std::span<Token> rest(tokens);
    for (const std::int64_t sequence : sequences) {
      LH_CHECK(sequence >= 0 && sequence < identity_.sequences(), "sequences have numbers");
      LH_TRY(stream_.read(sequence * identity_.context, rest.first(length)));
      rest = rest.subspan(length);
    }
    return tokens;
  }

  TokenStream stream_;
  DataIdentity identity_;
};

MicroBatch lay_out(SlotRange slots, std::vector<std::optional<std::int64_t>> sequences, int context,
                   std::span<const Token> tokens) {
  const auto length = static_cast<std::size_t>(context);
  MicroBatch batch{slots, {}, {}, std::move(sequences)};
  batch.inputs.assign(batch.sequences.size() * length, 0);
  batch.targets.assign(batch.sequences.size() * length, kNoTarget);
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    if (!batch.sequences[i]) continue;
    const auto row = static_cast<std::ptrdiff_t>(i * length);
    std::copy_n(tokens.begin(), length, batch.inputs.begin() + row);
    std::copy_n(tokens.begin() + 1, length, batch.targets.begin() + row);
    tokens = tokens.subspan(length + 1);
  }
  return batch;
}

/// What came may have come from another machine.
Result<std::vector<Token>> checked(std::vector<Token> tokens, std::size_t wanted,
                                   std::int64_t vocabulary) {
  if (tokens.size() != wanted) {
    return failed(fmt::format("a source of sequences answered {} tokens where {} were asked for",
                              tokens.size(), wanted));
  }
  for (const Token token : tokens) {
    if (token < 0 || token >= vocabulary) {
      return failed(
          fmt::format("a source of sequences answered token {}, outside the vocabulary "
                      "of {}",
                      token, vocabulary));
    }
  }
  return tokens;
}

}  // namespace

std::string DataIdentity::text() const {
  return fmt::format("{} tokens of vocabulary {}, fingerprint {:016x}, context {}", tokens,
                     vocabulary, fingerprint, context);
}

Result<std::unique_ptr<SequenceSource>> open_local_sequences(Storage& storage,
                                                             const std::vector<std::string>& shards,
                                                             std::int64_t vocabulary, int context) {
  LH_ASSIGN(TokenStream stream, TokenStream::open(storage, shards, vocabulary));
  LH_ASSIGN(const TokenStream::Scan scan, stream.scan());
  const DataIdentity identity = {scan.fingerprint, stream.tokens(), vocabulary, context};
  return std::make_unique<LocalSequences>(std::move(stream), identity);
}

Result<MicroBatchReader> MicroBatchReader::make(SequenceSource& source,
                                                const DataIdentity& expected, std::int64_t slots,
                                                std::uint64_t seed) {
  if (source.identity() != expected) {
    return invalid(fmt::format("the data here is not the run's: {}; the run has {}",
                               source.identity().text(), expected.text()),
                   "copy the shards of the run here, or let this node fetch them");
  }
  LH_ASSIGN(const SlotMap map,
            SlotMap::make({.sequences = expected.sequences(), .slots = slots, .seed = seed}));
  return MicroBatchReader(source, map);
}

void MicroBatchReader::request(std::int64_t step, SlotRange slots, Completion done) const {
  std::vector<std::optional<std::int64_t>> sequences;
  for (std::int64_t slot = slots.first; slot < slots.first + slots.count; ++slot) {
    sequences.push_back(map_.sequence(step, slot));
  }
  read(slots, std::move(sequences), std::move(done));
}

void MicroBatchReader::read(SlotRange slots, std::vector<std::optional<std::int64_t>> sequences,
                            Completion done) const {
  std::vector<std::int64_t> wanted;
  for (const std::optional<std::int64_t>& sequence : sequences) {
    if (sequence) wanted.push_back(*sequence);
  }
  const int context = source_->identity().context;
  if (wanted.empty()) {
    done(lay_out(slots, std::move(sequences), context, {}));
    return;
  }
  const std::size_t tokens_wanted = wanted.size() * (static_cast<std::size_t>(context) + 1);
  const std::int64_t vocabulary = source_->identity().vocabulary;
  source_->fetch(std::move(wanted),
                 [slots, sequences = std::move(sequences), context, tokens_wanted, vocabulary,
                  done = std::move(done)](Result<std::vector<Token>> tokens) mutable {
                   if (tokens) tokens = checked(*std::move(tokens), tokens_wanted, vocabulary);
                   if (!tokens) {
                     done(std::unexpected(std::move(tokens).error()));
                     return;
                   }
                   done(lay_out(slots, std::move(sequences), context, *tokens));
                 });
}

}  // namespace longhaul
