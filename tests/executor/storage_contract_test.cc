// What both sides of the Storage door promise, checked on each of them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/storage_sides.h"

namespace longhaul {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class StorageContract : public fixtures::StorageSides {
 protected:
  std::string content(const std::string& name) const {
    const auto text = read_text(*storage_, at(name), 1 << 20);
    return text ? *text : "error: " + text.error().message;
  }
  Result<void> append(const std::string& name, std::string_view text) {
    LH_ASSIGN(auto file, storage_->extend(at(name)));
    LH_TRY(file->append(bytes_of(text)));
    LH_TRY(file->sync());
    return file->close();
  }
};

INSTANTIATE_TEST_SUITE_P(Sides, StorageContract, testing::Bool(),
                         [](const auto& param) { return param.param ? "real" : "simulated"; });

TEST_P(StorageContract, create_empties_and_extend_goes_on) {
  ASSERT_TRUE(append("log", "one"));
  ASSERT_TRUE(append("log", "two"));
  EXPECT_EQ(content("log"), "onetwo");
  const auto file = storage_->create(at("log"));
  ASSERT_TRUE(file);
  EXPECT_EQ(content("log"), "");
}

TEST_P(StorageContract, reads_are_whole_or_an_error) {
  ASSERT_TRUE(write_file(*storage_, at("a"), "0123456789"));
  const auto file = storage_->open(at("a"));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->size(), 10u);
  std::string text(4, '?');
  ASSERT_TRUE((*file)->read(6, std::as_writable_bytes(std::span(text))));  // the last that fits
  EXPECT_EQ(text, "6789");
  const auto beyond = (*file)->read(7, std::as_writable_bytes(std::span(text)));
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().message, at("a") + " ends before byte 7 + 4");
  EXPECT_FALSE((*file)->read(~std::uint64_t{0}, std::as_writable_bytes(std::span(text))));
  EXPECT_TRUE((*file)->read(10, {}));
}

TEST_P(StorageContract, errors_name_the_path_and_the_reason) {
  const auto absent = storage_->open(at("absent"));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().message, "cannot open " + at("absent") + ": No such file or directory");
  const auto orphan = storage_->create(at("no/such"));
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().message,
            "cannot create " + at("no/such") + ": No such file or directory");
  const auto no_folder = storage_->list(at("absent"));
  ASSERT_FALSE(no_folder);
  EXPECT_EQ(no_folder.error().message,
            "cannot list " + at("absent") + ": No such file or directory");
  const auto folder = storage_->open(folder_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, folder_ + " is a folder, not a file");
  ASSERT_TRUE(append("file", "x"));
  const auto over_file = storage_->make_folder(at("file"));
  ASSERT_FALSE(over_file);
  EXPECT_EQ(over_file.error().message, at("file") + " is a file, not a folder");
  EXPECT_FALSE(make_folders(*storage_, at("file/below")));
  EXPECT_FALSE(storage_->rename(at("absent"), at("x")));
}

TEST_P(StorageContract, rename_replaces_and_list_is_sorted) {
  ASSERT_TRUE(append("b", "new"));
  ASSERT_TRUE(append("a", "old"));
  ASSERT_TRUE(append("c", ""));
  ASSERT_TRUE(storage_->make_folder(at("d")));
  EXPECT_EQ(storage_->list(folder_), (std::vector<std::string>{"a", "b", "c", "d"}));
  ASSERT_TRUE(storage_->rename(at("b"), at("a")));
  EXPECT_EQ(content("a"), "new");
  EXPECT_EQ(storage_->list(folder_), (std::vector<std::string>{"a", "c", "d"}));
}

TEST_P(StorageContract, remove_takes_files_and_empty_folders_and_is_content_with_nothing) {
  ASSERT_TRUE(make_folders(*storage_, at("x/y/z")));
  ASSERT_TRUE(make_folders(*storage_, at("x/y/z")));  // there already
  ASSERT_TRUE(append("x/y/file", "1"));
  EXPECT_FALSE(storage_->remove(at("x/y")));
  EXPECT_TRUE(storage_->remove(at("x/y/file")));
  EXPECT_TRUE(storage_->remove(at("x/y/file")));
  EXPECT_TRUE(storage_->remove(at("x/y/z")));
  EXPECT_TRUE(storage_->remove(at("x/y")));
  EXPECT_EQ(storage_->kind(at("x/y")), EntryKind::kAbsent);
  EXPECT_EQ(storage_->kind(at("x")), EntryKind::kFolder);
}

TEST_P(StorageContract, atomic_file_appears_at_commit_and_not_before) {
  ASSERT_TRUE(write_file(*storage_, at("a"), "old"));
  {
    auto file = AtomicFile::create(*storage_, at("a"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->append(bytes_of("half of the new")));
    EXPECT_EQ(content("a"), "old");
    EXPECT_EQ(storage_->list(folder_), (std::vector<std::string>{"a", "a.partial"}));
  }  // given up
  EXPECT_EQ(storage_->list(folder_), std::vector<std::string>{"a"});
  EXPECT_EQ(content("a"), "old");
  ASSERT_TRUE(write_file(*storage_, at("a"), "new"));
  EXPECT_EQ(storage_->list(folder_), std::vector<std::string>{"a"});
  EXPECT_EQ(content("a"), "new");
}

TEST_P(StorageContract, read_text_refuses_one_byte_too_many) {
  ASSERT_TRUE(write_file(*storage_, at("a"), "12345"));
  EXPECT_EQ(read_text(*storage_, at("a"), 5), "12345");
  const auto refused = read_text(*storage_, at("a"), 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            at("a") + " has 5 bytes; at most 4 were expected of such a file");
}

TEST_P(StorageContract, free_space_is_some_number) {
  const auto space = storage_->free_space(folder_);
  ASSERT_TRUE(space);
  EXPECT_GT(*space, 0u);
}

TEST_P(StorageContract, scratch_memory_is_zero_at_first_keeps_bytes_and_leaves_no_name) {
  auto made = storage_->scratch(folder_, 10'000);
  ASSERT_TRUE(made) << made.error().text();
  const std::span<std::byte> bytes = (*made)->bytes();
  ASSERT_EQ(bytes.size(), 10'000u);
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; }));
  bytes.front() = std::byte{1};
  bytes.back() = std::byte{2};
  (*made)->prefetch(0, 0);
  (*made)->prefetch(9'999, 1);    // the last
  (*made)->prefetch(4'000, 200);  // across a page's end
  EXPECT_EQ((*made)->bytes().front(), std::byte{1});
  EXPECT_EQ((*made)->bytes().back(), std::byte{2});
  EXPECT_EQ(storage_->list(folder_), std::vector<std::string>{});
}

TEST_P(StorageContract, scratch_memory_needs_a_folder) {
  EXPECT_FALSE(storage_->scratch(at("absent"), 1));
  ASSERT_TRUE(write_file(*storage_, at("file"), "x"));
  EXPECT_FALSE(storage_->scratch(at("file"), 1));
}

TEST(ParentFolder, is_what_a_shell_would_say) {
  EXPECT_EQ(parent_folder("a/b/c"), "a/b");
  EXPECT_EQ(parent_folder("a/b//"), "a");
  EXPECT_EQ(parent_folder("a"), ".");
  EXPECT_EQ(parent_folder("/a"), "/");
  EXPECT_EQ(parent_folder("//a//b"), "//a");
  EXPECT_EQ(parent_folder("/"), "/");
  EXPECT_EQ(parent_folder("."), ".");
}

}  // namespace
}  // namespace longhaul
