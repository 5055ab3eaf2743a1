// The join file of a run: what an agent must have to be let in. `launch` writes it with mode 0600;
// who can read it can join.
//
//   {"schema":"longhaul/join-file/1","token":"...","fingerprint":"sha256:..."}
//
// `fingerprint` is that of the run's certificate authority; without it the run has no TLS.
#pragma once

#include <string>

#include "core/result.h"

namespace longhaul {

struct JoinFile {
  std::string token;
  std::string fingerprint;
};

/// Fails when the file exists.
Result<void> write_join_file(const std::string& path, const JoinFile& join);
Result<JoinFile> read_join_file(const std::string& path);

}  // namespace longhaul
