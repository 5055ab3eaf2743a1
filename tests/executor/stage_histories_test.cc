// Which boundaries of a run's cells have histories, their room, and their files.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/run/stage_histories.h"
#include "kernels/codec/crc32c.h"
#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Three stages of 1, 2 and 1 layers, two pipelines of 2 micro-batches of 1: the batch is 4. 160
/// sequences, of which each pipeline has the half.
RunSpec spec_with(Codec activations) {
  const RunOptions options = {
      .layers = {1, 2, 1}, .micro_batches = {2, 2}, .activations = activations};
  const DataIdentity train{.fingerprint = 1, .tokens = 8 * 160 + 1, .vocabulary = 16, .context = 8};
  return spec_of(options, train, train);
}

AqBoundary::Edge edge_to(const RunSpec& spec, int cell, int peer) {
  for (const AqBoundary::Edge& edge : history_edges(spec, cell, "/here")) {
    if (edge.peer == peer) return edge;
  }
  ADD_FAILURE() << "no edge from " << cell << " to " << peer;
  return {};
}

TEST(HistoryEdges, stage_has_one_towards_each_neighbour_of_another_site) {
  const RunSpec spec = spec_with(Codec::kAqInt3);
  EXPECT_EQ(history_edges(spec, 0, "").size(), 1u);
  EXPECT_EQ(history_edges(spec, 1, "").size(), 2u);
  EXPECT_EQ(history_edges(spec, 2, "").size(), 1u);  // cell 3 begins the other pipeline
  const AqBoundary::Edge edge = edge_to(spec, 1, 2);
  EXPECT_EQ(edge.codec, Codec::kAqInt3);
  EXPECT_EQ(edge.first_visit, Codec::kBf16);
  EXPECT_EQ(edge.steps_per_epoch, 40u);
  EXPECT_EQ(edge.histories.elements, 8u * 16);
  EXPECT_EQ(edge.histories.capacity, 80u);
  EXPECT_EQ(edge.histories.in_memory, 80u);
  EXPECT_EQ(edge.histories.folder, "/here");
}

TEST(HistoryEdges, both_ends_agree_on_all_but_where_histories_lie) {
  const RunSpec spec = spec_with(Codec::kAqInt4);
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {3, 4}, {4, 5}}) {
    const AqBoundary::Edge sender = edge_to(spec, from, to);
    const AqBoundary::Edge receiver = edge_to(spec, to, from);
    EXPECT_EQ(sender.layout, receiver.layout);
    EXPECT_EQ(sender.histories.capacity, receiver.histories.capacity);
    EXPECT_EQ(sender.first_visit, receiver.first_visit);
  }
  EXPECT_NE(edge_to(spec, 0, 1).layout, edge_to(spec, 1, 2).layout);
  // The same layers in another pipeline: the same layout, of other samples.
  EXPECT_EQ(edge_to(spec, 0, 1).layout, edge_to(spec, 3, 4).layout);
}

TEST(HistoryEdges, there_are_none_inside_a_site_or_without_such_a_codec) {
  EXPECT_TRUE(history_edges(spec_with(Codec::kInt8), 1, "").empty());
  RunSpec spec = spec_with(Codec::kAqInt4);
  spec.ranks[2].site = spec.ranks[1].site;  // cells 0 and 1
  EXPECT_TRUE(history_edges(spec, 0, "").empty());
  ASSERT_EQ(history_edges(spec, 1, "").size(), 1u);
  EXPECT_EQ(history_edges(spec, 1, "").front().peer, 2);
}

TEST(StageHistories, come_back_from_a_checkpoints_folder) {
  const RunSpec spec = spec_with(Codec::kAqInt4);
  SimStorage storage;
  const auto make = [&] {
    return AqBoundary::make(CodecBoundary(std::vector<Codec>(6, Codec::kInt8)),
                            history_edges(spec, 1, "/"), storage)
        .value();
  };
  const auto format = make();
  // A history at each boundary of cell 1, of samples 3 and 5.
  for (const auto& [peer, sample] : std::vector<std::pair<int, std::uint64_t>>{{0, 3}, {2, 5}}) {
    HistoryStore& store = *format->store(peer);
    History& history = *store.admit(sample);
    const HistoryStore::Change change = store.begin_change(history);
    std::ranges::fill(store.values(change), std::uint16_t{7});
    const std::uint32_t crc = crc32c(std::as_bytes(store.values(change)));
    store.end_change(change, {.hash = 9, .values_crc = crc, .visits = 1, .step = 1});
  }
  ASSERT_TRUE(save_histories(storage, "/checkpoint", spec, 1, *format));
  EXPECT_EQ(storage.files(),
            (std::vector<std::string>{"/checkpoint/history-0-layer-0001-receiver.safetensors",
                                      "/checkpoint/history-0-layer-0003-sender.safetensors"}));
  const auto again = make();
  ASSERT_TRUE(load_histories(storage, "/checkpoint", spec, 1, *again));
  EXPECT_NE(again->store(0)->find(3), nullptr);
  EXPECT_NE(again->store(2)->find(5), nullptr);
  const auto third = make();
  ASSERT_TRUE(load_histories(storage, "/elsewhere", spec, 1, *third));
  EXPECT_EQ(third->store(0)->size(), 0u);
  storage.put("/checkpoint/history-0-layer-0003-sender.safetensors", "x");
  const auto refused = load_histories(storage, "/checkpoint", spec, 1, *third);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().hint, "remove the file: without it the histories are made anew");
}

}  // namespace
}  // namespace longhaul
