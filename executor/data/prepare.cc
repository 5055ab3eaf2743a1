#include "executor/data/prepare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "executor/data/bigram.h"

namespace longhaul {
namespace {

constexpr std::string_view kSeparator = "<|endoftext|>";
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
/// How far the validation part's start is moved to find a line break.
constexpr std::int64_t kLineBytesMax = std::int64_t{64} << 10;

/// The inputs as one text.
class Text {
 public:
  static Result<Text> open(Storage& storage, const std::vector<std::string>& inputs) {
    Text text;
    for (const std::string& input : inputs) {
      LH_ASSIGN(const EntryKind kind, storage.kind(input));
      if (kind == EntryKind::kAbsent) return invalid(fmt::format("there is no {}", input));
      if (kind == EntryKind::kFolder) {
        return invalid(fmt::format("{} is a folder", input), "name the files in it");
      }
      LH_ASSIGN(auto file, storage.open(input));
      text.starts_.push_back(text.starts_.back() + static_cast<std::int64_t>(file->size()));
      text.files_.push_back(std::move(file));
    }
    return text;
  }

  std::int64_t size() const { return starts_.back(); }
  /// Where each input starts, and the end.
  std::span<const std::int64_t> starts() const { return starts_; }

  /// The bytes [begin, end) behind what is in `out`.
  Result<void> append(std::int64_t begin, std::int64_t end, std::string& out) const {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const std::int64_t from = std::max(begin, starts_[i]);
      const std::int64_t to = std::min(end, starts_[i + 1]);
      if (from >= to) continue;
      const std::size_t old_size = out.size();
      out.resize(old_size + static_cast<std::size_t>(to - from));
      LH_TRY(files_[i]->read(static_cast<std::uint64_t>(from - starts_[i]),
                             std::as_writable_bytes(std::span(out).subspan(old_size))));
    }
    return {};
  }

 private:
  std::vector<std::unique_ptr<ReadableFile>> files_;
  std::vector<std::int64_t> starts_ = {0};
};

struct Cut {
  std::int64_t at = 0;
  bool starts_document = false;
};

/// First document that starts at or behind `target`; at the text's end when there is none.
Result<std::int64_t> next_document(const Text& text, std::int64_t target) {
  const auto input = std::lower_bound(text.starts().begin(), text.starts().end(), target);
  const std::int64_t next_input = *input;
  // Separators do not reach from one input into another.
  const std::int64_t this_input = target == next_input ? target : *std::prev(input);
  const auto length = static_cast<std::int64_t>(kSeparator.size());
  std::string window;
  std::int64_t window_start = std::max(this_input, target - length);
  for (std::int64_t read = window_start; read < next_input; read += kChunkBytes) {
    LH_TRY(text.append(read, std::min(read + kChunkBytes, next_input), window));
    const std::size_t found = window.find(kSeparator);
    if (found != window.npos) return window_start + static_cast<std::int64_t>(found) + length;
    const std::size_t gone = window.size() - std::min(window.size(), kSeparator.size() - 1);
    window.erase(0, gone);
    window_start += static_cast<std::int64_t>(gone);
  }
  return next_input;
}

Result<std::int64_t> next_line(const Text& text, std::int64_t target) {
  std::string window;
  LH_TRY(text.append(target - 1, std::min(target + kLineBytesMax, text.size()), window));
  const std::size_t found = window.find('\n');
  const std::int64_t line =
      found == window.npos ? text.size() : target + static_cast<std::int64_t>(found);
  if (line < text.size()) return line;
  std::size_t i = 1;  // no line starts here: take a character, whose later bytes are 10xxxxxx
  while (i < 4 && i < window.size() && (static_cast<unsigned char>(window[i]) & 0xc0) == 0x80) ++i;
  return target - 1 + static_cast<std::int64_t>(i);
}

Result<bool> starts_document(const Text& text, std::int64_t at) {
  const auto input = std::upper_bound(text.starts().begin(), text.starts().end(), at);
  if (*std::prev(input) == at) return true;
  const std::int64_t before = at - static_cast<std::int64_t>(kSeparator.size());
  if (before < *std::prev(input)) return false;
  std::string bytes;
  LH_TRY(text.append(before, at, bytes));
  return bytes == kSeparator;
}

/// Where the validation part starts.
Result<Cut> find_cut(const Text& text, const PrepareOptions& options) {
  if (options.validation == 0) return Cut{text.size(), true};
  const std::int64_t target =
      text.size() -
      static_cast<std::int64_t>(std::floor(static_cast<double>(text.size()) * options.validation));
  const std::string part =
      fmt::format("the last {:.3g} % of {} bytes of text", 100 * options.validation, text.size());
  if (target == text.size() || target == 0) {
    return invalid(fmt::format("{} is nothing to validate on", part), "use more text");
  }
  if (options.cut == ValidationCut::kDocument) {
    LH_ASSIGN(const std::int64_t document, next_document(text, target));
    if (document == text.size()) {
      return invalid(fmt::format("no document starts in {}", part),
                     "cut at a line, or keep more for validation");
    }
    return Cut{document, true};
  }
  LH_ASSIGN(const std::int64_t line, next_line(text, target));
  if (line == text.size())
    return invalid(fmt::format("{} is one character", part), "use more text");
  LH_ASSIGN(const bool at_document, starts_document(text, line));
  return Cut{line, at_document};
}

/// Encodes one part of the text: documents to tokens, tokens to shards and to the bigram model.
class PartEncoder {
 public:
  using TokensCallback = std::function<Result<void>(std::span<const Token>)>;

  PartEncoder(const Text& text, Tokenizer& tokenizer, TokensCallback take)
      : text_(text), tokenizer_(tokenizer), take_(std::move(take)) {}

  /// `at_document`: a document starts at `begin`. `step` is told the bytes behind each chunk.
  Result<void> encode(std::int64_t begin, std::int64_t end, bool at_document,
                      const std::function<Result<void>(std::int64_t)>& step) {
    document_is_due_ = at_document;
    for (std::size_t i = 0; i + 1 < text_.starts().size(); ++i) {
      const std::int64_t from = std::max(begin, text_.starts()[i]);
      const std::int64_t to = std::min(end, text_.starts()[i + 1]);
      if (from == text_.starts()[i]) document_is_due_ = true;
      std::string pending;
      for (std::int64_t at = from; at < to; at += kChunkBytes) {
        const std::int64_t next = std::min(at + kChunkBytes, to);
        LH_TRY(text_.append(at, next, pending));
        pending.erase(0, encode_some(pending, next == to));
        LH_TRY(take_(tokens_));
        tokens_.clear();
        LH_TRY(step(next));
      }
    }
    return {};
  }

  std::int64_t documents() const { return documents_; }

 private:
  /// Answers how much of the text was taken: all of it when it is the last of its input.
  std::size_t encode_some(std::string_view text, bool last) {
    std::size_t done = 0;
    if (tokenizer_.end_of_text()) {
      for (std::size_t end; (end = text.find(kSeparator, done)) != text.npos;) {
        encode_document(text.substr(done, end - done), Tokenizer::Rest::kNone);
        document_is_due_ = true;
        done = end + kSeparator.size();
      }
    }
    std::string_view rest = text.substr(done);
    // What is left may end with the start of a separator.
    if (!last) rest.remove_suffix(std::min(rest.size(), kSeparator.size() - 1));
    return done + encode_document(rest, last ? Tokenizer::Rest::kNone : Tokenizer::Rest::kFollows);
  }

  std::size_t encode_document(std::string_view text, Tokenizer::Rest rest) {
    if (text.empty()) return 0;
    if (document_is_due_) {
      if (tokenizer_.end_of_text()) tokens_.push_back(*tokenizer_.end_of_text());
      ++documents_;
      document_is_due_ = false;
    }
    return tokenizer_.encode(text, rest, tokens_);
  }

  const Text& text_;
  Tokenizer& tokenizer_;
  TokensCallback take_;
  std::vector<Token> tokens_;
  bool document_is_due_ = true;
  std::int64_t documents_ = 0;
};

std::string name_in_folder(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

Result<DatasetPart> finish_part(TokenShardWriter& writer, std::int64_t text_bytes,
                                std::int64_t documents) {
  DatasetPart part{writer.tokens(), text_bytes, documents, writer.fingerprint(), {}};
  LH_ASSIGN(const std::vector<std::string> paths, writer.finish());
  for (const std::string& path : paths) part.shards.push_back(name_in_folder(path));
  return part;
}

}  // namespace

Result<Dataset> prepare_dataset(Storage& storage, const PrepareOptions& options,
                                Tokenizer& tokenizer, const PrepareCallback& progress) {
  if (!(options.validation >= 0 && options.validation < 1)) {
    return invalid(fmt::format("the part for validation is at least 0 and below 1, not {}",
                               options.validation));
  }
  LH_ASSIGN(const Text text, Text::open(storage, options.inputs));
  if (text.size() == 0) return invalid("the inputs hold no text");
  LH_ASSIGN(const Cut cut, find_cut(text, options));

  LH_TRY(make_folders(storage, options.folder));
  const auto writer_options = [&](std::string part) {
    return TokenShardWriter::Options{options.folder, std::move(part), tokenizer.vocabulary(),
                                     options.shard_tokens};
  };
  LH_ASSIGN(TokenShardWriter train, TokenShardWriter::open(storage, writer_options("train")));
  LH_ASSIGN(TokenShardWriter validation, TokenShardWriter::open(storage, writer_options("val")));
  const auto step = [&](std::int64_t done) -> Result<void> {
    if (progress({done, text.size(), train.tokens() + validation.tokens()})) return {};
    return failed("stopped before the data was complete");
  };

  BigramModel bigram(tokenizer.vocabulary());
  PartEncoder train_encoder(text, tokenizer, [&](std::span<const Token> tokens) {
    bigram.count(tokens);
    return train.append(tokens);
  });
  LH_TRY(train_encoder.encode(0, cut.at, true, step));
  PartEncoder validation_encoder(text, tokenizer, [&](std::span<const Token> tokens) {
    bigram.measure(tokens);
    return validation.append(tokens);
  });
  LH_TRY(validation_encoder.encode(cut.at, text.size(), cut.starts_document, step));
  if (train.tokens() == 0 || (validation.tokens() == 0) != (options.validation == 0)) {
    return invalid("one of the parts has separators alone", "use more text");
  }

  Dataset dataset{std::string(tokenizer.name()), tokenizer.vocabulary(), {}, {}, {}, {}};
  LH_ASSIGN(dataset.train, finish_part(train, cut.at, train_encoder.documents()));
  LH_ASSIGN(dataset.validation,
            finish_part(validation, text.size() - cut.at, validation_encoder.documents()));
  if (const auto loss = bigram.loss()) {
    dataset.unigram_loss = loss->unigram;
    dataset.bigram_loss = loss->bigram;
  }
  // Last, because it says that the shards are complete.
  LH_TRY(write_file(storage, fmt::format("{}/{}", options.folder, kDatasetFile),
                    dataset_text(dataset)));
  return dataset;
}

}  // namespace longhaul
