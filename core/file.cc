#include "core/file.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace longhaul {
namespace {

namespace fs = std::filesystem;

std::string temporary_of(const std::string& path) {
  return path + ".part";
}

std::unexpected<Error> cannot_write(const std::string& path, int code) {
  std::remove(temporary_of(path).c_str());
  return failed(fmt::format("cannot write {}: {}", path, std::strerror(code)));
}

/// The temporary file, opened; null with errno when it cannot be.
std::FILE* open_temporary(const std::string& path) {
  std::error_code ignored;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder, ignored);
  if (fs::is_directory(path, ignored)) {
    errno = EISDIR;
    return nullptr;
  }
  return std::fopen(temporary_of(path).c_str(), "wb");
}

}  // namespace

Result<void> write_file(const std::string& path, const std::string& text) {
  std::FILE* file = open_temporary(path);
  if (file == nullptr) return cannot_write(path, errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) return cannot_write(path, write_error);
  if (!closed) return cannot_write(path, errno);
  std::error_code error;
  fs::rename(temporary_of(path), path, error);
  if (error) return cannot_write(path, error.value());
  return {};
}

Result<void> check_writable(const std::string& path) {
  std::FILE* file = open_temporary(path);
  if (file == nullptr) return cannot_write(path, errno);
  std::fclose(file);
  std::remove(temporary_of(path).c_str());
  return {};
}

}  // namespace longhaul
