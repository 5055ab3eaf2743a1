// Shards: llm.c's bytes to the letter, every way to be wrong refused with its place, and nothing
// that depends on where a stream was cut.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "executor/data/shard_writer.h"
#include "executor/data/token_shard.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

/// llm.c's header and `payload`.
std::string shard_bytes(std::int32_t magic, std::int32_t version, std::int32_t count,
                        std::string_view payload) {
  std::string bytes(1024, '\0');
  const std::int32_t words[] = {magic, version, count};
  std::memcpy(bytes.data(), words, sizeof(words));
  return bytes.append(payload);
}

std::vector<Token> counting(std::int64_t first, std::size_t count, std::int64_t vocabulary) {
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<Token>((first + static_cast<std::int64_t>(i)) % vocabulary);
  }
  return tokens;
}

std::vector<std::string> write_shards(Storage& storage, std::int64_t vocabulary,
                                      std::int64_t shard_tokens, const std::vector<Token>& tokens) {
  auto writer = TokenShardWriter::open(storage, {"data", "train", vocabulary, shard_tokens});
  EXPECT_TRUE(writer.has_value());
  EXPECT_TRUE(writer->append(tokens).has_value());
  auto paths = writer->finish();
  EXPECT_TRUE(paths.has_value());
  return *paths;
}

Result<std::vector<Token>> read_all(Storage& storage, const std::vector<std::string>& paths,
                                    std::int64_t vocabulary) {
  LH_ASSIGN(TokenStream stream, TokenStream::open(storage, paths, vocabulary));
  std::vector<Token> tokens(static_cast<std::size_t>(stream.tokens()));
  LH_TRY(stream.read(0, tokens));
  return tokens;
}

TEST(TokenShards, are_llm_c_files_byte_for_byte) {
  SimStorage storage;
  ASSERT_TRUE(storage.make_folder("data"));
  // 65536 ids fit uint16 and are written so; one more needs uint32.
  ASSERT_EQ(write_shards(storage, 65536, 100, {1, 258, 65535}),
            std::vector<std::string>{"data/train_000000.bin"});
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(storage.bytes("data/train_000000.bin"),
            shard_bytes(20240520, 1, 3, "\x01\x00\x02\x01\xff\xff"sv));

  SimStorage other;
  ASSERT_TRUE(other.make_folder("data"));
  write_shards(other, 65537, 100, {1, 65536});
  EXPECT_EQ(other.bytes("data/train_000000.bin"),
            shard_bytes(20240801, 7, 2, "\x01\x00\x00\x00\x00\x00\x01\x00"sv));
}

TEST(TokenShards, are_split_at_the_limit_and_read_as_one_stream) {
  for (const std::int64_t vocabulary : {1000, 100'000}) {
    const std::vector<Token> tokens = counting(7, 10, vocabulary);
    for (std::int64_t limit = 1; limit <= 11; ++limit) {
      SimStorage storage;
      ASSERT_TRUE(storage.make_folder("data"));
      const auto paths = write_shards(storage, vocabulary, limit, tokens);
      EXPECT_EQ(std::ssize(paths), (10 + limit - 1) / limit);
      auto stream = TokenStream::open(storage, paths, vocabulary);
      ASSERT_TRUE(stream.has_value());
      ASSERT_EQ(stream->tokens(), 10);
      for (std::int64_t first = 0; first <= 10; ++first) {
        for (std::size_t count = 0; first + static_cast<std::int64_t>(count) <= 10; ++count) {
          std::vector<Token> part(count);
          ASSERT_TRUE(stream->read(first, part).has_value());
          EXPECT_EQ(part, counting(7 + first, count, vocabulary));
        }
      }
    }
  }
}

TEST(TokenShards, fingerprint_does_not_depend_on_cuts_or_width) {
  const std::vector<Token> tokens = counting(0, 100'003, 1000);
  std::vector<std::uint64_t> fingerprints;
  for (const auto& [vocabulary, limit] :
       {std::pair{1000, 1'000'000}, {1000, 33'333}, {99'999, 7919}}) {
    SimStorage storage;
    ASSERT_TRUE(storage.make_folder("data"));
    auto stream =
        TokenStream::open(storage, write_shards(storage, vocabulary, limit, tokens), vocabulary);
    ASSERT_TRUE(stream.has_value());
    const auto scan = stream->scan();
    ASSERT_TRUE(scan.has_value());
    EXPECT_EQ(scan->largest, 999);
    fingerprints.push_back(scan->fingerprint);
  }
  EXPECT_EQ(fingerprints, std::vector(3, fingerprints[0]));
}

TEST(TokenShards, fingerprint_is_the_one_of_the_header) {
  // Computed from the header's definition by another program.
  TokenFingerprint fingerprint;
  EXPECT_EQ(fingerprint.value(), 0x993059584ec75845u);
  fingerprint.add(std::vector<Token>{1, 2, 3, 4, 5});
  fingerprint.add(std::vector<Token>{6});
  EXPECT_EQ(fingerprint.value(), 0x2c4d5b39f69bd674u);
}

TEST(TokenShards, any_changed_token_or_order_changes_the_fingerprint) {
  std::set<std::uint64_t> seen;
  const auto add = [&](const std::vector<Token>& tokens) {
    TokenFingerprint fingerprint;
    fingerprint.add(tokens);
    EXPECT_TRUE(seen.insert(fingerprint.value()).second);
  };
  std::vector<Token> tokens = counting(0, 9, 100);
  add(tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (int bit = 0; bit < 31; ++bit) {
      tokens[i] ^= 1 << bit;
      add(tokens);
      tokens[i] ^= 1 << bit;
    }
    for (std::size_t j = 0; j < i; ++j) {
      std::swap(tokens[i], tokens[j]);
      add(tokens);
      std::swap(tokens[i], tokens[j]);
    }
  }
  add(counting(0, 8, 100));
  add({});
  add({0});
  add({0, 0});
}

TEST(TokenShards, every_truncation_and_every_surplus_is_one_clear_error) {
  const std::string whole = shard_bytes(20240520, 1, 3, "abcdef");
  SimStorage storage;
  storage.put("whole.bin", whole);
  EXPECT_TRUE(TokenShard::open(storage, "whole.bin").has_value());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    storage.put("cut.bin", whole.substr(0, size));
    const auto shard = TokenShard::open(storage, "cut.bin");
    ASSERT_FALSE(shard.has_value()) << size;
    EXPECT_EQ(shard.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(shard.error().place.file, "cut.bin");
    EXPECT_NE(shard.error().message.find(std::to_string(size)), std::string::npos);
  }
  storage.put("long.bin", whole + 'g');
  const auto shard = TokenShard::open(storage, "long.bin");
  ASSERT_FALSE(shard.has_value());
  EXPECT_EQ(shard.error().text(),
            "long.bin: error: the header says 3 tokens of 2 bytes, which is a file of 1030 bytes, "
            "but it has 1031: something follows");
}

TEST(TokenShards, headers_of_other_formats_are_refused) {
  struct Case {
    std::string bytes;
    std::string message;
  };
  const std::string tokens = "abcd";  // two of uint16, one of uint32
  const Case cases[] = {
      {shard_bytes(20240521, 1, 2, tokens), "not a token shard: it starts with 20240521"},
      {shard_bytes(20240520, 2, 2, tokens),
       "version 2 at byte 4; magic 20240520 goes with version 1"},
      {shard_bytes(20240520, 7, 2, tokens), "version 7"},
      {shard_bytes(20240801, 1, 1, tokens),
       "version 1 at byte 4; magic 20240801 goes with version 7"},
      {shard_bytes(20240520, 1, 0, ""), "the header says 0 tokens"},
      {shard_bytes(20240520, 1, -2, tokens), "the header says -2 tokens"},
      {shard_bytes(20240520, 1, 1, tokens), "something follows"},
      {shard_bytes(20240520, 1, 3, tokens), "it was cut off"},
      {shard_bytes(20240801, 7, 2, tokens), "a file of 1032 bytes, but it has 1028"},
      {shard_bytes(20240520, 1, 0x7fffffff, tokens), "2147483647 tokens"},
  };
  SimStorage storage;
  for (const Case& bad : cases) {
    storage.put("bad.bin", bad.bytes);
    const auto shard = TokenShard::open(storage, "bad.bin");
    ASSERT_FALSE(shard.has_value()) << bad.message;
    EXPECT_NE(shard.error().message.find(bad.message), std::string::npos) << shard.error().message;
  }
  EXPECT_FALSE(TokenShard::open(storage, "absent.bin").has_value());
  EXPECT_FALSE(TokenStream::open(storage, {}, 10).has_value());
}

TEST(TokenShards, an_id_outside_the_vocabulary_is_found_with_file_and_offset) {
  SimStorage storage;
  ASSERT_TRUE(storage.make_folder("data"));
  std::vector<Token> tokens = counting(0, 200'000, 50'000);
  tokens[150'001] = 50'257;
  const auto paths = write_shards(storage, 60'000, 100'000, tokens);
  // Number 50,001 of the second shard, at 1024 + 2 x 50,001.
  auto stream = TokenStream::open(storage, paths, 50'257);
  ASSERT_TRUE(stream.has_value());
  const auto scan = stream->scan();
  ASSERT_FALSE(scan.has_value());
  EXPECT_EQ(scan.error().text(),
            "data/train_000001.bin: error: token 50257 at byte 101026 (number 50001 of the file) "
            "is outside the vocabulary of 50257\n  hint: was the file made with another tokenizer "
            "than the model's?");
  std::vector<Token> some(2);
  EXPECT_TRUE(stream->read(149'999, some).has_value());
  EXPECT_FALSE(stream->read(150'000, some).has_value());
  EXPECT_TRUE(TokenStream::open(storage, paths, 50'258)->scan().has_value());

  // An int32 would be negative.
  using std::string_view_literals::operator""sv;
  storage.put("huge.bin", shard_bytes(20240801, 7, 2, "\x01\x00\x00\x00\xff\xff\xff\xff"sv));
  const auto huge = read_all(storage, {"huge.bin"}, kVocabularyMax);
  ASSERT_FALSE(huge.has_value());
  EXPECT_NE(huge.error().message.find("token 4294967295 at byte 1028"), std::string::npos);
  storage.put("large.bin", shard_bytes(20240801, 7, 1, "\xff\xff\xff\x7f"sv));
  EXPECT_EQ(read_all(storage, {"large.bin"}, kVocabularyMax), std::vector<Token>{0x7fffffff});
  EXPECT_FALSE(read_all(storage, {"large.bin"}, kVocabularyMax - 1).has_value());
}

TEST(TokenShardWriter, leaves_nothing_when_it_is_given_up) {
  SimStorage storage;
  ASSERT_TRUE(storage.make_folder("data"));
  {
    auto writer = TokenShardWriter::open(storage, {"data", "train", 256, 2});
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->append(std::vector<Token>{1, 2, 3, 4, 5}).has_value());
    EXPECT_EQ(storage.files().size(), 2u);
    EXPECT_EQ(find_shards(storage, "data", {"train"}), std::vector<std::string>{});
  }
  EXPECT_EQ(storage.files(), std::vector<std::string>{});
}

TEST(TokenShardWriter, refuses_a_folder_that_has_shards_of_the_part) {
  SimStorage storage;
  storage.put("data/train_000007.bin", "old");
  EXPECT_FALSE(TokenShardWriter::open(storage, {"data", "train", 256, 2}).has_value());
  EXPECT_TRUE(TokenShardWriter::open(storage, {"data", "val", 256, 2}).has_value());
  EXPECT_FALSE(TokenShardWriter::open(storage, {"absent", "val", 256, 2}).has_value());
}

TEST(TokenShardWriter, takes_shard_sizes_that_the_header_can_say) {
  SimStorage storage;
  ASSERT_TRUE(storage.make_folder("data"));
  for (const std::int64_t good : {std::int64_t{1}, (std::int64_t{1} << 31) - 1}) {
    EXPECT_TRUE(TokenShardWriter::open(storage, {"data", "train", 256, good}).has_value());
  }
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{1} << 31}) {
    EXPECT_FALSE(TokenShardWriter::open(storage, {"data", "train", 256, bad}).has_value());
  }
}

TEST(TokenShardWriter, a_fault_anywhere_is_an_error_and_never_a_wrong_shard) {
  const std::vector<Token> tokens = counting(0, 5, 256);
  const auto work = [&](Storage& storage) -> Result<void> {
    LH_ASSIGN(TokenShardWriter writer, TokenShardWriter::open(storage, {"data", "train", 256, 2}));
    LH_TRY(writer.append(tokens));
    LH_TRY(writer.finish());
    return {};
  };
  SimStorage counted;
  ASSERT_TRUE(counted.make_folder("data"));
  const std::uint64_t before = counted.operations();
  ASSERT_TRUE(work(counted).has_value());
  for (std::uint64_t n = 1; n <= counted.operations() - before; ++n) {
    SimStorage storage;
    ASSERT_TRUE(storage.make_folder("data"));
    storage.fail_at(storage.operations() + n);
    EXPECT_FALSE(work(storage).has_value()) << n;
    for (const std::string& name : storage.files()) {
      if (!name.ends_with(".bin")) continue;
      EXPECT_EQ(storage.bytes(name).size(), name.ends_with("2.bin") ? 1026u : 1028u);
    }
  }
}

TEST(FindShards, go_by_the_words_of_a_name) {
  SimStorage storage;
  for (const char* name :
       {"fineweb_train_000002.bin", "fineweb_train_000001.bin", "tiny_shakespeare_val.bin",
        "train.bin", "validation-3.bin", "constrain_0.bin", "train_3.txt", "train_4.bin.partial"}) {
    storage.put(std::string("data/") + name, "");
  }
  EXPECT_EQ(find_shards(storage, "data", {"train"}),
            (std::vector<std::string>{"data/fineweb_train_000001.bin",
                                      "data/fineweb_train_000002.bin", "data/train.bin"}));
  EXPECT_EQ(find_shards(storage, "data", {"val", "validation"}),
            (std::vector<std::string>{"data/tiny_shakespeare_val.bin", "data/validation-3.bin"}));
}

}  // namespace
}  // namespace longhaul
