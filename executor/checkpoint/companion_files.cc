#include "executor/checkpoint/companion_files.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace longhaul {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr const char* kConfig = "config.json";
struct Companion {
  const char* name;
  bool is_tokenizer = false;     // by itself: the others only add to one
  const char* copied = nullptr;  // name of the copy, where that is another one
};
constexpr Companion kCompanions[] = {
    {kConfig},
    {"encoder.json", true, "vocab.json"},  // GPT-2's first names, under which data may have them
    {"vocab.bpe", false, "merges.txt"},
    {"generation_config.json"},
    {"tokenizer.json", true},
    {"tokenizer_config.json"},
    {"vocab.json", true},
    {"merges.txt"},
    {"special_tokens_map.json"},
    {"added_tokens.json"},
    {"tokenizer.model", true},  // SentencePiece, of older Llamas
    {"chat_template.jinja"},
};

Result<void> copy_file(Storage& storage, const std::string& from, const std::string& to) {
  LH_ASSIGN(const auto source, storage.open(from));
  LH_ASSIGN(AtomicFile copy, AtomicFile::create(storage, to));
  std::vector<std::byte> piece;
  for (std::uint64_t done = 0; done < source->size(); done += piece.size()) {
    piece.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, source->size() - done)));
    LH_TRY(source->read(done, piece));
    LH_TRY(copy.append(piece));
  }
  return copy.commit();
}

}  // namespace

Result<std::string> companions_of(Storage& storage, const std::string& folder) {
  // ROOT/checkpoints/CHECKPOINT has them in ROOT.
  for (const std::string& at : {folder, parent_folder(parent_folder(folder))}) {
    const std::string companions = at + "/" + kCompanionsFolder;
    LH_ASSIGN(const EntryKind kind, storage.kind(companions));
    if (kind == EntryKind::kFolder) return companions;
  }
  return std::string();
}

Result<bool> copy_companions(Storage& storage, const std::string& from, const std::string& to,
                             bool config) {
  bool has_tokenizer = false;
  for (const auto& [name, is_tokenizer, copied] : kCompanions) {
    if (name == kConfig && !config) continue;
    const std::string path = from + "/" + name;
    LH_ASSIGN(const EntryKind kind, storage.kind(path));
    if (kind != EntryKind::kFile) continue;
    LH_TRY(make_folders(storage, to));
    LH_TRY(copy_file(storage, path, to + "/" + (copied == nullptr ? name : copied)));
    has_tokenizer = has_tokenizer || is_tokenizer;
  }
  return has_tokenizer;
}

}  // namespace longhaul
