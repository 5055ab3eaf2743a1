// How far an interrupted `data prepare` came: prepare.yaml in its folder, until dataset.yaml is
// there. It is written whenever a shard is whole and on the disk.
//
//   schema: longhaul/prepare/1
//   job: "8c0e..."        # of inputs, tokenizer and options
//   part: train           # the one at work
//   from: 104857600       # byte of the inputs at which encoding goes on
//   skip: 345             # tokens from there on that are in whole shards already
//   train: {shards: 3, tokens: 100663296, documents: 71, text_bytes: 104857600}
//   validation: {shards: 0, tokens: 0, documents: 0, text_bytes: 0}
//
// Of the part at work, shards and tokens are those on the disk, the others what lies before `from`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace longhaul {

inline constexpr std::string_view kPrepareStateFile = "prepare.yaml";

struct PrepareState {
  struct Part {
    std::int64_t shards = 0;
    std::int64_t tokens = 0;
    std::int64_t documents = 0;
    std::int64_t text_bytes = 0;
  };
  std::uint64_t job = 0;
  bool in_validation = false;
  std::int64_t from = 0;
  std::int64_t skip = 0;
  Part train = {};
  Part validation = {};

  Part& at_work() { return in_validation ? validation : train; }
};

std::string prepare_state_text(const PrepareState& state);
Result<PrepareState> parse_prepare_state(std::string_view text, const std::string& file);

}  // namespace longhaul
