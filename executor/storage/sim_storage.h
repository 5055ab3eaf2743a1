// Storage in memory: deterministic, and as unkind as disks are. Belongs to one thread.
//
// Every call of Storage and of its files is one operation, counted from 1; a test runs its work
// once to learn the count, then again with a fault at each operation. A write that is struck by a
// fault leaves half of its bytes; another operation that is struck has no effect. A sync that fails
// forgets that the bytes were ever dirty, as Linux does: later syncs answer success and keep
// nothing.
//
//   SimStorage storage;
//   storage.crash_at(7);                                  // the machine stops at operation 7
//   EXPECT_FALSE(write_checkpoint(storage, ...));
//   storage.restart(CrashLoss::kSome, seed);              // and comes up again
#pragma once

#include <map>

#include "executor/storage/storage.h"

namespace longhaul {

/// What a crash takes of that which was not synced.
enum class CrashLoss {
  kNothing,      // the process was killed, the machine went on
  kAllUnsynced,  // power failed before anything was written back
  kSome,         // power failed while it was: any entry, and any prefix of a file's new bytes
};

class SimStorage final : public Storage {
 public:
  SimStorage();
  ~SimStorage() override;

  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> extend(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<EntryKind> kind(const std::string& path) override;
  Result<void> make_folder(const std::string& path) override;
  Result<void> sync_folder(const std::string& folder) override;
  Result<std::uint64_t> free_space(const std::string& folder) override;
  Result<std::unique_ptr<ScratchMemory>> scratch(const std::string& folder,
                                                 std::uint64_t bytes) override;

  // ---- faults; 0 switches one off
  std::uint64_t operations() const { return operations_; }
  /// Operation number n fails with an input/output error; the next ones work again.
  void fail_at(std::uint64_t n) { fail_at_ = n; }
  /// Operation number n and all after it fail, until restart().
  void crash_at(std::uint64_t n) { crash_at_ = n; }
  /// `seed` chooses what kSome keeps. Files that were open stay dead.
  void restart(CrashLoss loss, std::uint64_t seed = 0);
  /// Appending stops where all files together have this many bytes.
  void set_capacity(std::uint64_t bytes) { capacity_ = bytes; }
  /// free_space() answers this: somebody else fills the disk after we have asked.
  void pretend_free_space(std::uint64_t bytes) { pretended_free_space_ = bytes; }

  // ---- for tests, not counted as operations
  /// A durable file, with its folders.
  void put(const std::string& path, std::string bytes);
  /// The bytes as a reader sees them; the file must be there.
  const std::string& bytes(const std::string& path) const;
  bool has(const std::string& path) const;
  /// The medium rots: bit `bit` (0 to 7) of byte `offset`.
  void flip_bit(const std::string& path, std::uint64_t offset, int bit);
  /// Bytes of all files and of scratch memory together.
  std::uint64_t used() const;
  /// Paths of all files, in order.
  std::vector<std::string> files() const;

 private:
  struct Node;
  class Reader;
  class Writer;
  class Scratch;
  // Owners of a node: the names that the two maps hold for it, and the open files.
  using Entries = std::map<std::string, std::shared_ptr<Node>>;

  /// Counts an operation; an error when a fault is due.
  Result<void> begin(std::string_view action, const std::string& path);
  /// An error unless the parent of `path` is a folder.
  Result<void> need_folder(std::string_view action, const std::string& path) const;
  Node* find(const std::string& path) const;
  Result<std::unique_ptr<WritableFile>> open_to_write(const std::string& path, bool empty);

  Entries live_;     // as processes see it
  Entries durable_;  // as a machine finds it that comes up again
  std::uint64_t operations_ = 0;
  std::uint64_t fail_at_ = 0;
  std::uint64_t crash_at_ = 0;
  std::uint64_t capacity_ = 0;
  std::uint64_t pretended_free_space_ = 0;
  std::uint64_t scratch_bytes_ = 0;
  int restarts_ = 0;
};

}  // namespace longhaul
