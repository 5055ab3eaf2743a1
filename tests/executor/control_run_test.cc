// Coordinator and participants together: what is committed, and how a run ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tests/executor/control_run_fixtures.h"

namespace longhaul {
namespace {

using fixtures::ControlOptions;
using fixtures::ControlRun;
using fixtures::kCoordinator;
using fixtures::kWorkers;
using fixtures::not_finite;
using fixtures::usual_step;

bool says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(CommitRun, every_replica_applies_the_same_steps_in_order) {
  ControlRun run;
  run.run();
  ASSERT_TRUE(run.ending);
  EXPECT_TRUE(run.ending->clean());
  EXPECT_EQ(run.ending->text(), "all 3 steps are done");
  EXPECT_EQ(run.ending->committed, 3u);
  ASSERT_EQ(run.entries().size(), 3u);
  EXPECT_EQ(run.entries()[2].loss, 4);  // 1.5 + 2.5
  for (int r = 0; r < kWorkers; ++r) {
    const auto& updates = run.worker(r).updates;
    ASSERT_EQ(updates.size(), 3u);
    for (std::uint64_t s = 0; s < 3; ++s) {
      EXPECT_EQ(updates[s].step, s);
      EXPECT_EQ(updates[s].norm, 5);  // each stage once: sqrt(1 + 4 + 4 + 16)
      EXPECT_EQ(updates[s].gradient_scale, 1 / (5 + 1e-6));
    }
    EXPECT_EQ(updates[0].learning_rate, 0.25);  // warm-up: 0.5 x 1 / 2
    EXPECT_EQ(updates[1].learning_rate, 0.5);
    EXPECT_TRUE(run.worker(r).stop->clean);
  }
}

TEST(CommitRun, tied_tensor_counts_for_the_first_stage_only) {
  ControlRun run;
  // Squares 4 in both: the second of stage 0, the first of stage 1.
  run.config.tied = TiedTensor{.in_first_stage = 1, .in_last_stage = 0};
  run.run();
  ASSERT_TRUE(run.ending && run.ending->clean());
  EXPECT_EQ(run.entries()[0].norm, std::sqrt(21.0));  // 1 + 4 + 16
}

TEST(CommitRun, tied_tensor_with_two_sums_stops_the_run) {
  ControlRun run;
  run.config.tied = TiedTensor{.in_first_stage = 0, .in_last_stage = 0};  // 1 and 4
  run.run();
  ASSERT_TRUE(run.ending && run.ending->cause);
  EXPECT_EQ(run.ending->reason,
            "stages 0 and 1 disagree about the gradient of the tied embedding at step 0: its sum "
            "of squares is 1 and 4");
  EXPECT_TRUE(run.entries().empty());
}

TEST(CommitRun, disagreeing_replica_stops_the_run_before_the_step_is_committed) {
  struct Case {
    const char* what;
    void (*change)(Prepared&);
  };
  const Case cases[] = {
      {"weights", [](Prepared& p) { ++p.weights_hash; }},
      {"reduced gradient", [](Prepared& p) { ++p.gradient_hash; }},
      {"sums of squares", [](Prepared& p) { p.squares[1] = 17; }},
      {"sums of squares", [](Prepared& p) { p.finite = false; }},
  };
  for (const Case& c : cases) {
    ControlRun run;
    run.prepare = [&c](int rank, std::uint64_t step) {
      Prepared prepared = usual_step(rank, step);
      if (rank == 3 && step == 1) c.change(prepared);
      return prepared;
    };
    run.run();
    ASSERT_TRUE(run.ending && run.ending->cause);
    EXPECT_EQ(run.ending->reason, std::string("replicas of stage 1 disagree about their ") +
                                      c.what + " at step 1: rank 1 against 3");
    EXPECT_EQ(run.entries().size(), 1u);
    for (int r = 0; r < kWorkers; ++r) {
      EXPECT_EQ(run.worker(r).updates.size(), 1u);
      EXPECT_FALSE(run.worker(r).stop->clean);
      EXPECT_EQ(run.worker(r).stop->reason, run.ending->reason);
    }
  }
}

TEST(CommitRun, step_that_is_not_finite_is_journalled_as_skip) {
  ControlRun run;
  run.prepare = [](int rank, std::uint64_t step) {
    const Prepared prepared = usual_step(rank, step);
    return step == 1 && rank % 2 == 1 ? not_finite(prepared) : prepared;
  };
  run.run();
  ASSERT_TRUE(run.ending && run.ending->clean());
  ASSERT_EQ(run.entries().size(), 3u);
  EXPECT_EQ(run.entries()[1].decision, Decision::kSkip);
  EXPECT_EQ(run.entries()[2].decision, Decision::kApply);
  for (int r = 0; r < kWorkers; ++r) {
    EXPECT_EQ(run.worker(r).updates[1].decision, Decision::kSkip);
    EXPECT_EQ(run.worker(r).updates[1].gradient_scale, 0);
  }
}

TEST(CommitRun, ten_skips_in_a_row_stop_the_run_and_nine_do_not) {
  const auto skips_until = [](std::uint64_t end) {
    return [end](int rank, std::uint64_t step) {
      const Prepared prepared = usual_step(rank, step);
      return step < end ? not_finite(prepared) : prepared;
    };
  };
  ControlRun nine({.steps = 12});
  nine.prepare = skips_until(9);
  nine.run();
  EXPECT_TRUE(nine.ending && nine.ending->clean());

  ControlRun ten({.steps = 12});
  ten.prepare = skips_until(10);
  ten.run();
  ASSERT_TRUE(ten.ending && ten.ending->cause);
  EXPECT_EQ(ten.ending->reason, "10 steps in a row were not finite, the last is step 9");
  EXPECT_EQ(ten.entries().size(), 10u);
  EXPECT_EQ(ten.worker(0).updates.size(), 10u);

  // A coordinator that starts again counts on.
  ControlRun again({.steps = 12});
  again.config.skips_before = 9;
  again.prepare = skips_until(1);
  again.run();
  EXPECT_TRUE(again.ending && again.ending->cause);
}

TEST(CommitRun, stop_request_finishes_the_step_at_hand) {
  ControlRun run({.steps = 1000});
  // Steps begin at 0, and then some 230 ms apart: 1 s is in the fifth.
  run.loop.after(Seconds(1), [&run] {
    run.coordinator->request_stop();
    run.coordinator->request_stop();
  });
  run.run();
  ASSERT_TRUE(run.ending);
  EXPECT_TRUE(run.ending->clean());
  EXPECT_EQ(run.ending->text(), "stopped as asked, after 5 steps");
  for (int r = 0; r < kWorkers; ++r) {
    EXPECT_EQ(run.worker(r).updates.size(), 5u);
    EXPECT_TRUE(run.worker(r).stop->clean);
  }
}

TEST(CommitRun, silent_worker_is_the_first_cause_within_three_and_a_half_seconds) {
  for (int i = 0; i < 20; ++i) {
    const Seconds silent = Seconds(2 + 0.05 * i);
    ControlRun run({.steps = 1000});
    run.loop.after(silent, [&run] { run.hang(2); });
    Seconds told{0};
    run.network.on_send = [&](int, int to, const std::string& text) {
      if (to == 0 && says(text, "LHC1 stop ")) told = run.loop.now();
    };
    run.run();
    ASSERT_TRUE(run.ending && run.ending->cause);
    EXPECT_EQ(run.ending->cause->rank, 2);
    EXPECT_EQ(run.ending->text(),
              "first cause: rank 2 (stage 0, pipeline 1) answered none of 6 heartbeats");
    // Round trips are 2 ms: a pong on its way is lost, too.
    EXPECT_GE(told - silent, Seconds(3.0 - 0.003)) << silent.value();
    EXPECT_LE(told - silent, Seconds(3.5 + 0.003)) << silent.value();
    for (const int r : {0, 1, 3}) {
      ASSERT_TRUE(run.worker(r).stop);
      EXPECT_EQ(run.worker(r).stop->reason, run.ending->reason);
    }
  }
}

TEST(CommitRun, lost_worker_is_named_and_those_who_lost_it_are_victims) {
  ControlRun run({.steps = 1000, .delay_min = milliseconds(1), .delay_max = milliseconds(9)});
  run.loop.after(Seconds(1), [&run] {
    run.hang(3);
    run.network.lose(3, "connection reset");
  });
  run.run();
  ASSERT_TRUE(run.ending && run.ending->cause);
  EXPECT_EQ(run.ending->cause->rank, 3);
  EXPECT_TRUE(says(run.ending->reason, "rank 3 (stage 1, pipeline 1) is lost: connection reset"));
  EXPECT_EQ(run.ending->victims.size(), 3u);
  EXPECT_TRUE(says(run.ending->text(),
                   "\nvictim: rank 0 (stage 0, pipeline 0) lost rank 3 (stage 1, pipeline 1)"));
}

TEST(CommitRun, culprit_adds_its_words_to_what_others_saw) {
  ControlRun run({.steps = 1000});
  run.loop.after(Seconds(1), [&run] {
    Error reset;
    reset.message = "connection reset";
    run.worker(0).participant->failed(3, reset);
  });
  run.loop.after(Seconds(1.0005), [&run] {
    Error full;
    full.message = "disk full";
    run.worker(3).participant->failed(3, full);
  });
  run.run();
  ASSERT_TRUE(run.ending && run.ending->cause);
  EXPECT_EQ(run.ending->cause->rank, 3);
  EXPECT_TRUE(says(run.ending->cause->message, "lost rank 3 (stage 1, pipeline 1): connection"));
  EXPECT_TRUE(says(run.ending->cause->message, "; it says: disk full"));
  ASSERT_EQ(run.ending->victims.size(), 1u);
  EXPECT_EQ(run.ending->victims[0].rank, 0);
}

TEST(CommitRun, worker_that_does_nothing_but_answer_heartbeats_meets_the_step_deadline) {
  ControlOptions options;
  options.limits.step_deadline = Seconds(60);
  ControlRun run(options);
  run.hung[1] = true;  // its network lives
  run.run();
  ASSERT_TRUE(run.ending && run.ending->cause);
  EXPECT_EQ(run.ending->reason,
            "step 0 was not prepared within 60 s by rank 1 (stage 1, pipeline 0)");
  EXPECT_EQ(run.ending->cause->rank, 1);
}

TEST(CommitRun, what_no_worker_may_say_stops_the_run_with_its_name) {
  const std::pair<std::string, std::string> cases[] = {
      {"nonsense", "sent what it must not: `nonsense` is no control message of version LHC1"},
      {control_text(Commit{}), "sent what only the coordinator may: LHC1 commit"},
      {control_text(Stopped{0}), "stopped without being asked"},
      {control_text(Pong{1000}), "answered heartbeat 1000, which was never sent"},
      {control_text(usual_step(1, 1)), "prepared step 1 while step 0 is at hand"},
      {control_text(Prepared{}), "sent 0 sums of squares for 2 tensors"},
  };
  for (const auto& [text, message] : cases) {
    ControlRun run;
    run.loop.after(milliseconds(50),
                   [&run, &text] { run.network.mesh(1).send_control(kCoordinator, text); });
    run.run();
    ASSERT_TRUE(run.ending && run.ending->cause) << text;
    EXPECT_TRUE(says(run.ending->reason, "rank 1 (stage 1, pipeline 0) " + message))
        << run.ending->reason;
    EXPECT_EQ(run.entries().size(), 0u);
  }
  ControlRun twice;
  twice.loop.after(milliseconds(50), [&twice] {
    twice.network.mesh(1).send_control(kCoordinator, control_text(usual_step(1, 0)));
  });
  twice.run();
  ASSERT_TRUE(twice.ending && twice.ending->cause);
  EXPECT_TRUE(says(twice.ending->reason, "prepared step 0 twice"));
}

TEST(CommitRun, worker_that_does_not_stop_ends_the_run_at_the_deadline) {
  ControlRun run({.steps = 1});
  // It answers heartbeats, and its update never ends.
  run.committed = [&run](const JournalEntry&) { run.hung[2] = true; };
  run.run();
  ASSERT_TRUE(run.ending && run.ending->cause);
  EXPECT_EQ(run.ending->reason, "rank 2 (stage 0, pipeline 1) did not stop within 30 s");
  EXPECT_EQ(run.ending->committed, 1u);
}

// ---- the journal and the coordinator's death

TEST(CommitRun, journal_that_cannot_be_written_stops_the_run_uncommitted) {
  std::uint64_t open = 0;
  {
    ControlRun undisturbed;
    undisturbed.after_open = [&] { open = undisturbed.storage.operations(); };
    undisturbed.run();
  }
  for (std::uint64_t n = 1; n <= 6; ++n) {  // three steps of a write and a sync
    ControlRun run;
    run.storage.fail_at(open + n);
    run.run();
    ASSERT_TRUE(run.ending && run.ending->cause);
    const std::uint64_t steps = (n - 1) / 2;
    EXPECT_TRUE(says(run.ending->reason, "the coordinator cannot commit: step " +
                                             std::to_string(steps) + " is not journalled"));
    EXPECT_EQ(run.worker(0).updates.size(), steps);
    EXPECT_EQ(run.ending->committed, steps);
  }
}

TEST(CommitRun, journal_that_does_not_answer_stops_the_run_and_its_late_answer_commits_nothing) {
  ControlRun run;
  run.journal_time = Seconds(31);  // the deadline is 30 s
  // Prepared at 200 ms, rank 2 hangs, so that the run is still stopping when the answer comes.
  run.loop.after(milliseconds(210), [&run] { run.hung[2] = true; });
  bool commit = false;
  run.network.on_send = [&](int, int, const std::string& text) {
    commit = commit || says(text, "LHC1 commit");
  };
  run.run();
  ASSERT_TRUE(run.ending && run.ending->cause);
  EXPECT_EQ(run.ending->reason, "the journal did not take step 0 within 30 s");
  ASSERT_EQ(run.ending->victims.size(), 1u);
  EXPECT_EQ(run.ending->victims[0].message,
            "rank 2 (stage 0, pipeline 1) did not stop within 30 s");
  EXPECT_FALSE(commit);
  EXPECT_EQ(run.entries().size(), 1u);  // the journal may be ahead of the workers
}

TEST(CommitRun, failure_while_the_journal_works_lets_the_step_be_committed_first) {
  ControlRun run({.steps = 1000});
  run.journal_time = milliseconds(100);  // of the first step: 201 to 301 ms
  run.loop.after(milliseconds(250), [&run] {
    Error error;
    error.message = "out of memory";
    run.worker(0).participant->failed(0, error);
  });
  run.run();
  ASSERT_TRUE(run.ending && run.ending->cause);
  EXPECT_EQ(run.ending->cause->rank, 0);
  EXPECT_EQ(run.entries().size(), 1u);
  EXPECT_EQ(run.worker(0).updates.size(), 0u);  // it is broken
  for (const int r : {1, 2, 3}) EXPECT_EQ(run.worker(r).updates.size(), 1u);
}

void expect_orphans(ControlRun& run) {
  for (int r = 0; r < kWorkers; ++r) {
    ASSERT_TRUE(run.worker(r).coordinator_lost);
    EXPECT_FALSE(run.worker(r).stop);
    EXPECT_EQ(run.worker(r).coordinator_lost->message, "the coordinator sent none of 6 heartbeats");
  }
}

TEST(CommitRun, crash_at_any_journal_operation_leaves_no_worker_ahead_of_the_journal) {
  std::uint64_t operations = 0;
  {
    ControlRun undisturbed;
    undisturbed.run();
    operations = undisturbed.storage.operations();
  }
  std::uint64_t orphaned = 0;
  for (std::uint64_t n = 1; n <= operations; ++n) {
    for (const CrashLoss loss : {CrashLoss::kNothing, CrashLoss::kAllUnsynced, CrashLoss::kSome}) {
      SCOPED_TRACE("operation " + std::to_string(n));
      ControlRun run({.seed = n});
      run.crash_loss = loss;
      run.storage.crash_at(n);
      run.journalled = [&run, n] {
        if (run.storage.operations() >= n) run.crash_coordinator();
      };
      run.run();
      if (!run.journal) continue;  // it died before anybody worked
      ++orphaned;
      expect_orphans(run);
      const auto journal = Journal::open(run.storage, fixtures::kJournalPath, fixtures::kJobHash);
      ASSERT_TRUE(journal);
      for (int r = 0; r < kWorkers; ++r) {
        const std::size_t steps = run.worker(r).updates.size();
        EXPECT_LE(steps, journal->last() ? journal->last()->step + 1 : 0);
      }
    }
  }
  EXPECT_EQ(orphaned, 6u * 3u);  // three steps of a write and a sync
}

TEST(CommitRun, coordinator_that_dies_between_journal_and_commit_leaves_the_journal_ahead) {
  ControlRun run;
  run.journalled = [&run] { run.crash_coordinator(); };
  run.run();
  expect_orphans(run);
  EXPECT_EQ(run.entries().size(), 1u);
  EXPECT_EQ(run.worker(0).updates.size(), 0u);
}

TEST(CommitRun, dead_coordinator_is_found_within_three_and_a_half_seconds) {
  for (int i = 0; i < 20; ++i) {
    const Seconds dead = Seconds(2 + 0.05 * i);
    ControlRun run({.steps = 1000});
    run.loop.after(dead, [&run] { run.crash_coordinator(); });
    run.run();
    expect_orphans(run);
    // Clocks tick together here: six heartbeats are missed at ticks 1 to 6 after the last one, and
    // the seventh tick finds it. (Out of step it could be 2.5 s: the last one was before.)
    EXPECT_GE(run.worker(0).ended - dead, Seconds(3.0 - 0.003));
    EXPECT_LE(run.worker(0).ended - dead, Seconds(3.5 + 0.003));
  }
}

TEST(CommitRun, delays_of_a_hundred_seeds_change_nothing_that_is_committed) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ControlRun run({.steps = 8,
                    .seed = seed,
                    .delay_min = milliseconds(0),
                    .delay_max = milliseconds(400),
                    .jitter = 0.1});
    run.prepare = [](int rank, std::uint64_t step) {
      const Prepared prepared = usual_step(rank, step);
      return step == 3 ? not_finite(prepared) : prepared;
    };
    run.run();
    ASSERT_TRUE(run.ending && run.ending->clean()) << run.ending->text();
    ASSERT_EQ(run.entries().size(), 8u);
    for (int r = 0; r < kWorkers; ++r) EXPECT_EQ(run.worker(r).updates.size(), 8u);
    EXPECT_EQ(run.entries()[7].norm, 5);
  }
}

TEST(CommitRun, crash_at_any_moment_leaves_no_worker_ahead_of_the_journal) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ControlRun run({.steps = 1000,
                    .seed = seed,
                    .delay_min = milliseconds(0),
                    .delay_max = milliseconds(400),
                    .jitter = 0.1});
    // 30 ms apart, over some ten steps. run() compares with what a power failure leaves.
    run.loop.after(Seconds(0.03 * static_cast<double>(seed)), [&run] { run.crash_coordinator(); });
    run.run();
    expect_orphans(run);
    std::size_t most = 0;
    for (int r = 0; r < kWorkers; ++r) most = std::max(most, run.worker(r).updates.size());
    EXPECT_LE(run.entries().size(), most + 1);  // nor is the journal more than one step ahead
  }
}

}  // namespace
}  // namespace longhaul
