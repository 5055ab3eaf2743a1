#include "executor/history/history_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "executor/storage/sim_storage.h"
#include "tests/executor/history_fixtures.h"
#include "tests/executor/storage_sides.h"

namespace longhaul {
namespace {

using fixtures::open_store;
using fixtures::order_of;
using fixtures::visit;

const std::size_t kElements = fixtures::StoreShape{}.elements;

TEST(HistoryStore, keeps_what_was_written_in_ram_and_on_disk) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 5, .in_memory = 2});
  EXPECT_EQ(storage.used(), 3u * 256);  // three places on disk, of whole cache lines
  for (std::uint64_t sample = 0; sample < 5; ++sample) {
    visit(store, 10 * sample, 1, static_cast<std::uint16_t>(1000 * sample));
  }
  EXPECT_EQ(store.size(), 5u);
  for (std::uint64_t sample = 0; sample < 5; ++sample) {
    const History* const history = store.find(10 * sample);
    ASSERT_NE(history, nullptr);
    EXPECT_EQ(history->visits, 1u);
    EXPECT_EQ(store.values(*history)[0], 1000 * sample);
    EXPECT_EQ(store.values(*history)[kElements - 1], 1000 * sample + kElements - 1);
  }
  EXPECT_EQ(store.find(1), nullptr);
}

TEST(HistoryStore, refuses_a_sample_too_many_and_takes_it_once_there_is_room) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 2, .in_memory = 2});
  visit(store, 1, 1, 0);
  visit(store, 2, 1, 0);
  EXPECT_EQ(store.admit(3), nullptr);
  store.drop(1);
  EXPECT_EQ(store.find(1), nullptr);
  EXPECT_NE(store.admit(3), nullptr);
  EXPECT_EQ(store.size(), 2u);
}

TEST(HistoryStore, without_capacity_remembers_nothing_and_takes_no_disk) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 0, .in_memory = 10});
  EXPECT_EQ(store.admit(1), nullptr);
  EXPECT_EQ(store.find(1), nullptr);
  EXPECT_EQ(store.oldest(), nullptr);
  EXPECT_EQ(storage.used(), 0u);
}

TEST(HistoryStore, change_that_is_not_ended_costs_the_history) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 2, .in_memory = 2});
  visit(store, 1, 1, 0);
  store.begin_change(*store.find(1));
  EXPECT_EQ(store.find(1), nullptr);
  EXPECT_EQ(store.size(), 0u);
  // Admitted and never written is the same.
  store.admit(2);
  EXPECT_EQ(store.find(2), nullptr);
}

TEST(HistoryStore, cancelled_change_leaves_what_was_there) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 2, .in_memory = 2});
  visit(store, 1, 1, 5);
  const History before = *store.find(1);
  store.cancel_change(store.begin_change(*store.find(1)));
  ASSERT_NE(store.find(1), nullptr);
  EXPECT_EQ(*store.find(1), before);
  // Of a new one nothing.
  store.cancel_change(store.begin_change(*store.admit(2)));
  EXPECT_EQ(store.size(), 1u);
}

TEST(HistoryStore, change_of_a_place_that_is_another_samples_by_now_does_nothing) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 1, .in_memory = 1});
  const HistoryStore::Change change = store.begin_change(*store.admit(1));
  store.drop(1);
  visit(store, 2, 3, 7);
  const History before = *store.find(2);
  store.end_change(change, {.hash = 99, .values_crc = 1, .visits = 9, .step = 9});
  store.cancel_change(change);
  ASSERT_NE(store.find(2), nullptr);
  EXPECT_EQ(*store.find(2), before);
  EXPECT_EQ(store.find(1), nullptr);
}

TEST(HistoryStore, oldest_is_the_one_not_visited_for_longest) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 3, .in_memory = 1});
  for (const std::uint64_t sample : {5u, 6u, 7u}) visit(store, sample, 1, 0);
  EXPECT_EQ(store.oldest()->sample, 5u);
  visit(store, 5, 2, 0);
  EXPECT_EQ(order_of(store), (std::vector<std::uint64_t>{6, 7, 5}));
  // Looking is not visiting, and one that is being changed is left alone.
  store.find(6);
  EXPECT_EQ(store.oldest()->sample, 6u);
  const auto change = store.begin_change(*store.find(6));
  EXPECT_EQ(store.oldest()->sample, 7u);
  EXPECT_EQ(order_of(store), (std::vector<std::uint64_t>{7, 5}));
  store.cancel_change(change);
  EXPECT_EQ(store.oldest()->sample, 6u);
  store.drop(7);
  EXPECT_EQ(order_of(store), (std::vector<std::uint64_t>{6, 5}));
}

TEST(HistoryStore, clear_forgets_all) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 3, .in_memory = 1});
  for (const std::uint64_t sample : {5u, 6u, 7u}) visit(store, sample, 1, 0);
  const HistoryStore::Change change = store.begin_change(*store.find(5));
  store.clear();
  EXPECT_EQ(store.size(), 0u);
  store.end_change(change, {.hash = 1});
  for (const std::uint64_t sample : {8u, 9u, 10u}) visit(store, sample, 1, 0);
  EXPECT_EQ(order_of(store), (std::vector<std::uint64_t>{8, 9, 10}));
}

TEST(HistoryStore, rotten_bit_on_disk_costs_the_history) {
  SimStorage storage;
  HistoryStore store = open_store(storage, {.capacity = 2, .in_memory = 1});
  visit(store, 1, 1, 0);  // in RAM, which is not checked
  visit(store, 2, 1, 0);
  store.values(*store.find(2))[kElements - 1] ^= 0x100;
  EXPECT_EQ(store.find(2), nullptr);
  EXPECT_NE(store.find(1), nullptr);
  EXPECT_EQ(store.size(), 1u);
  visit(store, 2, 2, 0);
  EXPECT_NE(store.find(2), nullptr);
}

TEST(HistoryStore, disk_without_room_is_an_error_that_says_what_for) {
  SimStorage storage;
  storage.set_capacity(3 * 256 - 1);
  EXPECT_TRUE(HistoryStore::open(
      storage, {.elements = kElements, .capacity = 3, .in_memory = 1, .folder = "/"}));
  const auto refused = HistoryStore::open(
      storage, {.elements = kElements, .capacity = 4, .in_memory = 1, .folder = "/"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "3 histories of activations need 768 B on disk: cannot reserve space in /: No space "
            "left on device");
}

TEST(HistoryStore, more_memory_than_machines_have_is_an_error) {
  SimStorage storage;
  const auto refused = HistoryStore::open(
      storage, {.elements = 0xffffffff, .capacity = 1 << 20, .in_memory = 1 << 20, .folder = ""});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no memory for 1048576 histories of activations, 64 TiB");
  EXPECT_EQ(refused.error().hint, "give histories less memory (compression: history: memory)");
}

class HistoryStoreSides : public fixtures::StorageSides {};
INSTANTIATE_TEST_SUITE_P(Sides, HistoryStoreSides, testing::Bool(),
                         [](const auto& param) { return param.param ? "real" : "simulated"; });

TEST_P(HistoryStoreSides, disk_holds_what_ram_would_bit_for_bit) {
  HistoryStore in_memory = open_store(*storage_, {.capacity = 6, .in_memory = 6});
  HistoryStore on_disk = open_store(*storage_, {.capacity = 6, .in_memory = 1, .folder = folder_});
  for (std::uint32_t step = 0; step < 20; ++step) {
    const std::uint64_t sample = step * 7 % 6;
    const std::vector<std::int64_t> coming = {-1, static_cast<std::int64_t>(sample), 1000};
    for (HistoryStore* const store : {&in_memory, &on_disk}) {
      store->prefetch(coming);
      visit(*store, sample, step, static_cast<std::uint16_t>(31 * step));
    }
    const History* const a = in_memory.find(sample);
    const History* const b = on_disk.find(sample);
    ASSERT_TRUE(a != nullptr && b != nullptr);
    EXPECT_EQ(*a, *b);
    EXPECT_TRUE(std::ranges::equal(in_memory.values(*a), on_disk.values(*b)));
  }
}

}  // namespace
}  // namespace longhaul
