// libFuzzer target: any bytes, read as a trace, must end in a trace that keeps its promises or in
// an error with a place; never in a crash, a hang or a leak. A trace that was read is also
// summarised and printed.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "netsim/trace.h"

namespace longhaul {
namespace {

// The table is places x places: a few show all there is to see.
constexpr std::size_t kPlacesPrinted = 12;

void check_error(const Error& error, std::string_view text) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad trace is wrong input");
  LH_CHECK(!error.message.empty() && !error.text().empty(), "an error says something");
  LH_CHECK(text.empty() || error.place.line >= 1, "every error of a text has a line");
  LH_CHECK(static_cast<std::size_t>(error.place.line) <= text.size() + 1, "the line exists");
  LH_CHECK(error.place.column >= 1, "every error has a column");
}

void check_row(const TraceRow& row, int places) {
  LH_CHECK(row.from >= 0 && row.from < places && row.to >= 0 && row.to < places,
           "a row is about places of the trace");
  LH_CHECK(row.latency || row.rate, "a row measures something");
  LH_CHECK(!row.latency || (row.latency->value() >= 0 && row.latency->value() <= 60),
           "latencies are within their limits");
  LH_CHECK(!row.rate || (row.rate->value() > 0 && row.rate->finite()), "rates are positive");
  LH_CHECK(!row.loss || (*row.loss >= 0 && *row.loss < 1), "loss is a probability");
  LH_CHECK(!row.jitter || row.jitter->value() >= 0, "jitter is no less than none");
  LH_CHECK(row.streams >= 1 && row.line >= 1, "the rest is sane");
}

void check_summaries(const Trace& trace, double percentile) {
  const auto summaries = summarise(trace, percentile);
  LH_CHECK(summaries.size() == trace.places.size() * trace.places.size(), "every pair has one");
  std::size_t rows = 0;
  for (const PairSummary& pair : summaries) {
    rows += pair.rows;
    LH_CHECK((pair.rows > 0) == (pair.latency || pair.rate), "rows make a summary");
    LH_CHECK(!pair.latency || std::isfinite(pair.latency->value()), "latencies are finite");
    LH_CHECK(!pair.rate || (pair.rate->value() > 0 && pair.rate->finite()), "rates are positive");
  }
  LH_CHECK(rows == trace.rows.size(), "every row is about one pair");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Trace> trace = parse_trace(text, "fuzz.csv");
  if (!trace) {
    check_error(trace.error(), text);
    return 0;
  }
  LH_CHECK(!trace->rows.empty(), "a trace measures something");
  for (const TraceRow& row : trace->rows) check_row(row, static_cast<int>(trace->places.size()));
  for (const double percentile : {0.0, 50.0, 97.5, 100.0}) check_summaries(*trace, percentile);
  const Result<Trace> again = parse_trace(trace_csv(*trace, {"fuzz"}), "again.csv");
  LH_CHECK(again && again->places == trace->places && again->rows.size() == trace->rows.size(),
           "what is written can be read");
  if (trace->places.size() <= kPlacesPrinted) {
    LH_CHECK(!trace_table(*trace, 50).empty(), "a trace can be printed");
  }
  return 0;
}
