// A whole pipeline in one thread, with real tensors, and the single stage that it must equal bit
// for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "core/rng.h"
#include "executor/pipeline/pipeline_step.h"
#include "executor/runtime/sim_event_loop.h"
#include "kernels/cpu/simulated_compute_queue.h"
#include "tests/executor/fake_mesh.h"

namespace longhaul::fixtures {

inline constexpr int kSequences = 2;  // of a micro-batch

inline ModelShape tiny_gpt2(int layers, bool tied) {
  return {.family = ModelFamily::kGpt2,
          .layers = layers,
          .width = 8,
          .heads = 2,
          .kv_heads = 2,
          .head_width = 4,
          .ffn_width = 12,
          .context = 5,
          .vocabulary = 11,
          .tied_embedding = tied};
}

/// The tokens of (step, micro-batch); one target in five is padding.
inline void fill_tokens(const TokenSource::Request& request) {
  Rng rng("pipeline tokens",
          request.step * 1000u + static_cast<std::uint64_t>(request.micro_batch));
  const auto draw = [&rng](double below) {
    return static_cast<std::int32_t>(rng.uniform() * below);
  };
  std::vector<std::int32_t> inputs(kSequences * 5), targets(kSequences * 5);
  for (std::int32_t& input : inputs) input = draw(11);
  for (std::int32_t& target : targets) target = draw(5) == 0 ? ops::kIgnoredTarget : draw(11);
  if (!request.inputs.empty()) std::ranges::copy(inputs, request.inputs.begin());
  if (!request.targets.empty()) std::ranges::copy(targets, request.targets.begin());
}

/// Answers every other request at once, the rest later.
class TinyTokens final : public TokenSource {
 public:
  explicit TinyTokens(EventLoop& loop) : loop_(loop) {}
  void fetch(const Request& request, Done done) override {
    ++requests;
    if (fails_at == request.micro_batch) return done(failed("the shard is unreadable"));
    if (request.micro_batch % 2 == 0) {
      fill_tokens(request);
      return done({});
    }
    loop_.after(delay, [request, done = std::move(done)]() mutable {
      fill_tokens(request);
      done({});
    });
  }
  Seconds delay = milliseconds(0.1);
  int requests = 0;
  int fails_at = -1;

 private:
  EventLoop& loop_;
};

/// What steps leave behind, by tensor name.
struct Outcome {
  std::vector<std::vector<float>> losses;                            // [step]
  std::map<std::string, std::vector<std::vector<float>>> gradients;  // [step]
  std::map<std::string, std::vector<float>> weights;
};

inline bool same_floats(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline void expect_same(const Outcome& outcome, const Outcome& reference) {
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  for (std::size_t s = 0; s < outcome.losses.size(); ++s) {
    EXPECT_TRUE(same_floats(outcome.losses[s], reference.losses[s])) << "losses of step " << s;
  }
  ASSERT_EQ(outcome.gradients.size(), reference.gradients.size());
  for (const auto& [name, steps] : outcome.gradients) {
    const auto& expected = reference.gradients.at(name);
    ASSERT_EQ(steps.size(), expected.size()) << name;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      EXPECT_TRUE(same_floats(steps[s], expected[s])) << name << " in step " << s;
    }
  }
  for (const auto& [name, weight] : outcome.weights) {
    EXPECT_TRUE(same_floats(weight, reference.weights.at(name))) << name;
  }
}

/// AdamW state of a stage.
struct Optimiser {
  explicit Optimiser(ModelStage& stage) : m(stage.weights().size()), v(m.size()) {}

  void update(ModelStage& stage, std::int64_t step) {
    for (const ModelParameter& parameter : stage.parameters()) {
      ops::adamw({.options = {.learning_rate = 0.01,
                              .weight_decay = parameter.decays() ? 0.1 : 0.0,
                              .step = step},
                  .weight = stage.weight(parameter),
                  .gradient = stage.gradient(parameter),
                  .m = std::span(m).subspan(parameter.offset, parameter.size),
                  .v = std::span(v).subspan(parameter.offset, parameter.size)});
    }
  }
  std::vector<float> m, v;
};

struct PipelineOptions {
  std::vector<int> layers = {1};  // of each stage
  int micro_batches = 1;
  std::vector<int> in_flight = {1};
  bool tied = false;
  bool recompute = false;
  std::uint64_t seed = 0;
  std::vector<std::string> orders = {};  // of each stage, for a split backward
  Precision precision = Precision::kFp32;
};

inline constexpr float kLossScale = 1.0f / 32;

/// The model in one piece, micro-batches in order; steps first_step, first_step + 1, ...
inline Outcome run_single(const PipelineOptions& options, int steps, int first_step = 0) {
  const int layers = std::accumulate(options.layers.begin(), options.layers.end(), 0);
  ModelStage stage = ModelStage::create(tiny_gpt2(layers, options.tied), {0, layers, true, true},
                                        options.precision)
                         .value();
  stage.initialise_weights(7);
  Optimiser optimiser(stage);
  StageBatch batch(stage, kSequences);
  Outcome outcome;
  for (int s = 0; s < steps; ++s) {
    stage.zero_gradients();
    outcome.losses.emplace_back();
    for (int m = 0; m < options.micro_batches; ++m) {
      fill_tokens(
          {static_cast<std::uint32_t>(first_step + s), 0, m, batch.tokens(), batch.targets()});
      stage.forward(batch);
      outcome.losses.back().insert(outcome.losses.back().end(), batch.losses().begin(),
                                   batch.losses().end());
      stage.backward(batch, kLossScale);
    }
    stage.fold_tied_gradient();
    for (const ModelParameter& parameter : stage.parameters()) {
      const auto gradient = stage.gradient(parameter);
      outcome.gradients[parameter.name].emplace_back(gradient.begin(), gradient.end());
    }
    optimiser.update(stage, s + 1);
  }
  for (const ModelParameter& parameter : stage.parameters()) {
    const auto weight = stage.weight(parameter);
    outcome.weights[parameter.name].assign(weight.begin(), weight.end());
  }
  return outcome;
}

/// All stages of one pipeline, on one loop.
class Pipeline {
 public:
  using MakeQueue = std::function<std::unique_ptr<ComputeQueue>(const TaskletSchedule&)>;

  struct Cell {
    explicit Cell(ModelStage made) : stage(std::move(made)), optimiser(stage) {}
    ModelStage stage;
    Optimiser optimiser;
    std::unique_ptr<ComputeQueue> queue;
    std::unique_ptr<StageStorage> storage;
    PipelineContext context;
    std::unique_ptr<PipelineStep> step;
    std::optional<Result<PipelineResult>> result;
  };

  /// Without `make_format` all boundaries are plain.
  using MakeFormat = std::function<std::unique_ptr<BoundaryFormat>(int cell)>;

  Pipeline(EventLoop& event_loop, const PipelineOptions& options, const MakeQueue& make_queue,
           const MakeFormat& make_format = nullptr)
      : loop(event_loop),
        tokens(loop),
        network(loop, static_cast<int>(options.layers.size()), options.seed) {
    Plan plan;
    plan.layers = options.layers;
    plan.devices.emplace_back(options.layers.size(), 0);
    plan.micro_batches = {options.micro_batches};
    plan.micro_batch = kSequences;
    plan.in_flight = options.in_flight;
    for (const std::string& order : options.orders) {
      plan.family = ScheduleFamily::kGreedy;
      plan.orders.push_back(parse_order(order).value());
    }
    Job job;
    const int layers = std::accumulate(options.layers.begin(), options.layers.end(), 0);
    job.model = tiny_gpt2(layers, options.tied);
    job.recompute = options.recompute ? Recompute::kYes : Recompute::kNo;
    schedule = make_schedule(plan, job);
    EXPECT_TRUE(build_graph(schedule).has_value());

    const std::size_t stages = options.layers.size();
    int first = 0;
    for (std::size_t i = 0; i < stages; ++i) {
      const ModelSlice slice = {first, first + options.layers[i], i == 0, i + 1 == stages};
      first = slice.end_layer;
      cells.push_back(
          std::make_unique<Cell>(ModelStage::create(job.model, slice, options.precision).value()));
      Cell& cell = *cells.back();
      cell.stage.initialise_weights(7);
      cell.queue = make_queue(schedule.tasklets[i]);
      format_of_cell.push_back(make_format ? make_format(static_cast<int>(i))
                                           : std::make_unique<PlainBoundary>(options.precision));
      BoundaryFormat& format = *format_of_cell.back();
      const auto elements =
          static_cast<std::size_t>(kSequences * job.model.context * job.model.width);
      std::size_t wire_bytes = 0;
      for (const int peer : {static_cast<int>(i) - 1, static_cast<int>(i) + 1}) {
        if (peer < 0 || peer >= static_cast<int>(stages)) continue;
        wire_bytes =
            std::max({wire_bytes, format.wire_bytes_max(Op::kSendActivation, peer, elements),
                      format.wire_bytes_max(Op::kSendGradient, peer, elements)});
      }
      cell.storage =
          std::make_unique<StageStorage>(cell.stage, *cell.queue, format, kSequences, wire_bytes);
      // Ranks count backwards from the cells, so that taking one for the other shows.
      const int rank = static_cast<int>(stages - 1 - i);
      cell.context = {.schedule = &schedule,
                      .cell = static_cast<int>(i),
                      .rank_of_cell = {},
                      .stage = &cell.stage,
                      .storage = cell.storage.get(),
                      .queue = cell.queue.get(),
                      .stream = cell.queue->create_stream(),
                      .codec_stream = cell.queue->create_stream(),
                      .mesh = &network.mesh(rank),
                      .loop = &loop,
                      .tokens = &tokens,
                      .format = &format,
                      .samples = {},
                      .resend = {},
                      .hooks = {}};
      for (std::size_t c = 0; c < stages; ++c) {
        cell.context.rank_of_cell.push_back(static_cast<int>(stages - 1 - c));
      }
      cell.context.hooks.tied_reduce = [this](PipelineHooks::Done done) {
        tied_reduce(std::move(done));
      };
      cell.context.hooks.update = [this, &cell](PipelineHooks::Done done) {
        update(cell, std::move(done));
      };
    }
  }

  void start(std::uint32_t step) {
    for (auto& cell : cells) {
      cell->result.reset();
      cell->step = std::make_unique<PipelineStep>(
          cell->context, PipelineStep::Options{.step = step, .loss_scale = kLossScale});
    }
    for (auto& cell : cells) {
      cell->step->start([&cell = *cell](Result<PipelineResult> result) {
        ASSERT_FALSE(cell.result.has_value()) << "a step completes once";
        cell.result = std::move(result);
      });
    }
  }

  bool all_done() const {
    return std::ranges::all_of(cells, [](const auto& cell) { return cell->result.has_value(); });
  }

  /// Aborts every step; true in `released` once all are.
  void abort(int& released) {
    tied_waiting_.clear();
    for (auto& cell : cells) cell->step->abort([&released] { ++released; });
  }

  /// After all_done: keeps the losses.
  void collect() {
    for (auto& cell : cells)
      ASSERT_TRUE(cell->result->has_value()) << (*cell->result).error().text();
    outcome.losses.push_back((*cells.back()->result)->losses);
  }

  /// After the last step.
  void collect_weights() {
    for (auto& cell : cells) {
      for (const ModelParameter& parameter : cell->stage.parameters()) {
        const auto weight = cell->stage.weight(parameter);
        auto& kept = outcome.weights[parameter.name];
        EXPECT_TRUE(kept.empty() || same_floats(kept, weight)) << parameter.name;
        kept.assign(weight.begin(), weight.end());
      }
    }
  }

  /// Recorded times against the schedule: a lane runs in list order, one at a time; `after` and the
  /// peer's send come before.
  void expect_times_keep_the_schedule() const {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const auto& list = schedule.tasklets[c].instructions;
      const auto& times = (*cells[c]->result)->times;
      ASSERT_EQ(times.size(), list.size());
      std::map<std::pair<Lane, int>, Seconds> lane_end;
      for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_LE(times[i].start, times[i].end);
        Seconds& end = lane_end[{lane_of(list[i].op), list[i].peer}];
        EXPECT_LE(end, times[i].start) << "instruction " << i << " of stage " << c;
        end = times[i].end;
        for (const std::int32_t before : list[i].after) {
          if (before >= 0) EXPECT_LE(times[static_cast<std::size_t>(before)].end, times[i].start);
        }
        if (list[i].op != Op::kReceiveActivation && list[i].op != Op::kReceiveGradient) continue;
        const Op sent =
            list[i].op == Op::kReceiveActivation ? Op::kSendActivation : Op::kSendGradient;
        const auto peer = static_cast<std::size_t>(list[i].peer);
        const auto& peer_list = schedule.tasklets[peer].instructions;
        for (std::size_t j = 0; j < peer_list.size(); ++j) {
          if (peer_list[j].op != sent || peer_list[j].micro_batch != list[i].micro_batch) continue;
          if (peer_list[j].peer != static_cast<int>(c)) continue;
          EXPECT_LE((*cells[peer]->result)->times[j].start, times[i].end);
        }
      }
    }
  }

  EventLoop& loop;
  TinyTokens tokens;
  Schedule schedule;
  std::vector<std::unique_ptr<BoundaryFormat>> format_of_cell;
  std::vector<std::unique_ptr<Cell>> cells;
  FakeMeshNetwork network;
  Outcome outcome;

 private:
  /// Both ends meet here: gradient = head + embedding.
  void tied_reduce(PipelineHooks::Done done) {
    tied_waiting_.push_back(std::move(done));
    if (tied_waiting_.size() < 2) return;
    const auto wte = [](ModelStage& stage) {
      for (const ModelParameter& parameter : stage.parameters()) {
        if (parameter.name == "wte.weight") return stage.gradient(parameter);
      }
      return std::span<float>();
    };
    const std::span<float> embedding = wte(cells.front()->stage);
    const std::span<float> head = wte(cells.back()->stage);
    ASSERT_EQ(embedding.size(), head.size());
    for (std::size_t i = 0; i < head.size(); ++i) embedding[i] = head[i] = head[i] + embedding[i];
    for (auto& waiting : std::exchange(tied_waiting_, {})) waiting({});
  }

  void update(Cell& cell, PipelineHooks::Done done) {
    for (const ModelParameter& parameter : cell.stage.parameters()) {
      const auto gradient = cell.stage.gradient(parameter);
      auto& steps = outcome.gradients[parameter.name];
      if (steps.size() == outcome.losses.size() + 1) {  // tied, and the other end was here
        EXPECT_TRUE(same_floats(steps.back(), gradient)) << parameter.name;
      } else {
        steps.emplace_back(gradient.begin(), gradient.end());
      }
    }
    const auto stream = cell.context.stream;
    cell.queue->submit(stream,
                       {.tag = schedule.tasklets[0].instructions.size(),
                        .run = [&cell, step = std::ssize(outcome.losses)]() -> Result<void> {
                          cell.optimiser.update(cell.stage, step + 1);
                          return {};
                        }});
    cell.queue->notify(stream, std::move(done));
  }

  std::vector<PipelineHooks::Done> tied_waiting_;
};

/// Simulated devices: 1 s a forward and a recomputation, 2 s a backward, nothing for the rest. With
/// jitter each takes up to twice as long.
inline Pipeline::MakeQueue simulated_devices(SimEventLoop& loop, std::uint64_t seed,
                                             double jitter) {
  return [&loop, jitter,
          rng = std::make_shared<Rng>("device times", seed)](const TaskletSchedule& tasklet) {
    return make_simulated_compute_queue(
        {.now = [&loop] { return SimTime::from(loop.now()); },
         .at =
             [&loop](SimTime time, std::move_only_function<void()> task) {
               loop.after((time - SimTime::from(loop.now())).seconds(), std::move(task));
             }},
        [&tasklet, jitter, rng](std::uint64_t tag, std::size_t) {
          if (tag >= tasklet.instructions.size()) return Seconds(0);
          const Op op = tasklet.instructions[tag].op;
          return seconds(op == Op::kBackward ? 2 : 1) * (1 + jitter * rng->uniform());
        });
  };
}

}  // namespace longhaul::fixtures
