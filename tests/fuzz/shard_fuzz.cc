// libFuzzer target: any bytes, as a token shard, as dataset.yaml, as GPT-2 tables and as text, must
// end in values that keep their promises or in errors; never in a crash, a hang or a leak.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "executor/data/dataset.h"
#include "executor/data/hand_split.h"
#include "executor/data/token_shard.h"
#include "executor/data/tokenizer.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

void read_as_shard(std::string_view bytes) {
  SimStorage storage;
  storage.put("fuzz.bin", std::string(bytes));
  constexpr std::int64_t kVocabulary = 50257;
  Result<TokenStream> stream = TokenStream::open(storage, {"fuzz.bin"}, kVocabulary);
  if (!stream) {
    LH_CHECK(stream.error().code == ErrorCode::kInvalid, "a bad shard is wrong input");
    LH_CHECK(stream.error().place.file == "fuzz.bin", "an error names its file");
    return;
  }
  LH_CHECK(stream->tokens() >= 1, "a shard has a token");
  LH_CHECK(1024 + stream->tokens() * stream->shards()[0].width() == std::ssize(bytes),
           "the size is exactly right");
  if (const auto scan = stream->scan()) {
    LH_CHECK(scan->largest < kVocabulary, "ids are in the vocabulary");
  } else {
    LH_CHECK(scan.error().message.find("at byte") != std::string::npos, "an error has an offset");
  }
}

/// The first line of the bytes as merges, the rest as vocabulary; then some text.
void read_as_tables(std::string_view bytes) {
  const std::size_t line = std::min(bytes.find("\n\n"), bytes.size());
  const std::string_view rest = bytes.substr(std::min(line + 2, bytes.size()));
  const auto tokenizer = make_bpe_tokenizer({rest, bytes.substr(0, line), "v", "m"});
  if (!tokenizer) {
    LH_CHECK(tokenizer.error().code == ErrorCode::kInvalid, "bad tables are wrong input");
    return;
  }
  LH_CHECK((*tokenizer)->decode((*tokenizer)->encode(bytes)) == bytes, "bytes come back");
}

/// With merges of bytes alone, so that the pieces and the merging see every text.
void read_as_text(std::string_view bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const auto [length, seen] = next_gpt2_piece(rest);
    LH_CHECK(length >= 1 && length <= rest.size(), "a piece is a part of the text");
    // What lies beyond what was seen does not change a piece.
    LH_CHECK(next_gpt2_piece(rest.substr(0, seen + 3)).length == length,
             "a piece does not depend on what is far behind it");
    rest.remove_prefix(length);
  }
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_as_shard(bytes);
  read_as_tables(bytes);
  read_as_text(bytes);
  if (const auto dataset = parse_dataset(bytes, "fuzz.yaml")) {
    LH_CHECK(parse_dataset(dataset_text(*dataset), "again").has_value(), "a dataset is written");
  }
  return 0;
}
