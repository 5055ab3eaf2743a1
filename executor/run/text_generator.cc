#include "executor/run/text_generator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/config_errors.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/manifest.h"
#include "executor/run/file_transfer.h"
#include "executor/run/stage_state.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kManifestBytesMax = std::uint64_t{16} << 20;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// ---- loading

/// Each file is checked against its hash as it is read.
Result<ModelStage> read_weights(Storage& storage, const std::string& folder,
                                const ModelShape& model, std::span<const CheckpointFile> files) {
  // A shape that the files cannot fill must not be given memory.
  for (const CheckpointPart part : parts_of(model)) {
    std::uint64_t bytes = 0;
    for (const PartTensor& tensor : tensors_of(model, part)) bytes += 4 * tensor.elements();
    LH_ASSIGN(const CheckpointFile file, file_named(files, weights_file_name(part)));
    if (file.bytes < bytes) {
      return invalid(fmt::format("{}/{} has {} bytes, and its model needs {}", folder, file.name,
                                 file.bytes, bytes));
    }
  }
  const ModelSlice everything = {0, model.layers, true, true};
  LH_ASSIGN(StageState state, StageState::create(model, everything));
  LH_TRY(state.read(storage, folder, files));
  return std::move(state.stage());
}

Result<LoadedModel> load_run(Storage& storage, const std::string& folder) {
  const std::string root = checkpoints_root(folder);
  std::optional<ModelStage> stage;
  const auto accept = [&](const CheckpointManifest& manifest,
                          const std::string& at) -> Result<void> {
    LH_ASSIGN(stage, read_weights(storage, at, manifest.model, manifest.contents()));
    return {};
  };
  LH_ASSIGN(CheckpointSearch search, find_newest_checkpoint(storage, root, accept));
  if (!search.newest) {
    if (!search.refused.empty()) return std::unexpected(std::move(search.refused.front()));
    return invalid(fmt::format("there is no checkpoint in {}", root),
                   "a run writes its first one after `checkpoints: {every: N}` steps of its job, "
                   "or at its end");
  }
  LoadedModel model = {*std::move(stage), root + "/" + folder_name(search.newest->id), {}};
  for (const Error& error : search.refused) {
    const std::string where = error.place.file.empty() ? "" : error.place.text() + ": ";
    model.notes.push_back(
        fmt::format("a newer checkpoint is passed over: {}{}", where, error.message));
  }
  return model;
}

Result<LoadedModel> load_checkpoint(Storage& storage, const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  LH_ASSIGN(const std::string text, read_text(storage, path, kManifestBytesMax));
  LH_ASSIGN(const CheckpointManifest manifest, parse_manifest(text, path));
  LH_ASSIGN(ModelStage stage, read_weights(storage, folder, manifest.model, manifest.contents()));
  return LoadedModel{std::move(stage), folder, {}};
}

Result<void> remove_folder(Storage& storage, const std::string& folder) {
  LH_ASSIGN(const EntryKind kind, storage.kind(folder));
  if (kind != EntryKind::kFolder) return {};
  LH_ASSIGN(const std::vector<std::string> names, storage.list(folder));
  for (const std::string& name : names) LH_TRY(storage.remove(folder + "/" + name));
  return storage.remove(folder);
}

Result<LoadedModel> load_hugging_face(Storage& storage, const std::string& folder,
                                      const std::string& scratch) {
  auto model = [&]() -> Result<LoadedModel> {
    LH_ASSIGN(HuggingFaceImport imported, read_hugging_face(storage, folder, scratch));
    LH_ASSIGN(ModelStage stage, read_weights(storage, scratch, imported.model, imported.files));
    return LoadedModel{std::move(stage), folder, std::move(imported.notes)};
  }();
  if (auto removed = remove_folder(storage, scratch); !removed && model) {
    model->notes.push_back(fmt::format("{} stays behind: {}", scratch, removed.error().message));
  }
  return model;
}

// ---- choosing

/// Whether `a` is the likelier of two ids.
auto likelier_in(std::span<const float> logits) {
  return [logits](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
}

/// Bytes of `text[at...]` that begin a character and may be completed by what follows; 0 when they
/// cannot.
std::size_t unfinished_size(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  const std::size_t size = text.size() - at;
  if (size >= wanted) return 0;
  // Completed by the smallest or the largest bytes that may follow: the second byte of some
  // characters has a narrower range than 80 to BF.
  for (const char filler : {'\x80', '\xbf'}) {
    std::string whole(text.substr(at));
    whole.resize(wanted, filler);
    if (utf8_size(whole, 0) == wanted) return size;
  }
  return 0;
}

}  // namespace

Result<LoadedModel> load_model(Storage& storage, const std::string& folder,
                               const std::string& scratch) {
  const auto kind_of = [&](std::string_view name) {
    return storage.kind(fmt::format("{}/{}", folder, name));
  };
  LH_ASSIGN(const EntryKind kind, storage.kind(folder));
  if (kind != EntryKind::kFolder) {
    return invalid(
        fmt::format("{} {}", folder, kind == EntryKind::kAbsent ? "is not there" : "is no folder"));
  }
  LH_ASSIGN(const EntryKind manifest, kind_of(kManifestName));
  if (manifest == EntryKind::kFile) return load_checkpoint(storage, folder);
  LH_ASSIGN(const EntryKind config, kind_of("config.json"));
  if (config == EntryKind::kFile) return load_hugging_face(storage, folder, scratch);
  LH_ASSIGN(const EntryKind checkpoints, storage.kind(checkpoints_root(folder)));
  LH_ASSIGN(const EntryKind job, kind_of("job.yaml"));
  if (checkpoints == EntryKind::kFolder || job == EntryKind::kFile) {
    return load_run(storage, folder);
  }
  return invalid(fmt::format("{} holds no model", folder),
                 "give the folder of a run (runs/NAME), of one checkpoint (with manifest.yaml), or "
                 "a Hugging Face GPT-2 folder (with config.json)");
}

Result<Token> choose_token(std::span<const float> logits, const Sampling& sampling, Rng& rng) {
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    return failed("the model answers with numbers that are not finite",
                  "its training diverged; take an older checkpoint");
  }
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const auto likelier = likelier_in(logits);
  const std::size_t best = *std::ranges::min_element(ids, likelier);
  if (sampling.temperature == 0) return static_cast<Token>(best);

  const auto top_k = static_cast<std::size_t>(sampling.top_k);
  if (top_k > 0 && top_k < ids.size()) {
    std::ranges::nth_element(ids, ids.begin() + static_cast<std::ptrdiff_t>(top_k), likelier);
    ids.resize(top_k);
    std::ranges::sort(ids);  // nth_element's order is not the same everywhere
  }
  // Relative to the largest, so that nothing overflows and the sum is at least 1.
  const auto weight = [&](std::size_t id) {
    return std::exp((double{logits[id]} - double{logits[best]}) / sampling.temperature);
  };
  double sum = 0;
  for (const std::size_t id : ids) sum += weight(id);
  const double drawn = rng.uniform() * sum;
  double passed = 0;
  for (const std::size_t id : ids) {
    passed += weight(id);
    if (drawn < passed) return static_cast<Token>(id);
  }
  return static_cast<Token>(best);  // drawn was rounded up to the sum
}

TextGenerator::TextGenerator(ModelStage stage, std::int64_t choices, const Sampling& sampling)
    : stage_(std::move(stage)),
      window_(stage_, 1),
      choices_(choices),
      sampling_(sampling),
      rng_("generate", sampling.seed) {
  LH_CHECK(choices >= 1 && choices <= stage_.model().vocabulary, "ids are the model's");
}

Result<Token> TextGenerator::next(std::span<const Token> text) {
  LH_CHECK(!text.empty(), "the model needs a token to begin with");
  const auto context = static_cast<std::size_t>(stage_.model().context);
  const std::span<const Token> seen = text.last(std::min(text.size(), context));
  // Attention looks back only: what stands after the last token changes nothing.
  std::ranges::fill(std::ranges::copy(seen, window_.tokens().begin()).out, window_.tokens().end(),
                    0);
  stage_.forward(window_);
  const auto row = (seen.size() - 1) * static_cast<std::size_t>(stage_.model().vocabulary);
  return choose_token(stage_.logits(window_).subspan(row, static_cast<std::size_t>(choices_)),
                      sampling_, rng_);
}

// ---- text

std::string Utf8Stream::take(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  std::size_t at = 0;
  while (at < held_.size()) {
    if (const std::size_t size = utf8_size(held_, at); size > 0) {
      text.append(held_, at, size);
      at += size;
    } else if (unfinished_size(held_, at) > 0) {
      break;
    } else {
      text += kReplacement;
      ++at;
    }
  }
  held_.erase(0, at);
  return text;
}

std::string Utf8Stream::finish() {
  const bool waiting = !std::exchange(held_, "").empty();
  return std::string(waiting ? kReplacement : "");
}

}  // namespace longhaul
