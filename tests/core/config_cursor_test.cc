#include "core/config_cursor.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "core/quantity.h"

namespace longhaul {
namespace {

using Read = std::function<void(Cursor)>;

ConfigFile parsed(std::string_view text) {
  auto file = ConfigFile::parse(text, "f.yaml");
  EXPECT_TRUE(file.has_value()) << file.error().text();
  return std::move(*file);
}

/// The errors of reading `text`, as a person sees them; empty when there are none.
std::string errors_of(std::string_view text, const Read& read) {
  ConfigFile file = parsed(text);
  read(file.root());
  const Result<void> done = file.finish();
  return done ? "" : done.error().text();
}

/// The error that parse() answers.
Error refusal(std::string_view text) {
  const auto file = ConfigFile::parse(text, "f.yaml");
  EXPECT_FALSE(file.has_value()) << text.substr(0, 80);
  return file ? Error{} : file.error();
}

bool contains(std::string_view text, std::string_view part) {
  return text.contains(part);
}

// ---------------------------------------------------------------------------------------------
// Reading.

constexpr std::string_view kJob = R"(schema: longhaul/job/1
model:
  family: gpt2
  layers: 24
  dropout: 1e-3
  tied: true
links:
  - {latency: 48 ms, rate: 0.6 Gbit/s}
  - latency: "2 ms"
    rate: 1GB/s
device: {memory: 16 GiB, speed: 125 TFLOP/s, price: 3.06 USD/h, egress: 0.02 USD/GB}
names: {tokyo: 1, "new york": 2}
note: |
  two
  lines
)";

TEST(ConfigCursor, every_kind_of_value_is_read) {
  ConfigFile file = parsed(kJob);
  file.expect_schema("longhaul/job/1");
  const Cursor root = file.root();
  const Cursor model = root.key("model");
  EXPECT_EQ(model.key("family").choice({"llama", "gpt2"}), 1u);
  EXPECT_EQ(model.key("layers").integer({.min = 1, .max = 100}), 24);
  EXPECT_EQ(model.key("dropout").number({.min = 0, .max = 1}), 1e-3);
  EXPECT_TRUE(model.key("tied").boolean());
  EXPECT_EQ(model.optional("heads").integer({}, 16), 16);
  const std::vector<Cursor> links = root.key("links").items();
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].key("latency").duration(), milliseconds(48));
  EXPECT_EQ(links[0].key("rate").rate(), gigabits_per_second(0.6));
  EXPECT_EQ(links[1].key("latency").duration(), milliseconds(2));
  EXPECT_EQ(links[1].key("rate").rate(), bytes_per_second(1e9));
  const Cursor device = root.key("device");
  EXPECT_EQ(device.key("memory").size(), gibibytes(16));
  EXPECT_EQ(device.key("speed").flop_rate(), flops_per_second(125e12));
  EXPECT_EQ(device.key("price").usd_per_hour(), 3.06);
  EXPECT_EQ(device.key("egress").usd_per_byte(), 0.02 / 1e9);
  const auto names = root.key("names").entries();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].first, "tokyo");
  EXPECT_EQ(names[1].first, "new york");
  EXPECT_EQ(names[1].second.integer(), 2);
  EXPECT_EQ(root.key("note").text(), "two\nlines\n");
  EXPECT_TRUE(file.finish().has_value()) << file.finish().error().text();
  EXPECT_EQ(file.name(), "f.yaml");
  EXPECT_EQ(file.text(), kJob);
}

TEST(ConfigCursor, a_value_knows_its_kind_path_and_place) {
  ConfigFile file = parsed("sites:\n- nodes:\n  - {nic: 1}\n  - x\n");
  const Cursor sites = file.root().key("sites");
  const Cursor nodes = sites.items()[0].key("nodes");
  EXPECT_TRUE(file.root().is_map());
  EXPECT_TRUE(nodes.is_list());
  const Cursor nic = nodes.items()[0].key("nic");
  EXPECT_TRUE(nic.is_scalar() && nic.present() && !nic.is_map() && !nic.is_list());
  EXPECT_EQ(file.root().path(), "");
  EXPECT_EQ(nic.path(), "sites[0].nodes[0].nic");
  EXPECT_EQ(nic.place().text(), "f.yaml:3:11");  // `  - {nic: 1}`: the 1 is the 11th character
  const Cursor absent = nodes.items()[0].optional("a").optional("b");
  EXPECT_FALSE(absent.present() || absent.is_map() || absent.is_list() || absent.is_scalar());
  EXPECT_EQ(absent.path(), "sites[0].nodes[0].a.b");
  EXPECT_EQ(absent.place().text(), "f.yaml:3:5");  // the map that exists: its `{`
}

TEST(ConfigCursor, columns_count_characters_and_lines_may_end_in_either_way) {
  // The two letters before the `x` are two bytes each, yet it stands in column 7.
  for (const char* text : {"a: 1\r\n\u00e9\u00e9: {x: y}\r\n",
                           "\xef\xbb\xbf"
                           "a: 1\n\u00e9\u00e9: {x: y}"}) {
    ConfigFile file = parsed(text);
    EXPECT_EQ(file.root().key("a").integer(), 1);
    EXPECT_EQ(file.root().key("\u00e9\u00e9").place().text(), "f.yaml:2:5");
    EXPECT_EQ(file.root().key("\u00e9\u00e9").key("x").place().text(), "f.yaml:2:9");
    EXPECT_EQ(file.text(), text);
  }
}

TEST(ConfigCursor, reads_below_an_absent_value_are_silent) {
  const auto read = [](Cursor root) {
    const Cursor absent = root.optional("b");
    EXPECT_EQ(absent.key("x").key("y").integer({.min = 5}, 7), 7);
    EXPECT_EQ(absent.text("t"), "t");
    EXPECT_EQ(absent.number({}, 1.5), 1.5);
    EXPECT_TRUE(absent.boolean(true));
    EXPECT_EQ(absent.choice({"a", "b"}, 1), 1u);
    EXPECT_EQ(absent.duration(seconds(3)), seconds(3));
    EXPECT_EQ(absent.size(bytes(3)), bytes(3));
    EXPECT_EQ(absent.rate(bytes_per_second(3)), bytes_per_second(3));
    EXPECT_EQ(absent.flop_rate(flops_per_second(3)), flops_per_second(3));
    EXPECT_EQ(absent.usd_per_hour(3), 3);
    EXPECT_EQ(absent.usd_per_byte(3), 3);
    EXPECT_TRUE(absent.items().empty());
    EXPECT_TRUE(absent.entries().empty());
    EXPECT_FALSE(absent.has("x"));
    EXPECT_EQ(root.key("a").integer(), 1);
  };
  EXPECT_EQ(errors_of("a: 1", read), "");
}

TEST(ConfigCursor, a_cursor_survives_the_move_of_its_file) {
  ConfigFile file = parsed("a: 1");
  const Cursor root = file.root();
  const ConfigFile moved = std::move(file);
  EXPECT_EQ(root.key("a").integer(), 1);
}

// ---------------------------------------------------------------------------------------------
// Wrong values: each row is one value and the whole error below its place.

struct Row {
  std::string value;
  std::string message;  // empty: accepted
  std::string hint;
};

void check_rows(const std::vector<Row>& rows, const Read& read) {
  for (const Row& row : rows) {
    ConfigFile file = parsed("v: " + row.value + "\n");
    read(file.root().key("v"));
    const Result<void> done = file.finish();
    EXPECT_EQ(done.has_value(), row.message.empty()) << row.value;
    if (done) continue;
    const Error& error = done.error();
    EXPECT_EQ(error.code, ErrorCode::kInvalid);
    EXPECT_EQ(error.count(), 1u);
    EXPECT_EQ(error.message, row.message) << row.value;
    EXPECT_EQ(error.hint, row.hint) << row.value;
    EXPECT_TRUE(contains(error.place.text(), "f.yaml:1:")) << error.place.text();
  }
}

TEST(ConfigCursor, integers_are_plain_decimals_in_range) {
  const std::string wanted = "`v` must be a whole number, for example `12`: found ";
  check_rows(
      {
          {"0", "", ""},
          {"-5", "", ""},
          {"+5", "", ""},
          {"9223372036854775807", "", ""},
          {"-9223372036854775808", "", ""},
          {"9223372036854775808", wanted + "`9223372036854775808`", "it does not fit into 64 bits"},
          {"-9223372036854775809", wanted + "`-9223372036854775809`",
           "it does not fit into 64 bits"},
          {"1.5", wanted + "`1.5`", ""},
          {"4.0", wanted + "`4.0`", "write 4"},
          {"1e3", wanted + "`1e3`", "write 1000"},
          {"1_000", wanted + "`1_000`", "write digits without separators"},
          {"0x10", wanted + "`0x10`", ""},
          {"+-5", wanted + "`+-5`", ""},
          {"+", wanted + "`+`", ""},
          {"abc", wanted + "`abc`", ""},
          {"\"12\"", wanted + "the text `12`", "remove the quotes"},
          {"\"\"", wanted + "the text ``", ""},
          {"[1]", wanted + "a list", ""},
          {"{a: 1}", wanted + "a map", ""},
          {"", wanted + "nothing", ""},
          {"~", wanted + "nothing", ""},
      },
      [](Cursor v) { v.integer(); });
  const std::string in_range = "`v` must be a whole number from 3 to 8, for example `8`: found ";
  check_rows(
      {{"3", "", ""}, {"8", "", ""}, {"2", in_range + "`2`", ""}, {"9", in_range + "`9`", ""}},
      [](Cursor v) { v.integer({.min = 3, .max = 8}); });
  check_rows({{"3", "", ""},
              {"2", "`v` must be a whole number of at least 3, for example `12`: found `2`", ""}},
             [](Cursor v) { v.integer({.min = 3}); });
  check_rows({{"3", "", ""},
              {"4", "`v` must be a whole number of at most 3, for example `3`: found `4`", ""}},
             [](Cursor v) { v.integer({.max = 3}); });
}

TEST(ConfigCursor, numbers_are_finite_and_in_range) {
  const std::string wanted = "`v` must be a number from 0 to 1, for example `0.5`: found ";
  check_rows({{"0", "", ""},
              {"1", "", ""},
              {"1e-3", "", ""},
              {"-0.001", wanted + "`-0.001`", ""},
              {"1.001", wanted + "`1.001`", ""},
              {".inf", wanted + "`.inf`", ""},
              {"nan", wanted + "`nan`", ""},
              {"1 ms", wanted + "`1 ms`", ""},
              {"'0.5'", wanted + "the text `0.5`", "remove the quotes"}},
             [](Cursor v) { v.number({.min = 0, .max = 1}); });
}

TEST(ConfigCursor, booleans_are_true_and_false_only) {
  const std::string wanted = "`v` must be true or false: found ";
  check_rows({{"true", "", ""},
              {"false", "", ""},
              {"True", wanted + "`True`", "write true"},
              {"yes", wanted + "`yes`", "write true"},
              {"on", wanted + "`on`", "write true"},
              {"no", wanted + "`no`", "write false"},
              {"off", wanted + "`off`", "write false"},
              {"\"true\"", wanted + "the text `true`", "write true without quotes"},
              {"maybe", wanted + "`maybe`", ""},
              {"[]", wanted + "a list", ""}},
             [](Cursor v) { v.boolean(); });
}

TEST(ConfigCursor, text_is_any_scalar) {
  check_rows({{"a b", "", ""},
              {"12", "", ""},
              {"\"\"", "", ""},
              {"'null'", "", ""},
              {"null", "`v` must be a text: found nothing", ""},
              {"[a]", "`v` must be a text: found a list", ""}},
             [](Cursor v) { v.text(); });
}

TEST(ConfigCursor, choices_are_listed_and_guessed) {
  const std::string wanted = "`v` must be one of fp32, bf16, int8: found ";
  check_rows({{"fp32", "", ""},
              {"\"int8\"", "", ""},
              {"bf61", wanted + "`bf61`", "did you mean `bf16`?"},
              {"BF16", wanted + "`BF16`", "did you mean `bf16`?"},
              {"other", wanted + "`other`", ""},
              {"{}", wanted + "a map", ""}},
             [](Cursor v) { v.choice({"fp32", "bf16", "int8"}); });
}

TEST(ConfigCursor, quantities_need_their_unit) {
  check_rows(
      {{"48 ms", "", ""},
       {"0 s", "", ""},
       {"\"48 ms\"", "", ""},
       {"48", "`v`: `48` has no unit", "a duration takes one of: ps, ns, us, ms, s, min, h, d"},
       {"-1 s", "`v`: `-1 s` is negative: a duration cannot be", ""},
       {"[1]", "`v` must be a duration with its unit, for example `48 ms`: found a list", ""}},
      [](Cursor v) { v.duration(); });
  check_rows(
      {{"1 bit/s", "", ""},
       {"0 bit/s", "`v` must be more than zero: found `0 bit/s`", ""},
       {"0.6 Gbps", "`v`: unknown unit `Gbps` for a rate",
        "write Gbit/s for bits or GB/s for bytes"},
       {"{}", "`v` must be a rate with its unit, for example `0.6 Gbit/s`: found a map", ""}},
      [](Cursor v) { v.rate(); });
  check_rows(
      {{"1 FLOP/s", "", ""}, {"0 FLOP/s", "`v` must be more than zero: found `0 FLOP/s`", ""}},
      [](Cursor v) { v.flop_rate(); });
  check_rows({{"0 B", "", ""},
              {"5 KB", "`v`: unknown unit `KB` for a size",
               "write kB for a power of 1000 or KiB for a power of 1024"}},
             [](Cursor v) { v.size(); });
  check_rows(
      {{"0 USD/h", "", ""}, {"3", "`v`: `3` has no unit", "a price per hour takes one of: USD/h"}},
      [](Cursor v) { v.usd_per_hour(); });
  check_rows(
      {{"0 USD/GB", "", ""},
       {"3", "`v`: `3` has no unit", "a price per byte takes one of: USD/GB, USD/TB, USD/GiB"}},
      [](Cursor v) { v.usd_per_byte(); });
}

TEST(ConfigCursor, lists_and_maps_are_asked_for_as_such) {
  const std::string hint = "write each item on a line of its own after `- `";
  check_rows({{"[1]", "", ""},
              {"[]", "`v` must have at least one item", ""},
              {"x", "`v` must be a list, for example `[a, b]`: found `x`", hint},
              {"", "`v` must be a list, for example `[a, b]`: found nothing", hint}},
             [](Cursor v) { v.items(); });
  check_rows({{"[]", "", ""}}, [](Cursor v) { v.items(false); });
  const std::string wanted = "`v` must be a map, for example `key: value`: found ";
  const std::vector<Row> rows = {
      {"{a: 1}", "", ""}, {"[a]", wanted + "a list", ""}, {"", wanted + "nothing", ""}};
  // The second read of the same wrong value does not report it again.
  check_rows(rows, [](Cursor v) { v.key("a"), v.key("a"); });
  check_rows(rows, [](Cursor v) { v.optional("a"); });
  check_rows(rows, [](Cursor v) { v.has("a"); });
  check_rows(rows, [](Cursor v) { v.entries(); });
}

TEST(ConfigCursor, wrong_values_answer_the_fallback) {
  ConfigFile file = parsed("v: [1]");
  const Cursor v = file.root().key("v");
  EXPECT_EQ(v.text("t"), "t");
  EXPECT_EQ(v.integer({}, 7), 7);
  EXPECT_EQ(v.number({}, 7.5), 7.5);
  EXPECT_TRUE(v.boolean(true));
  EXPECT_EQ(v.choice({"a", "b"}, 1), 1u);
  EXPECT_EQ(v.duration(seconds(3)), seconds(3));
  EXPECT_FALSE(file.finish().has_value());
}

// ---------------------------------------------------------------------------------------------
// Keys.

TEST(ConfigCursor, unknown_keys_are_shown_with_a_guess_and_what_is_known) {
  const auto read = [](Cursor root) {
    const Cursor batch = root.key("batch");
    batch.key("global").integer();
    batch.optional("micro").integer();
    batch.has("auto");
    root.optional("unjudged");
  };
  EXPECT_EQ(errors_of("batch:\n  globl: 1\n  global: 4\n  xyz: 2\nunjudged: {any: 1}\n", read),
            "f.yaml:2:3: error: unknown key `globl` in `batch`\n"
            "  globl: 1\n"
            "  ^\n"
            "  hint: did you mean `global`? known keys: global, micro, auto\n"
            "f.yaml:4:3: error: unknown key `xyz` in `batch`\n"
            "  xyz: 2\n"
            "  ^\n"
            "  hint: known keys: global, micro, auto");
  EXPECT_EQ(errors_of("batchh: {global: 4}\nbatch: {global: 4}", read),
            "f.yaml:1:1: error: unknown key `batchh`\n"
            "batchh: {global: 4}\n"
            "^\n"
            "  hint: did you mean `batch`? known keys: batch, unjudged");
}

TEST(ConfigCursor, free_names_are_all_known) {
  EXPECT_EQ(errors_of("a: {x: 1, y: 2}",
                      [](Cursor root) {
                        root.key("a").entries();
                        root.key("a").optional("x");
                      }),
            "");
}

TEST(ConfigCursor, a_missing_key_is_an_error_at_its_map) {
  const auto read = [](Cursor root) {
    root.key("schema");
    for (const Cursor& item : root.key("list").items()) item.key("name");
  };
  EXPECT_EQ(errors_of("\nlist:\n- name: x\n- {}\n", read),
            "f.yaml:2:1: error: missing key `schema`\n"
            "list:\n"
            "^\n"
            "f.yaml:4:3: error: missing key `name` in `list[1]`\n"
            "- {}\n"
            "  ^");
}

TEST(ConfigCursor, repeated_keys_are_found_in_maps_that_nobody_reads) {
  const std::string text = "a:\n  b: 1\n  c: 2\n  b: 3\n  b: 4\n";
  EXPECT_EQ(errors_of(text, [](Cursor) {}),
            "f.yaml:4:3: error: repeated key `b`: the first one is at f.yaml:2:3\n"
            "  b: 3\n"
            "  ^\n"
            "  hint: remove one of the two\n"
            "f.yaml:5:3: error: repeated key `b`: the first one is at f.yaml:2:3\n"
            "  b: 4\n"
            "  ^\n"
            "  hint: remove one of the two");
  // The first one is the value, and a repetition counts as known and as no entry.
  ConfigFile file = parsed(text);
  EXPECT_EQ(file.root().key("a").key("b").integer(), 1);
  EXPECT_EQ(file.root().key("a").key("c").integer(), 2);
  EXPECT_EQ(file.finish().error().count(), 2u);
  EXPECT_EQ(file.root().key("a").entries().size(), 2u);
  // The same key in two maps is no repetition.
  EXPECT_EQ(errors_of("a: {b: 1}\nc: {b: 1}", [](Cursor) {}), "");
}

TEST(ConfigCursor, a_loaders_own_errors_are_placed_at_the_value_or_its_nearest_map) {
  EXPECT_EQ(errors_of("a:\n  b: 4\n",
                      [](Cursor root) {
                        root.key("a").key("b").fail("too many", "take fewer");
                        root.key("a").optional("c").fail("c goes with b");
                      }),
            "f.yaml:2:3: error: c goes with b\n"
            "  b: 4\n"
            "  ^\n"
            "f.yaml:2:6: error: too many\n"
            "  b: 4\n"
            "     ^\n"
            "  hint: take fewer");
}

TEST(ConfigCursor, a_key_without_a_value_is_shown_at_the_key) {
  const auto read = [](Cursor root) {
    for (const auto& [name, value] : root.entries()) {
      if (value.is_list()) {
        for (const Cursor& item : value.items()) item.integer();
      } else {
        value.integer();
      }
    }
  };
  const std::string errors = errors_of("a:\n\nb:\n- 1\n-\n- 2\n-\nc: null\nd: [~]\ne:\n", read);
  for (const char* place :
       {"f.yaml:1:1: error: `a`", "f.yaml:5:1: error: `b[1]`", "f.yaml:7:1: error: `b[3]`",
        "f.yaml:9:5: error: `d[0]`", "f.yaml:10:1: error: `e`"}) {
    EXPECT_TRUE(contains(errors, place)) << place << "\n" << errors;
  }
}

// ---------------------------------------------------------------------------------------------
// Schema.

std::string schema_errors(std::string_view text) {
  ConfigFile file = parsed(text);
  file.expect_schema("longhaul/cluster/1");
  file.root().key("sites");
  const auto done = file.finish();
  return done ? "" : done.error().text();
}

TEST(ConfigCursor, a_file_of_another_kind_or_version_is_called_that_and_nothing_else) {
  EXPECT_EQ(schema_errors("schema: longhaul/cluster/1\nsites: []\n"), "");
  EXPECT_EQ(schema_errors("schema: longhaul/job/1\nsteps: 5\nsteps: 5\n"),
            "f.yaml:1:9: error: this is a `longhaul/job/1` file; a `longhaul/cluster/1` file is "
            "wanted here\n"
            "schema: longhaul/job/1\n"
            "        ^\n"
            "  hint: were two files swapped?");
  EXPECT_EQ(schema_errors("schema: longhaul/cluster/2\nplaces: []\n"),
            "f.yaml:1:9: error: this file has version `2` of longhaul/cluster; this program reads "
            "version `1`\n"
            "schema: longhaul/cluster/2\n"
            "        ^");
}

TEST(ConfigCursor, a_missing_or_mistyped_schema_does_not_hide_other_errors) {
  const std::string missing = schema_errors("places: []\n");
  EXPECT_TRUE(contains(missing, "f.yaml:1:1: error: missing key `schema`\n")) << missing;
  EXPECT_TRUE(contains(missing, "hint: write `schema: longhaul/cluster/1`")) << missing;
  EXPECT_TRUE(contains(missing, "missing key `sites`")) << missing;
  EXPECT_TRUE(contains(missing, "unknown key `places`")) << missing;
  const std::string mistyped = schema_errors("schema: cluster\nplaces: []\n");
  EXPECT_TRUE(contains(mistyped, "f.yaml:1:9: error: unknown schema `cluster`\n")) << mistyped;
  EXPECT_TRUE(contains(mistyped, "missing key `sites`")) << mistyped;
  EXPECT_TRUE(contains(schema_errors("schema: [1]\nsites: 1"),
                       "`schema` must be a text, for example "
                       "`longhaul/cluster/1`: found a list"));
  EXPECT_TRUE(contains(schema_errors("- a\n"), "error: the file must be a map"))
      << "root is a list";
}

// ---------------------------------------------------------------------------------------------
// Reports.

TEST(ConfigCursor, errors_are_sorted_by_place_and_at_most_a_hundred) {
  std::string text;
  for (int i = 0; i < 101; ++i) text += "k" + std::to_string(i) + ": x\n";
  const auto read = [](int count) {
    return [count](Cursor root) {
      const auto entries = root.entries();
      for (int i = count - 1; i >= 0; --i) entries[static_cast<std::size_t>(i)].second.integer();
    };
  };
  for (const int count : {100, 101}) {
    ConfigFile file = parsed(text);
    read(count)(file.root());
    const Error error = file.finish().error();
    EXPECT_EQ(error.count(), 100u);
    EXPECT_EQ(error.place.line, 1);
    for (std::size_t i = 0; i < error.others.size(); ++i) {
      EXPECT_EQ(error.others[i].place.line, static_cast<int>(i) + 2);
    }
    EXPECT_EQ(error.others.back().hint, count == 100 ? "" : "1 more errors are not shown");
  }
}

TEST(ConfigCursor, finish_may_be_called_again) {
  ConfigFile file = parsed("a: 1\nb: 2");
  file.root().optional("a");
  EXPECT_EQ(file.finish().error().count(), 1u);
  EXPECT_EQ(file.finish().error().count(), 1u);
  file.root().optional("b");
  EXPECT_TRUE(file.finish().has_value());
}

TEST(ConfigCursor, an_excerpt_of_a_long_line_is_cut_around_the_caret) {
  const auto excerpt = [](std::string_view text) {
    ConfigFile file = parsed(text);
    file.root().entries();  // every key is known
    file.root().key("v").fail("here");
    return file.finish().error().excerpt;
  };
  // Exactly 100 columns fit: `v: ` and 97 letters. One more cuts the end.
  const std::string row(97, 'a');
  EXPECT_EQ(excerpt("v: " + row), "v: " + row + "\n   ^");
  EXPECT_EQ(excerpt("v: " + row + "b"), "v: " + row + "...\n   ^");
  // 204 columns with the caret after 104: 50 columns on each side.
  EXPECT_EQ(excerpt("{x: " + row + ", v: " + std::string(100, 'b') + "}"),
            "..." + std::string(45, 'a') + ", v: " + std::string(50, 'b') + "...\n   " +
                std::string(50, ' ') + "^");
  // A short rest leaves 99 columns to the left side.
  EXPECT_EQ(excerpt("{x: " + row + ", v: b}"),
            "..." + std::string(93, 'a') + ", v: b}\n   " + std::string(98, ' ') + "^");
  // Tabs align because they stay tabs; a letter of two bytes is one column.
  EXPECT_EQ(excerpt("{\u00e9: 1,\tv:\tb}"), "{\u00e9: 1,\tv:\tb}\n      \t  \t^");
}

TEST(ConfigCursor, control_characters_never_reach_the_terminal) {
  const std::string errors =
      errors_of("v: \"\\e[31m\\n\u009b31m\"", [](Cursor root) { root.key("v").integer(); });
  EXPECT_TRUE(contains(errors, "found the text `?[31m\\n?31m`")) << errors;
  EXPECT_FALSE(contains(errors, "\x1b")) << errors;
  EXPECT_FALSE(contains(errors, "\u009b")) << errors;
}

// ---------------------------------------------------------------------------------------------
// Refused texts.

TEST(ConfigCursor, what_is_not_a_plain_document_is_refused_with_place_and_cure) {
  struct Refusal {
    std::string text;
    std::string place;
    std::string message;
    std::string hint;
  };
  const std::string write_out = "write the value out, or quote the text";
  const std::string no_tag = "leave the tag out, or quote the text";
  const std::string indent =
      "check the indentation: spaces only, the same for all entries of a map or list";
  using namespace std::string_literals;
  const std::vector<Refusal> rows = {
      {"", "f.yaml:1:1", "the file is empty", ""},
      {"# only a comment\n", "f.yaml:1:1", "the file is empty", ""},
      {"---\n", "f.yaml:1:1", "the file is empty", ""},
      {"\xef\xbb\xbf", "f.yaml:1:1", "the file is empty", ""},
      {"a: &x 1\n", "f.yaml:1:4", "anchors (`&name`) are not supported", write_out},
      {"a: &x {b: 1}\n", "f.yaml:1:4", "anchors (`&name`) are not supported", write_out},
      {"- &x\n- 1\n", "f.yaml:1:3", "anchors (`&name`) are not supported", write_out},
      {"a: *x\n", "f.yaml:1:4", "aliases (`*name`) are not supported", write_out},
      {"a: !!int 1\n", "f.yaml:1:4", "tags (`!name`) are not supported", no_tag},
      {"a: ! 1\n", "f.yaml:1:4", "tags (`!name`) are not supported", no_tag},
      {"a: !t [1]\n", "f.yaml:1:4", "tags (`!name`) are not supported", no_tag},
      {"!t\na: 1\n", "f.yaml:1:1", "tags (`!name`) are not supported", no_tag},
      {"!t b: 1\n", "f.yaml:1:1", "tags (`!name`) are not supported", no_tag},
      {"a: 1\n---\nb: 2\n", "f.yaml:2:1", "a second document begins here, and a file holds one",
       "split it into two files"},
      {"a: 1\n---\n", "f.yaml:2:1", "a second document begins here, and a file holds one",
       "split it into two files"},
      {"- a\nb: 1\n", "f.yaml:2:1", "this does not belong to the value that ends before it",
       "check the indentation; a file holds one map"},
      {"[a]: 1\n", "f.yaml:1:1", "a key of a map must be a word", "write `key: value`"},
      {"? {a: 1}\n: 1\n", "f.yaml:1:3", "a key of a map must be a word", "write `key: value`"},
      {"~: 1\n", "f.yaml:1:1", "a key of a map must be a word", "write `key: value`"},
      {"\"\": 1\n", "f.yaml:1:1", "a key of a map must be a word", "write `key: value`"},
      {"a: \0b\n"s, "f.yaml:1:4", "control character 0x00", "is this a text file?"},
      {"a: b\x04\n", "f.yaml:1:5", "control character 0x04", "is this a text file?"},
      {"a: b\x7f\n", "f.yaml:1:5", "control character 0x7f", "is this a text file?"},
      {"a: b\rc: d\n", "f.yaml:1:5", "control character 0x0d", "is this a text file?"},
      {"a: \"\\0\"\n", "f.yaml:1:4", "a text with a NUL character cannot be used", ""},
      {"a: \xff\n", "f.yaml:1:4", "not UTF-8 text", "save the file in the encoding UTF-8"},
      {"a: [1,\n  2\n", "f.yaml:1:4", "this `[` is not closed", ""},
      {"a: {b: 1\n", "f.yaml:1:4", "this `{` is not closed", ""},
      {"a: b: c\n", "f.yaml:1:5", "not valid YAML: illegal map value",
       "quote a text that contains `: `"},
      {"a:\n  b: 1\n c: 2\n", "f.yaml:3:2", "not valid YAML: end of map not found", indent},
      {"a:\n\t- b\n", "f.yaml:2:2", "not valid YAML: illegal block entry", indent},
      {"a: @x\n", "f.yaml:1:4", "not valid YAML: unknown token",
       "quote a text that begins with this character"},
      {"a: 'x\n", "f.yaml:1:4", "this quote is not closed", ""},
      {"a: \"x\\\"\nb: 1\n", "f.yaml:1:4", "this quote is not closed", ""},
      {"a: 'x''\n", "f.yaml:1:4", "this quote is not closed", ""},
      {"a: 'x", "f.yaml:1:6", "not valid YAML: illegal EOF in scalar",
       "the quote before this is not closed"},
      {"[[1\n", "f.yaml:1:1", "this `[` is not closed", ""},
      {"{a: ']'\n", "f.yaml:1:1", "this `{` is not closed", ""},
  };
  for (const Refusal& row : rows) {
    const Error error = refusal(row.text);
    EXPECT_EQ(error.code, ErrorCode::kInvalid) << row.text;
    EXPECT_EQ(error.place.text(), row.place) << row.text;
    EXPECT_EQ(error.message, row.message) << row.text;
    EXPECT_EQ(error.hint, row.hint) << row.text;
    EXPECT_TRUE(contains(error.excerpt, "^")) << row.text;
  }
  EXPECT_EQ(refusal("a: b: c\n").excerpt, "a: b: c\n    ^");
}

TEST(ConfigCursor, harmless_yaml_is_accepted) {
  for (const char* text : {"---\na: 1\n", "a: 1\n...\n", "%YAML 1.2\n---\na: 1\n", "a: \"&x\"\n",
                           "a: b!\n", "a: '!'\n", "a: \"*\"", "# c\n\na: 1 # c\n", "\"a\": 1",
                           "a:\t1\n", "a: 'it''s'", "a: \"\\\"\"", "a: >\n  &x *y !z\n"}) {
    EXPECT_EQ(errors_of(text, [](Cursor root) { root.key("a").text(); }), "") << text;
  }
}

TEST(ConfigCursor, utf8_is_checked_at_every_boundary) {
  const std::vector<std::string> good = {"\u0080", "\u07ff", "\u0800",     "\ud7ff",
                                         "\ue000", "\uffff", "\U00010000", "\U0010ffff"};
  for (const std::string& text : good)
    EXPECT_EQ(parsed("a: x" + text).root().key("a").text(), "x" + text);
  const std::vector<std::string> bad = {"\x80",
                                        "\xc1\xbf",
                                        "\xc2",
                                        "\xc2x",
                                        "\xe0\x9f\xbf",
                                        "\xed\xa0\x80",
                                        "\xef\xbf",
                                        "\xf0\x8f\xbf\xbf",
                                        "\xf4\x90\x80\x80",
                                        "\xf5\x80\x80\x80"};
  for (const std::string& text : bad)
    EXPECT_EQ(refusal("a: x" + text + "\n").message, "not UTF-8 text");
}

TEST(ConfigCursor, nesting_is_limited_to_64_levels) {
  const auto flow = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  const auto block = [](int depth) {
    std::string out;
    for (int i = 0; i < depth; ++i) out += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
    return out;
  };
  EXPECT_TRUE(ConfigFile::parse(flow(64), "f").has_value());
  EXPECT_EQ(refusal(flow(65)).message, "more than 64 levels of nesting");
  EXPECT_EQ(refusal(flow(65)).place.column, 65);
  EXPECT_TRUE(ConfigFile::parse(block(64), "f").has_value());
  EXPECT_EQ(refusal(block(65)).message, "more than 64 levels of nesting");
}

TEST(ConfigCursor, nesting_bombs_are_refused_and_do_no_harm) {
  const auto repeated = [](std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  for (const char* piece : {"[", "{", "[{", "{a: ", "- ", "? ", "a: [", "[\"]\",", "[ #]\n"}) {
    for (const int times : {4096, 10000, 1000000}) {
      if (times == 1000000 && std::string_view(piece).size() > 1) continue;
      EXPECT_FALSE(ConfigFile::parse(repeated(piece, times), "f.yaml").has_value()) << piece;
    }
  }
  EXPECT_EQ(refusal(repeated("[", 4096)).message, "this `[` is not closed");
  EXPECT_EQ(refusal(repeated("[", 4096) + repeated("]", 4096)).message,
            "more than 64 levels of nesting");
  EXPECT_EQ(refusal(repeated("[", 4097)).message, "more than 4096 brackets are open here");
}

// ---------------------------------------------------------------------------------------------
// Files.

TEST(ConfigCursor, a_file_is_read_whole_and_named_as_it_was_given) {
  const std::string path = testing::TempDir() + "config_cursor_test.yaml";
  const auto write = [&](const std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
    ASSERT_EQ(std::fclose(file), 0);
  };
  write("a: 1\n");
  auto file = ConfigFile::load(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->root().key("a").integer(), 1);
  EXPECT_EQ(file->root().key("a").place().text(), path + ":1:4");

  // 16 MiB exactly, as comments, and one byte more.
  constexpr std::size_t kLimit = 16 * 1024 * 1024;
  std::string text = "a: 1\n#";
  text.resize(kLimit, 'x');
  write(text);
  EXPECT_TRUE(ConfigFile::load(path).has_value());
  write(text + "x");
  const auto large = ConfigFile::load(path);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().message, path + " is larger than 16 MiB, the limit of a config file");
  std::remove(path.c_str());

  const auto absent = ConfigFile::load(path);
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(absent.error().message, "cannot open " + path + ": No such file or directory");
  const auto folder = ConfigFile::load(testing::TempDir());
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().message, "cannot read " + testing::TempDir() + ": Is a directory");
}

// ---------------------------------------------------------------------------------------------

TEST(NearestWord, a_third_of_the_letters_may_differ) {
  const std::vector<std::string> known = {"batch", "layers", "width", "heads", "id"};
  EXPECT_EQ(nearest_word("batch", known), "batch");
  EXPECT_EQ(nearest_word("batchh", known), "batch");   // inserted
  EXPECT_EQ(nearest_word("layer", known), "layers");   // deleted
  EXPECT_EQ(nearest_word("widht", known), "width");    // swapped: one step, not two
  EXPECT_EQ(nearest_word("heaps", known), "heads");    // replaced
  EXPECT_EQ(nearest_word("LAYERS", known), "layers");  // case is free
  EXPECT_EQ(nearest_word("leyer", known), "layers");   // 2 of 6 letters
  EXPECT_EQ(nearest_word("leyor", known), "");         // 3 of 6 letters
  EXPECT_EQ(nearest_word("ie", known), "id");          // 1 of 2 letters
  EXPECT_EQ(nearest_word("xy", known), "");
  EXPECT_EQ(nearest_word("a", {"b"}), "");  // never all letters
  EXPECT_EQ(nearest_word("", {"b", ""}), "");
  EXPECT_EQ(nearest_word("bat", {"bar", "cat"}), "bar");   // equally near: the first
  EXPECT_EQ(nearest_word("caat", {"bat", "cat"}), "cat");  // the nearer one
  EXPECT_EQ(nearest_word(std::string(64, 'a'), {std::string(63, 'a')}), std::string(63, 'a'));
  EXPECT_EQ(nearest_word(std::string(65, 'a'), {std::string(64, 'a')}), "");
  EXPECT_EQ(nearest_word(std::string(64, 'a'), {std::string(65, 'a')}), "");
}

}  // namespace
}  // namespace longhaul
