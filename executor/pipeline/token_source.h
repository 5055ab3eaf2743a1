// Where a pipeline gets the tokens of a micro-batch from. The first stage needs inputs, the last
// one targets; both ask for them a few micro-batches ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/result.h"

namespace longhaul {

class TokenSource {
 public:
  using Done = std::move_only_function<void(Result<void>)>;

  struct Request {
    std::uint32_t step = 0;
    int pipeline = 0;
    int micro_batch = 0;
    /// To be filled, row-major [sequences][context]; empty where the stage needs none.
    std::span<std::int32_t> inputs;
    std::span<std::int32_t> targets;
  };

  virtual ~TokenSource() = default;
  /// Answers once, on the loop's thread, perhaps before it returns. The spans are valid as long as
  /// `done` exists.
  virtual void fetch(const Request& request, Done done) = 0;
};

}  // namespace longhaul
