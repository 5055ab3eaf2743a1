// libFuzzer target: any bytes, read as a safetensors file, must end in tensors that lie inside the
// file, or in an error that names it; never in a crash, a hang or an allocation beyond the file's
// size. What was read is written again, and must come back.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/checkpoint/safetensors.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

void check_error(const Error& error) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad file is wrong input");
  LH_CHECK(error.place.file == "in", "the error names the file");
  LH_CHECK(!error.message.empty() && error.message.size() < 1000, "and says something short");
}

std::string content(SafetensorsReader& reader, const StoredTensor& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.bytes()), '\0');
  LH_CHECK(reader.read(tensor, 0, std::as_writable_bytes(std::span(bytes))),
           "a tensor lies inside the file");
  return bytes;
}

void check_places(const SafetensorsReader& reader, std::uint64_t file_bytes) {
  std::uint64_t end = 0;
  for (const StoredTensor& tensor : reader.tensors()) {
    LH_CHECK(tensor.begin == end && tensor.end >= tensor.begin, "no overlap and no hole");
    LH_CHECK(reader.find(tensor.name) == &tensor, "names are unique");
    end = tensor.end;
  }
  LH_CHECK(end <= file_bytes, "tensors lie inside the file");
}

void check_rewritten(SimStorage& storage, SafetensorsReader& reader) {
  auto writer = SafetensorsWriter::create(storage, "out", reader.tensors(), reader.metadata());
  if (!writer) return;  // sizes beyond the writer's limit
  for (const StoredTensor& tensor : writer->tensors()) {
    const std::string bytes = content(reader, *reader.find(tensor.name));
    LH_CHECK(writer->append(std::as_bytes(std::span(bytes))), "memory does not fail");
  }
  LH_CHECK(writer->commit(), "memory does not fail");
  auto again = SafetensorsReader::open(storage, "out");
  LH_CHECK(again, "what was written can be read");
  LH_CHECK(again->tensors().size() == reader.tensors().size(), "with all tensors");
  LH_CHECK(again->metadata() == reader.metadata(), "and metadata");
  for (const StoredTensor& tensor : reader.tensors()) {
    const StoredTensor* const twin = again->find(tensor.name);
    LH_CHECK(twin != nullptr && twin->type == tensor.type && twin->shape == tensor.shape,
             "of the same kind");
    LH_CHECK(content(*again, *twin) == content(reader, tensor), "and content");
  }
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  SimStorage storage;
  storage.put("in", std::string(reinterpret_cast<const char*>(data), size));
  auto reader = SafetensorsReader::open(storage, "in");
  if (!reader) {
    check_error(reader.error());
    return 0;
  }
  check_places(*reader, size);
  check_rewritten(storage, *reader);
  return 0;
}
