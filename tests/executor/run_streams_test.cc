// Which ranks of a run join by several streams.
#include <nlohmann/json.hpp>

#include "executor/run/run_spec.h"
#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

/// 2 pipelines of 3 stages; site 0 has the first stages, site 1 the others of pipeline 0, site 2
/// those of pipeline 1.
///
///   rank (site)    1 (0)  2 (1)  3 (1)
///                  4 (0)  5 (2)  6 (2)
RunSpec spec_with(std::vector<StreamCount> streams, bool tied = true) {
  const DataIdentity data = {1, 161, 16, 8};
  RunSpec spec = fixtures::spec_of(
      {.layers = {1, 1, 1}, .micro_batches = {1, 1}, .tied = tied, .steps = 9}, data, data);
  const int sites[] = {0, 0, 1, 1, 0, 2, 2};  // by rank; the coordinator in site 0
  for (std::size_t rank = 0; rank < spec.ranks.size(); ++rank) spec.ranks[rank].site = sites[rank];
  spec.streams = std::move(streams);
  return spec;
}

TEST(RunStreams, are_those_between_the_sites_of_ranks_that_exchange_tensors) {
  const RunSpec spec = spec_with({{0, 1, 4}, {0, 2, 8}, {1, 2, 64}});
  // Rank 1: rank 2 is its neighbour; 3 and 6 are the heads of the tied embedding; 4 is in its site;
  // 5 gives it nothing, nor does the coordinator.
  EXPECT_EQ(streams_of(spec, 1), (std::vector<int>{1, 1, 4, 4, 1, 1, 8}));
  // Rank 2: rank 1 is its neighbour, as is 3 in its site; 5 is the other replica.
  EXPECT_EQ(streams_of(spec, 2), (std::vector<int>{1, 4, 1, 1, 1, 64, 1}));
  EXPECT_EQ(streams_of(spec, 3), (std::vector<int>{1, 4, 1, 1, 4, 1, 64}));
  EXPECT_EQ(streams_of(spec, kCoordinatorRank), std::vector<int>(7, 1));
  // Without a tied embedding the ends of the pipelines have nothing to do with each other.
  EXPECT_EQ(streams_of(spec_with(spec.streams, false), 1), (std::vector<int>{1, 1, 4, 1, 1, 1, 1}));
  EXPECT_EQ(streams_of(spec_with({}), 1), std::vector<int>(7, 1));
}

TEST(RunStreams, both_ends_count_the_same) {
  const RunSpec spec = spec_with({{0, 1, 4}, {0, 2, 8}, {1, 2, 64}});
  for (int rank = 0; rank <= spec.cells(); ++rank) {
    for (int other = 0; other <= spec.cells(); ++other) {
      EXPECT_EQ(streams_of(spec, rank)[static_cast<std::size_t>(other)],
                streams_of(spec, other)[static_cast<std::size_t>(rank)])
          << rank << " " << other;
    }
  }
}

TEST(RunStreams, rates_are_those_of_the_way_there) {
  const BytesPerSecond there(100), back(70), none = BytesPerSecond::infinity();
  const RunSpec spec = spec_with({{0, 1, 1, there, back}, {1, 2, 4}});
  // Rank 1 in site 0, ranks 2 and 3 in site 1; 3 is the head of 1's tied embedding, and of 4's.
  EXPECT_EQ(link_rates_of(spec, 1),
            (std::vector<BytesPerSecond>{none, none, there, there, none, none, none}));
  EXPECT_EQ(link_rates_of(spec, 3),
            (std::vector<BytesPerSecond>{none, back, none, none, back, none, none}));
  const auto again = parse_run_spec(run_spec_text(spec));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(link_rates_of(*again, 3), link_rates_of(spec, 3));
  EXPECT_EQ(link_rates_of(spec, kCoordinatorRank), std::vector<BytesPerSecond>(7, none));
}

TEST(RunStreams, come_back_from_the_text_and_are_checked) {
  const RunSpec spec = spec_with({{0, 1, 1}, {1, 2, 64}});
  const std::string text = run_spec_text(spec);
  const auto again = parse_run_spec(text);
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(run_spec_text(*again), text);
  ASSERT_EQ(again->streams.size(), 2u);
  EXPECT_EQ(again->streams[1].streams, 64);
  EXPECT_EQ(run_spec_text(spec_with({})).find("streams"), std::string::npos);

  struct Row {
    const char* at;  // JSON pointer
    Json value;
    const char* message;
  };
  const char* const unsound = "the run's streams between sites are not 1 to 64 for each pair once";
  const Row rows[] = {
      {"/streams", 7, "cannot be read"},
      {"/streams/0", {0, 1, 1}, "cannot be read"},
      {"/streams/0/streams", 0, unsound},
      {"/streams/0/streams", 65, unsound},
      {"/streams/0/rate", 0, unsound},
      {"/streams/0/rate_back", -1, unsound},
      {"/streams/0/rate", "fast", "cannot be read"},
      {"/streams/0/streams", 1.5, "not whole or not in its range"},
      {"/streams/0/site", 1, unsound},  // a site and itself
      {"/streams/0/site", 2, unsound},  // the higher one first
      {"/streams/0", Json(spec.streams.size()), "cannot be read"},
      {"/streams/0", Json::parse(text)["streams"][1], unsound},  // a pair twice
  };
  for (const Row& row : rows) {
    Json bad = Json::parse(text);
    bad[Json::json_pointer(row.at)] = row.value;
    const auto parsed = parse_run_spec(bad.dump());
    ASSERT_FALSE(parsed) << row.at << row.value;
    EXPECT_NE(parsed.error().message.find(row.message), std::string::npos)
        << row.at << " " << parsed.error().message;
  }
}

}  // namespace
}  // namespace longhaul
