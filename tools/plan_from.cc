#include "tools/plan_from.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/quantity.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

const Migration& move_of(const WarmStart& from) {
  return from.kept ? from.old_move : from.move;
}

/// "0-3, 7"
std::string ranges_text(const std::set<int>& layers) {
  std::vector<std::string> ranges;
  for (auto first = layers.begin(); first != layers.end();) {
    auto last = first;
    while (std::next(last) != layers.end() && *std::next(last) == *last + 1) ++last;
    ranges.push_back(first == last ? fmt::format("{}", *first)
                                   : fmt::format("{}-{}", *first, *last));
    first = std::next(last);
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

/// A row for each pair of sites; empty where nothing moves.
std::string move_table(const Migration& migration, const Topology& topology) {
  struct Between {
    std::set<int> layers;
    bool ends = false;
    Bytes bytes;
  };
  std::map<std::tuple<int, int, bool>, Between> pairs;  // sites, from the checkpoint
  for (const Move& move : migration.moves) {
    Between& between = pairs[{topology.site_of(move.from_device), topology.site_of(move.to_device),
                              move.from_checkpoint}];
    between.layers.insert(move.layers.begin(), move.layers.end());
    between.ends = between.ends || move.ends;
    between.bytes += move.bytes;
  }
  if (pairs.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"moves", "layers", "size"}};
  for (const auto& [pair, between] : pairs) {
    const auto& [from, to, from_checkpoint] = pair;
    const auto name = [&](int site) { return topology.sites[static_cast<std::size_t>(site)].name; };
    std::string layers = ranges_text(between.layers);
    if (between.ends) layers += layers.empty() ? "ends" : ", ends";
    rows.push_back(
        {fmt::format("{}{} -> {}", name(from), from_checkpoint ? " (checkpoint)" : "", name(to)),
         layers, format_size(between.bytes)});
  }
  return aligned(rows);
}

}  // namespace

std::string warm_start_text(const Outcome& outcome, const PlanOptions& options,
                            const Topology& topology) {
  const WarmStart& from = *outcome.from;
  std::string text = fmt::format("plan in use {}: ", options.from);
  text += from.old ? fmt::format("step {} on this cluster", format_duration(from.old->step.step))
                   : std::string("cannot be used on this cluster");
  if (!outcome.gone.empty()) text += fmt::format("; gone: {}", fmt::join(outcome.gone, ", "));
  const auto moving = [](const Migration& migration) {
    return migration.moves.empty() ? std::string("nothing moves")
                                   : fmt::format("moving {} takes {}", format_size(migration.bytes),
                                                 format_duration(migration.time));
  };
  const std::string found = format_duration(from.other.step.step);
  if (from.kept && std::isinf(from.pays_after)) {
    text += fmt::format("\nkept: no plan that was found has a shorter step; {}\n",
                        moving(from.old_move));
  } else if (from.kept) {
    text +=
        fmt::format("\nkept: the best other has a step of {}, but {}, more than it saves in {}\n",
                    found, moving(from.move), options.horizon);
  } else {
    text += fmt::format("\nnew plan: step {}; {}", found, moving(from.move));
    if (std::isfinite(from.pays_after) && from.pays_after > 0)
      text += fmt::format(" and pays after {:.0f} step{}", from.pays_after,
                          from.pays_after == 1 ? "" : "s");
    text += "\n";
  }
  return text + move_table(move_of(from), topology);
}

std::string warm_start_json(const Outcome& outcome, const PlanOptions& options,
                            const Topology& topology) {
  const WarmStart& from = *outcome.from;
  const Migration& migration = move_of(from);
  nlohmann::ordered_json out;
  out["plan"] = options.from;
  out["gone"] = outcome.gone;
  out["horizon_s"] = parse_duration(options.horizon)->value();
  if (from.old) out["old_step_s"] = from.old->step.step.value();
  out["found_step_s"] = from.other.step.step.value();
  out["found_move_s"] = from.move.time.value();
  if (std::isfinite(from.pays_after)) out["pays_after_steps"] = from.pays_after;
  out["kept"] = from.kept;
  out["move_s"] = migration.time.value();
  out["bytes_moved"] = migration.bytes.value();
  out["moves"] = nlohmann::ordered_json::array();
  for (const Move& move : migration.moves) {
    const auto name = [&](int device) {
      return topology.devices[static_cast<std::size_t>(device)].name;
    };
    out["moves"].push_back({{"from", name(move.from_device)},
                            {"to", name(move.to_device)},
                            {"from_checkpoint", move.from_checkpoint},
                            {"layers", move.layers},
                            {"ends", move.ends},
                            {"bytes", move.bytes.value()}});
  }
  return out.dump();
}

}  // namespace longhaul
