#include "executor/history/history_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/storage/sim_storage.h"
#include "tests/executor/history_fixtures.h"

namespace longhaul {
namespace {

using fixtures::open_store;
using fixtures::order_of;
using fixtures::visit;

constexpr std::uint64_t kLayout = 0x1234;
const std::string kName = history_file_name(0, 12, HistoryEnd::kSender);

class HistoryFiles : public testing::Test {
 protected:
  HistoryFiles() : store_(open_store(storage_, {.capacity = 4, .in_memory = 2})) {
    for (const std::uint32_t step : {7u, 8u}) {
      for (const std::uint64_t sample : {30u, 10u, 20u}) {
        visit(store_, sample, step, static_cast<std::uint16_t>(sample + step));
      }
    }
  }
  void write() {
    const auto written = write_histories(storage_, "/run/checkpoint", kName, kLayout, store_);
    EXPECT_TRUE(written) << written.error().text();
  }
  Result<std::size_t> read(HistoryStore& into, std::uint64_t layout = kLayout) {
    return read_histories(storage_, "/run/checkpoint", kName, layout, into);
  }

  SimStorage storage_;
  HistoryStore store_;
};

TEST_F(HistoryFiles, come_back_as_they_were) {
  write();
  EXPECT_EQ(storage_.files(),
            std::vector<std::string>{"/run/checkpoint/history-0-layer-0012-sender.safetensors"});
  HistoryStore again = open_store(storage_, {.capacity = 4, .in_memory = 4});
  EXPECT_EQ(read(again), 3u);
  EXPECT_EQ(order_of(again), (std::vector<std::uint64_t>{30, 10, 20}));
  for (const std::uint64_t sample : {10u, 20u, 30u}) {
    const History* const a = store_.find(sample);
    const History* const b = again.find(sample);
    ASSERT_TRUE(a != nullptr && b != nullptr);
    EXPECT_EQ(a->hash, b->hash);
    EXPECT_EQ(a->values_crc, b->values_crc);
    EXPECT_EQ(b->visits, 2u);
    EXPECT_EQ(b->step, 8u);
    EXPECT_TRUE(std::ranges::equal(store_.values(*a), again.values(*b)));
  }
  // Written again they are the same file.
  ASSERT_TRUE(write_histories(storage_, "/other", kName, kLayout, again));
  EXPECT_EQ(storage_.bytes("/other/" + kName), storage_.bytes("/run/checkpoint/" + kName));
}

TEST_F(HistoryFiles, those_in_the_midst_of_a_change_are_left_out) {
  store_.begin_change(*store_.find(10));
  HistoryStore again = open_store(storage_, {.capacity = 4, .in_memory = 4});
  write();
  EXPECT_EQ(read(again), 2u);
  EXPECT_EQ(order_of(again), (std::vector<std::uint64_t>{30, 20}));
}

TEST_F(HistoryFiles, rotten_ones_are_left_out) {
  // The third sample is on disk, and rots there.
  store_.values(*store_.find(20))[5] ^= 1;
  HistoryStore again = open_store(storage_, {.capacity = 4, .in_memory = 4});
  write();
  EXPECT_EQ(read(again), 2u);
  EXPECT_EQ(order_of(again), (std::vector<std::uint64_t>{30, 10}));
  // And so are those that rot in the file: its last bytes are values of sample 10.
  store_.drop(20);
  write();
  storage_.flip_bit("/run/checkpoint/" + kName,
                    storage_.bytes("/run/checkpoint/" + kName).size() - 1, 0);
  HistoryStore third = open_store(storage_, {.capacity = 4, .in_memory = 4});
  EXPECT_EQ(read(third), 1u);
  EXPECT_EQ(order_of(third), std::vector<std::uint64_t>{30});
}

TEST_F(HistoryFiles, smaller_store_takes_those_visited_last) {
  HistoryStore again = open_store(storage_, {.capacity = 2, .in_memory = 2});
  write();
  EXPECT_EQ(read(again), 2u);
  EXPECT_EQ(order_of(again), (std::vector<std::uint64_t>{10, 20}));
}

TEST_F(HistoryFiles, of_another_layout_or_size_are_none) {
  write();
  HistoryStore again = open_store(storage_, {.capacity = 4, .in_memory = 4});
  EXPECT_EQ(read(again, kLayout + 1), 0u);
  HistoryStore wider = open_store(storage_, {.elements = 101, .capacity = 4, .in_memory = 4});
  EXPECT_EQ(read(wider), 0u);
  EXPECT_EQ(read(again), 3u);
}

TEST_F(HistoryFiles, empty_store_makes_a_file_too) {
  HistoryStore empty = open_store(storage_, {.capacity = 4, .in_memory = 4});
  ASSERT_TRUE(write_histories(storage_, "/run/checkpoint", kName, kLayout, empty));
  EXPECT_EQ(read(empty), 0u);
}

TEST_F(HistoryFiles, no_file_is_no_history) {
  HistoryStore again = open_store(storage_, {.capacity = 4, .in_memory = 4});
  EXPECT_EQ(read(again), 0u);
}

TEST_F(HistoryFiles, file_that_is_none_of_histories_is_an_error) {
  HistoryStore again = open_store(storage_, {.capacity = 4, .in_memory = 4});
  storage_.put("/run/checkpoint/" + kName, "something else");
  EXPECT_FALSE(read(again));
  write();
  storage_.put("/run/checkpoint/" + kName,
               storage_.bytes("/run/checkpoint/" + kName).substr(0, 1000));
  EXPECT_FALSE(read(again));
  EXPECT_EQ(again.size(), 0u);
}

}  // namespace
}  // namespace longhaul
