#include "executor/checkpoint/manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <utility>

#include "core/config_cursor.h"
#include "core/model_text.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kManifestBytesMax = 16 << 20;
constexpr std::string_view kSchema = "longhaul/checkpoint/1";
constexpr std::string_view kHashKey = "content_hash: ";
constexpr std::int64_t kExtentMax = 1 << 24;
constexpr std::int64_t kLayersMax = 4096;
constexpr std::int64_t kCountMax = std::int64_t{1} << 53;
constexpr std::uint64_t kSeedMax = std::numeric_limits<std::int64_t>::max();

std::string path_of(const std::string& root, CheckpointId id) {
  return root + "/" + folder_name(id);
}

std::string manifest_path(const std::string& root, CheckpointId id) {
  return path_of(root, id) + "/" + std::string(kManifestName);
}

/// Names of the files that a checkpoint of this model has, in order.
std::vector<std::string> file_names(const ModelShape& model) {
  std::vector<std::string> names;
  for (const CheckpointPart part : parts_of(model)) {
    names.push_back(weights_file_name(part));
    names.push_back(optimiser_file_name(part));
  }
  return names;
}

// ---- reading

std::uint64_t count(const Cursor& at, std::uint64_t max, std::uint64_t min = 0) {
  return static_cast<std::uint64_t>(
      at.integer({.min = static_cast<std::int64_t>(min), .max = static_cast<std::int64_t>(max)},
                 static_cast<std::int64_t>(min)));
}

int extent(const Cursor& at, std::int64_t max = kExtentMax) {
  return static_cast<int>(at.integer({.min = 1, .max = max}, 1));
}

ContentHash content_hash(const Cursor& at) {
  const std::string text = at.text();
  const auto hash = ContentHash::parse(text);
  if (at.present() && !hash) {
    at.fail(fmt::format("`{}` is not a hash of 32 hexadecimal digits", text));
  }
  return hash.value_or(ContentHash{});
}

std::uint64_t job_hash(const Cursor& at) {
  const std::string text = at.text();
  std::uint64_t hash = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, hash, 16);
  if (at.present() && (text.size() != 16 || stop != end || error != std::errc())) {
    at.fail(fmt::format("`{}` is not a hash of 16 hexadecimal digits", text));
  }
  return hash;
}

ModelShape read_model(const Cursor& at) {
  ModelShape model;
  model.family =
      at.key("family").choice({"gpt2", "llama"}) == 0 ? ModelFamily::kGpt2 : ModelFamily::kLlama;
  model.layers = extent(at.key("layers"), kLayersMax);
  model.width = extent(at.key("width"));
  model.heads = extent(at.key("heads"));
  model.kv_heads = extent(at.key("kv_heads"));
  model.head_width = extent(at.key("head_width"));
  model.ffn_width = extent(at.key("ffn_width"));
  model.context = extent(at.key("context"));
  model.vocabulary = extent(at.key("vocabulary"));
  model.tied_embedding = at.key("tied_embedding").boolean();
  if (model.heads % model.kv_heads != 0) {
    at.key("kv_heads")
        .fail(fmt::format("{} query heads cannot share {} key-value heads evenly", model.heads,
                          model.kv_heads));
  }
  if (model.family == ModelFamily::kGpt2 && model.kv_heads != model.heads) {
    at.key("kv_heads").fail("gpt2 has one key-value head for each query head");
  }
  read_model_numbers(at, model);  // files of older versions have none
  if (std::int64_t{model.heads} * model.head_width > kExtentMax) {
    at.key("head_width").fail(fmt::format("all heads together are wider than {}", kExtentMax));
  }
  return model;
}

HeldFile read_file(const Cursor& at, std::string_view expected_name) {
  HeldFile held;
  held.file.name = at.key("name").text();
  if (held.file.name != expected_name) {
    at.key("name").fail(
        fmt::format("`{}` stands where this model has `{}`", held.file.name, expected_name));
  }
  const double size = at.key("size").size().value();
  held.file.bytes = size <= static_cast<double>(kCountMax) ? static_cast<std::uint64_t>(size) : 0;
  if (static_cast<double>(held.file.bytes) != size || size < 8) {
    at.key("size").fail("no size of a safetensors file in whole bytes");
  }
  held.file.hash = content_hash(at.key("hash"));
  for (const Cursor& holder : at.key("holders").items()) {
    held.holders.push_back(holder.text());
    const auto last = held.holders.end() - 1;
    if (last->empty()) holder.fail("a holder has a name");
    if (std::find(held.holders.begin(), last, *last) != last) {
      holder.fail(fmt::format("`{}` is named twice", *last));
    }
  }
  return held;
}

/// The hash line must be the last, and true of all that is before it.
void check_content_hash(const Cursor& at, std::string_view text) {
  const ContentHash given = content_hash(at);
  if (!at.present()) return;
  const std::size_t line = text.rfind("\n" + std::string(kHashKey));
  if (line == std::string_view::npos || text.find('\n', line + 1) != text.size() - 1) {
    at.fail("`content_hash` must be the last line");
    return;
  }
  const ContentHash found = ContentHash::of(std::as_bytes(std::span(text.substr(0, line + 1))));
  if (found != given) {
    at.fail(fmt::format("the manifest was damaged or changed: the hash of its content is {}",
                        found.text()));
  }
}

std::uint64_t parse_digits(std::string_view text, std::uint64_t max) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return stop == end && error == std::errc() && value <= max ? value : max + 1;
}

}  // namespace

std::string folder_name(CheckpointId id) {
  LH_CHECK(id.term <= kTermMax && id.step <= kStepMax, "terms and steps fit the wire");
  return fmt::format("term-{:06}-step-{:09}", id.term, id.step);
}

std::optional<CheckpointId> parse_folder_name(std::string_view name) {
  constexpr std::string_view before = "term-";
  constexpr std::string_view between = "-step-";
  const std::size_t middle = name.find(between);
  if (!name.starts_with(before) || middle == std::string_view::npos) return std::nullopt;
  const CheckpointId id = {
      .term = parse_digits(name.substr(before.size(), middle - before.size()), kTermMax),
      .step = parse_digits(name.substr(middle + between.size()), kStepMax)};
  // Only our own spelling: two folders must not mean one checkpoint.
  if (id.term > kTermMax || id.step > kStepMax || folder_name(id) != name) return std::nullopt;
  return id;
}

std::vector<CheckpointFile> CheckpointManifest::contents() const {
  std::vector<CheckpointFile> contents;
  for (const HeldFile& held : files) contents.push_back(held.file);
  return contents;
}

std::string manifest_text(const CheckpointManifest& manifest) {
  LH_CHECK(manifest.seed <= kSeedMax, "seeds are below 2^63");
  std::string text = fmt::format(
      "# A checkpoint of longhaul: which files belong together and who has them.\n"
      "schema: {}\nstep: {}\nterm: {}\nupdates: {}\nseed: {}\njob: {{hash: \"{:016x}\"}}\n",
      kSchema, manifest.id.step, manifest.id.term, manifest.updates, manifest.seed,
      manifest.job_hash);
  text += fmt::format("data: {{sequences: {}, batch: {}, batch_since_step: {}}}\n",
                      manifest.data.sequences, manifest.data.batch, manifest.data.batch_since_step);
  text += fmt::format("model: {}\n", model_text(manifest.model));
  text += "files:\n";
  for (const HeldFile& held : manifest.files) {
    std::string holders;
    for (const std::string& holder : held.holders) {
      holders += (holders.empty() ? "" : ", ") + yaml_text(holder);
    }
    text += fmt::format("  - {{name: {}, size: {} B, hash: \"{}\", holders: [{}]}}\n",
                        held.file.name, held.file.bytes, held.file.hash.text(), holders);
  }
  const ContentHash hash = ContentHash::of(std::as_bytes(std::span(text)));
  return text + fmt::format("{}\"{}\"\n", kHashKey, hash.text());
}

Result<CheckpointManifest> parse_manifest(std::string_view text, const std::string& name) {
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  file.expect_schema(kSchema);
  const Cursor root = file.root();
  CheckpointManifest manifest;
  manifest.id.step = count(root.key("step"), kStepMax);
  manifest.id.term = count(root.key("term"), kTermMax);
  manifest.updates = count(root.key("updates"), manifest.id.step);
  manifest.seed = count(root.key("seed"), kSeedMax);
  manifest.job_hash = job_hash(root.key("job").key("hash"));
  const Cursor data = root.key("data");
  manifest.data.sequences = count(data.key("sequences"), kCountMax);
  manifest.data.batch = count(data.key("batch"), kCountMax, 1);
  manifest.data.batch_since_step = count(data.key("batch_since_step"), manifest.id.step);
  manifest.model = read_model(root.key("model"));

  const Cursor files = root.key("files");
  const std::vector<std::string> names = file_names(manifest.model);
  const std::vector<Cursor> entries = files.items();
  if (files.is_list() && entries.size() != names.size()) {
    files.fail(fmt::format("a model of {} layers has {} files, not {}", manifest.model.layers,
                           names.size(), entries.size()));
  }
  for (std::size_t i = 0; i < std::min(entries.size(), names.size()); ++i) {
    manifest.files.push_back(read_file(entries[i], names[i]));
  }
  check_content_hash(root.key("content_hash"), text);
  LH_TRY(file.finish());
  return manifest;
}

Result<void> write_manifest(Storage& storage, const std::string& root,
                            const CheckpointManifest& manifest) {
  const std::string text = manifest_text(manifest);
  const std::string path = manifest_path(root, manifest.id);
  // What cannot be read back must not become the commit point.
  if (auto readable = parse_manifest(text, path); !readable) {
    return within("this checkpoint cannot be committed", std::move(readable).error());
  }
  LH_TRY(make_folders(storage, parent_folder(path)));
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  if (kind == EntryKind::kAbsent) return write_file(storage, path, text);
  LH_ASSIGN(const std::string there, read_text(storage, path, kManifestBytesMax));
  if (there != text) return failed(fmt::format("{} is there already, with other content", path));
  return storage.sync_folder(parent_folder(path));
}

Result<CheckpointManifest> read_manifest(Storage& storage, const std::string& root,
                                         CheckpointId id) {
  const std::string path = manifest_path(root, id);
  LH_ASSIGN(const std::string text, read_text(storage, path, kManifestBytesMax));
  LH_ASSIGN(CheckpointManifest manifest, parse_manifest(text, path));
  if (manifest.id != id) {
    return invalid(fmt::format("{} is of term {}, step {}: it belongs into another folder", path,
                               manifest.id.term, manifest.id.step));
  }
  return manifest;
}

Result<std::vector<CheckpointId>> list_checkpoints(Storage& storage, const std::string& root,
                                                   bool committed) {
  std::vector<CheckpointId> ids;
  LH_ASSIGN(const EntryKind root_kind, storage.kind(root));
  if (root_kind == EntryKind::kAbsent) return ids;
  LH_ASSIGN(const std::vector<std::string> names, storage.list(root));
  for (const std::string& name : names) {
    const auto id = parse_folder_name(name);
    if (!id) continue;
    if (committed) {
      LH_ASSIGN(const EntryKind kind, storage.kind(manifest_path(root, *id)));
      if (kind == EntryKind::kAbsent) continue;
    }
    ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<CheckpointSearch> find_newest_checkpoint(Storage& storage, const std::string& root,
                                                const AcceptCheckpoint& accept) {
  LH_ASSIGN(std::vector<CheckpointId> ids, list_checkpoints(storage, root, true));
  CheckpointSearch search;
  for (; !ids.empty(); ids.pop_back()) {
    const auto read = [&]() -> Result<CheckpointManifest> {
      LH_ASSIGN(CheckpointManifest manifest, read_manifest(storage, root, ids.back()));
      LH_TRY(accept(manifest, path_of(root, ids.back())));
      return manifest;
    };
    auto manifest = read();
    if (manifest) {
      search.newest = std::move(*manifest);
      break;
    }
    search.refused.push_back(std::move(manifest).error());
  }
  return search;
}

Result<void> verify_all_files(Storage& storage, const std::string& folder,
                              const CheckpointManifest& manifest) {
  for (const HeldFile& held : manifest.files) LH_TRY(verify_file(storage, folder, held.file));
  return {};
}

Result<std::vector<CheckpointId>> delete_old_checkpoints(Storage& storage, const std::string& root,
                                                         int keep) {
  LH_CHECK(keep >= 1, "the newest checkpoint is always kept");
  LH_ASSIGN(const std::vector<CheckpointId> committed, list_checkpoints(storage, root, true));
  std::vector<CheckpointId> kept;  // new to old
  for (auto id = committed.rbegin(); id != committed.rend(); ++id) {
    if (std::ssize(kept) == keep) break;
    const auto manifest = read_manifest(storage, root, *id);
    if (manifest) {
      kept.push_back(*id);
    } else if (manifest.error().code != ErrorCode::kInvalid) {
      return std::unexpected(manifest.error());  // it may be right, and cannot be read just now
    }
  }
  if (kept.empty()) return std::vector<CheckpointId>();
  LH_ASSIGN(std::vector<CheckpointId> old, list_checkpoints(storage, root, false));
  std::erase_if(old, [&](CheckpointId id) {
    // A manifest that cannot be read may yet be repaired by hand, as long as it is among the
    // newest.
    const bool among_newest = std::ssize(kept) < keep || id >= kept.back();
    const bool unfinished = !std::binary_search(committed.begin(), committed.end(), id);
    return unfinished ? id > kept.front() : among_newest;
  });
  for (const CheckpointId id : old) LH_TRY(delete_checkpoint(storage, root, id));
  return old;
}

Result<void> delete_checkpoint(Storage& storage, const std::string& root, CheckpointId id) {
  const std::string folder = path_of(root, id);
  LH_ASSIGN(const EntryKind kind, storage.kind(folder));
  if (kind == EntryKind::kAbsent) return {};
  LH_TRY(storage.remove(manifest_path(root, id)));
  LH_TRY(storage.sync_folder(folder));
  LH_ASSIGN(const std::vector<std::string> names, storage.list(folder));
  for (const std::string& name : names) LH_TRY(storage.remove(folder + "/" + name));
  LH_TRY(storage.sync_folder(folder));
  LH_TRY(storage.remove(folder));
  return storage.sync_folder(root);
}

}  // namespace longhaul
