// The folder of a run, RUNS/NAME: chosen first, made only when the run can start, and held by one
// launch at a time. The hold ends with the process, however it ends.
//
// run.json is what makes a folder a run's: {"schema":"longhaul/run-folder/1","id":N,"job","data",
// "tokenizer"}. `id` stays the same however often the run is resumed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"
#include "executor/data/dataset.h"
#include "executor/storage/storage.h"

namespace longhaul {

class RunFolder {
 public:
  /// Of a new run, which is not there yet: RUNS/NAME, or without a name the first RUNS/JOB-N that
  /// is free. Makes nothing.
  static Result<RunFolder> choose(Storage& storage, const std::string& runs,
                                  const std::string& name, const std::string& job);
  /// Of a run to resume.
  static Result<RunFolder> open(Storage& storage, const std::string& path);
  RunFolder() = default;
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&& other) noexcept;

  const std::string& path() const { return path_; }
  std::uint64_t id() const { return id_; }

  /// Makes the folder where there is none, holds it, and writes run.json.
  Result<void> make(Storage& storage, const std::string& job, const std::string& data,
                    const std::string& tokenizer);

 private:
  Result<void> hold();

  std::string path_;
  std::uint64_t id_ = 0;
  int held_ = -1;  // a descriptor, locked
};

/// The data folder that run.json names; none where `path` has no run.json. kInvalid: one that
/// cannot be read.
Result<std::optional<std::string>> data_of_run(Storage& storage, const std::string& path);

}  // namespace longhaul
