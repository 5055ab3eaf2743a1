// Texts that are cut into blocks: the tokens are those of the whole documents, whatever the text
// and the number of threads. And what the inputs are: files, folders, JSON lines.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "core/rng.h"
#include "executor/data/prepare.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

constexpr std::string_view kSeparator = "<|endoftext|>";

std::unique_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  RealStorage storage;
  auto loaded =
      load_tokenizer(storage, LONGHAUL_SOURCE_DIR "/tests/golden/tokenizers/" + name + ".json");
  EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
  return *std::move(loaded);
}

/// The tokenizer's files are on the disk and not in the simulated storage.
class WithoutFiles final : public Tokenizer {
 public:
  explicit WithoutFiles(std::unique_ptr<Tokenizer> inner) : inner_(std::move(inner)) {}
  using Tokenizer::encode;
  std::string_view name() const override { return inner_->name(); }
  std::int64_t vocabulary() const override { return inner_->vocabulary(); }
  std::optional<Token> end_of_text() const override { return inner_->end_of_text(); }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<WithoutFiles>(inner_->clone());
  }
  std::size_t encode(std::string_view text, const TextPart& part,
                     std::vector<Token>& out) override {
    return inner_->encode(text, part, out);
  }

 private:
  std::string_view bytes_of(Token) const override { return ""; }
  std::unique_ptr<Tokenizer> inner_;
};

std::vector<Token> train_tokens(Storage& storage, const Dataset& dataset) {
  auto stream = TokenStream::open(storage, shard_paths("out", dataset.train), dataset.vocabulary);
  EXPECT_TRUE(stream.has_value());
  std::vector<Token> tokens(static_cast<std::size_t>(stream->tokens()));
  EXPECT_TRUE(stream->read(0, tokens).has_value());
  return tokens;
}

std::vector<Token> prepared(const std::string& text, const Tokenizer& tokenizer,
                            std::int64_t block_bytes, int threads) {
  SimStorage storage;
  storage.put("text", text);
  PrepareOptions options = {
      .inputs = {{"text"}}, .folder = "out", .validation = 0, .threads = threads};
  options.inputs.block_bytes = block_bytes;
  const auto dataset =
      prepare_dataset(storage, options, tokenizer, [](const PrepareProgress&) { return true; });
  EXPECT_TRUE(dataset.has_value()) << dataset.error().text();
  return train_tokens(storage, *dataset);
}

/// What `prepare` should make of a text.
std::vector<Token> tokens_of(std::string_view text, Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kSeparator), text.size());
    if (end > 0) tokens.push_back(*tokenizer.end_of_text());
    tokenizer.encode(text.substr(0, end), {}, tokens);
    text.remove_prefix(std::min(end + kSeparator.size(), text.size()));
  }
  return tokens;
}

TEST(Blocks, tokens_are_those_of_the_whole_documents) {
  static const std::string_view kParts[] = {
      " the",         "The",           "  ",      "\n",   "\n\n",     "'s",      "123", "日本",
      "\u3000",       "e\u0301",       "🙂",      "aaaa", "!?",       "<|pad|>", "'ſ",  " !\n",
      "\u0301\u0323", "<|endoftext|>", "<|endof", "\xff", "\xe6\x97", "Word "};
  Rng rng("blocks", 1);
  for (const char* name : {"llama3", "qwen2", "gpt4o", "three", "prefix"}) {
    WithoutFiles tokenizer(golden_tokenizer(name));
    for (int i = 0; i < 60; ++i) {
      std::string text;
      while (text.size() < 700) {
        // Runs make pieces that are longer than blocks.
        const std::string_view part = kParts[rng.index(std::size(kParts))];
        for (std::size_t n = rng.chance(0.1) ? rng.index(120) : 1; n > 0; --n) text += part;
      }
      const auto block = static_cast<std::int64_t>(64 + rng.index(100));
      ASSERT_EQ(prepared(text, tokenizer, block, 1), tokens_of(text, tokenizer)) << name << text;
    }
  }
}

TEST(Blocks, of_a_mebibyte_too) {
  WithoutFiles tokenizer(golden_tokenizer("llama3"));
  std::string text;
  while (text.size() < (std::size_t{1} << 20)) text += "Lines of words,\n\tand 12345 more.\n";
  text += std::string(100'000, 'b') + std::string(kSeparator) + "日本語";
  EXPECT_TRUE(prepared(text, tokenizer, std::int64_t{1} << 20, 1) == tokens_of(text, tokenizer));
}

TEST(Blocks, threads_change_nothing) {
  WithoutFiles tokenizer(golden_tokenizer("gpt4o"));
  Rng rng("threads", 1);
  std::string text;
  while (text.size() < (std::size_t{1} << 19)) {
    text += fmt::format("{} words and {} more{}", rng.below(1000), rng.below(10),
                        rng.chance(0.01) ? std::string(kSeparator) : " \n");
  }
  const std::vector<Token> wanted = tokens_of(text, tokenizer);
  for (const int threads : {1, 2, 5}) {
    EXPECT_TRUE(prepared(text, tokenizer, 5000, threads) == wanted) << threads;
  }
}

/// Files of a folder as one string of bytes, `#` for the end of text of the golden tokenizer.
Result<Dataset> prepare(SimStorage& storage, TextInputOptions inputs) {
  const auto tokenizer = make_byte_tokenizer();
  return prepare_dataset(storage, {.inputs = std::move(inputs), .folder = "out", .validation = 0},
                         *tokenizer, [](const PrepareProgress&) { return true; });
}

std::string text_of(SimStorage& storage, TextInputOptions inputs) {
  const auto dataset = prepare(storage, std::move(inputs));
  EXPECT_TRUE(dataset.has_value()) << dataset.error().text();
  if (!dataset) return "";
  return *make_byte_tokenizer()->decode(train_tokens(storage, *dataset));
}

TEST(TextInputs, folders_are_read_in_order_by_suffix) {
  const auto storage = [] {
    auto made = std::make_unique<SimStorage>();
    made->put("in/b.txt", "b");
    made->put("in/a/z.md", "z");
    made->put("in/a/deep/er.jsonl", "{\"text\": \"j\"}\n{\"text\": \"k\"}");
    made->put("in/c.py", "p");
    made->put("in/.hidden.txt", "h");
    made->put("in/.git/x.txt", "g");
    return made;
  };
  EXPECT_EQ(text_of(*storage(), {{"in"}}), "jkzb");
  EXPECT_EQ(text_of(*storage(), {{"in"}, {".py", ".md"}}), "zp");
  EXPECT_EQ(text_of(*storage(), {{"in/c.py", "in/a/z.md"}}), "pz");
  const auto none = prepare(*storage(), {{"in"}, {".rst"}});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "no file below in ends with .rst");
}

TEST(TextInputs, a_json_line_is_a_document) {
  SimStorage storage;
  storage.put("a.json",
              "{\"body\": \"o\\u00e9\\n\", \"n\": 1}\n\n  \n{\"body\": \"\"}\n{\"body\":\"p\"}");
  const auto dataset = prepare(storage, {{"a.json"}, {}, "body"});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().text();
  EXPECT_EQ(*make_byte_tokenizer()->decode(train_tokens(storage, *dataset)), "o\u00e9\np");
  EXPECT_EQ(dataset->train.documents, 2);
  EXPECT_EQ(dataset->train.text_bytes, 5);
}

TEST(TextInputs, validation_starts_with_a_json_line) {
  SimStorage storage;
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += fmt::format("{{\"text\": \"{}\"}}\n", i);
  storage.put("a.jsonl", lines);
  const auto tokenizer = make_byte_tokenizer();
  // 15 bytes a line: the last quarter starts at byte 113, inside line 8, so at line 9 (byte 120).
  const auto dataset =
      prepare_dataset(storage, {.inputs = {{"a.jsonl"}}, .folder = "out", .validation = 0.25},
                      *tokenizer, [](const PrepareProgress&) { return true; });
  ASSERT_TRUE(dataset.has_value()) << dataset.error().text();
  EXPECT_EQ(dataset->train.documents, 8);
  EXPECT_EQ(dataset->validation.documents, 2);
}

TEST(TextInputs, what_cannot_be_read_is_refused_where_it_stands) {
  struct Case {
    std::string file;
    std::string bytes;
    std::string error;
    std::string hint;
  };
  const std::string good = "{\"text\": \"a\"}\n";
  const Case cases[] = {
      {"a.jsonl", good + "\n{\"text\": \"b\"\n", "a.jsonl:3: error: not JSON, at byte",
       "an object"},
      {"a.jsonl", good + "[1]\n", "a.jsonl:2: error: not a JSON object", "each line"},
      {"a.jsonl", good + "{\"body\": \"b\", \"id\": 1}",
       "a.jsonl:2: error: there is no field `text`", "here are body, id"},
      {"a.jsonl", "{}\n", "a.jsonl:1: error: there is no field `text`", "here are none"},
      {"a.jsonl", "{\"text\": 1}\n", "a.jsonl:1: error: the field `text` is not a text", ""},
      {"a.jsonl", "{\"text\": \"\xff\"}\n", "a.jsonl:1: error: not JSON", ""},
      {"a.jsonl", "{\"text\": \"a\", \"score\": 1e999}\n",
       "a.jsonl:1: error: a number is too large", ""},
      {"a.txt.gz", "x", "a.txt.gz is compressed", "zcat a.txt.gz | longhaul data prepare -"},
      {"a.parquet", "x", "a.parquet is a table", "to_json"},
      {"a.txt", "", "the inputs hold no text", ""},
  };
  for (const Case& c : cases) {
    SimStorage storage;
    storage.put(c.file, c.bytes);
    const auto dataset = prepare(storage, {{c.file}});
    ASSERT_FALSE(dataset.has_value()) << c.error;
    EXPECT_EQ(dataset.error().code, ErrorCode::kInvalid);
    EXPECT_NE(dataset.error().text().find(c.error), std::string::npos) << dataset.error().text();
    EXPECT_NE(dataset.error().hint.find(c.hint), std::string::npos) << dataset.error().hint;
  }
}

TEST(TextInputs, a_bad_line_behind_the_first_block_has_its_number) {
  SimStorage storage;
  const std::string line = "{\"text\": \"" + std::string(100'000, 'x') + "\"}\n";
  std::string text;
  for (int i = 0; i < 15; ++i) text += line;
  storage.put("a.jsonl", text + "bad\n");
  const auto dataset = prepare(storage, {{"a.jsonl"}});
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().place.line, 16);
}

}  // namespace
}  // namespace longhaul
