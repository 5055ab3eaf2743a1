// Token files of others: nanoGPT's, llm.c's and Megatron's as they lie, every way to be wrong with
// its place, and what becomes of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "executor/data/import_tokens.h"
#include "executor/data/token_file.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

template <class Number>
std::string stored(std::initializer_list<Number> numbers) {
  std::string bytes;
  for (const Number number : numbers) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return bytes;
}

std::string llm_c(std::int32_t magic, std::int32_t version, std::int32_t count,
                  const std::string& payload) {
  std::string bytes = stored<std::int32_t>({magic, version, count});
  bytes.resize(1024);
  return bytes + payload;
}

/// An index of sequences of 2 and 1 tokens, two documents.
std::string megatron(char type, std::int64_t width) {
  return std::string("MMIDIDX\0\0", 9) + stored<std::uint64_t>({1}) + type +
         stored<std::uint64_t>({2, 3}) + stored<std::int32_t>({2, 1}) +
         stored<std::int64_t>({0, 2 * width}) + stored<std::int64_t>({0, 1, 2});
}

std::vector<std::int64_t> read_all(Storage& storage, const std::string& path) {
  auto file = TokenFile::open(storage, path);
  EXPECT_TRUE(file.has_value()) << file.error().text();
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(file->tokens()));
  EXPECT_TRUE(file->read(0, tokens).has_value());
  return tokens;
}

TEST(TokenFiles, are_read_as_they_lie) {
  using Ids = std::vector<std::int64_t>;
  SimStorage storage;
  storage.put("raw.bin", stored<std::uint16_t>({1, 65535}));
  EXPECT_EQ(read_all(storage, "raw.bin"), (Ids{1, 65535}));
  storage.put("gpt2.bin", llm_c(20240520, 1, 2, stored<std::uint16_t>({7, 50256})));
  EXPECT_EQ(read_all(storage, "gpt2.bin"), (Ids{7, 50256}));
  storage.put("llama.bin", llm_c(20240801, 7, 1, stored<std::uint32_t>({128001})));
  EXPECT_EQ(read_all(storage, "llama.bin"), (Ids{128001}));
  struct Case {
    char type;
    std::int64_t width;
    std::string bytes;
    Ids ids;
  };
  const Case cases[] = {
      {1, 1, stored<std::uint8_t>({0, 200, 255}), {0, 200, 255}},
      {2, 1, stored<std::int8_t>({0, 127, -1}), {0, 127, -1}},
      {3, 2, stored<std::int16_t>({0, 32767, -5}), {0, 32767, -1}},
      {4, 4, stored<std::int32_t>({1, 2, 1 << 30}), {1, 2, 1 << 30}},
      {5, 8, stored<std::int64_t>({1, 2, std::int64_t{1} << 32}), {1, 2, -1}},
      {8, 2, stored<std::uint16_t>({1, 2, 65535}), {1, 2, 65535}},
  };
  for (const Case& c : cases) {
    storage.put("m.idx", megatron(c.type, c.width));
    storage.put("m.bin", c.bytes);
    EXPECT_EQ(read_all(storage, "m.idx"), c.ids);
    EXPECT_EQ(read_all(storage, "m.bin"), c.ids);
    EXPECT_EQ(TokenFile::open(storage, "m.idx")->documents(), 2);
  }
  storage.put("m.idx", megatron(8, 2) + std::string(2, '\0'));  // modes
  storage.put("m.bin", stored<std::uint16_t>({1, 2, 3}));
  EXPECT_EQ(read_all(storage, "m.bin"), (Ids{1, 2, 3}));
}

TEST(TokenFiles, wrong_ones_are_refused_where_they_are_wrong) {
  const std::string index = megatron(8, 2);
  const std::string tokens = stored<std::uint16_t>({1, 2, 3});
  const auto with = [&](std::size_t offset, const std::string& bytes) {
    std::string changed = index;
    return changed.replace(offset, bytes.size(), bytes);
  };
  struct Case {
    std::string index;  // empty: none
    std::string bytes;
    std::string why;
  };
  const Case cases[] = {
      {"", "", "the file is empty"},
      {"", "abc", "3 bytes are no whole number of uint16"},
      {"", llm_c(20240520, 1, 2, tokens), "it has 1030: something follows"},
      {"", llm_c(20240520, 1, 4, tokens), "it has 1030: it was cut off"},
      {"", llm_c(20240520, 2, 3, tokens), "token shard of version 2 at byte 4"},
      {"", llm_c(20240520, 1, 0, ""), "the header says 0 tokens at byte 8"},
      {"", stored<std::int32_t>({20240520, 1}), "the file has only 8"},
      {index.substr(0, 33), tokens, "at least 34 bytes, this one 33"},
      {with(0, "X"), tokens, "does not start with MMIDIDX"},
      {with(9, std::string(1, '\2')), tokens, "version 2 at byte 9"},
      {with(17, std::string(1, '\6')), tokens, "type 6 at byte 17"},
      {with(18, std::string(1, '\0')), tokens, "0 sequences and 3 documents at byte 18"},
      {with(18, std::string(1, '\5')), tokens, "5 sequences and 3 documents at byte 18"},
      {with(26, std::string(1, '\x09')), tokens, "2 sequences and 9 documents at byte 18"},
      {index.substr(0, index.size() - 1), tokens, "do not fit its 81 bytes"},
      {with(37, std::string(1, '\x80')), tokens, "sequence 0 has -2147483646 tokens at byte 34"},
      {with(50, std::string(1, '\6')), tokens, "sequence 1 is at byte 6 of the tokens, not 4"},
      {index, tokens + "x", "a file of 6 bytes, but it has 7"},
  };
  for (const Case& c : cases) {
    SimStorage storage;
    if (!c.index.empty()) storage.put("x.idx", c.index);
    storage.put("x.bin", c.bytes);
    const auto file = TokenFile::open(storage, "x.bin");
    ASSERT_FALSE(file.has_value()) << c.why;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalid);
    EXPECT_NE(file.error().message.find(c.why), std::string::npos)
        << file.error().message << "\n  wanted " << c.why;
    EXPECT_FALSE(file.error().place.file.empty());
  }
  SimStorage storage;
  storage.put("x.idx", index);
  EXPECT_EQ(TokenFile::open(storage, "x.idx").error().message,
            "the tokens of this index are not in x.bin");
  EXPECT_FALSE(TokenFile::open(storage, "gone.bin").has_value());
}

TEST(TokenFiles, may_be_larger_than_four_gibibytes) {
  // A file with a hole: 5 GiB of zeros and one token behind them, at token 2.5 x 2^30.
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("token_file_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "large.bin").string();
  const int descriptor = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_GE(descriptor, 0);
  constexpr std::int64_t kBytes = std::int64_t{5} << 30;
  const std::uint16_t token = 4711;
  const bool written = pwrite(descriptor, &token, 2, kBytes) == 2;
  close(descriptor);
  if (written) {
    RealStorage storage;
    auto file = TokenFile::open(storage, path);
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ(file->tokens(), kBytes / 2 + 1);
    EXPECT_EQ(file->offset_of(kBytes / 2), kBytes);
    std::vector<std::int64_t> tokens(2);
    ASSERT_TRUE(file->read(kBytes / 2 - 1, tokens).has_value());
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{0, 4711}));
  }
  std::filesystem::remove_all(folder);
  if (!written) GTEST_SKIP() << "no file of 5 GiB with a hole can be made here";
}

TEST(TokenFiles, vocabulary_of_nano_gpts_pickle) {
  // pickle.dumps({'vocab_size': 65, 'itos': {}}) in protocols 4 and 2; then 300 in two bytes.
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(vocabulary_in_pickle("\x80\x04\x95}\x94(\x8c\x0avocab_size\x94K\x41\x8c\x04itos"sv),
            65);
  EXPECT_EQ(vocabulary_in_pickle("\x80\x02}q\x00(X\x0a\x00\x00\x00vocab_sizeq\x01K\x41u."sv), 65);
  EXPECT_EQ(vocabulary_in_pickle("vocab_size\x94M\x2c\x01"sv), 300);
  EXPECT_EQ(vocabulary_in_pickle("vocab_size\x94M\x2c"sv), std::nullopt);
  EXPECT_EQ(vocabulary_in_pickle("vocab_size"sv), std::nullopt);
  EXPECT_EQ(vocabulary_in_pickle("itos"sv), std::nullopt);
}

bool go_on(std::int64_t, std::int64_t) {
  return true;
}

std::vector<Token> part_of(Storage& storage, const Dataset& dataset, const DatasetPart& part) {
  auto stream = TokenStream::open(storage, shard_paths("out", part), dataset.vocabulary);
  EXPECT_TRUE(stream.has_value()) << stream.error().text();
  std::vector<Token> tokens(static_cast<std::size_t>(stream->tokens()));
  EXPECT_TRUE(stream->read(0, tokens).has_value());
  return tokens;
}

TEST(ImportTokens, the_end_of_the_tokens_is_for_validation) {
  SimStorage storage;
  storage.put("a.bin", stored<std::uint16_t>({1, 2, 3}));
  storage.put("b.bin", llm_c(20240801, 7, 5, stored<std::uint32_t>({4, 5, 6, 7, 8})));
  // A quarter of 8 tokens is 2.
  const auto dataset = import_tokens(storage,
                                     {.files = {"a.bin", "b.bin"},
                                      .folder = "out",
                                      .vocabulary = 9,
                                      .validation = 0.25,
                                      .shard_tokens = 4},
                                     go_on);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().text();
  EXPECT_EQ(part_of(storage, *dataset, dataset->train), (std::vector<Token>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(part_of(storage, *dataset, dataset->validation), (std::vector<Token>{7, 8}));
  EXPECT_EQ(dataset->tokenizer, "unknown");
  EXPECT_TRUE(check_part(storage, "out", *load_dataset(storage, "out"), dataset->train));
}

TEST(ImportTokens, files_named_for_validation_are) {
  SimStorage storage;
  storage.put("in/fineweb_train_000001.bin", stored<std::uint16_t>({1, 2}));
  storage.put("in/fineweb_train_000002.bin", stored<std::uint16_t>({3}));
  storage.put("in/fineweb_val_000000.bin", stored<std::uint16_t>({4}));
  storage.put("in/readme.txt", "x");
  const auto files = find_token_files(storage, "in");
  ASSERT_EQ(files->size(), 3u);
  const auto dataset = import_tokens(
      storage, {.files = *files, .folder = "out", .vocabulary = 256, .tokenizer = nullptr}, go_on);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().text();
  EXPECT_EQ(part_of(storage, *dataset, dataset->train), (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(part_of(storage, *dataset, dataset->validation), (std::vector<Token>{4}));
}

TEST(ImportTokens, counts_bytes_and_documents_where_the_tokenizer_is_known) {
  SimStorage storage;
  storage.put("a.bin", stored<std::uint16_t>({'a', 'b', 'c'}));
  const auto bytes = make_byte_tokenizer();
  const auto dataset = import_tokens(storage,
                                     {.files = {"a.bin"},
                                      .folder = "out",
                                      .vocabulary = 256,
                                      .tokenizer = bytes.get(),
                                      .validation = 0},
                                     go_on);
  ASSERT_TRUE(dataset.has_value());
  EXPECT_EQ(dataset->train.text_bytes, 3);
  EXPECT_EQ(dataset->tokenizer, "bytes");
}

TEST(ImportTokens, what_does_not_fit_is_refused_and_leaves_nothing) {
  struct Case {
    std::string file;
    std::string bytes;
    std::int64_t vocabulary;
    std::string why;
  };
  const Case cases[] = {
      {"a.bin", stored<std::uint16_t>({1, 2, 300}), 300,
       "token 300 at byte 4 (number 2 of the file) is outside the vocabulary of 300"},
      {"a.bin", llm_c(20240520, 1, 2, stored<std::uint16_t>({1, 9})), 9, "token 9 at byte 1026"},
      {"a_val.bin", stored<std::uint16_t>({1, 2}), 300, "all files are named for validation"},
      {"a.bin", stored<std::uint16_t>({1}), 300, "no tokens for one of the parts"},
      {"a.bin", stored<std::uint16_t>({1}), 0, "a vocabulary has 1 to 2147483648 ids, not 0"},
  };
  for (const Case& c : cases) {
    SimStorage storage;
    storage.put(c.file, c.bytes);
    const auto dataset = import_tokens(
        storage, {.files = {c.file}, .folder = "out", .vocabulary = c.vocabulary}, go_on);
    ASSERT_FALSE(dataset.has_value()) << c.why;
    EXPECT_NE(dataset.error().message.find(c.why), std::string::npos) << dataset.error().message;
    EXPECT_EQ(storage.files(), std::vector<std::string>{c.file});
  }
}

}  // namespace
}  // namespace longhaul
