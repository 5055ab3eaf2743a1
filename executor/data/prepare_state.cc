#include "executor/data/prepare_state.h"

#include <fmt/core.h>

#include "core/config_cursor.h"
#include "executor/data/dataset.h"

namespace longhaul {
namespace {

constexpr std::string_view kSchema = "longhaul/prepare/1";

std::string part_text(std::string_view name, const PrepareState::Part& part) {
  return fmt::format("{}: {{shards: {}, tokens: {}, documents: {}, text_bytes: {}}}\n", name,
                     part.shards, part.tokens, part.documents, part.text_bytes);
}

PrepareState::Part read_part(const Cursor& at) {
  return {at.key("shards").integer({.min = 0}), at.key("tokens").integer({.min = 0}),
          at.key("documents").integer({.min = 0}), at.key("text_bytes").integer({.min = 0})};
}

}  // namespace

std::string prepare_state_text(const PrepareState& state) {
  return fmt::format("schema: {}\njob: \"{:016x}\"\npart: {}\nfrom: {}\nskip: {}\n", kSchema,
                     state.job, state.in_validation ? "validation" : "train", state.from,
                     state.skip) +
         part_text("train", state.train) + part_text("validation", state.validation);
}

Result<PrepareState> parse_prepare_state(std::string_view text, const std::string& file) {
  LH_ASSIGN(ConfigFile config, ConfigFile::parse(text, file));
  config.expect_schema(kSchema);
  const Cursor root = config.root();
  PrepareState state;
  state.job = read_fingerprint(root.key("job"));
  const Cursor part = root.key("part");
  const std::string name = part.text();
  state.in_validation = name == "validation";
  if (!state.in_validation && name != "train" && part.present()) part.fail("train or validation");
  state.from = root.key("from").integer({.min = 0});
  state.skip = root.key("skip").integer({.min = 0});
  state.train = read_part(root.key("train"));
  state.validation = read_part(root.key("validation"));
  LH_TRY(config.finish());
  return state;
}

}  // namespace longhaul
