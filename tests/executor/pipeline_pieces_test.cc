// Messages that are encoded, sent and decoded in pieces, beside the stages' work: whatever their
// interleaving, a pipeline leaves the bits of the single stage.

#include <cmath>

#include "executor/pipeline/pipeline_step.h"
#include "kernels/codec/tensor_codec.h"
#include "tests/executor/piece_boundary.h"
#include "tests/executor/pipeline_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

struct World {
  explicit World(const PipelineOptions& options, double jitter = 0)
      : pipeline(loop, options, simulated_devices(loop, options.seed, jitter),
                 [](int) { return std::make_unique<PieceBoundary>(kSequences); }) {
    pipeline.network.jitter = jitter;
    pipeline.network.send_time = milliseconds(300);
    pipeline.network.latency = seconds(1);
    for (auto& cell : pipeline.cells) {
      cell->context.samples = [](std::uint32_t step, int micro_batch) {
        return std::vector<std::int64_t>{100 * std::int64_t{step} + micro_batch, -1};
      };
    }
  }
  PieceBoundary& format(std::size_t cell) {
    return dynamic_cast<PieceBoundary&>(*pipeline.format_of_cell[cell]);
  }
  /// Answers come from the format of the cell where the message was made, 2 s later.
  void answer_resends() {
    for (auto& cell : pipeline.cells) {
      cell->context.resend = [this, self = cell->context.cell](const BoundaryTensor& which,
                                                               int sequence, auto done) {
        BoundaryTensor there = which;
        there.peer = self;
        auto answer = format(static_cast<std::size_t>(which.peer)).resend(there, sequence);
        loop.after(seconds(2), [answer = std::move(answer), done = std::move(done)]() mutable {
          done(std::move(answer));
        });
      };
    }
  }

  void run_steps(int steps) {
    for (int s = 0; s < steps; ++s) {
      pipeline.start(static_cast<std::uint32_t>(s));
      while (!pipeline.all_done()) ASSERT_TRUE(loop.step()) << "nothing more happens";
      pipeline.collect();
      if (testing::Test::HasFatalFailure()) return;
      pipeline.expect_times_keep_the_schedule();
    }
    pipeline.collect_weights();
  }

  SimEventLoop loop;
  Pipeline pipeline;
};

// Eager, 1F1B and GPipe, recomputed or not, with a split backward; K is as low as it can be in
// places, so a wait too many would be for ever.
TEST(PipelinePieces, any_interleaving_has_the_bits_of_one_stage_and_decodes_once) {
  const std::vector<PipelineOptions> cases = {
      {{1, 1, 2, 1}, 6, {6, 5, 3, 1}},
      {{1, 1, 1}, 5, {3, 2, 1}},
      {{1, 1, 1}, 5, {1, 1, 1}},
      {{2, 1}, 4, {4, 4}},
      {{3, 2},
       4,
       {3, 3},
       false,
       false,
       0,
       {"F0 F1 F2 B0 W0 F3 B1 B2 W1 W2 B3 W3", "F0 B0 F1 B1 W0 F2 B2 W1 F3 W2 B3 W3"}}};
  for (PipelineOptions options : cases) {
    for (const bool recompute : {false, true}) {
      options.recompute = recompute;
      options.tied = true;
      const Outcome reference = run_single(options, 2);
      for (options.seed = 0; options.seed < 12; ++options.seed) {
        SCOPED_TRACE(fmt::format("seed {}, recompute {}", options.seed, recompute));
        World world(options, options.seed == 0 ? 0.0 : 1.0);
        for (std::size_t c = 0; c < options.layers.size(); ++c) {
          world.format(c).piece = 40 + 37 * options.seed;
        }
        world.run_steps(2);
        expect_same(world.pipeline.outcome, reference);
        EXPECT_EQ(world.pipeline.network.early(), 0) << "a receive was posted too late";
        EXPECT_EQ(world.pipeline.network.waiting(), 0u);
        // 320 bytes of tensor in pieces of at most 40 + 37 x 11 = 447.
        const int messages =
            2 * 2 * options.micro_batches * (static_cast<int>(options.layers.size()) - 1);
        EXPECT_GE(world.pipeline.network.pieces(), options.seed < 4 ? 2 * messages : messages);
        for (std::size_t c = 0; c < options.layers.size(); ++c) {
          for (const auto& [name, count] : world.format(c).read) EXPECT_EQ(count, 1);
          for (const auto& [name, count] : world.format(c).written) EXPECT_EQ(count, 1);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Forward 1 s, a message of 336 bytes in four pieces of 100, 100, 100 and 36, codec work free.
// Stage 0 computes its second forward while the pieces of the first travel.
TEST(PipelinePieces, codec_work_holds_up_no_stage) {
  World world({{1, 1}, 2, {2, 1}});
  world.run_steps(1);
  const auto& list = world.pipeline.schedule.tasklets[0].instructions;
  const auto& times = (*world.pipeline.cells[0]->result)->times;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].op != Op::kForward) continue;
    EXPECT_NEAR(times[i].start.value(), list[i].micro_batch, 1e-9);
  }
}

TEST(PipelinePieces, nothing_is_allocated_for_a_message_after_the_first_step) {
  for (const bool recompute : {false, true}) {
    World world({{1, 1, 1}, 12, {4, 3, 1}, true, recompute, 0});
    world.run_steps(1);
    const auto count = [&] {
      std::vector<std::size_t> counts;
      for (std::size_t c = 0; c < 3; ++c) {
        counts.push_back(world.pipeline.cells[c]->storage->messages_made());
        counts.push_back(static_cast<std::size_t>(world.format(c).writers_made));
        counts.push_back(static_cast<std::size_t>(world.format(c).readers_made));
      }
      return counts;
    };
    const std::vector<std::size_t> made = count();
    // The middle stage: 4 + 3 incoming and at most as many outgoing, by the table in the header.
    EXPECT_LE(made[3], 14u);
    EXPECT_EQ(made[4] + made[5], made[3]) << "a message has one of the two";
    for (std::uint32_t s = 1; s < 4; ++s) {
      world.pipeline.start(s);
      while (!world.pipeline.all_done()) ASSERT_TRUE(world.loop.step());
      world.pipeline.collect();
      EXPECT_EQ(count(), made);
    }
  }
}

TEST(PipelinePieces, every_stage_tells_its_format_the_samples_except_in_a_validation) {
  World world({{1, 1, 1}, 3, {3, 2, 1}, false, false, 0});
  world.run_steps(2);
  for (std::size_t c = 0; c < 3; ++c) {
    for (const Op op : {Op::kSendActivation, Op::kSendGradient}) {
      if (c == (op == Op::kSendActivation ? 2 : 0)) continue;  // it sends none
      const auto& samples = world.format(c).samples;
      EXPECT_EQ(samples.at({op, 2, 1u}), (std::vector<std::int64_t>{102, -1})) << c;
    }
  }
  int done = 0;
  for (auto& cell : world.pipeline.cells) {
    cell->context.hooks = {};
    cell->step = std::make_unique<PipelineStep>(
        cell->context, PipelineStep::Options{.step = 2, .is_validation = true});
    cell->step->start([&](Result<PipelineResult> result) { done += result ? 1 : 0; });
  }
  while (done < 3) ASSERT_TRUE(world.loop.step()) << "nothing more happens";
  EXPECT_TRUE(world.format(0).samples.at({Op::kSendActivation, 1, 2u}).empty());
  EXPECT_FALSE(world.format(1).written.contains({Op::kSendGradient, 0, 2u}))
      << "a validation's gradients are empty messages";
}

TEST(PipelinePieces, sequences_that_a_reader_misses_are_sent_again_and_change_no_bit) {
  for (const bool recompute : {false, true}) {
    const PipelineOptions options = {{1, 1, 2}, 4, {3, 2, 1}, true, recompute, 0};
    World world(options);
    world.format(1).lost = {{0, 1}, {2, 0}, {2, 1}};
    world.format(2).lost = {{3, 0}};
    world.answer_resends();
    world.run_steps(2);
    expect_same(world.pipeline.outcome, run_single(options, 2));
    EXPECT_EQ(world.format(0).resends, 2 * 3);
    EXPECT_EQ(world.format(1).resends, 2 * 1);
  }
}

TEST(PipelinePieces, a_sequence_that_stays_missing_ends_the_step) {
  struct Row {
    bool is_asked, is_refused;
    const char* message;
  };
  for (const Row& row :
       {Row{false, false, "RECV_ACT 1: it lacks sequences, and nobody can be asked for them"},
        Row{true, true, "RECV_ACT 1: sequence 0 again: it is forgotten here, too"}}) {
    World world({{1, 1}, 3, {2, 1}, false, false, 0});
    world.format(1).lost = {{1, 0}};
    world.format(0).loses_resends = row.is_refused;
    if (row.is_asked) world.answer_resends();
    world.pipeline.start(0);
    while (world.loop.step()) {
    }
    const auto& result = world.pipeline.cells[1]->result;
    ASSERT_TRUE(result && !result->has_value());
    EXPECT_EQ(result->error().message, row.message);
  }
}

// The answer comes 2 s after it was asked for, when the step is gone.
TEST(PipelinePieces, an_answer_that_comes_after_an_abort_is_nobodys) {
  World world({{1, 1}, 3, {2, 1}, false, false, 0});
  world.format(1).lost = {{0, 0}};
  world.answer_resends();
  world.pipeline.start(0);
  while (world.format(0).resends == 0) ASSERT_TRUE(world.loop.step());
  int released = 0;
  world.pipeline.abort(released);
  world.pipeline.cells[1]->step.reset();
  while (world.loop.step()) {
  }
  EXPECT_EQ(released, 2);
}

// ---- The formats themselves.

std::vector<float> numbers(std::size_t count) {
  Rng rng("boundary numbers", count);
  std::vector<float> all(count);
  for (float& x : all) x = static_cast<float>(rng.uniform() - 0.5);
  return all;
}

/// The message that the format writes; it must become final from the front.
std::vector<std::byte> message_of(BoundaryFormat& format, const BoundaryTensor& which,
                                  std::span<const float> tensor) {
  std::vector<std::byte> wire(format.wire_bytes_max(which.op, which.peer, tensor.size()));
  const auto writer = format.make_writer();
  for (int again = 0; again < 2; ++again) {  // a writer is used again and again
    const std::size_t size = writer->begin(which, tensor, wire).value();
    std::size_t ready = 0;
    std::vector<std::byte> final_bytes;
    while (ready < size) {
      const std::size_t before = std::exchange(ready, writer->advance().value());
      EXPECT_GT(ready, before);
      EXPECT_TRUE(std::ranges::equal(final_bytes, std::span(wire).first(before)));
      final_bytes.assign(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(ready));
    }
    if (again == 1) wire.resize(size);
  }
  return wire;
}

std::vector<float> tensor_of(BoundaryFormat& format, const BoundaryTensor& which,
                             std::vector<std::byte> wire, std::size_t elements, std::size_t piece) {
  std::vector<float> tensor(elements);
  const auto reader = format.make_reader();
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(reader->begin(which, wire, tensor).has_value());
    for (std::size_t arrived = 0; !reader->done();) {
      arrived = std::min(wire.size(), arrived + piece);
      const Result<void> read = reader->advance(arrived, arrived == wire.size());
      EXPECT_TRUE(read.has_value()) << read.error().message;
      if (!read) return {};
    }
  }
  return tensor;
}

// 300000 elements are two and a bit of a writer's pieces.
TEST(CodecBoundary, a_message_in_pieces_is_the_frame_of_the_whole_tensor) {
  const std::vector<float> x = numbers(300000);
  CodecBoundary format({Codec::kNone, Codec::kInt8, Codec::kBf16});
  const BoundaryTensor which = {.peer = 1, .step = 7};
  std::vector<std::byte> whole(tensor_frame_capacity(TensorCodec::kQ8, Precision::kFp32, x.size()));
  whole.resize(encode_tensor(flat_view(x), format.options_of(which), whole).value());
  const std::vector<std::byte> message = message_of(format, which, x);
  EXPECT_EQ(message, whole);
  std::vector<float> expected(x.size());
  ASSERT_TRUE(decode_tensor(whole, expected).has_value());
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{262144}, message.size()}) {
    EXPECT_TRUE(same_floats(tensor_of(format, which, message, x.size(), piece), expected));
  }
}

TEST(CodecBoundary, activations_of_a_validation_have_8_bits_at_least) {
  const std::vector<float> x = numbers(1000);
  const struct {
    Codec codec;
    TensorCodec trained, validated;
  } rows[] = {{Codec::kBf16, TensorCodec::kBf16, TensorCodec::kBf16},
              {Codec::kInt8, TensorCodec::kQ8, TensorCodec::kQ8},
              {Codec::kInt6, TensorCodec::kQ6, TensorCodec::kQ8},
              {Codec::kInt4, TensorCodec::kQ4, TensorCodec::kQ8},
              {Codec::kHadamard4, TensorCodec::kHadamardQ4, TensorCodec::kQ8}};
  for (const auto& row : rows) {
    CodecBoundary format({row.codec});
    const auto codec_of = [&](const BoundaryTensor& which) {
      const std::vector<std::byte> message = message_of(format, which, x);
      EXPECT_EQ(tensor_of(format, which, message, x.size(), 100).size(), x.size());
      return parse_tensor_header(message).value().codec;
    };
    EXPECT_EQ(codec_of({}), row.trained) << name_of(row.codec);
    EXPECT_EQ(codec_of({.is_validation = true}), row.validated) << name_of(row.codec);
  }
}

TEST(CodecBoundary, a_plain_peer_has_plain_messages) {
  const std::vector<float> x = numbers(1000);
  CodecBoundary format({Codec::kNone, Codec::kInt8});
  const BoundaryTensor which = {.peer = 0};
  EXPECT_TRUE(format.is_plain(Op::kSendActivation, 0));
  EXPECT_FALSE(format.is_plain(Op::kSendActivation, 1));
  const std::vector<std::byte> message = message_of(format, which, x);
  EXPECT_EQ(message.size(), 4000u);
  EXPECT_TRUE(same_floats(tensor_of(format, which, message, x.size(), message.size()), x));
}

TEST(CodecBoundary, a_tensor_that_cannot_be_encoded_is_a_mark_and_arrives_as_nan) {
  std::vector<float> x = numbers(1000);
  x[500] = std::numeric_limits<float>::infinity();
  CodecBoundary format({Codec::kInt8});
  const std::vector<std::byte> message = message_of(format, {}, x);
  EXPECT_EQ(message, std::vector<std::byte>(64));
  const std::vector<float> arrived = tensor_of(format, {}, message, x.size(), 20);
  EXPECT_TRUE(std::ranges::all_of(arrived, [](float f) { return std::isnan(f); }));
}

TEST(CodecBoundary, the_sender_changes_codecs_alone_and_each_way_by_itself) {
  const std::vector<float> x = numbers(1000);
  CodecBoundary sender({Codec::kInt8});
  CodecBoundary receiver({Codec::kInt8});
  for (CodecBoundary* const end : {&sender, &receiver}) {
    end->let_vary(0, Op::kSendGradient, Codec::kNone);
  }
  const BoundaryTensor gradient = {.op = Op::kSendGradient};
  // 1000 elements: 16 blocks of 64 or 32 of 32, whole, and their scales, padded to 64 bytes.
  const std::pair<Codec, std::size_t> sizes[] = {{Codec::kBf16, 68 + 2000},
                                                 {Codec::kNone, 68 + 4000},
                                                 {Codec::kInt6, 68 + 64 + 1024 * 6 / 8},
                                                 {Codec::kInt4, 68 + 64 + 1024 * 4 / 8}};
  for (const auto& [codec, size] : sizes) {
    sender.set_codec(0, Op::kSendGradient, codec);
    const std::vector<std::byte> message = message_of(sender, gradient, x);
    EXPECT_EQ(message.size(), size) << name_of(codec);
    EXPECT_EQ(message_of(sender, {}, x).size(), 68u + 64u + 1000u);
    const std::vector<float> y = tensor_of(receiver, gradient, message, x.size(), 100);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 0.51 / 7);
  }
}

// int4 of gradients is the symmetric one with stochastic rounding: +-0.45 of a block whose largest
// is 0.7 has a step of 0.1 (bf16: 0.1001), so is 0.4 or 0.5 by the noise, and as often either; an
// activation's is always the same.
TEST(CodecBoundary, coarse_gradients_are_rounded_without_bias_by_seed_step_and_micro_batch) {
  std::vector<float> x(3200, 0.45f);
  for (std::size_t i = 0; i < x.size(); i += 32) x[i] = 0.7f;
  CodecBoundary format({Codec::kInt4}, Precision::kFp32, 11);
  CodecBoundary other_seed({Codec::kInt4}, Precision::kFp32, 12);
  const auto arrives = [&](CodecBoundary& from, BoundaryTensor which) {
    return tensor_of(format, which, message_of(from, which, x), x.size(), 1000);
  };
  const BoundaryTensor gradient = {.op = Op::kSendGradient, .step = 3};
  const std::vector<float> once = arrives(format, gradient);
  double sum = 0;
  for (const float y : once) sum += y;
  EXPECT_NEAR(sum / 3200, (31 * 0.45 + 0.7) / 32, 0.003);  // standard error 0.05 / sqrt(3100)
  EXPECT_EQ(arrives(format, gradient), once);
  EXPECT_NE(arrives(other_seed, gradient), once);
  BoundaryTensor next = gradient;
  next.step = 4;
  EXPECT_NE(arrives(format, next), once);
  next = gradient;
  next.micro_batch = 1;
  EXPECT_NE(arrives(format, next), once);
  const std::vector<float> activation = arrives(format, {.step = 3});
  EXPECT_EQ(activation[1], activation[2]);
  EXPECT_EQ(arrives(other_seed, {.step = 3}), activation);
}

TEST(CodecBoundary, numbers_that_are_bf16_lose_nothing_where_a_boundary_may_vary) {
  std::vector<float> x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 256) / 64;
  CodecBoundary format({Codec::kNone}, Precision::kBf16);
  EXPECT_EQ(message_of(format, {}, x).size(), 2000u);
  format.let_vary(0, Op::kSendActivation, Codec::kNone);
  const std::vector<std::byte> message = message_of(format, {}, x);
  EXPECT_EQ(message.size(), 2068u);
  EXPECT_TRUE(same_floats(tensor_of(format, {}, message, x.size(), 300), x));
}

// Each row dies at another check of the reader.
TEST(CodecBoundary, a_message_that_is_none_is_an_error) {
  const std::vector<float> x = numbers(100);
  CodecBoundary format({Codec::kInt8});
  const std::vector<std::byte> good = message_of(format, {}, x);
  struct Row {
    std::vector<std::byte> message;
    const char* error;
  };
  const auto with = [&](auto change) {
    std::vector<std::byte> bad = good;
    change(bad);
    return bad;
  };
  const std::vector<Row> rows = {
      {with([](auto& m) { m.resize(63); }), "a boundary tensor's message ends within its header"},
      {with([](auto& m) { m.resize(m.size() - 1); }), "a boundary tensor's message ends early"},
      {with([](auto& m) {
         m.resize(65);
         std::ranges::fill(m, std::byte{0});
       }),
       "bytes follow the mark of a tensor that could not be encoded"},
      {with([](auto& m) { m.back() ^= std::byte{1}; }),
       "the checksum of a tensor frame's payload is wrong"},
      {with([](auto& m) { m.push_back({}); }), "is followed by 1 more"},
      {message_of(format, {}, numbers(99)),
       "a frame of 99 elements arrived where 100 are expected"},
  };
  for (const Row& row : rows) {
    std::vector<float> tensor(x.size());
    const auto reader = format.make_reader();
    ASSERT_TRUE(reader->begin({}, row.message, tensor).has_value());
    const Result<void> read = reader->advance(row.message.size(), true);
    ASSERT_FALSE(read.has_value()) << row.error;
    EXPECT_NE(read.error().message.find(row.error), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace longhaul
