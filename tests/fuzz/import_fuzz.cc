// libFuzzer target: any bytes as a file of measurements, in each format and by content, must end in
// a trace that reads back and can be checked, or in an error that says something; never in a crash,
// a hang or a leak. SimGrid platforms are also asked for routes.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "netsim/import/import.h"
#include "netsim/simgrid_platform.h"
#include "netsim/trace_check.h"

namespace longhaul {
namespace {

// Checking compares all triples of places.
constexpr std::size_t kPlacesChecked = 40;

void check_error(const Error& error) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad file is wrong input");
  LH_CHECK(!error.message.empty() && !error.text().empty(), "an error says something");
}

void check_import(const std::string& text, const ImportOptions& options) {
  const Result<ImportedTrace> imported = import_traces({{"fuzz", text}}, options);
  if (!imported) return check_error(imported.error());
  LH_CHECK(!imported->trace.rows.empty(), "what is imported measures something");
  std::vector<std::string> comments = imported->recognised;
  comments.insert(comments.end(), imported->sources.begin(), imported->sources.end());
  const Result<Trace> again = parse_trace(trace_csv(imported->trace, comments), "again.csv");
  LH_CHECK(again, "what is imported can be read");
  LH_CHECK(again->rows.size() == imported->trace.rows.size(), "and is the same");
  if (again->places.size() > kPlacesChecked) return;
  const TraceCheck check = check_trace(*again);
  LH_CHECK(!trace_check_text(*again, check).empty() && !trace_check_json(*again, check).empty(),
           "a check says something");
}

void check_platform(const std::string& text) {
  const Result<SimGridPlatform> platform = parse_simgrid_platform(text, "fuzz.xml");
  if (!platform) return check_error(platform.error());
  if (platform->hosts.size() > kPlacesChecked) return;
  for (const SimGridHost& from : platform->hosts) {
    for (const SimGridHost& to : platform->hosts) {
      const Result<SimGridRoute> route = platform->route(from.name, to.name);
      LH_CHECK(!route || route->latency.finite(), "a route's latency is a number");
    }
  }
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  if (size == 0) return 0;
  // The first byte chooses a format, or none.
  const auto& formats = import_formats();
  const std::size_t choice = data[0] % (formats.size() + 1);
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ImportOptions options;
  check_import(text, options);
  if (choice < formats.size()) options.format = formats[choice].name;
  options.basis = LatencyBasis::kRoundTrip;
  options.latency_unit = "ms";
  options.streams = 4;
  options.from = {"a"};
  options.to = {"b"};
  options.message = bytes(64e6);
  options.event_type = data[0] % 2 == 0 ? "throughput" : "histogram-rtt";
  options.rename = {"x*=*"};
  check_import(text, options);
  check_platform(text);
  return 0;
}
