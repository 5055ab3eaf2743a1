#include "executor/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <string>

#include "executor/storage/sim_storage.h"
#include "tests/executor/checkpoint_fixtures.h"

namespace longhaul {
namespace {

using fixtures::find_newest;
using fixtures::manifest_at_step;
using fixtures::small_model;
using fixtures::write_checkpoint;

CheckpointManifest sample() {
  CheckpointManifest manifest = manifest_at_step(small_model(1), 100);
  manifest.id.term = 2;
  std::uint64_t n = 0;
  for (const CheckpointPart part : parts_of(manifest.model)) {
    for (const std::string& name : {weights_file_name(part), optimiser_file_name(part)}) {
      ++n;
      manifest.files.push_back(
          {{name, 100 + n, {.high = n, .low = 0xabc}}, {"oregon-1/0", "lon don/0"}});
    }
  }
  return manifest;
}

/// The sample's text with `from` replaced by `to`, and a content hash that is right again.
std::string edited(std::string_view from, std::string_view to) {
  std::string text = manifest_text(sample());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  text.resize(text.rfind("content_hash: "));
  const ContentHash hash = ContentHash::of(std::as_bytes(std::span(text)));
  return text + "content_hash: \"" + hash.text() + "\"\n";
}

constexpr std::string_view kGolden =
    R"(# A checkpoint of longhaul: which files belong together and who has them.
schema: longhaul/checkpoint/1
step: 100
term: 2
updates: 90
seed: 7
job: {hash: "0123456789abcdef"}
data: {sequences: 400, batch: 4, batch_since_step: 0}
model: {family: gpt2, layers: 1, width: 2, heads: 1, kv_heads: 1, head_width: 2,
        ffn_width: 3, context: 2, vocabulary: 5, tied_embedding: true, norm_epsilon: 1e-05}
files:
  - {name: embedding.safetensors, size: 101 B, hash: "00000000000000010000000000000abc", holders: [oregon-1/0, "lon don/0"]}
  - {name: embedding.optimiser.safetensors, size: 102 B, hash: "00000000000000020000000000000abc", holders: [oregon-1/0, "lon don/0"]}
  - {name: layer-0000.safetensors, size: 103 B, hash: "00000000000000030000000000000abc", holders: [oregon-1/0, "lon don/0"]}
  - {name: layer-0000.optimiser.safetensors, size: 104 B, hash: "00000000000000040000000000000abc", holders: [oregon-1/0, "lon don/0"]}
  - {name: head.safetensors, size: 105 B, hash: "00000000000000050000000000000abc", holders: [oregon-1/0, "lon don/0"]}
  - {name: head.optimiser.safetensors, size: 106 B, hash: "00000000000000060000000000000abc", holders: [oregon-1/0, "lon don/0"]}
)";

TEST(Manifest, is_written_as_documented) {
  const std::string text = manifest_text(sample());
  const std::string hash = ContentHash::of(std::as_bytes(std::span(kGolden))).text();
  EXPECT_EQ(text, std::string(kGolden) + "content_hash: \"" + hash + "\"\n");
}

TEST(Manifest, comes_back_as_it_was) {
  const CheckpointManifest written = sample();
  const auto read = parse_manifest(manifest_text(written), "m");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->id, written.id);
  EXPECT_EQ(read->updates, 90u);
  EXPECT_EQ(read->seed, written.seed);
  EXPECT_EQ(read->job_hash, written.job_hash);
  EXPECT_EQ(read->data, written.data);
  EXPECT_EQ(read->files, written.files);
  EXPECT_EQ(read->model.ffn_width, 3);
  EXPECT_EQ(read->model.vocabulary, 5);
  EXPECT_TRUE(read->model.tied_embedding);
  EXPECT_EQ(manifest_text(*read), manifest_text(written));
}

struct Mistake {
  std::string_view from, to;
  std::string message;
};

TEST(Manifest, mistakes_are_refused_with_file_and_line) {
  const Mistake mistakes[] = {
      {"checkpoint/1", "checkpoint/2",
       "m:2:9: error: this file has version `2` of longhaul/checkpoint; this program reads version "
       "`1`"},
      {"step: 100", "step: 268435456", "m:3:7: error: "},  // 2^28, the first that is too large
      {"term: 2", "term: -1", "m:4:7: error: "},
      {"term: 2", "term: 4294967296", "m:4:7: error: "},
      {"updates: 90", "updates: 101", "m:5:10: error: "},  // more than there were steps
      {"seed: 7\n", "", "missing key `seed`"},
      {"seed: 7", "seed: seven", "m:6:7: error: "},
      {"0123456789abcdef", "0123456789abcde", "`0123456789abcde` is not a hash of 16"},
      {"0123456789abcdef", "0123456789abcdeg", "`0123456789abcdeg` is not a hash of 16"},
      {"batch: 4", "batch: 0", "m:8:31: error: "},
      {"batch_since_step: 0", "batch_since_step: 101", "m:8:52: error: "},
      {"family: gpt2", "family: gpt3", "m:9:17: error: "},
      {"layers: 1", "layers: 0", "m:9:31: error: "},
      {"kv_heads: 1", "kv_heads: 2", "1 query heads cannot share 2 key-value heads evenly"},
      {"heads: 1, kv", "heads: 2, kv", "gpt2 has one key-value head for each query head"},
      {"head_width: 2", "head_width: 16777217", "m:9:79: error: "},
      {"context: 2", "contexts: 2", "unknown key `contexts`"},
      {"layers: 1", "layers: 2", "m:12:3: error: a model of 2 layers has 8 files, not 6"},
      {"name: embedding.s", "name: embeddin.s",
       "m:12:12: error: `embeddin.safetensors` stands where this model has "
       "`embedding.safetensors`"},
      {"name: layer-0000.s", "name: ../../etc.s", "`../../etc.safetensors` stands where"},
      {"size: 101 B", "size: 101", "m:12:41: error: "},
      {"size: 101 B", "size: 7 B", "no size of a safetensors file in whole bytes"},
      {"size: 101 B", "size: 10.5 B", "no size of a safetensors file in whole bytes"},
      {"size: 101 B", "size: 1e300 B", "no size of a safetensors file in whole bytes"},
      {"00010000", "0001000g", "is not a hash of 32 hexadecimal digits"},
      {"holders: [oregon-1/0, \"lon don/0\"]", "holders: []", "m:12:"},
      {"\"lon don/0\"", "oregon-1/0", "`oregon-1/0` is named twice"},
      {"\"lon don/0\"", "\"\"", "a holder has a name"},
      {"  - {name: embedding.o", "  - {size: 1 B, name: embedding.o", "`size`"},
  };
  for (const Mistake& mistake : mistakes) {
    const auto read = parse_manifest(edited(mistake.from, mistake.to), "m");
    ASSERT_FALSE(read) << mistake.to;
    EXPECT_NE(read.error().text().find(mistake.message), std::string::npos) << mistake.to << "\n"
                                                                            << read.error().text();
    EXPECT_EQ(read.error().text().find("damaged"), std::string::npos);  // none is found by the hash
    EXPECT_EQ(read.error().place.file, "m");
    EXPECT_GE(read.error().place.line, 1);
  }
  // The largest that are accepted.
  EXPECT_TRUE(parse_manifest(edited("step: 100", "step: 268435455"), "m"));
  EXPECT_TRUE(parse_manifest(edited("term: 2", "term: 4294967295"), "m"));
  EXPECT_TRUE(parse_manifest(edited("seed: 7", "seed: 9223372036854775807"), "m"));
  EXPECT_TRUE(parse_manifest(edited("size: 101 B", "size: 8 B"), "m"));
}

TEST(Manifest, damage_that_reads_well_is_found_by_its_hash) {
  std::string text = manifest_text(sample());
  const std::size_t at = text.find("step: 100");
  text[at + 6] = '3';  // 0x31 ^ 0x02: one bit, and a valid step 300
  const auto read = parse_manifest(text, "m");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().place.line, 18);
  EXPECT_TRUE(read.error().message.starts_with(
      "the manifest was damaged or changed: the hash of its content is "))
      << read.error().message;
}

TEST(Manifest, flipped_bit_or_cut_at_any_byte_is_refused) {
  const std::string text = manifest_text(sample());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << i % 8));
    ASSERT_FALSE(parse_manifest(flipped, "m")) << i;
    ASSERT_FALSE(parse_manifest(std::string_view(text).substr(0, i), "m")) << i;
  }
  EXPECT_FALSE(parse_manifest(text + "\n", "m"));
  EXPECT_FALSE(parse_manifest(text + "x: 1\n", "m"));
}

TEST(CheckpointFolder, name_is_our_own_spelling_only) {
  const CheckpointId id = {.term = 2, .step = 100};
  EXPECT_EQ(folder_name(id), "term-000002-step-000000100");
  EXPECT_EQ(parse_folder_name("term-000002-step-000000100"), id);
  const CheckpointId last = {.term = kTermMax, .step = kStepMax};
  EXPECT_EQ(parse_folder_name(folder_name(last)), last);
  for (const char* const other :
       {"term-2-step-100", "term-000002-step-0000000100", "term-000002-step-", "term--step-",
        "term-000002-step-000000100x", "xterm-000002-step-000000100", "term-000002",
        "term-4294967296-step-000000100", "term-000002-step-268435456", ""}) {
    EXPECT_EQ(parse_folder_name(other), std::nullopt) << other;
  }
}

TEST(Checkpoints, newest_is_of_the_latest_term_and_then_step) {
  EXPECT_LT((CheckpointId{.term = 1, .step = 100}), (CheckpointId{.term = 2, .step = 60}));
  EXPECT_LT((CheckpointId{.term = 2, .step = 60}), (CheckpointId{.term = 2, .step = 61}));
}

TEST(Checkpoints, none_is_found_where_none_was_written) {
  SimStorage storage;
  const auto search = find_newest(storage, "c");
  ASSERT_TRUE(search);
  EXPECT_FALSE(search->newest);
  EXPECT_TRUE(search->refused.empty());
}

TEST(Checkpoints, damaged_one_is_told_and_the_one_before_is_taken) {
  const ModelShape model = small_model(1);
  SimStorage storage;
  for (const std::uint64_t step : {10u, 20u, 30u}) {
    ASSERT_TRUE(write_checkpoint(storage, "c", model, step, 3));
  }
  ASSERT_TRUE(storage.make_folder("c/term-000001-step-000000040"));  // never finished
  storage.put("c/notes.txt", "a person's");
  EXPECT_EQ(find_newest(storage, "c")->newest->id.step, 30u);

  storage.flip_bit("c/term-000001-step-000000030/layer-0000.safetensors", 200, 0);
  storage.flip_bit("c/term-000001-step-000000020/manifest.yaml", 100, 0);
  const auto search = find_newest(storage, "c");
  ASSERT_TRUE(search && search->newest);
  EXPECT_EQ(search->newest->id.step, 10u);
  ASSERT_EQ(search->refused.size(), 2u);
  EXPECT_EQ(search->refused[0].place.file, "c/term-000001-step-000000030/layer-0000.safetensors");
  EXPECT_EQ(search->refused[1].place.file, "c/term-000001-step-000000020/manifest.yaml");
  fixtures::expect_whole(storage, "c", *search->newest);

  storage.flip_bit("c/term-000001-step-000000010/head.safetensors", 0, 0);
  EXPECT_FALSE(find_newest(storage, "c")->newest);
}

TEST(Checkpoints, manifest_in_a_foreign_folder_is_refused) {
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "c", small_model(1), 10, 1));
  storage.put("c/term-000001-step-000000011/manifest.yaml",
              storage.bytes("c/term-000001-step-000000010/manifest.yaml"));
  const auto search = find_newest(storage, "c");
  EXPECT_EQ(search->newest->id.step, 10u);
  EXPECT_EQ(search->refused.size(), 1u);
}

TEST(Checkpoints, last_ones_are_kept_and_older_ones_go) {
  const ModelShape model = small_model(1);
  SimStorage storage;
  storage.put("c/term-000001-step-000000005/layer-0000.safetensors", "unfinished");
  storage.put("c/mine/file", "a person's");
  for (const std::uint64_t step : {10u, 20u, 30u}) {
    ASSERT_TRUE(write_checkpoint(storage, "c", model, step, 2));
  }
  EXPECT_EQ(storage.list("c"), (std::vector<std::string>{"mine", "term-000001-step-000000020",
                                                         "term-000001-step-000000030"}));
  // A damaged manifest does not count as one that is kept.
  storage.flip_bit("c/term-000001-step-000000030/manifest.yaml", 100, 0);
  ASSERT_TRUE(write_checkpoint(storage, "c", model, 40, 2));
  EXPECT_EQ(storage.list("c"),
            (std::vector<std::string>{"mine", "term-000001-step-000000020",
                                      "term-000001-step-000000030", "term-000001-step-000000040"}));
  // What is unfinished and newer than the newest may be at work.
  storage.put("c/term-000001-step-000000050/layer-0000.safetensors", "at work");
  const auto gone = delete_old_checkpoints(storage, "c", 1);
  ASSERT_TRUE(gone);
  EXPECT_EQ(*gone, (std::vector<CheckpointId>{{1, 20}, {1, 30}}));
  EXPECT_EQ(storage.list("c"), (std::vector<std::string>{"mine", "term-000001-step-000000040",
                                                         "term-000001-step-000000050"}));
}

TEST(Checkpoints, manifest_can_be_written_again_but_not_changed) {
  SimStorage storage;
  CheckpointManifest manifest = sample();
  ASSERT_TRUE(write_manifest(storage, "c", manifest));
  EXPECT_TRUE(write_manifest(storage, "c", manifest));
  manifest.seed = 8;
  const auto refused = write_manifest(storage, "c", manifest);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "c/term-000002-step-000000100/manifest.yaml is there already, with other content");
  EXPECT_EQ(read_manifest(storage, "c", manifest.id)->seed, 7u);
}

TEST(Checkpoints, incomplete_manifest_is_never_the_commit_point) {
  SimStorage storage;
  CheckpointManifest manifest = sample();
  manifest.files.pop_back();
  const auto refused = write_manifest(storage, "c", manifest);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "this checkpoint cannot be committed: a model of 1 layers has 6 files, not 5");
  EXPECT_TRUE(storage.files().empty());
}

}  // namespace
}  // namespace longhaul
