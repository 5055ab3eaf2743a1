#include "netsim/shipped.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace longhaul {

namespace fs = std::filesystem;

std::string shipped_configs() {
  const char* override_path = std::getenv("LONGHAUL_CONFIGS");
  return override_path != nullptr ? override_path : LONGHAUL_CONFIGS_DIR;
}

std::vector<std::string> shipped_device_kinds() {
  std::vector<std::string> kinds;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(shipped_configs() + "/devices", error)) {
    if (entry.path().extension() == ".yaml") kinds.push_back(entry.path().stem().string());
  }
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

Result<Trace> load_shipped_trace(const ShippedTrace& trace) {
  const fs::path beside = fs::path(shipped_configs()) / ".." / "traces" / trace.file;
  return load_trace(beside.lexically_normal().string());
}

}  // namespace longhaul
