// Whatever happens while a checkpoint is written: afterwards the newest valid checkpoint is the old
// one or the new one, whole, and the next write succeeds. Both keep one checkpoint, so that the
// deletion of the old one is under fire too.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "executor/storage/sim_storage.h"
#include "tests/executor/checkpoint_fixtures.h"

namespace longhaul {
namespace {

using fixtures::expect_whole;
using fixtures::find_newest;
using fixtures::small_model;
using fixtures::write_checkpoint;

constexpr std::uint64_t kOld = 10;
constexpr std::uint64_t kNew = 20;
constexpr const char* kRoot = "runs/x/checkpoints";

class CheckpointWrite {
 public:
  CheckpointWrite() { EXPECT_TRUE(write_checkpoint(storage, kRoot, model, kOld, 1)); }

  Result<void> write() { return write_checkpoint(storage, kRoot, model, kNew, 1); }

  /// The one that is found, which must be whole and one of the two.
  std::uint64_t found() {
    const auto search = find_newest(storage, kRoot);
    EXPECT_TRUE(search && search->newest) << "no checkpoint is left";
    if (!search || !search->newest) return 0;
    // An unfinished one has no manifest, so nothing had to be refused on the way.
    EXPECT_TRUE(search->refused.empty());
    expect_whole(storage, kRoot, *search->newest);
    return search->newest->id.step;
  }

  ModelShape model = small_model(1);
  SimStorage storage;
};

/// Operations of an undisturbed write.
std::uint64_t operations_of_a_write() {
  CheckpointWrite run;
  const std::uint64_t before = run.storage.operations();
  EXPECT_TRUE(run.write());
  const std::uint64_t operations = run.storage.operations() - before;
  EXPECT_EQ(run.found(), kNew);
  EXPECT_FALSE(run.storage.has(std::string(kRoot) + "/term-000001-step-000000010"));
  return operations;
}

/// `seeds` ways for a crash to lose things, at each operation.
void crash_everywhere(std::uint64_t seeds) {
  const std::uint64_t operations = operations_of_a_write();
  std::set<std::uint64_t> seen;
  for (std::uint64_t n = 1; n <= operations + 1; ++n) {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const CrashLoss loss = seed == 0   ? CrashLoss::kNothing
                             : seed == 1 ? CrashLoss::kAllUnsynced
                                         : CrashLoss::kSome;
      SCOPED_TRACE("operation " + std::to_string(n) + ", seed " + std::to_string(seed));
      CheckpointWrite run;
      run.storage.crash_at(run.storage.operations() + n);
      const bool written = run.write().has_value();
      EXPECT_EQ(written, n > operations);
      run.storage.restart(loss, seed);
      const std::uint64_t found = run.found();
      EXPECT_TRUE(found == kNew || (found == kOld && !written)) << found;
      seen.insert(found);
      // The next term, or a repetition of this one, is not hindered by what is left.
      ASSERT_TRUE(run.write());
      EXPECT_EQ(run.found(), kNew);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_EQ(seen, (std::set<std::uint64_t>{kOld, kNew}));
}

TEST(CheckpointCrash, at_any_operation_leaves_the_old_or_the_new_one_whole) {
  crash_everywhere(4);
}

TEST(CheckpointCrashSlow, at_any_operation_leaves_the_old_or_the_new_one_whole) {
  crash_everywhere(200);
}

TEST(CheckpointCrash, twice_in_a_row_leaves_the_old_or_the_new_one_whole) {
  const std::uint64_t operations = operations_of_a_write();
  for (std::uint64_t first = 1; first <= operations; first += 11) {
    for (std::uint64_t second = 1; second <= operations; second += 13) {
      SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second));
      CheckpointWrite run;
      run.storage.crash_at(run.storage.operations() + first);
      EXPECT_FALSE(run.write());
      run.storage.restart(CrashLoss::kSome, first);
      run.storage.crash_at(run.storage.operations() + second);
      static_cast<void>(run.write());  // the rest of the work may be less than `second`
      run.storage.restart(CrashLoss::kSome, second);
      run.found();
      ASSERT_TRUE(run.write());
      EXPECT_EQ(run.found(), kNew);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CheckpointCrash, error_at_any_operation_is_told_and_loses_nothing) {
  const std::uint64_t operations = operations_of_a_write();
  for (std::uint64_t n = 1; n <= operations; ++n) {
    SCOPED_TRACE("operation " + std::to_string(n));
    CheckpointWrite run;
    const std::uint64_t at = run.storage.operations() + n;
    run.storage.fail_at(at);
    const auto written = run.write();
    run.storage.fail_at(0);
    ASSERT_FALSE(written);
    EXPECT_NE(written.error().message.find("Input/output error"), std::string::npos);
    run.found();
    ASSERT_TRUE(run.write());
    EXPECT_EQ(run.found(), kNew);
    run.storage.restart(CrashLoss::kAllUnsynced);
    EXPECT_EQ(run.found(), kNew);
    if (testing::Test::HasFailure()) return;
  }
}

/// A disk with room for 0, stride, 2 x stride, ... bytes, and for one byte too few.
void fill_the_disk(std::uint64_t stride, bool asked_in_vain) {
  CheckpointWrite measured;
  const std::uint64_t old_bytes = measured.storage.used();
  ASSERT_TRUE(measured.write());
  // At its peak both checkpoints are there, and no temporary file besides.
  const std::uint64_t new_bytes = measured.storage.used();
  std::uint64_t stopped = 0;
  for (std::uint64_t n = 0; n < new_bytes; n += stride) {
    const std::uint64_t room = new_bytes - 1 - n;
    SCOPED_TRACE("room for " + std::to_string(room));
    CheckpointWrite run;
    run.storage.set_capacity(old_bytes + room);
    if (asked_in_vain) run.storage.pretend_free_space(1 << 30);
    const auto written = run.write();
    ASSERT_FALSE(written);
    const std::string& message = written.error().message;
    const bool in_the_middle = message.ends_with("No space left on device");
    if (in_the_middle) ++stopped;
    EXPECT_TRUE(in_the_middle || message.ends_with(" left")) << message;
    for (const std::string& path : run.storage.files()) EXPECT_FALSE(is_temporary(path));
    EXPECT_EQ(run.found(), kOld);
    run.storage.set_capacity(0);
    ASSERT_TRUE(run.write());
    EXPECT_EQ(run.found(), kNew);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(stopped, 0u);
  CheckpointWrite run;
  run.storage.set_capacity(old_bytes + new_bytes);
  EXPECT_TRUE(run.write());
  EXPECT_EQ(run.found(), kNew);
}

TEST(CheckpointCrash, disk_without_room_leaves_the_old_one_whole) {
  fill_the_disk(47, false);
}

TEST(CheckpointCrash, disk_that_fills_while_we_write_leaves_the_old_one_whole) {
  fill_the_disk(23, true);
}

TEST(CheckpointCrashSlow, disk_that_is_full_at_any_byte_leaves_the_old_one_whole) {
  fill_the_disk(1, false);
  fill_the_disk(1, true);
}

TEST(CheckpointCrash, half_deleted_checkpoint_is_none) {
  const CheckpointId old = {.term = 1, .step = kOld};
  bool deleted = false;
  for (std::uint64_t n = 1; !deleted; ++n) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE("operation " + std::to_string(n) + ", seed " + std::to_string(seed));
      CheckpointWrite run;
      run.storage.crash_at(run.storage.operations() + n);
      deleted = delete_checkpoint(run.storage, kRoot, old).has_value();
      run.storage.restart(seed == 0 ? CrashLoss::kNothing : CrashLoss::kSome, seed);
      const auto search = find_newest(run.storage, kRoot);
      ASSERT_TRUE(search);
      EXPECT_TRUE(search->refused.empty());  // no manifest that names a file which is gone
      EXPECT_FALSE(deleted && search->newest);
      ASSERT_TRUE(delete_checkpoint(run.storage, kRoot, old));
      EXPECT_TRUE(run.storage.files().empty());
      EXPECT_TRUE(run.storage.list(kRoot)->empty());
    }
  }
}

TEST(CheckpointCrash, flipped_bit_in_any_file_is_found_with_its_name) {
  CheckpointWrite whole;
  for (const std::string& path : whole.storage.files()) {
    const std::uint64_t bytes = whole.storage.bytes(path).size();
    for (std::uint64_t offset = 0; offset < bytes; offset += 13) {
      whole.storage.flip_bit(path, offset, static_cast<int>(offset % 7));
      const auto search = find_newest(whole.storage, kRoot);
      ASSERT_TRUE(search);
      ASSERT_FALSE(search->newest) << path << " byte " << offset;
      ASSERT_EQ(search->refused.size(), 1u);
      EXPECT_EQ(search->refused[0].place.file, path);
      whole.storage.flip_bit(path, offset, static_cast<int>(offset % 7));
    }
  }
  EXPECT_EQ(whole.found(), kOld);
}

TEST(CheckpointCrash, same_work_does_the_same_operations) {
  CheckpointWrite a;
  CheckpointWrite b;
  ASSERT_TRUE(a.write());
  ASSERT_TRUE(b.write());
  EXPECT_EQ(a.storage.operations(), b.storage.operations());
  EXPECT_EQ(a.storage.files(), b.storage.files());
  for (const std::string& path : a.storage.files()) {
    EXPECT_EQ(a.storage.bytes(path), b.storage.bytes(path));
  }
}

}  // namespace
}  // namespace longhaul
