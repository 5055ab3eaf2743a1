// Text from a trained model: chooses one token after another.
//
// What is generated is what the validation loss judged: each token is chosen by the logits of a
// forward over the text before it, the way training computes it. Keys and values of what was read
// are kept (kernels/model_decoder.h), which changes no bit, so a token costs one row. Where the
// text is longer than the context the model sees its last `context` tokens at positions 0 and up:
// keys and values depend on where their tokens stood, so there every token costs a whole window.
//
// Same weights, tokens, options and seed give the same tokens. Calls block; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/rng.h"
#include "executor/data/tokenizer.h"
#include "kernels/model_decoder.h"
#include "kernels/model_stage.h"

namespace longhaul {

/// How the next token is drawn. The filters are applied in the order of the fields, as Hugging
/// Face's transformers does it.
struct Sampling {
  double temperature = 0;  // 0: always the likeliest token; else logits are divided by it
  int top_k = 0;           // only among so many of the likeliest; 0: among all
  /// Only among the likeliest whose probabilities, after the filters above, first add up to this
  /// much; in (0, 1], 1: among all.
  double top_p = 1;
  std::uint64_t seed = 1;
};

/// The likeliest id, or one drawn by softmax(logits / temperature) of those that the filters leave;
/// of equal logits the lower id is the likelier. kFailed when a logit is not finite.
Result<Token> choose_token(std::span<const float> logits, const Sampling& sampling, Rng& rng);

class TextGenerator {
 public:
  /// Chooses among the ids below `choices`, 1 to the model's vocabulary: a vocabulary may be padded
  /// with ids that no tokenizer has.
  TextGenerator(ModelStage stage, std::int64_t choices, const Sampling& sampling);

  /// What is drawn from here on is that of sample `number`, from 0: each has a stream of random
  /// numbers of its own, so one sample does not depend on how long those before it were.
  void begin_sample(int number);

  /// The token after `text`, of which the model sees the last `context` tokens. At least one.
  Result<Token> next(std::span<const Token> text);

 private:
  ModelDecoder decoder_;
  std::vector<Token> read_;  // what the decoder has read
  std::int64_t choices_;
  Sampling sampling_;
  Rng rng_;
};

/// Makes valid UTF-8 of bytes that come piece by piece: a character that is not complete yet waits
/// for its rest, what can be no character becomes U+FFFD.
class Utf8Stream {
 public:
  /// The text that is complete now.
  std::string take(std::string_view bytes);
  /// What was waiting when no more comes.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace longhaul
