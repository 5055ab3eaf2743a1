// Error feedback: what a codec took away from what was sent in a step is added to what is sent in
// the next, so that nothing of a gradient is lost, only late [Seide et al., 2014; Karimireddy et
// al., ICML 2019]:
//
//   c = g + e        send Q(c)        e' = c - Q(c)
//
// so that all that was sent and the last e' together are the sum of all g, to fp32 rounding. The
// exchange keeps it on both sides: a member of its part of other owners' shards, an owner of the
// sum (AQ-SGD's worker and server errors).
//
// e' counts from commit() on, when the step is applied everywhere. A step that is skipped,
// abandoned or done again begins once more with e, and what it would have left behind is forgotten.
// That takes two numbers an element, 8 bytes (feedback_bytes in core/gradient_exchange.h).
//
// They are not in checkpoints: after a resume, or with another layout, they begin with zero. What
// is lost so is at most what one step's codec took away.
//
// Belongs to the thread of the exchange.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace longhaul {

class ErrorFeedback {
 public:
  explicit ErrorFeedback(std::size_t elements) : left_(elements), next_(elements) {}

  /// c = g + e, in place, of the elements from `at` on.
  void add(std::size_t at, std::span<float> values) const {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += left_[at + i];
  }
  /// e' = c - Q(c).
  void keep(std::size_t at, std::span<const float> wanted, std::span<const float> sent) {
    for (std::size_t i = 0; i < wanted.size(); ++i) next_[at + i] = wanted[i] - sent[i];
  }
  /// Every element must have been kept since the last commit.
  void commit() { std::swap(left_, next_); }

  /// e.
  std::span<const float> left() const { return left_; }

 private:
  std::vector<float> left_;
  std::vector<float> next_;  // of the step at hand
};

}  // namespace longhaul
