// `longhaul generate` as people use it: a checkpoint on disk, the binary, what it prints.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "executor/run/model_loader.h"
#include "executor/run/text_generator.h"
#include "executor/storage/real_storage.h"
#include "tests/executor/checkpoint_fixtures.h"
#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

using nlohmann::json;

ModelShape byte_model(int vocabulary = 256) {
  return {.family = ModelFamily::kGpt2,
          .layers = 1,
          .width = 8,
          .heads = 2,
          .kv_heads = 2,
          .head_width = 4,
          .ffn_width = 16,
          .context = 8,
          .vocabulary = vocabulary,
          .tied_embedding = true};
}

class GenerateCli : public testing::Test {
 protected:
  void write_run(const ModelShape& model = byte_model()) {
    ASSERT_TRUE(fixtures::write_checkpoint(storage_, folder_ / "run/checkpoints", model, 10, 2));
  }
  RunResult generate(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_longhaul(arguments, folder_.path());
  }
  json generated(std::vector<std::string> more) {
    more.push_back("--json");
    const RunResult run = generate(more);
    EXPECT_EQ(run.status, 0) << run.err;
    json document = json::parse(run.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << run.out;
    return document;
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& says) {
    const RunResult run = generate(more);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.contains(says)) << run.err;
  }

  /// GPT-2's tables in `tables`: the 256 bytes, `he` and the end of a text (U+0100 + n stands for
  /// the n-th byte that is no printable character).
  void write_tables() {
    std::string vocabulary = "{\"he\": 256, \"<|endoftext|>\": 257";
    int other = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const int point = printable ? byte : 0x100 + other++;
      std::string text(1, static_cast<char>(point));
      if (point >= 0x80) {
        text = {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
      }
      vocabulary += ", " + json(text).dump() + ": " + std::to_string(byte);
    }
    std::filesystem::create_directory(folder_ / "tables");
    folder_.write("tables/vocab.json", vocabulary + "}");
    folder_.write("tables/merges.txt", "#version: 0.2\nh e\n");
  }

  RealStorage storage_;
  TemporaryFolder folder_;
};

TEST_F(GenerateCli, prints_the_prompt_and_the_tokens_that_the_model_chooses) {
  write_run();
  auto model = load_model(storage_, folder_ / "run");
  ASSERT_TRUE(model) << model.error().text();
  TextGenerator generator(std::move(model->stage), 256, {});
  std::vector<Token> tokens = {'I', 'n', ' '};
  for (int n = 0; n < 20; ++n) tokens.push_back(generator.next(tokens).value());
  std::string bytes;
  for (const Token token : tokens) bytes += static_cast<char>(token);
  Utf8Stream stream;
  std::string text = stream.take(bytes);
  text += stream.finish();

  const RunResult run = generate({"--prompt", "In ", "--tokens", "20"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, text + "\n");
  EXPECT_TRUE(run.err.contains("term-000001-step-000000010")) << run.err;

  const json document = generated({"--prompt", "In ", "--tokens", "20"});
  EXPECT_EQ(document, (json{{"version", 1},
                            {"text", text},
                            {"tokens", tokens},
                            {"prompt_tokens", 3},
                            {"ended", "length"}}));
  EXPECT_EQ(generated({"--prompt", "In ", "--tokens", "20", "--tokenizer", "bytes"}), document);
}

TEST_F(GenerateCli, the_same_seed_draws_the_same_text) {
  write_run();
  const std::vector<std::string> hot = {"--temperature", "3", "--seed", "5", "--tokens", "40"};
  const json first = generated(hot);
  EXPECT_EQ(first["tokens"].size(), 40u);  // no prompt, so the text is what was added
  EXPECT_EQ(generated(hot), first);
  EXPECT_NE(generated({"--temperature", "3", "--seed", "6", "--tokens", "40"}), first);
  // One choice is no choice.
  EXPECT_EQ(generated({"--temperature", "3", "--top-k", "1"}), generated({}));
}

TEST_F(GenerateCli, a_prompt_longer_than_the_context_is_noted_and_printed_whole) {
  write_run();
  const RunResult fits = generate({"--prompt", "12345678", "--tokens", "4"});
  EXPECT_FALSE(fits.err.contains("note:")) << fits.err;
  const RunResult longer = generate({"--prompt", "a12345678", "--tokens", "4"});
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_TRUE(longer.err.contains("the prompt has 9 tokens; the model sees the last 7"))
      << longer.err;
  EXPECT_TRUE(longer.out.starts_with("a12345678")) << longer.out;
  // The model saw `2345678`.
  const RunResult seen = generate({"--prompt", "2345678", "--tokens", "4"});
  EXPECT_EQ(longer.out, "a1" + seen.out);
}

TEST_F(GenerateCli, an_interrupt_ends_the_text) {
  write_run();
  Process process({"generate", "run", "--tokens", "1000000", "--json"}, folder_.path());
  ASSERT_TRUE(process.wait_for_error_text("model: "));
  process.send(SIGINT);
  const RunResult run = process.wait();
  EXPECT_EQ(run.status, 128 + SIGINT) << run.err;
  const json document = json::parse(run.out, nullptr, false);
  ASSERT_FALSE(document.is_discarded()) << run.out;
  EXPECT_LT(document["tokens"].size(), 1'000'000u);
}

TEST_F(GenerateCli, the_tokenizer_must_be_known_and_fit) {
  write_run(byte_model(300));  // 256 padded to a multiple of something: bytes
  EXPECT_EQ(generated({"--tokens", "50", "--temperature", "50"})["tokens"].size(), 50u);
  std::filesystem::remove_all(folder_ / "run");
  write_run(byte_model(1000));
  expect_refused({}, "a vocabulary of 1000 does not tell the tokenizer");
  for (const json& token : generated({"--tokenizer", "bytes", "--temperature", "50"})["tokens"]) {
    EXPECT_LT(token.get<int>(), 256);
  }
  expect_refused({"--tokenizer", "gpt2"}, "GPT-2's tables are not in build/gpt2");
  expect_refused({"--tokenizer", "gpt2", "--tables", "absent"}, "absent");
  expect_refused({"--tokenizer", "words"}, "there is no tokenizer words");
  std::filesystem::remove_all(folder_ / "run");
  write_run(byte_model(200));
  expect_refused({"--tokenizer", "bytes"}, "has 256 tokens, the model only 200");
}

TEST_F(GenerateCli, gpt2_tables_in_a_folder_are_used) {
  write_run(byte_model(258));
  write_tables();
  const json document =
      generated({"--tokenizer", "gpt2", "--tables", "tables", "--prompt", "the", "--tokens", "1"});
  ASSERT_EQ(document["tokens"].size(), 3u);
  EXPECT_EQ(document["tokens"][0], 't');
  EXPECT_EQ(document["tokens"][1], 256);
  EXPECT_TRUE(document["text"].get<std::string>().starts_with("the"));
}

TEST_F(GenerateCli, a_tokenizer_json_is_used_by_name_or_where_the_run_keeps_it) {
  write_run(byte_model(1000));
  const std::string file =
      std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/tokenizers/llama3.json";
  const json document =
      generated({"--tokenizer", file, "--prompt", " the<|pad|>", "--tokens", "3"});
  EXPECT_EQ(document["tokens"][document["prompt_tokens"].get<std::size_t>() - 1], 700);
  EXPECT_TRUE(document["text"].get<std::string>().starts_with(" the<|pad|>"));
  std::filesystem::create_directories(folder_ / "run/model-files");
  std::filesystem::copy_file(file, folder_ / "run/model-files/tokenizer.json");
  EXPECT_EQ(generated({"--prompt", " the<|pad|>", "--tokens", "3"}), document);
}

TEST_F(GenerateCli, the_tokenizer_that_came_with_the_weights_is_used) {
  write_run(byte_model(704));  // its 703 tokens, padded
  std::filesystem::create_directory(folder_ / "run/model-files");
  std::filesystem::copy(LONGHAUL_SOURCE_DIR "/tests/golden/tokenizers/llama3.json",
                        folder_ / "run/model-files/tokenizer.json");
  const auto tokenizer = load_tokenizer(storage_, folder_ / "run/model-files").value();
  std::vector<Token> tokens = tokenizer->encode("thé other");
  const json document = generated({"--prompt", "thé other", "--tokens", "1"});
  EXPECT_EQ(document["prompt_tokens"], tokens.size());
  ASSERT_EQ(document["tokens"].size(), tokens.size() + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(document["tokens"][i], tokens[i]) << i;
  EXPECT_TRUE(document["text"].get<std::string>().starts_with("thé other"));
}

TEST_F(GenerateCli, a_text_ends_where_the_model_ends_it) {
  write_run(byte_model(258));
  write_tables();
  const std::vector<std::string> hot = {"--tokenizer", "gpt2", "--tables",      "tables",
                                        "--tokens",    "5000", "--temperature", "100"};
  const json document = generated(hot);
  ASSERT_LT(document["tokens"].size(), 5000u);  // one of 258 is the end
  EXPECT_EQ(document["tokens"].back(), 257);
  EXPECT_EQ(document["ended"], "end_of_text");
  EXPECT_FALSE(document["text"].get<std::string>().contains("endoftext"));
  std::vector<std::string> on = hot;
  on.push_back("--go-on");
  const json longer = generated(on);
  EXPECT_EQ(longer["tokens"].size(), 5000u);
  EXPECT_EQ(longer["ended"], "length");
  EXPECT_EQ(longer["tokens"][document["tokens"].size() - 1], 257);
}

TEST_F(GenerateCli, samples_are_drawn_one_after_the_other) {
  write_run();
  const std::vector<std::string> hot = {"--prompt", "ab", "--temperature", "3", "--tokens", "20"};
  const json one = generated(hot);
  std::vector<std::string> three = hot;
  three.insert(three.end(), {"--samples", "3"});
  const json document = generated(three);
  ASSERT_EQ(document["samples"].size(), 3u);
  for (const char* key : {"text", "tokens", "prompt_tokens", "ended"}) {
    EXPECT_EQ(document[key], one[key]);
    EXPECT_EQ(document["samples"][0][key], one[key]);
  }
  EXPECT_NE(document["samples"][1], document["samples"][0]);
  EXPECT_NE(document["samples"][2], document["samples"][1]);
  const RunResult printed = generate(three);
  std::string expected;
  for (int n = 0; n < 3; ++n) {
    expected += "--- sample " + std::to_string(n + 1) + " of 3 ---\n" +
                document["samples"][static_cast<std::size_t>(n)]["text"].get<std::string>() + "\n";
  }
  EXPECT_EQ(printed.out, expected);
  EXPECT_TRUE(printed.err.contains("60 tokens in ")) << printed.err;
  EXPECT_TRUE(printed.err.contains(" tokens/s\n")) << printed.err;
}

TEST_F(GenerateCli, a_prompt_comes_from_a_file_as_it_is) {
  write_run();
  folder_.write("prompt.txt", "In \n");
  const json document = generated({"--prompt-file", "prompt.txt", "--tokens", "9"});
  EXPECT_EQ(document, generated({"--prompt", "In \n", "--tokens", "9"}));
  EXPECT_EQ(document["prompt_tokens"], 4);
  // Standard input is empty here.
  EXPECT_EQ(generated({"--prompt-file", "-", "--tokens", "9"}), generated({"--tokens", "9"}));
}

TEST_F(GenerateCli, filters_at_temperature_0_are_noted) {
  write_run();
  for (const std::vector<std::string>& idle :
       {std::vector<std::string>{"--top-p", "0.5"}, {"--top-k", "3"}, {"--samples", "2"}}) {
    const RunResult run = generate(idle);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(run.err.contains("note: at temperature 0 the likeliest token is taken")) << run.err;
  }
  EXPECT_FALSE(generate({"--top-p", "0.5", "--temperature", "1"}).err.contains("note:"));
}

TEST_F(GenerateCli, what_is_asked_must_make_sense) {
  write_run();
  expect_refused({"--tokens", "0"}, "--tokens");
  expect_refused({"--tokens", "1000001"}, "--tokens");
  expect_refused({"--temperature", "-0.1"}, "--temperature");
  expect_refused({"--temperature", "nan"}, "--temperature");
  expect_refused({"--top-k", "-1"}, "--top-k");
  expect_refused({"--seed", "9223372036854775808"}, "--seed");
  for (const char* top_p : {"0", "-0.5", "1.0001", "nan", "most"}) {
    expect_refused({"--top-p", top_p}, "--top-p");
  }
  expect_refused({"--samples", "0"}, "--samples");
  expect_refused({"--prompt-file", "absent.txt"}, "absent.txt");
  expect_refused({"--prompt-file", "run"}, "run");
  expect_refused({"--prompt", "a", "--prompt-file", "-"}, "--prompt");
  std::filesystem::remove_all(folder_ / "run/checkpoints");
  expect_refused({}, "run holds no model");
  std::filesystem::remove_all(folder_ / "run");
  expect_refused({}, "run is not there");
}

TEST_F(GenerateCli, a_damaged_checkpoint_is_named) {
  write_run();
  const std::string file = folder_ / "run/checkpoints/term-000001-step-000000010/head.safetensors";
  std::string bytes = read_text(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(write_file(storage_, file, bytes));
  const RunResult run = generate({});
  EXPECT_NE(run.status, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.contains("head.safetensors")) << run.err;
  EXPECT_TRUE(run.err.contains("hash")) << run.err;
}

}  // namespace
}  // namespace longhaul
