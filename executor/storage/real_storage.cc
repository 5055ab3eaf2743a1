#include "executor/storage/real_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace longhaul {
namespace {

// Linux moves at most 0x7ffff000 bytes a call; smaller pieces cost nothing and stay interruptible.
constexpr std::size_t kBytesPerCall = std::size_t{1} << 30;

/// "cannot DO PATH: REASON", from errno.
std::unexpected<Error> refused(std::string_view action, const std::string& path) {
  const int reason = errno;
  char buffer[128];
  std::string hint;
  if (reason == ENOSPC || reason == EDQUOT) {
    hint = "free some space there, or give another folder";
  } else if (reason == EACCES || reason == EPERM || reason == EROFS) {
    hint = "give a folder that this user may write to";
  }
  return failed(
      fmt::format("cannot {} {}: {}", action, path, strerror_r(reason, buffer, sizeof buffer)),
      hint);
}

template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(std::string path, int descriptor, std::uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}
  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  Result<void> read(std::uint64_t offset, std::span<std::byte> into) override {
    if (offset > size_ || into.size() > size_ - offset) return ends_early(offset, into.size());
    while (!into.empty()) {
      const std::size_t piece = std::min(into.size(), kBytesPerCall);
      const ssize_t got = uninterrupted([&] {
        return ::pread(descriptor_.number(), into.data(), piece, static_cast<off_t>(offset));
      });
      if (got < 0) return refused("read", path_);
      if (got == 0) return ends_early(offset, into.size());  // shrunk since it was opened
      into = into.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return {};
  }

 private:
  std::unexpected<Error> ends_early(std::uint64_t offset, std::size_t wanted) const {
    return failed(fmt::format("{} ends before byte {} + {}", path_, offset, wanted));
  }

  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_;
};

class RealWritableFile final : public WritableFile {
 public:
  RealWritableFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  const std::string& path() const override { return path_; }

  Result<void> append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const std::size_t piece = std::min(bytes.size(), kBytesPerCall);
      const ssize_t put =
          uninterrupted([&] { return ::write(descriptor_.number(), bytes.data(), piece); });
      if (put < 0) return refused("write", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
  }

  Result<void> sync() override {
    if (uninterrupted([&] { return ::fsync(descriptor_.number()); }) != 0) {
      return refused("sync", path_);
    }
    return {};
  }

  Result<void> close() override {
    // Never repeated: Linux has let go of the descriptor even when close() was interrupted.
    if (::close(descriptor_.release()) != 0 && errno != EINTR) return refused("close", path_);
    return {};
  }

 private:
  std::string path_;
  Descriptor descriptor_;
};

class MappedScratch final : public ScratchMemory {
 public:
  explicit MappedScratch(std::span<std::byte> bytes)
      : bytes_(bytes), page_bytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    // Training data has no business in a core dump.
    ::madvise(bytes_.data(), bytes_.size(), MADV_DONTDUMP);
  }
  MappedScratch(const MappedScratch&) = delete;
  MappedScratch& operator=(const MappedScratch&) = delete;
  ~MappedScratch() override { ::munmap(bytes_.data(), bytes_.size()); }
  std::span<std::byte> bytes() override { return bytes_; }

  void prefetch(std::size_t offset, std::size_t size) override {
    LH_CHECK(offset <= bytes_.size() && size <= bytes_.size() - offset,
             "only what is there is wanted");
    const std::size_t into_page = offset % page_bytes_;
    // An advice: if the system will not take it, the bytes are read when they are touched.
    ::madvise(bytes_.data() + offset - into_page, size + into_page, MADV_WILLNEED);
  }

 private:
  std::span<std::byte> bytes_;
  std::size_t page_bytes_;
};

/// An open file in `folder` that has no name.
int open_unnamed(const std::string& folder) {
  int descriptor = uninterrupted(
      [&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600); });
  // Some network and FUSE file systems cannot do that; a kill between the two calls below leaves an
  // empty file there.
  if (descriptor < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string path = folder + "/.longhaul-scratch-XXXXXX";
    descriptor = ::mkostemp(path.data(), O_CLOEXEC);
    if (descriptor >= 0) ::unlink(path.c_str());
  }
  return descriptor;
}

Result<void> need_regular_file(const struct stat& status, const std::string& path) {
  if (S_ISREG(status.st_mode)) return {};
  return failed(fmt::format("{} is {}, not a file", path,
                            S_ISDIR(status.st_mode) ? "a folder" : "a pipe, socket or device"));
}

Result<std::unique_ptr<WritableFile>> open_to_write(const std::string& path, int flags) {
  // O_NONBLOCK: a pipe at this path must be refused below, not waited for.
  Descriptor descriptor(uninterrupted([&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  }));
  if (descriptor.number() < 0) return refused("create", path);
  struct stat status;
  if (::fstat(descriptor.number(), &status) != 0) return refused("examine", path);
  LH_TRY(need_regular_file(status, path));
  return std::make_unique<RealWritableFile>(path, descriptor.release());
}

}  // namespace

Result<std::unique_ptr<ReadableFile>> RealStorage::open(const std::string& path) {
  Descriptor descriptor(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (descriptor.number() < 0) return refused("open", path);
  struct stat status;
  if (::fstat(descriptor.number(), &status) != 0) return refused("examine", path);
  LH_TRY(need_regular_file(status, path));
  const int number = descriptor.release();
  return std::make_unique<RealReadableFile>(path, number,
                                            static_cast<std::uint64_t>(status.st_size));
}

Result<std::unique_ptr<WritableFile>> RealStorage::create(const std::string& path) {
  return open_to_write(path, O_TRUNC);
}

Result<std::unique_ptr<WritableFile>> RealStorage::extend(const std::string& path) {
  return open_to_write(path, O_APPEND);
}

Result<void> RealStorage::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return refused("rename " + from + " to", to);
  return {};
}

Result<void> RealStorage::remove(const std::string& path) {
  if (std::remove(path.c_str()) != 0 && errno != ENOENT) return refused("remove", path);
  return {};
}

Result<std::vector<std::string>> RealStorage::list(const std::string& folder) {
  DIR* const stream = ::opendir(folder.c_str());
  if (stream == nullptr) return refused("list", folder);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int reason = errno;
  ::closedir(stream);
  errno = reason;
  if (reason != 0) return refused("list", folder);
  std::sort(names.begin(), names.end());
  return names;
}

Result<EntryKind> RealStorage::kind(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) {
    return S_ISDIR(status.st_mode) ? EntryKind::kFolder : EntryKind::kFile;
  }
  if (errno == ENOENT || errno == ENOTDIR) return EntryKind::kAbsent;
  return refused("examine", path);
}

Result<void> RealStorage::make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};
  if (errno != EEXIST) return refused("create the folder", path);
  LH_ASSIGN(const EntryKind there, kind(path));
  if (there != EntryKind::kFolder) return failed(fmt::format("{} is a file, not a folder", path));
  return {};
}

Result<void> RealStorage::sync_folder(const std::string& folder) {
  const Descriptor descriptor(
      uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (descriptor.number() < 0) return refused("open the folder", folder);
  // EINVAL: a file system (some network and FUSE ones) whose folders cannot be synced. Nothing
  // stronger can be asked of it, and refusing to train there would help nobody.
  if (uninterrupted([&] { return ::fsync(descriptor.number()); }) != 0 && errno != EINVAL) {
    return refused("sync the folder", folder);
  }
  return {};
}

Result<std::uint64_t> RealStorage::free_space(const std::string& folder) {
  struct statvfs status;
  if (uninterrupted([&] { return ::statvfs(folder.c_str(), &status); }) != 0) {
    return refused("examine the disk of", folder);
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(std::uint64_t{status.f_bavail}, std::uint64_t{status.f_frsize},
                             &bytes)) {
    bytes = std::numeric_limits<std::uint64_t>::max();
  }
  return bytes;
}

Result<std::unique_ptr<ScratchMemory>> RealStorage::scratch(const std::string& folder,
                                                            std::uint64_t bytes) {
  LH_CHECK(bytes > 0, "nobody needs no memory");
  const Descriptor descriptor(open_unnamed(folder));
  if (descriptor.number() < 0) return refused("create a file in", folder);
  const std::string what = fmt::format("reserve {} bytes in", bytes);
  const auto reserve = [&] {
    return ::posix_fallocate(descriptor.number(), 0, static_cast<off_t>(bytes));
  };
  int reason = reserve();
  while (reason == EINTR) reason = reserve();
  if (reason != 0) {
    errno = reason;
    return refused(what, folder);
  }
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number(), 0);
  if (address == MAP_FAILED) return refused(fmt::format("map {} bytes in", bytes), folder);
  return std::make_unique<MappedScratch>(std::span(static_cast<std::byte*>(address), bytes));
}

}  // namespace longhaul
