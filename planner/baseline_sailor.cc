// Sailor [Strati et al., SOSP 2025; code commit cf2c8e3 read for facts]. Every stage has the same D
// and stands in one site, so that data parallelism never leaves a site; layers are equal; what is
// searched is P, D, the micro-batch, how many stages each site takes, the order of the sites, and
// which kinds of devices take part. Its closed form, with the slowest link:
//
//   all stages + all sends + (n - 1) x max(slowest stage, slowest send) + slowest ring
//
// where a send between sites is latency + bytes / rate. Latency is in the fill alone, as in its
// own.
//
// Exact over all that for up to kMaxSites sites with devices (of more, those with the highest joint
// speed): the order of a set of sites matters only by its sends, so the shortest path over each set
// is found once a micro-batch [Held and Karp, 1962]; then each set takes the fastest stages that it
// has, for every choice of the slowest kind and the smallest memory that take part.
#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "planner/baseline_parts.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxSites = 10;
constexpr std::size_t kMaxAttempts = 64;  // plans of a choice that memory may refuse
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Shortest open path over each set of sites: by set and last site.
struct SitePaths {
  std::size_t sites = 0;
  std::vector<double> seconds;  // [set * sites + last]
  std::vector<int> before;      // the site before the last; -1: none

  std::vector<int> path(unsigned set, int last) const {
    std::vector<int> out;
    for (int site = last; site >= 0;) {
      out.push_back(site);
      const int previous = before[set * sites + at(site)];
      set &= ~(1U << site);
      site = previous;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }
};

class Sailor {
 public:
  Sailor(const Problem& problem, const GridLimits& limits) : problem_(problem), limits_(limits) {
    std::vector<double> speed(problem.topology().sites.size(), 0);
    for (const int device : problem.usable())
      speed[at(problem.site(device))] += 1 / problem.seconds_per_flop(device);
    for (int s = 0; s < problem.topology().site_count(); ++s) {
      if (speed[at(s)] > 0) sites_.push_back(s);
    }
    std::stable_sort(sites_.begin(), sites_.end(),
                     [&](int a, int b) { return speed[at(a)] > speed[at(b)]; });
    sites_.resize(std::min(sites_.size(), kMaxSites));
  }

  std::optional<Plan> search() {
    for (const Choice& choice : choices()) {
      if (choice.least_s >= least_) break;
      try_choice(choice);
    }
    return std::move(best_);
  }

 private:
  /// A grid with the devices that may take part.
  struct Choice {
    double least_s;  // all of the batch at the pace of its slowest kind
    Grid grid;
    double seconds_per_flop_max;
    double memory_min;
  };
  /// The devices of a site that a choice admits, fastest first, and the stages they can be.
  struct Region {
    std::vector<int> devices;
    std::vector<double> stage_s;  // of the n-th fastest D devices: forward and backward
    double inside_send_s = 0;     // both ways between two stages here
    double reduce_s = 0;
    double head_s = 0;  // what the head adds to the first of stage_s
  };
  /// A set of sites that hold a choice's stages.
  struct Split {
    double seconds = 0;
    double slowest = 0;  // stage or send
    double reduce = 0;
    unsigned set = 0;
    int last = -1;
    std::vector<int> counts = {};  // stages of each site
  };

  int layers(const Grid& grid) const {  // of the longest stage
    return (problem_.job().model.layers + grid.stages - 1) / grid.stages;
  }
  int micro_batches(const Grid& grid) const {
    const auto all = static_cast<int>(problem_.job().global_batch / grid.micro_batch);
    return (all + grid.pipelines - 1) / grid.pipelines;
  }

  std::vector<Choice> choices() const {
    std::set<double> paces;
    std::set<double> memories;
    for (const int device : problem_.usable()) {
      paces.insert(problem_.seconds_per_flop(device));
      memories.insert(problem_.memory(device));
    }
    std::vector<Choice> out;
    for (const BoundedGrid& bounded : grids_by_bound(problem_, limits_)) {
      const Grid& grid = bounded.grid;
      const StageShape middle{layers(grid), false, false};
      for (const double pace : paces) {
        const StageTime time = stage_time(problem_.job(), middle, grid.micro_batch, pace, 0);
        const double least = (micro_batches(grid) - 1) * (time.forward + time.backward);
        for (const double memory : memories)
          out.push_back({std::max(least, bounded.bound_s), grid, pace, memory});
      }
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Choice& a, const Choice& b) { return a.least_s < b.least_s; });
    return out;
  }

  const SitePaths& paths(int micro_batch) {
    const auto found = paths_.find(micro_batch);
    if (found != paths_.end()) return found->second;
    SitePaths out;
    const std::size_t count = sites_.size();
    out.sites = count;
    out.seconds.assign((std::size_t{1} << count) * count, kInfinity);
    out.before.assign(out.seconds.size(), -1);
    for (std::size_t s = 0; s < count; ++s) out.seconds[(std::size_t{1} << s) * count + s] = 0;
    for (unsigned set = 1; set < (1U << count); ++set) {
      for (std::size_t last = 0; last < count; ++last) {
        const double here = out.seconds[set * count + last];
        if (here == kInfinity) continue;
        for (std::size_t next = 0; next < count; ++next) {
          if ((set >> next & 1) != 0) continue;
          const std::size_t slot = (set | 1U << next) * count + next;
          const auto [sum, slowest] = send(micro_batch, last, next);
          if (here + sum >= out.seconds[slot]) continue;
          out.seconds[slot] = here + sum;
          out.before[slot] = static_cast<int>(last);
        }
      }
    }
    return paths_.emplace(micro_batch, std::move(out)).first->second;
  }

  /// Between two sites, both ways: with latencies, and the slower serialisation alone.
  std::pair<double, double> send(int micro_batch, std::size_t from, std::size_t to) const {
    const int a = sites_[from];
    const int b = sites_[to];
    const Job& job = problem_.job();
    const double bytes =
        boundary_message_bytes(job.activations, job.model, job.precision, micro_batch).value() *
        problem_.topology().tcp.wire_factor;
    const double there = bytes / problem_.site_rate(a, b);
    const double back = bytes / problem_.site_rate(b, a);
    return {there + back + problem_.site_latency(a, b) + problem_.site_latency(b, a),
            std::max(there, back)};
  }

  std::vector<Region> regions(const Choice& choice) const {
    const Grid& grid = choice.grid;
    const StageShape middle{layers(grid), false, false};
    const StageShape last{layers(grid), false, true};
    const StageShape first{layers(grid), true, false};
    std::vector<Region> out(sites_.size());
    for (const int device : problem_.usable()) {
      if (problem_.seconds_per_flop(device) > choice.seconds_per_flop_max ||
          problem_.memory(device) < choice.memory_min) {
        continue;
      }
      const auto found = std::find(sites_.begin(), sites_.end(), problem_.site(device));
      if (found != sites_.end())
        out[static_cast<std::size_t>(found - sites_.begin())].devices.push_back(device);
    }
    const auto replicas = static_cast<std::size_t>(grid.pipelines);
    for (Region& region : out) {
      for (std::size_t i = replicas; i <= region.devices.size(); i += replicas) {
        const int slowest = region.devices[i - 1];
        const StageTime time = stage_time(problem_, middle, grid.micro_batch, slowest);
        region.stage_s.push_back(time.forward + time.backward);
        if (i > replicas) continue;
        const StageTime end = stage_time(problem_, last, grid.micro_batch, slowest);
        region.head_s = end.forward + end.backward - region.stage_s.front();
      }
      if (region.stage_s.empty()) continue;
      region.devices.resize(region.stage_s.size() * replicas);
      const SlowestLink link = slowest_link(problem_, region.devices);
      if (region.devices.size() == 1) continue;
      const double bytes = boundary_wire_bytes(problem_, grid.micro_batch, region.devices.front(),
                                               region.devices.front());
      region.inside_send_s = 2 * (bytes / link.rate + link.latency);
      const double share = (grid.pipelines - 1.0) / grid.pipelines;
      region.reduce_s = 2 * (share * gradient_wire_bytes(problem_, first, grid.stages) / link.rate +
                             (grid.pipelines - 1) * link.latency);
    }
    return out;
  }

  /// The cheapest stages of a set of sites, wherever it ends; none when the set is too small or too
  /// large. Its seconds are all but what the last site and the order add.
  std::optional<Split> stages_of(const Choice& choice, const std::vector<Region>& regions,
                                 unsigned set) const {
    const Grid& grid = choice.grid;
    Split out{.set = set, .counts = std::vector<int>(sites_.size(), 0)};
    int left = grid.stages;
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      if ((set >> s & 1) == 0) continue;
      if (regions[s].stage_s.empty()) return std::nullopt;
      out.seconds += regions[s].stage_s.front();
      out.slowest = std::max(out.slowest, regions[s].stage_s.front());
      out.reduce = std::max(out.reduce, regions[s].reduce_s);
      out.counts[s] = 1;
      --left;
    }
    if (left < 0) return std::nullopt;
    for (; left > 0; --left) {
      // The region whose next stage adds least.
      std::size_t best = sites_.size();
      double least = kInfinity;
      for (std::size_t s = 0; s < sites_.size(); ++s) {
        const auto taken = at(out.counts[s]);
        if (taken == 0 || taken == regions[s].stage_s.size()) continue;
        const double adds = regions[s].stage_s[taken] + regions[s].inside_send_s;
        if (adds >= least) continue;
        least = adds;
        best = s;
      }
      if (best == sites_.size()) return std::nullopt;
      out.slowest = std::max(out.slowest, regions[best].stage_s[at(out.counts[best])]);
      out.seconds += least;
      ++out.counts[best];
    }
    return out;
  }

  /// The whole cost of a set that ends in `last`.
  void end_in(const Choice& choice, const std::vector<Region>& regions, int last, Split& split) {
    const int micro_batch = choice.grid.micro_batch;
    const SitePaths& all = paths(micro_batch);
    const Region& end = regions[at(last)];
    split.last = last;
    split.slowest = std::max(split.slowest, end.stage_s.front() + end.head_s);
    const std::vector<int> order = all.path(split.set, last);
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      split.slowest =
          std::max(split.slowest, send(micro_batch, at(order[i]), at(order[i + 1])).second);
    }
    split.seconds += all.seconds[split.set * sites_.size() + at(last)] + end.head_s +
                     paced(choice, split) + split.reduce;
  }

  /// Of the micro-batches after the first.
  double paced(const Choice& choice, const Split& split) const {
    return (micro_batches(choice.grid) - 1) * split.slowest;
  }

  void try_choice(const Choice& choice) {
    const std::vector<Region> all = regions(choice);
    std::vector<Split> splits;
    for (unsigned set = 1; set < (1U << sites_.size()); ++set) {
      if (std::popcount(set) > choice.grid.stages) continue;
      const std::optional<Split> stages = stages_of(choice, all, set);
      if (!stages || stages->seconds + paced(choice, *stages) >= least_) continue;
      for (std::size_t last = 0; last < sites_.size(); ++last) {
        if ((set >> last & 1) == 0) continue;
        Split found = *stages;
        end_in(choice, all, static_cast<int>(last), found);
        if (found.seconds < least_) splits.push_back(std::move(found));
      }
    }
    std::stable_sort(splits.begin(), splits.end(),
                     [](const Split& a, const Split& b) { return a.seconds < b.seconds; });
    for (std::size_t i = 0; i < std::min(splits.size(), kMaxAttempts); ++i) {
      Plan plan = plan_of(choice, all, splits[i]);
      if (!check_memory(plan, problem_.topology(), problem_.job())) continue;
      least_ = splits[i].seconds;
      best_ = std::move(plan);
      return;
    }
  }

  Plan plan_of(const Choice& choice, const std::vector<Region>& regions, const Split& split) {
    const auto replicas = static_cast<std::size_t>(choice.grid.pipelines);
    Layout layout(replicas);
    for (const int s : paths(choice.grid.micro_batch).path(split.set, split.last)) {
      std::vector<std::vector<int>> groups;
      const auto& devices = regions[at(s)].devices;
      for (std::size_t g = 0; g < at(split.counts[at(s)]); ++g) {
        const auto first = devices.begin() + static_cast<std::ptrdiff_t>(g * replicas);
        groups.emplace_back(first, first + static_cast<std::ptrdiff_t>(replicas));
      }
      // Early stages hold more in flight: the most memory first. The head is the fastest group's.
      const auto memory = [&](const std::vector<int>& group) {
        double least = kInfinity;
        for (const int device : group) least = std::min(least, problem_.memory(device));
        return least;
      };
      if (s == split.last) std::rotate(groups.begin(), groups.begin() + 1, groups.end());
      std::stable_sort(groups.begin(), groups.end() - (s == split.last ? 1 : 0),
                       [&](const auto& a, const auto& b) { return memory(a) > memory(b); });
      for (const std::vector<int>& group : groups) {
        for (std::size_t d = 0; d < replicas; ++d) layout[d].push_back(group[d]);
      }
    }
    return even_plan(problem_.topology(), problem_.job(), std::move(layout),
                     choice.grid.micro_batch, ScheduleFamily::kOneForwardOneBackward);
  }

  const Problem& problem_;
  const GridLimits limits_;
  std::vector<int> sites_;  // highest joint speed first
  std::map<int, SitePaths> paths_;
  double least_ = kInfinity;
  std::optional<Plan> best_;
};

}  // namespace

std::vector<Plan> sailor_candidates(const Problem& problem, const PolicyOptions& options) {
  std::optional<Plan> best = Sailor(problem, options.limits).search();
  if (!best) return {};
  return {std::move(*best)};
}

}  // namespace longhaul
