// Whole runs in virtual time (executor/run/simulated_run.h) of a tiny model, with disks that
// outlive them, and the plain loop that a run must equal.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/rng.h"
#include "executor/run/simulated_run.h"
#include "executor/storage/sim_storage.h"

namespace longhaul::fixtures {

/// A stream that a small model learns fast: words of a small vocabulary in a noisy cycle.
inline std::vector<Token> learnable_tokens(std::int64_t count, std::uint64_t seed) {
  Rng rng("learnable tokens", seed);
  std::vector<Token> tokens;
  Token last = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool follows = rng.uniform() < 0.9;
    last = follows ? (last * 5 + 3) % 16 : static_cast<Token>(rng.uniform() * 16);
    tokens.push_back(last);
  }
  return tokens;
}

class MemorySequences final : public SequenceSource {
 public:
  MemorySequences(std::vector<Token> tokens, int context) : tokens_(std::move(tokens)) {
    TokenFingerprint fingerprint;
    fingerprint.add(tokens_);
    identity_ = {fingerprint.value(), static_cast<std::int64_t>(tokens_.size()), 16, context};
  }
  const DataIdentity& identity() const override { return identity_; }
  void fetch(std::vector<std::int64_t> sequences, Completion done) override {
    std::vector<Token> answer;
    for (const std::int64_t s : sequences) {
      const auto first = tokens_.begin() + s * identity_.context;
      answer.insert(answer.end(), first, first + identity_.context + 1);
    }
    done(std::move(answer));
  }

 private:
  std::vector<Token> tokens_;
  DataIdentity identity_;
};

struct RunOptions {
  std::vector<int> layers = {4};         // of each stage
  std::vector<int> micro_batches = {8};  // of each pipeline
  int micro_batch = 1;
  ScheduleFamily family = ScheduleFamily::kOneForwardOneBackward;
  std::vector<int> in_flight = {};       // empty: the family's
  std::vector<std::string> orders = {};  // of each stage, for family greedy
  bool tied = true;
  bool llama = false;
  int width = 16;  // 64: the larger matrices are exchanged in the job's codec
  bool recompute = false;
  Precision precision = Precision::kFp32;
  Codec activations = Codec::kNone;
  Codec gradients = Codec::kNone;
  /// The job leaves recomputation and codecs to the plan, with the floors above.
  bool is_auto = false;
  std::string history = {};                       // of the job's compression: `memory: 1 MiB`
  std::vector<PairCodec> activation_codecs = {};  // cell n is on site n
  std::vector<Reduction> reductions = {};
  std::uint64_t steps = 50;
  std::uint64_t validation_every = 20;
  std::uint64_t checkpoint_every = 0;
  std::int64_t train_tokens = 8 * 8 * 20 + 1;
  std::uint64_t seed = 1;  // of the simulated world
  double jitter = 0;
  ControlLimits limits = {};
  std::size_t early_bytes = MeshLimits{}.early_bytes;
};

inline RunSpec spec_of(const RunOptions& options, const DataIdentity& train,
                       const DataIdentity& validation) {
  const int layers = std::accumulate(options.layers.begin(), options.layers.end(), 0);
  const int batch = std::accumulate(options.micro_batches.begin(), options.micro_batches.end(), 0) *
                    options.micro_batch;
  std::string compression =
      options.is_auto ? fmt::format("activations: auto, gradients: auto, floor: {}",
                                    name_of(options.activations))
                      : fmt::format("activations: {}, gradients: {}", name_of(options.activations),
                                    name_of(options.gradients));
  if (!options.history.empty()) compression += fmt::format(", history: {{{}}}", options.history);
  RunSpec spec;
  spec.id = 77;
  spec.job_text = fmt::format(
      "schema: longhaul/job/1\n"
      "name: tiny\n"
      "model: {{family: {}, layers: {}, width: {}, context: 8, vocabulary: 16, "
      "tied_embedding: {}}}\n"
      "batch: {{global: {}, micro_batch: {}}}\n"
      "precision: {}\n"
      "recompute: {}\n"
      "compression: {{{}}}\n"
      "training:\n"
      "  data: data\n"
      "  steps: {}\n"
      "  learning_rate: {{max: 2e-2, min: 2e-3, warm_up: 5}}\n"
      "  validation: {{every: {}, sequences: 6}}\n"
      "  checkpoints: {{every: {}, keep: 2}}\n",
      options.llama ? "llama, heads: 4, kv_heads: 2, head_width: 6, ffn_width: 36"
                    : "gpt2, heads: 2",
      layers, options.width, options.tied, batch, options.micro_batch, name_of(options.precision),
      options.is_auto ? "auto" : fmt::format("{}", options.recompute), compression, options.steps,
      options.validation_every, options.checkpoint_every);
  Result<Job> job = parse_job(spec.job_text, "job");
  EXPECT_TRUE(job) << (job ? "" : job.error().text());
  spec.job = *job;
  spec.plan.layers = options.layers;
  spec.plan.micro_batches = options.micro_batches;
  spec.plan.micro_batch = options.micro_batch;
  spec.plan.family = options.family;
  spec.plan.devices.assign(options.micro_batches.size(),
                           std::vector<int>(options.layers.size(), 0));
  spec.plan.in_flight = options.in_flight.empty()
                            ? default_in_flight(options.family, spec.plan.stages(),
                                                *std::ranges::max_element(options.micro_batches))
                            : options.in_flight;
  for (const std::string& order : options.orders) {
    spec.plan.orders.push_back(parse_order(order).value());
  }
  spec.plan.recompute = options.is_auto && options.recompute;
  spec.plan.activation_codecs = options.activation_codecs;
  spec.plan.reductions = options.reductions;
  spec.ranks.push_back({"coordinator", "coordinator", 0});
  for (int cell = 0; cell < spec.cells(); ++cell) {
    const std::string node = fmt::format("n{}", cell);
    spec.ranks.push_back({node + "/0", node, cell});
  }
  spec.train = train;
  spec.validation = validation;
  spec.last_step = options.steps;
  spec.limits = options.limits;
  return spec;
}

struct RunOutcome {
  std::vector<double> losses;                                 // by step
  std::vector<double> norms;                                  // by step
  std::vector<std::pair<std::uint64_t, double>> validations;  // steps done, loss
  std::map<std::string, std::vector<float>> weights;          // by tensor
};

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// The whole model in a loop, as one would write it by hand.
inline RunOutcome run_plainly(const RunSpec& spec, SequenceSource& train,
                              SequenceSource& validation) {
  const ModelShape& model = spec.job.model;
  const Training& training = *spec.job.training;
  ModelStage stage =
      ModelStage::create(model, {0, model.layers, true, true}, spec.job.precision).value();
  stage.initialise_weights(training.seed);
  std::vector<float> m(stage.weights().size()), v(m.size());
  const int b = spec.plan.micro_batch;
  StageBatch batch(stage, b);
  const auto map = SlotMap::make({.sequences = spec.train.sequences(),
                                  .slots = spec.job.global_batch,
                                  .seed = training.seed})
                       .value();
  const auto fill = [&](SequenceSource& from, int row, std::optional<std::int64_t> sequence) {
    const auto at = static_cast<std::size_t>(row * model.context);
    const auto length = static_cast<std::size_t>(model.context);
    std::ranges::fill(batch.tokens().subspan(at, length), 0);
    std::ranges::fill(batch.targets().subspan(at, length), kNoTarget);
    if (!sequence) return;
    from.fetch({*sequence}, [&](Result<std::vector<Token>> tokens) {
      std::copy_n(tokens->begin(), length, batch.tokens().begin() + static_cast<long>(at));
      std::copy_n(tokens->begin() + 1, length, batch.targets().begin() + static_cast<long>(at));
    });
  };
  RunOutcome outcome;
  for (std::uint64_t s = 0; s < spec.last_step; ++s) {
    const auto step = static_cast<std::int64_t>(s);
    const double targets = static_cast<double>(map.sequences_of(step)) * model.context;
    stage.zero_gradients();
    double loss = 0;
    for (std::int64_t slot = 0; slot < spec.job.global_batch; slot += b) {
      for (int row = 0; row < b; ++row) fill(train, row, map.sequence(step, slot + row));
      stage.forward(batch);
      ops::add_losses(batch.losses(), 1 / targets, loss);
      stage.backward(batch, static_cast<float>(1 / targets));
    }
    stage.fold_tied_gradient();
    std::vector<double> squares;
    for (const auto& p : stage.parameters()) {
      squares.push_back(ops::sum_of_squares(stage.gradient(p)));
    }
    outcome.losses.push_back(loss);
    outcome.norms.push_back(gradient_norm(squares));
    for (const auto& p : stage.parameters()) {
      ops::adamw({.options = {.learning_rate = rates_of(spec).rate(s),
                              .beta1 = training.beta1,
                              .beta2 = training.beta2,
                              .epsilon = training.epsilon,
                              .weight_decay = p.decays() ? training.weight_decay : 0,
                              .gradient_scale = gradient_scale(outcome.norms.back(), training.clip),
                              .step = step + 1},
                  .weight = stage.weight(p),
                  .gradient = stage.gradient(p),
                  .m = std::span(m).subspan(p.offset, p.size),
                  .v = std::span(v).subspan(p.offset, p.size)});
    }
    if (!validates_after(spec, s + 1)) continue;
    const std::int64_t count = validation_sequences(spec);
    double sum = 0;
    for (std::int64_t first = 0; first < count; first += b) {
      for (int row = 0; row < b; ++row) {
        fill(validation, row, first + row < count ? std::optional(first + row) : std::nullopt);
      }
      stage.forward(batch);
      ops::add_losses(batch.losses(), 1, sum);
    }
    outcome.validations.push_back({s + 1, sum / static_cast<double>(count * model.context)});
  }
  for (const auto& p : stage.parameters()) {
    outcome.weights[p.name].assign(stage.weight(p).begin(), stage.weight(p).end());
  }
  return outcome;
}

/// Disks outlive a run, so that another can resume from them.
struct Disks {
  std::map<int, std::unique_ptr<SimStorage>> by_rank;
  SimStorage& of(int rank) {
    auto& disk = by_rank[rank];
    if (!disk) {
      disk = std::make_unique<SimStorage>();
      disk->put("run/made", "");
    }
    return *disk;
  }
};

class SimRun : public SimulatedRun {
 public:
  SimRun(const RunOptions& options, const RunSpec& run_spec, SequenceSource& train,
         SequenceSource& validation, Disks& disks_of_run)
      : SimulatedRun(run_spec, world_of(options, train, validation, disks_of_run)),
        spec(run_spec),
        disks(disks_of_run) {}

  /// Until nothing happens any more or the virtual time is over; false then.
  bool run(Seconds most = Seconds(1e5)) { return loop.run_until_idle(most); }

  /// After the run: weights by tensor; a tensor in several places must be the same in all.
  void collect_weights() {
    for (std::size_t r = 1; r < processes.size(); ++r) {
      ModelStage& stage = processes[r].worker->stage();
      for (const ModelParameter& p : stage.parameters()) {
        auto& kept = outcome.weights[p.name];
        EXPECT_TRUE(kept.empty() || same_bits(kept, stage.weight(p))) << p.name << " of rank " << r;
        kept.assign(stage.weight(p).begin(), stage.weight(p).end());
      }
    }
  }

  const RunSpec& spec;
  Disks& disks;
  RunOutcome outcome;
  std::vector<std::uint64_t> kept_steps;         // of checkpoints
  std::map<int, Measured> measured;              // of the last step, by cell
  std::vector<std::pair<int, Recoded>> recoded;  // by cell
  std::vector<HistoryVisits> histories;          // of cell 0, by step
  std::function<void(const JournalEntry&)> on_committed;

 private:
  SimulatedRunOptions world_of(const RunOptions& options, SequenceSource& train,
                               SequenceSource& validation, Disks& disks_of_run) {
    SimulatedRunOptions world;
    world.seed = options.seed;
    world.jitter = options.jitter;
    world.early_bytes = options.early_bytes;
    world.disk = [&disks_of_run](int rank) { return SimulatedDisk{&disks_of_run.of(rank)}; };
    world.train = &train;
    world.validation = &validation;
    world.hooks.committed = [this](const JournalEntry& entry) {
      outcome.losses.push_back(entry.loss);
      outcome.norms.push_back(entry.norm);
      if (on_committed) on_committed(entry);
    };
    world.hooks.validated = [this](std::uint64_t step, double loss) {
      outcome.validations.push_back({step, loss});
    };
    world.hooks.kept = [this](const CheckpointManifest& m) { kept_steps.push_back(m.id.step); };
    world.hooks.histories = [this](int cell, const HistoryVisits& use) {
      if (cell == 0) histories.push_back(use);
    };
    world.hooks.recoded = [this](int cell, const Recoded& m) { recoded.push_back({cell, m}); };
    world.hooks.measured = [this](int cell, const Measured& m) { measured[cell] = m; };
    return world;
  }
};

/// A run and the disks that it leaves, to go on from.
struct RunWorld {
  explicit RunWorld(RunOptions given)
      : options(std::move(given)),
        train(learnable_tokens(options.train_tokens, 1), 8),
        validation(learnable_tokens(8 * 8 + 1, 2), 8) {}

  RunSpec spec() { return spec_of(options, train.identity(), validation.identity()); }

  /// What `launch --resume` works out from the coordinator's disk.
  RunSpec resumed(const RunOptions& on, std::uint32_t term) {
    RunSpec spec = spec_of(on, train.identity(), validation.identity());
    spec.term = term;
    SimStorage& disk = disks.of(kCoordinatorRank);
    const auto found = find_newest_checkpoint(
        disk, checkpoints_root("run"), [&](const CheckpointManifest& m, const std::string& folder) {
          return verify_all_files(disk, folder, m);
        });
    EXPECT_TRUE(found && found->newest);
    if (!found || !found->newest) return spec;
    spec.first_step = found->newest->id.step;
    spec.updates = found->newest->updates;
    spec.resume = ResumePoint{found->newest->id, found->newest->contents()};
    return spec;
  }

  RunOptions options;
  MemorySequences train, validation;
  Disks disks;
};

}  // namespace longhaul::fixtures
