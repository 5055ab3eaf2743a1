// Device files (configs/devices/*.yaml): what one kind of accelerator can do. Format:
// docs/formats.md.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "core/topology.h"

namespace longhaul {

class ConfigFile;

/// Reads a device file. All errors of the file are reported at once (kInvalid).
Result<DeviceKind> load_device_kind(const std::string& path);
/// The same of a file that is open, for callers that need its text as well.
Result<DeviceKind> read_device_kind(ConfigFile& file);

/// `8xv100` or `v100` (one).
struct DeviceCount {
  int count = 0;
  std::string kind;
};
Result<DeviceCount> parse_device_count(std::string_view text);

}  // namespace longhaul
