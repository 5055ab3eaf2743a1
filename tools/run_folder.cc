#include "tools/run_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

namespace longhaul {
namespace {

constexpr std::string_view kSchema = "longhaul/run-folder/1";
constexpr int kNumberMax = 100'000;

}  // namespace

Result<RunFolder> RunFolder::choose(Storage& storage, const std::string& runs,
                                    const std::string& name, const std::string& job) {
  RunFolder folder;
  std::random_device random;
  folder.id_ = (std::uint64_t{random()} << 32) | random();
  if (!name.empty()) {
    folder.path_ = runs + "/" + name;
    LH_ASSIGN(const EntryKind kind, storage.kind(folder.path_));
    if (kind == EntryKind::kAbsent) return folder;
    return invalid(fmt::format("{} is there already", folder.path_),
                   fmt::format("choose another --name, or go on with --resume {}", folder.path_));
  }
  for (int n = 1; n <= kNumberMax; ++n) {
    folder.path_ = fmt::format("{}/{}-{}", runs, job, n);
    LH_ASSIGN(const EntryKind kind, storage.kind(folder.path_));
    if (kind == EntryKind::kAbsent) return folder;
  }
  return failed(fmt::format("{} has {} runs of {}", runs, kNumberMax, job), "give a --name");
}

Result<RunFolder> RunFolder::open(Storage& storage, const std::string& path) {
  const auto wrong = [&path](const std::string& why) {
    return invalid(fmt::format("{} is no run's folder: {}", path, why),
                   "give the folder that `launch` has printed");
  };
  const auto text = read_text(storage, path + "/run.json", 1 << 20);
  if (!text) return wrong(text.error().message);
  RunFolder folder;
  folder.path_ = path;
  try {
    const auto json = nlohmann::json::parse(*text);
    if (json.at("schema").get<std::string>() != kSchema)
      return wrong("its run.json is of another version");
    folder.id_ = json.at("id").get<std::uint64_t>();
  } catch (const nlohmann::json::exception&) {
    return wrong("its run.json cannot be read");
  }
  LH_TRY(folder.hold());
  return folder;
}

RunFolder::~RunFolder() {
  if (held_ >= 0) close(held_);
}
RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), id_(other.id_), held_(std::exchange(other.held_, -1)) {}
RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(id_, other.id_);
  std::swap(held_, other.held_);
  return *this;
}

Result<void> RunFolder::make(Storage& storage, const std::string& job, const std::string& data,
                             const std::string& tokenizer) {
  LH_TRY(make_folders(storage, path_));
  if (held_ < 0) LH_TRY(hold());
  const nlohmann::ordered_json json = {
      {"schema", kSchema}, {"id", id_}, {"job", job}, {"data", data}, {"tokenizer", tokenizer}};
  return write_file(storage, path_ + "/run.json", json.dump(2) + "\n");
}

Result<void> RunFolder::hold() {
  held_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // A file system without locks has to do without.
  if (held_ < 0 || flock(held_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return failed(fmt::format("another launch is at work in {}", path_),
                "wait until it has ended, or end it");
}

Result<std::optional<std::string>> data_of_run(Storage& storage, const std::string& path) {
  const std::string file = path + "/run.json";
  LH_ASSIGN(const EntryKind kind, storage.kind(file));
  if (kind != EntryKind::kFile) return std::optional<std::string>();
  LH_ASSIGN(const std::string text, read_text(storage, file, 1 << 20));
  try {
    return nlohmann::json::parse(text).at("data").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return invalid(fmt::format("{} cannot be read", file), "give --data FOLDER");
  }
}

}  // namespace longhaul
