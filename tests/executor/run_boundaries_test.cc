// What crosses boundaries in a whole run: pieces, samples, sequences that are asked for again.

#include "executor/run/stage_boundaries.h"
#include "tests/executor/piece_boundary.h"
#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// A run whose boundaries are PieceBoundary; `prepare` sets them up. Outcomes of cells that ended.
struct PieceRun {
  PieceRun(const RunOptions& options, const std::function<void(int, PieceBoundary&)>& prepare)
      : train(learnable_tokens(options.train_tokens, 1), 8),
        validation(learnable_tokens(8 * 8 + 1, 2), 8),
        spec(spec_of(options, train.identity(), validation.identity())),
        run(options, spec, train, validation, disks) {
    run.make_format = [this, prepare, sequences = options.micro_batch](int cell) {
      auto made = std::make_unique<PieceBoundary>(sequences);
      if (prepare) prepare(cell, *made);
      formats[cell] = made.get();
      return made;
    };
  }

  MemorySequences train, validation;
  RunSpec spec;
  Disks disks;
  std::map<int, PieceBoundary*> formats;
  SimRun run;
};

RunOptions two_by_two() {
  return {.layers = {2, 2},
          .micro_batches = {2, 2},
          .micro_batch = 2,
          .steps = 12,
          .validation_every = 5,
          .train_tokens = 8 * 13 + 1};
}

TEST(RunBoundaries, pieces_and_sequences_sent_again_leave_the_bits_of_a_plain_run) {
  PieceRun plain(two_by_two(), nullptr);
  ASSERT_TRUE(plain.run.run_until_ended());
  // Cells 1 and 3 are the second stages.
  PieceRun healed(two_by_two(), [](int cell, PieceBoundary& format) {
    format.piece = 77;
    if (cell == 1) format.lost = {{0, 1}, {1, 0}, {1, 1}};
  });
  ASSERT_TRUE(healed.run.run_until_ended());
  ASSERT_TRUE(healed.run.ending->ending.clean()) << healed.run.ending->ending.text();
  EXPECT_EQ(healed.run.outcome.losses, plain.run.outcome.losses);
  EXPECT_EQ(healed.run.outcome.validations, plain.run.outcome.validations);
  EXPECT_EQ(healed.formats.at(0)->resends, 12 * 3);
  EXPECT_EQ(healed.formats.at(2)->resends, 0);
}

// 13 sequences and a batch of 8: step 1 has 5 of them, and its slots 5 to 7 are padding. Pipeline 0
// has slots 0 to 3, pipeline 1 slots 4 to 7, each in two micro-batches.
TEST(RunBoundaries, both_ends_know_the_samples_without_data) {
  PieceRun run(two_by_two(), nullptr);
  ASSERT_TRUE(run.run.run_until_ended());
  const auto map = SlotMap::make({13, 8, run.spec.job.training->seed}).value();
  const auto& of_stage_0 = run.formats.at(2)->samples;
  const auto& of_stage_1 = run.formats.at(3)->samples;
  const auto sent = of_stage_0.at({Op::kSendActivation, 0, 1u});
  EXPECT_EQ(sent, (std::vector<std::int64_t>{*map.sequence(1, 4), -1}));
  EXPECT_EQ(of_stage_1.at({Op::kSendGradient, 0, 1u}), sent);
  EXPECT_EQ(of_stage_0.at({Op::kSendActivation, 1, 1u}), (std::vector<std::int64_t>{-1, -1}));
  EXPECT_EQ(samples_of(run.spec, 1, 1, 0), sent);
}

TEST(RunBoundaries, a_sequence_that_nobody_has_any_more_stops_the_run_with_the_reason) {
  PieceRun run(two_by_two(), [](int cell, PieceBoundary& format) {
    if (cell == 1) format.lost = {{1, 0}};
    if (cell == 0) format.loses_resends = true;
  });
  ASSERT_TRUE(run.run.run_until_ended());
  EXPECT_FALSE(run.run.ending->ending.clean());
  EXPECT_NE(run.run.ending->ending.text().find("RECV_ACT 1: sequence 0 again: rank 1 has not what "
                                               "is wanted: it is forgotten here, too"),
            std::string::npos)
      << run.run.ending->ending.text();
}

// ---- Codecs that follow the links.

struct AdaptingRun {
  AdaptingRun(RunOptions options, Codec planned)
      : train(learnable_tokens(options.train_tokens, 1), 8),
        validation(learnable_tokens(8 * 8 + 1, 2), 8) {
    options.layers = {1, 1};
    options.tied = false;
    options.is_auto = true;
    options.activations = Codec::kInt8;
    options.activation_codecs = {{0, 1, planned}};
    spec = spec_of(options, train.identity(), validation.identity());
    spec.adapts_codecs = true;
    run.emplace(options, spec, train, validation, disks);
  }
  /// `STEP from CELL: TENSORS BEFORE>AFTER`, all of them.
  std::vector<std::string> changes() const {
    std::vector<std::string> all;
    for (const auto& [cell, m] : run->recoded) {
      all.push_back(fmt::format("{} from {}: {} {}>{}", m.step, cell,
                                m.are_gradients ? "gradients" : "activations", name_of(m.from),
                                name_of(m.to)));
    }
    return all;
  }

  MemorySequences train, validation;
  RunSpec spec;
  Disks disks;
  std::optional<SimRun> run;
};

// Eight micro-batches of 3 + 3 ms: 48 ms of compute. A message of 8 x 16 fp32 numbers has 580
// bytes, and 64 of frame header: 5152 bytes a step, which take 114 ms at 45 kB/s, 2.4 times as
// long; with a credit of 64 bytes beside each, 126 ms. Half the bits would still be too many, int8
// is the floor.
TEST(RunBoundaries, a_slow_link_gets_fewer_bits_and_the_coordinator_is_told) {
  AdaptingRun slow({.steps = 20}, Codec::kNone);
  slow.run->network.set_link("h1", "h2", {milliseconds(2), BytesPerSecond(45e3)});
  ASSERT_TRUE(slow.run->run_until_ended());
  ASSERT_TRUE(slow.run->ending->ending.clean()) << slow.run->ending->ending.text();
  EXPECT_EQ(slow.changes(), (std::vector<std::string>{"2 from 0: activations none>int8"}));
  const Recoded& change = slow.run->recoded[0].second;
  EXPECT_EQ(change.peer, 2);
  EXPECT_NEAR(change.compute, 0.048, 1e-3);
  EXPECT_GE(change.busy, 0.114);
  EXPECT_LE(change.busy, 0.126);

  AdaptingRun fast({.steps = 20}, Codec::kNone);
  ASSERT_TRUE(fast.run->run_until_ended());
  EXPECT_TRUE(fast.changes().empty());
  const auto& exact = fast.run->outcome.losses;
  const auto& coarse = slow.run->outcome.losses;
  ASSERT_EQ(coarse.size(), 20u);
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(coarse[s], exact[s]) << s;
  EXPECT_NE(coarse[3], exact[3]);
  EXPECT_NEAR(coarse[3], exact[3], 1e-2);
}

// Ten steps with room, then one to settle and ten more.
TEST(RunBoundaries, a_fast_link_gets_more_bits_both_ways) {
  AdaptingRun run({.steps = 40}, Codec::kInt8);
  ASSERT_TRUE(run.run->run_until_ended());
  ASSERT_TRUE(run.run->ending->ending.clean()) << run.run->ending->ending.text();
  std::vector<std::string> changes = run.changes();
  std::ranges::sort(changes);
  EXPECT_EQ(changes, (std::vector<std::string>{
                         "20 from 0: activations bf16>none", "20 from 1: gradients bf16>none",
                         "9 from 0: activations int8>bf16", "9 from 1: gradients int8>bf16"}));
}

TEST(CodecLadder, is_what_the_floor_allows_of_the_plans_kind) {
  Job job;
  CodecUse use = CodecUse::kActivations;
  const auto names = [&](Codec planned) {
    std::string text;
    for (const Codec codec : codec_ladder(job, use, planned)) {
      text += (text.empty() ? "" : " ") + std::string(name_of(codec));
    }
    return text;
  };
  job.activations = Codec::kInt4;
  EXPECT_EQ(names(Codec::kInt4), "int4") << "the job leaves nothing open";
  job.activations_auto = true;
  EXPECT_EQ(names(Codec::kInt8), "none bf16 int8 int6 int4");
  EXPECT_EQ(names(Codec::kNone), "none bf16 int8 int6 int4");
  EXPECT_EQ(names(Codec::kFp16), "none fp16 int8 int6 int4");
  EXPECT_EQ(names(Codec::kHadamard4), "none bf16 int8 int6 hadamard4");
  job.activations = Codec::kNone;
  EXPECT_EQ(names(Codec::kNone), "none");
  job.history.emplace();
  job.activations = Codec::kAqInt3;
  EXPECT_EQ(names(Codec::kAqInt4), "aq-int8 aq-int6 aq-int4 aq-int3");
}

TEST(ResendText, is_read_as_it_is_written) {
  for (const Op op : {Op::kSendActivation, Op::kSendGradient}) {
    const WantedResend wanted = {op, (1u << 28) - 1, 2147483647, 3};
    EXPECT_EQ(parse_resend(resend_text(wanted)), wanted);
  }
  EXPECT_EQ(resend_text({Op::kSendGradient, 7, 3, 1}),
            "resend op=gradient step=7 micro_batch=3 sequence=1");
  // Each dies at another check.
  for (const char* const text :
       {"resend", "send op=gradient step=7 micro_batch=3 sequence=1",
        "resend op=weights step=7 micro_batch=3 sequence=1",
        "resend op=gradient step=268435456 micro_batch=3 sequence=1",
        "resend op=gradient step=7 micro_batch=2147483648 sequence=1",
        "resend op=gradient step=7 micro_batch=3 sequence=x",
        "resend op=gradient step=7 micro_batch=3", "resend op=gradient step=7 sequence=1",
        "resend op=gradient step=7 micro_batch=3 sequence=1 ",
        "resend op=gradient  step=7 micro_batch=3 sequence=1"}) {
    EXPECT_FALSE(parse_resend(text)) << text;
  }
}

}  // namespace
}  // namespace longhaul
