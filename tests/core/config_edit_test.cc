#include "core/config_edit.h"

#include <gtest/gtest.h>

#include "core/config_cursor.h"
#include "core/job.h"

namespace longhaul {
namespace {

constexpr std::string_view kText = R"(# A comment.
name: "7"
size: 1e+3
list: [a, "b, c", [1, 2]]
nothing: ~
batch: {global: 24, note: 'it''s: "here"'}
)";

std::string with(std::string_view path, std::string_view value) {
  const Result<std::string> text = with_value(kText, "t.yaml", path, value);
  EXPECT_TRUE(text) << text.error().text();
  return text.value_or("");
}

TEST(ConfigEdit, one_value_changes_and_all_others_read_back_as_they_were) {
  const std::string text = with("batch.global", "48");
  Result<ConfigFile> file = ConfigFile::parse(text, "t.yaml");
  ASSERT_TRUE(file) << text;
  const Cursor root = file->root();
  EXPECT_EQ(root.key("name").text(), "7");
  EXPECT_EQ(root.key("size").number(), 1000);
  EXPECT_EQ(root.key("list").items()[1].text(), "b, c");
  EXPECT_EQ(root.key("list").items()[2].items().size(), 2u);
  EXPECT_EQ(root.key("batch").key("global").integer(), 48);
  EXPECT_EQ(root.key("batch").key("note").text(), "it's: \"here\"");
  EXPECT_TRUE(root.has("nothing"));
  EXPECT_TRUE(file->finish()) << text;
}

TEST(ConfigEdit, a_quoted_number_stays_a_text) {
  Result<ConfigFile> file = ConfigFile::parse(with("batch.global", "48"), "t.yaml");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->root().key("name").integer(), 0);
  EXPECT_FALSE(file->finish());
}

TEST(ConfigEdit, keys_that_are_not_there_are_added_with_the_maps_on_their_way) {
  EXPECT_EQ(value_at(with("a.b.c", "x y"), "t.yaml", "a.b.c").value_or("?"), "x y");
  EXPECT_EQ(value_at(with("batch.micro_batch", "2"), "t.yaml", "batch.micro_batch").value_or("?"),
            "2");
}

TEST(ConfigEdit, a_value_that_is_not_there_is_empty) {
  EXPECT_EQ(value_at(kText, "t.yaml", "batch.micro_batch").value_or("?"), "");
  EXPECT_EQ(value_at(kText, "t.yaml", "a.b").value_or("?"), "");
  EXPECT_EQ(value_at(kText, "t.yaml", "batch").value_or("?"), "");
  EXPECT_EQ(value_at(kText, "t.yaml", "batch.global").value_or("?"), "24");
}

TEST(ConfigEdit, what_is_taken_away_is_gone_and_the_rest_stays) {
  const std::string text = without_key(kText, "t.yaml", "batch.global").value_or("?");
  EXPECT_EQ(value_at(text, "t.yaml", "batch.global").value_or("?"), "");
  EXPECT_EQ(value_at(text, "t.yaml", "name").value_or("?"),
            value_at(kText, "t.yaml", "name").value_or(""));
  const std::string without_map = without_key(kText, "t.yaml", "batch").value_or("?");
  EXPECT_FALSE(without_map.contains("batch"));
  for (const std::string_view absent : {"batch.micro_batch", "a.b.c"}) {
    EXPECT_EQ(without_key(kText, "t.yaml", absent), with("batch.global", "24")) << absent;
  }
  EXPECT_FALSE(without_key(kText, "t.yaml", "name.first"));
}

TEST(ConfigEdit, what_has_no_place_for_a_value_is_refused) {
  const struct {
    std::string_view path;
    std::string_view says;
  } cases[] = {
      {"batch", "takes no single value"},
      {"list", "takes no single value"},
      {"name.first", "is no map"},
      {"list.0", "is no map"},
      {"", "keys with dots"},
      {"batch.", "keys with dots"},
      {".global", "keys with dots"},
  };
  for (const auto& each : cases) {
    const Result<std::string> text = with_value(kText, "t.yaml", each.path, "1");
    ASSERT_FALSE(text) << each.path;
    EXPECT_TRUE(text.error().message.contains(each.says)) << text.error().message;
  }
  EXPECT_FALSE(with_value("a: [", "t.yaml", "a", "1"));
}

TEST(ConfigEdit, every_shipped_job_reads_back_as_itself) {
  for (const std::string name :
       {"demo-gpt", "demo-llama", "gpt2-small", "gpt2-xl-finetune", "gpt3-xl", "llama-1b"}) {
    const std::string path = std::string(LONGHAUL_SOURCE_DIR) + "/configs/jobs/" + name + ".yaml";
    Result<ConfigFile> file = ConfigFile::load(path);
    const Result<Job> before = load_job(path);
    ASSERT_TRUE(file && before) << path;
    const Result<std::string> text = with_value(file->text(), path, "name", "another");
    const Result<Job> after = parse_job(text.value_or(""), path);
    ASSERT_TRUE(after) << after.error().text();
    EXPECT_EQ(after->name, "another");
    EXPECT_EQ(after->global_batch, before->global_batch);
    EXPECT_EQ(after->model.ffn_width, before->model.ffn_width);
    EXPECT_EQ(after->training.has_value(), before->training.has_value());
  }
}

}  // namespace
}  // namespace longhaul
