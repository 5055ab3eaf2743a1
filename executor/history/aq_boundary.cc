#include "executor/history/aq_boundary.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "core/hash.h"
#include "executor/history/aq_edge.h"
#include "kernels/codec/codec_error.h"

namespace longhaul {
namespace {

/// Each of an edge's messages by Aq, all others by the direct codec's own.
class Writer final : public BoundaryWriter {
 public:
  using FindEdge = std::function<AqEdge*(Op, int)>;
  Writer(FindEdge find, std::unique_ptr<BoundaryWriter> direct)
      : find_(std::move(find)), direct_(std::move(direct)) {}
  Result<std::size_t> begin(const BoundaryTensor& which, std::span<const float> tensor,
                            std::span<std::byte> wire) override {
    AqEdge* const edge = find_(which.op, which.peer);
    is_direct_ = edge == nullptr;
    return is_direct_ ? direct_->begin(which, tensor, wire) : aq_.begin(*edge, which, tensor, wire);
  }
  Result<std::size_t> advance() override { return is_direct_ ? direct_->advance() : aq_.advance(); }

 private:
  FindEdge find_;
  std::unique_ptr<BoundaryWriter> direct_;
  AqWriter aq_;
  bool is_direct_ = true;
};

class Reader final : public BoundaryReader {
 public:
  using FindEdge = Writer::FindEdge;
  Reader(FindEdge find, std::unique_ptr<BoundaryReader> direct)
      : find_(std::move(find)), direct_(std::move(direct)) {}
  Result<void> begin(const BoundaryTensor& which, std::span<const std::byte> wire,
                     std::span<float> tensor) override {
    AqEdge* const edge = find_(which.op, which.peer);
    is_direct_ = edge == nullptr;
    return is_direct_ ? direct_->begin(which, wire, tensor) : aq_.begin(*edge, which, wire, tensor);
  }
  Result<void> advance(std::size_t arrived, bool is_last) override {
    return is_direct_ ? direct_->advance(arrived, is_last) : aq_.advance(arrived, is_last);
  }
  bool done() const override { return is_direct_ ? direct_->done() : aq_.done(); }
  std::span<const int> missing() const override {
    return is_direct_ ? direct_->missing() : aq_.missing();
  }
  Result<void> repair(int sequence, std::span<const std::byte> frame) override {
    return is_direct_ ? direct_->repair(sequence, frame) : aq_.repair(sequence, frame);
  }

 private:
  FindEdge find_;
  std::unique_ptr<BoundaryReader> direct_;
  AqReader aq_;
  bool is_direct_ = true;
};

}  // namespace

std::uint64_t history_layout(const ModelShape& model, int layers) {
  return hash_text(fmt::format("activation after {} of {} layers, {} x {}", layers, model.layers,
                               model.context, model.width));
}

AqBoundary::AqBoundary(CodecBoundary direct) : direct_(std::move(direct)) {}
AqBoundary::~AqBoundary() = default;

Result<std::unique_ptr<AqBoundary>> AqBoundary::make(CodecBoundary direct,
                                                     const std::vector<Edge>& edges,
                                                     Storage& storage) {
  std::unique_ptr<AqBoundary> boundary(new AqBoundary(std::move(direct)));
  for (const Edge& edge : edges) {
    LH_CHECK(has_history(edge.codec), "an edge with histories has a codec that uses them");
    LH_CHECK(edge.first_visit == Codec::kBf16 || edge.first_visit == Codec::kInt8,
             "a first visit is bf16 or int8");
    LH_CHECK(edge.steps_per_epoch > 0, "an epoch has steps");
    const TensorCodec deltas = tensor_codec(without_history(edge.codec));
    LH_TRY(check_history_codec(deltas, Rounding::kNearest));
    LH_ASSIGN(HistoryStore store, HistoryStore::open(storage, edge.histories));
    boundary->edges_.push_back(
        std::make_unique<AqEdge>(AqEdge{.options = edge,
                                        .store = std::move(store),
                                        .first_codec = tensor_codec(edge.first_visit),
                                        .delta_codec = deltas}));
  }
  return boundary;
}

AqEdge* AqBoundary::edge(int peer) const {
  const auto at = std::ranges::find(edges_, peer, [](const auto& e) { return e->options.peer; });
  return at == edges_.end() ? nullptr : at->get();
}

/// Where messages of this kind to or from that cell have histories.
AqEdge* AqBoundary::edge(Op op, int peer) const {
  return op == Op::kSendActivation ? edge(peer) : nullptr;
}

std::size_t AqBoundary::wire_bytes_max(Op op, int peer, std::size_t elements) const {
  const AqEdge* const at = edge(op, peer);
  if (at == nullptr) return direct_.wire_bytes_max(op, peer, elements);
  LH_CHECK(elements % at->elements() == 0, "a boundary tensor is whole sequences");
  return at->message_bytes_max(elements / at->elements());
}

bool AqBoundary::is_plain(Op op, int peer) const {
  return edge(op, peer) == nullptr && direct_.is_plain(op, peer);
}

std::unique_ptr<BoundaryWriter> AqBoundary::make_writer() {
  return std::make_unique<Writer>([this](Op op, int peer) { return edge(op, peer); },
                                  direct_.make_writer());
}
std::unique_ptr<BoundaryReader> AqBoundary::make_reader() {
  return std::make_unique<Reader>([this](Op op, int peer) { return edge(op, peer); },
                                  direct_.make_reader());
}

Result<std::vector<std::byte>> AqBoundary::resend(const BoundaryTensor& which, int sequence) {
  AqEdge* const at = edge(which.op, which.peer);
  if (at == nullptr) return direct_.resend(which, sequence);
  if (sequence < 0 || std::cmp_greater_equal(sequence, which.samples.size())) {
    return failed(
        fmt::format("sequence {} of {} was asked for again", sequence, which.samples.size()));
  }
  const std::int64_t sample = which.samples[static_cast<std::size_t>(sequence)];
  const History* const history =
      sample < 0 ? nullptr : at->store.find(static_cast<std::uint64_t>(sample));
  if (history == nullptr || history->step != which.step) {
    return failed(
        fmt::format("sample {} was asked for again, but step {} has left no history of it", sample,
                    which.step));
  }
  // Seldom, so the memory is not kept.
  const HistorySpan values = at->store.values(*history);
  std::vector<float> wide(values.size());
  std::ranges::transform(values, wide.begin(), [](std::uint16_t m) {
    return std::bit_cast<float>(std::uint32_t{m} << 16);
  });
  std::vector<std::uint16_t> unchanged(values.begin(), values.end());
  std::vector<std::byte> frame(
      tensor_frame_bytes(TensorCodec::kBf16, Precision::kFp32, values.size(), true));
  LH_ASSIGN(const std::size_t bytes,
            encode_tensor(flat_view(wide),
                          {.codec = TensorCodec::kBf16,
                           .step = which.step,
                           .history = HistoryHeader{.sample = history->sample,
                                                    .layout = at->options.layout,
                                                    .base_hash = history->hash,
                                                    .version = history->visits,
                                                    .kind = HistoryKind::kHealing}},
                          frame, unchanged));
  frame.resize(bytes);
  ++at->counts.healed;
  return frame;
}

void AqBoundary::set_codec(int peer, Op op, Codec codec) {
  AqEdge* const at = edge(op, peer);
  if (at == nullptr) return direct_.set_codec(peer, op, codec);
  LH_CHECK(has_history(codec), "a boundary with histories keeps them");
  at->options.codec = codec;
  at->delta_codec = tensor_codec(without_history(codec));
}

Codec AqBoundary::codec_of(Op op, int peer) const {
  const AqEdge* const at = edge(op, peer);
  return at == nullptr ? direct_.codec_of(op, peer) : at->options.codec;
}

void AqBoundary::prefetch(std::span<const std::int64_t> samples) {
  for (const auto& at : edges_) at->store.prefetch(samples);
}

HistoryStore* AqBoundary::store(int peer) {
  AqEdge* const at = edge(peer);
  return at == nullptr ? nullptr : &at->store;
}

HistoryCounts AqBoundary::counts(int peer) const {
  const AqEdge* const at = edge(peer);
  return at == nullptr ? HistoryCounts() : at->counts;
}

}  // namespace longhaul
