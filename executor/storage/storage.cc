#include "executor/storage/storage.h"

#include <fmt/core.h>

#include <utility>

namespace longhaul {

std::string parent_folder(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  path = path.substr(0, slash);
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path.empty() ? "/" : std::string(path);
}

Result<void> make_folders(Storage& storage, const std::string& path) {
  std::vector<std::string> missing;  // from the inside out
  for (std::string at = path;; at = parent_folder(at)) {
    LH_ASSIGN(const EntryKind kind, storage.kind(at));
    if (kind == EntryKind::kFile) return failed(fmt::format("{} is a file, not a folder", at));
    if (kind == EntryKind::kFolder) break;
    missing.push_back(at);
    if (parent_folder(at) == at) break;
  }
  for (; !missing.empty(); missing.pop_back()) {
    LH_TRY(storage.make_folder(missing.back()));
    LH_TRY(storage.sync_folder(parent_folder(missing.back())));
  }
  return {};
}

Result<std::string> read_text(Storage& storage, const std::string& path, std::uint64_t size_max) {
  LH_ASSIGN(const auto file, storage.open(path));
  if (file->size() > size_max) {
    return invalid(fmt::format("{} has {} bytes; at most {} were expected of such a file", path,
                               file->size(), size_max));
  }
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  LH_TRY(file->read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// ---- AtomicFile

AtomicFile::AtomicFile(Storage& storage, std::string path, std::unique_ptr<WritableFile> file)
    : storage_(&storage), path_(std::move(path)), file_(std::move(file)) {}
AtomicFile::AtomicFile(AtomicFile&&) noexcept = default;

Result<AtomicFile> AtomicFile::create(Storage& storage, std::string path) {
  LH_ASSIGN(auto file, storage.create(path + std::string(kTemporarySuffix)));
  return AtomicFile(storage, std::move(path), std::move(file));
}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) return;
  const std::string temporary = file_->path();
  file_.reset();
  // The write has failed or was given up, and its reason is on its way up: should the removal fail
  // too, the temporary file is only bytes that the next write of this path takes again.
  static_cast<void>(storage_->remove(temporary));
}

Result<void> AtomicFile::append(std::span<const std::byte> bytes) {
  LH_CHECK(file_ != nullptr, "nothing follows a commit");
  return file_->append(bytes);
}

Result<void> AtomicFile::commit() {
  LH_CHECK(file_ != nullptr, "a file is committed once");
  LH_TRY(file_->sync());
  LH_TRY(file_->close());
  LH_TRY(storage_->rename(file_->path(), path_));
  file_.reset();
  return storage_->sync_folder(parent_folder(path_));
}

Result<void> write_file(Storage& storage, const std::string& path, std::string_view text) {
  LH_ASSIGN(AtomicFile file, AtomicFile::create(storage, path));
  LH_TRY(file.append(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace longhaul
