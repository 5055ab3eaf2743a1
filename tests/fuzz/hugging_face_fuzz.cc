// libFuzzer target: any bytes, read as the config.json and as the index of a Hugging Face folder,
// must end in a model whose own config says the same, or in an error that names the file and is
// short.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/hugging_face_config.h"
#include "core/result.h"
#include "executor/checkpoint/hugging_face.h"

namespace longhaul {
namespace {

void check_error(const Error& error) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad file is wrong input");
  LH_CHECK(error.place.file == "in", "the error names the file");
  LH_CHECK(!error.message.empty() && error.message.size() < 1000, "and says something short");
}

void check_config(std::string_view text) {
  const auto config = parse_hugging_face_config(text, "in");
  if (!config) return check_error(config.error());
  const ModelShape& model = config->model;
  LH_CHECK(model.layers >= 1 && model.heads >= 1 && model.heads % model.kv_heads == 0,
           "what is accepted is a model");
  for (const std::string& source : {std::string(text), std::string()}) {
    const auto again =
        parse_hugging_face_config(hugging_face_config(model, "bfloat16", source), "out");
    LH_CHECK(again && again->model == model && again->dtype == "bfloat16",
             "what is written says the same");
  }
}

void check_index(std::string_view text) {
  const auto names = parse_hugging_face_index(text, "in");
  if (!names) return check_error(names.error());
  LH_CHECK(!names->empty(), "an index names a file");
  for (const std::string& name : *names) {
    LH_CHECK(!name.empty() && !name.contains('/'), "in its own folder");
  }
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  longhaul::check_config(text);
  longhaul::check_index(text);
  return 0;
}
