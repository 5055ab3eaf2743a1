// libFuzzer target: any bytes, as a tokenizer.json, as a split's expression, as a Megatron index
// with its tokens and as nanoGPT's meta.pkl, must end in values that keep their promises or in
// errors; never in a crash, a hang or a leak.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/data/nfc.h"
#include "executor/data/prepare_state.h"
#include "executor/data/splitter.h"
#include "executor/data/token_file.h"
#include "executor/data/tokenizer_json.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

constexpr std::string_view kText = "The end.  It's 12345\n\te\xcc\x81 \xff\xe6\x97 <|endoftext|> a";

void read_as_tokenizer(std::string_view bytes) {
  const auto tokenizer = make_json_tokenizer({bytes, "t.json", "<s>"});
  if (!tokenizer) {
    LH_CHECK(tokenizer.error().code == ErrorCode::kInvalid, "a bad tokenizer is wrong input");
    LH_CHECK(tokenizer.error().place.file == "t.json", "an error names its file");
    return;
  }
  std::vector<Token> tokens;
  LH_CHECK((*tokenizer)->encode(kText, {}, tokens) == kText.size(), "all of a text is encoded");
  LH_CHECK((*tokenizer)->decode(tokens).has_value(), "tokens are in the vocabulary");
}

void read_as_expression(std::string_view bytes) {
  const auto splitter = make_pcre_splitter(std::string(bytes.substr(0, 64)));
  if (!splitter) return;
  (*splitter)->take(kText, true);
  std::size_t done = 0;
  while (const std::size_t length = (*splitter)->next()) done += length;
  LH_CHECK(done == kText.size(), "pieces are the whole text");
}

/// The last bytes, after a first one that says how many, as tokens.
void read_as_index(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::size_t tokens =
      std::min<std::size_t>(static_cast<unsigned char>(bytes[0]), bytes.size() - 1);
  SimStorage storage;
  storage.put("f.idx", std::string(bytes.substr(1, bytes.size() - 1 - tokens)));
  storage.put("f.bin", std::string(bytes.substr(bytes.size() - tokens)));
  auto file = TokenFile::open(storage, "f.bin");
  if (!file) {
    LH_CHECK(file.error().code == ErrorCode::kInvalid, "a bad index is wrong input");
    LH_CHECK(file.error().place.file.starts_with("f."), "an error names its file");
    return;
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(file->tokens()));
  LH_CHECK(!ids.empty() && file->read(0, ids).has_value(), "an index says what can be read");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_as_tokenizer(bytes);
  read_as_expression(bytes);
  read_as_index(bytes);
  static_cast<void>(vocabulary_in_pickle(bytes));
  NfcText nfc(bytes);
  LH_CHECK(nfc.raw_end(nfc.text().size()) == bytes.size(), "all of a text is normalised");
  if (const auto state = parse_prepare_state(bytes, "prepare.yaml")) {
    LH_CHECK(parse_prepare_state(prepare_state_text(*state), "again").has_value(), "it is written");
  }
  return 0;
}
