#include "core/plan_choices.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "core/quantity.h"

namespace longhaul {
namespace {

constexpr double kSumError = 1e-6;  // of shares that a person rounded
constexpr ReduceShape kShapes[] = {ReduceShape::kSharded, ReduceShape::kRing,
                                   ReduceShape::kHierarchical};

const std::string& site_name(const Topology& topology, int site) {
  return topology.sites[static_cast<std::size_t>(site)].name;
}

void read_recompute(const Cursor& at, const Job& job, Plan& plan) {
  plan.recompute = at.boolean(false);
  if (!at.is_scalar() || job.recompute == Recompute::kAuto) return;
  const bool wanted = job.recompute == Recompute::kYes;
  if (plan.recompute == wanted) return;
  at.fail(fmt::format("the plan says `recompute: {}`, the job `recompute: {}`", plan.recompute,
                      wanted ? "yes" : "no"),
          "leave it out of the plan, or write `recompute: auto` in the job");
}

/// A codec, of what the job has under the key `name`.
Codec read_codec(const Cursor& at, std::string_view name, const Job& job, CodecUse use) {
  const Codec own = own_codec(job, use);
  if (!at.present()) return own;
  std::vector<std::string_view> names;
  for (const Codec codec : kCodecs) names.push_back(name_of(codec));
  const Codec codec = kCodecs[at.choice(names, static_cast<std::size_t>(own))];
  if (allows(job, use, codec)) return codec;
  if (!is_auto(job, use)) {
    at.fail(fmt::format("the plan's codec is {}, the job says `{}: {}`", name_of(codec), name,
                        name_of(own)),
            fmt::format("write `{}: auto` in the job to leave it to the plan", name));
  } else if (const char* const reason = unfit_reason(codec, use)) {
    at.fail(fmt::format("{} cannot be a codec of {}: {}", name_of(codec), name, reason));
  } else if (has_history(codec) && !job.history) {
    at.fail(fmt::format("{} keeps a history, and the job has no room for one", name_of(codec)),
            "give the job's `compression` a `history`");
  } else {
    at.fail(fmt::format("{} is coarser than {}, the floor of the job's {}", name_of(codec),
                        name_of(own), name),
            fmt::format("take {} or finer, or lower the job's `floor`", name_of(own)));
  }
  return own;
}

void read_codecs(const Cursor& at, const Topology& topology, const Job& job, Plan& plan) {
  std::vector<std::string> names;
  for (const Site& site : topology.sites) names.push_back(site.name);
  std::set<std::pair<int, int>> seen;
  for (const Cursor& row : at.items()) {
    const Cursor between = row.key("between");
    std::vector<int> sites;
    for (const Cursor& item : between.items()) {
      const std::string name = item.text();
      const int site = topology.find_site(name);
      if (item.is_scalar() && site < 0) {
        item.fail(fmt::format("cluster `{}` has no site `{}`", topology.name, name),
                  did_you_mean(name, names));
      }
      sites.push_back(site);
    }
    PairCodec pair;
    pair.codec = read_codec(row.key("activations"), "activations", job, CodecUse::kActivations);
    if (const Cursor gradients = row.optional("activation_gradients"); gradients.present()) {
      pair.gradients =
          read_codec(gradients, "activation_gradients", job, CodecUse::kActivationGradients);
    }
    if (sites.size() != 2 || std::ranges::min(sites) < 0) {
      if (!sites.empty() && sites.size() != 2) {
        between.fail(fmt::format("`between` takes two sites, not {}", sites.size()));
      }
      continue;
    }
    const auto [low, high] = std::minmax(sites[0], sites[1]);
    if (low == high) {
      between.fail("codecs act between two sites", "name two different ones");
    } else if (!seen.emplace(low, high).second) {
      between.fail(fmt::format("{} and {} have a codec already", site_name(topology, low),
                               site_name(topology, high)));
    } else if (pair.codec != job.activations || pair.gradients) {
      pair.site = low;
      pair.other = high;
      plan.activation_codecs.push_back(pair);
    }
  }
  std::ranges::sort(plan.activation_codecs, {},
                    [](const PairCodec& pair) { return std::pair(pair.site, pair.other); });
}

std::vector<double> read_shares(const Cursor& at, ReduceShape shape, std::size_t members) {
  std::vector<double> shares;
  constexpr double kWrong = std::numeric_limits<double>::quiet_NaN();
  for (const Cursor& item : at.items()) shares.push_back(item.number({.min = 0, .max = 1}, kWrong));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  // A share that is no number is one error, and none of the sum.
  if (shares.empty() || std::isnan(sum)) return {};
  if (shape != ReduceShape::kSharded) {
    at.fail(fmt::format("a {} exchange has equal parts", name_of(shape)),
            "leave `shares` out, or use shape sharded");
  } else if (shares.size() != members) {
    at.fail(fmt::format("{} shares for {} members", shares.size(), members),
            "write one a pipeline; for the tied embedding those of the last "
            "stage, then those of "
            "the first");
  } else if (std::abs(sum - 1) > kSumError) {
    at.fail(fmt::format("the shares add up to {}, not to 1", format_exact(sum)));
  }
  return shares;
}

void read_reductions(const Cursor& at, const Job& job, Plan& plan) {
  const bool is_tied = has_tied_exchange(plan, job);
  const auto count = static_cast<std::size_t>(plan.stages() + (is_tied ? 1 : 0));
  const Reduction usual{.codec = job.gradients};
  std::vector<Reduction> reductions(count, usual);
  std::set<std::size_t> seen;
  for (const Cursor& row : at.items()) {
    const Cursor tied = row.optional("tied");
    const Cursor stage_at = row.optional("stage");
    const bool for_tied = tied.boolean(false);
    auto stage = static_cast<std::size_t>(plan.stages());
    std::size_t members = 2 * plan.devices.size();
    bool sound = true;
    if (for_tied == stage_at.present()) {
      row.fail("a reduction is of a stage or of the tied embedding",
               "write `stage: 0` or `tied: true`");
      sound = false;
    } else if (for_tied && !is_tied) {
      tied.fail("no embedding is tied over two stages here");
      sound = false;
    } else if (!for_tied) {
      stage = static_cast<std::size_t>(
          stage_at.integer({.min = 0, .max = std::max(0, plan.stages() - 1)}));
      members = plan.devices.size();
    }
    Reduction reduction;
    reduction.shape = kShapes[row.optional("shape").choice(
        {name_of(kShapes[0]), name_of(kShapes[1]), name_of(kShapes[2])})];
    reduction.shares = read_shares(row.optional("shares"), reduction.shape, members);
    reduction.codec = read_codec(row.optional("codec"), "gradients", job, CodecUse::kGradients);
    if (!sound || stage >= count) continue;
    if (!seen.insert(stage).second) {
      row.fail(for_tied ? "the tied embedding has a reduction already"
                        : fmt::format("stage {} has a reduction already", stage));
    }
    reductions[stage] = std::move(reduction);
  }
  if (std::ranges::any_of(reductions, [&](const Reduction& one) { return one != usual; })) {
    plan.reductions = std::move(reductions);
  }
}

std::string shares_text(const std::vector<double>& shares) {
  std::vector<std::string> texts;
  for (const double share : shares) texts.push_back(format_exact(share));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

/// `int8`, or where the gradients go otherwise `aq-int3, gradients int6`.
std::string codecs_text(const Plan& plan, const Job& job, const PairCodec& pair) {
  const Codec gradients = activation_gradient_codec(plan, job, pair.site, pair.other);
  if (gradients == pair.codec) return std::string(name_of(pair.codec));
  return fmt::format("{}, gradients {}", name_of(pair.codec), name_of(gradients));
}

}  // namespace

std::string_view name_of(ReduceShape shape) {
  switch (shape) {
    case ReduceShape::kSharded:
      return "sharded";
    case ReduceShape::kRing:
      return "ring";
    case ReduceShape::kHierarchical:
      return "hierarchical";
  }
  return "?";
}

bool has_tied_exchange(const Plan& plan, const Job& job) {
  return job.model.tied_embedding && plan.stages() > 1;
}

Codec activation_codec(const Plan& plan, const Job& job, int site, int other) {
  const auto [low, high] = std::minmax(site, other);
  for (const PairCodec& pair : plan.activation_codecs) {
    if (pair.site == low && pair.other == high) return pair.codec;
  }
  return job.activations;
}

Codec activation_gradient_codec(const Plan& plan, const Job& job, int site, int other) {
  const auto [low, high] = std::minmax(site, other);
  for (const PairCodec& pair : plan.activation_codecs) {
    if (pair.site == low && pair.other == high && pair.gradients) return *pair.gradients;
  }
  if (job.activation_gradients) return *job.activation_gradients;
  return usual_beside(activation_codec(plan, job, site, other));
}

Reduction reduction_of(const Plan& plan, const Job& job, int stage) {
  const auto index = static_cast<std::size_t>(stage);
  if (index < plan.reductions.size()) return plan.reductions[index];
  return {.codec = job.gradients};
}

std::vector<Reduction> reductions_of(const Plan& plan, const Job& job) {
  const int exchanges = plan.stages() + (has_tied_exchange(plan, job) ? 1 : 0);
  std::vector<Reduction> reductions;
  for (int i = 0; i < exchanges; ++i) reductions.push_back(reduction_of(plan, job, i));
  return reductions;
}

std::vector<int> reduction_devices(const Plan& plan, int stage) {
  std::vector<int> devices;
  const bool is_tied = stage == plan.stages();
  for (const std::vector<int>& row : plan.devices) {
    devices.push_back(is_tied ? row.back() : row[static_cast<std::size_t>(stage)]);
  }
  for (const std::vector<int>& row : plan.devices) {
    if (is_tied) devices.push_back(row.front());
  }
  return devices;
}

bool recomputes(const Plan& plan, const Job& job) {
  return job.recompute == Recompute::kAuto ? plan.recompute : job.recompute == Recompute::kYes;
}

void read_plan_choices(const Cursor& root, const Topology& topology, const Job& job, Plan& plan) {
  if (const Cursor at = root.optional("recompute"); at.present()) read_recompute(at, job, plan);
  if (const Cursor at = root.optional("codecs"); at.present()) {
    read_codecs(at, topology, job, plan);
  }
  if (const Cursor at = root.optional("reductions"); at.present()) read_reductions(at, job, plan);
}

std::string plan_choices_text(const Plan& plan, const Topology& topology, const Job& job) {
  std::string out;
  if (plan.recompute && job.recompute == Recompute::kAuto) out += "recompute: true\n";
  if (!plan.activation_codecs.empty()) out += "codecs:  # where not the job's\n";
  for (const PairCodec& pair : plan.activation_codecs) {
    out += fmt::format("  - {{between: [{}, {}], activations: {}",
                       yaml_text(site_name(topology, pair.site)),
                       yaml_text(site_name(topology, pair.other)), name_of(pair.codec));
    if (pair.gradients) out += fmt::format(", activation_gradients: {}", name_of(*pair.gradients));
    out += "}\n";
  }
  std::string rows;
  for (std::size_t i = 0; i < plan.reductions.size(); ++i) {
    const Reduction& reduction = plan.reductions[i];
    if (reduction == Reduction{.codec = job.gradients}) continue;
    rows += i < plan.layers.size() ? fmt::format("  - {{stage: {}", i) : "  - {tied: true";
    rows += fmt::format(", shape: {}", name_of(reduction.shape));
    if (!reduction.shares.empty()) rows += ", shares: " + shares_text(reduction.shares);
    if (reduction.codec != job.gradients)
      rows += fmt::format(", codec: {}", name_of(reduction.codec));
    rows += "}\n";
  }
  if (!rows.empty()) out += "reductions:  # others: sharded, equal, the job's codec\n" + rows;
  return out;
}

std::vector<std::pair<std::string, std::string>> shown_choices(const Plan& plan,
                                                               const Topology& topology,
                                                               const Job& job) {
  std::vector<std::pair<std::string, std::string>> shown;
  if (plan.recompute && job.recompute == Recompute::kAuto) shown.emplace_back("recompute", "yes");
  for (const PairCodec& pair : plan.activation_codecs) {
    shown.emplace_back(fmt::format("activations {} - {}", site_name(topology, pair.site),
                                   site_name(topology, pair.other)),
                       codecs_text(plan, job, pair));
  }
  for (std::size_t i = 0; i < plan.reductions.size(); ++i) {
    const Reduction& reduction = plan.reductions[i];
    if (reduction == Reduction{.codec = job.gradients}) continue;
    std::vector<std::string> words = {std::string(name_of(reduction.shape))};
    if (!reduction.shares.empty()) {
      std::vector<std::string> shares;
      for (const double share : reduction.shares) shares.push_back(fmt::format("{:.3g}", share));
      words.push_back(fmt::format("shares {}", fmt::join(shares, " ")));
    }
    if (reduction.codec != job.gradients) words.emplace_back(name_of(reduction.codec));
    shown.emplace_back(i < plan.layers.size() ? fmt::format("gradients of stage {}", i)
                                              : "gradients of the tied embedding",
                       fmt::format("{}", fmt::join(words, ", ")));
  }
  return shown;
}

}  // namespace longhaul
