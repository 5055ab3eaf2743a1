#include "executor/storage/sim_storage.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>

namespace longhaul {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(SimStorage, crash_takes_bytes_that_were_not_synced) {
  SimStorage storage;
  storage.put("a", "1");
  auto file = storage.extend("a");
  ASSERT_TRUE((*file)->append(bytes_of("2")));
  ASSERT_TRUE((*file)->sync());
  ASSERT_TRUE((*file)->append(bytes_of("3")));
  EXPECT_EQ(storage.bytes("a"), "123");
  storage.restart(CrashLoss::kAllUnsynced);
  EXPECT_EQ(storage.bytes("a"), "12");
  EXPECT_FALSE((*file)->append(bytes_of("4")));  // the file of a process that is gone
  EXPECT_FALSE((*file)->sync());
  EXPECT_EQ(storage.bytes("a"), "12");
}

TEST(SimStorage, crash_takes_names_whose_folder_was_not_synced) {
  SimStorage storage;
  storage.put("f/old", "old");
  auto file = storage.create("f/new");
  ASSERT_TRUE((*file)->append(bytes_of("new")));
  ASSERT_TRUE((*file)->sync());  // its bytes, not its name
  ASSERT_TRUE(storage.rename("f/new", "f/old"));
  EXPECT_EQ(storage.bytes("f/old"), "new");
  storage.restart(CrashLoss::kAllUnsynced);
  EXPECT_EQ(storage.bytes("f/old"), "old");
  EXPECT_FALSE(storage.has("f/new"));

  ASSERT_TRUE(storage.remove("f/old"));
  ASSERT_TRUE(storage.sync_folder("f"));
  storage.restart(CrashLoss::kAllUnsynced);
  EXPECT_FALSE(storage.has("f/old"));
  EXPECT_TRUE(storage.has("f"));
}

TEST(SimStorage, crash_takes_what_is_in_a_folder_that_was_not_synced) {
  SimStorage storage;
  ASSERT_TRUE(storage.make_folder("f"));
  ASSERT_TRUE(write_file(storage, "f/a", "1"));  // syncs f, but not the folder that f is in
  storage.restart(CrashLoss::kAllUnsynced);
  EXPECT_FALSE(storage.has("f"));
  EXPECT_FALSE(storage.has("f/a"));
}

TEST(SimStorage, killed_process_loses_nothing_that_it_wrote) {
  SimStorage storage;
  auto file = storage.create("a");
  ASSERT_TRUE((*file)->append(bytes_of("1")));
  storage.restart(CrashLoss::kNothing);
  EXPECT_EQ(storage.bytes("a"), "1");
}

TEST(SimStorage, some_loss_keeps_synced_bytes_and_any_prefix_of_the_rest) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimStorage storage;
    storage.put("a", "12");
    auto file = storage.extend("a");
    ASSERT_TRUE((*file)->append(bytes_of("34")));
    storage.restart(CrashLoss::kSome, seed);
    seen.insert(storage.bytes("a"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"12", "123", "1234"}));
}

TEST(SimStorage, some_loss_leaves_a_rename_done_undone_or_half_done) {
  std::set<std::pair<bool, std::string>> seen;  // is `new` there, what is in `a`
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimStorage storage;
    storage.put("a", "old");
    auto file = storage.create("new");
    ASSERT_TRUE((*file)->append(bytes_of("n")));
    ASSERT_TRUE(storage.rename("new", "a"));
    storage.restart(CrashLoss::kSome, seed);
    ASSERT_TRUE(storage.has("a"));  // whatever happens, one of the two is there
    seen.emplace(storage.has("new"), storage.bytes("a"));
  }
  // Unsynced bytes behind a rename that survived: the empty file that ext4 made famous.
  EXPECT_EQ(seen,
            (std::set<std::pair<bool, std::string>>{{false, ""}, {false, "n"}, {false, "old"}}));
}

TEST(SimStorage, one_operation_fails_and_the_next_works) {
  SimStorage storage;
  storage.fail_at(2);
  EXPECT_TRUE(storage.kind("a"));
  const auto struck = storage.kind("a");
  ASSERT_FALSE(struck);
  EXPECT_EQ(struck.error().message, "cannot examine a: Input/output error");
  EXPECT_TRUE(storage.kind("a"));
  EXPECT_EQ(storage.operations(), 3u);
}

TEST(SimStorage, write_that_is_struck_leaves_half) {
  SimStorage storage;
  auto file = storage.create("a");
  storage.crash_at(2);
  EXPECT_FALSE((*file)->append(bytes_of("1234")));
  EXPECT_FALSE((*file)->append(bytes_of("5678")));  // stopped: nothing more arrives
  EXPECT_EQ(storage.bytes("a"), "12");
}

TEST(SimStorage, sync_that_failed_is_not_repaired_by_another) {
  SimStorage storage;
  storage.put("a", "");
  auto file = storage.extend("a");
  ASSERT_TRUE((*file)->append(bytes_of("1")));
  storage.fail_at(storage.operations() + 1);
  EXPECT_FALSE((*file)->sync());
  EXPECT_TRUE((*file)->sync());
  storage.restart(CrashLoss::kAllUnsynced);
  EXPECT_EQ(storage.bytes("a"), "");
}

TEST(SimStorage, full_disk_takes_what_fits) {
  SimStorage storage;
  storage.put("old", "12345");
  storage.set_capacity(8);
  EXPECT_EQ(storage.free_space("."), 3u);
  auto file = storage.create("a");
  EXPECT_TRUE((*file)->append(bytes_of("abc")));
  const auto refused = (*file)->append(bytes_of("d"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "cannot write a: No space left on device");
  EXPECT_EQ(storage.bytes("a"), "abc");
  ASSERT_TRUE(storage.remove("old"));
  EXPECT_TRUE((*file)->append(bytes_of("defgh")));
}

TEST(SimStorage, flipped_bit_is_on_the_medium) {
  SimStorage storage;
  storage.put("a", "A");
  storage.flip_bit("a", 0, 1);
  EXPECT_EQ(storage.bytes("a"), "C");  // 0x41 ^ 0x02
  storage.restart(CrashLoss::kAllUnsynced);
  EXPECT_EQ(storage.bytes("a"), "C");
}

TEST(AtomicFile, is_old_or_new_after_a_crash_at_any_operation) {
  for (const CrashLoss loss : {CrashLoss::kNothing, CrashLoss::kAllUnsynced, CrashLoss::kSome}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      bool written = false;
      for (std::uint64_t n = 1; !written; ++n) {
        SimStorage storage;
        storage.put("a", "old");
        storage.crash_at(n);
        written = write_file(storage, "a", "new and longer").has_value();
        storage.restart(loss, seed);
        const std::string& after = storage.bytes("a");
        EXPECT_TRUE(after == "new and longer" || (!written && after == "old"))
            << after << " at operation " << n << ", seed " << seed;
        EXPECT_TRUE(write_file(storage, "a", "later"));  // whatever was left behind
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
