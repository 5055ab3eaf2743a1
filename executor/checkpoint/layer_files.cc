#include "executor/checkpoint/layer_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "executor/checkpoint/safetensors.h"
#include "kernels/model_parameters.h"

namespace longhaul {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // verified at a time

std::unexpected<Error> damaged(const std::string& path, std::string message) {
  return std::unexpected(Error{ErrorCode::kFailed,
                               std::move(message),
                               "fetch the file from another holder, or use an older checkpoint",
                               {.file = path},
                               "",
                               {}});
}

Result<void> check_content(const std::string& path, const CheckpointFile& expected,
                           std::uint64_t bytes, ContentHash hash) {
  if (bytes != expected.bytes) {
    return damaged(path, fmt::format("the file has {} bytes, its checkpoint has it with {}", bytes,
                                     expected.bytes));
  }
  if (hash != expected.hash) {
    return damaged(path, fmt::format("the file is damaged: its content hash is {}, not {}",
                                     hash.text(), expected.hash.text()));
  }
  return {};
}

std::string part_name(CheckpointPart part) {
  switch (part.kind) {
    case PartKind::kEmbedding:
      return "embedding";
    case PartKind::kLayer:
      return fmt::format("layer-{:04}", part.layer);
    case PartKind::kHead:
      return "head";
  }
  LH_CHECK(false, "every kind of part has a name");
}

ModelSlice slice_of(const ModelShape& model, CheckpointPart part) {
  switch (part.kind) {
    case PartKind::kEmbedding:
      return {.has_embedding = true};
    case PartKind::kLayer:
      return {.first_layer = part.layer, .end_layer = part.layer + 1};
    case PartKind::kHead:
      return {.first_layer = model.layers, .end_layer = model.layers, .has_head = true};
  }
  LH_CHECK(false, "every kind of part has a slice");
}

/// One tensor to be written: where its bytes are.
struct Source {
  StoredTensor stored;
  std::span<const float> values;
};

StoredTensor f32_tensor(std::string name, std::vector<std::uint64_t> shape) {
  StoredTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  return tensor;
}

Result<CheckpointFile> write_sources(Storage& storage, const std::string& folder,
                                     const std::string& name, const std::vector<Source>& sources) {
  std::vector<StoredTensor> tensors;
  for (const Source& source : sources) tensors.push_back(source.stored);
  LH_ASSIGN(auto writer,
            SafetensorsWriter::create(storage, folder + "/" + name, std::move(tensors)));
  for (const StoredTensor& tensor : writer.tensors()) {
    const auto source = std::find_if(sources.begin(), sources.end(), [&](const Source& candidate) {
      return candidate.stored.name == tensor.name;
    });
    LH_CHECK(source->values.size_bytes() == tensor.bytes(), "a tensor has its shape's elements");
    LH_TRY(writer.append(std::as_bytes(source->values)));
  }
  LH_ASSIGN(const FileSummary summary, writer.commit());
  return CheckpointFile{.name = name, .bytes = summary.bytes, .hash = summary.hash};
}

Result<void> read_tensor(SafetensorsReader& reader, const std::string& name,
                         std::span<const std::uint64_t> shape, std::span<float> into) {
  LH_ASSIGN(const StoredTensor* const tensor, reader.need(name, TensorType::kF32, shape));
  LH_CHECK(into.size_bytes() == tensor->bytes(), "a tensor has its shape's elements");
  return reader.read(*tensor, 0, std::as_writable_bytes(into));
}

template <class Float>
void check_lists(const PartState<Float>& state, std::size_t tensors) {
  LH_CHECK(
      state.weights.size() == tensors && state.m.size() == tensors && state.v.size() == tensors,
      "a part's state has every tensor of tensors_of()");
}

}  // namespace

std::uint64_t PartTensor::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  return count;
}

std::vector<CheckpointPart> parts_of(const ModelShape& model) {
  std::vector<CheckpointPart> parts = {{PartKind::kEmbedding, 0}};
  for (int layer = 0; layer < model.layers; ++layer) parts.push_back({PartKind::kLayer, layer});
  parts.push_back({PartKind::kHead, 0});
  return parts;
}

std::vector<PartTensor> tensors_of(const ModelShape& model, CheckpointPart part) {
  std::vector<ModelParameter> parameters = parameters_of(model, slice_of(model, part));
  // A head without the embedding has that of its own at the end when they are tied: stored once.
  if (part.kind == PartKind::kHead && model.tied_embedding) parameters.pop_back();
  std::vector<PartTensor> tensors;
  for (ModelParameter& parameter : parameters) {
    PartTensor tensor{std::move(parameter.name), {}};
    for (const std::int64_t extent : parameter.shape) {
      LH_CHECK(extent > 0, "a model's extents are positive");
      tensor.shape.push_back(static_cast<std::uint64_t>(extent));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::string weights_file_name(CheckpointPart part) {
  return part_name(part) + ".safetensors";
}

std::string optimiser_file_name(CheckpointPart part) {
  return part_name(part) + ".optimiser.safetensors";
}

Result<std::vector<CheckpointFile>> write_part(Storage& storage, const std::string& folder,
                                               const ModelShape& model, CheckpointPart part,
                                               const PartState<const float>& state) {
  const std::vector<PartTensor> tensors = tensors_of(model, part);
  check_lists(state, tensors.size());
  std::vector<Source> weights;
  std::vector<Source> moments;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PartTensor& tensor = tensors[i];
    weights.push_back({f32_tensor(tensor.name, tensor.shape), state.weights[i]});
    moments.push_back({f32_tensor(tensor.name + ".m", tensor.shape), state.m[i]});
    moments.push_back({f32_tensor(tensor.name + ".v", tensor.shape), state.v[i]});
  }
  LH_TRY(make_folders(storage, folder));
  std::vector<CheckpointFile> files;
  LH_ASSIGN(files.emplace_back(), write_sources(storage, folder, weights_file_name(part), weights));
  LH_ASSIGN(files.emplace_back(),
            write_sources(storage, folder, optimiser_file_name(part), moments));
  return files;
}

Result<void> read_part(Storage& storage, const std::string& folder, const ModelShape& model,
                       CheckpointPart part, std::span<const CheckpointFile> files,
                       const PartState<float>& state) {
  const std::vector<PartTensor> tensors = tensors_of(model, part);
  check_lists(state, tensors.size());
  const auto open_verified = [&](const std::string& name) -> Result<SafetensorsReader> {
    LH_ASSIGN(const CheckpointFile file, file_named(files, name));
    LH_TRY(verify_file(storage, folder, file));
    return SafetensorsReader::open(storage, folder + "/" + name);
  };
  LH_ASSIGN(SafetensorsReader weights, open_verified(weights_file_name(part)));
  LH_ASSIGN(SafetensorsReader moments, open_verified(optimiser_file_name(part)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, shape] = tensors[i];
    LH_TRY(read_tensor(weights, name, shape, state.weights[i]));
    LH_TRY(read_tensor(moments, name + ".m", shape, state.m[i]));
    LH_TRY(read_tensor(moments, name + ".v", shape, state.v[i]));
  }
  return {};
}

Result<void> verify_file(Storage& storage, const std::string& folder, const CheckpointFile& file) {
  const std::string path = folder + "/" + file.name;
  LH_ASSIGN(const auto opened, storage.open(path));
  if (opened->size() != file.bytes) return check_content(path, file, opened->size(), file.hash);
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, file.bytes)));
  ContentHasher hasher;
  for (std::uint64_t offset = 0; offset < file.bytes;) {
    const std::size_t size =
        static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), file.bytes - offset));
    const std::span<std::byte> filled = std::span(piece).first(size);
    LH_TRY(opened->read(offset, filled));
    hasher.add(filled);
    offset += size;
  }
  return check_content(path, file, file.bytes, hasher.value());
}

ReceivedFile::ReceivedFile(AtomicFile file, CheckpointFile expected)
    : file_(std::move(file)), expected_(std::move(expected)) {}

Result<ReceivedFile> ReceivedFile::create(Storage& storage, const std::string& folder,
                                          const CheckpointFile& expected) {
  // The name comes from another machine: it must not lead out of the folder.
  if (expected.name.find('/') != std::string::npos || !expected.name.ends_with(".safetensors")) {
    return invalid(fmt::format("{} is no name of a checkpoint's file", shown_name(expected.name)));
  }
  LH_TRY(make_folders(storage, folder));
  LH_ASSIGN(AtomicFile file, AtomicFile::create(storage, folder + "/" + expected.name));
  return ReceivedFile(std::move(file), expected);
}

Result<void> ReceivedFile::append(std::span<const std::byte> bytes) {
  // Checked before the write, so that a wrong sender cannot fill the disk.
  if (bytes.size() > expected_.bytes - received_) {
    return damaged(file_.path(),
                   fmt::format("more than the file's {} bytes arrived", expected_.bytes));
  }
  LH_TRY(file_.append(bytes));
  hasher_.add(bytes);
  received_ += bytes.size();
  return {};
}

Result<void> ReceivedFile::commit() {
  LH_TRY(check_content(file_.path(), expected_, received_, hasher_.value()));
  return file_.commit();
}

Result<CheckpointFile> file_named(std::span<const CheckpointFile> files, std::string_view name) {
  const auto at = std::find_if(files.begin(), files.end(),
                               [&](const CheckpointFile& file) { return file.name == name; });
  if (at == files.end()) return failed(fmt::format("the checkpoint has no file {}", name));
  return *at;
}

}  // namespace longhaul
