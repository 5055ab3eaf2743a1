#include "netsim/device_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "core/config_cursor.h"

namespace longhaul {
namespace {

constexpr int kMaxDevicesOfNode = 1024;

}  // namespace

Result<DeviceKind> load_device_kind(const std::string& path) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(path));
  return read_device_kind(file);
}

Result<DeviceKind> read_device_kind(ConfigFile& file) {
  file.expect_schema("longhaul/device/1");
  const Cursor root = file.root();
  DeviceKind kind;
  kind.name = root.key("kind").text();
  kind.title = root.key("title").text();
  kind.memory = root.key("memory").size(Bytes::infinity());
  kind.reserved = root.key("reserved").size();
  if (kind.reserved >= kind.memory) {
    root.key("reserved").fail("the runtime leaves no memory for a plan");
  }
  const Cursor efficiency = root.key("efficiency");
  const Cursor peak = root.key("peak");
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
    const Cursor rate = peak.optional(name_of(precision));
    if (rate.present()) {
      const Cursor part = efficiency.is_map() ? efficiency.key(name_of(precision)) : efficiency;
      kind.rate[static_cast<std::size_t>(precision)] =
          part.number({.min = 0.01, .max = 1}, 1) * rate.flop_rate(FlopsPerSecond(1));
    }
  }
  const double memory_efficiency = root.key("memory_efficiency").number({.min = 0.01, .max = 1}, 1);
  kind.memory_rate = memory_efficiency * root.key("memory_bandwidth").rate(BytesPerSecond(1));
  kind.overhead = root.key("overhead").duration();
  kind.usd_per_hour = root.optional("price").usd_per_hour();
  kind.failures_per_hour = root.optional("failures_per_hour").number({.min = 0, .max = 1});
  constexpr Origin origins[] = {Origin::kAssumed, Origin::kMeasured};
  kind.origin = origins[root.key("origin").choice({"assumed", "measured"})];
  kind.source = root.key("source").text();
  LH_TRY(file.finish());
  return kind;
}

Result<DeviceCount> parse_device_count(std::string_view text) {
  DeviceCount out{1, std::string(text)};
  const std::size_t x = text.find('x');
  const std::string_view digits = text.substr(0, x == std::string_view::npos ? 0 : x);
  if (!digits.empty() &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    out.count = digits.size() > 6 ? 0 : std::atoi(std::string(digits).c_str());
    out.kind = std::string(text.substr(x + 1));
  }
  if (out.count < 1 || out.count > kMaxDevicesOfNode || out.kind.empty()) {
    return invalid(fmt::format("`{}` is not a number of devices", text),
                   "write 8xv100, or v100 for one");
  }
  return out;
}

}  // namespace longhaul
