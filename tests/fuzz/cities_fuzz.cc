// libFuzzer target: any bytes, read as a list of sites for `cluster build` and as a table of
// cities, must end in something that keeps its promises or in an error that says something; never
// in a crash, a hang or a leak. A list that was read is also built and read back as a trace.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "netsim/cluster_build.h"

namespace longhaul {
namespace {

// A table of its own: the shipped one would make every misspelt name slow.
constexpr std::string_view kTable =
    "provider,name,city,country,zone,latitude,longitude,population_k,aliases\n"
    ",tokyo,Tokyo,JP,ea,35.69,139.69,9700,edo\n"
    ",london,London,GB,eu,51.51,-0.13,8961,\n"
    ",london,London,CA,na,42.98,-81.23,422,\n"
    "aws,us-west-2,Boardman,US,na,45.84,-119.70,,oregon\n";

void check_error(const Error& error) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "bad input is wrong input");
  LH_CHECK(!error.message.empty() && !error.text().empty(), "an error says something");
}

void check_table(std::string_view text) {
  const Result<CityTable> table = CityTable::parse(text, "fuzz.csv");
  if (!table) {
    check_error(table.error());
    LH_CHECK(table.error().place.line >= 1, "every error of a table has a line");
    return;
  }
  for (const Place& place : table->places()) {
    LH_CHECK(is_on_globe(place.end.at), "places are on the globe");
    LH_CHECK(table->find(place.full_name()).has_value(), "a full name finds its place");
  }
}

void check_sites(std::string_view text, const CityTable& cities) {
  Result<std::vector<BuiltSite>> sites = parse_sites(text, cities);
  if (!sites) return check_error(sites.error());
  if (sites->size() > 16) return;  // links grow with the square
  const BuiltCluster built = build_cluster(std::move(*sites), {}, {});
  LH_CHECK(built.links.size() == built.sites.size() * (built.sites.size() - 1),
           "every ordered pair has a link");
  for (const BuiltLink& link : built.links) {
    LH_CHECK(link.round_trip.value.value() > 0 && link.round_trip.value.finite(), "and takes time");
    LH_CHECK(link.rate.value.value() > 0 && link.rate.value.finite(), "and has a rate");
  }
  LH_CHECK(built.links.empty() || parse_trace(built.trace_text, "fuzz.csv").has_value(),
           "what is written reads back");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  static const CityTable cities = CityTable::parse(kTable, "table.csv").value();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_table(text);
  check_sites(text, cities);
  return 0;
}
