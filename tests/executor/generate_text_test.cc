#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "executor/checkpoint/hugging_face.h"
#include "executor/run/model_loader.h"
#include "executor/run/text_generator.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/checkpoint_fixtures.h"
#include "tests/executor/storage_sides.h"

namespace longhaul {
namespace {

using fixtures::manifest_at_step;
using fixtures::part_at_step;
using fixtures::write_checkpoint;

// ---------------------------------------------------------------------------------------------
// Choosing

Result<Token> chosen(const std::vector<float>& logits, const Sampling& sampling,
                     std::uint64_t seed = 1) {
  Rng rng("test", seed);
  return choose_token(logits, sampling, rng);
}

TEST(GenerateChoice, temperature_0_takes_the_likeliest_and_of_equals_the_first) {
  EXPECT_EQ(chosen({0, 2, 1}, {}), 1);
  EXPECT_EQ(chosen({-7, -3, -3, -5}, {}), 1);
  EXPECT_EQ(chosen({4}, {}), 0);
  EXPECT_EQ(chosen({0, 2, 1}, {.top_k = 2}), 1);
}

TEST(GenerateChoice, a_draw_follows_the_softmax) {
  // Logits 0 and log 3 are probabilities 1/4 and 3/4; at temperature 0.5 their squares count: 1/10
  // and 9/10. The uniform draw of the same seed tells on which side it falls.
  const std::vector<float> logits = {0, std::log(3.0f)};
  int first = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const double drawn = Rng("test", seed).uniform();
    EXPECT_EQ(chosen(logits, {.temperature = 1}, seed), drawn < 0.25 ? 0 : 1) << drawn;
    EXPECT_EQ(chosen(logits, {.temperature = 0.5}, seed), drawn < 0.1 ? 0 : 1) << drawn;
    first += drawn < 0.25 ? 1 : 0;
  }
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 200);
}

TEST(GenerateChoice, top_k_draws_among_the_likeliest_alone) {
  // The two likeliest are ids 2 and 0; of the equal ids 1 and 3 the lower one is the third.
  const std::vector<float> logits = {1, 0.5f, 1.5f, 0.5f};
  std::vector<int> seen(4);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(chosen(logits, {.temperature = 10, .top_k = 1}, seed), 2);
    const Token of_two = *chosen(logits, {.temperature = 10, .top_k = 2}, seed);
    EXPECT_TRUE(of_two == 0 || of_two == 2) << of_two;
    EXPECT_NE(chosen(logits, {.temperature = 10, .top_k = 3}, seed), 3);
    // As many as there are, or more, is all of them.
    const Token of_all = *chosen(logits, {.temperature = 10}, seed);
    EXPECT_EQ(chosen(logits, {.temperature = 10, .top_k = 4}, seed), of_all);
    EXPECT_EQ(chosen(logits, {.temperature = 10, .top_k = 1000}, seed), of_all);
    ++seen[static_cast<std::size_t>(of_all)];
  }
  for (const int count : seen) EXPECT_GT(count, 0);
}

TEST(GenerateChoice, top_p_draws_among_the_fewest_that_reach_it) {
  // Probabilities 1/8, 1/2, 1/8, 1/4 at temperature 1; the likeliest first are ids 1, 3, 0, 2. One
  // has 0.5, two have 0.75, three 0.875, four 1.
  const std::vector<float> logits = {0, std::log(4.0f), 0, std::log(2.0f)};
  const struct {
    double top_p;
    std::set<Token> left;
  } cases[] = {{1e-9, {1}},          {0.49, {1}},           {0.51, {1, 3}},
               {0.74, {1, 3}},       {0.76, {0, 1, 3}},     {0.87, {0, 1, 3}},
               {0.88, {0, 1, 2, 3}}, {0.999, {0, 1, 2, 3}}, {1, {0, 1, 2, 3}}};
  for (const auto& [top_p, left] : cases) {
    std::set<Token> seen;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      seen.insert(*chosen(logits, {.temperature = 1, .top_p = top_p}, seed));
    }
    EXPECT_EQ(seen, left) << top_p;
  }
  // Equal halves reach 0.5 exactly with the first.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(chosen({3, 3}, {.temperature = 1, .top_p = 0.5}, seed), 0);
  }
}

TEST(GenerateChoice, filters_act_in_the_order_of_transformers) {
  // Probabilities 0.4, 0.3, 0.2, 0.1. Of the two that top-k leaves the first has 4/7, so top-p 0.57
  // keeps it alone (4/7 = 0.571); before top-k it would have kept two.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  bool has_second = false;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(chosen(logits, {.temperature = 1, .top_k = 2, .top_p = 0.57}, seed), 0);
    EXPECT_LE(*chosen(logits, {.temperature = 1, .top_k = 2, .top_p = 0.58}, seed), 1);
    has_second |= chosen(logits, {.temperature = 1, .top_p = 0.57}, seed) == 1;
    // The temperature comes before both: at 0.5 the squares 16 : 9 : 4 : 1 count, the first has
    // 16/30.
    EXPECT_EQ(chosen(logits, {.temperature = 0.5, .top_p = 0.53}, seed), 0);
  }
  EXPECT_TRUE(has_second);
}

TEST(GenerateChoice, what_top_p_leaves_is_drawn_as_the_softmax_says) {
  // 1/2 and 1/4 of the four above are 2/3 and 1/3; lower ids come first in a draw.
  const std::vector<float> logits = {0, std::log(4.0f), 0, std::log(2.0f)};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const double drawn = Rng("test", seed).uniform();
    EXPECT_EQ(chosen(logits, {.temperature = 1, .top_p = 0.7}, seed), drawn < 2.0 / 3 ? 1 : 3);
  }
}

TEST(GenerateChoice, extreme_logits_and_temperatures_still_choose) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(chosen({-kLargest, kLargest, 0}, {.temperature = 1}, seed), 1);
    EXPECT_EQ(chosen({0, 1, 0}, {.temperature = 1e-300}, seed), 1);
    EXPECT_TRUE(chosen({-kLargest, -kLargest}, {.temperature = 100}, seed).has_value());
  }
}

TEST(GenerateChoice, numbers_that_are_not_finite_fail) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      const auto token = chosen({0, bad, 1}, {.temperature = temperature});
      ASSERT_FALSE(token);
      EXPECT_EQ(token.error().code, ErrorCode::kFailed);
      EXPECT_TRUE(token.error().message.contains("not finite"));
    }
  }
}

// ---------------------------------------------------------------------------------------------
// The model's next token

ModelShape tiny_model() {
  return {.family = ModelFamily::kGpt2,
          .layers = 2,
          .width = 8,
          .heads = 2,
          .kv_heads = 2,
          .head_width = 4,
          .ffn_width = 12,
          .context = 5,
          .vocabulary = 19,
          .tied_embedding = true};
}

/// The tiny model with the weights that the fixture's checkpoint of `step` holds.
ModelStage tiny_stage(std::uint64_t step) {
  const ModelShape model = tiny_model();
  auto stage = ModelStage::create(model, {0, model.layers, true, true}).value();
  for (const CheckpointPart part : parts_of(model)) {
    const auto values = part_at_step(model, part, step);
    const auto tensors = tensors_of(model, part);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto at = std::ranges::find(stage.parameters(), tensors[i].name, &ModelParameter::name);
      std::ranges::copy(values.weights[i], stage.weight(*at).begin());
    }
  }
  return stage;
}

std::vector<Token> continued(TextGenerator generator, std::vector<Token> text, int tokens) {
  for (int n = 0; n < tokens; ++n) {
    const auto token = generator.next(text);
    EXPECT_TRUE(token) << token.error().text();
    text.push_back(token.value_or(-1));
  }
  return text;
}

std::vector<Token> continued(ModelStage stage, const Sampling& sampling, std::vector<Token> text,
                             int tokens) {
  const int vocabulary = stage.model().vocabulary;
  return continued(TextGenerator(std::move(stage), vocabulary, sampling), std::move(text), tokens);
}

/// By way of training: the token with the smallest loss as the target of the last row.
Token cheapest_token(ModelStage& stage, std::span<const Token> window) {
  std::optional<Token> cheapest;
  float least = 0;
  StageBatch batch(stage, 1);
  for (Token token = 0; token < stage.model().vocabulary; ++token) {
    std::ranges::copy(window, batch.tokens().begin());
    batch.targets()[window.size() - 1] = token;
    stage.forward(batch);
    const float loss = batch.losses()[window.size() - 1];
    if (!cheapest || loss < least) {
      cheapest = token;
      least = loss;
    }
  }
  return *cheapest;
}

TEST(Generate, the_greedy_token_is_the_one_that_training_finds_cheapest) {
  ModelStage stage = tiny_stage(10);
  std::vector<Token> expected = {3, 7};
  for (int n = 0; n < 12; ++n) {  // beyond the context of 5: the window slides
    const auto window = std::span(expected).last(std::min<std::size_t>(expected.size(), 5));
    expected.push_back(cheapest_token(stage, window));
  }
  EXPECT_EQ(continued(tiny_stage(10), {}, {3, 7}, 12), expected);
}

ModelShape tiny_llama() {
  ModelShape model = tiny_model();
  model.family = ModelFamily::kLlama;
  model.kv_heads = 1;
  return model;
}

/// As training would: a forward over the last tokens, for each token anew.
std::vector<Token> by_windows(ModelStage& stage, const Sampling& sampling, std::vector<Token> text,
                              int tokens) {
  Rng rng("generate", sampling.seed);
  StageBatch window(stage, 1);
  const auto vocabulary = static_cast<std::size_t>(stage.model().vocabulary);
  for (int n = 0; n < tokens; ++n) {
    const auto context = static_cast<std::size_t>(stage.model().context);
    const auto seen = std::span(text).last(std::min(text.size(), context));
    std::ranges::fill(std::ranges::copy(seen, window.tokens().begin()).out, window.tokens().end(),
                      0);
    stage.forward(window);
    const auto logits = stage.logits(window).subspan((seen.size() - 1) * vocabulary, vocabulary);
    text.push_back(*choose_token(logits, sampling, rng));
  }
  return text;
}

TEST(Generate, a_token_at_a_time_gives_the_tokens_of_whole_windows) {
  const Sampling hot = {.temperature = 1.5, .top_k = 12, .top_p = 0.9, .seed = 3};
  for (const ModelShape& model : {tiny_model(), tiny_llama()}) {
    for (const std::vector<Token>& prompt :
         {std::vector<Token>{3}, {3, 7, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7}}) {
      auto stage = ModelStage::create(model, {0, model.layers, true, true}).value();
      stage.initialise_weights(5);
      const std::vector<Token> windows = by_windows(stage, hot, prompt, 20);  // four contexts
      EXPECT_EQ(continued(std::move(stage), hot, prompt, 20), windows);
    }
  }
}

TEST(Generate, another_text_is_read_anew) {
  TextGenerator generator(tiny_stage(10), 19, {});
  const std::vector<std::vector<Token>> texts = {{3, 7}, {3, 7, 1}, {3, 8, 1}, {3}, {3}, {4, 3}};
  for (const std::vector<Token>& text : texts) {
    EXPECT_EQ(generator.next(text).value(),
              TextGenerator(tiny_stage(10), 19, {}).next(text).value());
  }
}

TEST(Generate, samples_do_not_depend_on_those_before_them) {
  const Sampling hot = {.temperature = 2, .seed = 4};
  TextGenerator generator(tiny_stage(10), 19, hot);
  const auto write = [&](int sample, int tokens) {
    generator.begin_sample(sample);
    std::vector<Token> text = {3};
    for (int n = 0; n < tokens; ++n) text.push_back(generator.next(text).value());
    return text;
  };
  const std::vector<Token> first = write(0, 30);
  const std::vector<Token> second = write(1, 30);
  EXPECT_EQ(first, continued(tiny_stage(10), hot, {3}, 30));
  EXPECT_NE(second, first);
  EXPECT_EQ(write(1, 30), second);
  EXPECT_EQ(write(0, 30), first);
}

TEST(Generate, a_text_longer_than_the_context_counts_by_its_last_tokens) {
  const std::vector<Token> end = {1, 2, 3, 4, 5};  // the context
  std::vector<Token> text = {9, 8, 18, 0};
  text.insert(text.end(), end.begin(), end.end());
  EXPECT_EQ(continued(tiny_stage(10), {}, text, 1).back(),
            continued(tiny_stage(10), {}, end, 1).back());
}

TEST(Generate, the_seed_decides_what_is_drawn) {
  const Sampling hot = {.temperature = 2, .seed = 4};
  const std::vector<Token> first = continued(tiny_stage(10), hot, {3}, 30);
  EXPECT_EQ(continued(tiny_stage(10), hot, {3}, 30), first);
  EXPECT_NE(continued(tiny_stage(10), {.temperature = 2, .seed = 5}, {3}, 30), first);
}

TEST(Generate, ids_that_no_tokenizer_has_are_never_chosen) {
  const std::vector<Token> text =
      continued(TextGenerator(tiny_stage(10), 4, {.temperature = 50}), {3}, 200);
  EXPECT_EQ(*std::ranges::max_element(text), 3);
}

// ---------------------------------------------------------------------------------------------
// Folders, on both sides of the Storage door

class GenerateFolder : public fixtures::StorageSides {
 protected:
  std::string checkpoint_at(std::uint64_t step) const {
    return at("run/checkpoints/" + folder_name({.term = 1, .step = step}));
  }
  void write_step(std::uint64_t step) {
    ASSERT_TRUE(write_checkpoint(*storage_, at("run/checkpoints"), tiny_model(), step, 5));
  }
  void replace(const std::string& path, const std::string& text) {
    ASSERT_TRUE(write_file(*storage_, path, text));
  }
  Result<LoadedModel> load(const std::string& path) { return load_model(*storage_, path); }
  /// The error's text, or what is wrong.
  std::string refusal(const std::string& path) {
    const auto model = load(path);
    return model ? "accepted" : model.error().text();
  }
  /// Ten tokens tell two checkpoints apart.
  static std::vector<Token> text_of(ModelStage stage) {
    return continued(std::move(stage), {}, {3, 7}, 10);
  }
};

INSTANTIATE_TEST_SUITE_P(Sides, GenerateFolder, testing::Bool(),
                         [](const auto& param) { return param.param ? "real" : "simulated"; });

TEST_P(GenerateFolder, a_run_answers_with_its_newest_checkpoint) {
  write_step(10);
  write_step(20);
  auto model = load(at("run"));
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(model->source, checkpoint_at(20));
  EXPECT_TRUE(model->notes.empty());
  const std::vector<Token> text = text_of(std::move(model->stage));
  EXPECT_EQ(text, text_of(tiny_stage(20)));
  EXPECT_NE(text, text_of(tiny_stage(10)));
}

TEST_P(GenerateFolder, one_checkpoint_can_be_asked_for) {
  write_step(10);
  write_step(20);
  auto model = load(checkpoint_at(10));
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(text_of(std::move(model->stage)), text_of(tiny_stage(10)));
}

TEST_P(GenerateFolder, a_hugging_face_folder_gives_the_text_of_its_checkpoint) {
  write_step(10);
  const auto manifest = read_manifest(*storage_, at("run/checkpoints"), {.term = 1, .step = 10});
  ASSERT_TRUE(manifest);
  ASSERT_TRUE(fixtures::write_folder(*storage_, *manifest, checkpoint_at(10), at("hf")));
  auto model = load(at("hf"));
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(text_of(std::move(model->stage)), text_of(tiny_stage(10)));
}

TEST_P(GenerateFolder, a_damaged_newest_checkpoint_is_named_and_passed_over) {
  write_step(10);
  write_step(20);
  const std::string file = checkpoint_at(20) + "/layer-0001.safetensors";
  std::string bytes = read_text(*storage_, file, 1 << 20).value();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  replace(file, bytes);
  auto model = load(at("run"));
  ASSERT_TRUE(model) << model.error().text();
  EXPECT_EQ(model->source, checkpoint_at(10));
  ASSERT_EQ(model->notes.size(), 1u);
  EXPECT_TRUE(model->notes[0].contains("layer-0001.safetensors")) << model->notes[0];
  EXPECT_EQ(text_of(std::move(model->stage)), text_of(tiny_stage(10)));

  // Asked for by name, nothing takes its place.
  EXPECT_TRUE(refusal(checkpoint_at(20)).contains("layer-0001.safetensors"));
  EXPECT_TRUE(refusal(checkpoint_at(20)).contains("hash"));
  // Nor is there another when the older one loses a file.
  ASSERT_TRUE(storage_->remove(checkpoint_at(10) + "/head.safetensors"));
  EXPECT_TRUE(refusal(at("run")).contains("layer-0001.safetensors"));
}

TEST_P(GenerateFolder, what_holds_no_model_is_refused) {
  EXPECT_TRUE(refusal(at("absent")).contains("is not there"));
  replace(at("file"), "text");
  EXPECT_TRUE(refusal(at("file")).contains(at("file"))) << refusal(at("file"));  // no llm.c file
  ASSERT_TRUE(storage_->make_folder(at("empty")));
  EXPECT_TRUE(refusal(at("empty")).contains("holds no model"));
  // A run that has not written a checkpoint yet.
  ASSERT_TRUE(storage_->make_folder(at("young")));
  replace(at("young/job.yaml"), "schema: longhaul/job/1\n");
  EXPECT_TRUE(refusal(at("young")).contains("there is no checkpoint in " + at("young")));
  ASSERT_TRUE(storage_->make_folder(at("young/checkpoints")));
  EXPECT_TRUE(refusal(at("young")).contains("there is no checkpoint in " + at("young")));
}

TEST_P(GenerateFolder, a_broken_hugging_face_folder_is_refused) {
  ASSERT_TRUE(storage_->make_folder(at("hf")));
  replace(at("hf/config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_TRUE(refusal(at("hf")).contains("`num_hidden_layers` is missing"));
  replace(at("hf/config.json"), "{");
  EXPECT_TRUE(refusal(at("hf")).contains("config.json"));
  replace(at("hf/config.json"), hugging_face_config(tiny_model(), "float32"));
  EXPECT_TRUE(refusal(at("hf")).contains("model.safetensors"));
  replace(at("hf/model.safetensors"), "no tensors");
  EXPECT_TRUE(refusal(at("hf")).contains("model.safetensors"));
}

TEST_P(GenerateFolder, a_changed_manifest_is_refused) {
  write_step(10);
  const std::string path = checkpoint_at(10) + "/manifest.yaml";
  const std::string text = read_text(*storage_, path, 1 << 20).value();
  replace(path, text + "\n# changed\n");
  EXPECT_TRUE(refusal(checkpoint_at(10)).contains("content_hash"));
  EXPECT_TRUE(refusal(at("run")).contains("content_hash"));

  // The hash is right and the shape is not that of the files. It needs 16 million rows of 8 floats.
  auto manifest = parse_manifest(text, path).value();
  manifest.model.context = 1 << 24;
  replace(path, manifest_text(manifest));
  EXPECT_TRUE(refusal(checkpoint_at(10)).contains("embedding.safetensors has "));
  // Another family's tensors are not there.
  manifest = parse_manifest(text, path).value();
  manifest.model.family = ModelFamily::kLlama;
  replace(path, manifest_text(manifest));
  EXPECT_TRUE(refusal(checkpoint_at(10)).contains("`model.embed_tokens.weight` is missing"));
}

// ---------------------------------------------------------------------------------------------
// Text

/// What comes out when `bytes` come in pieces of `size`.
std::string streamed(std::string_view bytes, std::size_t size) {
  Utf8Stream stream;
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += size)
    text += stream.take(bytes.substr(at, size));
  return text + stream.finish();
}

TEST(GenerateUtf8, a_character_appears_once_it_is_complete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.take("a\xe2"), "a");
  EXPECT_EQ(stream.take("\x82"), "");
  EXPECT_EQ(stream.take("\xac"), "\u20ac");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.take("\xf0\x9f\x99"), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(GenerateUtf8, where_the_bytes_are_cut_does_not_matter) {
  const std::string mark = "\ufffd";
  struct Case {
    std::string bytes, text;
  };
  const Case cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"h\u00e9llo \u65e5\u672c \U0001f642!", "h\u00e9llo \u65e5\u672c \U0001f642!"},
      {"\x80", mark},                                   // a rest without its begin
      {"\xc3", mark},                                   // a begin without its rest
      {"\xe2\x82", mark},                               // cut inside
      {"\xc3(", mark + "("},                            // the rest is something else
      {"\xe2\x82(", mark + mark + "("},                 //
      {"\xc0\xaf", mark + mark},                        // overlong
      {"\xe0\x80\x80", mark + mark + mark},             // overlong
      {"\xed\xa0\x80", mark + mark + mark},             // a surrogate
      {"\xf4\x90\x80\x80", mark + mark + mark + mark},  // beyond U+10FFFF
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},         // U+10FFFF itself
      {"\xff\xfe", mark + mark},
  };
  for (const Case& c : cases) {
    for (std::size_t size = 1; size <= 5; ++size)
      EXPECT_EQ(streamed(c.bytes, size), c.text) << size;
  }
}

TEST(GenerateUtf8, what_can_be_no_character_does_not_wait) {
  for (const std::string bad : {"\xc0", "\xff", "\xe0\x80", "\xed\xa0", "\xf0\x8f", "\xf4\x90"}) {
    Utf8Stream stream;
    EXPECT_TRUE(stream.take(bad).starts_with("\ufffd"));
    EXPECT_EQ(stream.take("x").back(), 'x');
  }
}

}  // namespace
}  // namespace longhaul
