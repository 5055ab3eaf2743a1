// Attention as matrix products, one head of one sequence at a time and 64 queries at a time, so
// that scores never take more than 64 x context floats and most of the work above the diagonal is
// skipped. Heads are read and written in place by strides.
//
// Sums over keys (output, query gradient) run in one product; sums over queries (key and value
// gradients) are chains that continue from block to block. Neither depends on other sequences.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/result.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/gemm.h"
#include "kernels/ops.h"
#include "kernels/parallel.h"

namespace longhaul::ops {
namespace {

constexpr ptrdiff_t kQueryBlock = 64;
constexpr ptrdiff_t kGroupMultiplyAdds = 1'000'000;  // that are worth a thread

/// A block of queries [begin, end) of one head. Scores are [end - begin, end]: keys after the last
/// query of the block are never looked at.
struct Block {
  ptrdiff_t begin;
  ptrdiff_t end;

  ptrdiff_t queries() const { return end - begin; }
  ptrdiff_t keys() const { return end; }
};

/// scores -> probabilities; later keys get 0. Writes one log-sum-exp a query.
LH_ALWAYS_INLINE void softmax_body(float* scores, Block block, float scale, float* log_sum_exp) {
  for (ptrdiff_t q = 0; q < block.queries(); ++q) {
    float* row = scores + q * block.keys();
    const ptrdiff_t seen = block.begin + q + 1;
    // The scale is positive, so the largest score is the largest scaled score.
    const float largest = lane_max(row, seen) * scale;
    LH_INDEPENDENT
    for (ptrdiff_t k = 0; k < seen; ++k) row[k] = vector_exp(row[k] * scale - largest);
    const float sum = lane_sum(seen, [row](ptrdiff_t k) LH_INLINE_LAMBDA { return row[k]; });
    const float inverse = 1.0f / sum;
    LH_INDEPENDENT
    for (ptrdiff_t k = 0; k < seen; ++k) row[k] *= inverse;
    std::fill(row + seen, row + block.keys(), 0.0f);
    log_sum_exp[q] = largest + vector_log(sum);
  }
}

/// scores -> probabilities, and probability_gradients -> score gradients (times scale), by
/// ds = p (dp - do o). `do_o` is one number a query.
LH_ALWAYS_INLINE void softmax_backward_body(float* scores, float* gradients, Block block,
                                            float scale, const float* log_sum_exp,
                                            const float* do_o) {
  for (ptrdiff_t q = 0; q < block.queries(); ++q) {
    float* __restrict row = scores + q * block.keys();
    float* __restrict gradient = gradients + q * block.keys();
    const ptrdiff_t seen = block.begin + q + 1;
    for (ptrdiff_t k = 0; k < seen; ++k) {
      const float p = vector_exp(row[k] * scale - log_sum_exp[q]);
      row[k] = p;
      gradient[k] = p * (gradient[k] - do_o[q]) * scale;
    }
    std::fill(row + seen, row + block.keys(), 0.0f);
    std::fill(gradient + seen, gradient + block.keys(), 0.0f);
  }
}

/// do_o[row] = output_gradient[row] . output[row] of one head.
LH_ALWAYS_INLINE void row_products_body(const float* gradient, const float* output,
                                        ptrdiff_t stride, Block block, ptrdiff_t width,
                                        float* do_o) {
  for (ptrdiff_t q = 0; q < block.queries(); ++q) {
    const float* __restrict a = gradient + (block.begin + q) * stride;
    const float* __restrict b = output + (block.begin + q) * stride;
    do_o[q] = lane_sum(width, [a, b](ptrdiff_t d) LH_INLINE_LAMBDA { return a[d] * b[d]; });
  }
}

/// Scratch of a thread: it grows to 64 x context floats twice.
struct Scratch {
  std::vector<float> scores;
  std::vector<float> gradients;
  std::vector<float> do_o;
};
Scratch& scratch_for(ptrdiff_t keys) {
  thread_local Scratch scratch;
  const auto size = static_cast<std::size_t>(kQueryBlock * keys);
  if (scratch.scores.size() < size) {
    scratch.scores.resize(size);
    scratch.gradients.resize(size);
  }
  scratch.do_o.resize(kQueryBlock);
  return scratch;
}

/// Of the queries at positions [first, end).
template <class Body>
void for_each_block(ptrdiff_t first, ptrdiff_t end, Body body) {
  for (ptrdiff_t begin = first; begin < end; begin += kQueryBlock) {
    body(Block{begin, std::min(begin + kQueryBlock, end)});
  }
}

/// Where the numbers of one head of one sequence begin.
struct HeadOffsets {
  ptrdiff_t query, key, value;
  ptrdiff_t output;
  ptrdiff_t statistic;
};

/// Heads that share keys follow one another on one thread: they add to the same gradients.
template <class Body>
void for_each_head(const AttentionShape& s, const Body& body) {
  const ptrdiff_t sharing = s.heads / s.kv_heads;
  // Products of one group: two forward, over half of the context on average.
  const ptrdiff_t work = std::max<ptrdiff_t>(1, sharing * s.context * s.context * s.head_width);
  in_parts(s.sequences * s.kv_heads, 1 + kGroupMultiplyAdds / work,
           [&](ptrdiff_t begin, ptrdiff_t end) {
             for (ptrdiff_t group = begin; group < end; ++group) {
               const ptrdiff_t sequence = group / s.kv_heads;
               const ptrdiff_t first = sequence * s.context * s.qkv_width();
               const ptrdiff_t key = s.heads + group % s.kv_heads;
               for (ptrdiff_t i = 0; i < sharing; ++i) {
                 const ptrdiff_t head = group % s.kv_heads * sharing + i;
                 body(HeadOffsets{.query = first + head * s.head_width,
                                  .key = first + key * s.head_width,
                                  .value = first + (key + s.kv_heads) * s.head_width,
                                  .output = sequence * s.context * s.width() + head * s.head_width,
                                  .statistic = (sequence * s.heads + head) * s.context});
               }
             }
           });
}

void check_sizes(const AttentionShape& s, std::size_t qkv, std::size_t output,
                 std::size_t statistics) {
  const auto rows = static_cast<std::size_t>(s.sequences * s.context);
  const auto width = static_cast<std::size_t>(s.width());
  LH_CHECK(s.kv_heads >= 1 && s.heads % s.kv_heads == 0, "query heads share key heads evenly");
  LH_CHECK(qkv == rows * static_cast<std::size_t>(s.qkv_width()) && output == rows * width &&
               statistics == rows * static_cast<std::size_t>(s.heads),
           "a span fits the operation's shape");
}

float score_scale(const AttentionShape& s) {
  return 1.0f / std::sqrt(static_cast<float>(s.head_width));
}

/// One head's forward: where its rows lie, by position.
struct HeadForward {
  const float* query;
  ptrdiff_t query_stride;
  const float* key;
  const float* value;
  ptrdiff_t key_stride;
  float* output;
  ptrdiff_t output_stride;
};

/// One block of queries. `query` and `output` begin at the block's first query.
void forward_block(const HeadForward& head, const Block& block, const AttentionShape& s,
                   float* scores, float* log_sum_exp) {
  gemm({.rows = block.queries(),
        .columns = block.keys(),
        .depth = s.head_width,
        .a = {head.query, head.query_stride, 1},
        .b = MatrixView{head.key, head.key_stride, 1}.transposed(),
        .c = scores,
        .c_row_stride = block.keys(),
        .bf16 = s.bf16});
  run_on_active_isa<softmax_body>(scores, block, score_scale(s), log_sum_exp);
  gemm({.rows = block.queries(),
        .columns = s.head_width,
        .depth = block.keys(),
        .a = {scores, block.keys(), 1},
        .b = {head.value, head.key_stride, 1},
        .c = head.output,
        .c_row_stride = head.output_stride,
        .bf16 = s.bf16});
}

}  // namespace

void attention_forward(const Attention<>& op) {
  const auto& s = op.shape;
  check_sizes(s, op.qkv.size(), op.output.size(), op.log_sum_exp.size());
  const ptrdiff_t stride = s.qkv_width();
  for_each_head(s, [&](const HeadOffsets& at) {
    Scratch& scratch = scratch_for(s.context);
    for_each_block(0, s.context, [&](const Block& block) {
      forward_block({.query = op.qkv.data() + at.query + block.begin * stride,
                     .query_stride = stride,
                     .key = op.qkv.data() + at.key,
                     .value = op.qkv.data() + at.value,
                     .key_stride = stride,
                     .output = op.output.data() + at.output + block.begin * s.width(),
                     .output_stride = s.width()},
                    block, s, scratch.scores.data(),
                    op.log_sum_exp.data() + at.statistic + block.begin);
    });
  });
}

void attention_forward(const CachedAttention& op) {
  const auto& s = op.shape;
  const ptrdiff_t end = op.first_position + s.context;
  const ptrdiff_t cache_stride = s.qkv_width() - s.width();
  LH_CHECK(s.sequences == 1, "a cache is of one sequence");
  check_sizes(s, op.qkv.size(), op.output.size(), static_cast<std::size_t>(s.context * s.heads));
  LH_CHECK(static_cast<ptrdiff_t>(op.cache.size()) == end * cache_stride,
           "the cache has every position");
  for_each_head(s, [&](const HeadOffsets& at) {
    Scratch& scratch = scratch_for(end);
    float unused[kQueryBlock];
    for_each_block(op.first_position, end, [&](const Block& block) {
      const ptrdiff_t row = block.begin - op.first_position;
      forward_block({.query = op.qkv.data() + at.query + row * s.qkv_width(),
                     .query_stride = s.qkv_width(),
                     .key = op.cache.data() + at.key - s.width(),
                     .value = op.cache.data() + at.value - s.width(),
                     .key_stride = cache_stride,
                     .output = op.output.data() + at.output + row * s.width(),
                     .output_stride = s.width()},
                    block, s, scratch.scores.data(), unused);
    });
  });
}

void attention_backward(const AttentionBackward<>& op) {
  const auto& s = op.shape;
  check_sizes(s, op.qkv.size(), op.output.size(), op.log_sum_exp.size());
  check_sizes(s, op.qkv_gradient.size(), op.output_gradient.size(), op.log_sum_exp.size());
  const ptrdiff_t stride = s.qkv_width();
  std::fill(op.qkv_gradient.begin(), op.qkv_gradient.end(), 0.0f);
  for_each_head(s, [&](const HeadOffsets& at) {
    Scratch& scratch = scratch_for(s.context);
    float* const scores = scratch.scores.data();
    float* const gradients = scratch.gradients.data();
    float* const do_o = scratch.do_o.data();
    const float* q = op.qkv.data() + at.query;
    const float* k = op.qkv.data() + at.key;
    const float* v = op.qkv.data() + at.value;
    const float* output = op.output.data() + at.output;
    const float* output_gradient = op.output_gradient.data() + at.output;
    float* dq = op.qkv_gradient.data() + at.query;
    float* dk = op.qkv_gradient.data() + at.key;
    float* dv = op.qkv_gradient.data() + at.value;
    for_each_block(0, s.context, [&](const Block& block) {
      const ptrdiff_t first = block.begin;
      const MatrixView q_block = {q + first * stride, stride, 1};
      const MatrixView do_block = {output_gradient + first * s.width(), s.width(), 1};
      Gemm product = {.rows = block.queries(),
                      .columns = block.keys(),
                      .depth = s.head_width,
                      .a = q_block,
                      .b = MatrixView{k, stride, 1}.transposed(),
                      .c = scores,
                      .c_row_stride = block.keys(),
                      .bf16 = s.bf16};
      gemm(product);
      product.a = do_block;
      product.b = MatrixView{v, stride, 1}.transposed();
      product.c = gradients;
      gemm(product);
      run_on_active_isa<row_products_body>(output_gradient, output, s.width(), block, s.head_width,
                                           do_o);
      run_on_active_isa<softmax_backward_body>(scores, gradients, block, score_scale(s),
                                               op.log_sum_exp.data() + at.statistic + block.begin,
                                               static_cast<const float*>(do_o));
      gemm({.rows = block.queries(),
            .columns = s.head_width,
            .depth = block.keys(),
            .a = {gradients, block.keys(), 1},
            .b = {k, stride, 1},
            .c = dq + first * stride,
            .c_row_stride = stride,
            .bf16 = s.bf16});
      product = {.rows = block.keys(),
                 .columns = s.head_width,
                 .depth = block.queries(),
                 .a = MatrixView{gradients, block.keys(), 1}.transposed(),
                 .b = q_block,
                 .c = dk,
                 .c_row_stride = stride,
                 .start = GemmStart::kAccumulate,
                 .bf16 = s.bf16};
      gemm(product);
      product.a = MatrixView{scores, block.keys(), 1}.transposed();
      product.b = do_block;
      product.c = dv;
      gemm(product);
    });
  });
}

}  // namespace longhaul::ops
