// A boundary format that loses nothing and does everything that a format may: messages of sizes
// that only the sender knows, many pieces, sequences that are missing after the last byte and are
// sent again. It checks how it is used.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "executor/pipeline/boundary_format.h"

namespace longhaul::fixtures {

class PieceBoundary final : public BoundaryFormat {
 public:
  /// op, micro-batch, step: of a message of the cell.
  using Name = std::tuple<Op, int, std::uint32_t>;

  explicit PieceBoundary(int sequences) : sequences_(static_cast<std::size_t>(sequences)) {}

  // Set before the first step.
  std::size_t piece = 100;             // bytes; not of whole elements
  int decode_fails_at = -1;            // the nth message that is read
  std::set<std::pair<int, int>> lost;  // micro-batch and sequence of a training's activations here
  bool loses_resends = false;

  // What has happened; read it when nothing is in the queue.
  std::map<Name, int> written, read;  // how often begun
  std::map<Name, std::vector<std::int64_t>> samples;
  int resends = 0;

  std::size_t wire_bytes_max(Op, int, std::size_t elements) const override {
    return elements * sizeof(float) + 64;
  }
  std::unique_ptr<BoundaryWriter> make_writer() override {
    ++writers_made;
    return std::make_unique<Writer>(*this);
  }
  std::unique_ptr<BoundaryReader> make_reader() override {
    ++readers_made;
    return std::make_unique<Reader>(*this);
  }
  Result<std::vector<std::byte>> resend(const BoundaryTensor& which, int sequence) override {
    ++resends;
    if (loses_resends) return failed("it is forgotten here, too");
    const std::vector<float>& tensor = kept_.at({which.op, which.micro_batch, which.step});
    const auto part = std::as_bytes(part_of(std::span<const float>(tensor), sequence));
    return std::vector<std::byte>(part.begin(), part.end());
  }
  int writers_made = 0, readers_made = 0;

 private:
  static Name name_of(const BoundaryTensor& which) {
    return {which.op, which.micro_batch, which.step};
  }
  /// 0, 8 or 16 bytes more than the tensor has.
  static std::size_t tail_of(const BoundaryTensor& which) {
    return 8 * static_cast<std::size_t>((which.micro_batch + static_cast<int>(which.step)) % 3);
  }
  template <class T>
  std::span<T> part_of(std::span<T> tensor, int sequence) const {
    const std::size_t length = tensor.size() / sequences_;
    return tensor.subspan(static_cast<std::size_t>(sequence) * length, length);
  }

  class Writer final : public BoundaryWriter {
   public:
    explicit Writer(PieceBoundary& format) : format_(format) {}
    Result<std::size_t> begin(const BoundaryTensor& which, std::span<const float> tensor,
                              std::span<std::byte> wire) override {
      EXPECT_EQ(ready_, size_) << "a writer is at one message at a time";
      ++format_.written[name_of(which)];
      format_.kept_[name_of(which)].assign(tensor.begin(), tensor.end());
      format_.samples[name_of(which)].assign(which.samples.begin(), which.samples.end());
      tensor_ = std::as_bytes(tensor);
      wire_ = wire;
      ready_ = 0;
      size_ = tensor_.size() + tail_of(which);
      return size_;
    }
    Result<std::size_t> advance() override {
      const std::size_t end = std::min(size_, ready_ + format_.piece);
      for (; ready_ < end; ++ready_) {
        wire_[ready_] = ready_ < tensor_.size() ? tensor_[ready_] : std::byte{7};
      }
      return ready_;
    }

   private:
    PieceBoundary& format_;
    std::span<const std::byte> tensor_;
    std::span<std::byte> wire_;
    std::size_t ready_ = 0, size_ = 0;
  };

  class Reader final : public BoundaryReader {
   public:
    explicit Reader(PieceBoundary& format) : format_(format) {}
    Result<void> begin(const BoundaryTensor& which, std::span<const std::byte> wire,
                       std::span<float> tensor) override {
      ++format_.read[name_of(which)];
      which_ = which;
      wire_ = wire;
      tensor_ = tensor;
      arrived_ = 0;
      is_last_ = false;
      missing_.clear();
      return {};
    }
    Result<void> advance(std::size_t arrived, bool is_last) override {
      EXPECT_TRUE(arrived > arrived_ || is_last) << "told of nothing new";
      EXPECT_FALSE(is_last_) << "told after the last";
      if (is_last && format_.decode_fails_at-- == 0) return failed("the scales are not finite");
      const auto to = std::as_writable_bytes(tensor_);
      for (; arrived_ < arrived; ++arrived_) {
        if (arrived_ < to.size()) to[arrived_] = wire_[arrived_];
      }
      is_last_ = is_last;
      if (!is_last) return {};
      EXPECT_EQ(arrived, to.size() + tail_of(which_));
      for (const auto& [micro_batch, sequence] : format_.lost) {
        if (which_.op != Op::kSendActivation || which_.is_validation) continue;
        if (micro_batch != which_.micro_batch) continue;
        missing_.push_back(sequence);
        std::ranges::fill(format_.part_of(tensor_, sequence), -1.0f);
      }
      return {};
    }
    bool done() const override { return is_last_ && missing_.empty(); }
    std::span<const int> missing() const override { return missing_; }
    Result<void> repair(int sequence, std::span<const std::byte> frame) override {
      const auto part = std::as_writable_bytes(format_.part_of(tensor_, sequence));
      if (frame.size() != part.size()) return failed("the answer has another size");
      std::ranges::copy(frame, part.begin());
      std::erase(missing_, sequence);
      return {};
    }

   private:
    PieceBoundary& format_;
    BoundaryTensor which_;
    std::span<const std::byte> wire_;
    std::span<float> tensor_;
    std::size_t arrived_ = 0;
    bool is_last_ = false;
    std::vector<int> missing_;
  };

  std::size_t sequences_;
  std::map<Name, std::vector<float>> kept_;
};

}  // namespace longhaul::fixtures
