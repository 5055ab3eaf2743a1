#include "executor/data/prepare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/hash.h"
#include "executor/data/bigram.h"
#include "executor/data/block_encoder.h"
#include "executor/data/prepare_state.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kStateBytesMax = std::uint64_t{1} << 16;

/// Where the validation part starts.
Result<std::int64_t> find_cut(const TextInputs& inputs, const PrepareOptions& options) {
  if (options.validation == 0) return inputs.size();
  const std::int64_t target =
      inputs.size() - static_cast<std::int64_t>(
                          std::floor(static_cast<double>(inputs.size()) * options.validation));
  const std::string part =
      fmt::format("the last {:.3g} % of {} bytes of text", 100 * options.validation, inputs.size());
  if (target == inputs.size() || target == 0) {
    return invalid(fmt::format("{} is nothing to validate on", part),
                   "use more text, or keep nothing for validation (--validation 0)");
  }
  const bool by_document = options.cut == ValidationCut::kDocument;
  LH_ASSIGN(const std::int64_t cut,
            by_document ? inputs.next_document(target) : inputs.next_line(target));
  if (cut < inputs.size()) return cut;
  if (by_document) {
    return invalid(fmt::format("no document starts in {}", part),
                   "cut at a line, or keep more for validation");
  }
  return invalid(fmt::format("{} is one character or line", part),
                 "use more text, or keep nothing for validation (--validation 0)");
}

std::string name_in_folder(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// One call of prepare_dataset.
class Preparation {
 public:
  Preparation(Storage& storage, const PrepareOptions& options, const Tokenizer& tokenizer,
              const PrepareCallback& progress)
      : storage_(storage),
        options_(options),
        tokenizer_(tokenizer),
        progress_(progress),
        bigram_(tokenizer.vocabulary()) {}

  Result<Dataset> run() {
    LH_ASSIGN(inputs_, TextInputs::open(storage_, options_.inputs));
    LH_ASSIGN(cut_, find_cut(*inputs_, options_));
    LH_ASSIGN(state_.job, job());
    LH_TRY(make_folders(storage_, options_.folder));
    LH_ASSIGN(std::optional<Dataset> finished, find_finished());
    if (finished) return *std::move(finished);
    LH_TRY(take_up());

    const bool train_is_done = state_.in_validation;
    LH_ASSIGN(TokenShardWriter train, open_writer("train", state_.train));
    if (!train_is_done) LH_TRY(encode_part(cut_, train));
    LH_ASSIGN(TokenShardWriter validation, open_writer("val", state_.validation));
    if (!state_.in_validation) {
      state_.in_validation = true;
      state_.from = cut_;
      state_.skip = 0;
      LH_TRY(save_state());
    }
    LH_TRY(encode_part(inputs_->size(), validation));
    if (train.tokens() == 0 || (validation.tokens() == 0) != (options_.validation == 0)) {
      return invalid("one of the parts has no text",
                     "use more text, or keep nothing for validation (--validation 0)");
    }
    return finish(train, validation);
  }

 private:
  std::string path(std::string_view name) const {
    return fmt::format("{}/{}", options_.folder, name);
  }

  /// What the tokens follow from.
  Result<std::uint64_t> job() const {
    LH_ASSIGN(const std::uint64_t inputs, inputs_->fingerprint());
    return hash_text(fmt::format("1 {} {} {} {} {} {} {}", tokenizer_.name(),
                                 tokenizer_.fingerprint(), tokenizer_.vocabulary(), cut_,
                                 options_.validation, options_.shard_tokens, inputs));
  }

  Result<std::optional<Dataset>> find_finished() {
    LH_ASSIGN(const EntryKind kind, storage_.kind(path(kDatasetFile)));
    if (kind != EntryKind::kFile) return std::nullopt;
    LH_ASSIGN(const Dataset dataset, load_dataset(storage_, options_.folder));
    if (dataset.job == state_.job) {
      LH_TRY(storage_.remove(path(kPrepareStateFile)));  // a crash may have come before this
      return dataset;
    }
    return invalid(fmt::format("{} already holds other data, of tokenizer {}", options_.folder,
                               dataset.tokenizer),
                   "choose another folder, or remove it first");
  }

  /// Goes on where an interrupted call stopped, if there was one.
  Result<void> take_up() {
    const std::string file = path(kPrepareStateFile);
    LH_ASSIGN(const EntryKind kind, storage_.kind(file));
    if (kind != EntryKind::kFile) {
      for (const char* part : {"train", "val"}) {
        LH_TRY(TokenShardWriter::refuse_shards(storage_, options_.folder, part));
      }
      return save_state();  // from here on the folder is this job's
    }
    LH_ASSIGN(const std::string text, read_text(storage_, file, kStateBytesMax));
    LH_ASSIGN(const PrepareState found, parse_prepare_state(text, file));
    const bool has_shards = found.in_validation || found.train.shards > 0;
    if (found.job != state_.job && !has_shards) return save_state();  // nothing is lost
    if (found.job != state_.job || found.from > inputs_->size()) {
      return invalid(
          fmt::format("{} holds the unfinished work of another job: other inputs, tokenizer or "
                      "options",
                      options_.folder),
          "choose another folder, or remove it first");
    }
    state_ = found;
    bytes_before_ = state_.from;
    return {};
  }

  Result<TokenShardWriter> open_writer(std::string part, const PrepareState::Part& found) {
    const bool is_train = part == "train";
    TokenShardWriter::Options options{
        options_.folder, std::move(part), tokenizer_.vocabulary(), options_.shard_tokens, true,
        found.shards};
    LH_ASSIGN(TokenShardWriter writer,
              TokenShardWriter::open(storage_, std::move(options), [&](auto tokens) {
                is_train ? bigram_.count(tokens) : bigram_.measure(tokens);
              }));
    if (writer.tokens() != found.tokens) {
      return invalid(fmt::format("the shards in {} hold {} tokens, but {} says {}", options_.folder,
                                 writer.tokens(), kPrepareStateFile, found.tokens),
                     "they were changed since; remove the folder and begin anew");
    }
    return writer;
  }

  Result<void> save_state() {
    return write_file(storage_, path(kPrepareStateFile), prepare_state_text(state_));
  }

  /// From state_.from to `end`, behind what the writer has.
  Result<void> encode_part(std::int64_t end, TokenShardWriter& writer) {
    PrepareState::Part& part = state_.at_work();
    BlockEncoders encoders(options_.threads, inputs_->field(), tokenizer_);
    const std::unique_ptr<Tokenizer> own = tokenizer_.clone();
    std::int64_t next = state_.from;  // of the block that is read next
    std::int64_t skip = state_.skip;
    // Where a block does not begin with a piece: bytes that the block before took of it, or left.
    std::size_t taken = 0;
    std::string left;
    bool left_starts = false;
    // Tokens, documents and bytes before the block at hand.
    PrepareState::Part seen = part;
    seen.tokens -= skip;
    while (next < end || !encoders.empty()) {
      while (next < end && encoders.wants_more()) {
        LH_ASSIGN(TextBlock block, inputs_->block(next, end));
        next = block.end();
        encoders.give(std::move(block));
      }
      BlockEncoders::Done done = encoders.take();
      const std::int64_t block_end = done.block.end();
      const std::size_t carried = left.size();
      if (taken > 0 || carried > 0) {
        done.block.text.insert(0, left);
        done.block.size += carried;
        if (carried > 0) done.block.starts_document = left_starts;
        done.encoded = encode_block(done.block, taken, inputs_->field(), *own);
      } else {
        state_.from = done.block.begin;
        state_.skip = 0;
        part.documents = seen.documents;
        part.text_bytes = seen.text_bytes;
        clean_tokens_ = seen.tokens;
      }
      if (done.encoded.bad_line) return bad_line(done);
      LH_TRY(take(done.encoded.tokens, skip, writer));
      seen.tokens += std::ssize(done.encoded.tokens);
      seen.documents += done.encoded.documents;
      seen.text_bytes += done.encoded.text_bytes -
                         (done.block.is_json_lines ? 0 : static_cast<std::int64_t>(carried));
      const std::size_t covered = done.encoded.end;
      left = covered < done.block.size ? done.block.text.substr(covered, done.block.size - covered)
                                       : "";
      taken = covered > done.block.size ? covered - done.block.size : 0;
      left_starts = done.encoded.left_starts;
      const std::int64_t tokens = (state_.in_validation ? state_.train.tokens : 0) + seen.tokens;
      if (!progress_({block_end, inputs_->size(), tokens, bytes_before_})) {
        return failed("stopped before the data was complete");
      }
    }
    LH_CHECK(left.empty() && taken == 0, "the last block of a part ends its input");
    LH_TRY(writer.flush());
    part = seen;
    part.shards = writer.shards();
    state_.from = end;
    state_.skip = 0;
    return save_state();
  }

  Result<void> take(std::span<const Token> tokens, std::int64_t& skip, TokenShardWriter& writer) {
    const auto skipped = static_cast<std::size_t>(std::min(skip, std::ssize(tokens)));
    skip -= static_cast<std::int64_t>(skipped);
    tokens = tokens.subspan(skipped);
    if (tokens.empty()) return {};
    state_.in_validation ? bigram_.measure(tokens) : bigram_.count(tokens);
    PrepareState::Part& part = state_.at_work();
    LH_TRY(writer.append(tokens));
    if (writer.shards() == part.shards) return {};
    part.shards = writer.shards();
    part.tokens = part.shards * options_.shard_tokens;
    state_.skip = part.tokens - clean_tokens_;
    return save_state();
  }

  std::unexpected<Error> bad_line(const BlockEncoders::Done& done) const {
    const EncodedBlock::BadLine& bad = *done.encoded.bad_line;
    auto place = inputs_->place(done.block.begin + static_cast<std::int64_t>(bad.begin));
    if (!place) return std::unexpected(std::move(place).error());
    return invalid_at(*std::move(place), bad.what, bad.hint);
  }

  Result<Dataset> finish(TokenShardWriter& train, TokenShardWriter& validation) {
    Dataset dataset{std::string(tokenizer_.name()), tokenizer_.vocabulary(), {}, {}, {}, {}, 0};
    LH_ASSIGN(dataset.train, finish_part(train, state_.train));
    LH_ASSIGN(dataset.validation, finish_part(validation, state_.validation));
    if (const auto loss = bigram_.loss()) {
      dataset.unigram_loss = loss->unigram;
      dataset.bigram_loss = loss->bigram;
    }
    dataset.job = state_.job;
    LH_TRY(copy_tokenizer(storage_, tokenizer_, options_.folder));
    // Last, because it says that the shards are complete.
    LH_TRY(write_file(storage_, path(kDatasetFile), dataset_text(dataset)));
    LH_TRY(storage_.remove(path(kPrepareStateFile)));
    return dataset;
  }

  static Result<DatasetPart> finish_part(TokenShardWriter& writer,
                                         const PrepareState::Part& counted) {
    DatasetPart part{
        writer.tokens(), counted.text_bytes, counted.documents, writer.fingerprint(), {}};
    LH_ASSIGN(const std::vector<std::string> paths, writer.finish());
    for (const std::string& shard : paths) part.shards.push_back(name_in_folder(shard));
    return part;
  }

  Storage& storage_;
  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  const PrepareCallback& progress_;
  BigramModel bigram_;
  std::optional<TextInputs> inputs_;
  std::int64_t cut_ = 0;
  std::int64_t bytes_before_ = 0;
  PrepareState state_;
  std::int64_t clean_tokens_ = 0;  // of the part, before state_.from
};

}  // namespace

Result<Dataset> prepare_dataset(Storage& storage, const PrepareOptions& options,
                                const Tokenizer& tokenizer, const PrepareCallback& progress) {
  if (!(options.validation >= 0 && options.validation < 1)) {
    return invalid(fmt::format("the part for validation is at least 0 and below 1, not {}",
                               options.validation));
  }
  LH_CHECK(options.threads >= 1, "somebody encodes");
  Result<Dataset> result = Preparation(storage, options, tokenizer, progress).run();
  if (!result && result.error().code == ErrorCode::kFailed) {
    std::string& hint = result.error().hint;
    hint += hint.empty() ? "" : "; ";
    hint += "the same command goes on from the last whole shard";
  }
  return result;
}

Result<void> copy_tokenizer(Storage& storage, const Tokenizer& tokenizer,
                            const std::string& folder) {
  const std::vector<std::string> files = tokenizer.files();
  for (const std::string& file : files) {
    std::string name = name_in_folder(file);
    if (name == "encoder.json") name = "vocab.json";  // OpenAI's names of the two
    if (name == "vocab.bpe") name = "merges.txt";
    if (tokenizer.name() == "tokenizer.json" && file == files.front()) name = "tokenizer.json";
    const std::string copy = fmt::format("{}/{}", folder, name);
    if (copy == file) continue;
    LH_ASSIGN(const std::string text, read_text(storage, file, std::uint64_t{1} << 30));
    LH_TRY(write_file(storage, copy, text));
  }
  return {};
}

}  // namespace longhaul
