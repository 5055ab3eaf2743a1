// A whole model that reads tokens and says what may follow: one sequence, keys and values of what
// was read kept, so that a token costs one row instead of a window.
//
//     ModelDecoder decoder(std::move(stage));
//     logits = decoder.feed(prompt);       // of the token after the prompt
//     logits = decoder.feed({&token, 1});  // of the one after that, and so on
//
// The logits are those of ModelStage::forward over the whole sequence, bit for bit, however the
// tokens are cut into calls: no row's sums depend on the rows beside it.
//
// Positions end with the context that the model was trained on. A caller with more to say resets
// and feeds the last tokens again: their keys and values depend on where they stood.
//
// Belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/model_stage.h"

namespace longhaul {

class ModelDecoder {
 public:
  /// The stage has the embedding, all layers and the head.
  explicit ModelDecoder(ModelStage stage);

  const ModelShape& model() const { return stage_.model(); }
  /// Tokens read since the last reset.
  int size() const { return size_; }
  /// That can be read before a reset.
  int room() const { return model().context - size_; }

  /// Reads tokens after those before, 1 to room() of them, each inside the vocabulary. Returns the
  /// logits [vocabulary] of what follows the last one; good until the next call.
  std::span<const float> feed(std::span<const std::int32_t> tokens);
  /// Forgets everything read.
  void reset();

 private:
  /// All layers on the next tokens; the result's input is the last layer's output.
  LayerState read(std::span<const std::int32_t> tokens);
  LayerState lay_out(std::ptrdiff_t rows);
  /// Appends the keys and values of each row.
  void keep_keys(std::span<const float> qkv, std::vector<float>& cache) const;
  void write_logits(const LayerState& state);

  ModelStage stage_;
  std::vector<std::vector<float>> caches_;  // of each layer: [size_, keys and values of a row]
  std::vector<float> storage_;              // of the rows that are being read
  std::vector<float> logits_;
  int size_ = 0;
};

}  // namespace longhaul
