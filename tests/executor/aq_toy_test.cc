// A small residual network trained over boundaries with and without histories: with them few bits
// train as well as fp32 does, without them they do not. 4 stages of 3 blocks of width 64, 1,024
// samples of 10 classes, 20 epochs of SGD, batches of 32; a sample's activation is a sequence of
// one row.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "core/rng.h"
#include "executor/history/aq_boundary.h"
#include "executor/storage/sim_storage.h"
#include "kernels/gemm.h"

namespace longhaul {
namespace {

constexpr std::ptrdiff_t kWidth = 64;
constexpr std::ptrdiff_t kClasses = 10;
constexpr int kStages = 4;
constexpr int kBlocksOfStage = 3;
constexpr std::ptrdiff_t kBatch = 32;
constexpr std::int64_t kSamples = 1024;
constexpr int kEpochs = 20;
constexpr float kRate = 0.03f;

using Matrix = std::vector<float>;  // row-major

float normal(Rng& rng) {
  // Irwin and Hall: twelve uniform numbers less their mean have variance 1.
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.uniform();
  return static_cast<float>(sum);
}
Matrix random_matrix(Rng& rng, std::ptrdiff_t rows, std::ptrdiff_t columns, float scale) {
  Matrix m(static_cast<std::size_t>(rows * columns));
  for (float& value : m) value = scale * normal(rng);
  return m;
}

/// c (+)= a b, each a matrix of so many columns or the transposed one of such.
struct Operand {
  const Matrix& m;
  std::ptrdiff_t columns;
  bool is_transposed = false;
};
void multiply(const Operand& a, const Operand& b, std::ptrdiff_t rows, std::ptrdiff_t depth,
              std::ptrdiff_t columns, Matrix& c, GemmStart start = GemmStart::kZero) {
  const auto view = [](const Operand& operand) {
    const MatrixView plain{operand.m.data(), operand.columns};
    return operand.is_transposed ? plain.transposed() : plain;
  };
  c.resize(static_cast<std::size_t>(rows * columns));
  gemm({.rows = rows,
        .columns = columns,
        .depth = depth,
        .a = view(a),
        .b = view(b),
        .c = c.data(),
        .c_row_stride = columns,
        .start = start});
}
void descend(Matrix& weights, const Matrix& gradient) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= kRate * gradient[i];
}

/// h + relu(h u) v
class Block {
 public:
  explicit Block(Rng& rng)
      : u_(random_matrix(rng, kWidth, kWidth, 0.125f)),
        v_(random_matrix(rng, kWidth, kWidth, 0.03f)) {}
  void forward(Matrix& h) {
    h_ = h;
    multiply({h, kWidth}, {u_, kWidth}, kBatch, kWidth, kWidth, r_);
    for (float& value : r_) value = std::max(value, 0.0f);
    multiply({r_, kWidth}, {v_, kWidth}, kBatch, kWidth, kWidth, h, GemmStart::kAccumulate);
  }
  void backward(Matrix& g) {
    Matrix dr, du, dv;
    multiply({g, kWidth}, {v_, kWidth, true}, kBatch, kWidth, kWidth, dr);
    multiply({r_, kWidth, true}, {g, kWidth}, kWidth, kBatch, kWidth, dv);
    for (std::size_t i = 0; i < dr.size(); ++i) dr[i] = r_[i] > 0 ? dr[i] : 0;
    multiply({h_, kWidth, true}, {dr, kWidth}, kWidth, kBatch, kWidth, du);
    multiply({dr, kWidth}, {u_, kWidth, true}, kBatch, kWidth, kWidth, g, GemmStart::kAccumulate);
    descend(u_, du);
    descend(v_, dv);
  }

 private:
  Matrix u_, v_, h_, r_;
};

struct Setting {
  Codec forward = Codec::kNone;
  Codec backward = Codec::kNone;
  float outlier = 0;  // what every sixteenth channel carries, beside what the layers use
};

/// A boundary between stages: what is sent arrives.
class Link {
 public:
  explicit Link(const Setting& setting) : setting_(setting), sender_(make(1)), receiver_(make(0)) {}

  void forward(std::uint32_t step, std::span<const std::int64_t> samples, Matrix& h) {
    if (setting_.forward == Codec::kNone) return;
    for (std::size_t i = 0; i < h.size(); i += 16) h[i] += setting_.outlier;
    measure(samples, h);
    transfer(*sender_, *receiver_, {.op = Op::kSendActivation, .step = step, .samples = samples},
             h);
    for (std::size_t i = 0; i < h.size(); i += 16) h[i] -= setting_.outlier;
  }
  void backward(std::uint32_t step, Matrix& g) {
    if (setting_.backward == Codec::kNone) return;
    transfer(*receiver_, *sender_, {.op = Op::kSendGradient, .step = step, .samples = {}}, g);
  }
  /// |x - m| / |x| of what was sent to a history since the last time.
  double change() {
    const double ratio = std::sqrt(difference_ / std::max(norm_, 1e-30));
    difference_ = norm_ = 0;
    return ratio;
  }

 private:
  std::unique_ptr<AqBoundary> make(int peer) {
    const auto direct = [](Codec codec) { return has_history(codec) ? Codec::kInt8 : codec; };
    CodecBoundary codecs(std::vector<Codec>(2, direct(setting_.forward)));
    codecs.set_gradients(peer, setting_.backward);
    std::vector<AqBoundary::Edge> edges;
    if (has_history(setting_.forward)) {
      edges.push_back(
          {.peer = peer,
           .codec = setting_.forward,
           .first_visit = Codec::kBf16,
           .layout = 1,
           .steps_per_epoch = kSamples / kBatch,
           .histories = {
               .elements = kWidth, .capacity = kSamples, .in_memory = kSamples, .folder = ""}});
    }
    auto made = AqBoundary::make(std::move(codecs), edges, storage_);
    LH_CHECK(made.has_value(), "there is room");
    return std::move(*made);
  }

  void measure(std::span<const std::int64_t> samples, const Matrix& h) {
    HistoryStore* const store = sender_->store(1);
    if (store == nullptr) return;
    for (std::size_t row = 0; row < samples.size(); ++row) {
      const History* const history = store->find(static_cast<std::uint64_t>(samples[row]));
      if (history == nullptr) continue;
      const auto values = store->values(*history);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double x = h[row * kWidth + i];
        const auto m = std::bit_cast<float>(std::uint32_t{values[i]} << 16);
        difference_ += (x - m) * (x - m);
        norm_ += x * x;
      }
    }
  }

  static void transfer(AqBoundary& from, AqBoundary& to, BoundaryTensor which, Matrix& x) {
    const bool is_forward = which.op == Op::kSendActivation;
    const auto writer = from.make_writer();
    const auto reader = to.make_reader();
    which.peer = is_forward ? 1 : 0;
    std::vector<std::byte> wire(from.wire_bytes_max(which.op, which.peer, x.size()));
    const auto size = writer->begin(which, x, wire);
    LH_CHECK(size.has_value(), "activations are finite");
    for (std::size_t ready = 0; ready < *size;) ready = writer->advance().value_or(*size);
    which.peer = is_forward ? 0 : 1;
    LH_CHECK(reader->begin(which, wire, x) && reader->advance(*size, true) && reader->done(),
             "what was encoded decodes");
  }

  Setting setting_;
  SimStorage storage_;
  std::unique_ptr<AqBoundary> sender_, receiver_;
  double difference_ = 0, norm_ = 0;
};

struct Outcome {
  double loss = 0;              // mean of the last epoch
  std::vector<double> changes;  // of each epoch, at all boundaries
};

/// Softmax and its cross entropy; `logits` becomes the gradient of their mean.
double loss_of(Matrix& logits, std::span<const int> labels) {
  double loss = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const std::span<float> z = std::span(logits).subspan(row * kClasses, kClasses);
    const float largest = *std::ranges::max_element(z);
    float sum = 0;
    for (const float value : z) sum += std::exp(value - largest);
    const auto label = static_cast<std::size_t>(labels[row]);
    loss -= z[label] - largest - std::log(sum);
    for (float& value : z) value = std::exp(value - largest) / sum / kBatch;
    z[label] -= 1.0f / kBatch;
  }
  return loss / static_cast<double>(labels.size());
}

Outcome train(const Setting& setting, std::uint64_t seed) {
  Rng rng("toy", seed);
  const Matrix inputs = random_matrix(rng, kSamples, kWidth, 1);
  const Matrix teacher = random_matrix(rng, kWidth, kClasses, 1);
  Matrix scores;
  multiply({inputs, kWidth}, {teacher, kClasses}, kSamples, kWidth, kClasses, scores);
  std::vector<int> labels;
  for (std::ptrdiff_t i = 0; i < kSamples; ++i) {
    const auto row = scores.begin() + i * kClasses;
    labels.push_back(static_cast<int>(std::max_element(row, row + kClasses) - row));
  }
  std::vector<Block> blocks;
  for (int i = 0; i < kStages * kBlocksOfStage; ++i) blocks.emplace_back(rng);
  Matrix head = random_matrix(rng, kWidth, kClasses, 0.125f);
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 1; i < kStages; ++i) links.push_back(std::make_unique<Link>(setting));

  Outcome outcome;
  std::vector<std::int64_t> order(kSamples);
  std::iota(order.begin(), order.end(), 0);
  std::uint32_t step = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    rng.shuffle(std::span(order));
    double loss = 0;
    for (std::int64_t first = 0; first < kSamples; first += kBatch, ++step) {
      const std::span<const std::int64_t> samples =
          std::span(order).subspan(static_cast<std::size_t>(first), kBatch);
      Matrix h;
      std::vector<int> targets;
      for (const std::int64_t sample : samples) {
        h.insert(h.end(), inputs.begin() + sample * kWidth, inputs.begin() + (sample + 1) * kWidth);
        targets.push_back(labels[static_cast<std::size_t>(sample)]);
      }
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i > 0 && i % kBlocksOfStage == 0)
          links[i / kBlocksOfStage - 1]->forward(step, samples, h);
        blocks[i].forward(h);
      }
      Matrix logits, g, head_gradient;
      multiply({h, kWidth}, {head, kClasses}, kBatch, kWidth, kClasses, logits);
      loss += loss_of(logits, targets);
      multiply({logits, kClasses}, {head, kClasses, true}, kBatch, kClasses, kWidth, g);
      multiply({h, kWidth, true}, {logits, kClasses}, kWidth, kBatch, kClasses, head_gradient);
      descend(head, head_gradient);
      for (std::size_t i = blocks.size(); i-- > 0;) {
        blocks[i].backward(g);
        if (i > 0 && i % kBlocksOfStage == 0) links[i / kBlocksOfStage - 1]->backward(step, g);
      }
    }
    outcome.loss = loss * kBatch / kSamples;
    double change = 0;
    for (const auto& link : links) change += link->change() / static_cast<double>(links.size());
    outcome.changes.push_back(change);
  }
  return outcome;
}

/// What three seeds give on average.
Outcome mean(const Setting& setting) {
  Outcome sum{.loss = 0, .changes = std::vector<double>(kEpochs)};
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const Outcome one = train(setting, seed);
    sum.loss += one.loss / 3;
    for (std::size_t i = 0; i < sum.changes.size(); ++i) sum.changes[i] += one.changes[i] / 3;
  }
  return sum;
}

TEST(AqToy, three_bits_train_with_histories_and_two_do_not_without) {
  const double exact = train({}, 1).loss;
  const Outcome with = train({.forward = Codec::kAqInt3, .backward = Codec::kInt6}, 1);
  const double without = train({.forward = Codec::kInt2, .backward = Codec::kInt4}, 1).loss;
  EXPECT_LE(with.loss, 1.5 * exact);
  EXPECT_GE(without, 10 * exact);
  // Differences shrink as the network settles: those of the last epoch against the second's.
  EXPECT_LT(with.changes.back(), 0.1 * with.changes[1]);
}

TEST(AqToySlow, holds_the_thresholds_of_the_anchor) {
  const double exact = mean({}).loss;
  const auto ratio = [&](const Setting& setting) { return mean(setting).loss / exact; };
  EXPECT_LE(ratio({Codec::kAqInt4, Codec::kInt8}), 1.15);
  EXPECT_LE(ratio({Codec::kAqInt3, Codec::kInt6}), 1.5);
  EXPECT_LE(ratio({Codec::kAqInt2, Codec::kInt4}), 1.7);
  EXPECT_GE(ratio({Codec::kInt2, Codec::kInt4}), 10);
  // A channel that is large all the time costs direct codecs their precision, and histories
  // nothing. Our blocks of 32 are spoilt by fewer outliers than the anchor's of 64, so they are 30
  // and not 20.
  EXPECT_GE(ratio({Codec::kInt3, Codec::kInt6, 30}), 30);
  EXPECT_LE(ratio({Codec::kAqInt3, Codec::kInt6, 30}), 1.5);
}

}  // namespace
}  // namespace longhaul
