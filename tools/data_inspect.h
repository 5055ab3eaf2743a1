// What `longhaul data show` and `data check` say of a folder that `data prepare` wrote, of a folder
// of token files of others, or of one such file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "executor/data/dataset.h"
#include "executor/data/tokenizer.h"
#include "executor/storage/storage.h"

namespace longhaul {

struct InspectOptions {
  std::string path;
  const Tokenizer* tokenizer = nullptr;  // to decode with; a prepared folder has its own
  std::int64_t vocabulary = 0;           // of token files of others; 0: not known
};

/// The table of a dataset, as `prepare` prints it.
std::string dataset_table(const Dataset& dataset);

/// Reads headers and the first tokens only.
Result<std::string> show_data(Storage& storage, const InspectOptions& options);

struct DataCheck {
  std::int64_t files = 0;
  std::int64_t tokens = 0;
  std::int64_t largest = -1;  // id
  std::vector<Error> problems = {};
};
/// Reads everything. Errors: there is nothing to be checked.
Result<DataCheck> check_data(Storage& storage, const InspectOptions& options);

}  // namespace longhaul
