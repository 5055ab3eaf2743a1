// `longhaul data`: what people see of texts, tokens of others, and of what is wrong with them.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

class DataCommand : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  RunResult run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "data");
    return run_longhaul(arguments, folder_.path());
  }
  static std::string golden(const std::string& name) {
    return std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/tokenizers/" + name + ".json";
  }

  TemporaryFolder folder_;
};

TEST_F(DataCommand, prepares_shows_and_checks_a_folder_of_texts) {
  put("texts/a.txt", "In the beginning.\nAnd the earth.\n");
  put("texts/c.txt", "And the evening.\nAnd the morning.\n");
  put("texts/b.jsonl",
      "{\"text\": \"Let there be \\\"light\\\".\"}\n{\"text\": \"And it was.\"}\n");
  RunResult prepared = run({"prepare", "texts", "-o", "out", "--tokenizer", golden("llama3")});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  EXPECT_TRUE(prepared.out.starts_with("tokenizer   tokenizer.json, vocabulary 703\n"));
  const RunResult shown = run({"show", "out"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(shown.out.substr(0, prepared.out.size()), prepared.out);
  EXPECT_NE(shown.out.find("begins with  \"<|endoftext|>In the beginning.\\nAnd"),
            std::string::npos)
      << shown.out;
  const RunResult checked = run({"check", "out"});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_TRUE(checked.out.starts_with("good: ")) << checked.out;
  // The same again changes nothing; other options are other data.
  const RunResult again = run({"prepare", "texts", "-o", "out", "--tokenizer", golden("llama3")});
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.out, prepared.out);
  const RunResult other = run({"prepare", "texts", "-o", "out"});
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("out already holds other data, of tokenizer tokenizer.json"),
            std::string::npos)
      << other.err;
}

TEST_F(DataCommand, converts_tokens_of_others) {
  const std::string tokens("\x01\x00\x41\x00\x42\x00\x43\x00", 8);
  put("train.bin", tokens);
  put("val.bin", tokens);
  const RunResult unknown = run({"prepare", "train.bin", "val.bin", "-o", "out"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("train.bin holds tokens, and does not say of how many there are"),
            std::string::npos)
      << unknown.err;
  EXPECT_NE(unknown.err.find("--vocabulary 50257"), std::string::npos);
  const RunResult done =
      run({"prepare", "train.bin", "val.bin", "-o", "out", "--vocabulary", "300"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(done.out.starts_with("tokenizer   unknown, vocabulary 300\n")) << done.out;
  EXPECT_EQ(run({"check", "out"}).status, 0);
  const RunResult shown = run({"show", "train.bin", "--tokenizer", "bytes"});
  EXPECT_EQ(shown.out,
            "train.bin\n  uint16 without a header, as nanoGPT's, 4 tokens\n"
            "  begins with  \"\\x01ABC\"\n");
  // meta.pkl says it, too.
  put("nano/train.bin", tokens);
  put("nano/meta.pkl", std::string("\x80\x04}(\x8c\x0avocab_size\x94K\x44u.", 20));
  const RunResult nano = run({"prepare", "nano", "-o", "out2", "--validation", "0"});
  EXPECT_EQ(nano.status, 0) << nano.err;
  EXPECT_NE(nano.out.find("vocabulary 68"), std::string::npos) << nano.out;
}

TEST_F(DataCommand, check_names_everything_that_is_wrong) {
  put("text.txt", std::string(3000, 'x') + "\n" + std::string(600, 'y'));
  ASSERT_EQ(run({"prepare", "text.txt", "-o", "out", "--shard-tokens", "1000"}).status, 0);
  const auto shard = [&](int n) {
    return std::filesystem::path(folder_.path()) / "out" /
           ("train_00000" + std::to_string(n) + ".bin");
  };
  std::filesystem::resize_file(shard(0), 2000);
  std::filesystem::remove(shard(2));
  std::fstream second(shard(1), std::ios::in | std::ios::out | std::ios::binary);
  second.seekp(1024 + 2 * 5);
  second.write("\x00\x02", 2);  // 512
  second.close();
  const RunResult bad = run({"check", "out"});
  EXPECT_EQ(bad.status, 3);
  EXPECT_EQ(bad.out, "");
  for (const char* problem :
       {"out/train_000000.bin: error: the header says 1000 tokens of 2 bytes, which is a file of "
        "3024 bytes, but it has 2000: it was cut off",
        "out/train_000001.bin: error: token 512 at byte 1034 (number 5 of the file) is outside the "
        "vocabulary of 256",
        "out/train_000002.bin"}) {
    EXPECT_NE(bad.err.find(problem), std::string::npos) << bad.err << "\n  wanted " << problem;
  }
}

TEST_F(DataCommand, wrong_uses_have_one_clear_message) {
  put("text.txt", "some text\nand more\n");
  put("empty.txt", "");
  put("folder/readme.rst", "x");
  put("odd.bin", "abc");
  put("cut.bin", std::string("\xd8\xdc\x34\x01", 4));
  put("tokens.bin", std::string("\x01\x00\x41\x00", 4));
  put("wordpiece.json", R"({"model": {"type": "WordPiece", "vocab": {}}})");
  put("llama2/tokenizer.model", "x");
  put("half/prepare.yaml", "x");
  put("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
  struct Case {
    std::vector<std::string> arguments;
    std::string error;
    std::string hint;
  };
  const Case cases[] = {
      {{"prepare", "gone.txt", "-o", "o"}, "there is no gone.txt", ""},
      {{"prepare", "empty.txt", "-o", "o"}, "the inputs hold no text", ""},
      {{"prepare", "folder", "-o", "o"}, "no file below folder ends with .txt", "--suffix"},
      {{"prepare", "bad.jsonl", "-o", "o", "--validation", "0"},
       "bad.jsonl:2: error: not JSON",
       "an object"},
      {{"prepare", "text.txt", "-o", "o", "--field", "body", "--validation", "0"},
       "text.txt:1: error: not JSON",
       ""},
      {{"prepare", "text.txt", "tokens.bin", "-o", "o"},
       "tokens.bin holds tokens and text.txt text",
       ""},
      {{"prepare", "odd.bin", "-o", "o", "--vocabulary", "9"}, "no whole number of uint16", ""},
      {{"prepare", "cut.bin", "-o", "o", "--vocabulary", "9"}, "cut.bin", ""},
      {{"prepare", "tokens.bin", "-o", "o", "--vocabulary", "65"},
       "tokens.bin: error: token 65 at byte 2 (number 1 of the file) is outside the vocabulary of "
       "65",
       "another tokenizer"},
      {{"prepare", "tokens.bin", "-o", "o", "--tokenizer", "bytes", "--vocabulary", "9"},
       "the tokenizer has 256 tokens, more than --vocabulary 9",
       ""},
      {{"prepare", "text.txt", "-o", "o", "--vocabulary", "9"},
       "--vocabulary is for files of tokens",
       ""},
      {{"prepare", "text.txt", "-o", "o", "--tokenizer", "gone"},
       "there is no tokenizer gone",
       "a tokenizer.json"},
      {{"prepare", "text.txt", "-o", "o", "--tokenizer", "gpt2"}, "GPT-2's tables are not in", ""},
      {{"prepare", "text.txt", "-o", "o", "--tokenizer", "wordpiece.json"},
       "wordpiece.json: error: the model WordPiece is not supported",
       "Llama 3"},
      {{"prepare", "text.txt", "-o", "o", "--tokenizer", "llama2"}, "sentencepiece", "Llama 3"},
      {{"prepare", "text.txt", "-o", "o", "--tables", "x"}, "--tables is for --tokenizer gpt2", ""},
      {{"show", "gone"}, "there is no gone", ""},
      {{"show", "text.txt"}, "text.txt is no file of tokens", "data prepare"},
      {{"show", "folder"}, "folder holds no dataset.yaml and no token files", "data prepare"},
      {{"check", "half"}, "half holds data that is not complete", "again"},
      {{"check", "gone"}, "there is no gone", ""},
  };
  for (const Case& c : cases) {
    const RunResult result = run(c.arguments);
    EXPECT_EQ(result.status, 2) << c.error;
    EXPECT_EQ(result.out, "") << c.error;
    EXPECT_NE(result.err.find(c.error), std::string::npos)
        << result.err << "\n  wanted " << c.error;
    EXPECT_NE(result.err.find(c.hint), std::string::npos) << result.err << "\n  wanted " << c.hint;
  }
}

TEST_F(DataCommand, json_lines_come_through_a_pipe) {
  put("lines", "{\"body\": \"one\"}\n{\"body\": \"two\"}\n");
  const std::string command = std::string(LONGHAUL_BINARY) +
                              " data prepare - -o out --field body --validation 0 2>&1 <lines";
  const std::string shell = "cd '" + folder_.path() + "' && " + command;
  FILE* const pipe = popen(shell.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string out(4096, '\0');
  out.resize(fread(out.data(), 1, out.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0) << out;
  EXPECT_NE(out.find("6 bytes    2 documents"), std::string::npos) << out;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/out/stdin.partial"));
}

}  // namespace
}  // namespace longhaul
