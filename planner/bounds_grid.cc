#include "planner/bounds_grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "core/model_math.h"

namespace longhaul {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();
/// A bound is found to this share of itself, and always from below.
constexpr double kPrecision = 2e-3;
/// What rounding may take from a whole number before it counts as the next lower one.
constexpr double kRounding = 1e-9;
/// Seconds; the simulator takes no longer step.
constexpr double kLongest = 50.0 * 86400;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

int ceil_of_quotient(int a, int b) {
  return (a + b - 1) / b;
}

/// Largest whole number that is not above `x`, within rounding and 0 to `most`.
int whole(double x, int most) {
  const double floor = std::floor(x * (1 + kRounding) + kRounding);
  return floor >= most ? most : floor > 0 ? static_cast<int>(floor) : 0;
}

/// Bytes of an element of a gradient on the wire between sites; frames left out.
double gradient_bytes(Codec codec) {
  return bits_of(codec) / 8;
}

}  // namespace

GridBounds::GridBounds(const Bounds& bounds, const Grid& grid)
    : bounds_(bounds),
      problem_(bounds.problem_),
      job_(bounds.problem_.job()),
      grid_(grid),
      batches_(static_cast<int>(job_.global_batch / grid.micro_batch)),
      kinds_(bounds.kinds_.size()),
      known_for_(2 * at(batches_ + 1), 0) {
  measure_boundaries();
  measure_stages();
  measure_exchanges();
}

/// Of a boundary tensor on the wire: inside a site, and between sites in the codec that takes
/// fewest of all that the plan may choose, whichever way it goes.
void GridBounds::measure_boundaries() {
  const double wire = problem_.topology().tcp.wire_factor;
  inside_bytes_ = wire * boundary_bytes(job_.model, job_.precision, grid_.micro_batch).value();
  fewest_bytes_ = kEndless;
  const auto consider = [&](Codec codec) {
    const Bytes bytes =
        boundary_message_bytes(codec, job_.model, job_.precision, grid_.micro_batch);
    fewest_bytes_ = std::min(fewest_bytes_, wire * bytes.value());
  };
  for (const Codec codec : kCodecs) {
    if (allows(job_, CodecUse::kActivations, codec)) {
      consider(codec);
      if (!job_.activation_gradients) consider(usual_beside(codec));
    }
    if (allows(job_, CodecUse::kActivationGradients, codec)) consider(codec);
  }
}

void GridBounds::measure_stages() {
  const ModelShape& model = job_.model;
  const bool alone = grid_.stages == 1;
  const StageWork layer = stage_work(model, {1, false, false}, grid_.micro_batch);
  const StageWork head = stage_work(model, {0, false, true}, grid_.micro_batch);
  const double layer_flops = (layer.forward + layer.backward +
                              (job_.recompute == Recompute::kYes ? layer.recompute : Flops(0)))
                                 .value();
  const double head_flops = (head.forward + head.backward).value();
  const Bounds::Kind& fastest = bounds_.kinds_.front();
  const double passes = job_.recompute == Recompute::kYes ? 3 : 2;

  // The first micro-batch reaches a stage after the forwards before it and every hop.
  const Region& all = region(static_cast<int>(bounds_.regions_.size()) - 1);
  const double near = grid_.stages > 1 ? all.anywhere.latency : 0;
  const int hops = grid_.stages - 1;
  const double forward = layer.forward.value() * fastest.seconds_per_flop;
  first_input_[kMiddle] = forward + bounds_.overhead_ + near;
  first_input_[kLast] = hops * (bounds_.overhead_ + near) + model.layers * forward;
  first_input_layer_ = forward;

  // A micro-batch holds one of the first stage's K slots from its forward to the end of its
  // backward there, and meanwhile goes through all later stages and back. Each slot serves one
  // after the other, so n of them take n / K times that at least.
  const double there_and_back =
      (layer.forward + layer.backward_input).value() * fastest.seconds_per_flop;
  const double head_and_hops =
      (head.forward + head.backward_input).value() * fastest.seconds_per_flop +
      hops * (2 * bounds_.overhead_ + (hops > 0 ? all.anywhere.round_trip_latency : 0));
  const double own_flops = (layer.forward + layer.backward).value();
  path_ = model.layers * there_and_back + head_and_hops +
          layer.backward_weight.value() * fastest.seconds_per_flop;

  for (const Bounds::Kind& kind : bounds_.kinds_) {
    layer_seconds_.push_back(layer_flops * kind.seconds_per_flop);
    const double overhead = passes * kind.overhead;
    rest_seconds_.push_back({overhead + (alone ? head_flops * kind.seconds_per_flop : 0), overhead,
                             overhead + head_flops * kind.seconds_per_flop});
    const auto bytes = [&](int layers, Part part, int in_flight) {
      const StageShape shape{layers, part == kFirst || alone, part == kLast || alone};
      MemoryQuestion question;
      question.stage = shape;
      question.micro_batch = grid_.micro_batch;
      question.in_flight = in_flight;
      question.pipelines = grid_.pipelines;
      return memory_use(job_, DeviceKind{}, question).total().value();
    };
    std::array<int, kParts> fitting = {};
    for (const Part part : {kFirst, kMiddle, kLast}) {
      int low = 0;
      int high = model.layers - grid_.stages + 1;
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (bytes(middle, part, 1) <= kind.memory * (1 + kRounding)) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      fitting[part] = low;
    }
    fitting_layers_.push_back(fitting);
    std::vector<double> slots(at(fitting[kFirst] + 1), 0);
    for (int l = 1; l <= fitting[kFirst] && !alone; ++l) {
      const double fixed = bytes(l, kFirst, 0);
      const double each = bytes(l, kFirst, 1) - fixed;
      const double depth = each > 0 ? std::floor((kind.memory - fixed) / each + 1e-6) : batches_;
      const double round = l * own_flops * kind.seconds_per_flop + 2 * kind.overhead +
                           (model.layers - l) * there_and_back + head_and_hops;
      slots[at(l)] = round / std::clamp(depth, 1.0, static_cast<double>(batches_));
    }
    slot_seconds_.push_back(std::move(slots));
  }
}

/// After its last backward a member j of a group of D waits for every shard, however unequal they
/// are: a shard that is owned on the other side of a cut goes there and back, one that is owned on
/// its own side goes to the others. With shares w that add up to 1, of b owners there and D - b
/// here, the longest of them takes at least
///   G / (b / round_trip + (D - b) / one_way)   for b as small as may be.
/// (Of two members on two nodes, j sends its part of the one shard and the sum of the other over
/// the same link, G in all.) A ring is no faster: D - 1 sums of G / D still go over each of its
/// links. Its own part of the traffic passes its NIC, but for owners on its node: out what they do
/// not own, or, if they own much, the sums of what they own to everybody else.
GridBounds::Cost GridBounds::exchange_cost(const Region& where, const Distance& distance,
                                           bool inside, int members, int here) const {
  const double between = gradient_bytes(job_.gradients);
  const double wire = problem_.topology().tcp.wire_factor;
  const int same_side = std::min(here, members - 1);
  const double longest = 1 / ((members - same_side) / distance.round_trip_per_byte +
                              same_side / distance.faster_per_byte);
  const bool shares_link = members == 2 && !(inside && where.most_on_node > 1);
  const double across =
      wire * (inside ? 4 : between) * (shares_link ? distance.faster_per_byte : longest);
  const double far = members - where.most_on_node;
  if (problem_.rules().any_all_reduce && !inside) {
    const double piece = wire * between / most_hierarchical_messages(where, members);
    return {std::min(across, piece * distance.round_trip_per_byte), distance.latency};
  }
  const double own = far > 0 ? wire * std::min(between, 4.0) * far / (far + 1) / where.nic : 0;
  return {std::max(across, own), across >= own ? distance.latency : 0};
}

/// A hierarchical exchange of a group in S sites, at most m of it in one, cuts m pieces of S
/// shards.
double GridBounds::most_hierarchical_messages(const Region& where, int members) {
  double most = members;
  for (int sites = 2; sites <= std::min(static_cast<int>(where.sites.size()), members); ++sites) {
    most = std::max(most,
                    static_cast<double>(sites) * std::min(where.most_in_site, members - sites + 1));
  }
  return most;
}

void GridBounds::measure_exchanges() {
  // Inside a region a group of so many stands in a smallest region that holds as many.
  const auto measure = [&](int members, std::vector<Cost>& costs) {
    for (const Region& here : bounds_.regions_) {
      Cost cost;
      if (here.size() >= members) {
        const int same_side =
            here.is_site() ? 1
                           : std::max(region(here.halves[0]).size(), region(here.halves[1]).size());
        cost = exchange_cost(here, here.across, here.is_site(), members, same_side);
        for (const int half : here.halves) {
          if (half >= 0 && region(half).size() >= members) cost.lessen(costs[at(half)]);
        }
      }
      costs.push_back(cost);
    }
  };
  measure(grid_.pipelines, reduce_);
  measure(2 * grid_.pipelines, tied_);
}

GridBounds::Exchange GridBounds::exchange(const Cost& reduce, const Cost& tied) const {
  const ModelShape& model = job_.model;
  const int stages = grid_.stages;
  Exchange exchange;
  if (grid_.pipelines > 1) {
    exchange.layer = layer_parameters(model) * reduce.each;
    const auto rest = [&](bool first, bool last) {
      return stage_reduced_parameters(model, {0, first, last}, stages) * reduce.each +
             reduce.besides;
    };
    exchange.rest = {rest(true, stages == 1), rest(false, false), rest(false, true)};
  }
  if (model.tied_embedding && stages > 1) {
    const double seconds = token_embedding_parameters(model) * tied.each + tied.besides;
    exchange.rest[kFirst] += seconds;
    exchange.rest[kLast] += seconds;
  }
  return exchange;
}

/// PREPARED to the coordinator, COMMIT to a device on the other side, and the update of a stage
/// that has at least the mean of all parameters.
double GridBounds::commit(const Assumption& assumption) const {
  const Region& here = region(assumption.region);
  const bool cut = assumption.crosses != Assumption::kNothing;
  const double back = cut ? here.across.latency : here.near_latency;
  return here.near_latency + back + bounds_.update_ * model_parameters(job_.model) / grid_.stages;
}

/// All work at the joint speed of the region's fastest devices.
double GridBounds::compute_alone(int r) const {
  double speed = 0;
  int left = devices();
  int before = 0;
  for (std::size_t k = 0; k < kinds_ && left > 0; ++k) {
    const int count = std::min(region(r).devices[k] - before, left);
    before = region(r).devices[k];
    speed += count / layer_seconds_[k];
    left -= count;
  }
  const double head = rest_seconds_.front()[kLast] - rest_seconds_.front()[kMiddle];
  const double layers = job_.model.layers + head / layer_seconds_.front();
  return batches_ * layers / speed;
}

int GridBounds::most_layers(int kind, Part part, double micro_batches,
                            const Exchange& exchange) const {
  const std::size_t k = at(kind);
  const int most = fitting_layers_[k][part];
  const double room = window_ - exchange.rest[part] - (grid_.stages > 1 ? first_input_[part] : 0) -
                      micro_batches * rest_seconds_[k][part];
  const double layer = micro_batches * layer_seconds_[k] + exchange.layer -
                       (part == kLast && grid_.stages > 1 ? first_input_layer_ : 0);
  if (room < 0) return 0;
  int layers = layer > 0 ? whole(room / layer, most) : most;
  if (part != kFirst || grid_.stages == 1) return layers;
  const auto waits = [&](int l) {
    return micro_batches * slot_seconds_[k][at(l)] + exchange.rest[part] + l * exchange.layer;
  };
  if (layers == 0 || waits(layers) <= window_ * (1 + kRounding)) return layers;
  int low = 0;  // more layers wait longer, in fewer slots
  while (low + 1 < layers) {
    const int middle = (low + layers) / 2;
    (waits(middle) <= window_ * (1 + kRounding) ? low : layers) = middle;
  }
  return low;
}

void GridBounds::prepare(double window, std::vector<Exchange> exchanges, int zoned) {
  window_ = window;
  exchanges_ = std::move(exchanges);
  zoned_ = zoned;
  crossing_stages_ = 0;
  class_count_ = exchanges_.size() * kinds_;
  const std::size_t needed = known_for_.size() * class_count_;
  if (classes_.size() < needed) classes_.resize(needed);
  ++windows_;
}

const GridBounds::Class* GridBounds::classes_for(int micro_batches, Order order) {
  constexpr std::size_t kCrossing = kParts + kMiddle;
  const std::size_t slot = at(micro_batches + order * (batches_ + 1));
  Class* const classes = &classes_[slot * class_count_];
  if (known_for_[slot] == windows_) return classes;
  known_for_[slot] = windows_;
  for (std::size_t c = 0; c < class_count_; ++c) {
    const int kind = static_cast<int>(c % kinds_);
    const std::size_t zone = c / kinds_;
    Class& here = classes[c];
    here.number = static_cast<int>(c);
    for (std::size_t twin = 0; twin < zone; ++twin) {  // most zones differ in one of the two
      if (exchanges_[twin] == exchanges_[zone]) {
        std::copy_n(classes[twin * kinds_ + at(kind)].layers.begin(), kParts, here.layers.begin());
        break;
      }
      if (twin + 1 == zone) fill(kind, micro_batches, exchanges_[zone], here.layers.data());
    }
    if (zone == 0) fill(kind, micro_batches, exchanges_[zone], here.layers.data());
    if (crossing_stages_ == 0 || exchanges_[zone] == crossing_[zone]) {
      std::copy_n(here.layers.begin(), kParts, here.layers.begin() + kParts);
    } else {
      fill(kind, micro_batches, crossing_[zone], here.layers.data() + kParts);
    }
  }
  const std::size_t first = order == kByMiddle ? std::size_t{kMiddle} : kCrossing;
  const std::size_t second = order == kByMiddle ? kCrossing : std::size_t{kMiddle};
  std::sort(classes, classes + class_count_, [&](const Class& a, const Class& b) {
    return std::tuple(-a.layers[first], -a.layers[second], a.number) <
           std::tuple(-b.layers[first], -b.layers[second], b.number);
  });
  // Nested: what a later class can take, an earlier one counts as able to.
  for (std::size_t c = class_count_ - 1; c > 0; --c) {
    for (std::size_t part = 0; part < 2 * kParts; ++part) {
      classes[c - 1].layers[part] = std::max(classes[c - 1].layers[part], classes[c].layers[part]);
    }
  }
  return classes;
}

/// Whether the region's devices number N, 2 N, ..., P N hold all layers with n micro-batches.
bool GridBounds::pipelines_hold(int r, int pipelines, int micro_batches, Order order) {
  const Class* const classes = classes_for(micro_batches, order);
  const int all = job_.model.layers;
  const std::vector<int>& devices = region(r).devices;
  int held = 0;
  // Of a rank that is another part than a middle one that does not cross.
  std::array<int, 2 * kParts> losses;
  losses.fill(all);
  std::array<std::pair<int, int>, 32> crossing;  // losses, and how many ranks have them
  std::size_t crossing_count = 0;
  int before = 0;
  int count = 0;
  for (std::size_t c = 0; c < class_count_ && before < grid_.stages; ++c) {
    const Class& here = classes[c];
    if (zoned_ >= 0) {
      count += region(zoned_).in_zones[at(r)][at(here.number)];
    } else {
      count += devices[at(here.number)] - (here.number > 0 ? devices[at(here.number - 1)] : 0);
    }
    const int ranks = std::min(grid_.stages, count / pipelines);
    const int stages = ranks - before;
    before = ranks;
    if (stages == 0) continue;
    const std::array<int, 2 * kParts>& layers = here.layers;
    if (grid_.stages == 1) return layers[kFirst] >= all;
    if (std::max({layers[kFirst], layers[kMiddle], layers[kLast]}) < 1) return false;
    held += stages * layers[kMiddle];
    for (std::size_t part = 0; part < 2 * kParts; ++part) {
      losses[part] = std::min(losses[part], layers[kMiddle] - layers[part]);
    }
    if (crossing_count < crossing.size()) {
      crossing[crossing_count++] = {layers[kMiddle] - layers[kParts + kMiddle], stages};
    }
  }
  if (before < grid_.stages) return false;
  if (crossing_stages_ == 0 || crossing_count == crossing.size()) {
    return held - losses[kFirst] - losses[kLast] >= all;
  }
  std::sort(crossing.begin(), crossing.begin() + static_cast<std::ptrdiff_t>(crossing_count));
  const auto cheapest = [&](int stages) {
    int sum = 0;
    for (std::size_t i = 0; i < crossing_count && stages > 0; ++i) {
      sum += std::min(stages, crossing[i].second) * crossing[i].first;
      stages -= crossing[i].second;
    }
    return sum;
  };
  int loss = 3 * all;
  for (const int first : {0, 1}) {
    for (const int last : {0, 1}) {
      if (first + last > crossing_stages_) continue;
      const int middle = crossing_stages_ - first - last;
      if (middle > grid_.stages - 2) continue;
      loss = std::min(loss, losses[at(kFirst + kParts * first)] +
                                losses[at(kLast + kParts * last)] + cheapest(middle));
    }
  }
  return held - loss >= all;
}

/// The most micro-batches of pipelines on the region's devices, wherever in it they are.
void GridBounds::runs_of_devices(int r, Runs& runs) {
  runs.clear();
  const int pipelines = std::min(grid_.pipelines, region(r).size() / grid_.stages);
  int most = batches_;
  for (int next = 1; next <= pipelines;) {
    // Halves of all micro-batches, whatever `most`, so that the classes made are few.
    int low = 0;
    for (int step = static_cast<int>(std::bit_floor(static_cast<unsigned>(batches_))); step > 0;
         step /= 2) {
      if (low + step <= most && pipelines_hold(r, next, low + step)) low += step;
    }
    most = low;
    if (most == 0) return;
    int last = next;  // pipeline that can have as many
    for (int above = pipelines; last < above;) {
      const int middle = (last + above + 1) / 2;
      if (pipelines_hold(r, middle, most)) {
        last = middle;
      } else {
        above = middle - 1;
      }
    }
    runs.push_back({most, last + 1 - next});
    next = last + 1;
    --most;
  }
}

/// Pipelines across the region's cut, by the micro-batches that pass it both ways. What crosses
/// slowest passes one after the other; before the first of them, after the last of them, or both, a
/// micro-batch goes through all stages and back, and in the end the first stage exchanges its
/// gradients.
void GridBounds::add_crossings(int r, Runs& runs) const {
  const Region& here = region(r);
  const double bytes = here.is_site() ? inside_bytes_ : fewest_bytes_;
  const Exchange last = exchange(reduce_[at(r)], tied_[at(r)]);
  const double besides = path_ + crossing_latency(r) + bytes * here.across.faster_per_byte +
                         last.layer + last.rest[kFirst];
  const auto limit = [&](double per_byte) {
    if (besides > window_) return 0;
    const double seconds = bytes * per_byte;
    return seconds > 0 ? whole((window_ - besides) / seconds, batches_) : batches_;
  };
  if (here.is_site()) {
    runs.push_back({limit(here.across.slower_per_byte), grid_.pipelines});
    return;
  }
  int before = 0;
  for (const Region::Crossing& crossing : here.crossings) {
    const int count = std::min(crossing.pipelines, grid_.pipelines) - before;
    if (count > 0) runs.push_back({limit(crossing.slower_per_byte), count});
    before += std::max(count, 0);
  }
}

/// The same with hops: a pipeline stays in one half or crosses the cut.
void GridBounds::runs_of(int r, Runs& runs, int depth) {
  constexpr int kDepth = 1;  // cuts below that are left out: they cost time and hardly bind
  runs_of_devices(r, runs);
  if (grid_.stages == 1 || runs.empty() || depth == kDepth) return;
  Runs limits;
  add_crossings(r, limits);
  const bool all_cross = !limits.empty() && limits.front().count >= grid_.pipelines &&
                         limits.front().micro_batches >= runs.front().micro_batches;
  if (all_cross) return;
  if (!region(r).is_site()) {
    for (const int half : region(r).halves) {
      Runs inside;
      runs_of(half, inside, depth + 1);
      limits.insert(limits.end(), inside.begin(), inside.end());
    }
  }
  lower_to(std::move(limits), runs);
}

/// Each pipeline to the micro-batches of the one of its rank in `limits`.
void GridBounds::lower_to(Runs limits, Runs& runs) {
  std::sort(limits.begin(), limits.end(),
            [](const Run& a, const Run& b) { return a.micro_batches > b.micro_batches; });
  Runs lower;
  std::size_t l = 0;
  std::size_t r = 0;
  while (l < limits.size() && r < runs.size()) {
    const int count = std::min(limits[l].count, runs[r].count);
    lower.push_back({std::min(limits[l].micro_batches, runs[r].micro_batches), count});
    if ((limits[l].count -= count) == 0) ++l;
    if ((runs[r].count -= count) == 0) ++r;
  }
  runs = std::move(lower);
}

/// Whether D pipelines, each with a micro-batch at least, have so many together.
bool GridBounds::enough(const Runs& runs, std::int64_t micro_batches) const {
  std::int64_t sum = 0;
  int pipelines = 0;
  for (const Run& run : runs) {
    const int count = std::min(run.count, grid_.pipelines - pipelines);
    if (run.micro_batches < 1) break;
    sum += static_cast<std::int64_t>(run.micro_batches) * count;
    pipelines += count;
  }
  return pipelines == grid_.pipelines && sum >= micro_batches;
}

bool GridBounds::possible(const Assumption& assumption, double seconds) {
  const int r = assumption.region;
  const Region& here = region(r);
  const double window = seconds - commit(assumption);
  if (window <= 0) return false;
  const Exchange near = exchange(reduce_[at(r)], tied_[at(r)]);
  Runs runs;
  if (assumption.crosses == Assumption::kNothing) {
    prepare(window, {near});
    if (here.is_site()) {
      runs_of(r, runs);
    } else {
      runs_of_devices(r, runs);
    }
    return enough(runs, batches_);
  }
  const auto far = [&](const Region::Zone& zone) {
    Distance distance = here.across;
    distance.round_trip_per_byte = zone.round_trip_per_byte;
    const int same_side = region(here.halves[zone.half]).size();
    // The other side of `half` is full of members of the stages that cross.
    const int others = devices() - region(here.halves[assumption.half]).size() -
                       (assumption.crossing_max - 1) * (grid_.pipelines - 1);
    const bool is_half = assumption.crosses == Assumption::kBoth && zone.half == assumption.half;
    const int most = is_half ? grid_.pipelines - std::max(1, others) : grid_.pipelines - 1;
    return exchange(
        exchange_cost(here, distance, false, grid_.pipelines, std::min(same_side, most)),
        exchange_cost(here, distance, false, 2 * grid_.pipelines, same_side));
  };
  switch (assumption.crosses) {
    case Assumption::kNothing:
      break;
    case Assumption::kExchanges: {
      std::vector<Exchange> exchanges;
      for (const auto& zone : here.zones) exchanges.push_back(far(zone));
      prepare(window, std::move(exchanges), r);
      runs_of(r, runs);
      break;
    }
    case Assumption::kPipelines: {
      prepare(window, {near});
      runs_of_devices(r, runs);
      Runs limits;
      add_crossings(r, limits);
      lower_to(std::move(limits), runs);
      break;
    }
    case Assumption::kBoth: {
      // Devices on the other side are only in stages that cross.
      std::vector<Exchange> exchanges;
      crossing_.clear();
      for (const auto& zone : here.zones) {
        crossing_.push_back(far(zone));
        exchanges.push_back(zone.half == assumption.half ? near : crossing_.back());
      }
      prepare(window, std::move(exchanges), r);
      crossing_stages_ = assumption.crossing_min;
      const int side = here.halves[assumption.half];
      const int others = std::max(1, devices() - region(side).size());
      int fast = grid_.pipelines - ceil_of_quotient(others, assumption.crossing_max);
      Runs inside, limits;
      runs_of(side, inside);
      for (const Run& run : inside) {
        const int count = std::min(run.count, fast);
        if (count > 0) limits.push_back({run.micro_batches, count});
        fast -= count;
      }
      add_crossings(r, limits);
      runs_of_devices(r, runs);
      lower_to(std::move(limits), runs);
      break;
    }
  }
  return enough(runs, batches_);
}

/// The longest step found impossible, at most `enough`, which is answered without a search for
/// more.
double GridBounds::least(const Assumption& assumption, double from, double enough) {
  if (std::isfinite(enough) && !possible(assumption, enough)) return enough;
  double low = from;
  double high = from;
  // Most bounds are near the compute alone, few are many times that.
  for (double stride = 0.05; !possible(assumption, high); stride *= 2) {
    if (!(high < kLongest)) return kEndless;  // no number either
    low = high;
    high = std::min(high * (1 + stride), enough);
    if (high == enough) break;
  }
  while (high - low > kPrecision * low) {
    const double middle = (low + high) / 2;
    if (possible(assumption, middle)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

/// What may cross the cut of a region.
template <class Attempt>
void GridBounds::attempt_cuts(int r, double from, Attempt&& attempt) {
  const Region& here = region(r);
  // What tends to be lowest first: the others are then refuted at once.
  const bool swap = region(here.halves[0]).size() < region(here.halves[1]).size();
  for (const int half : {swap ? 1 : 0, swap ? 0 : 1}) {
    if (grid_.pipelines == 1) break;
    const int others = std::max(1, devices() - region(here.halves[half]).size());
    // One, two, three stages that cross; or more, as if with the fewest and the most of that.
    for (int low = std::min(4, grid_.stages - 1); low > 0; --low) {
      const int high = low < 4 ? low : grid_.stages - 1;
      if (others > high * (grid_.pipelines - 1)) continue;
      attempt({r, Assumption::kBoth, half, low, high}, from);
    }
  }
  if (grid_.stages > 1) attempt({r, Assumption::kPipelines, 0, 0, 0}, from);
  if (grid_.pipelines > 1) attempt({r, Assumption::kExchanges, 0, 0, 0}, from);
}

double GridBounds::compute() {
  const int everything = static_cast<int>(bounds_.regions_.size()) - 1;
  return least({everything, Assumption::kNothing, 0, 0, 0}, compute_alone(everything), kEndless);
}

Bound GridBounds::lower() {
  const int everything = static_cast<int>(bounds_.regions_.size()) - 1;
  const Bound no_room{kEndless, fmt::format("the memory of {} devices", devices())};
  prepare(kLongest, {Exchange{}});
  Runs runs;
  runs_of_devices(everything, runs);
  if (!enough(runs, grid_.pipelines)) return no_room;
  double best = kEndless;
  Assumption binding;
  const auto attempt = [&](const Assumption& assumption, double from) {
    const double found = least(assumption, from, best);
    if (found >= best) return;
    best = found;
    binding = assumption;
  };
  // Where compute alone takes twice what it takes in the best grid, the network is left out: such a
  // grid rarely is the best, and has many places to be in.
  const Assumption anywhere{everything, Assumption::kNothing, 0, 0, 0};
  const double far_off = 2 * bounds_.compute_;
  const bool is_slow = !possible(anywhere, far_off);
  if (is_slow) attempt(anywhere, std::max(far_off, compute_alone(everything)));
  // Of very many regions only the largest are taken with their cuts.
  const int cuts_most = bounds_.regions_.size() <= 100 ? 24 : 2;
  int cuts = 0;
  std::vector<char> done(bounds_.regions_.size(), 0);
  for (int r = everything; r >= 0 && !is_slow; --r) {
    const Region& here = region(r);
    if (done[at(r)] == 0) {
      if (here.size() < devices()) continue;
      const double from = compute_alone(r);
      if (from >= best) continue;
      if (!here.is_site() && ++cuts <= cuts_most) {
        attempt_cuts(r, from, attempt);
        continue;
      }
      attempt({r, Assumption::kNothing, 0, 0, 0}, from);
    }
    for (const int half : here.halves) {
      if (half >= 0) done[at(half)] = 1;
    }
  }
  if (best == kEndless) return no_room;
  const Region& here = region(binding.region);
  if (binding.crosses == Assumption::kNothing) {
    return {best, fmt::format("compute in whole layers and micro-batches on {} device{}{}",
                              devices(), devices() == 1 ? "" : "s",
                              here.is_site() ? " of " + bounds_.name_of(here.sites) : "")};
  }
  std::array<std::pair<std::size_t, std::string>, 2> sides;  // the smaller first
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<int>& sites = region(here.halves[i]).sites;
    sides[i] = {sites.size(), bounds_.name_of(sites)};
  }
  std::sort(sides.begin(), sides.end());
  const std::string cut = fmt::format("between {} and {}", sides[0].second, sides[1].second);
  const char* const what = binding.crosses == Assumption::kExchanges ? "all gradients"
                           : binding.crosses == Assumption::kPipelines
                               ? "all activations"
                               : "gradients and activations";
  return {best, fmt::format("compute, and {} {}", what, cut)};
}

}  // namespace longhaul
