#include "kernels/gemm.h"

#include <bit>
#include <thread>
#include <utility>

#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

using fixtures::random_values;
using fixtures::same_bits;
using fixtures::with_each_isa;
using std::ptrdiff_t;

struct Size {
  ptrdiff_t rows, columns, depth;
};

struct Layout {
  bool transposed_a, transposed_b;
};

float fused_step(float a, float b, float sum) {
  return std::fma(a, b, sum);
}

/// Nearest number of 8 digits.
float nearest_bf16(float x) {
  if (!(std::fabs(x) >= 0x1p-126f)) return x == x ? std::copysign(0.0f, x) : x;
  int exponent = 0;
  const double digits = std::frexp(double{x}, &exponent);  // in [0.5, 1)
  return static_cast<float>(std::ldexp(std::nearbyint(digits * 256), exponent - 8));
}

/// The same step of a bf16 product. Rounding to 24 digits happens before what is small is flushed.
float bf16_step(float a, float b, float sum) {
  if (std::fabs(sum) < 0x1p-126f) sum = std::copysign(0.0f, sum);
  const float x = nearest_bf16(a);
  const float y = nearest_bf16(b);
  const float result = std::fma(x, y, sum);
  if (std::fabs(result) > 0x1p-126f || result != result) return result;
  // Far below the limits of double, 2^100 times as much has the digits that fp32 loses there.
  const double more = std::fma(double{x} * 0x1p100, double{y}, double{sum} * 0x1p100);
  const auto rounded = static_cast<float>(more);
  return std::fabs(rounded) < 0x1p-26f ? std::copysign(0.0f, result) : result;
}

/// Operands of a product; C is wider than its columns so that strays are seen.
struct Problem {
  Problem(Size s, Layout layout)
      : size(s),
        a(random_values("a", static_cast<std::size_t>(s.rows * s.depth))),
        b(random_values("b", static_cast<std::size_t>(s.depth * s.columns))),
        c(random_values("c", static_cast<std::size_t>(s.rows * (s.columns + 3)))),
        row(random_values("row", static_cast<std::size_t>(s.columns))) {
    product = {.rows = s.rows,
               .columns = s.columns,
               .depth = s.depth,
               .a = layout.transposed_a ? MatrixView{a.data(), 1, s.rows}
                                        : MatrixView{a.data(), s.depth, 1},
               .b = layout.transposed_b ? MatrixView{b.data(), 1, s.depth}
                                        : MatrixView{b.data(), s.columns, 1},
               .c_row_stride = s.columns + 3,
               .start_row = row.data()};
  }

  std::vector<float> run(GemmStart start, bool bf16 = false) const {
    std::vector<float> result = c;
    Gemm p = product;
    p.c = result.data();
    p.start = start;
    p.bf16 = bf16;
    gemm(p);
    return result;
  }

  /// The contract of kernels/gemm.h, word by word.
  template <class Step = decltype(fused_step)>
  std::vector<float> by_contract(GemmStart start, Step step = fused_step) const {
    std::vector<float> result = c;
    for (ptrdiff_t i = 0; i < size.rows; ++i) {
      for (ptrdiff_t j = 0; j < size.columns; ++j) {
        float& to = result[static_cast<std::size_t>(i * product.c_row_stride + j)];
        float sum = start == GemmStart::kZero  ? 0.0f
                    : start == GemmStart::kRow ? row[static_cast<std::size_t>(j)]
                                               : to;
        for (ptrdiff_t k = 0; k < size.depth; ++k) {
          sum = step(product.a.data[i * product.a.row_stride + k * product.a.column_stride],
                     product.b.data[k * product.b.row_stride + j * product.b.column_stride], sum);
        }
        to = sum;
      }
    }
    return result;
  }

  Size size;
  std::vector<float> a, b, c, row;
  Gemm product;
};

// Sizes on both sides of every boundary: tiles of 14 x 32, 6 x 16 and 2 x 16, their half vectors,
// the 4 x 4 transposes, and the blocks of 224 rows, 1536 columns and 384 of depth.
TEST(Gemm, equals_the_chain_of_fused_multiply_adds_on_every_instruction_set) {
  const Size sizes[] = {{1, 1, 1},    {1, 1, 0},    {2, 3, 4},     {3, 15, 5},    {6, 16, 7},
                        {7, 17, 8},   {13, 31, 3},  {14, 32, 384}, {15, 33, 385}, {28, 8, 1},
                        {29, 9, 2},   {225, 5, 3},  {224, 47, 2},  {3, 1537, 2},  {4, 48, 769},
                        {5, 24, 400}, {17, 65, 11}, {64, 64, 64}};
  for (const Size size : sizes) {
    for (const Layout layout : {Layout{false, false}, Layout{true, false}, Layout{false, true}}) {
      const Problem problem(size, layout);
      for (const GemmStart start : {GemmStart::kZero, GemmStart::kRow, GemmStart::kAccumulate}) {
        const std::vector<float> expected = problem.by_contract(start);
        with_each_isa([&](Isa) {
          EXPECT_TRUE(same_bits(problem.run(start), expected))
              << size.rows << " x " << size.columns << " x " << size.depth << ", start "
              << static_cast<int>(start) << ", transposed " << layout.transposed_a
              << layout.transposed_b;
        });
      }
    }
  }
}

TEST(Gemm, bf16_equals_the_chain_of_rounded_operands_on_every_instruction_set) {
  const Size sizes[] = {{1, 1, 1},     {1, 1, 0},    {2, 3, 4},   {3, 15, 5},    {6, 16, 7},
                        {7, 17, 8},    {13, 31, 3},  {28, 8, 1},  {14, 32, 768}, {15, 33, 769},
                        {16, 17, 31},  {17, 33, 32}, {29, 9, 33}, {3, 1537, 2},  {225, 5, 3},
                        {4, 48, 1537}, {64, 64, 64}};
  for (const Size size : sizes) {
    for (const Layout layout : {Layout{false, false}, Layout{true, false}, Layout{false, true}}) {
      const Problem problem(size, layout);
      for (const GemmStart start : {GemmStart::kZero, GemmStart::kRow, GemmStart::kAccumulate}) {
        const std::vector<float> expected = problem.by_contract(start, bf16_step);
        with_each_isa([&](Isa) {
          EXPECT_TRUE(same_bits(problem.run(start, true), expected))
              << size.rows << " x " << size.columns << " x " << size.depth << ", start "
              << static_cast<int>(start) << ", transposed " << layout.transposed_a
              << layout.transposed_b;
        });
      }
    }
  }
}

/// Numbers with the exponents of [low, low + 64); an eighth of them 0 or -0.
void fill_with_exponents(std::vector<float>& values, std::string_view name, int low) {
  Rng rng(name, static_cast<std::uint64_t>(low));
  for (float& value : values) {
    const auto digits = static_cast<std::uint32_t>(rng.next());
    const auto exponent =
        static_cast<std::uint32_t>(low) + static_cast<std::uint32_t>(rng.next() % 64);
    value = std::bit_cast<float>((digits & 0x807fffffu) | exponent << 23);
    if (rng.next() % 8 == 0) value = std::copysign(0.0f, value);
  }
}

// Exponents near the smallest: products of 2^-31 and below with 2^-95, sums that are denormal,
// cancel or round up to 2^-126; denormal operands and starts.
TEST(Gemm, bf16_flushes_what_is_smaller_than_normal_on_every_instruction_set) {
  Problem problem({40, 50, 33}, {false, false});
  for (const int low_a : {0, 30, 60, 96}) {
    fill_with_exponents(problem.a, "a", low_a);
    fill_with_exponents(problem.b, "b", 96 - low_a / 2);
    fill_with_exponents(problem.c, "c", 0);
    for (float& value : problem.c) value *= 0x1p-62f;
    for (const GemmStart start : {GemmStart::kZero, GemmStart::kAccumulate}) {
      const std::vector<float> expected = problem.by_contract(start, bf16_step);
      with_each_isa([&](Isa) {
        EXPECT_TRUE(same_bits(problem.run(start, true), expected)) << "exponents from " << low_a;
      });
    }
  }
}

// A sum just below 2^-126: 2^-126 less 2^-150 flushes, 2^-126 less 2^-151 rounds up to 2^-126. The
// start is 2^-126 (1 + 2^-23) or so, the product takes the rest away.
TEST(Gemm, bf16_tells_what_rounds_up_to_normal_from_what_is_flushed) {
  with_each_isa([&](Isa) {
    for (const auto& [product, sum] : {std::pair{-0x1p-150, 0.0f}, std::pair{-0x1p-151, 0x1p-126f},
                                       std::pair{-0x1.8p-151, 0.0f}, std::pair{0.0, 0x1p-126f}}) {
      const auto a = static_cast<float>(product * 0x1p75);
      const float b = 0x1p-75f;
      float c = 0x1p-126f;
      gemm({.rows = 1,
            .columns = 1,
            .depth = 1,
            .a = {&a, 1, 1},
            .b = {&b, 1, 1},
            .c = &c,
            .c_row_stride = 1,
            .start = GemmStart::kAccumulate,
            .bf16 = true});
      EXPECT_EQ(c, sum) << product;
    }
  });
}

// A weight gradient over 5 and 4 rows is the one over 9, though words hold two rows.
TEST(Gemm, bf16_chains_continue_across_products_of_odd_depth) {
  const Problem whole({20, 40, 9}, {true, false});
  const std::vector<float> expected = whole.run(GemmStart::kAccumulate, true);
  with_each_isa([&](Isa) {
    std::vector<float> c = whole.c;
    Gemm part = whole.product;
    part.c = c.data();
    part.start = GemmStart::kAccumulate;
    part.bf16 = true;
    part.depth = 5;
    gemm(part);
    part.a.data += 5 * part.a.column_stride;
    part.b.data += 5 * part.b.row_stride;
    part.depth = 4;
    gemm(part);
    EXPECT_TRUE(same_bits(c, expected));
  });
}

TEST(Gemm, bf16_leaves_the_thread_as_it_was) {
  const Problem problem({2, 2, 2}, {false, false});
  with_each_isa([&](Isa) {
    problem.run(GemmStart::kZero, true);
    volatile float smallest = 0x1p-126f;
    EXPECT_EQ(smallest * 0.5f, 0x1p-127f) << "fp32 code after it still has small numbers";
  });
}

// Strides of neither operand need be 1: a head's queries inside a wider matrix, every other column.
TEST(Gemm, any_strides_will_do) {
  const std::vector<float> a = random_values("a", 40 * 60);
  const std::vector<float> b = random_values("b", 60 * 80);
  const Gemm strided = {.rows = 20,
                        .columns = 40,
                        .depth = 30,
                        .a = {a.data(), 120, 2},
                        .b = {b.data(), 160, 2},
                        .c_row_stride = 40};
  with_each_isa([&](Isa) {
    std::vector<float> c(20 * 40);
    Gemm p = strided;
    p.c = c.data();
    gemm(p);
    for (std::size_t i = 0; i < 20; ++i) {
      for (std::size_t j = 0; j < 40; ++j) {
        float sum = 0;
        for (std::size_t k = 0; k < 30; ++k) {
          sum = std::fma(a[i * 120 + k * 2], b[k * 160 + j * 2], sum);
        }
        ASSERT_EQ(c[i * 40 + j], sum);
      }
    }
  });
}

TEST(Gemm, a_row_does_not_depend_on_the_rows_beside_it) {
  const Problem all({100, 70, 500}, {false, false});
  const std::vector<float> expected = all.run(GemmStart::kZero);
  for (const ptrdiff_t rows : {1, 5, 14, 15, 99}) {
    Problem few = all;
    std::vector<float> c = all.c;
    Gemm p = all.product;
    p.rows = rows;
    p.a.data = all.a.data() + 1 * 500;  // rows [1, 1 + rows)
    p.c = c.data();
    gemm(p);
    for (ptrdiff_t i = 0; i < rows; ++i) {
      for (ptrdiff_t j = 0; j < 70; ++j) {
        ASSERT_EQ(c[static_cast<std::size_t>(i * 73 + j)],
                  expected[static_cast<std::size_t>((i + 1) * 73 + j)]);
      }
    }
  }
}

// A weight gradient over micro-batches: the depth cut at any place, the second product continuing.
TEST(Gemm, accumulating_over_pieces_of_the_depth_continues_the_chain) {
  const Problem whole({30, 50, 800}, {true, false});
  const std::vector<float> expected = whole.run(GemmStart::kZero);
  for (const ptrdiff_t cut : {1, 383, 384, 400, 799}) {
    std::vector<float> c = whole.c;
    Gemm p = whole.product;
    p.c = c.data();
    p.depth = cut;
    gemm(p);
    p.a.data += cut * p.a.column_stride;
    p.b.data += cut * p.b.row_stride;
    p.depth = 800 - cut;
    p.start = GemmStart::kAccumulate;
    gemm(p);
    EXPECT_TRUE(same_bits(c, expected)) << "cut at " << cut;
  }
}

TEST(Gemm, threads_at_once_give_the_bits_of_one) {
  const Problem problem({65, 130, 400}, {false, true});
  const std::vector<float> expected = problem.run(GemmStart::kRow);
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = problem.run(GemmStart::kRow); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_TRUE(same_bits(result, expected));
}

}  // namespace
}  // namespace longhaul
