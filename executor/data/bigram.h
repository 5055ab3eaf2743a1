// The loss of a bigram model, counted on the training part and measured on the validation part: the
// line that a transformer must get below before it has learned anything beyond pairs of tokens.
//
// Interpolated with unigrams after Witten and Bell (1991), which has no constant to tune:
//   P(b)     = (c(b) + 1) / (n + V)
//   P(b | a) = (c(a b) + t(a) P(b)) / (c(a .) + t(a))
// c(a b): how often b followed a; c(a .): how often anything did; t(a): how many different tokens
// did; n: tokens counted; V: the vocabulary. The loss is the mean of -ln P over the targets, which
// are all tokens of a stream but its first, as they are for a model. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "executor/data/token_shard.h"

namespace longhaul {

class BigramModel {
 public:
  /// Tokens counted at most: a larger text is judged by its first 2^25 tokens, in at most 400 MiB.
  static constexpr std::int64_t kTokensMax = std::int64_t{1} << 25;

  /// Ids are below `vocabulary`.
  explicit BigramModel(std::int64_t vocabulary);

  /// The next tokens of the training part.
  void count(std::span<const Token> tokens);
  /// The next tokens of the validation part. All counting comes before.
  void measure(std::span<const Token> tokens);

  struct Loss {
    double bigram = 0;  // nats a target
    double unigram = 0;
    std::int64_t targets = 0;
  };
  /// No value when nothing was counted or no target measured.
  std::optional<Loss> loss() const;

 private:
  struct Pair {
    std::uint64_t key = 0;  // first and second token + 1; 0 is empty
    std::uint32_t count = 0;
  };
  /// Where the pair is or would be. Open addressing, at most two thirds full.
  std::size_t place_of(Token first, Token second) const;
  void grow();

  std::vector<std::uint32_t> counts_;     // c(b)
  std::vector<std::uint32_t> followed_;   // c(a .)
  std::vector<std::uint32_t> followers_;  // t(a)
  std::vector<Pair> pairs_;               // c(a b)
  std::size_t pairs_used_ = 0;
  std::int64_t counted_ = 0;
  std::optional<Token> previous_;           // of the training part
  std::optional<Token> previous_measured_;  // of the validation part
  Loss sum_;
};

}  // namespace longhaul
