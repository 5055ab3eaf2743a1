// Models of llm.c (karpathy/llm.c), read and written: GPT-2 with a tied head, an MLP four times as
// wide and a norm epsilon of 1e-5, which are not in the file. Calls block; not thread-safe.
//
// Format, byte by byte, all little-endian:
//      0  1024  256 x int32: magic 20240326; version, 3 (float32) or 5 (bfloat16); context T,
//               vocabulary V, layers L, heads, width C, padded vocabulary P >= V; then zeros
//   1024        elements, without gaps: wte [P, C], wpe [T, C], then of all layers ln_1.weight
//               [L, C], ln_1.bias [L, C], c_attn.weight [L, 3C, C], c_attn.bias [L, 3C],
//               attn.c_proj.weight [L, C, C], its bias [L, C], ln_2.weight and bias, c_fc.weight
//               [L, 4C, C], its bias [L, 4C], mlp.c_proj.weight [L, C, 4C], its bias [L, C];
//               ln_f.weight [C], ln_f.bias [C]
// Matrices are [out, in], those of our GPT-2 [in, out]: they are transposed. Rows of wte beyond V
// are left out when read and zero when written (P: the next multiple of 128, as llm.c has it).
#pragma once

#include <string>

#include "core/result.h"
#include "executor/checkpoint/model_source.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// Errors (kInvalid) name the offset: another magic or version, sizes that cannot be, a file that
/// is not as long as its header says.
Result<ModelSource> open_llmc(Storage& storage, const std::string& path);

/// `dtype`: "float32" or "bfloat16". Error (kInvalid): a model that the format cannot say, or a
/// file that is at `path` already.
Result<void> write_llmc(Storage& storage, const ModelSource& source, const std::string& path,
                        const std::string& dtype);

}  // namespace longhaul
