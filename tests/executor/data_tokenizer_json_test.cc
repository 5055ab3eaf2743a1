// tokenizer.json: the ids of Hugging Face's library (tests/judges/tokenizer_judge.py wrote the
// goldens), whatever way the text is cut; what cannot be read is refused by name.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/rng.h"
#include "executor/data/characters.h"
#include "executor/data/nfc.h"
#include "executor/data/splitter.h"
#include "executor/data/tokenizer_json.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFolder = LONGHAUL_SOURCE_DIR "/tests/golden/tokenizers/";
const std::vector<std::string> kNames = {"llama3", "qwen2", "gpt4o", "digits", "three", "prefix"};

Json golden(const std::string& name) {
  RealStorage storage;
  const auto text = read_text(storage, std::string(kFolder) + name, 1 << 20);
  EXPECT_TRUE(text.has_value()) << name;
  return Json::parse(text.value_or("null"));
}

std::unique_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  RealStorage storage;
  auto loaded = load_tokenizer(storage, std::string(kFolder) + name + ".json");
  EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
  return *std::move(loaded);
}

/// Text that is now and then no text, with what the goldens' tokenizers look for.
std::string random_bytes(Rng& rng, std::size_t size) {
  static const std::string_view kParts[] = {
      " the", "The", "  ", "\n", "\r\n", "'s", "'LL", "123", "日本", "\u3000", "e\u0301", "🙂", "é",
      "aaaa", "!?", "<|pad|>", "<|pa", "'ſ", "\t", " !\n", "가\u11a8", "the\u0301", "x", "/",
      "\u0301", "\u0323", "½", "\u00a0", "<|endoftext|>", "ABCdef",
      // Letter, digit and mark of Unicode 15 and 16.
      "\U0002ecd0", "\U00011bf3", "\U00010d69"};
  std::string text;
  while (text.size() < size) {
    if (rng.chance(0.1)) {
      text += static_cast<char>(rng.below(256));
    } else {
      text += kParts[rng.index(std::size(kParts))];
    }
  }
  return text;
}

TEST(TokenizerJson, gives_the_ids_of_hugging_faces_library) {
  const Json texts = golden("texts.json");
  for (const std::string& name : kNames) {
    const auto tokenizer = golden_tokenizer(name);
    const Json ids = golden(name + ".ids.json");
    ASSERT_EQ(ids.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(tokenizer->encode(texts[i].get<std::string>()), ids[i].get<std::vector<Token>>())
          << name << " " << texts[i];
    }
    EXPECT_EQ(tokenizer->name(), "tokenizer.json");
    EXPECT_EQ(tokenizer->end_of_text(), 0);
    EXPECT_EQ(tokenizer->vocabulary(), 703);  // 700 and three that were added
  }
}

// The golden's added token is written as e and an accent, and matches in normalised text: ids of
// tokenizers 0.23.3.
TEST(TokenizerJson, an_added_token_is_normalised_like_the_text_it_is_looked_for_in) {
  const auto tokenizer = golden_tokenizer("qwen2");
  EXPECT_EQ(tokenizer->encode("th\u00e9"), std::vector<Token>{702});
  EXPECT_EQ(tokenizer->encode("the\u0301"), std::vector<Token>{702});
}

TEST(TokenizerJson, decoding_gives_any_bytes_back_unless_the_tokenizer_changes_texts) {
  Rng rng("json bytes", 1);
  for (const std::string& name : kNames) {
    const auto tokenizer = golden_tokenizer(name);
    for (int i = 0; i < 200; ++i) {
      const std::string text = random_bytes(rng, rng.index(300));
      const std::string back = *tokenizer->decode(tokenizer->encode(text));
      if (name == "qwen2") {
        // An added token comes back as it is written in the file, which need not be NFC.
        ASSERT_EQ(NfcText(back).text(), NfcText(text).text());
      } else if (name != "prefix") {
        ASSERT_EQ(back, text) << name;
      }
    }
  }
  // A space before each text, and behind each token that was taken out.
  const auto prefix = golden_tokenizer("prefix");
  EXPECT_EQ(*prefix->decode(prefix->encode("a<|pad|>b c")), " a<|pad|> b c");
  EXPECT_EQ(*prefix->decode(prefix->encode(" a<|pad|>\n")), " a<|pad|> \n");
}

/// Encodes in calls that each see a part of the text and stop somewhere.
std::vector<Token> in_parts(Tokenizer& tokenizer, const std::string& text, Rng& rng) {
  std::vector<Token> tokens;
  std::size_t done = 0;
  std::size_t window = 0;
  while (done < text.size()) {
    window = std::min(std::max(window, done) + 1 + rng.index(30), text.size());
    const std::string_view seen = std::string_view(text).substr(done, window - done);
    const std::size_t stop = rng.chance(0.5) ? 1 + rng.index(20) : std::string_view::npos;
    done += tokenizer.encode(seen, {done == 0, window == text.size(), stop}, tokens);
  }
  return tokens;
}

TEST(TokenizerJson, tokens_do_not_depend_on_where_the_text_was_cut) {
  Rng rng("json cuts", 1);
  for (const std::string& name : kNames) {
    const auto tokenizer = golden_tokenizer(name);
    const auto other = tokenizer->clone();
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_bytes(rng, 150);
      ASSERT_EQ(in_parts(*tokenizer, text, rng), other->encode(text)) << name << " " << i;
    }
  }
}

std::vector<std::size_t> lengths(Splitter& splitter, std::string_view text) {
  std::vector<std::size_t> out;
  splitter.take(text, true);
  while (const std::size_t length = splitter.next()) out.push_back(length);
  return out;
}

TEST(Splitters, by_hand_cut_as_the_expression_does) {
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  Rng rng("split", 1);
  for (const std::string& expression :
       {std::string(
            R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
        head + tail, head + "{1,3}" + tail, head + "+" + tail}) {
    const auto fast = make_regex_splitter(expression);
    const auto general = make_pcre_splitter(expression);
    ASSERT_TRUE(fast.has_value() && general.has_value());
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random_bytes(rng, 60);
      ASSERT_EQ(lengths(**fast, text), lengths(**general, text)) << expression << "\n" << text;
    }
  }
}

TEST(Splitters, long_runs_take_no_quadratic_time) {
  // A megabyte of each; one pass over it takes milliseconds, a quadratic one hours.
  const std::string gpt4o =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto splitter = make_regex_splitter(gpt4o);
  ASSERT_TRUE(splitter.has_value());
  for (const char* part : {"a", "A", " ", "\n", "7", "!", "\xff", "日"}) {
    std::string text;
    while (text.size() < (std::size_t{1} << 20)) text += part;
    std::size_t total = 0;
    for (const std::size_t length : lengths(**splitter, text)) total += length;
    EXPECT_EQ(total, text.size());
  }
}

TEST(Splitters, expressions_with_another_meaning_elsewhere_are_refused) {
  struct Case {
    std::string expression;
    std::string why;
  };
  const Case cases[] = {
      {"", "1 to 65536 bytes"},
      {"(a", "does not compile"},
      {"^a", "the anchor ^ at character 1"},
      {"a(?<=b)", "looks at text behind"},
      {R"(\bword)", R"(\b at character 1)"},
      {R"(\w+)", R"(\w at character 1)"},
      {R"(\h)", R"(\h)"},
      {R"((a)\1)", R"(\1 at character 4)"},
      {"[a[b]]", "a class inside a class"},
      {"[a-z&&[^b]]", "an intersection of classes"},
      {"[]a]", "a class that starts with ]"},
      {"(?#x)a", "a comment"},
      {"(*UTF)a", "(*"},
      {"a\\", "a lone backslash"},
  };
  for (const Case& c : cases) {
    const auto splitter = make_regex_splitter(c.expression);
    ASSERT_FALSE(splitter.has_value()) << c.expression;
    EXPECT_NE(splitter.error().message.find(c.why), std::string::npos) << splitter.error().message;
  }
}

TEST(Nfc, composes_and_says_where) {
  // e + acute is é; what is composed already stays; U+2126 becomes Ω; marks are put in order.
  const std::string raw = "xe\u0301y\u00e9 \u2126 a\u0307\u0323 \xff\u0301 가\u11a8";
  NfcText nfc(raw);
  EXPECT_EQ(nfc.text(), "x\u00e9y\u00e9 \u03a9 \u1ea1\u0307 \xff\u0301 각");
  // x | é (2 bytes for 3) | y: ends behind x, inside é, behind é, behind y.
  NfcText again(raw);
  EXPECT_EQ(again.raw_end(1), 1u);
  EXPECT_EQ(again.raw_end(2), std::string_view::npos);
  EXPECT_EQ(again.raw_end(3), 4u);
  EXPECT_EQ(again.raw_end(4), 5u);
  EXPECT_EQ(again.raw_end(again.text().size()), raw.size());
  EXPECT_EQ(nfc_decided("ab"), 1u);         // a mark may follow b
  EXPECT_EQ(nfc_decided("ae\u0301"), 1u);   // another one, too
  EXPECT_EQ(nfc_decided("a\xe2\x82"), 0u);  // a character that is cut off
  EXPECT_EQ(nfc_decided("a\xff"), 2u);
}

/// The golden of Llama 3's kind with one thing changed.
std::string changed(const std::function<void(Json&)>& change) {
  Json json = golden("llama3.json");
  change(json);
  return json.dump();
}

TEST(TokenizerJson, what_would_change_tokens_is_refused_by_name) {
  struct Case {
    std::function<void(Json&)> change;
    std::string why;
  };
  const Case cases[] = {
      {[](Json& j) { j = Json::array(); }, "not a tokenizer.json"},
      {[](Json& j) { j.erase("model"); }, "not a tokenizer.json"},
      {[](Json& j) { j["model"]["type"] = "WordPiece"; }, "the model WordPiece"},
      {[](Json& j) { j["model"]["type"] = "Unigram"; }, "the model Unigram"},
      {[](Json& j) { j["model"]["byte_fallback"] = true; }, "byte_fallback (a sentencepiece"},
      {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
       "the model's end_of_word_suffix"},
      {[](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; },
       "continuing_subword_prefix"},
      {[](Json& j) { j["model"]["dropout"] = 0.1; }, "the model's dropout"},
      {[](Json& j) { j["model"]["vocab"] = 1; }, "no `vocab`"},
      {[](Json& j) { j["model"]["merges"] = 1; }, "no list of `merges`"},
      {[](Json& j) { j["model"]["vocab"]["x y"] = "1"; }, "the id of `x y`"},
      {[](Json& j) { j["model"]["vocab"]["x y"] = 1 << 20; }, "the id of `x y`"},
      {[](Json& j) { j["model"]["vocab"]["x y"] = 5; }, "two tokens have the id of"},
      {[](Json& j) { j["model"]["vocab"][""] = 800; }, "a token of `vocab` has no text"},
      {[](Json& j) { j["model"]["vocab"].erase("\u0120"); }, "is not in the vocabulary"},
      {[](Json& j) {
         j["model"]["vocab"].erase("\u0120");
         j["model"]["merges"] = Json::array();
       },
       "no token for the byte 32"},
      {[](Json& j) { j["model"]["merges"][3] = "a"; }, "merge 3: a merge is two tokens"},
      {[](Json& j) { j["model"]["merges"][3] = {"a", "b", "c"}; },
       "merge 3: a merge is two tokens"},
      {[](Json& j) { j["model"]["merges"][3] = {"a", "日"}; }, "merge 3: a part of this merge"},
      {[](Json& j) { j["normalizer"] = {{"type", "NFKC"}}; }, "the normalizer NFKC"},
      {[](Json& j) {
         j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}};
       },
       "the normalizer Lowercase"},
      {[](Json& j) { j["pre_tokenizer"] = nullptr; }, "without a pre-tokenizer (sentencepiece"},
      {[](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; },
       "the pre-tokenizer Metaspace"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"] = 1; }, "no list of `pretokenizers`"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"].erase(1); }, "without ByteLevel"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"].erase(0); }, "cuts nothing"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}}); },
       "the pre-tokenizer Digits behind ByteLevel"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
       "add_prefix_space behind another"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
       "a Split with behavior Removed"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "(a"}}; },
       "a Split: the expression does not compile"},
      {[](Json& j) { j["decoder"] = {{"type", "Metaspace"}}; }, "the decoder Metaspace"},
      {[](Json& j) { j["added_tokens"] = 1; }, "`added_tokens` is not a list"},
      {[](Json& j) { j["added_tokens"][0]["content"] = ""; }, "an added token has no `content`"},
      {[](Json& j) { j["added_tokens"][0]["id"] = -1; }, "the id of `<|endoftext|>`"},
      {[](Json& j) { j["added_tokens"][0]["id"] = 7; }, "has the id of another token"},
      {[](Json& j) { j["added_tokens"][1]["id"] = 7; }, "has the id of another token"},
      {[](Json& j) { j["added_tokens"][1]["lstrip"] = true; },
       "the added token `<|pad|>` with lstrip"},
      {[](Json& j) { j["added_tokens"][1]["rstrip"] = true; }, "with rstrip"},
      {[](Json& j) { j["added_tokens"][1]["single_word"] = true; }, "with single_word"},
  };
  for (const Case& c : cases) {
    const std::string text = changed(c.change);
    const auto tokenizer = make_json_tokenizer({text, "dir/tokenizer.json", ""});
    ASSERT_FALSE(tokenizer.has_value()) << c.why;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(tokenizer.error().place.file, "dir/tokenizer.json");
    EXPECT_NE(tokenizer.error().message.find(c.why), std::string::npos)
        << tokenizer.error().message << "\n  wanted " << c.why;
  }
  EXPECT_FALSE(make_json_tokenizer({"{", "t", ""}).has_value());
  EXPECT_TRUE(make_json_tokenizer({changed([](Json&) {}), "t", ""}).has_value());
}

TEST(TokenizerJson, merges_may_be_texts_and_ids_may_have_holes) {
  const std::string text = changed([](Json& j) {
    for (Json& merge : j["model"]["merges"]) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
    j["added_tokens"][1]["id"] = 1000;
  });
  const auto tokenizer = make_json_tokenizer({text, "t", ""});
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().text();
  const auto original = golden_tokenizer("llama3");
  EXPECT_EQ((*tokenizer)->encode("In the beginning"), original->encode("In the beginning"));
  EXPECT_EQ((*tokenizer)->vocabulary(), 1001);
  EXPECT_EQ((*tokenizer)->encode("<|pad|>"), std::vector<Token>{1000});
  EXPECT_EQ((*tokenizer)->decode(std::vector<Token>{999, 1000}), "<|pad|>");
  EXPECT_NE((*tokenizer)->fingerprint(), original->fingerprint());
}

TEST(TokenizerJson, ignore_merges_takes_pieces_that_are_tokens_as_they_are) {
  // Without merges `the` is three bytes, unless it is looked up whole.
  const auto the = [](bool ignore) {
    const std::string text = changed([&](Json& j) {
      j["model"]["merges"] = Json::array();
      j["model"]["ignore_merges"] = ignore;
    });
    return (*make_json_tokenizer({text, "t", ""}))->encode("the").size();
  };
  EXPECT_EQ(the(false), 3u);
  EXPECT_EQ(the(true), 1u);
}

TEST(TokenizerJson, the_end_of_text_is_a_usual_one_or_what_the_config_says) {
  const auto renamed = [](const std::string& content) {
    return changed([&](Json& j) {
      j["model"]["vocab"].erase("<|endoftext|>");
      j["model"]["vocab"][content] = 0;
      j["added_tokens"][0]["content"] = content;
    });
  };
  SimStorage storage;
  storage.put("llama/tokenizer.json", renamed("<|end_of_text|>"));
  EXPECT_EQ((*load_tokenizer(storage, "llama"))->end_of_text(), 0);
  storage.put("own/tokenizer.json", renamed("<stop>"));
  EXPECT_EQ((*load_tokenizer(storage, "own"))->end_of_text(), std::nullopt);
  storage.put("own/tokenizer_config.json", R"({"eos_token": {"content": "<stop>"}})");
  EXPECT_EQ((*load_tokenizer(storage, "own"))->end_of_text(), 0);
  EXPECT_EQ((*load_tokenizer(storage, "own"))->files(),
            (std::vector<std::string>{"own/tokenizer.json", "own/tokenizer_config.json"}));
  storage.put("own/tokenizer_config.json", R"({"eos_token": "<|pad|>"})");
  EXPECT_EQ((*load_tokenizer(storage, "own"))->end_of_text(), 700);
}

TEST(LoadTokenizer, says_what_is_missing) {
  SimStorage storage;
  storage.put("empty/readme", "x");
  storage.put("llama2/tokenizer.model", "x");
  storage.put("data/dataset.yaml",
              "schema: longhaul/dataset/1\ntokenizer: bytes\nvocabulary: 256\n"
              "train: {tokens: 0, text_bytes: 0, documents: 0, fingerprint: \"0000000000000000\", "
              "shards: []}\nvalidation: {tokens: 0, text_bytes: 0, documents: 0, fingerprint: "
              "\"0000000000000000\", shards: []}\n");
  const auto message = [&](const std::string& what) {
    const auto tokenizer = load_tokenizer(storage, what);
    return tokenizer ? std::string((*tokenizer)->name()) : tokenizer.error().message;
  };
  EXPECT_EQ(message("bytes"), "bytes");
  EXPECT_EQ(message("data"), "bytes");
  EXPECT_EQ(message("gone"), "there is no tokenizer gone");
  EXPECT_EQ(message("gpt2"), "GPT-2's tables are not in build/gpt2");
  EXPECT_EQ(message("empty"), "there is no tokenizer in empty");
  EXPECT_EQ(message("empty/readme"), "not a tokenizer.json: there is no object with a `model`");
  EXPECT_EQ(message("llama2"),
            "llama2 has a sentencepiece tokenizer.model alone, which is not supported");
}

}  // namespace
}  // namespace longhaul
