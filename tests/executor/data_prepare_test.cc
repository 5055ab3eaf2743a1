// From text to shards: where the parts are cut, which tokens they hold, what is left after a fault.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "executor/data/bigram.h"
#include "executor/data/prepare.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

constexpr std::string_view kSeparator = "<|endoftext|>";

/// Bytes with an end-of-text id, 256: documents without GPT-2's tables.
class MarkingTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::string_view name() const override { return "marking"; }
  std::int64_t vocabulary() const override { return 257; }
  std::optional<Token> end_of_text() const override { return 256; }
  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<MarkingTokenizer>(); }
  std::size_t encode(std::string_view text, const TextPart& part,
                     std::vector<Token>& out) override {
    // Like a real one it keeps some bytes until it has seen what follows.
    const std::size_t all = part.ends ? text.size() : text.size() - text.size() % 5;
    const std::size_t taken = std::min(all, part.stop);
    for (const char c : text.substr(0, taken)) out.push_back(static_cast<unsigned char>(c));
    return taken;
  }

 private:
  std::string_view bytes_of(Token token) const override {
    constexpr std::string_view kMark = "#";
    if (token == 256) return kMark;
    bytes_[0] = static_cast<char>(token);
    return {bytes_, 1};
  }
  mutable char bytes_[1] = {};
};

bool go_on(const PrepareProgress&) {
  return true;
}

struct Parts {
  std::string train;
  std::string validation;
  Dataset dataset;
  bool operator==(const Parts& other) const {
    return train == other.train && validation == other.validation;
  }
};

std::string part_of(Storage& storage, const DatasetPart& part, Tokenizer& tokenizer) {
  if (part.shards.empty()) return "";
  auto stream = TokenStream::open(storage, shard_paths("out", part), tokenizer.vocabulary());
  EXPECT_TRUE(stream.has_value());
  std::vector<Token> tokens(static_cast<std::size_t>(stream->tokens()));
  EXPECT_TRUE(stream->read(0, tokens).has_value());
  return *tokenizer.decode(tokens);
}

/// Prepares `texts` as files of a fresh storage and reads the parts back, `#` for the end of text.
Result<Parts> prepare(const std::vector<std::string>& texts, PrepareOptions options,
                      Tokenizer& tokenizer) {
  SimStorage storage;
  for (const std::string& text : texts) {
    options.inputs.paths.push_back(fmt::format("in/{}", options.inputs.paths.size()));
    storage.put(options.inputs.paths.back(), text);
  }
  options.folder = "out";
  LH_ASSIGN(const Dataset dataset, prepare_dataset(storage, options, tokenizer, go_on));
  EXPECT_TRUE(check_part(storage, "out", dataset, dataset.train).has_value());
  EXPECT_TRUE(check_part(storage, "out", dataset, dataset.validation).has_value());
  const auto loaded = load_dataset(storage, "out");
  EXPECT_TRUE(loaded.has_value());
  EXPECT_EQ(dataset_text(*loaded), dataset_text(dataset));
  return Parts{part_of(storage, dataset.train, tokenizer),
               part_of(storage, dataset.validation, tokenizer), dataset};
}

Result<Parts> prepare_bytes(const std::vector<std::string>& texts, PrepareOptions options) {
  const auto tokenizer = make_byte_tokenizer();
  return prepare(texts, std::move(options), *tokenizer);
}

TEST(Prepare, validation_starts_at_the_first_line_of_the_last_part) {
  // 20 bytes, a quarter for validation: the target is byte 15.
  struct Case {
    std::string text;
    std::size_t cut;
  };
  const Case cases[] = {
      {"aaaa\nbbbb\ncccc\ndddd\n", 15},  // a line starts there
      {"aaaa\nbbbb\ncccccc\ndd\n", 17},  // the next one
      {"aaaa\nbbbb\nccc\nddddd\n", 15},  // none but at the end: between two characters
      {"aaaaaaaaaaaaaaaaaaaa", 15},
      {"aaaaaaaaaaaaa日bbbb", 16},  // not inside one
      {"\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", 15},
  };
  for (const Case& c : cases) {
    ASSERT_EQ(c.text.size(), 20u);
    const auto parts = prepare_bytes({c.text}, {.validation = 0.25});
    ASSERT_TRUE(parts.has_value()) << c.text;
    EXPECT_EQ(parts->train, c.text.substr(0, c.cut));
    EXPECT_EQ(parts->validation, c.text.substr(c.cut));
    EXPECT_EQ(parts->dataset.train.text_bytes, static_cast<std::int64_t>(c.cut));
    EXPECT_EQ(parts->dataset.validation.tokens, static_cast<std::int64_t>(20 - c.cut));
  }
}

TEST(Prepare, several_inputs_are_one_text) {
  const std::string text = "aaaa\nbbbb\ncccc\ndddd\n";
  for (std::size_t i = 0; i <= text.size(); ++i) {
    for (std::size_t j = i; j <= text.size(); ++j) {
      const auto parts = prepare_bytes({text.substr(0, i), text.substr(i, j - i), text.substr(j)},
                                       {.validation = 0.25});
      ASSERT_TRUE(parts.has_value());
      ASSERT_EQ(parts->train, "aaaa\nbbbb\ncccc\n");
      ASSERT_EQ(parts->validation, "dddd\n");
    }
  }
}

TEST(Prepare, documents_start_with_the_end_of_text_and_separators_are_gone) {
  MarkingTokenizer tokenizer;
  const std::string s(kSeparator);
  const auto train_of = [&](const std::vector<std::string>& texts) {
    const auto parts = prepare(texts, {.validation = 0}, tokenizer);
    EXPECT_TRUE(parts.has_value());
    return fmt::format("{} {}", parts->train, parts->dataset.train.documents);
  };
  EXPECT_EQ(train_of({"one", "two"}), "#one#two 2");
  EXPECT_EQ(train_of({"one" + s + "two" + s, s + s, "", "three"}), "#one#two#three 3");
  EXPECT_EQ(train_of({s + "one"}), "#one 1");
  // Not one across two files, and not a part of one.
  EXPECT_EQ(train_of({"<|endof", "text|>"}), "#<|endof#text|> 2");
  EXPECT_EQ(train_of({"<<|endoftext|" + s}), "#<<|endoftext| 1");
  // Bytes are taken as they stand.
  EXPECT_EQ(prepare_bytes({"one" + s, "two"}, {.validation = 0})->train, "one" + s + "two");
}

TEST(Prepare, separators_are_found_wherever_the_reads_end) {
  // Reads are of 2^20 bytes: every position of a separator around that.
  MarkingTokenizer tokenizer;
  for (std::size_t before = (std::size_t{1} << 20) - 14; before <= (std::size_t{1} << 20) + 1;
       ++before) {
    const std::string text(before, 'a');
    const auto parts =
        prepare({text + std::string(kSeparator) + "b"}, {.validation = 0}, tokenizer);
    ASSERT_TRUE(parts.has_value());
    ASSERT_TRUE(parts->train == "#" + text + "#b") << before;
  }
}

TEST(Prepare, whole_documents_can_be_kept_for_validation) {
  MarkingTokenizer tokenizer;
  const std::string s(kSeparator);
  const PrepareOptions options = {.validation = 0.5, .cut = ValidationCut::kDocument};
  // 5 + 13 + 5 + 13 + 14 = 50 bytes, target 25: the third document starts at 36.
  const std::string text = "aaaaa" + s + "bbbbb" + s + "cccccccccccccc";
  auto parts = prepare({text}, options, tokenizer);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->train, "#aaaaa#bbbbb");
  EXPECT_EQ(parts->validation, "#cccccccccccccc");
  EXPECT_EQ(parts->dataset.validation.documents, 1);
  // A separator that ends at the target (byte 25 of 50) starts a document there.
  parts = prepare({std::string(12, 'a') + s + std::string(25, 'b')}, options, tokenizer);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->validation, "#" + std::string(25, 'b'));
  // So does an input that starts there or later.
  parts = prepare({"aa\na", "bbb", "c"}, options, tokenizer);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->train, "#aa\na");
  EXPECT_EQ(parts->validation, "#bbb#c");
  EXPECT_FALSE(
      prepare({text.substr(0, 35)}, {.validation = 0.2, .cut = ValidationCut::kDocument}, tokenizer)
          .has_value());
}

TEST(Prepare, a_line_cut_inside_a_document_starts_no_document) {
  MarkingTokenizer tokenizer;
  auto parts = prepare({"aaaa\nbbb"}, {.validation = 0.4}, tokenizer);  // target 5
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->train, "#aaaa\n");
  EXPECT_EQ(parts->validation, "bbb");
  EXPECT_EQ(parts->dataset.validation.documents, 0);
  parts = prepare({"aaaa\n", "bbb"}, {.validation = 0.4}, tokenizer);
  EXPECT_EQ(parts->validation, "#bbb");
  // Without line breaks the cut is at byte 13 of 26: behind a separator, or what looks like one.
  parts = prepare({"<|endoftext|>bbbbbbbbbbbbb"}, {.validation = 0.5}, tokenizer);
  EXPECT_FALSE(parts.has_value());
  parts = prepare({"<|endof", "text|>bbbbbbbbbbbbb"}, {.validation = 0.5}, tokenizer);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->validation, "bbbbbbbbbbbbb");
  parts = prepare({"a<|endoftext|>bbbbbbbbbbbbbb"}, {.validation = 0.5}, tokenizer);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->validation, "#bbbbbbbbbbbbbb");
}

TEST(Prepare, the_same_text_gives_the_same_files) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format("line {} of a text\n", i * i);
  const auto files = [&](const std::string& folder) {
    SimStorage storage;
    storage.put("text", text);
    const auto tokenizer = make_byte_tokenizer();
    EXPECT_TRUE(prepare_dataset(storage,
                                {.inputs = {{"text"}}, .folder = folder, .shard_tokens = 9999},
                                *tokenizer, go_on)
                    .has_value());
    std::vector<std::string> contents;
    for (const std::string& file : storage.files()) contents.push_back(storage.bytes(file));
    return contents;
  };
  EXPECT_TRUE(files("one") == files("other/folder"));  // both before `text` in the order
  EXPECT_GT(files("one").size(), 6u);
}

TEST(Prepare, refuses_what_makes_no_two_parts) {
  const auto message = [](const Result<Parts>& parts) {
    return parts ? std::string("accepted") : parts.error().text();
  };
  EXPECT_EQ(message(prepare_bytes({""}, {})), "error: the inputs hold no text");
  EXPECT_NE(message(prepare_bytes({"abc"}, {.validation = 0.3})).find("nothing to validate on"),
            std::string::npos);
  EXPECT_EQ(message(prepare_bytes({"abc"}, {.validation = 0.34})), "accepted");
  EXPECT_NE(message(prepare_bytes({"日"}, {.validation = 0.5})).find("is one character"),
            std::string::npos);
  for (const double bad : {-0.1, 1.0, std::nan("")}) {
    EXPECT_NE(message(prepare_bytes({"abcdef"}, {.validation = bad})).find("below 1"),
              std::string::npos);
  }
  MarkingTokenizer tokenizer;
  EXPECT_NE(message(prepare({std::string(kSeparator) + "a"}, {.validation = 0.1}, tokenizer))
                .find("one of the parts has no text"),
            std::string::npos);
  SimStorage storage;
  ASSERT_TRUE(storage.make_folder("in"));
  const auto bytes = make_byte_tokenizer();
  EXPECT_EQ(
      prepare_dataset(storage, {.inputs = {{"gone"}}, .folder = "out"}, *bytes, go_on).error().code,
      ErrorCode::kInvalid);
  EXPECT_FALSE(
      prepare_dataset(storage, {.inputs = {{"in"}}, .folder = "out"}, *bytes, go_on).has_value());
}

TEST(Prepare, reports_progress_and_stops_when_told) {
  SimStorage storage;
  storage.put("text", std::string(5 << 20, 'x'));
  const auto tokenizer = make_byte_tokenizer();
  const PrepareOptions options = {.inputs = {{"text"}}, .folder = "out", .shard_tokens = 1 << 20};
  std::vector<std::int64_t> done;
  ASSERT_TRUE(prepare_dataset(storage, options, *tokenizer, [&](const PrepareProgress& progress) {
                EXPECT_EQ(progress.bytes_total, 5 << 20);
                done.push_back(progress.bytes_done);
                return true;
              }).has_value());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), 5 << 20);
  EXPECT_GE(done.size(), 5u);

  // Stopped, and taken up again: the third shard was not whole.
  SimStorage other;
  other.put("text", std::string(5 << 20, 'x'));
  int calls = 0;
  const auto stopped = prepare_dataset(other, options, *tokenizer,
                                       [&](const PrepareProgress&) { return ++calls < 3; });
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().hint, "the same command goes on from the last whole shard");
  EXPECT_FALSE(other.has("out/dataset.yaml"));
  done.clear();
  ASSERT_TRUE(prepare_dataset(other, options, *tokenizer, [&](const PrepareProgress& progress) {
                EXPECT_GE(progress.bytes_before, 2 << 20);
                done.push_back(progress.bytes_done);
                return true;
              }).has_value());
  EXPECT_GT(done.front(), 2 << 20);
  for (const std::string& file : storage.files()) EXPECT_EQ(other.bytes(file), storage.bytes(file));
  EXPECT_EQ(other.files(), storage.files());
}

TEST(Prepare, a_folder_without_dataset_yaml_is_what_a_fault_leaves) {
  const auto tokenizer = make_byte_tokenizer();
  const PrepareOptions options = {.inputs = {{"text"}}, .folder = "out", .shard_tokens = 8};
  const auto fresh = [] {
    auto storage = std::make_unique<SimStorage>();
    storage->put("text", "aaaa\nbbbb\ncccc\ndddd\n");
    return storage;
  };
  const auto counted = fresh();
  ASSERT_TRUE(prepare_dataset(*counted, options, *tokenizer, go_on).has_value());
  const std::string yaml = counted->bytes("out/dataset.yaml");
  for (std::uint64_t n = 1; n <= counted->operations(); ++n) {
    const auto storage = fresh();
    storage->crash_at(n);
    const auto prepared = prepare_dataset(*storage, options, *tokenizer, go_on);
    storage->restart(CrashLoss::kSome, n);
    const bool complete = storage->has("out/dataset.yaml");
    if (prepared) EXPECT_TRUE(complete) << n;
    if (!complete) continue;
    EXPECT_EQ(storage->bytes("out/dataset.yaml"), yaml);
    const auto dataset = load_dataset(*storage, "out");
    ASSERT_TRUE(dataset.has_value());
    EXPECT_TRUE(check_part(*storage, "out", *dataset, dataset->train).has_value()) << n;
    EXPECT_TRUE(check_part(*storage, "out", *dataset, dataset->validation).has_value()) << n;
  }
}

/// All files of a folder, one behind the other.
std::string contents(const SimStorage& storage, const std::string& folder) {
  std::string out;
  for (const std::string& file : storage.files()) {
    if (file.starts_with(folder + "/")) out += file + "\n" + storage.bytes(file) + "\n";
  }
  return out;
}

TEST(Prepare, goes_on_after_a_crash_at_any_operation_and_ends_the_same) {
  MarkingTokenizer tokenizer;
  const std::string s(kSeparator);
  PrepareOptions options = {.inputs = {{"in"}}, .folder = "out", .shard_tokens = 7};
  options.inputs.block_bytes = 64;
  const auto fresh = [&] {
    auto storage = std::make_unique<SimStorage>();
    storage->put("in/a.txt", "aaaa\nbbbb" + s + "cccc\ndddd\n");
    storage->put("in/b.jsonl", "{\"text\": \"eeee\"}\n\n{\"text\": \"f\"}\n");
    storage->put("in/c.txt",
                 "gggg\nhhhh\niiii\njjjj\nkkkk\n" + std::string(90, 'l') + "\nmm\nnn\n");
    return storage;
  };
  const auto counted = fresh();
  ASSERT_TRUE(prepare_dataset(*counted, options, tokenizer, go_on).has_value());
  const std::string wanted = contents(*counted, "out");
  EXPECT_EQ(wanted.find("prepare.yaml"), std::string::npos);
  for (const CrashLoss loss : {CrashLoss::kNothing, CrashLoss::kSome, CrashLoss::kAllUnsynced}) {
    for (std::uint64_t n = 1; n <= counted->operations(); ++n) {
      const auto storage = fresh();
      storage->crash_at(n);
      static_cast<void>(prepare_dataset(*storage, options, tokenizer, go_on));
      storage->restart(loss, n);
      const auto again = prepare_dataset(*storage, options, tokenizer, go_on);
      ASSERT_TRUE(again.has_value()) << n << " " << again.error().text();
      ASSERT_EQ(contents(*storage, "out"), wanted) << n;
      // Finished work is left as it is.
      const std::uint64_t operations = storage->operations();
      ASSERT_TRUE(prepare_dataset(*storage, options, tokenizer, go_on).has_value());
      EXPECT_LT(storage->operations() - operations, 40u);
      ASSERT_EQ(contents(*storage, "out"), wanted) << n;
    }
  }
}

TEST(Prepare, a_full_disk_is_an_error_and_more_room_lets_it_go_on) {
  const auto tokenizer = make_byte_tokenizer();
  const PrepareOptions options = {.inputs = {{"text"}}, .folder = "out", .shard_tokens = 1000};
  SimStorage storage;
  storage.put("text", std::string(10'000, 'x'));
  storage.set_capacity(storage.used() + 8'000);  // two of ten shards of 3,024 bytes
  const auto full = prepare_dataset(storage, options, *tokenizer, go_on);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kFailed);
  EXPECT_NE(full.error().hint.find("the same command goes on from the last whole shard"),
            std::string::npos);
  storage.set_capacity(0);
  std::int64_t before = 0;
  ASSERT_TRUE(prepare_dataset(storage, options, *tokenizer, [&](const PrepareProgress& progress) {
                before = progress.bytes_before;
                return true;
              }).has_value());
  SimStorage other;
  other.put("text", std::string(10'000, 'x'));
  ASSERT_TRUE(prepare_dataset(other, options, *tokenizer, go_on).has_value());
  EXPECT_EQ(contents(storage, "out"), contents(other, "out"));
}

TEST(Prepare, other_work_in_the_folder_is_refused) {
  const auto tokenizer = make_byte_tokenizer();
  const PrepareOptions options = {.inputs = {{"text"}}, .folder = "out", .shard_tokens = 1'000'000};
  const auto message = [&](Storage& storage, const PrepareOptions& with) {
    const auto result = prepare_dataset(storage, with, *tokenizer, go_on);
    return result ? std::string("done") : result.error().message;
  };
  SimStorage storage;
  storage.put("text", std::string(3 << 20, 'x'));
  storage.put("more", std::string(3 << 20, 'y'));
  ASSERT_FALSE(
      prepare_dataset(storage, options, *tokenizer, [](const auto&) { return false; }).has_value());
  PrepareOptions other = options;
  const std::string unfinished = "out holds the unfinished work of another job";
  other.inputs.paths = {"more"};
  EXPECT_EQ(message(storage, other).substr(0, unfinished.size()), unfinished);
  other = options;
  other.shard_tokens = 999'999;
  EXPECT_EQ(message(storage, other).substr(0, unfinished.size()), unfinished);
  other = options;
  other.validation = 0.2;
  EXPECT_EQ(message(storage, other).substr(0, unfinished.size()), unfinished);
  // A shard that was exchanged meanwhile.
  SimStorage exchanged;
  exchanged.put("text", std::string(3 << 20, 'x'));
  ASSERT_FALSE(prepare_dataset(exchanged, options, *tokenizer, [](const auto&) {
                 return false;
               }).has_value());
  exchanged.put("out/train_000000.bin", "x");
  EXPECT_NE(message(exchanged, options).find("a token shard starts with"), std::string::npos);
  EXPECT_EQ(message(storage, options), "done");
  other.inputs.paths = {"more"};
  EXPECT_EQ(message(storage, other), "out already holds other data, of tokenizer bytes");
  // Shards of somebody else, without a dataset.yaml.
  storage.put("theirs/train_000000.bin", "x");
  other.folder = "theirs";
  EXPECT_EQ(message(storage, other), "theirs already holds train shards (train_000000.bin)");
}

TEST(Dataset, changed_shards_are_noticed) {
  SimStorage storage;
  storage.put("text", "aaaa\nbbbb\ncccc\ndddd\n");
  const auto tokenizer = make_byte_tokenizer();
  const auto dataset =
      prepare_dataset(storage, {.inputs = {{"text"}}, .folder = "out"}, *tokenizer, go_on);
  ASSERT_TRUE(dataset.has_value());
  storage.flip_bit("out/train_000000.bin", 1024, 0);
  EXPECT_FALSE(check_part(storage, "out", *dataset, dataset->train).has_value());
  EXPECT_TRUE(check_part(storage, "out", *dataset, dataset->validation).has_value());
}

TEST(Dataset, bad_files_are_refused) {
  const std::string good = dataset_text({"bytes",
                                         256,
                                         {3, 3, 1, 1, {"train_000000.bin"}},
                                         {1, 1, 0, 2, {"val_0.bin"}},
                                         1.5,
                                         1.25,
                                         7});
  ASSERT_TRUE(parse_dataset(good, "dataset.yaml").has_value()) << good;
  struct Case {
    std::string from;
    std::string to;
  };
  const Case cases[] = {
      {"longhaul/dataset/1", "longhaul/dataset/2"},
      {"tokenizer: bytes", "tokeniser: bytes"},
      {"vocabulary: 256", "vocabulary: 0"},
      {"vocabulary: 256", "vocabulary: 2147483649"},
      {"\"0000000000000001\"", "\"000000000000001\""},
      {"\"0000000000000001\"", "\"000000000000000G\""},
      {"train_000000.bin", "\"../secret.bin\""},
      {"tokens: 3", "tokens: 0"},
      {"tokens: 3", "tokens: -3"},
      {"bigram_loss", "bigram"},
      {"\"0000000000000007\"", "7"},
  };
  for (const Case& bad : cases) {
    std::string text = good;
    text.replace(text.find(bad.from), bad.from.size(), bad.to);
    EXPECT_FALSE(parse_dataset(text, "dataset.yaml").has_value()) << text;
  }
}

TEST(BigramModel, loss_is_witten_bells) {
  BigramModel model(3);
  EXPECT_FALSE(model.loss().has_value());
  // 0 1 0 0: c(0) = 3, c(1) = 1, n = 4, V = 3: P = 4/7, 2/7, 1/7. After 0: 1 and 0 once each, so
  // c(0 .) = 2, t(0) = 2; after 1: 0 once, c(1 .) = t(1) = 1; after 2: nothing.
  model.count(std::vector<Token>{0, 1});
  model.count(std::vector<Token>{0, 0});
  EXPECT_FALSE(model.loss().has_value());
  model.measure(std::vector<Token>{0});
  EXPECT_FALSE(model.loss().has_value());
  // 0 -> 1: (1 + 2 x 2/7) / 4 = 11/28; 1 -> 2: (0 + 1/7) / 2 = 1/14; 2 -> 0: 4/7.
  model.measure(std::vector<Token>{1, 2, 0});
  const auto loss = model.loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->targets, 3);
  EXPECT_NEAR(loss->bigram, -(std::log(11. / 28) + std::log(1. / 14) + std::log(4. / 7)) / 3,
              1e-15);
  EXPECT_NEAR(loss->unigram, -(std::log(2. / 7) + std::log(1. / 7) + std::log(4. / 7)) / 3, 1e-15);
}

TEST(BigramModel, is_a_distribution_also_after_its_table_grew) {
  // 300 x 300 pairs outgrow the first 2^16 places.
  constexpr Token kVocabulary = 301;
  BigramModel model(kVocabulary);
  std::vector<Token> tokens;
  for (Token a = 0; a < 300; ++a) {
    for (Token b = 0; b < 300; ++b) {
      tokens.push_back(a);
      tokens.push_back(b);
    }
  }
  model.count(tokens);
  for (const Token first : {0, 17, 299, 300}) {
    double sum = 0;
    for (Token second = 0; second < kVocabulary; ++second) {
      BigramModel one = model;
      one.measure(std::vector<Token>{first, second});
      sum += std::exp(-one.loss()->bigram);
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

}  // namespace
}  // namespace longhaul
