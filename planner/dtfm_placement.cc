#include "planner/dtfm_placement.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "core/rng.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kTableEntries = 1u << 15;

std::size_t at(std::size_t row, std::size_t column, std::size_t width) {
  return row * width + column;
}

/// True if exchanging the two devices leaves both matrices as they are.
bool interchangeable(const DtfmInstance& instance, int a, int b) {
  const auto n = static_cast<std::size_t>(instance.devices);
  const auto i = static_cast<std::size_t>(a);
  const auto j = static_cast<std::size_t>(b);
  for (const std::vector<double>* matrix : {&instance.latency_s, &instance.gbit_per_s}) {
    const std::vector<double>& m = *matrix;
    if (m[at(i, j, n)] != m[at(j, i, n)]) return false;
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i || k == j) continue;
      if (m[at(i, k, n)] != m[at(j, k, n)] || m[at(k, i, n)] != m[at(k, j, n)]) return false;
    }
  }
  return true;
}

}  // namespace

DtfmTypes DtfmTypes::of(const DtfmInstance& instance) {
  DtfmTypes types;
  types.stages = instance.stages;
  types.replicas = instance.replicas;
  // Being interchangeable is transitive, so one member speaks for its type.
  for (int device = 0; device < instance.devices; ++device) {
    int type = 0;
    while (type < types.count &&
           !interchangeable(instance, types.members[static_cast<std::size_t>(type)][0], device)) {
      ++type;
    }
    if (type == types.count) {
      ++types.count;
      types.members.emplace_back();
    }
    types.members[static_cast<std::size_t>(type)].push_back(device);
    types.type_of.push_back(type);
  }
  Rng rng("dtfm composition signatures", 0);
  for (const std::vector<int>& row : types.members) {
    types.signature.push_back(rng.next());
    for (const std::vector<int>& column : types.members) {
      const bool same = &row == &column;
      const bool used = !same || row.size() > 1;
      const int to = same && used ? row[1] : column[0];
      types.hop_s.push_back(used ? instance.activation_hop_s(row[0], to) : kInfinity);
      types.exchange_s.push_back(used ? instance.gradient_exchange_s(row[0], to) : 0);
    }
  }
  return types;
}

DtfmPricer::DtfmPricer(const DtfmTypes& types)
    : types_(&types), stages_(kTableEntries), hops_(kTableEntries) {}

DtfmPrice DtfmPricer::stage(const DtfmComposition& stage, std::uint64_t signature) {
  const std::uint64_t key = signature | 1;  // 0 marks a free entry
  Entry& entry = stages_[(signature >> 20) % kTableEntries];
  if (entry.key != key) entry = {key, work_out_stage(stage)};
  return entry.price;
}

DtfmPrice DtfmPricer::hop(const DtfmComposition& from, std::uint64_t from_signature,
                          const DtfmComposition& to, std::uint64_t to_signature) {
  const std::uint64_t mixed = (from_signature ^ std::rotl(to_signature, 23)) * 0x9e3779b97f4a7c15u;
  const std::uint64_t key = mixed | 1;
  Entry& entry = hops_[(mixed >> 40) % kTableEntries];
  if (entry.key != key) entry = {key, work_out_hop(from, to)};
  return entry.price;
}

DtfmPrice DtfmPricer::work_out_stage(const DtfmComposition& stage) {
  const auto width = static_cast<std::size_t>(types_->count);
  from_.clear();
  for (std::size_t type = 0; type < width; ++type) {
    if (stage[type] > 0) from_.push_back({static_cast<int>(type), stage[type]});
  }
  DtfmPrice price;
  for (const Share& row : from_) {
    const double* exchange = &types_->exchange_s[static_cast<std::size_t>(row.type) * width];
    double sum = 0;
    for (const Share& column : from_) {
      const int peers = column.devices - (column.type == row.type ? 1 : 0);
      sum += peers * exchange[column.type];
    }
    price.worst = std::max(price.worst, sum);
    price.mean += row.devices * sum;
  }
  price.mean /= types_->replicas;
  return price;
}

DtfmPrice DtfmPricer::work_out_hop(const DtfmComposition& from, const DtfmComposition& to) {
  const auto width = static_cast<std::size_t>(types_->count);
  from_.clear();
  to_.clear();
  for (std::size_t type = 0; type < width; ++type) {
    if (from[type] > 0) from_.push_back({static_cast<int>(type), from[type]});
    if (to[type] > 0) to_.push_back({static_cast<int>(type), to[type]});
  }
  const std::size_t rows = from_.size();
  const std::size_t columns = to_.size();
  cost_.resize(rows * columns);
  flow_.assign(rows * columns, 0);
  unsent_.resize(rows);
  untaken_.resize(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    unsent_[r] = from_[r].devices;
    for (std::size_t c = 0; c < columns; ++c) {
      cost_[at(r, c, columns)] = types_->hop_s[at(static_cast<std::size_t>(from_[r].type),
                                                  static_cast<std::size_t>(to_[c].type), width)];
    }
  }
  // No matching is better than each row's cheapest column and each column's cheapest row.
  double threshold = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    untaken_[c] = to_[c].devices;
    double cheapest = kInfinity;
    for (std::size_t r = 0; r < rows; ++r) cheapest = std::min(cheapest, cost_[at(r, c, columns)]);
    threshold = std::max(threshold, cheapest);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    double cheapest = kInfinity;
    for (std::size_t c = 0; c < columns; ++c)
      cheapest = std::min(cheapest, cost_[at(r, c, columns)]);
    threshold = std::max(threshold, cheapest);
  }
  // A greedy matching, same type first and then the cheapest column of each row, gives the mean;
  // its part within the threshold starts the flow.
  DtfmPrice price;
  const auto send = [&](std::size_t r, std::size_t c) {
    const int devices = std::min(unsent_[r], untaken_[c]);
    unsent_[r] -= devices;
    untaken_[c] -= devices;
    flow_[at(r, c, columns)] += devices;
    price.mean += devices * cost_[at(r, c, columns)];
  };
  for (std::size_t r = 0, c = 0; r < rows && c < columns;) {
    if (from_[r].type == to_[c].type) {
      send(r++, c++);
    } else if (from_[r].type < to_[c].type) {
      ++r;
    } else {
      ++c;
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    while (unsent_[r] > 0) {
      std::size_t cheapest = columns;
      for (std::size_t c = 0; c < columns; ++c) {
        if (untaken_[c] == 0) continue;
        if (cheapest == columns || cost_[at(r, c, columns)] < cost_[at(r, cheapest, columns)]) {
          cheapest = c;
        }
      }
      send(r, cheapest);
    }
  }
  price.mean /= types_->replicas;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      int& devices = flow_[at(r, c, columns)];
      if (devices == 0 || cost_[at(r, c, columns)] <= threshold) continue;
      unsent_[r] += devices;
      untaken_[c] += devices;
      devices = 0;
    }
  }
  price.worst = bottleneck(threshold);
  return price;
}

/// Completes the flow in the scratch arrays, raising the threshold only when no augmenting path is
/// left, and then to the cheapest pair that lets the search go on. Returns the final threshold.
double DtfmPricer::bottleneck(double threshold) {
  const std::size_t rows = from_.size();
  const std::size_t columns = to_.size();
  while (std::ranges::any_of(unsent_, [](int devices) { return devices > 0; })) {
    constexpr int kUnreached = -1;
    constexpr int kSource = -2;
    from_reached_by_.assign(rows, kUnreached);
    to_reached_by_.assign(columns, kUnreached);
    queue_.clear();
    for (std::size_t r = 0; r < rows; ++r) {
      if (unsent_[r] == 0) continue;
      from_reached_by_[r] = kSource;
      queue_.push_back(static_cast<int>(r));
    }
    std::size_t end = columns;
    while (end == columns) {
      for (std::size_t k = 0; k < queue_.size() && end == columns; ++k) {
        const auto r = static_cast<std::size_t>(queue_[k]);
        for (std::size_t c = 0; c < columns; ++c) {
          if (to_reached_by_[c] != kUnreached || cost_[at(r, c, columns)] > threshold) continue;
          to_reached_by_[c] = static_cast<int>(r);
          if (untaken_[c] > 0) {
            end = c;
            break;
          }
          for (std::size_t back = 0; back < rows; ++back) {
            if (from_reached_by_[back] != kUnreached || flow_[at(back, c, columns)] == 0) continue;
            from_reached_by_[back] = static_cast<int>(c);
            queue_.push_back(static_cast<int>(back));
          }
        }
      }
      if (end != columns) break;
      double next = kInfinity;
      for (const int reached : queue_) {
        for (std::size_t c = 0; c < columns; ++c) {
          if (to_reached_by_[c] != kUnreached) continue;
          next = std::min(next, cost_[at(static_cast<std::size_t>(reached), c, columns)]);
        }
      }
      LH_CHECK(next < kInfinity, "two full stages always have a perfect matching");
      threshold = next;
    }
    // How much fits along the path, then push it.
    int devices = untaken_[end];
    for (std::size_t c = end;;) {
      const auto r = static_cast<std::size_t>(to_reached_by_[c]);
      if (from_reached_by_[r] == kSource) {
        devices = std::min(devices, unsent_[r]);
        unsent_[r] -= devices;
        break;
      }
      c = static_cast<std::size_t>(from_reached_by_[r]);
      devices = std::min(devices, flow_[at(r, c, columns)]);
    }
    untaken_[end] -= devices;
    for (std::size_t c = end;;) {
      const auto r = static_cast<std::size_t>(to_reached_by_[c]);
      flow_[at(r, c, columns)] += devices;
      if (from_reached_by_[r] == kSource) break;
      c = static_cast<std::size_t>(from_reached_by_[r]);
      flow_[at(r, c, columns)] -= devices;
    }
  }
  return threshold;
}

DtfmPlacement::DtfmPlacement(DtfmPricer& pricer, std::vector<DtfmComposition> stages)
    : pricer_(&pricer), stages_(std::move(stages)) {
  const DtfmTypes& types = pricer.types();
  LH_CHECK(static_cast<int>(stages_.size()) == types.stages, "one composition a stage");
  for (const DtfmComposition& stage : stages_) {
    std::uint64_t signature = 0;
    int devices = 0;
    for (std::size_t type = 0; type < stage.size(); ++type) {
      signature += stage[type] * types.signature[type];
      devices += stage[type];
    }
    LH_CHECK(devices == types.replicas, "a stage has one device a replica");
    signatures_.push_back(signature);
  }
  stage_prices_.resize(stages_.size());
  hop_prices_.resize(stages_.size() - 1);
  stage_is_stale_.resize(stages_.size());
  hop_is_stale_.resize(stages_.size());
  for (int s = 0; s < types.stages; ++s) touch_stage(s);
  settle();
  keep();
}

std::uint64_t DtfmPlacement::signature() const {
  std::uint64_t mixed = 0;
  for (const std::uint64_t signature : signatures_) {
    mixed = (mixed ^ signature) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
  }
  return mixed;
}

void DtfmPlacement::touch_stage(int s) {
  const auto index = static_cast<std::size_t>(s);
  if (!stage_is_stale_[index]) {
    stage_is_stale_[index] = 1;
    stale_stages_.push_back(s);
  }
  touch_hop(s - 1);
  touch_hop(s);
}

void DtfmPlacement::touch_hop(int s) {
  if (s < 0 || s + 1 >= static_cast<int>(stages_.size())) return;
  const auto index = static_cast<std::size_t>(s);
  if (hop_is_stale_[index]) return;
  hop_is_stale_[index] = 1;
  stale_hops_.push_back(s);
}

void DtfmPlacement::apply(const Change& change) {
  const auto a = static_cast<std::size_t>(change.a);
  const auto b = static_cast<std::size_t>(change.b);
  if (change.kind == Change::kReverse) {
    std::reverse(stages_.begin() + change.a, stages_.begin() + change.b);
    std::reverse(signatures_.begin() + change.a, signatures_.begin() + change.b);
    return;
  }
  const auto given = static_cast<std::size_t>(change.given);
  const auto taken = static_cast<std::size_t>(change.taken);
  const std::vector<std::uint64_t>& signature = pricer_->types().signature;
  const auto devices = static_cast<std::uint16_t>(change.devices);
  const std::uint64_t moved = devices * (signature[taken] - signature[given]);
  stages_[a][given] = static_cast<std::uint16_t>(stages_[a][given] - devices);
  stages_[a][taken] = static_cast<std::uint16_t>(stages_[a][taken] + devices);
  stages_[b][given] = static_cast<std::uint16_t>(stages_[b][given] + devices);
  stages_[b][taken] = static_cast<std::uint16_t>(stages_[b][taken] - devices);
  signatures_[a] += moved;
  signatures_[b] -= moved;
}

void DtfmPlacement::trade(int s, int t, int given, int taken, int devices) {
  changes_.push_back({Change::kTrade, s, t, given, taken, devices});
  apply(changes_.back());
  touch_stage(s);
  touch_stage(t);
}

void DtfmPlacement::reverse(int first, int end) {
  changes_.push_back({Change::kReverse, first, end, 0, 0, 0});
  apply(changes_.back());
  for (int s = first; s < end; ++s) touch_stage(s);
}

void DtfmPlacement::swap_stages(int s, int t) {
  const auto [first, last] = std::minmax(s, t);
  // Reversing all and then the inside exchanges the ends only.
  changes_.push_back({Change::kReverse, first, last + 1, 0, 0, 0});
  apply(changes_.back());
  changes_.push_back({Change::kReverse, first + 1, last, 0, 0, 0});
  apply(changes_.back());
  touch_stage(first);
  touch_stage(last);
}

void DtfmPlacement::settle() {
  for (const int s : stale_stages_) {
    const auto index = static_cast<std::size_t>(s);
    old_prices_.push_back({false, s, stage_prices_[index]});
    stage_prices_[index] = pricer_->stage(stages_[index], signatures_[index]);
    stage_is_stale_[index] = 0;
  }
  for (const int s : stale_hops_) {
    const auto index = static_cast<std::size_t>(s);
    old_prices_.push_back({true, s, hop_prices_[index]});
    hop_prices_[index] = pricer_->hop(stages_[index], signatures_[index], stages_[index + 1],
                                      signatures_[index + 1]);
    hop_is_stale_[index] = 0;
  }
  stale_stages_.clear();
  stale_hops_.clear();
  add_up();
}

void DtfmPlacement::add_up() {
  double worst = 0;
  double mean = 0;
  for (const DtfmPrice& price : stage_prices_) {
    worst = std::max(worst, price.worst);
    mean += price.mean;
  }
  double hops = 0;
  double hop_means = 0;
  for (const DtfmPrice& price : hop_prices_) {
    hops += price.worst;
    hop_means += price.mean;
  }
  // Added up afresh, in path order: running sums would drift away from a full evaluation.
  total_ = worst + 2 * hops;
  spread_ = mean / static_cast<double>(stages_.size()) + 2 * hop_means;
}

void DtfmPlacement::undo() {
  while (!changes_.empty()) {
    Change change = changes_.back();
    changes_.pop_back();
    std::swap(change.given, change.taken);
    apply(change);
  }
  while (!old_prices_.empty()) {
    const OldPrice& old = old_prices_.back();
    (old.is_hop ? hop_prices_ : stage_prices_)[static_cast<std::size_t>(old.index)] = old.price;
    old_prices_.pop_back();
  }
  total_ = old_total_;
  spread_ = old_spread_;
}

void DtfmPlacement::keep() {
  changes_.clear();
  old_prices_.clear();
  old_total_ = total_;
  old_spread_ = spread_;
}

void DtfmPlacement::reorder(std::span<const int> path) {
  std::vector<DtfmComposition> stages;
  for (const int s : path) stages.push_back(stages_[static_cast<std::size_t>(s)]);
  *this = DtfmPlacement(*pricer_, std::move(stages));
}

std::vector<double> DtfmPlacement::hop_matrix() {
  std::vector<double> matrix;
  for (std::size_t from = 0; from < stages_.size(); ++from) {
    for (std::size_t to = 0; to < stages_.size(); ++to) {
      const bool same = from == to;
      matrix.push_back(
          same
              ? 0
              : pricer_->hop(stages_[from], signatures_[from], stages_[to], signatures_[to]).worst);
    }
  }
  return matrix;
}

}  // namespace longhaul
