// Two stages of two replicas, ranks 0 to 3 (pipeline d has ranks 2d and 2d + 1), and the
// coordinator, rank 4, in virtual time, with a journal on simulated storage.
//
// A worker computes for `compute`, says what `prepare` gives it, updates for `update`, and goes on.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/control/coordinator.h"
#include "executor/control/participant.h"
#include "executor/runtime/sim_event_loop.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/control_fake_mesh.h"

namespace longhaul::fixtures {

constexpr int kWorkers = 4;
constexpr int kCoordinator = 4;
constexpr std::uint64_t kJobHash = 7;
constexpr const char* kJournalPath = "runs/x/journal";

inline int stage_of(int rank) {
  return rank % 2;
}

/// Stage 0 has tensors of squares 1 and 4, stage 1 of 4 and 16. Norm: sqrt(1 + 4 + 4 + 16) = 5.
inline Prepared usual_step(int rank, std::uint64_t step) {
  Prepared prepared;
  prepared.step = step;
  prepared.gradient_hash = 100 * step + static_cast<std::uint64_t>(stage_of(rank));
  prepared.weights_hash = 7000 + 100 * step + static_cast<std::uint64_t>(stage_of(rank));
  if (stage_of(rank) == 0) {
    prepared.squares = {1, 4};
  } else {
    prepared.squares = {4, 16};
    prepared.loss = rank == 1 ? 1.5 : 2.5;  // two pipelines: 4 together
  }
  return prepared;
}

inline Prepared not_finite(Prepared prepared) {
  prepared.finite = false;
  prepared.squares.front() = std::numeric_limits<double>::infinity();
  return prepared;
}

struct ControlOptions {
  std::uint64_t steps = 3;
  std::uint64_t seed = 1;
  Seconds delay_min = milliseconds(1);
  Seconds delay_max = milliseconds(1);
  double jitter = 0;
  ControlLimits limits = {};
};

class ControlRun {
 public:
  struct Worker {
    std::unique_ptr<Participant> participant;
    std::vector<StepUpdate> updates;  // done
    std::optional<Stop> stop;
    std::optional<Error> coordinator_lost;
    Seconds ended{0};
  };

  explicit ControlRun(ControlOptions given = {})
      : options(given),
        loop(given.seed, given.jitter),
        network(loop, kWorkers + 1, given.seed, given.delay_min, given.delay_max) {
    storage.put("runs/x/plan", "");
    config.stages = {{{0, 2}, 2}, {{1, 3}, 2}};
    config.term = 1;
    config.steps = options.steps;
    config.limits = options.limits;
  }

  /// Runs until nothing more happens. Faults are timers that a test has set before.
  void run() {
    auto opened = Journal::open(storage, kJournalPath, kJobHash);
    if (!opened) return;
    journal.emplace(std::move(*opened));
    if (after_open) after_open();
    for (int r = 0; r < kWorkers; ++r) start_worker(r);
    start_coordinator();
    EXPECT_TRUE(loop.run_until_idle(Seconds(1e4))) << "the run does not end";
    // Whatever happened, a worker never has a step that the journal lacks.
    storage.restart(crash_loss, options.seed);
    check_workers_against_journal();
  }

  void crash_coordinator() {
    network.silence(kCoordinator);
    coordinator.reset();
  }
  void hang(int rank) {
    network.silence(rank);
    hung[static_cast<std::size_t>(rank)] = true;
  }
  Worker& worker(int rank) { return workers[static_cast<std::size_t>(rank)]; }
  std::vector<JournalEntry> entries() {
    if (!storage.has(kJournalPath)) return {};
    const auto read = parse_journal(storage.bytes(kJournalPath), kJournalPath, kJobHash);
    EXPECT_TRUE(read);
    return read ? read->entries : std::vector<JournalEntry>();
  }

  ControlOptions options;
  CoordinatorConfig config;
  std::function<Prepared(int rank, std::uint64_t step)> prepare = usual_step;
  std::function<void()> after_open;
  std::function<void(const JournalEntry&)> committed;
  /// What happens between the journal's answer and the coordinator hearing it.
  std::function<void()> journalled;
  Seconds journal_time = milliseconds(5);
  CrashLoss crash_loss = CrashLoss::kAllUnsynced;  // when all is over
  SimStorage storage;
  SimEventLoop loop;
  FakeNetwork network;
  std::optional<Journal> journal;
  std::unique_ptr<Coordinator> coordinator;
  std::optional<Ending> ending;
  std::array<Worker, kWorkers> workers;
  std::array<bool, kWorkers> hung{};  // answers heartbeats and nothing else

 private:
  void start_worker(int rank) {
    ParticipantConfig participant;
    participant.coordinator = kCoordinator;
    participant.rates = {RateDecay::kConstant, 0.5, 0, 2, 1000};
    participant.limits = options.limits;
    ParticipantHooks hooks;
    hooks.update = [this, rank](const StepUpdate& update) {
      loop.after(milliseconds(20), [this, rank, update] { finish_update(rank, update); });
    };
    hooks.stop = [this, rank](const Stop& order) {
      worker(rank).stop = order;
      worker(rank).ended = loop.now();
      if (!hung[static_cast<std::size_t>(rank)]) worker(rank).participant->stopped();
    };
    hooks.coordinator_lost = [this, rank](const Error& why) {
      worker(rank).coordinator_lost = why;
      worker(rank).ended = loop.now();
    };
    Mesh& mesh = network.mesh(rank);
    worker(rank).participant =
        std::make_unique<Participant>(loop, mesh, participant, std::move(hooks));
    Participant* const p = worker(rank).participant.get();
    mesh.on_control([p](int peer, const std::string& text) { p->received(peer, text); });
    mesh.on_lost([p](int peer, const Error& why) { p->lost(peer, why); });
    compute(rank);
  }

  void compute(int rank) {
    loop.after(milliseconds(200), [this, rank] {
      if (hung[static_cast<std::size_t>(rank)]) return;
      Participant& participant = *worker(rank).participant;
      if (participant.state() != Participant::State::kComputing) return;
      participant.prepared(prepare(rank, participant.committed()));
    });
  }

  void finish_update(int rank, const StepUpdate& update) {
    if (hung[static_cast<std::size_t>(rank)]) return;
    worker(rank).updates.push_back(update);
    worker(rank).participant->updated();
    if (worker(rank).participant->state() == Participant::State::kComputing) compute(rank);
  }

  void start_coordinator() {
    CoordinatorHooks hooks;
    hooks.journal = [this](const JournalEntry& entry, CoordinatorHooks::OnJournalled done) {
      auto written = journal->append(entry);
      loop.after(journal_time, [this, written, done = std::move(done)]() mutable {
        if (journalled) journalled();
        done(std::move(written));
      });
    };
    hooks.committed = [this](const JournalEntry& entry) {
      if (committed) committed(entry);
    };
    hooks.ended = [this](const Ending& end) {
      ending = end;
      coordinator.reset();
    };
    Mesh& mesh = network.mesh(kCoordinator);
    coordinator = std::make_unique<Coordinator>(loop, mesh, config, std::move(hooks));
    mesh.on_control([this](int peer, const std::string& text) {
      if (coordinator) coordinator->received(peer, text);
    });
    mesh.on_lost([this](int peer, const Error& why) {
      if (coordinator) coordinator->lost(peer, why);
    });
    coordinator->start();
  }

  void check_workers_against_journal() {
    const std::vector<JournalEntry> lines = entries();
    for (const Worker& each : workers) {
      ASSERT_LE(each.updates.size(), lines.size()) << "a worker is ahead of the journal";
      for (std::size_t s = 0; s < each.updates.size(); ++s) {
        EXPECT_EQ(each.updates[s].step, lines[s].step);
        EXPECT_EQ(each.updates[s].decision, lines[s].decision);
        EXPECT_TRUE(same_number(each.updates[s].norm, lines[s].norm));
      }
    }
  }
};

}  // namespace longhaul::fixtures
