#include "executor/data/bpe_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "executor/data/nfc.h"

namespace longhaul {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  // Owners of the parts: this tokenizer and its clones.
  BpeTokenizer(std::shared_ptr<const BpeParts> parts,
               std::vector<std::unique_ptr<Splitter>> splitters)
      : parts_(std::move(parts)),
        encoder_(std::shared_ptr<const BpeModel>(parts_, &parts_->model)),
        splitters_(std::move(splitters)) {}

  using Tokenizer::encode;
  std::string_view name() const override { return parts_->name; }
  std::int64_t vocabulary() const override { return std::ssize(parts_->model.tokens); }
  std::optional<Token> end_of_text() const override { return parts_->end_of_text; }
  std::uint64_t fingerprint() const override { return parts_->fingerprint; }
  std::vector<std::string> files() const override { return parts_->files; }
  std::unique_ptr<Tokenizer> clone() const override {
    std::vector<std::unique_ptr<Splitter>> splitters;
    for (const auto& splitter : splitters_) splitters.push_back(splitter->clone());
    return std::make_unique<BpeTokenizer>(parts_, std::move(splitters));
  }

  std::size_t encode(std::string_view text, const TextPart& part,
                     std::vector<Token>& out) override {
    const auto inner = [&](std::string_view segment, const TextPart& inside) {
      return parts_->nfc ? encode_in_nfc(segment, inside, out)
                         : encode_normalised(segment, inside, out);
    };
    return around_tokens(parts_->raw_tokens, text, part, out, inner);
  }

 private:
  std::string_view bytes_of(Token token) const override {
    return parts_->model.tokens[static_cast<std::size_t>(token)];
  }

  /// Takes tokens out of the text and lets `inner` encode what lies between them.
  template <class Inner>
  std::size_t around_tokens(const AddedTokens& tokens, std::string_view text, const TextPart& part,
                            std::vector<Token>& out, Inner inner) {
    if (tokens.empty()) return text.empty() ? 0 : inner(text, part);
    // Where calls may begin: behind a token only where nothing is put in front of what follows.
    struct Place {
      std::size_t done, tokens, marks;
    };
    Place safe = {0, out.size(), marks_.size()};
    bool starts = part.starts;
    bool is_safe = true;
    std::size_t done = 0;
    while (done < text.size() && (done < part.stop || !is_safe)) {
      const AddedTokens::Found found = tokens.find(text, done, part.ends);
      const bool closed = found.id >= 0 || (part.ends && found.begin == text.size());
      const std::string_view segment = text.substr(done, found.begin - done);
      if (!segment.empty()) {
        const std::size_t stop = part.stop > done ? part.stop - done : 1;
        const std::size_t old_marks = marks_.size();
        const std::size_t taken = inner(segment, {starts, closed, stop});
        for (std::size_t i = old_marks; i < marks_.size(); ++i) marks_[i].end += done;
        done += taken;
        if (taken > 0) {
          is_safe = true;
          safe = {done, out.size(), marks_.size()};
        }
        if (taken < segment.size() || done >= part.stop) break;
      }
      if (found.id < 0) break;
      out.push_back(found.id);
      done = found.end;
      if (wants_marks_) marks_.push_back({done, out.size()});
      starts = true;
      is_safe = !parts_->prefix_space;
      if (is_safe || (part.ends && done == text.size())) safe = {done, out.size(), marks_.size()};
    }
    out.resize(safe.tokens);
    marks_.resize(safe.marks);
    return safe.done;
  }

  std::size_t encode_in_nfc(std::string_view text, const TextPart& part, std::vector<Token>& out) {
    if (!part.ends) text = text.substr(0, nfc_decided(text));
    if (text.empty()) return 0;
    NfcText nfc(text);
    if (nfc.text().data() == text.data()) return encode_normalised(text, part, out);
    // Where it stops is said of the raw text: encode all, and keep what lies before.
    marks_.assign(1, {0, out.size()});
    wants_marks_ = true;
    static_cast<void>(encode_normalised(nfc.text(), {part.starts, part.ends}, out));
    wants_marks_ = false;
    std::size_t raw_done = 0;
    std::size_t kept = marks_[0].tokens;
    for (const Mark& mark : marks_) {
      const std::size_t raw = nfc.raw_end(mark.end);
      if (raw == std::string_view::npos) continue;
      raw_done = raw;
      kept = mark.tokens;
      if (raw >= part.stop) break;
    }
    out.resize(kept);
    marks_.clear();
    return raw_done;
  }

  std::size_t encode_normalised(std::string_view text, const TextPart& part,
                                std::vector<Token>& out) {
    return around_tokens(parts_->normalised_tokens, text, part, out,
                         [&](std::string_view segment, const TextPart& inside) {
                           return encode_plain(segment, inside, out);
                         });
  }

  /// Text without added tokens.
  std::size_t encode_plain(std::string_view text, const TextPart& part, std::vector<Token>& out) {
    if (!parts_->prefix_space || !part.starts || text[0] == ' ') return split(text, part, out);
    prefixed_ = " ";
    prefixed_ += text;
    const std::size_t old_tokens = out.size();
    const std::size_t old_marks = marks_.size();
    const std::size_t stop = part.stop == std::string_view::npos ? part.stop : part.stop + 1;
    const std::size_t taken = split(prefixed_, {true, part.ends, stop}, out);
    for (std::size_t i = old_marks; i < marks_.size(); ++i) --marks_[i].end;
    if (taken > 1) return taken - 1;
    out.resize(old_tokens);  // the space alone is no part of the text
    marks_.resize(old_marks);
    return 0;
  }

  std::size_t split(std::string_view text, const TextPart& part, std::vector<Token>& out) {
    Splitter& first = *splitters_[0];
    first.take(text, part.ends);
    std::size_t done = 0;
    while (done < part.stop) {
      const std::size_t length = first.next();
      if (length == 0) break;
      encode_piece(text.substr(done, length), 1, out);
      done += length;
      if (wants_marks_) marks_.push_back({done, out.size()});
    }
    return done;
  }

  /// A piece of the splitter before `level`.
  void encode_piece(std::string_view piece, std::size_t level, std::vector<Token>& out) {
    if (level == splitters_.size()) {
      encoder_.encode(piece, out);
      return;
    }
    splitters_[level]->take(piece, true);
    while (const std::size_t length = splitters_[level]->next()) {
      encode_piece(piece.substr(0, length), level + 1, out);
      piece.remove_prefix(length);
    }
  }

  std::shared_ptr<const BpeParts> parts_;
  BpeEncoder encoder_;
  std::vector<std::unique_ptr<Splitter>> splitters_;
  std::string prefixed_;
  struct Mark {
    std::size_t end;     // of a piece, in the text of the function at hand
    std::size_t tokens;  // up to there
  };
  std::vector<Mark> marks_;  // kept while a normalised text is encoded
  bool wants_marks_ = false;
};

}  // namespace

BpeBuilder::BpeBuilder(std::size_t vocabulary, std::size_t merges) {
  model_.tokens.resize(vocabulary);
  model_.merges = MergeTable(merges);
  ids_.reserve(vocabulary);
}

std::string BpeBuilder::add_token(const std::string& text, Token id, bool lenient) {
  std::string& token = model_.tokens[static_cast<std::size_t>(id)];
  if (!token.empty()) return fmt::format("two tokens have the id of `{}`", text);
  std::optional<std::string> raw = raw_token(text);
  if (text.empty() || (!raw && !lenient)) {
    return fmt::format("`{}` is not a token in GPT-2's characters", text);
  }
  token = raw ? *std::move(raw) : text;
  ids_.emplace(text, id);
  return "";
}

std::string_view BpeBuilder::add_merge(const std::string& left, const std::string& right) {
  const std::optional<Token> left_id = find(left);
  const std::optional<Token> right_id = find(right);
  const std::optional<Token> result = find(left + right);
  if (!left_id || !right_id || !result) {
    return "a part of this merge, or what it makes, is not in the vocabulary";
  }
  model_.merges.insert(*left_id, *right_id, {rank_++, *result});
  return "";
}

std::string BpeBuilder::finish(bool ignore_merges) {
  std::array<Token, 256>& byte_ids = model_.byte_ids;
  byte_ids.fill(-1);
  for (const auto& [text, id] : ids_) {
    const std::optional<std::string> raw = raw_token(text);
    if (!raw) continue;
    if (raw->size() == 1) byte_ids[static_cast<unsigned char>((*raw)[0])] = id;
    if (ignore_merges) {
      model_.whole.emplace(model_.tokens[static_cast<std::size_t>(id)], id);
    }
  }
  const auto absent = std::find(byte_ids.begin(), byte_ids.end(), -1);
  if (absent == byte_ids.end()) return "";
  return fmt::format("no token for the byte {}", absent - byte_ids.begin());
}

std::optional<Token> BpeBuilder::find(const std::string& text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::unique_ptr<Tokenizer> make_tokenizer(BpeParts parts,
                                          std::vector<std::unique_ptr<Splitter>> splitters) {
  LH_CHECK(!splitters.empty(), "something cuts the text");
  return std::make_unique<BpeTokenizer>(std::make_shared<const BpeParts>(std::move(parts)),
                                        std::move(splitters));
}

}  // namespace longhaul
