#include "executor/storage/real_storage.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace longhaul {
namespace {

class RealStorageFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "longhaul-storage-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  RealStorage storage_;
  std::string folder_;
};

/// While it lives, no file may grow beyond `bytes`: the only way to make a real write fail half
/// done without a disk of our own. The kernel then writes what fits, and refuses the rest.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

TEST_F(RealStorageFolder, write_that_fails_half_way_loses_nothing) {
  ASSERT_TRUE(write_file(storage_, at("a"), "old"));
  {
    const FileSizeLimit limit(1000);
    EXPECT_TRUE(write_file(storage_, at("b"), std::string(1000, 'b')));  // the largest that fits
    const auto refused = write_file(storage_, at("a"), std::string(1001, 'a'));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "cannot write " + at("a.partial") + ": File too large");
  }
  EXPECT_EQ(read_text(storage_, at("a"), 100), "old");
  EXPECT_EQ(storage_.list(folder_), (std::vector<std::string>{"a", "b"}));
}

TEST_F(RealStorageFolder, scratch_memory_without_room_is_an_error_at_once) {
  const FileSizeLimit limit(1000);
  EXPECT_TRUE(storage_.scratch(folder_, 1000));  // the largest that fits
  const auto refused = storage_.scratch(folder_, 1001);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "cannot reserve 1001 bytes in " + folder_ + ": File too large");
}

TEST_F(RealStorageFolder, device_is_no_file) {
  const auto device = storage_.create("/dev/full");
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().message, "/dev/full is a pipe, socket or device, not a file");
}

TEST_F(RealStorageFolder, full_disk_says_so_with_a_cure) {
  // Needs a disk without room, which a test cannot make for itself:
  //   mount -t tmpfs -o size=64k none FOLDER && LONGHAUL_FULL_DISK=FOLDER executor_tests
  const char* const full = std::getenv("LONGHAUL_FULL_DISK");
  if (full == nullptr) GTEST_SKIP() << "set LONGHAUL_FULL_DISK to a folder on a disk without room";
  const std::string path = std::string(full) + "/longhaul-test";
  const auto refused = write_file(storage_, path, std::string(1 << 20, 'x'));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "cannot write " + path + ".partial: No space left on device");
  EXPECT_EQ(refused.error().hint, "free some space there, or give another folder");
  EXPECT_EQ(storage_.kind(path + ".partial"), EntryKind::kAbsent);
}

TEST_F(RealStorageFolder, pipe_is_refused_and_not_waited_for) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const auto read = storage_.open(at("pipe"));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, at("pipe") + " is a pipe, socket or device, not a file");
  EXPECT_FALSE(storage_.create(at("pipe")));
}

TEST_F(RealStorageFolder, file_that_shrinks_while_open_is_an_error) {
  ASSERT_TRUE(write_file(storage_, at("a"), "0123456789"));
  const auto file = storage_.open(at("a"));
  ASSERT_TRUE(file);
  std::filesystem::resize_file(at("a"), 4);
  std::string text(8, '?');
  const auto read = (*file)->read(2, std::as_writable_bytes(std::span(text)));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, at("a") + " ends before byte 4 + 6");
}

TEST_F(RealStorageFolder, leftover_of_a_killed_writer_is_taken_over) {
  std::ofstream(at("a.partial")) << "a long leftover of an earlier try";
  ASSERT_TRUE(write_file(storage_, at("a"), "new"));
  EXPECT_EQ(read_text(storage_, at("a"), 100), "new");
  EXPECT_EQ(storage_.list(folder_), std::vector<std::string>{"a"});
}

TEST_F(RealStorageFolder, relative_paths_have_a_folder_to_sync) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  EXPECT_TRUE(write_file(storage_, "plain", "x"));
  EXPECT_TRUE(make_folders(storage_, "one/two"));
  std::filesystem::current_path(before);
  EXPECT_EQ(storage_.kind(at("plain")), EntryKind::kFile);
  EXPECT_EQ(storage_.kind(at("one/two")), EntryKind::kFolder);
}

}  // namespace
}  // namespace longhaul
