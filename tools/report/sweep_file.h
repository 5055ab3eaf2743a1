// Tables of what-ifs as files: what `simulate --sweep ... --json` prints.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "tools/what_if.h"

namespace longhaul {

/// {"version":1,"axis","unit","log","rows":[{"change","x","step_s","tokens_per_s",
/// "usd_per_billion_tokens","binding","replanned"} or {"change","problem"}]}; x and the price may
/// be null or missing. Errors (kInvalid) name the file, the row and the field.
Result<WhatIfTable> parse_sweep(std::string_view text, const std::string& name);

}  // namespace longhaul
