// The operations of kernels/ops.h as their formulas: loops only, sums in ascending order, whatever
// the speed. The fast versions are tested against these, and these against finite differences.
//
// Defined for float and double.
#pragma once

#include "kernels/ops.h"

namespace longhaul::reference {

template <class T>
void embedding_forward(const ops::Embedding<T>& op);
template <class T>
void embedding_backward(const ops::EmbeddingBackward<T>& op);
template <class T>
void layer_norm_forward(const ops::LayerNorm<T>& op);
template <class T>
void layer_norm_backward_input(const ops::LayerNormBackwardInput<T>& op);
template <class T>
void layer_norm_backward_weight(const ops::LayerNormBackwardWeight<T>& op);
template <class T>
void rms_norm_forward(const ops::RmsNorm<T>& op);
template <class T>
void rms_norm_backward_input(const ops::RmsNormBackwardInput<T>& op);
template <class T>
void rms_norm_backward_weight(const ops::RmsNormBackwardWeight<T>& op);
template <class T>
void linear_forward(const ops::Linear<T>& op);
template <class T>
void linear_backward_input(const ops::LinearBackwardInput<T>& op);
template <class T>
void linear_backward_weight(const ops::LinearBackwardWeight<T>& op);
template <class T>
void rotary_forward(const ops::Rotary<T>& op);
template <class T>
void rotary_backward(const ops::Rotary<T>& op);
template <class T>
void attention_forward(const ops::Attention<T>& op);
template <class T>
void attention_backward(const ops::AttentionBackward<T>& op);
template <class T>
void gelu_forward(const ops::Gelu<T>& op);
template <class T>
void gelu_backward(const ops::GeluBackward<T>& op);
template <class T>
void swiglu_forward(const ops::SwiGlu<T>& op);
template <class T>
void swiglu_backward(const ops::SwiGluBackward<T>& op);
template <class T>
void add(const ops::Add<T>& op);
template <class T>
void cross_entropy_forward(const ops::CrossEntropy<T>& op);
template <class T>
void cross_entropy_backward(const ops::CrossEntropyBackward<T>& op);
template <class T>
void adamw(const ops::AdamW<T>& op);

}  // namespace longhaul::reference
