#include "tools/what_if_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul {
namespace {

using How = Change::How;

Edit edit(std::string_view text) {
  Result<Edit> parsed = parse_edit(text);
  EXPECT_TRUE(parsed) << parsed.error().text();
  return parsed.value_or(Edit{});
}

TEST(WhatIfGrammar, every_form_of_an_edit_is_read) {
  const struct {
    std::string_view text;
    EditVerb verb;
    std::string_view target;
    std::string_view to;
    Property property;
    How how;
    double number;
    std::string_view word;
  } cases[] = {
      // 500 Mbit/s are 62.5e6 B/s; times are in seconds.
      {"link a->b bandwidth 500Mbit/s", EditVerb::kLink, "a", "b", Property::kBandwidth, How::kSet,
       62.5e6, ""},
      {"link a->b bandwidth 500 Mbit/s", EditVerb::kLink, "a", "b", Property::kBandwidth, How::kSet,
       62.5e6, ""},
      {"link a -> b bandwidth *2", EditVerb::kLink, "a", "b", Property::kBandwidth, How::kTimes, 2,
       ""},
      {"link a-> b bandwidth * 2", EditVerb::kLink, "a", "b", Property::kBandwidth, How::kTimes, 2,
       ""},
      {"link a<->b latency +10%", EditVerb::kLink, "a", "b", Property::kLatency, How::kTimes, 1.1,
       ""},
      {"link us-west-2->* latency -25 %", EditVerb::kLink, "us-west-2", "*", Property::kLatency,
       How::kTimes, 0.75, ""},
      {"link *->b latency -5ms", EditVerb::kLink, "*", "b", Property::kLatency, How::kMinus, 0.005,
       ""},
      {"link * rtt /4", EditVerb::kLink, "*", "*", Property::kRoundTrip, How::kOver, 4, ""},
      {"link \"new york\"->b loss 0.01", EditVerb::kLink, "new york", "b", Property::kLoss,
       How::kSet, 0.01, ""},
      {"link * jitter 1ms", EditVerb::kLink, "*", "*", Property::kJitter, How::kSet, 0.001, ""},
      {"link * scope site_pair", EditVerb::kLink, "*", "*", Property::kScope, How::kWord, 0,
       "site_pair"},
      {"link * streams auto", EditVerb::kLink, "*", "*", Property::kStreams, How::kWord, 0, "auto"},
      {"inside * latency +0ms", EditVerb::kInside, "*", "", Property::kLatency, How::kPlus, 0, ""},
      {"site a uplink unlimited", EditVerb::kSite, "a", "", Property::kUplink, How::kWord, 0,
       "unlimited"},
      {"site a downlink 1 GB/s", EditVerb::kSite, "a", "", Property::kDownlink, How::kSet, 1e9, ""},
      {"site * egress 0.02 USD/GB", EditVerb::kSite, "*", "", Property::kEgress, How::kSet, 0.02e-9,
       ""},
      {"node * nic 8 Gbit/s", EditVerb::kNode, "*", "", Property::kNic, How::kSet, 1e9, ""},
      {"device a-1/0 speed *2", EditVerb::kDevice, "a-1/0", "", Property::kSpeed, How::kTimes, 2,
       ""},
      {"device v100 memory 16 GiB", EditVerb::kDevice, "v100", "", Property::kMemory, How::kSet,
       17179869184.0, ""},
      {"device * price 2 USD/h", EditVerb::kDevice, "*", "", Property::kPrice, How::kSet, 2, ""},
      {"device * failures 0.5", EditVerb::kDevice, "*", "", Property::kFailures, How::kSet, 0.5,
       ""},
      {"device v100 kind h100", EditVerb::kDevice, "v100", "", Property::kKind, How::kWord, 0,
       "h100"},
      {"tcp window unlimited", EditVerb::kTcp, "", "", Property::kWindow, How::kWord, 0,
       "unlimited"},
      {"tcp window 1 MB", EditVerb::kTcp, "", "", Property::kWindow, How::kSet, 1e6, ""},
      {"tcp streams 4", EditVerb::kTcp, "", "", Property::kStreams, How::kSet, 4, ""},
      {"tcp congestion cubic", EditVerb::kTcp, "", "", Property::kCongestion, How::kWord, 0,
       "cubic"},
      {"tcp wire_factor 1.05", EditVerb::kTcp, "", "", Property::kWireFactor, How::kSet, 1.05, ""},
      {"job batch.global 2048", EditVerb::kJob, "batch.global", "", Property::kJobValue, How::kWord,
       0, "2048"},
      {"job batch.global *2", EditVerb::kJob, "batch.global", "", Property::kJobValue, How::kTimes,
       2, ""},
      {"job precision bf16", EditVerb::kJob, "precision", "", Property::kJobValue, How::kWord, 0,
       "bf16"},
      {"percentile 95", EditVerb::kPercentile, "", "", Property::kPercentile, How::kSet, 95, ""},
      {"remove site london", EditVerb::kRemove, "london", "", Property::kBandwidth, How::kSet, 0,
       ""},
      {"remove link a<->b", EditVerb::kRemove, "a", "b", Property::kBandwidth, How::kSet, 0, ""},
      {"add site mumbai:8xa100,4xt4", EditVerb::kAdd, "mumbai", "", Property::kBandwidth, How::kSet,
       0, ""},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.text);
    const Edit read = edit(each.text);
    EXPECT_EQ(read.verb, each.verb);
    EXPECT_EQ(read.target.text, each.target);
    EXPECT_EQ(read.to.text,
              each.verb == EditVerb::kLink && each.target == "*" && each.to == "*" ? "*" : each.to);
    EXPECT_EQ(read.property, each.property);
    EXPECT_EQ(read.change.how, each.how);
    EXPECT_DOUBLE_EQ(read.change.number, each.number);
    EXPECT_EQ(read.change.word, each.word);
    EXPECT_EQ(read.text, each.text);
  }
  EXPECT_TRUE(edit("link a<->b bandwidth *2").both_ways);
  EXPECT_FALSE(edit("link a->b bandwidth *2").both_ways);
  EXPECT_EQ(edit("add site mumbai:8xa100,4xt4").devices, "8xa100,4xt4");
}

struct Wrong {
  std::string_view text;
  int column;  // 0: none
  std::string_view says;
  std::string_view hint = "";
};

template <class T>
void expect_wrong(const Wrong& wrong, const Result<T>& parsed) {
  SCOPED_TRACE(wrong.text);
  ASSERT_FALSE(parsed);
  const Error& error = parsed.error();
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  EXPECT_EQ(error.place.column, wrong.column) << error.text();
  EXPECT_TRUE(error.message.contains(wrong.says)) << error.message;
  EXPECT_TRUE(error.hint.contains(wrong.hint)) << error.hint;
}

TEST(WhatIfGrammar, wrong_edits_name_the_word_and_what_would_be_right) {
  const std::string long_text(5000, 'x');
  const Wrong cases[] = {
      {"", 1, "begins with what it changes", "link, inside"},
      {"lnk a->b bandwidth *2", 1, "no edit begins with `lnk`", "did you mean `link`?"},
      {"fast:link a->b bandwidth *2", 1, "no edit begins with `fast:link`",
       "a space after the colon"},
      {"link", 5, "needs its two ends"},
      {"link a bandwidth *2", 6, "`a` are not two ends"},
      {"link a-> ", 6, "lacks an end"},
      {"link ->b bandwidth *2", 6, "lacks an end"},
      {"link a->b->c bandwidth *2", 6, "more than two ends"},
      {"link a->b", 10, "needs a property", "bandwidth, latency"},
      {"link a->b bandwith *2", 11, "`bandwith` is not a property of a link",
       "did you mean `bandwidth`?"},
      {"link a->b nic 1 Gbit/s", 11, "`nic` is not a property of a link",
       "write `node NODE nic VALUE`"},
      {"inside a uplink 1 Gbit/s", 10, "not a property of a link", "write `site SITE"},
      {"site", 5, "`site` needs a name"},
      {"link a->b bandwidth", 20, "the value is missing"},
      {"link a->b bandwidth 100", 21, "has no unit", "bit/s"},
      {"link a->b bandwidth 100 Mbps", 21, "unknown unit", "Mbit/s for bits"},
      {"link a->b bandwidth 48 ms", 21, "unknown unit", "is a unit of duration"},
      {"link a->b bandwidth *0", 21, "must be more than 0"},
      {"link a->b bandwidth /0", 21, "must be more than 0"},
      {"link a->b bandwidth *-2", 21, "must be more than 0"},
      {"link a->b bandwidth *2x", 21, "`2x` is not a number"},
      {"link a->b bandwidth *", 21, "by how much?"},
      {"link a->b latency -100%", 19, "leaves nothing"},
      {"link a->b latency +x%", 19, "is not a number"},
      {"link a->b latency +-5ms", 19, "negative"},
      {"link a->b loss 1%", 16, "is a percentage", "0.01"},
      {"link a->b scope sitepair", 17, "none of the values", "did you mean `site_pair`"},
      {"link a->b scope pair", 17, "none of the values", "one of node, site_pair"},
      {"link a->b scope *2", 17, "a word cannot be changed"},
      {"link a->b streams many", 19, "is not a number", "auto"},
      {"site a uplink none", 15, "is not a rate", "unlimited"},
      {"device a kind *2", 15, "a word cannot be changed"},
      {"tcp congestion cubc", 16, "none of the values", "did you mean `cubic`"},
      {"tcp latency 1ms", 5, "not a property of a tcp", "write `link"},
      {"job", 4, "needs a key of the job file"},
      {"job batch.global", 17, "the value is missing"},
      {"percentile", 11, "the value is missing"},
      {"remove", 7, "what is to be removed?"},
      {"remove sites a", 8, "`sites` cannot be removed", "did you mean `site`?"},
      {"remove site", 12, "which site?"},
      {"remove site a b", 15, "nothing follows here"},
      {"add link a->b", 5, "`link` cannot be added"},
      {"add site mumbai", 10, "does not say which devices"},
      {"add site :8xa100", 10, "does not say which devices"},
      {"link \"a->b bandwidth *2", 6, "quote is not closed"},
      {"link a->b\tbandwidth *2", 10, "control character"},
      {long_text, 0, "more than 4096 bytes"},
      // Columns count characters: the arrow of `zürich->b` is one byte later than it looks.
      {"link zürich->b bandwith *2", 16, "`bandwith`"},
  };
  for (const Wrong& wrong : cases) expect_wrong(wrong, parse_edit(wrong.text));
  expect_wrong({"remove site a; ", 1, "begins with what it changes"},
               parse_edits("remove site a; "));
}

TEST(WhatIfGrammar, a_scenario_has_a_name_and_edits) {
  const Result<NamedEdits> named =
      parse_scenario("no London: remove site london; link * latency *2");
  ASSERT_TRUE(named) << named.error().text();
  EXPECT_EQ(named->name, "no London");
  ASSERT_EQ(named->edits.size(), 2u);
  EXPECT_EQ(named->edits[1].text, "link * latency *2");
  // A colon in a list of devices ends no name.
  const Result<NamedEdits> bare = parse_scenario("add site mumbai:8xa100");
  ASSERT_TRUE(bare) << bare.error().text();
  EXPECT_EQ(bare->name, "add site mumbai:8xa100");
  EXPECT_FALSE(parse_scenario(": remove site a"));
}

std::vector<std::string> texts_of(const Sweep& sweep) {
  std::vector<std::string> texts;
  for (const SweepPoint& point : sweep.points) texts.push_back(point.text);
  return texts;
}

TEST(WhatIfGrammar, a_range_is_spaced_evenly_or_in_its_logarithm) {
  // From 50 to 5000 in three steps of one factor: 50 x 100^(1/2) = 500.
  const Result<Sweep> rates = parse_sweep("link * bandwidth 50Mbit/s..5Gbit/s log 3");
  ASSERT_TRUE(rates) << rates.error().text();
  EXPECT_EQ(rates->axis, "link * bandwidth");
  EXPECT_EQ(rates->unit, "Mbit/s");
  EXPECT_TRUE(rates->is_log);
  EXPECT_EQ(texts_of(*rates),
            (std::vector<std::string>{"link * bandwidth 50 Mbit/s", "link * bandwidth 500 Mbit/s",
                                      "link * bandwidth 5000 Mbit/s"}));
  EXPECT_EQ(rates->points[1].x, 500);
  const Result<Sweep> latencies = parse_sweep("link a->b latency 0 ms .. 1 s lin 5");
  ASSERT_TRUE(latencies) << latencies.error().text();
  EXPECT_FALSE(latencies->is_log);
  EXPECT_EQ(latencies->unit, "ms");
  EXPECT_EQ(latencies->points[1].x, 250);
  EXPECT_EQ(latencies->points[4].text, "link a->b latency 1000 ms");
  const Result<Sweep> plain = parse_sweep("percentile 5..95 10");
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_EQ(plain->points.size(), 10u);
  EXPECT_EQ(plain->points[1].text, "percentile 15");
}

TEST(WhatIfGrammar, a_sweep_of_factors_says_so_on_its_axis) {
  // 0.25 x 16^(i/8): 0.25, 0.353553, 0.5, ..., 4; the middle one is 1.
  const Result<Sweep> factors = parse_sweep("device * speed *0.25..*4 log 9");
  ASSERT_TRUE(factors) << factors.error().text();
  EXPECT_EQ(factors->axis, "device * speed (factor)");
  EXPECT_EQ(factors->unit, "");
  ASSERT_EQ(factors->points.size(), 9u);
  EXPECT_EQ(factors->points[1].text, "device * speed *0.353553");
  EXPECT_EQ(factors->points[4].text, "device * speed *1");
  const Result<Sweep> added = parse_sweep("link * latency +5ms..+15ms lin 3");
  ASSERT_TRUE(added) << added.error().text();
  EXPECT_EQ(added->axis, "link * latency (added)");
  EXPECT_EQ(added->points[1].text, "link * latency +10 ms");
  EXPECT_EQ(added->points[1].x, 10);
}

TEST(WhatIfGrammar, lists_may_hold_numbers_or_words) {
  const Result<Sweep> counts = parse_sweep("job batch.global 256, 512,1024");
  ASSERT_TRUE(counts) << counts.error().text();
  EXPECT_EQ(texts_of(*counts),
            (std::vector<std::string>{"job batch.global 256", "job batch.global 512",
                                      "job batch.global 1024"}));
  EXPECT_EQ(counts->points[2].x, 1024);
  const Result<Sweep> words = parse_sweep("job compression.activations none,bf16,int8");
  ASSERT_TRUE(words) << words.error().text();
  EXPECT_EQ(words->points.size(), 3u);
  EXPECT_FALSE(words->points[0].x.has_value());
  const Result<Sweep> mixed = parse_sweep("link * bandwidth 100 Mbit/s,1 Gbit/s");
  ASSERT_TRUE(mixed) << mixed.error().text();
  EXPECT_FALSE(mixed->points[0].x.has_value()) << "different units have no common axis";
  const Result<Sweep> gone = parse_sweep("remove site a,b");
  ASSERT_TRUE(gone) << gone.error().text();
  EXPECT_EQ(texts_of(*gone), (std::vector<std::string>{"remove site a", "remove site b"}));
  EXPECT_EQ(parse_sweep("remove node *")->every, "node");
}

TEST(WhatIfGrammar, counts_in_a_range_stay_whole_and_each_comes_once) {
  const Result<Sweep> streams = parse_sweep("tcp streams 1..4 log 9");
  ASSERT_TRUE(streams) << streams.error().text();
  EXPECT_EQ(texts_of(*streams), (std::vector<std::string>{"tcp streams 1", "tcp streams 2",
                                                          "tcp streams 3", "tcp streams 4"}));
}

TEST(WhatIfGrammar, the_largest_range_is_read_and_one_more_point_is_not) {
  EXPECT_EQ(parse_sweep("percentile 0..100 lin 10000")->points.size(), 10000u);
  EXPECT_FALSE(parse_sweep("percentile 0..100 lin 10001"));
  EXPECT_EQ(parse_sweep("percentile 0..100 lin 2")->points.size(), 2u);
}

TEST(WhatIfGrammar, wrong_sweeps_name_what_is_wrong) {
  const Wrong cases[] = {
      {"link * bandwidth", 17, "needs values"},
      {"link * bandwith 1..2", 8, "`bandwith` is not a property"},
      {"link * bandwidth 50Mbit/s..5Gbit/s", 18, "needs its number of points"},
      {"link * bandwidth 50Mbit/s..5Gbit/s log", 18, "`log` is not a number of points"},
      {"link * bandwidth 50Mbit/s..5Gbit/s log 1", 18, "2 to 10000 points"},
      {"link * bandwidth 50Mbit/s..5Gbit/s log 20000", 18, "2 to 10000 points"},
      {"link * bandwidth 50Mbit/s..5Gbit/s log 2.5", 18, "not a number of points"},
      {"link * bandwidth 50Mbit/s..5Gbit/s lug 12", 18, "`lug` is neither lin nor log"},
      {"link * bandwidth 5Gbit/s..50Mbit/s log 12", 18, "does not rise", "smaller end"},
      {"link * bandwidth 50..5000Mbit/s log 12", 18, "has no unit"},
      {"link * bandwidth 50Mbit/s..5000 log 12", 18, "has no unit"},
      {"link * bandwidth *0.5..2Gbit/s log 12", 18, "in different ways"},
      {"link * bandwidth *0.5../2 log 12", 18, "in different ways"},
      {"link * bandwidth *0..*2 lin 3", 18, "must be more than 0"},
      {"link * bandwidth ..5Gbit/s log 12", 18, "no first end"},
      {"link * bandwidth 5Gbit/s.. log 12", 18, "no second end"},
      {"link * latency 0ms..10ms log 3", 16, "has no logarithm"},
      {"link * latency +5%..+5ms lin 3", 16, "different units"},
      {"link * scope node..site_pair lin 2", 14, "nothing between them"},
      {"job precision fp16..bf16 lin 2", 15, "cannot be the end of a range"},
      {"job batch.global 1,,2", 18, "empty value"},
      {"tcp streams 1,two", 13, "is not a number"},
      {"add site a:8xv100", 18, "cannot be swept"},
      {"remove site a b", 15, "nothing follows here"},
      {"remove site a,", 13, "which site?"},
  };
  for (const Wrong& wrong : cases) expect_wrong(wrong, parse_sweep(wrong.text));
}

}  // namespace
}  // namespace longhaul
