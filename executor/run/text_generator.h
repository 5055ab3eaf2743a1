// Text from a trained model: loads the weights of a run, of a checkpoint or of a Hugging Face
// folder, and chooses one token after another.
//
// Every token is a forward of the whole window, the way training computes it: what is generated is
// what the validation loss judged. Same weights, tokens, options and seed give the same tokens.
// Calls block; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/rng.h"
#include "executor/data/tokenizer.h"
#include "executor/storage/storage.h"
#include "kernels/model_stage.h"

namespace longhaul {

/// A whole model with its weights, and what a person should hear about them.
struct LoadedModel {
  ModelStage stage;
  std::string source;              // the folder that the weights come from
  std::vector<std::string> notes;  // one sentence each
};

/// `folder` is a run folder (the newest checkpoint that is whole; newer ones that are damaged
/// become notes), the folder of one checkpoint, or a Hugging Face GPT-2 folder. The latter is
/// turned into a checkpoint in `scratch`, an empty or absent folder, which is removed again.
/// Every file is held to its hash. Errors: kInvalid when the folder is none of the three.
Result<LoadedModel> load_model(Storage& storage, const std::string& folder,
                               const std::string& scratch);

struct Sampling {
  double temperature = 0;  // 0: always the likeliest token; else logits are divided by it
  int top_k = 0;           // only among so many of the likeliest; 0: among all
  std::uint64_t seed = 1;
};

/// The likeliest id, or one drawn by softmax(logits / temperature); of equal logits the lower id is
/// the likelier. kFailed when a logit is not finite.
Result<Token> choose_token(std::span<const float> logits, const Sampling& sampling, Rng& rng);

class TextGenerator {
 public:
  /// Chooses among the ids below `choices`, 1 to the model's vocabulary: a vocabulary may be padded
  /// with ids that no tokenizer has.
  TextGenerator(ModelStage stage, std::int64_t choices, const Sampling& sampling);

  /// The token after `text`, of which the model sees the last `context` tokens. At least one.
  Result<Token> next(std::span<const Token> text);

 private:
  ModelStage stage_;
  StageBatch window_;
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
