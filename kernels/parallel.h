// Threads inside an operation. An operation that is worth it is cut into parts of rows, columns or
// elements, none of which shares a sum with another: no result depends on how many threads there
// are.
//
// The threads belong to the process. A call from inside a part, or while another thread's operation
// has them, runs on its own thread: correct, and as fast as before.
#pragma once

#include <algorithm>
#include <cstddef>

namespace longhaul {

/// How many threads an operation may use, its caller's included. 1 unless set.
int operation_threads();
/// 1 to 1024; while no operation runs.
void set_operation_threads(int threads);

namespace parallel_detail {
using Part = void (*)(const void* body, std::ptrdiff_t begin, std::ptrdiff_t end);
void run(std::ptrdiff_t count, std::ptrdiff_t grain, Part part, const void* body);
}  // namespace parallel_detail

/// Calls body(begin, end) for parts that together are [0, count), and returns when all are done.
/// Each part begins at a multiple of `grain`, the least that is worth a thread.
template <class Body>
void in_parts(std::ptrdiff_t count, std::ptrdiff_t grain, const Body& body) {
  if (count <= grain || operation_threads() == 1) return body(0, count);
  parallel_detail::run(
      count, grain,
      [](const void* erased, std::ptrdiff_t begin, std::ptrdiff_t end) {
        (*static_cast<const Body*>(erased))(begin, end);
      },
      &body);
}

/// Elements of element-wise work that take longer than waking a thread.
inline constexpr std::ptrdiff_t kElementGrain = 1 << 15;
/// The same in rows.
inline std::ptrdiff_t row_grain(std::ptrdiff_t width) {
  return std::max<std::ptrdiff_t>(1, kElementGrain / std::max<std::ptrdiff_t>(1, width));
}

}  // namespace longhaul
