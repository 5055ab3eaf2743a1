#include "executor/data/text_inputs.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/hash.h"
#include "executor/data/characters.h"

namespace longhaul {
namespace {

constexpr std::int64_t kReadBytes = std::int64_t{1} << 20;
constexpr std::int64_t kLineBytesMax = std::int64_t{64} << 10;
constexpr std::int64_t kJsonLineBytesMax = std::int64_t{256} << 20;
constexpr int kFolderDepthMax = 64;

bool ends_with_any(std::string_view name, const std::vector<std::string>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](const std::string& suffix) { return name.ends_with(suffix); });
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// Where a block of text is cut, at most at `target`, which is inside the text: behind a line break
/// before a word, else before a space between two words, else between two characters. Never in the
/// middle of a separator.
std::size_t cut_of(std::string_view text, std::size_t target) {
  const std::size_t first = target - target / 16;
  for (std::size_t at = target; at >= first; --at) {
    if (text[at - 1] == '\n' && is_word(text[at])) return at;
  }
  for (std::size_t at = target; at >= first; --at) {
    if (text[at] == ' ' && is_word(text[at - 1]) && is_word(text[at + 1])) return at;
  }
  std::size_t at = target;
  while (at + 3 > target && at > 1 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  const std::size_t from = at - std::min(at, kDocumentSeparator.size() - 1);
  const std::size_t separator =
      text.substr(from, at - from + kDocumentSeparator.size() - 1).find(kDocumentSeparator);
  return separator == text.npos || from + separator == 0 ? at : from + separator;
}

}  // namespace

std::vector<std::string> usual_text_suffixes() {
  return {".txt", ".text", ".md", ".jsonl", ".ndjson"};
}

Result<TextInputs> TextInputs::open(Storage& storage, const TextInputOptions& options) {
  TextInputs inputs;
  inputs.storage_ = &storage;
  inputs.block_bytes_ = options.block_bytes;
  LH_CHECK(options.block_bytes >= 64, "a block holds a separator, whatever it is cut by");
  inputs.field_ = options.field.value_or("text");
  for (const std::string& path : options.paths) {
    LH_ASSIGN(const EntryKind kind, storage.kind(path));
    if (kind == EntryKind::kAbsent) return invalid(fmt::format("there is no {}", path));
    if (kind == EntryKind::kFile) {
      LH_TRY(inputs.add(storage, path, options));
      continue;
    }
    const std::size_t before = inputs.files_.size();
    LH_TRY(inputs.add_folder(storage, path, options, 0));
    if (inputs.files_.size() == before) {
      return invalid(
          fmt::format("no file below {} ends with {}", path, fmt::join(options.suffixes, ", ")),
          "--suffix says which files are text");
    }
  }
  if (inputs.size() == 0) return invalid("the inputs hold no text");
  return inputs;
}

Result<void> TextInputs::add(Storage& storage, const std::string& path,
                             const TextInputOptions& options) {
  for (const auto& [suffix, command] :
       {std::pair{".gz", "zcat"}, {".zst", "zstdcat"}, {".xz", "xzcat"}, {".bz2", "bzcat"}}) {
    if (path.ends_with(suffix)) {
      return invalid(fmt::format("{} is compressed", path),
                     fmt::format("{} {} | longhaul data prepare - ..., with --field text where it "
                                 "holds JSON lines",
                                 command, path));
    }
  }
  if (path.ends_with(".parquet") || path.ends_with(".arrow")) {
    return invalid(fmt::format("{} is a table, which is not read", path),
                   "with Hugging Face's datasets: load_dataset(...).to_json(\"text.jsonl\")");
  }
  LH_ASSIGN(const auto file, storage.open(path));
  const bool is_json_lines = options.field || ends_with_any(path, {".jsonl", ".ndjson"});
  starts_.push_back(starts_.back() + static_cast<std::int64_t>(file->size()));
  files_.push_back({path, is_json_lines});
  return {};
}

Result<void> TextInputs::add_folder(Storage& storage, const std::string& path,
                                    const TextInputOptions& options, int depth) {
  if (depth > kFolderDepthMax) {
    return invalid(fmt::format("{} is too deep: do links go in a circle?", path));
  }
  LH_ASSIGN(const std::vector<std::string> names, storage.list(path));
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    const std::string entry = path + (path.ends_with('/') ? "" : "/") + name;
    LH_ASSIGN(const EntryKind kind, storage.kind(entry));
    if (kind == EntryKind::kFolder) LH_TRY(add_folder(storage, entry, options, depth + 1));
    if (kind == EntryKind::kFile && ends_with_any(name, options.suffixes)) {
      LH_TRY(add(storage, entry, options));
    }
  }
  return {};
}

Result<std::uint64_t> TextInputs::fingerprint() const {
  constexpr std::int64_t kSample = 4096;
  std::uint64_t hash = hash_text(field_);
  std::string sample;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const std::int64_t size = starts_[i + 1] - starts_[i];
    sample = fmt::format("{} {} ", size, files_[i].is_json_lines);
    LH_TRY(read(starts_[i], starts_[i] + std::min(size, kSample), sample));
    LH_TRY(read(starts_[i + 1] - std::min(size, kSample), starts_[i + 1], sample));
    hash = hash_text(sample, hash);
  }
  return hash;
}

std::size_t TextInputs::file_at(std::int64_t position) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), position);
  return static_cast<std::size_t>(after - starts_.begin()) - 1;
}

Result<void> TextInputs::read(std::int64_t begin, std::int64_t end, std::string& out) const {
  if (begin >= end) return {};
  const std::size_t file = file_at(begin);
  LH_CHECK(end <= starts_[file + 1], "a read stays in its file");
  if (open_file_ == nullptr || open_index_ != file) {
    LH_ASSIGN(open_file_, storage_->open(files_[file].path));
    open_index_ = file;
  }
  const std::size_t old_size = out.size();
  out.resize(old_size + static_cast<std::size_t>(end - begin));
  return open_file_->read(static_cast<std::uint64_t>(begin - starts_[file]),
                          std::as_writable_bytes(std::span(out).subspan(old_size)));
}

Result<TextBlock> TextInputs::block(std::int64_t begin, std::int64_t end) const {
  const std::size_t file = file_at(begin);
  end = std::min(end, starts_[file + 1]);
  if (files_[file].is_json_lines) return json_block(begin, end);
  TextBlock block;
  block.begin = begin;
  LH_ASSIGN(block.starts_document, starts_document(begin));
  // The last piece of a block may reach into bytes behind it.
  const std::int64_t lookahead = std::max<std::int64_t>(block_bytes_ / 16, 32);
  const std::int64_t read_end = std::min(begin + block_bytes_ + lookahead, end);
  LH_TRY(read(begin, read_end, block.text));
  block.ends_input = read_end == end;
  block.size = block.ends_input ? block.text.size()
                                : cut_of(block.text, static_cast<std::size_t>(block_bytes_));
  return block;
}

Result<TextBlock> TextInputs::json_block(std::int64_t begin, std::int64_t end) const {
  TextBlock block;
  block.begin = begin;
  block.is_json_lines = true;
  block.starts_document = true;
  LH_ASSIGN(const std::int64_t found, find_behind(std::min(begin + block_bytes_, end), end, "\n"));
  if (found - begin > kJsonLineBytesMax) {
    LH_ASSIGN(SourcePlace where, place(begin));
    return std::unexpected(Error{
        ErrorCode::kInvalid,
        fmt::format("a line of more than {} MiB; JSON lines are shorter", kJsonLineBytesMax >> 20),
        "is it one JSON document? It must be an object a line",
        std::move(where),
        "",
        {}});
  }
  LH_TRY(read(begin, found, block.text));
  block.size = block.text.size();
  block.ends_input = found == end;
  return block;
}

/// Behind the first `text` that ends behind `from`, or `end`.
Result<std::int64_t> TextInputs::find_behind(std::int64_t from, std::int64_t end,
                                             std::string_view text) const {
  std::string window;
  std::int64_t window_start = from;
  for (std::int64_t at = from; at < end; at += kReadBytes) {
    LH_TRY(read(at, std::min(at + kReadBytes, end), window));
    if (const std::size_t found = window.find(text); found != window.npos) {
      return window_start + static_cast<std::int64_t>(found + text.size());
    }
    const std::size_t gone = window.size() - std::min(window.size(), text.size() - 1);
    window.erase(0, gone);
    window_start += static_cast<std::int64_t>(gone);
  }
  return end;
}

Result<std::int64_t> TextInputs::next_line(std::int64_t target) const {
  if (target <= 0) return std::int64_t{0};
  // The break before a line that starts at the target counts.
  const std::size_t file = file_at(target - 1);
  if (starts_[file + 1] == target) return target;
  const std::int64_t limit = files_[file].is_json_lines
                                 ? starts_[file + 1]
                                 : std::min(target + kLineBytesMax, starts_[file + 1]);
  LH_ASSIGN(const std::int64_t found, find_behind(target - 1, limit, "\n"));
  // A file ends a line, but what may start there is the next file, or nothing.
  const bool ends_file = found == starts_[file + 1];
  if (files_[file].is_json_lines || (ends_file && found < size())) return found;
  if (found < limit) return found;
  std::string window;
  LH_TRY(read(target, std::min(target + 4, starts_[file + 1]), window));
  std::size_t i = 0;  // no line starts here: take a character, whose later bytes are 10xxxxxx
  while (i < 3 && i < window.size() && (static_cast<unsigned char>(window[i]) & 0xc0) == 0x80) ++i;
  return target + static_cast<std::int64_t>(i);
}

Result<std::int64_t> TextInputs::next_document(std::int64_t target) const {
  if (target <= 0) return std::int64_t{0};
  const std::size_t file = file_at(target - 1);
  const std::int64_t end = starts_[file + 1];
  if (end == target || files_[file].is_json_lines) return next_line(target);
  const std::int64_t from =
      std::max(starts_[file], target - static_cast<std::int64_t>(kDocumentSeparator.size()));
  return find_behind(from, end, kDocumentSeparator);
}

Result<bool> TextInputs::starts_document(std::int64_t position) const {
  const std::size_t file = file_at(position);
  if (starts_[file] == position) return true;
  const std::int64_t before = position - static_cast<std::int64_t>(kDocumentSeparator.size());
  if (before < starts_[file]) return false;
  std::string bytes;
  LH_TRY(read(before, position, bytes));
  return bytes == kDocumentSeparator;
}

Result<SourcePlace> TextInputs::place(std::int64_t position) const {
  const std::size_t file = file_at(position);
  std::int64_t line = 1;
  std::string window;
  for (std::int64_t at = starts_[file]; at < position; at += kReadBytes) {
    window.clear();
    LH_TRY(read(at, std::min(at + kReadBytes, position), window));
    line += std::count(window.begin(), window.end(), '\n');
  }
  return SourcePlace{files_[file].path, static_cast<int>(line), 0};
}

}  // namespace longhaul
