#include "executor/storage/sim_storage.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "core/rng.h"

namespace longhaul {
namespace {

std::unexpected<Error> refused(std::string_view action, const std::string& path,
                               std::string_view reason) {
  return failed(fmt::format("cannot {} {}: {}", action, path, reason));
}

/// `path` without `./` in front, doubled slashes and slashes at the end.
std::string tidy(std::string_view path) {
  std::string tidied;
  for (const char c : path) {
    if (c == '/' && tidied.ends_with('/')) continue;
    tidied += c;
  }
  while (tidied.starts_with("./") && tidied.size() > 2) tidied.erase(0, 2);
  if (tidied.size() > 1 && tidied.ends_with('/')) tidied.pop_back();
  return tidied;
}

bool is_root(const std::string& path) {
  return path == "." || path == "/";
}

}  // namespace

struct SimStorage::Node {
  bool folder = false;
  std::string bytes;       // as processes see them
  std::string durable;     // as of the last sync
  bool forgotten = false;  // a sync has failed: what is dirty is never written back
};

class SimStorage::Reader final : public ReadableFile {
 public:
  Reader(SimStorage& storage, std::string path, std::shared_ptr<Node> node)
      : storage_(storage),
        path_(std::move(path)),
        node_(std::move(node)),
        size_(node_->bytes.size()),
        born_(storage.restarts_) {}
  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  Result<void> read(std::uint64_t offset, std::span<std::byte> into) override {
    LH_TRY(storage_.begin("read", path_));
    if (born_ != storage_.restarts_) return refused("read", path_, "Bad file descriptor");
    const std::uint64_t there = std::min<std::uint64_t>(size_, node_->bytes.size());
    if (offset > there || into.size() > there - offset) {
      return failed(fmt::format("{} ends before byte {} + {}", path_, offset, into.size()));
    }
    const auto from = std::as_bytes(std::span(node_->bytes)).subspan(offset, into.size());
    std::copy(from.begin(), from.end(), into.begin());
    return {};
  }

 private:
  SimStorage& storage_;
  std::string path_;
  std::shared_ptr<Node> node_;
  std::uint64_t size_;
  int born_;
};

class SimStorage::Writer final : public WritableFile {
 public:
  Writer(SimStorage& storage, std::string path, std::shared_ptr<Node> node)
      : storage_(storage),
        path_(std::move(path)),
        node_(std::move(node)),
        born_(storage.restarts_) {}
  const std::string& path() const override { return path_; }

  Result<void> append(std::span<const std::byte> bytes) override {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const bool was_alive =
        storage_.crash_at_ == 0 || storage_.operations_ + 1 <= storage_.crash_at_;
    if (auto struck = begin("write"); !struck) {
      if (was_alive && born_ == storage_.restarts_) node_->bytes += text.substr(0, text.size() / 2);
      return struck;
    }
    const std::uint64_t used = storage_.used();
    const std::uint64_t room = storage_.capacity_ == 0     ? text.size()
                               : storage_.capacity_ > used ? storage_.capacity_ - used
                                                           : 0;
    node_->bytes += text.substr(0, room);
    if (room < text.size()) return refused("write", path_, "No space left on device");
    return {};
  }

  Result<void> sync() override {
    const bool was_alive = storage_.crash_at_ == 0 || storage_.operations_ + 1 < storage_.crash_at_;
    if (auto struck = begin("sync"); !struck) {
      if (was_alive) node_->forgotten = true;
      return struck;
    }
    if (!node_->forgotten) node_->durable = node_->bytes;
    return {};
  }

  Result<void> close() override { return begin("close"); }

 private:
  Result<void> begin(std::string_view action) {
    LH_TRY(storage_.begin(action, path_));
    if (born_ != storage_.restarts_) return refused(action, path_, "Bad file descriptor");
    return {};
  }

  SimStorage& storage_;
  std::string path_;
  std::shared_ptr<Node> node_;
  int born_;
};

class SimStorage::Scratch final : public ScratchMemory {
 public:
  Scratch(SimStorage& storage, std::uint64_t size) : storage_(storage), bytes_(size) {
    storage_.scratch_bytes_ += size;
  }
  ~Scratch() override { storage_.scratch_bytes_ -= bytes_.size(); }
  std::span<std::byte> bytes() override { return bytes_; }
  void prefetch(std::size_t, std::size_t) override {}

 private:
  SimStorage& storage_;
  std::vector<std::byte> bytes_;
};

SimStorage::SimStorage() = default;
SimStorage::~SimStorage() = default;

Result<void> SimStorage::begin(std::string_view action, const std::string& path) {
  ++operations_;
  if (crash_at_ != 0 && operations_ >= crash_at_)
    return refused(action, path, "the machine stopped");
  if (operations_ == fail_at_) return refused(action, path, "Input/output error");
  return {};
}

SimStorage::Node* SimStorage::find(const std::string& path) const {
  const auto at = live_.find(path);
  return at == live_.end() ? nullptr : at->second.get();
}

Result<void> SimStorage::need_folder(std::string_view action, const std::string& path) const {
  const std::string folder = parent_folder(path);
  if (is_root(folder)) return {};
  const Node* const node = find(folder);
  if (node == nullptr) return refused(action, path, "No such file or directory");
  if (!node->folder) return refused(action, path, "Not a directory");
  return {};
}

Result<std::unique_ptr<ReadableFile>> SimStorage::open(const std::string& raw_path) {
  const std::string path = tidy(raw_path);
  LH_TRY(begin("open", path));
  const auto at = live_.find(path);
  if (at == live_.end()) return refused("open", path, "No such file or directory");
  if (at->second->folder) return failed(fmt::format("{} is a folder, not a file", path));
  return std::make_unique<Reader>(*this, path, at->second);
}

Result<std::unique_ptr<WritableFile>> SimStorage::open_to_write(const std::string& raw_path,
                                                                bool empty) {
  const std::string path = tidy(raw_path);
  LH_TRY(begin("create", path));
  LH_TRY(need_folder("create", path));
  std::shared_ptr<Node>& node = live_[path];
  if (node == nullptr) node = std::make_shared<Node>();
  if (node->folder) return refused("create", path, "Is a directory");
  if (empty) node->bytes.clear();
  return std::make_unique<Writer>(*this, path, node);
}

Result<std::unique_ptr<WritableFile>> SimStorage::create(const std::string& path) {
  return open_to_write(path, true);
}

Result<std::unique_ptr<WritableFile>> SimStorage::extend(const std::string& path) {
  return open_to_write(path, false);
}

Result<void> SimStorage::rename(const std::string& raw_from, const std::string& raw_to) {
  const std::string from = tidy(raw_from);
  const std::string to = tidy(raw_to);
  const std::string action = "rename " + from + " to";
  LH_TRY(begin(action, to));
  LH_TRY(need_folder(action, to));
  const auto at = live_.find(from);
  if (at == live_.end()) return refused(action, to, "No such file or directory");
  LH_CHECK(!at->second->folder, "the executor renames files only");
  if (const Node* const there = find(to); there != nullptr && there->folder) {
    return refused(action, to, "Is a directory");
  }
  std::shared_ptr<Node> node = at->second;
  live_.erase(at);
  live_[to] = std::move(node);
  return {};
}

Result<void> SimStorage::remove(const std::string& raw_path) {
  const std::string path = tidy(raw_path);
  LH_TRY(begin("remove", path));
  const auto at = live_.find(path);
  if (at == live_.end()) return {};
  for (const auto& [name, node] : live_) {
    if (parent_folder(name) == path) return refused("remove", path, "Directory not empty");
  }
  live_.erase(at);
  return {};
}

Result<std::vector<std::string>> SimStorage::list(const std::string& raw_folder) {
  const std::string folder = tidy(raw_folder);
  LH_TRY(begin("list", folder));
  const Node* const node = find(folder);
  if (!is_root(folder)) {
    if (node == nullptr) return refused("list", folder, "No such file or directory");
    if (!node->folder) return refused("list", folder, "Not a directory");
  }
  std::vector<std::string> names;
  for (const auto& [path, entry] : live_) {
    if (parent_folder(path) == folder) names.push_back(path.substr(path.rfind('/') + 1));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<EntryKind> SimStorage::kind(const std::string& raw_path) {
  const std::string path = tidy(raw_path);
  LH_TRY(begin("examine", path));
  if (is_root(path)) return EntryKind::kFolder;
  const Node* const node = find(path);
  if (node == nullptr) return EntryKind::kAbsent;
  return node->folder ? EntryKind::kFolder : EntryKind::kFile;
}

Result<void> SimStorage::make_folder(const std::string& raw_path) {
  const std::string path = tidy(raw_path);
  LH_TRY(begin("create the folder", path));
  if (is_root(path)) return {};
  LH_TRY(need_folder("create the folder", path));
  if (const Node* const there = find(path)) {
    if (there->folder) return {};
    return failed(fmt::format("{} is a file, not a folder", path));
  }
  live_[path] = std::make_shared<Node>();
  live_[path]->folder = true;
  return {};
}

Result<void> SimStorage::sync_folder(const std::string& raw_folder) {
  const std::string folder = tidy(raw_folder);
  LH_TRY(begin("sync the folder", folder));
  const Node* const node = find(folder);
  if (!is_root(folder) && (node == nullptr || !node->folder)) {
    return refused("sync the folder", folder, "No such file or directory");
  }
  std::erase_if(durable_, [&](const auto& entry) { return parent_folder(entry.first) == folder; });
  for (const auto& [path, entry] : live_) {
    if (parent_folder(path) == folder) durable_[path] = entry;
  }
  return {};
}

Result<std::uint64_t> SimStorage::free_space(const std::string& folder) {
  LH_TRY(begin("examine the disk of", folder));
  if (pretended_free_space_ != 0) return pretended_free_space_;
  if (capacity_ == 0) return std::numeric_limits<std::uint64_t>::max();
  return capacity_ - std::min(capacity_, used());
}

Result<std::unique_ptr<ScratchMemory>> SimStorage::scratch(const std::string& raw_folder,
                                                           std::uint64_t bytes) {
  LH_CHECK(bytes > 0, "nobody needs no memory");
  const std::string folder = tidy(raw_folder);
  LH_TRY(begin("reserve space in", folder));
  LH_TRY(need_folder("reserve space in", folder + "/file"));
  if (capacity_ != 0 && bytes > capacity_ - std::min(capacity_, used())) {
    return refused("reserve space in", folder, "No space left on device");
  }
  return std::make_unique<Scratch>(*this, bytes);
}

void SimStorage::restart(CrashLoss loss, std::uint64_t seed) {
  ++restarts_;
  crash_at_ = 0;
  fail_at_ = 0;
  if (loss == CrashLoss::kNothing) return;

  Rng rng("crash", seed);
  const bool some = loss == CrashLoss::kSome;
  std::set<std::string> paths;
  for (const Entries* entries : {&live_, &durable_}) {
    for (const auto& [path, node] : *entries) paths.insert(path);
  }
  Entries kept;
  for (const std::string& path : paths) {  // a folder comes before what is in it
    const Entries& from = some && rng.chance(0.5) ? live_ : durable_;
    const auto at = from.find(path);
    const std::string folder = parent_folder(path);
    if (at != from.end() && (is_root(folder) || kept.contains(folder))) kept.insert(*at);
  }
  std::set<const Node*> settled;  // a rename that half survived leaves two names for one file
  for (const auto& [path, node] : kept) {
    if (!settled.insert(node.get()).second) continue;
    if (some && !node->forgotten && rng.chance(0.5)) {
      const bool grown = node->bytes.starts_with(node->durable);
      const std::size_t least = grown ? node->durable.size() : 0;
      node->bytes.resize(least + rng.index(node->bytes.size() - least + 1));
    } else {
      node->bytes = node->durable;
    }
    node->durable = node->bytes;
    node->forgotten = false;
  }
  live_ = kept;
  durable_ = std::move(kept);
}

void SimStorage::put(const std::string& raw_path, std::string bytes) {
  const std::string path = tidy(raw_path);
  for (std::string folder = parent_folder(path); !is_root(folder); folder = parent_folder(folder)) {
    auto node = std::make_shared<Node>();
    node->folder = true;
    live_.emplace(folder, node);
    durable_.emplace(folder, live_[folder]);
  }
  auto node = std::make_shared<Node>();
  node->bytes = node->durable = std::move(bytes);
  live_[path] = durable_[path] = std::move(node);
}

const std::string& SimStorage::bytes(const std::string& path) const {
  const Node* const node = find(tidy(path));
  LH_CHECK(node != nullptr && !node->folder, "the test asks for a file that is there");
  return node->bytes;
}

bool SimStorage::has(const std::string& path) const {
  return find(tidy(path)) != nullptr;
}

void SimStorage::flip_bit(const std::string& path, std::uint64_t offset, int bit) {
  Node* const node = find(tidy(path));
  LH_CHECK(node != nullptr && offset < node->bytes.size(), "only what is there can rot");
  for (std::string* const bytes : {&node->bytes, &node->durable}) {
    if (offset < bytes->size()) (*bytes)[offset] = static_cast<char>((*bytes)[offset] ^ (1 << bit));
  }
}

std::uint64_t SimStorage::used() const {
  std::uint64_t sum = scratch_bytes_;
  for (const auto& [path, node] : live_) sum += node->bytes.size();
  return sum;
}

std::vector<std::string> SimStorage::files() const {
  std::vector<std::string> paths;
  for (const auto& [path, node] : live_) {
    if (!node->folder) paths.push_back(path);
  }
  return paths;
}

}  // namespace longhaul
