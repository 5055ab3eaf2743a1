// Tokenizers: GPT-2's pieces and merges, its published ids where its tables are at hand, and
// decode(encode(x)) == x for any bytes.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "core/rng.h"
#include "executor/data/hand_split.h"
#include "executor/data/tokenizer.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const std::size_t length = next_gpt2_piece(text).length;
    pieces.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

TEST(Gpt2Split, cuts_as_the_regular_expression_does) {
  struct Case {
    std::string text;
    std::vector<std::string> pieces;
  };
  const Case cases[] = {
      {"Hello world", {"Hello", " world"}},
      {"abc123def", {"abc", "123", "def"}},
      {"a, b!?", {"a", ",", " b", "!?"}},
      // ` ?` takes one space; `\s+(?!\S)` leaves the last one to the word, if it is a space.
      {"a  b", {"a", " ", " b"}},
      {"a \n b", {"a", " \n", " b"}},
      {"a\n\nb", {"a", "\n", "\n", "b"}},
      {"a \tb", {"a", " ", "\t", "b"}},
      {"a  ", {"a", "  "}},
      {" ", {" "}},
      {"\n", {"\n"}},
      // Contractions are lower case, and an apostrophe behind a space or a sign is none.
      {"don't he'll we've I'd I'm they're it's",
       {"don", "'t", " he", "'ll", " we", "'ve", " I", "'d", " I", "'m", " they", "'re", " it",
        "'s"}},
      {"DON'T", {"DON", "'", "T"}},
      {" 'tis", {" '", "tis"}},
      {"!'s", {"!'", "s"}},
      {"'sam", {"'s", "am"}},
      {"x'l", {"x", "'", "l"}},
      {"x'", {"x", "'"}},
      // Classes of Unicode: letters, numbers of all three kinds, spaces of two and three bytes.
      {"naïve ÉTÉ", {"naïve", " ÉTÉ"}},
      {"日本語。", {"日本語", "。"}},
      {"x²½Ⅷ٣", {"x", "²½Ⅷ٣"}},
      {"a\u00a0\u3000b", {"a", "\u00a0", "\u3000", "b"}},
      {"a\u200bb", {"a", "\u200b", "b"}},  // no White_Space
      {"e\u0301", {"e", "\u0301"}},        // a combining mark is neither letter nor space
      {"🙂🙂 🙂", {"🙂🙂", " 🙂"}},
      {"\U0001d538\U00020000", {"\U0001d538\U00020000"}},  // letters beyond 16 bits
      // Broken UTF-8 is one sign a byte: a lone continuation, a cut sequence, overlong, surrogate.
      {"a\x80z", {"a", "\x80", "z"}},
      {"\xe6\x97", {"\xe6\x97"}},
      {"\xe6\x97z", {"\xe6\x97", "z"}},
      {"\xc1\x81\xe0\x81\x81", {"\xc1\x81\xe0\x81\x81"}},
      {"\xed\xa0\x80 \xf4\x90\x80\x80\xff", {"\xed\xa0\x80", " \xf4\x90\x80\x80\xff"}},
  };
  for (const Case& c : cases) EXPECT_EQ(pieces_of(c.text), c.pieces) << c.text;
}

TEST(Gpt2Split, long_runs_are_cut_behind_the_character_that_reaches_the_limit) {
  EXPECT_EQ(next_gpt2_piece(std::string(kPieceBytesMax, 'a')).length, kPieceBytesMax);
  EXPECT_EQ(next_gpt2_piece(std::string(kPieceBytesMax + 1, 'a')).length, kPieceBytesMax);
  EXPECT_EQ(next_gpt2_piece(std::string(kPieceBytesMax + 1, ' ')).length, kPieceBytesMax);
  std::string wide;
  while (wide.size() <= kPieceBytesMax + 3) wide += "日";
  EXPECT_EQ(next_gpt2_piece(wide).length, (kPieceBytesMax + 2) / 3 * 3);
}

/// A byte as GPT-2's tables write it, by the rule of the header.
std::string character_of(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  int code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::string json_text(std::string_view token) {
  std::string out = "\"";
  for (const char c : token)
    out += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return out + '"';
}

/// Ids: byte b is b, then the merges in order, then the end of text.
struct SmallTables {
  explicit SmallTables(const std::vector<std::pair<std::string, std::string>>& pairs) {
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(character_of(byte));
    merges = "#version: 0.2\n";
    for (const auto& [left, right] : pairs) {
      merges += left + " " + right + "\n";
      tokens.push_back(left + right);
    }
    tokens.emplace_back("<|endoftext|>");
  }
  std::string vocabulary() const {
    std::string out = "{";
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      out += fmt::format("{}{}: {}", i == 0 ? "" : ", ", json_text(tokens[i]), i);
    }
    return out + "}";
  }
  Result<std::unique_ptr<Tokenizer>> make() const {
    return make_bpe_tokenizer({vocabulary(), merges, "vocab.json", "merges.txt"});
  }
  std::vector<std::string> tokens;
  std::string merges;
};

SmallTables the_tables() {
  return SmallTables({{"Ġ", "t"}, {"h", "e"}, {"Ġt", "he"}, {"a", "a"}, {"aa", "aa"}});
}

/// With merges that tell where the pieces of spaces and of letters end: 0xe6 starts 日.
SmallTables telling_tables() {
  return SmallTables({{"Ġ", "t"},
                      {"h", "e"},
                      {"Ġt", "he"},
                      {"a", "a"},
                      {"aa", "aa"},
                      {"Ġ", "Ġ"},
                      {"aaaa", "æ"},
                      {"'", "l"},
                      {"'l", "l"},
                      {"!", "?"}});
}

TEST(BpeTokenizer, merges_by_rank_from_the_left) {
  auto tokenizer = the_tables().make();
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().text();
  Tokenizer& bpe = **tokenizer;
  EXPECT_EQ(bpe.vocabulary(), 262);
  EXPECT_EQ(bpe.end_of_text(), 261);
  EXPECT_EQ(bpe.encode(" the"), (std::vector<Token>{258}));
  EXPECT_EQ(bpe.encode("the"), (std::vector<Token>{'t', 257}));
  EXPECT_EQ(bpe.encode(" tahe"), (std::vector<Token>{256, 'a', 257}));
  // aaa: the left pair first; aaaaa: aa aa a, then aaaa a; seven: aaaa aa a.
  EXPECT_EQ(bpe.encode("aaa"), (std::vector<Token>{259, 'a'}));
  EXPECT_EQ(bpe.encode("aaaaa"), (std::vector<Token>{260, 'a'}));
  EXPECT_EQ(bpe.encode("aaaaaaa"), (std::vector<Token>{260, 259, 'a'}));
  // The separator is text like any other.
  EXPECT_EQ(bpe.encode("<|endoftext|>").size(), 13u);
  EXPECT_EQ(bpe.encode(""), std::vector<Token>{});
}

TEST(BpeTokenizer, words_from_the_cache_are_those_that_were_merged) {
  auto first = the_tables().make();
  // More words than the cache holds, of up to 33 bytes, each twice.
  Rng rng("words", 1);
  std::vector<std::string> words;
  for (int i = 0; i < 60'000; ++i) {
    std::string word = rng.chance(0.5) ? " " : "";
    for (std::size_t n = 1 + rng.index(rng.chance(0.1) ? 32 : 6); n > 0; --n) {
      word += "athe"[rng.index(4)];
    }
    words.push_back(word);
  }
  std::vector<std::vector<Token>> cold;
  for (const std::string& word : words) cold.push_back((*first)->encode(word));
  for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ((*first)->encode(words[i]), cold[i]);
  auto second = the_tables().make();
  for (std::size_t i = words.size(); i-- > 0;) ASSERT_EQ((*second)->encode(words[i]), cold[i]);
}

TEST(BpeTokenizer, a_megabyte_of_one_letter_is_no_trouble) {
  auto tokenizer = the_tables().make();
  const std::vector<Token> tokens = (*tokenizer)->encode(std::string(std::size_t{1} << 20, 'a'));
  EXPECT_EQ(tokens, std::vector<Token>(std::size_t{1} << 18, 260));
}

/// Text that is now and then no text.
std::string random_bytes(Rng& rng, std::size_t size) {
  static const std::string_view kParts[] = {" the",   "he",  "  ",  "\n",   "\r\n",
                                            "'s",     "'ll", "123", "日本", "\u3000",
                                            "\u00a0", "🙂",  "é",   "aaaa", "!?"};
  std::string text;
  while (text.size() < size) {
    if (rng.chance(0.3)) {
      text += static_cast<char>(rng.below(256));
    } else {
      text += kParts[rng.index(std::size(kParts))];
    }
  }
  return text;
}

TEST(Tokenizers, decoding_what_was_encoded_gives_any_bytes_back) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(*telling_tables().make());
  std::string every_byte(256, '\0');
  std::iota(every_byte.begin(), every_byte.end(), '\0');
  Rng rng("any bytes", 1);
  for (const auto& tokenizer : tokenizers) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(every_byte)), every_byte);
    for (int i = 0; i < 500; ++i) {
      const std::string text = random_bytes(rng, rng.index(300));
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
    const auto vocabulary = static_cast<Token>(tokenizer->vocabulary());
    EXPECT_TRUE(tokenizer->decode(std::vector<Token>{0, vocabulary - 1}).has_value());
    for (const Token bad : {-1, vocabulary}) {
      EXPECT_FALSE(tokenizer->decode(std::vector<Token>{0, bad}).has_value());
    }
  }
}

TEST(Tokenizers, tokens_do_not_depend_on_where_the_text_was_cut) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(*telling_tables().make());
  Rng rng("cuts", 1);
  for (const auto& tokenizer : tokenizers) {
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_bytes(rng, 200);
      std::vector<Token> tokens;
      std::string pending;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = std::min(1 + rng.index(20), text.size() - at);
        pending += text.substr(at, size);
        at += size;
        const TextPart part = {.starts = tokens.empty(), .ends = at == text.size()};
        pending.erase(0, tokenizer->encode(pending, part, tokens));
      }
      EXPECT_EQ(pending, "");
      ASSERT_EQ(tokens, tokenizer->encode(text)) << i;
    }
  }
}

TEST(BpeTables, bad_ones_are_refused_with_file_and_line) {
  const auto refused = [](const std::string& vocabulary, const std::string& merges) {
    const auto tokenizer = make_bpe_tokenizer({vocabulary, merges, "vocab.json", "merges.txt"});
    EXPECT_FALSE(tokenizer.has_value());
    return tokenizer ? "" : tokenizer.error().text();
  };
  const SmallTables good = the_tables();
  const std::string vocabulary = good.vocabulary();
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = vocabulary;
    return text.replace(text.find(from), from.size(), to);
  };
  struct Case {
    std::string vocabulary;
    std::string merges;
    std::string error;
  };
  const Case cases[] = {
      {"", "", "vocab.json: error: not a JSON object of tokens and ids"},
      {"[1]", "", "not a JSON object"},
      {"{", "", "not a JSON object"},
      {"{}", "", "0 tokens"},
      {changed("\"<|endoftext|>\": 261", "\"<|endoftext|>\": 262"), "",
       "not a number from 0 to 261"},
      {changed("\"<|endoftext|>\": 261", "\"<|endoftext|>\": -1"), "",
       "not a number from 0 to 261"},
      {changed("\"<|endoftext|>\": 261", "\"<|endoftext|>\": 1.0"), "", "not a number from"},
      {changed("\"<|endoftext|>\": 261", "\"<|endoftext|>\": \"1\""), "", "not a number from"},
      {changed("\"<|endoftext|>\": 261", "\"<|endoftext|>\": 0"), "", "two tokens have the id"},
      {changed("\"<|endoftext|>\"", "\"end of text\""), "", "`end of text` is not a token in"},
      {changed("\"<|endoftext|>\"", "\"日\""), "", "is not a token in GPT-2's characters"},
      {changed("\"<|endoftext|>\"", "\"\""), "", "is not a token in GPT-2's characters"},
      {changed("\"a\": 97", "\"xx\": 97"), "", "no token for the byte 97"},
      {vocabulary, "h\n", "merges.txt:1: error: a merge is two tokens"},
      {vocabulary, "h e h\n", "merges.txt:1: error: a merge is two tokens"},
      {vocabulary, "#version: 0.2\nĠ t\n\nh x\n", "merges.txt:4: error: a part of this merge, or"},
      {vocabulary, "h e\nh 日\n", "merges.txt:2: error: a part of this merge, or"},
      {vocabulary, " he\n", "merges.txt:1: error"},
  };
  for (const Case& bad : cases) {
    const std::string error = refused(bad.vocabulary, bad.merges);
    EXPECT_NE(error.find(bad.error), std::string::npos) << error << "\n  wanted " << bad.error;
  }
  EXPECT_TRUE(make_bpe_tokenizer({vocabulary, "Ġ t\r\nh e\r\nĠt he", "v", "m"}).has_value());
}

TEST(Gpt2Tables, have_two_pairs_of_names) {
  const SmallTables tables = the_tables();
  SimStorage storage;
  storage.put("hf/vocab.json", tables.vocabulary());
  storage.put("hf/merges.txt", tables.merges);
  storage.put("openai/encoder.json", tables.vocabulary());
  storage.put("openai/vocab.bpe", tables.merges);
  storage.put("half/vocab.json", tables.vocabulary());
  EXPECT_TRUE(load_gpt2_tokenizer(storage, "hf").has_value());
  EXPECT_TRUE(load_gpt2_tokenizer(storage, "openai").has_value());
  const auto half = load_gpt2_tokenizer(storage, "half");
  ASSERT_FALSE(half.has_value());
  EXPECT_EQ(half.error().message, "there is no merges.txt or vocab.bpe in half");
  EXPECT_FALSE(load_gpt2_tokenizer(storage, "absent").has_value());
}

class Gpt2 : public testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("LONGHAUL_GPT2_TABLES");
    const std::string folder = given != nullptr ? given : LONGHAUL_SOURCE_DIR "/build/gpt2";
    auto loaded = load_gpt2_tokenizer(storage_, folder);
    if (!loaded) GTEST_SKIP() << "GPT-2's tables are not here: " << loaded.error().text();
    gpt2_ = *std::move(loaded);
  }
  RealStorage storage_;
  std::unique_ptr<Tokenizer> gpt2_;
};

TEST_F(Gpt2, gives_the_ids_of_the_original) {
  EXPECT_EQ(gpt2_->vocabulary(), 50257);
  EXPECT_EQ(gpt2_->end_of_text(), 50256);
  struct Case {
    std::string text;
    std::vector<Token> tokens;
  };
  // The first five from the encoder of OpenAI's release, the others from tiktoken 0.14.
  const Case cases[] = {
      {"Hello world", {15496, 995}},
      {" don't stop 123\n\n  x", {836, 470, 2245, 17031, 628, 220, 2124}},
      {"héllo 日本 🙂", {71, 2634, 18798, 10545, 245, 98, 17312, 105, 32485}},
      {" the", {262}},
      {"!", {0}},
      {"It's we're I'll they'd I've I'm 'tis DON'T",
       {1026, 338, 356, 821, 314, 1183, 484, 1549, 314, 1053, 314, 1101, 705, 48010, 23917, 6, 51}},
      {"tab\tnew\r\n\r\n  end  ", {8658, 197, 3605, 201, 198, 201, 198, 220, 886, 220, 220}},
      {"12345 ½x² ٣٤", {10163, 2231, 25208, 87, 31185, 18923, 96, 149, 97}},
      {"日本語のテキスト。한국어 Ελληνικά",
       {33768, 98,    17312, 105, 45739, 252,   5641,  24336, 25084, 43302,
        16764, 47991, 250,   166, 113,   255,   168,   244,   112,   7377,
        243,   39377, 39377, 138, 115,   26180, 29945, 43000, 138,   105}},
      {"a\u00a0b\u3000\u2028c\ufeffd", {64, 1849, 65, 5099, 222, 447, 101, 66, 171, 119, 123, 67}},
      {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
      {"   ", {220, 220, 220}},
      {"\n\n\nx", {628, 198, 87}},
      {"🙂🙂👩\u200d👩\u200d👧",
       {8582, 25081, 8582, 25081, 41840, 102, 447, 235, 41840, 102, 447, 235, 41840, 100}},
      {"naïve café", {2616, 38776, 40304}},
      {std::string(40, 'a'), std::vector<Token>(10, 24794)},
      {"SolidGoldMagikarp", {46933, 42202}},
  };
  for (const Case& c : cases) EXPECT_EQ(gpt2_->encode(c.text), c.tokens) << c.text;
}

TEST_F(Gpt2, every_token_decodes_to_bytes_that_encode_and_come_back) {
  for (Token token = 0; token < 50257; ++token) {
    const std::string text = *gpt2_->decode(std::vector{token});
    ASSERT_EQ(gpt2_->decode(gpt2_->encode(text)), text) << token;
  }
}

}  // namespace
}  // namespace longhaul
