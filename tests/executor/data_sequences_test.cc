// What a stage is handed for (step, micro-batch), from shards and from a source that answers late.
#include <gtest/gtest.h>

#include <deque>

#include "executor/data/sequence_source.h"
#include "executor/data/shard_writer.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

/// Tokens 0 .. count - 1, in shards of 7.
std::vector<std::string> counting_shards(SimStorage& storage, Token count) {
  EXPECT_TRUE(storage.make_folder("data"));
  auto writer = TokenShardWriter::open(storage, {"data", "train", 1000, 7});
  std::vector<Token> tokens;
  for (Token token = 0; token < count; ++token) tokens.push_back(token);
  EXPECT_TRUE(writer->append(tokens).has_value());
  return *writer->finish();
}

MicroBatch get(const MicroBatchReader& reader, std::int64_t step, SlotRange slots) {
  std::optional<MicroBatch> got;
  reader.request(step, slots, [&](Result<MicroBatch> batch) { got = *std::move(batch); });
  EXPECT_TRUE(got.has_value());
  return *std::move(got);
}

TEST(MicroBatchReader, hands_out_inputs_targets_and_padding) {
  SimStorage storage;
  // 22 tokens at context 4: sequences 0 to 4 of tokens 4 i .. 4 i + 4; token 21 is in none.
  auto source = open_local_sequences(storage, counting_shards(storage, 22), 1000, 4);
  ASSERT_TRUE(source.has_value());
  const DataIdentity identity = (*source)->identity();
  EXPECT_EQ(identity.sequences(), 5);
  // Batch 3: step 0 is full, step 1 has two sequences and one slot of padding.
  const auto reader = MicroBatchReader::make(**source, identity, 3, 1);
  ASSERT_TRUE(reader.has_value());
  for (std::int64_t step = 0; step < 4; ++step) {
    const MicroBatch batch = get(*reader, step, {0, 3});
    ASSERT_EQ(batch.inputs.size(), 12u);
    ASSERT_EQ(batch.targets.size(), 12u);
    for (std::size_t slot = 0; slot < 3; ++slot) {
      const auto sequence = reader->slot_map().sequence(step, static_cast<std::int64_t>(slot));
      EXPECT_EQ(batch.sequences[slot], sequence);
      EXPECT_EQ(sequence.has_value(), step % 2 == 0 || slot < 2);
      for (std::size_t t = 0; t < 4; ++t) {
        const Token first = static_cast<Token>(4 * sequence.value_or(0) + static_cast<int>(t));
        EXPECT_EQ(batch.inputs[4 * slot + t], sequence ? first : 0);
        EXPECT_EQ(batch.targets[4 * slot + t], sequence ? first + 1 : kNoTarget);
      }
    }
  }
}

TEST(MicroBatchReader, micro_batches_are_parts_of_the_step) {
  SimStorage storage;
  auto source = open_local_sequences(storage, counting_shards(storage, 22), 1000, 4);
  const auto reader = MicroBatchReader::make(**source, (*source)->identity(), 3, 1);
  const MicroBatch whole = get(*reader, 1, {0, 3});
  for (std::int64_t slot = 0; slot < 3; ++slot) {
    const MicroBatch one = get(*reader, 1, {slot, 1});
    const auto begin = whole.inputs.begin() + 4 * slot;
    EXPECT_EQ(one.inputs, std::vector<Token>(begin, begin + 4));
    EXPECT_EQ(one.slots, (SlotRange{slot, 1}));
  }
}

TEST(MicroBatchReader, refuses_other_data) {
  SimStorage storage;
  auto source = open_local_sequences(storage, counting_shards(storage, 22), 1000, 4);
  const DataIdentity right = (*source)->identity();
  for (int field = 0; field < 4; ++field) {
    DataIdentity wrong = right;
    if (field == 0) wrong.fingerprint ^= 1;
    if (field == 1) ++wrong.tokens;
    if (field == 2) ++wrong.vocabulary;
    if (field == 3) ++wrong.context;
    const auto reader = MicroBatchReader::make(**source, wrong, 3, 1);
    ASSERT_FALSE(reader.has_value());
    EXPECT_NE(reader.error().message.find(wrong.text()), std::string::npos);
    EXPECT_NE(reader.error().message.find(right.text()), std::string::npos);
  }
}

TEST(MicroBatchReader, data_without_a_sequence_is_refused) {
  SimStorage storage;
  auto source = open_local_sequences(storage, counting_shards(storage, 4), 1000, 4);
  ASSERT_TRUE(source.has_value());
  EXPECT_FALSE(MicroBatchReader::make(**source, (*source)->identity(), 3, 1).has_value());
}

TEST(LocalSequences, are_checked_when_opened_and_when_read) {
  SimStorage storage;
  const auto shards = counting_shards(storage, 22);
  EXPECT_FALSE(open_local_sequences(storage, shards, 21, 4).has_value());
  auto source = open_local_sequences(storage, shards, 22, 4);
  ASSERT_TRUE(source.has_value());
  // Token 1 becomes 1 + 256 while the run goes on.
  storage.flip_bit(shards[0], 1024 + 2 + 1, 0);
  std::optional<Result<std::vector<Token>>> answer;
  (*source)->fetch({0}, [&](auto tokens) { answer = std::move(tokens); });
  ASSERT_TRUE(answer.has_value());
  ASSERT_FALSE(answer->has_value());
  EXPECT_EQ(answer->error().place.file, shards[0]);
}

/// Answers when it is told to, like a source on the network.
class LateSource final : public SequenceSource {
 public:
  const DataIdentity& identity() const override { return identity_; }
  void fetch(std::vector<std::int64_t> sequences, Completion done) override {
    asked.emplace_back(std::move(sequences), std::move(done));
  }
  std::deque<std::pair<std::vector<std::int64_t>, Completion>> asked;

 private:
  DataIdentity identity_ = {1, 9, 100, 4};  // two sequences
};

TEST(MicroBatchReader, waits_for_a_late_source_in_any_order) {
  LateSource source;
  const auto reader = MicroBatchReader::make(source, source.identity(), 1, 1);
  std::vector<std::pair<int, Token>> got;
  for (int step = 0; step < 2; ++step) {
    reader->request(step, {0, 1}, [&got, step](Result<MicroBatch> batch) {
      got.emplace_back(step, batch->inputs[0]);
    });
  }
  EXPECT_TRUE(got.empty());
  source.asked[1].second(std::vector<Token>{20, 21, 22, 23, 24});
  source.asked[0].second(std::vector<Token>{10, 11, 12, 13, 14});
  EXPECT_EQ(got, (std::vector<std::pair<int, Token>>{{1, 20}, {0, 10}}));
}

TEST(MicroBatchReader, does_not_trust_what_a_source_answers) {
  LateSource source;
  const auto reader = MicroBatchReader::make(source, source.identity(), 3, 1);
  int refused = 0;
  const auto ask = [&] {
    reader->request(0, {0, 3}, [&](const Result<MicroBatch>& batch) { refused += !batch; });
    auto done = std::move(source.asked.front().second);
    source.asked.pop_front();
    return done;
  };
  // Two sequences and a slot of padding: ten tokens below 100.
  ask()(std::vector<Token>(10, 99));
  EXPECT_EQ(refused, 0);
  ask()(std::vector<Token>(9, 99));
  ask()(std::vector<Token>(11, 99));
  ask()(std::vector<Token>(10, 100));
  ask()(std::vector<Token>(10, -1));
  ask()(failed("the node is gone"));
  EXPECT_EQ(refused, 5);
  // Padding alone asks nobody.
  std::optional<MicroBatch> padding;
  reader->request(0, {2, 1}, [&](Result<MicroBatch> batch) { padding = *std::move(batch); });
  ASSERT_TRUE(padding.has_value());
  EXPECT_EQ(padding->targets, std::vector<Token>(4, kNoTarget));
}

}  // namespace
}  // namespace longhaul
