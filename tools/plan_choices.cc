#include "tools/plan_choices.h"

#include <nlohmann/json.hpp>

#include "core/plan_choices.h"
#include "tools/tables.h"

namespace longhaul {

std::string choices_table(const Plan& plan, const Topology& topology, const Job& job) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, text] : shown_choices(plan, topology, job)) rows.push_back({name, text});
  return rows.empty() ? "" : aligned(rows);
}

std::string choices_json(const Plan& plan, const Topology& topology, const Job& job) {
  using Json = nlohmann::ordered_json;
  Json json;
  const auto site = [&](int index) { return topology.sites[static_cast<std::size_t>(index)].name; };
  json["recompute"] = recomputes(plan, job);
  json["codecs"] = Json::array();
  for (const PairCodec& pair : plan.activation_codecs) {
    json["codecs"].push_back({{"between", {site(pair.site), site(pair.other)}},
                              {"activations", name_of(pair.codec)},
                              {"activation_gradients", name_of(activation_gradient_codec(
                                                           plan, job, pair.site, pair.other))}});
  }
  json["reductions"] = Json::array();
  for (int i = 0; i < static_cast<int>(plan.reductions.size()); ++i) {
    const Reduction reduction = reduction_of(plan, job, i);
    Json row = i < plan.stages() ? Json{{"stage", i}} : Json{{"tied", true}};
    row["shape"] = name_of(reduction.shape);
    row["shares"] = reduction.shares;
    row["codec"] = name_of(reduction.codec);
    json["reductions"].push_back(std::move(row));
  }
  return json.dump();
}

}  // namespace longhaul
