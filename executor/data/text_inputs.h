// The texts that `data prepare` reads, one behind the other: plain text files and files of JSON
// lines. Positions are bytes of the files, counted through all of them.
//
// In a text file a document ends with the file or at `<|endoftext|>`; in a file of JSON lines each
// line is an object, and the text in one of its fields a document. One thread; reads may block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/storage/storage.h"

namespace longhaul {

inline constexpr std::string_view kDocumentSeparator = "<|endoftext|>";

/// .txt .text .md .jsonl .ndjson
std::vector<std::string> usual_text_suffixes();

struct TextInputOptions {
  /// Files and folders. A folder stands for the files below it whose names end with one of
  /// `suffixes`, in the order of their paths; names that start with a dot are left out.
  std::vector<std::string> paths;
  std::vector<std::string> suffixes = usual_text_suffixes();
  /// The field with the text: all files are JSON lines then. Without it those are that end with
  /// .jsonl or .ndjson, and the field is `text`.
  std::optional<std::string> field = {};
  /// Of a block of text, about; at least 64. Tokens do not depend on it: tests make it small.
  std::int64_t block_bytes = std::int64_t{1} << 20;
};

/// A part of the inputs that is encoded as one.
struct TextBlock {
  std::int64_t begin = 0;  // position
  bool is_json_lines = false;
  /// A document starts with the block.
  bool starts_document = false;
  /// Its bytes: whole JSON lines, or text.
  std::size_t size = 0;
  /// And some that follow, of the same input and part; no more when `ends_input`.
  std::string text;
  bool ends_input = false;

  std::int64_t end() const { return begin + static_cast<std::int64_t>(size); }
};

class TextInputs {
 public:
  /// Errors (kInvalid): what is not there, a folder without such files, compressed files.
  static Result<TextInputs> open(Storage& storage, const TextInputOptions& options);

  std::int64_t size() const { return starts_.back(); }
  std::size_t files() const { return files_.size(); }
  const std::string& field() const { return field_; }
  /// Of sizes, and of what is at the start and at the end of each file.
  Result<std::uint64_t> fingerprint() const;

  /// The next block of [begin, end). Blocks follow each other, so they depend on `begin` and `end`
  /// alone; they are cut where tokenizers cut, too, as far as that is known. `begin` is the start
  /// of an input, the end of a block, or what `next_line` or `next_document` answered.
  Result<TextBlock> block(std::int64_t begin, std::int64_t end) const;

  /// The first line that starts at or behind `target`, or the size. Where no line of plain text
  /// starts for 64 KiB, the next character is taken.
  Result<std::int64_t> next_line(std::int64_t target) const;
  Result<std::int64_t> next_document(std::int64_t target) const;
  /// File and line of a position, for messages.
  Result<SourcePlace> place(std::int64_t position) const;

 private:
  struct File {
    std::string path;
    bool is_json_lines;
  };
  Result<void> add(Storage& storage, const std::string& path, const TextInputOptions& options);
  Result<void> add_folder(Storage& storage, const std::string& path,
                          const TextInputOptions& options, int depth);
  std::size_t file_at(std::int64_t position) const;
  /// Bytes [begin, end) of one file, appended to `out`.
  Result<void> read(std::int64_t begin, std::int64_t end, std::string& out) const;
  Result<TextBlock> json_block(std::int64_t begin, std::int64_t end) const;
  Result<std::int64_t> find_behind(std::int64_t from, std::int64_t end,
                                   std::string_view text) const;
  Result<bool> starts_document(std::int64_t position) const;

  Storage* storage_ = nullptr;
  std::int64_t block_bytes_ = 0;
  std::vector<File> files_;
  std::vector<std::int64_t> starts_ = {0};  // of each file, then the total
  std::string field_;
  // The file that was read last: there may be more files than a process may open.
  mutable std::size_t open_index_ = 0;
  mutable std::unique_ptr<ReadableFile> open_file_;
};

}  // namespace longhaul
