// Runs independent pieces of work on a few threads and waits for all of them.
//
// May be called from any thread; calls do not share state. Which thread runs which piece is not
// defined, so a caller that needs one answer for every thread count lets piece i write only to its
// own slot i and merges the slots in order afterwards. Work must not throw.
#pragma once

#include <functional>

namespace longhaul {

/// Calls work(0) .. work(count - 1), each once, on at most `threads` threads, the caller's
/// included. Returns when all calls have returned; what they wrote is visible to the caller.
void parallel_for(int count, int threads, const std::function<void(int)>& work);

}  // namespace longhaul
