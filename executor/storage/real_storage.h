// Storage on the machine's own disks, over POSIX. Stateless: any thread may call it.
//
// Short writes and interrupted calls are continued. A full disk is an error that says so; what was
// there before is untouched as long as the caller writes through AtomicFile.
#pragma once

#include "executor/storage/storage.h"

namespace longhaul {

class RealStorage final : public Storage {
 public:
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
};

}  // namespace longhaul
