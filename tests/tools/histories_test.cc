#include "tools/histories.h"

#include <gtest/gtest.h>

#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

/// Two stages at two sites, 20 samples; a history is 8 x 16 numbers, 256 bytes.
RunSpec spec_with(Codec activations, const HistorySettings& history) {
  fixtures::RunOptions options;
  options.layers = {1, 1};
  options.micro_batches = {4};
  options.activations = activations;
  const DataIdentity data{1, 161, 16, 8};
  RunSpec spec = fixtures::spec_of(options, data, data);
  if (has_history(activations)) spec.job.history = history;
  return spec;
}

TEST(Histories, a_launch_says_what_room_they_take) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(history_lines(spec_with(Codec::kInt8, {})), Lines{});
  EXPECT_EQ(history_lines(spec_with(Codec::kAqInt3, {.samples = 20})),
            (Lines{"histories: 5 KiB of memory and 0 B of disk at the fullest worker"}));
  // 4 in memory, 6 on disk; and another text than the plan was made for.
  EXPECT_EQ(history_lines(spec_with(
                Codec::kAqInt3, {.memory = bytes(4 * 256), .disk = bytes(6 * 256), .samples = 30})),
            (Lines{"histories: 1 KiB of memory and 1.5 KiB of disk at the fullest worker",
                   "note: histories have room for 50 % of the samples; the others travel as on a "
                   "first visit",
                   "note: the data has 20 samples, and the plan was made for the 30 of the job's "
                   "`compression.history`"}));
}

}  // namespace
}  // namespace longhaul
