// libFuzzer target: any bytes, read as a model of llm.c, must end in a model whose every tensor can
// be read and that is written and read again as the same bytes, or in an error that names the file;
// never in an allocation beyond the file's size.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/result.h"
#include "executor/checkpoint/llmc.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

/// Bit for bit, since weights may be NaN.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

void check_copy(SimStorage& storage, const ModelSource& source) {
  const auto written = write_llmc(storage, source, "copy", source.dtype);
  LH_CHECK(written, "what was read can be written");
  const auto copy = open_llmc(storage, "copy");
  LH_CHECK(copy && copy->model == source.model && copy->dtype == source.dtype, "as the same model");
  for (const CheckpointPart part : parts_of(source.model)) {
    for (const PartTensor& tensor : tensors_of(source.model, part)) {
      const auto ours = copy->read(tensor);
      const auto theirs = source.read(tensor);
      LH_CHECK(ours && theirs, "every tensor lies inside the file");
      // Signalling NaN becomes quiet where bf16 is written again.
      LH_CHECK(source.dtype != "float32" || same(*ours, *theirs), "with the same weights");
    }
  }
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  SimStorage storage;
  storage.put("in", std::string(reinterpret_cast<const char*>(data), size));
  const auto source = open_llmc(storage, "in");
  if (source) {
    check_copy(storage, *source);
    return 0;
  }
  const Error& error = source.error();
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad file is wrong input");
  LH_CHECK(error.place.file == "in", "the error names the file");
  LH_CHECK(!error.message.empty() && error.message.size() < 1000, "and says something short");
  return 0;
}
