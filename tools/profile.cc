#include "tools/profile.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>

#include "core/config_cursor.h"
#include "core/median.h"
#include "core/quantity.h"
#include "core/rng.h"
#include "executor/run/stage_state.h"
#include "kernels/cpu/isa.h"

namespace longhaul {
namespace {

constexpr int kMicroBatches[] = {1, 2, 4};
constexpr int kLayersMost = 4;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Times of one pass. The first one also warms caches up and counts only where it is alone.
struct Samples {
  std::vector<double> seconds;

  int repeats() const { return static_cast<int>(std::max<std::size_t>(seconds.size(), 2) - 1); }
  double middle() const {
    if (seconds.size() == 1) return seconds.front();
    return median({seconds.begin() + 1, seconds.end()});
  }
};

/// A stage and a micro-batch of each size on it.
class MeasuredStage {
 public:
  static Result<std::unique_ptr<MeasuredStage>> create(const ModelShape& model,
                                                       const StageShape& shape,
                                                       Precision precision) {
    const ModelSlice slice{model.layers - shape.layers, model.layers, false, shape.has_head};
    LH_ASSIGN(StageState state, StageState::create(model, slice, precision));
    return std::unique_ptr<MeasuredStage>(new MeasuredStage(shape, std::move(state)));
  }

  const StageShape& shape() const { return shape_; }
  const ModelShape& model() { return state_.stage().model(); }

  struct Unit {
    int micro_batch = 1;
    StageBatch batch;
    Samples forward, backward;
  };
  std::vector<Unit>& units() { return units_; }
  const Samples& update_samples() const { return update_; }

  void add(int micro_batch) {
    units_.push_back({micro_batch, StageBatch(state_.stage(), micro_batch), {}, {}});
  }

  void run(Unit& unit) {
    ModelStage& stage = state_.stage();
    fill(unit.batch.input(), 1);  // backward leaves a gradient there
    if (shape_.has_head) {
      for (std::int32_t& target : unit.batch.targets()) {
        target = static_cast<std::int32_t>(
            random_.below(static_cast<std::uint64_t>(stage.model().vocabulary)));
      }
    }
    const Clock::time_point start = Clock::now();
    stage.forward(unit.batch);
    unit.forward.seconds.push_back(seconds_since(start));
    if (!shape_.has_head) fill(unit.batch.output(), 1e-3F);
    const Clock::time_point middle = Clock::now();
    stage.backward(unit.batch, 1.0F / static_cast<float>(unit.batch.rows()));
    unit.backward.seconds.push_back(seconds_since(middle));
  }

  /// After a run: a gradient of zeros would be easier than real ones.
  void update() {
    const Clock::time_point start = Clock::now();
    // A learning rate of 0 keeps the weights where they are, at the same cost.
    state_.update({.norm = 1, .learning_rate = 0, .gradient_scale = 1}, Training{}, updates_++);
    update_.seconds.push_back(seconds_since(start));
  }

 private:
  MeasuredStage(const StageShape& shape, StageState state)
      : shape_(shape), state_(std::move(state)) {
    state_.stage().initialise_weights(1);
  }

  void fill(std::span<float> values, float scale) {
    for (float& value : values) value = scale * static_cast<float>(random_.uniform() - 0.5);
  }

  const StageShape shape_;
  StageState state_;
  Rng random_{"profile", 1};
  std::vector<Unit> units_;
  Samples update_;
  std::uint64_t updates_ = 0;
};

/// What a stage takes at the largest micro-batch, all sizes held at once.
Bytes memory_of(const ModelShape& model, const StageShape& shape) {
  Job job;
  job.model = model;
  job.precision = Precision::kFp32;  // which bf16 is kept in, too
  return memory_use(job, DeviceKind{},
                    {.stage = shape, .micro_batch = kMicroBatches[2], .in_flight = 2})
      .total();
}

std::vector<StageShape> shapes_that_fit(const ModelShape& model) {
  std::vector<StageShape> shapes = {{1, false, false}, {1, false, true}};
  if (model.layers > 1) shapes.push_back({std::min(kLayersMost, model.layers), false, false});
  Bytes left = 0.5 * machine_memory();
  std::erase_if(shapes, [&](const StageShape& shape) {
    const Bytes need = memory_of(model, shape);
    if (need > left) return true;
    left -= need;
    return false;
  });
  return shapes;
}

}  // namespace

std::string_view name_of(PassKind kind) {
  constexpr std::string_view names[] = {"forward", "backward", "update"};
  return names[static_cast<std::size_t>(kind)];
}

Result<std::vector<PassTime>> measure_passes(const ModelShape& model,
                                             const ProfileOptions& options) {
  const std::vector<StageShape> shapes = shapes_that_fit(model);
  if (shapes.empty()) {
    return infeasible(fmt::format("one layer takes {}, more than half of this machine's {}",
                                  format_size(memory_of(model, {1, false, false})),
                                  format_size(machine_memory())),
                      "profile a job with a smaller model, or a shorter context");
  }
  std::vector<std::unique_ptr<MeasuredStage>> stages;
  for (const StageShape& shape : shapes) {
    LH_ASSIGN(std::unique_ptr<MeasuredStage> stage,
              MeasuredStage::create(model, shape, options.precision));
    stages.push_back(std::move(stage));
  }

  // The first round takes in what half of the budget has time for; small micro-batches come first.
  const Clock::time_point start = Clock::now();
  const double budget = options.budget.value();
  std::size_t passes = 0;
  bool stopped = false;
  for (const int micro_batch : kMicroBatches) {
    for (const auto& stage : stages) {
      stopped =
          stopped || options.should_stop() || (passes > 0 && seconds_since(start) > budget / 2);
      if (stopped) break;
      stage->add(micro_batch);
      stage->run(stage->units().back());
      passes += 2;
      if (stage->update_samples().seconds.empty()) {
        stage->update();
        ++passes;
      }
    }
  }
  int rounds = 1;
  options.on_round(rounds, passes);
  const auto is_over = [&] { return options.should_stop() || seconds_since(start) > budget; };
  while (!is_over()) {
    for (const auto& stage : stages) {
      for (MeasuredStage::Unit& unit : stage->units()) {
        if (!is_over()) stage->run(unit);
      }
      if (!stage->units().empty() && !is_over()) stage->update();
    }
    options.on_round(++rounds, passes);
  }

  std::vector<PassTime> times;
  for (const auto& stage : stages) {
    const double parameters = stage_parameters(model, stage->shape());
    const auto add = [&](PassKind kind, int micro_batch, Flops work, const Samples& samples) {
      times.push_back({kind, stage->shape(), micro_batch, work, parameters,
                       Seconds(std::max(samples.middle(), 1e-9)), samples.repeats(),
                       options.precision});
    };
    for (const MeasuredStage::Unit& unit : stage->units()) {
      const StageWork work = stage_work(model, stage->shape(), unit.micro_batch);
      add(PassKind::kForward, unit.micro_batch, work.forward, unit.forward);
      add(PassKind::kBackward, unit.micro_batch, work.backward, unit.backward);
    }
    if (!stage->units().empty()) add(PassKind::kUpdate, 0, Flops(0), stage->update_samples());
  }
  return times;
}

DeviceKind fit_device(std::span<const PassTime> passes) {
  // Least squares of (seconds_per_flop x work + overhead) / time - 1, so that short passes count as
  // much as long ones: with x = work / time and y = 1 / time,
  //   (sum xx) a + (sum xy) b = sum x,   (sum xy) a + (sum yy) b = sum y.
  double xx = 0, xy = 0, yy = 0, x_sum = 0, y_sum = 0;
  double uu = 0, u_sum = 0;
  for (const PassTime& pass : passes) {
    if (pass.kind == PassKind::kUpdate) {
      const double u = pass.parameters / pass.time.value();
      uu += u * u;
      u_sum += u;
      continue;
    }
    const double x = pass.work.value() / pass.time.value();
    const double y = 1 / pass.time.value();
    xx += x * x;
    xy += x * y;
    yy += y * y;
    x_sum += x;
    y_sum += y;
  }
  LH_CHECK(xx > 0 && uu > 0, "a fit needs a pass and an update");
  const double determinant = xx * yy - xy * xy;
  double per_flop = (x_sum * yy - y_sum * xy) / determinant;
  double overhead = (y_sum * xx - x_sum * xy) / determinant;
  // Where larger passes are the more efficient, a line through them starts below zero. The same
  // holds for passes of one size, whose line is undetermined.
  if (!(overhead > 0) || !(per_flop > 0)) {
    per_flop = x_sum / xx;
    overhead = 0;
  }
  DeviceKind device;
  device.rate[static_cast<std::size_t>(passes.front().precision)] = FlopsPerSecond(1 / per_flop);
  device.overhead = Seconds(overhead);
  device.memory_rate = BytesPerSecond(28 * uu / u_sum);
  return device;
}

Seconds fitted_time(const DeviceKind& device, const PassTime& pass) {
  return pass.kind == PassKind::kUpdate ? update_time(device, pass.parameters)
                                        : compute_time(device, pass.precision, pass.work);
}

ModelShape demo_model() {
  return {.family = ModelFamily::kGpt2,
          .layers = 8,
          .width = 128,
          .heads = 4,
          .kv_heads = 4,
          .head_width = 32,
          .ffn_width = 512,
          .context = 64,
          .vocabulary = 256,
          .tied_embedding = true};
}

Bytes machine_memory() {
  return Bytes(static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
               static_cast<double>(sysconf(_SC_PAGESIZE)));
}

std::string processor_name() {
  std::string name = "an unnamed processor";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return fmt::format("{} ({})", name, name_of(active_isa()));
}

std::string device_text(const DeviceKind& device) {
  std::string out = "schema: longhaul/device/1\n";
  out += fmt::format("kind: {}\n", yaml_text(device.name));
  out += fmt::format("title: {}\n", yaml_text(device.title));
  out += fmt::format("memory: {}  # this machine's, by its cores\n", format_size(device.memory));
  out += fmt::format("reserved: {}  # assumed: the program, its libraries and packing buffers\n",
                     format_size(device.reserved));
  const Precision precision =
      device.rate_at(Precision::kBf16) > FlopsPerSecond(0) ? Precision::kBf16 : Precision::kFp32;
  out += fmt::format("peak: {{{}: {}}}  # fitted; what is sustained, hence an efficiency of 1\n",
                     name_of(precision), format_flop_rate(device.rate_at(precision)));
  out += "efficiency: 1\n";
  out += fmt::format("memory_bandwidth: {:.4g} GB/s  # fitted, of the optimiser's update\n",
                     device.memory_rate.value() / 1e9);
  out += "memory_efficiency: 1\n";
  out += fmt::format("overhead: {}  # fitted; of a pass, without codecs and messages\n",
                     format_duration(device.overhead));
  out += "origin: measured\n";
  out += fmt::format("source: {}\n", yaml_text(device.source));
  return out;
}

}  // namespace longhaul
