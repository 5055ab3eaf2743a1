#include "planner/dtfm_breeding.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace longhaul {
namespace {

DtfmComposition devices_of_each_type(const DtfmTypes& types) {
  DtfmComposition counts;
  for (const std::vector<int>& members : types.members) {
    counts.push_back(static_cast<std::uint16_t>(members.size()));
  }
  return counts;
}

/// How one run takes its share of each type: all it can of one type after the other, or one of
/// each type in turn.
enum class Fill { kTypeByType, kOneOfEach };

/// Appends `length` equal stages made of what is left, preferring types early in `order`. False if
/// what is left cannot give each of them `replicas` devices of the same types.
bool append_run(const DtfmTypes& types, int length, std::span<const int> order, Fill fill,
                DtfmComposition& left, DtfmStages& stages) {
  DtfmComposition stage(left.size(), 0);
  int wanted = types.replicas;
  bool progress = true;
  while (wanted > 0 && progress) {
    progress = false;
    for (const int type : order) {
      const auto t = static_cast<std::size_t>(type);
      const int available = left[t] / length - stage[t];
      const int devices =
          std::min({available, wanted, fill == Fill::kOneOfEach ? 1 : types.replicas});
      if (devices <= 0) continue;
      stage[t] = static_cast<std::uint16_t>(stage[t] + devices);
      wanted -= devices;
      progress = true;
    }
  }
  if (wanted > 0) return false;
  for (std::size_t t = 0; t < left.size(); ++t) {
    left[t] = static_cast<std::uint16_t>(left[t] - stage[t] * length);
  }
  stages.insert(stages.end(), static_cast<std::size_t>(length), stage);
  return true;
}

std::vector<int> by_index(const DtfmTypes& types) {
  std::vector<int> order(static_cast<std::size_t>(types.count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> by_what_is_left(const DtfmTypes& types, const DtfmComposition& left) {
  std::vector<int> order = by_index(types);
  std::ranges::sort(
      order, {}, [&](int type) { return std::pair(-left[static_cast<std::size_t>(type)], type); });
  return order;
}

/// Types by how cheaply `start` reaches them, `start` first.
std::vector<int> by_nearness(const DtfmTypes& types, int start) {
  std::vector<int> order = by_index(types);
  std::ranges::sort(order, {}, [&](int type) {
    const auto entry = static_cast<std::size_t>(start * types.count + type);
    return std::pair(type == start ? -1.0 : types.hop_s[entry], type);
  });
  return order;
}

/// Runs as long as possible up to `longest`, each taking its devices in the order that `choose`
/// gives for what is left.
template <class Choose>
DtfmStages layout_of_runs(const DtfmTypes& types, int longest, Fill fill, const Choose& choose) {
  DtfmComposition left = devices_of_each_type(types);
  DtfmStages stages;
  while (static_cast<int>(stages.size()) < types.stages) {
    const std::vector<int> order = choose(left);
    int length = std::min(longest, types.stages - static_cast<int>(stages.size()));
    // A run of one always works: at least one stage's worth of devices is left.
    while (!append_run(types, length, order, fill, left, stages)) --length;
  }
  return stages;
}

int overlap(const DtfmComposition& a, const DtfmComposition& b) {
  int shared = 0;
  for (std::size_t t = 0; t < a.size(); ++t) shared += std::min(a[t], b[t]);
  return shared;
}

/// Takes what it can of `wanted` from `left`.
DtfmComposition take(const DtfmComposition& wanted, DtfmComposition& left) {
  DtfmComposition taken(wanted.size());
  for (std::size_t t = 0; t < wanted.size(); ++t) {
    taken[t] = std::min(wanted[t], left[t]);
    left[t] = static_cast<std::uint16_t>(left[t] - taken[t]);
  }
  return taken;
}

/// Replaces the devices that `stage` lacks of `wanted` by the nearest ones left.
void replace_missing(const DtfmTypes& types, const DtfmComposition& wanted, DtfmComposition& left,
                     DtfmComposition& stage) {
  for (std::size_t lost = 0; lost < wanted.size(); ++lost) {
    for (int missing = wanted[lost] - std::min(stage[lost], wanted[lost]); missing > 0; --missing) {
      std::size_t nearest = left.size();
      double nearest_s = 0;
      for (std::size_t t = 0; t < left.size(); ++t) {
        if (left[t] == 0) continue;
        const double hop = types.hop_s[lost * left.size() + t];
        if (nearest == left.size() || hop < nearest_s) {
          nearest = t;
          nearest_s = hop;
        }
      }
      LH_CHECK(nearest < left.size(), "as many devices are left as are missing");
      --left[nearest];
      ++stage[nearest];
    }
  }
}

/// The stages that a child copies: a segment of the path, or one stage as often as it is drawn.
DtfmStages copied_stages(const DtfmTypes& types, const DtfmStages& donor, Rng& rng) {
  const std::size_t count = donor.size();
  DtfmStages copied;
  if (rng.chance(0.5)) {
    const std::size_t length = 1 + rng.index(count - 1);
    const std::size_t first = rng.index(count - length + 1);
    copied.assign(donor.begin() + static_cast<std::ptrdiff_t>(first),
                  donor.begin() + static_cast<std::ptrdiff_t>(first + length));
    return copied;
  }
  const DtfmComposition& stage = donor[rng.index(count)];
  DtfmComposition left = devices_of_each_type(types);
  const std::size_t length = 2 + rng.index(count - 1);
  while (copied.size() < length && overlap(stage, left) == types.replicas) {
    copied.push_back(take(stage, left));
  }
  return copied;
}

}  // namespace

DtfmStages stages_of(const DtfmTypes& types, const DtfmPartition& partition) {
  DtfmStages stages;
  for (const std::vector<int>& group : partition) {
    DtfmComposition stage(static_cast<std::size_t>(types.count), 0);
    for (const int device : group) {
      ++stage[static_cast<std::size_t>(types.type_of[static_cast<std::size_t>(device)])];
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

DtfmPartition partition_of(const DtfmTypes& types, const DtfmStages& stages) {
  std::vector<std::size_t> next(types.members.size(), 0);
  DtfmPartition partition;
  for (const DtfmComposition& stage : stages) {
    std::vector<int>& group = partition.emplace_back();
    for (std::size_t type = 0; type < stage.size(); ++type) {
      for (int k = 0; k < stage[type]; ++k) group.push_back(types.members[type][next[type]++]);
    }
  }
  return partition;
}

std::vector<DtfmStages> structured_layouts(const DtfmTypes& types) {
  DtfmPartition pipelines_contiguous(static_cast<std::size_t>(types.stages));
  DtfmPartition stages_contiguous(static_cast<std::size_t>(types.stages));
  for (int device = 0; device < types.stages * types.replicas; ++device) {
    pipelines_contiguous[static_cast<std::size_t>(device % types.stages)].push_back(device);
    stages_contiguous[static_cast<std::size_t>(device / types.replicas)].push_back(device);
  }
  std::vector<DtfmStages> layouts;
  const auto add = [&](DtfmStages layout) {
    if (std::ranges::find(layouts, layout) == layouts.end()) layouts.push_back(std::move(layout));
  };
  add(stages_of(types, pipelines_contiguous));
  add(stages_of(types, stages_contiguous));
  for (int longest = types.stages; longest >= 1; longest = longest > 1 ? (longest + 1) / 2 : 0) {
    for (const Fill fill : {Fill::kTypeByType, Fill::kOneOfEach}) {
      add(layout_of_runs(types, longest, fill,
                         [&](const DtfmComposition&) { return by_index(types); }));
      add(layout_of_runs(types, longest, fill, [&](const DtfmComposition& left) {
        return by_what_is_left(types, left);
      }));
      add(layout_of_runs(types, longest, fill, [&](const DtfmComposition& left) {
        return by_nearness(types, by_what_is_left(types, left)[0]);
      }));
    }
  }
  return layouts;
}

DtfmStages random_runs(const DtfmTypes& types, Rng& rng) {
  const int longest = 1 + static_cast<int>(rng.index(static_cast<std::size_t>(types.stages)));
  const Fill fill = rng.chance(0.5) ? Fill::kTypeByType : Fill::kOneOfEach;
  return layout_of_runs(types, longest, fill, [&](const DtfmComposition&) {
    if (rng.chance(0.5)) {
      return by_nearness(types, static_cast<int>(rng.index(static_cast<std::size_t>(types.count))));
    }
    std::vector<int> order = by_index(types);
    rng.shuffle(std::span(order));
    return order;
  });
}

DtfmStages cross(const DtfmTypes& types, const DtfmStages& donor, const DtfmStages& base,
                 Rng& rng) {
  if (donor.size() < 2) return base;
  const DtfmStages copied = copied_stages(types, donor, rng);
  DtfmComposition left = devices_of_each_type(types);
  for (const DtfmComposition& stage : copied) take(stage, left);
  // The copied stages stand where the base's stages most like them stood.
  std::vector<int> likeness;
  for (const DtfmComposition& stage : base) {
    int sum = 0;
    for (const DtfmComposition& other : copied) sum += overlap(stage, other);
    likeness.push_back(sum);
  }
  std::vector<std::size_t> order(base.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t s) { return std::pair(-likeness[s], s); });
  std::vector<bool> dropped(base.size(), false);
  for (std::size_t k = 0; k < copied.size(); ++k) dropped[order[k]] = true;

  DtfmStages wanted;
  DtfmStages child;
  bool placed = false;
  for (std::size_t s = 0; s < base.size(); ++s) {
    if (dropped[s]) {
      if (placed) continue;
      placed = true;
      wanted.insert(wanted.end(), copied.begin(), copied.end());
      child.insert(child.end(), copied.begin(), copied.end());
    } else {
      wanted.push_back(base[s]);
      child.push_back(take(base[s], left));
    }
  }
  for (std::size_t s = 0; s < child.size(); ++s) replace_missing(types, wanted[s], left, child[s]);
  return child;
}

}  // namespace longhaul
