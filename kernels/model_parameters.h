// The tensors of a model by family: names, shapes and where each lies in a stage's storage. The
// only such list in the project.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/job.h"

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

/// Offsets and sizes of storage are rounded up to this many floats, 64 bytes.
std::size_t round_up_to_line(std::size_t floats);

}  // namespace longhaul
