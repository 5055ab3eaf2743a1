// Buckets of shards, and that what is priced is what is sent.

#include "executor/collective/exchange_layout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

ExchangeOptions options_of(std::vector<std::size_t> lengths, std::vector<bool> is_coded,
                           TensorCodec codec, int members = 1) {
  ExchangeOptions options;
  for (int i = 0; i < members; ++i) options.members.push_back({.rank = i, .site = i});
  options.tensor_lengths = std::move(lengths);
  options.is_coded = std::move(is_coded);
  options.codec = codec;
  return options;
}

std::string text_of(const Bucket& bucket) {
  std::string text = bucket.is_coded ? "coded" : "plain";
  text += fmt::format(" from {}:", bucket.first);
  for (const GradientPiece& piece : bucket.pieces) {
    text += fmt::format(" [{}, {})", piece.first, piece.first + piece.count);
  }
  return text;
}

std::vector<std::string> buckets_of(ExchangeOptions options, std::size_t owner = 0) {
  options.bucket_elements = 128;
  const auto layout = ExchangeLayout::make(options, 0, static_cast<int>(options.members.size()));
  EXPECT_TRUE(layout) << layout.error().message;
  std::vector<std::string> texts;
  for (const Bucket& bucket : layout->shards()[owner]) texts.push_back(text_of(bucket));
  return texts;
}

TEST(ExchangeBuckets, coded_tensors_are_gathered_first_and_then_small_ones) {
  // 100 coded, 10 not, 100 coded, 3 not: 200 coded elements make a bucket of 128 and one of 72.
  EXPECT_EQ(
      buckets_of(options_of({100, 10, 100, 3}, {true, false, true, false}, TensorCodec::kQ8)),
      (std::vector<std::string>{"coded from 0: [0, 100) [110, 138)", "coded from 128: [138, 210)",
                                "plain from 200: [100, 110) [210, 213)"}));
}

TEST(ExchangeBuckets, without_a_codec_nothing_is_told_apart) {
  EXPECT_EQ(buckets_of(options_of({100, 10, 100}, {true, false, true}, TensorCodec::kRaw)),
            (std::vector<std::string>{"plain from 0: [0, 128)", "plain from 128: [128, 210)"}));
  EXPECT_EQ(buckets_of(options_of({128}, {}, TensorCodec::kBf16)),
            (std::vector<std::string>{"coded from 0: [0, 128)"}));
  EXPECT_EQ(buckets_of(options_of({0}, {}, TensorCodec::kBf16)), (std::vector<std::string>{}));
}

TEST(ExchangeBuckets, a_shard_has_its_part_of_a_tensor_only) {
  // 8,292 elements in two shards: the cut at 4,146 goes to the block boundary 100 + 4,096 = 4,196.
  const ExchangeOptions options = options_of({100, 8192}, {false, true}, TensorCodec::kQ8, 2);
  const std::vector<std::string> first = buckets_of(options, 0);
  ASSERT_EQ(first.size(), 33u);  // 4,096 coded are 32 buckets of 128
  EXPECT_EQ(first.front(), "coded from 0: [100, 228)");
  EXPECT_EQ(first.back(), "plain from 4096: [0, 100)");
  const std::vector<std::string> second = buckets_of(options, 1);
  ASSERT_EQ(second.size(), 32u);
  EXPECT_EQ(second.back(), "coded from 3968: [8164, 8292)");
}

TEST(ExchangeBuckets, residuals_are_kept_of_what_this_member_encodes) {
  // Shards of 4,096 each; rank 1 shares the site of rank 0.
  ExchangeOptions options = options_of({3 * 4096}, {}, TensorCodec::kQ8, 3);
  options.members[1].site = 0;
  const auto elements = [&options](int rank) {
    return ExchangeLayout::make(options, rank, 3)->feedback_elements();
  };
  EXPECT_EQ(elements(0), 2u * 4096);  // its own sum and its part of rank 2's
  EXPECT_EQ(elements(2), 3u * 4096);
  options.members[2].site = 0;
  EXPECT_EQ(elements(0), 0u);  // nothing is encoded inside a site
  options.members[2].site = 2;
  options.codec = TensorCodec::kBf16;
  EXPECT_EQ(elements(0), 0u);
}

TEST(ExchangeBuckets, error_feedback_is_the_same_for_who_prices_and_who_sends) {
  for (const Codec codec : kCodecs) {
    EXPECT_EQ(has_error_feedback(codec), has_error_feedback(tensor_codec(codec))) << name_of(codec);
  }
}

/// Of the rule, by the tensors of a model themselves.
GradientElements count(const ExchangeOptions& options) {
  GradientElements sum;
  for (std::size_t t = 0; t < options.tensor_lengths.size(); ++t) {
    (options.is_coded[t] ? sum.coded : sum.plain) += static_cast<double>(options.tensor_lengths[t]);
  }
  return sum;
}

TEST(ExchangeBuckets, the_elements_that_are_priced_are_those_of_the_tensors) {
  MemorySequences data(learnable_tokens(100, 1), 8);
  for (const bool llama : {false, true}) {
    for (const bool tied : {false, true}) {
      for (const std::vector<int>& layers : std::vector<std::vector<int>>{{3}, {1, 2}, {1, 1, 1}}) {
        // Width 64: some matrices are coded and some are too small.
        const RunSpec spec = spec_of(
            {.layers = layers, .micro_batches = {4, 4}, .tied = tied, .llama = llama, .width = 64},
            data.identity(), data.identity());
        const std::vector<StageShape> shapes = stage_shapes(layers);
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          const auto stages = static_cast<int>(shapes.size());
          const GradientElements sent = count(stage_exchange(spec, static_cast<int>(i)));
          const GradientElements priced =
              stage_gradient_elements(spec.job.model, shapes[i], stages);
          EXPECT_EQ(sent.coded, priced.coded) << llama << tied << i;
          EXPECT_EQ(sent.plain, priced.plain) << llama << tied << i;  // no tensor has a gap here
        }
        if (!spec.has_tied_exchange()) continue;
        const GradientElements sent = count(tied_exchange(spec));
        EXPECT_EQ(sent.coded, tied_gradient_elements(spec.job.model).coded);
        EXPECT_EQ(sent.plain, tied_gradient_elements(spec.job.model).plain);
      }
    }
  }
}

TEST(ExchangeBuckets, the_bytes_that_are_priced_are_those_of_the_messages) {
  // One member owns all; another bucket begins at 2^20.
  for (const Codec codec : kCodecs) {
    for (const std::size_t coded : {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 20,
                                    (std::size_t{1} << 20) + 4096, std::size_t{3333333}}) {
      for (const std::size_t plain : {0u, 77u, 1u << 21}) {
        ExchangeOptions options = options_of({coded, plain}, {true, false}, tensor_codec(codec), 2);
        options.members[1].share = 0;
        const auto layout = ExchangeLayout::make(options, 0, 2);
        ASSERT_TRUE(layout);
        std::size_t bytes = 0;
        for (const Bucket& bucket : layout->shards()[0]) bytes += layout->message_bytes(1, bucket);
        const GradientElements elements = {static_cast<double>(coded), static_cast<double>(plain)};
        EXPECT_EQ(gradient_wire_bytes(codec, elements), Bytes(static_cast<double>(bytes)));
      }
    }
  }
}

TEST(ExchangeBuckets, options_that_make_no_sense_are_refused) {
  const auto error_of = [](const ExchangeOptions& options) {
    const auto layout = ExchangeLayout::make(options, 0, 2);
    return layout ? std::string("accepted") : layout.error().message;
  };
  ExchangeOptions good = options_of({10, 10}, {true, true}, TensorCodec::kQ8, 2);
  EXPECT_EQ(error_of(good), "accepted");
  ExchangeOptions bad = good;
  bad.is_coded.pop_back();
  EXPECT_EQ(error_of(bad), "1 tensors are said to be coded or not, 2 are exchanged");
  bad = good;
  bad.bucket_elements = 96;
  EXPECT_EQ(error_of(bad),
            "a bucket cannot have 96 elements, only a multiple of 64 up to 4294967295");
  bad.bucket_elements = 0;
  EXPECT_NE(error_of(bad), "accepted");
}

}  // namespace
}  // namespace longhaul
