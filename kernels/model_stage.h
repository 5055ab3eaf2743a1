// One stage of GPT-2 or Llama: layers [first, end), perhaps the embedding before and the head after
// them. Weights, gradients and the arithmetic of forward and backward; no schedule, no messages.
//
// The same code runs the whole model (one stage with everything) and any cut of it. A boundary
// tensor passes between stages as computed, so a pipeline has the bits of the single stage.
//
// A micro-batch lives in a StageBatch from its forward to its backward:
//
//   stage.forward(batch)  ->  stage.backward_input(batch, ...)  ->  stage.backward_weight(batch)
//
// `backward` is the last two together. Each kind of call must take the micro-batches of a step in
// one order, the same at every stage (ascending); between kinds any interleaving that a schedule
// wants gives the same bits. The split costs no memory: output gradients that backward_weight will
// want overwrite activations that nobody wants any more. (To that end backward_input does the
// layer-norm parameters, which would need the very activations.)
//
// A stage and its micro-batches belong to one thread at a time: the compute thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "kernels/model_layer.h"
#include "kernels/model_parameters.h"
#include "kernels/ops.h"

namespace longhaul {

class ModelStage;

/// What one micro-batch keeps on a stage, as core/model_math.h counts it. To recompute instead,
/// keep a copy of input() and run forward from it again: it gives the same bits. Moves, never
/// copies.
class StageBatch {
 public:
  StageBatch(const ModelStage& stage, int sequences);
  StageBatch(StageBatch&&) = default;
  StageBatch& operator=(StageBatch&&) = default;

  /// [rows, width]. On a stage without embedding: fill it before forward. After backward_input it
  /// holds the gradient of the input, to be sent to the stage before.
  std::span<float> input();
  /// [rows, width]. After forward, on a stage without head: the boundary tensor to send. The
  /// gradient that comes back for it is written here before backward_input.
  std::span<float> output();
  /// On a stage with embedding: set before forward. [rows]
  std::span<std::int32_t> tokens() { return tokens_; }
  /// On a stage with head: set before forward. [rows], ops::kIgnoredTarget for padding.
  std::span<std::int32_t> targets() { return targets_; }
  /// After forward on a stage with head: one unscaled loss a row. Add with ops::add_losses.
  std::span<const float> losses() const { return losses_; }

  std::ptrdiff_t rows() const { return rows_; }
  /// Of everything kept.
  std::size_t bytes() const;

 private:
  friend class ModelStage;
  enum class State { kEmpty, kForwardDone, kInputDone };
  /// Of one of the layers: the input of the next, or the boundary tensor. Later its gradient.
  std::span<float> output_of(std::size_t layer);

  std::ptrdiff_t sequences_;
  std::ptrdiff_t rows_;
  State state_ = State::kEmpty;
  std::uint64_t serial_ = 0;  // of its forward, among all forwards of the stage
  TensorStorage storage_;
  std::vector<LayerState> layers_;
  std::span<float> final_input_;  // of the final norm, or the boundary tensor
  NormState final_norm_;
  std::vector<float> losses_, log_sum_exp_;
  std::vector<std::int32_t> tokens_, targets_;
};

class ModelStage {
 public:
  ModelStage(ModelStage&&) = default;
  ModelStage& operator=(ModelStage&&) = default;

  /// Refuses (kInvalid) a shape that its family cannot have, and fp16. Moves, never copies.
  ///
  /// bf16: weights, gradients, sums and everything kept stay fp32. The operands of every matrix
  /// product are rounded (kernels/gemm.h), and so is what a cut into stages would send: the stream
  /// between layers, and the gradient that goes back between them. So here, too, every cut has the
  /// bits of the whole, and a boundary tensor loses nothing in two bytes an element.
  static Result<ModelStage> create(const ModelShape& model, const ModelSlice& slice,
                                   Precision precision = Precision::kFp32);

  const ModelShape& model() const { return model_; }
  const ModelSlice& slice() const { return slice_; }
  Precision precision() const { return bf16_ ? Precision::kBf16 : Precision::kFp32; }
  const std::vector<ModelParameter>& parameters() const { return parameters_; }

  std::span<float> weights() { return weights_; }
  std::span<float> weight(const ModelParameter& parameter);
  /// Accumulated by backward; the caller zeroes them once a step.
  std::span<float> gradients() { return gradients_; }
  std::span<float> gradient(const ModelParameter& parameter);
  void zero_gradients();
  /// A tied token embedding gets its gradient from two places. On a stage that has both, the head's
  /// is kept apart and this adds it: gradient = head + embedding, once a step before the gradients
  /// are used. Where the two live on different stages their exchange does the same sum. No effect
  /// on a stage that has one or none.
  void fold_tied_gradient();

  /// Normal of deviation 0.02, for residual projections divided by sqrt(2 layers); norms 1,
  /// biases 0. Depends on the tensor's name and the seed alone, so every cut starts alike.
  void initialise_weights(std::uint64_t seed);

  void forward(StageBatch& batch);
  /// After forward on a stage with head: [rows, vocabulary], the logits of each row's next token.
  /// Good until the next call of forward, logits or a backward.
  std::span<const float> logits(StageBatch& batch);
  /// `loss_scale`: 1 / (target tokens of the step), used where the head is.
  void backward_input(StageBatch& batch, float loss_scale);
  /// `loss_scale` as in backward_input.
  void backward_weight(StageBatch& batch, float loss_scale);
  void backward(StageBatch& batch, float loss_scale);

 private:
  friend class ModelDecoder;
  ModelStage() = default;

  /// What parameters_of lists, by what it does: the weights, or the gradients.
  struct Tensors {
    std::span<float> token_table, position_table;
    std::vector<LayerTensors> layers;
    TensorPair final_norm;
    std::span<float> head;
  };
  Tensors tensors_of(std::span<float> storage) const;

  ops::LinearShape head_linear(const StageBatch& batch) const;
  LayerPass layer_pass(const StageBatch& batch, std::size_t layer) const;
  void forward_head(StageBatch& batch);
  /// Logits of the batch in the workspace; computed unless they are there already.
  std::span<float> logits_of(StageBatch& batch);
  /// Their gradient in the workspace, likewise.
  std::span<float> logits_gradient_of(StageBatch& batch, float loss_scale);

  ModelShape model_;
  ModelSlice slice_;
  bool bf16_ = false;
  std::vector<ModelParameter> parameters_;
  TensorStorage weights_;
  TensorStorage gradients_;
  TensorStorage tied_head_gradient_;  // where one stage has both ends of a tied embedding
  Tensors weight_tensors_;            // spans into the above
  Tensors gradient_tensors_;

  // Workspace, shared by all micro-batches.
  RotaryTable rotary_;
  LayerScratch scratch_;
  TensorStorage logits_;  // [rows, vocabulary]
  enum class Logits { kNone, kValues, kGradient };
  Logits logits_hold_ = Logits::kNone;
  std::uint64_t logits_serial_ = 0;  // whose they are
  std::uint64_t forwards_ = 0;
};

}  // namespace longhaul
