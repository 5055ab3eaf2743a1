// The order of a run: every sequence once an epoch, always in its slot, the same on every machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "executor/data/slots.h"

namespace longhaul {
namespace {

SlotMap make(std::int64_t sequences, std::int64_t slots, std::uint64_t seed = 1) {
  auto map = SlotMap::make({.sequences = sequences, .slots = slots, .seed = seed});
  EXPECT_TRUE(map.has_value());
  return *map;
}

std::vector<std::optional<std::int64_t>> row(const SlotMap& map, std::int64_t step) {
  std::vector<std::optional<std::int64_t>> sequences;
  for (std::int64_t slot = 0; slot < map.slots(); ++slot) {
    sequences.push_back(map.sequence(step, slot));
  }
  return sequences;
}

TEST(SlotMap, shows_every_sequence_once_an_epoch_and_always_in_its_slot) {
  for (std::int64_t n = 1; n <= 40; ++n) {
    for (std::int64_t b = 1; b <= 13; ++b) {
      const SlotMap map = make(n, b);
      ASSERT_EQ(map.steps_per_epoch(), (n + b - 1) / b);
      for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        std::set<std::int64_t> seen;
        for (std::int64_t r = 0; r < map.steps_per_epoch(); ++r) {
          const std::int64_t step = epoch * map.steps_per_epoch() + r;
          ASSERT_EQ(map.epoch_of(step), epoch);
          std::int64_t filled = 0;
          for (std::int64_t slot = 0; slot < b; ++slot) {
            const auto sequence = map.sequence(step, slot);
            // Padding: in the last row of N = k B + r, slots r and above.
            const bool padding = r == n / b && slot >= n % b;
            ASSERT_EQ(sequence.has_value(), !padding);
            if (!sequence) continue;
            ++filled;
            ASSERT_TRUE(seen.insert(*sequence).second);
            ASSERT_TRUE(*sequence >= 0 && *sequence < n);
            ASSERT_EQ(map.slot_of(*sequence), slot);
          }
          ASSERT_EQ(map.sequences_of(step), filled);
        }
        ASSERT_EQ(std::ssize(seen), n);
      }
    }
  }
}

TEST(SlotMap, the_partial_row_stays_last_with_the_same_sequences) {
  const SlotMap map = make(2 * 8 + 3, 8);  // S = 3
  EXPECT_EQ(row(map, 2), row(map, 5));
  EXPECT_EQ(row(map, 2), row(map, 3002));
  EXPECT_EQ(map.sequences_of(2), 3);
  EXPECT_EQ(map.sequences_of(3), 8);
}

TEST(SlotMap, boundaries_of_a_batch) {
  EXPECT_EQ(make(3, 4).steps_per_epoch(), 1);  // N < B: one row, one slot of padding
  EXPECT_EQ(make(3, 4).sequence(0, 3), std::nullopt);
  EXPECT_EQ(make(3, 4).sequences_of(7), 3);
  EXPECT_EQ(make(4, 4).steps_per_epoch(), 1);  // N = B: a full row, the same one each epoch
  EXPECT_EQ(row(make(4, 4), 0), row(make(4, 4), 1));
  EXPECT_EQ(make(8, 4).steps_per_epoch(), 2);  // N = k B
  EXPECT_EQ(make(9, 4).steps_per_epoch(), 3);  // N = k B + 1
  EXPECT_EQ(make(9, 4).sequences_of(2), 1);
  EXPECT_EQ(make(1, 1).sequence(12345, 0), 0);
}

TEST(SlotMap, refuses_what_is_no_batch) {
  EXPECT_FALSE(SlotMap::make({.sequences = 0, .slots = 1}).has_value());
  EXPECT_FALSE(SlotMap::make({.sequences = 1, .slots = 0}).has_value());
  const std::int64_t n = std::int64_t{1} << 62;
  const std::int64_t b = std::int64_t{1} << 31;
  EXPECT_FALSE(SlotMap::make({.sequences = n + 1, .slots = 1}).has_value());
  EXPECT_FALSE(SlotMap::make({.sequences = 1, .slots = b + 1}).has_value());
  const SlotMap largest = make(n, b);
  const auto sequence = largest.sequence(3 * largest.steps_per_epoch() - 1, b - 1);
  ASSERT_TRUE(sequence.has_value());
  EXPECT_EQ(largest.slot_of(*sequence), b - 1);
}

TEST(SlotMap, golden_values) {
  // Computed from the header's definition by another program; a run's order must never change.
  const SlotMap small = make(7, 3);
  using Row = std::vector<std::optional<std::int64_t>>;
  EXPECT_EQ(row(small, 0), (Row{3, 5, 4}));
  EXPECT_EQ(row(small, 1), (Row{2, 6, 0}));
  EXPECT_EQ(row(small, 2), (Row{1, std::nullopt, std::nullopt}));
  EXPECT_EQ(row(small, 3), (Row{3, 6, 0}));
  EXPECT_EQ(row(small, 4), (Row{2, 5, 4}));
  EXPECT_EQ(row(small, 5), (Row{1, std::nullopt, std::nullopt}));
  // 1,000,000 = 3906 x 256 + 64: step 3906 is the partial row of epoch 0.
  const SlotMap large = make(1'000'000, 256, 20261129);
  EXPECT_EQ(large.sequence(0, 0), 23048);
  EXPECT_EQ(large.sequence(0, 255), 976201);
  EXPECT_EQ(large.sequence(3905, 255), 126544);
  EXPECT_EQ(large.sequence(3906, 0), 584862);
  EXPECT_EQ(large.sequence(3906, 63), 231576);
  EXPECT_EQ(large.sequence(3906, 64), std::nullopt);
  EXPECT_EQ(large.sequence(3907, 0), 732604);
  EXPECT_EQ(large.sequence(123456789, 17), 926530);
}

TEST(SlotMap, orders_differ_between_epochs_slots_and_seeds) {
  // 50 rows: two independent orders agree in one place on average.
  const SlotMap map = make(50 * 4, 4);
  const SlotMap other = make(50 * 4, 4, 2);
  int same_epochs = 0;
  int same_rows = 0;
  int same_seeds = 0;
  std::map<std::int64_t, std::int64_t> row_of;  // of slot 0's and 1's sequences, in epoch 0
  for (std::int64_t r = 0; r < 50; ++r) {
    same_epochs += map.sequence(r, 0) == map.sequence(50 + r, 0);
    same_seeds += map.sequence(r, 0) == other.sequence(r, 0);
    row_of[*map.sequence(r, 0)] = r;
    row_of[*map.sequence(r, 1)] = r;
  }
  // Were rows permuted alike in each slot, the sequences of two slots would meet again each epoch.
  for (std::int64_t r = 50; r < 100; ++r) {
    same_rows += row_of[*map.sequence(r, 0)] == row_of[*map.sequence(r, 1)];
  }
  EXPECT_LT(same_epochs, 8);
  EXPECT_LT(same_rows, 8);
  EXPECT_LT(same_seeds, 8);
}

TEST(SlotMap, another_batch_size_is_another_assignment_of_the_same_places) {
  // The place p of a sequence depends on N and the seed alone; its slot is p mod B.
  const SlotMap map = make(60, 60);
  for (std::int64_t sequence = 0; sequence < 60; ++sequence) {
    EXPECT_EQ(make(60, 7).slot_of(sequence), map.slot_of(sequence) % 7);
  }
}

TEST(Shuffle, is_a_permutation_with_an_inverse) {
  for (std::int64_t size = 1; size <= 70; ++size) {
    const Shuffle shuffle(static_cast<std::uint64_t>(size) * 77, size);
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (std::int64_t x = 0; x < size; ++x) {
      const std::int64_t y = shuffle(x);
      ASSERT_TRUE(y >= 0 && y < size);
      ASSERT_FALSE(seen[static_cast<std::size_t>(y)]);
      seen[static_cast<std::size_t>(y)] = true;
      ASSERT_EQ(shuffle.inverse(y), x);
    }
  }
}

TEST(Shuffle, gives_every_order_of_four_equally_often) {
  std::map<std::array<std::int64_t, 4>, int> orders;
  for (std::uint64_t key = 0; key < 24'000; ++key) {
    const Shuffle shuffle(key, 4);
    ++orders[{shuffle(0), shuffle(1), shuffle(2), shuffle(3)}];
  }
  ASSERT_EQ(orders.size(), 24u);
  // 1000 expected of each; chi-square of 23 degrees of freedom is above 49.7 once in 1000 times.
  double chi_square = 0;
  for (const auto& [order, count] : orders)
    chi_square += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi_square, 49.7);
}

TEST(Shuffle, sends_neighbours_everywhere) {
  // Differences of the images of neighbours, mod 1009, in 16 bins: 63 expected of each; chi-square
  // of 15 degrees of freedom is above 37.7 once in 1000 times.
  const Shuffle shuffle(5, 1009);
  std::array<int, 16> bins{};
  for (std::int64_t x = 0; x < 1008; ++x) {
    const std::int64_t difference = (shuffle(x + 1) - shuffle(x) + 1009) % 1009;
    ++bins[static_cast<std::size_t>(difference * 16 / 1009)];
  }
  double chi_square = 0;
  for (const int count : bins) chi_square += (count - 63.0) * (count - 63.0) / 63;
  EXPECT_LT(chi_square, 37.7);
}

TEST(PipelineSlots, are_contiguous_and_their_micro_batches_consecutive) {
  // Pipelines of 3, 1 and 2 micro-batches of 4: slots 0-11, 12-15, 16-23.
  const std::vector<SlotRange> ranges = pipeline_slots(std::vector{3, 1, 2}, 4);
  EXPECT_EQ(ranges, (std::vector<SlotRange>{{0, 12}, {12, 4}, {16, 8}}));
  EXPECT_EQ(micro_batch_slots(ranges[0], 4, 2), (SlotRange{8, 4}));
  EXPECT_EQ(micro_batch_slots(ranges[1], 4, 0), (SlotRange{12, 4}));
  EXPECT_EQ(micro_batch_slots(ranges[2], 4, 1), (SlotRange{20, 4}));
}

TEST(PipelineSlotsDeathTest, a_micro_batch_of_another_pipeline_is_a_mistake) {
  EXPECT_DEATH(micro_batch_slots({0, 12}, 4, 3), "one of its pipeline's");
}

TEST(SequencesIn, need_one_token_more_than_they_predict) {
  EXPECT_EQ(sequences_in(0, 4), 0);
  EXPECT_EQ(sequences_in(4, 4), 0);
  EXPECT_EQ(sequences_in(5, 4), 1);
  EXPECT_EQ(sequences_in(8, 4), 1);
  EXPECT_EQ(sequences_in(9, 4), 2);
  EXPECT_EQ(sequences_in(2, 1), 1);
}

}  // namespace
}  // namespace longhaul
