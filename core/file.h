// Writing the files that commands leave behind.
#pragma once

#include <string>

#include "core/result.h"

namespace longhaul {

/// Writes `text` to `path` through a temporary file in the same folder, so that a full disk or an
/// interrupt never leaves half a file under the name. Creates the folder when it is missing.
Result<void> write_file(const std::string& path, const std::string& text);

/// Whether write_file(path) could work now: long work asks before it starts. Leaves nothing but the
/// folder behind.
Result<void> check_writable(const std::string& path);

}  // namespace longhaul
