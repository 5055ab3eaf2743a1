#include "tools/join_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "executor/storage/real_storage.h"

namespace longhaul {
namespace {

constexpr std::string_view kSchema = "longhaul/join-file/1";

std::string system_reason() {
  return std::error_code(errno, std::generic_category()).message();
}

}  // namespace

Result<void> write_join_file(const std::string& path, const JoinFile& join) {
  const nlohmann::ordered_json json = {
      {"schema", kSchema}, {"token", join.token}, {"fingerprint", join.fingerprint}};
  const std::string text = json.dump() + "\n";
  // The mode from the first moment on: a secret that is closed later was open before.
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return failed(fmt::format("cannot write {}: {}", path, system_reason()));
  const ssize_t written = write(file, text.data(), text.size());
  const bool whole = written == static_cast<ssize_t>(text.size());
  const std::string reason = system_reason();
  close(file);
  if (!whole) return failed(fmt::format("cannot write {}: {}", path, reason));
  return {};
}

Result<JoinFile> read_join_file(const std::string& path) {
  RealStorage storage;
  LH_ASSIGN(const std::string text, read_text(storage, path, 1 << 16));
  const auto wrong = [&path](const std::string& what) {
    return invalid(fmt::format("{}: {}", path, what),
                   "give the join.json that `longhaul launch` has written for this run");
  };
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("schema").get<std::string>() != kSchema)
      return wrong("no join file of this version");
    return JoinFile{json.at("token").get<std::string>(), json.at("fingerprint").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return wrong("no join file");
  }
}

}  // namespace longhaul
