// One stage of GPT-2: layers [first, end), perhaps the embedding before and the head after them.
// Weights, gradients and the arithmetic of forward and backward; no schedule, no messages.
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
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "kernels/ops.h"

namespace longhaul {

/// The part of the model that a stage has.
struct ModelSlice {
  int first_layer = 0;
  int end_layer = 0;  // one past the last; may be first_layer when there is an embedding or a head
  bool has_embedding = false;
  bool has_head = false;  // final layer norm, output head, loss
};

/// A tensor by its Hugging Face name ("h.3.attn.c_attn.weight", "wte.weight"). It lies at `offset`
/// in the stage's weights, gradients and optimiser state; offsets are multiples of 16 floats and
/// the gaps stay zero.
struct ModelParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;
  std::size_t size = 0;  // elements

  bool decays() const { return shape.size() >= 2; }
};

/// The tensors of a slice in model order; a tied embedding of a stage that has only the head comes
/// last.
std::vector<ModelParameter> parameters_of(const ModelShape& model, const ModelSlice& slice);

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
  struct Layer {
    std::span<float> input;  // backward_input: the gradient of the input
    std::span<float> norm1, mean1, inverse1;
    std::span<float> qkv;  // backward_input: its gradient
    std::span<float> attention, log_sum_exp;
    std::span<float> middle;  // sum after attention; backward_input: its gradient
    std::span<float> norm2, mean2, inverse2;
    std::span<float> inner;  // MLP before GELU; backward_input: its gradient
    std::span<float> gelu;
  };

  std::ptrdiff_t sequences_;
  std::ptrdiff_t rows_;
  State state_ = State::kEmpty;
  std::uint64_t serial_ = 0;  // of its forward, among all forwards of the stage
  std::vector<float> storage_;
  std::vector<Layer> layers_;
  std::span<float> final_input_;  // of the final norm, or the boundary tensor
  std::span<float> final_norm_, final_mean_, final_inverse_;
  std::vector<float> losses_, log_sum_exp_;
  std::vector<std::int32_t> tokens_, targets_;
};

class ModelStage {
 public:
  /// Refuses (kInvalid) a shape that is not GPT-2's: heads x head width must be the width, and
  /// there are no grouped key-value heads.
  static Result<ModelStage> create(const ModelShape& model, const ModelSlice& slice);

  const ModelShape& model() const { return model_; }
  const ModelSlice& slice() const { return slice_; }
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
  ModelStage() = default;

  /// A layer's tensors in file order.
  enum LayerTensor {
    kNorm1Weight,
    kNorm1Bias,
    kQkvWeight,
    kQkvBias,
    kProjectionWeight,
    kProjectionBias,
    kNorm2Weight,
    kNorm2Bias,
    kInnerWeight,
    kInnerBias,
    kOuterWeight,
    kOuterBias,
    kLayerTensors,
  };

  /// Offsets of one layer's tensors, in the order of parameters_of.
  std::span<float> layer_tensor(std::vector<float>& from, std::ptrdiff_t layer, int index);
  std::span<float> tensor(std::vector<float>& from, int index);
  ops::LinearShape linear(const StageBatch& batch, int in, int out) const;
  ops::LinearShape head_linear(const StageBatch& batch) const;
  std::span<float> head_gradient();
  void forward_layer(StageBatch& batch, std::ptrdiff_t layer, std::span<float> output);
  void backward_layer_input(StageBatch& batch, std::ptrdiff_t layer,
                            std::span<const float> output_gradient);
  void backward_layer_weight(StageBatch& batch, std::ptrdiff_t layer,
                             std::span<const float> output_gradient);
  void forward_head(StageBatch& batch);
  /// Logits of the batch in the workspace; computed unless they are there already.
  std::span<float> logits_of(StageBatch& batch);
  /// Their gradient in the workspace, likewise.
  std::span<float> logits_gradient_of(StageBatch& batch, float loss_scale);
  void backward_norm(std::span<const float> output_gradient, std::span<const float> input,
                     std::span<const float> mean, std::span<const float> inverse,
                     std::span<const float> weight, std::span<float> weight_gradient,
                     std::span<float> bias_gradient, std::span<float> input_gradient);

  ModelShape model_;
  ModelSlice slice_;
  std::vector<ModelParameter> parameters_;
  int first_layer_index_ = 0;  // of the first layer's first tensor
  int final_norm_index_ = -1;
  int head_index_ = -1;
  std::vector<float> weights_;
  std::vector<float> gradients_;
  std::vector<float> tied_head_gradient_;  // where one stage has both ends of a tied embedding

  // Workspace, shared by all micro-batches.
  std::vector<float> narrow_, narrow2_;  // [rows, width]
  std::vector<float> wide_;              // [rows, max(3 width, MLP width)]
  std::vector<float> logits_;            // [rows, vocabulary]
  enum class Logits { kNone, kValues, kGradient };
  Logits logits_hold_ = Logits::kNone;
  std::uint64_t logits_serial_ = 0;  // whose they are
  std::uint64_t forwards_ = 0;
};

}  // namespace longhaul
