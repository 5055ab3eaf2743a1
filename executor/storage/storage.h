// Storage: the executor's only door to files, with a real side (real_storage.h) and a simulated one
// (sim_storage.h) that can fail, fill up, lose what was not synced, and rot.
//
// What survives a crash, on both sides: the bytes of a file up to its last sync(), and an entry of
// a folder (a file's name, a rename, a removal, a new folder) once that folder was synced. Nothing
// else is promised, so a file that must appear whole or not at all is written through AtomicFile.
//
// Calls block: a worker makes them on its compute thread, never on the thread of the io_context. A
// RealStorage may be called from any thread, a SimStorage from one; a file object belongs to one
// thread at a time. A file object must not outlive its Storage. Paths are as the operating system
// reads them; `/` separates. An error names the path and, where the operating system refused, its
// reason. Only regular files are read or written: no pipe, no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace longhaul {

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  /// Size when the file was opened.
  virtual std::uint64_t size() const = 0;
  /// Fills `into` from `offset` on. A file that ends before that is an error.
  virtual Result<void> read(std::uint64_t offset, std::span<std::byte> into) = 0;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; what was not synced may be lost
  virtual const std::string& path() const = 0;
  /// All of `bytes` at the end of the file. After an error an unknown prefix of them is there.
  virtual Result<void> append(std::span<const std::byte> bytes) = 0;
  /// The bytes are on the medium when this answers. After a failed sync the file's content is
  /// unknown (the kernel may have dropped the pages): throw the file away, do not sync again.
  virtual Result<void> sync() = 0;
  /// Reports what a delayed write met (a full network disk, a quota). No call may follow.
  virtual Result<void> close() = 0;
};

/// Memory that lies on a disk: a mapped file without a name, all zero at first, which only this
/// process can open (mode 0600) and which is gone when the process ends, however it ends. Its space
/// is reserved, so that a disk that fills up later hurts nobody; a disk that breaks does, with
/// SIGBUS, as a broken swap would. The system keeps in RAM what fits there.
class ScratchMemory {
 public:
  virtual ~ScratchMemory() = default;
  /// Begins at a page.
  virtual std::span<std::byte> bytes() = 0;
  /// These bytes will be wanted soon: reading them ahead begins, nothing waits for it.
  virtual void prefetch(std::size_t offset, std::size_t size) = 0;
};

enum class EntryKind { kAbsent, kFile, kFolder };

class Storage {
 public:
  virtual ~Storage() = default;
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  /// A new, empty file; an existing one is emptied.
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  /// An existing file to be appended to (a journal, a log); created when absent.
  virtual Result<std::unique_ptr<WritableFile>> extend(const std::string& path) = 0;
  /// Replaces a file at `to`.
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file or an empty folder; one that is not there is what the caller wants.
  virtual Result<void> remove(const std::string& path) = 0;
  /// Names in a folder, not paths, in byte order.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;
  virtual Result<EntryKind> kind(const std::string& path) = 0;
  /// One level; one that is there already is fine. See make_folders.
  virtual Result<void> make_folder(const std::string& path) = 0;
  virtual Result<void> sync_folder(const std::string& folder) = 0;
  /// Bytes that this user may still write below `folder`. Others may take them first.
  virtual Result<std::uint64_t> free_space(const std::string& folder) = 0;
  /// `bytes` >= 1 on the disk of `folder`. A disk without room is an error here, not later.
  virtual Result<std::unique_ptr<ScratchMemory>> scratch(const std::string& folder,
                                                         std::uint64_t bytes) = 0;
};

/// Folder of a path: `a/b` of `a/b/c`, `.` of `c`, `/` of `/c`.
std::string parent_folder(std::string_view path);

/// Creates what is missing of `path`; durable when this answers.
Result<void> make_folders(Storage& storage, const std::string& path);

/// The whole file, if it has at most `size_max` bytes.
Result<std::string> read_text(Storage& storage, const std::string& path, std::uint64_t size_max);

/// A file that appears at `path` whole and durable, or not at all; what was at `path` stays until
/// then. Bytes go to `path` + kTemporarySuffix, which a crash may leave behind (see is_temporary)
/// and which the next write of `path` reuses: one writer a path at a time.
class AtomicFile {
 public:
  static Result<AtomicFile> create(Storage& storage, std::string path);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // without commit: removes the temporary file

  const std::string& path() const { return path_; }
  Result<void> append(std::span<const std::byte> bytes);
  /// Syncs, closes, renames, syncs the folder. After an error from the last of these the file is
  /// there but may not survive a crash. No call may follow.
  Result<void> commit();

 private:
  AtomicFile(Storage& storage, std::string path, std::unique_ptr<WritableFile> file);
  Storage* storage_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;  // null: committed, failed or moved from
};

inline constexpr std::string_view kTemporarySuffix = ".partial";
inline bool is_temporary(std::string_view name) {
  return name.ends_with(kTemporarySuffix);
}

/// An AtomicFile in one call.
Result<void> write_file(Storage& storage, const std::string& path, std::string_view text);

}  // namespace longhaul
