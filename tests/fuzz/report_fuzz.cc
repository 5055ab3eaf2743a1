// libFuzzer target: any bytes, read as each of the files behind a report, must end in a value that
// can be drawn as well-formed SVG, or in an error that says something short.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "tests/tools/report_fixtures.h"
#include "tools/report/page.h"
#include "tools/report/run_data.h"
#include "tools/report/sweep_file.h"

namespace longhaul {
namespace {

void check_error(const Error& error) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad file is wrong input");
  LH_CHECK(!error.message.empty() && error.message.size() < 1000, "an error says something short");
}

void check_picture(const Picture& picture) {
  LH_CHECK(fixtures::xml_problem(picture.svg).empty(), "a picture is well-formed");
}

void check(std::string_view text) {
  static const fixtures::SmallStep small;
  if (const auto table = parse_sweep(text, "sweep")) {
    check_picture(sweep_picture(*table, "sweep0"));
  } else {
    check_error(table.error());
  }
  RunTexts texts;
  texts.result =
      R"({"schema":"longhaul/result/1","steps":3,"parameters":10,"loss_first":5,"loss_last":4,
"validation_loss":null,"bigram_loss":2.5,"tokens_per_s":100,"step_predicted_s":1,
"step_measured_s":1.1,"late_fraction":null,"links":[]})";
  // The same bytes as metrics and as a timeline: one of them is wrong, so each is tried alone.
  texts.metrics = text;
  if (const auto run = parse_run(texts, "run", small.topology, small.plan)) {
    for (const SeriesChart& chart : run_charts(*run)) check_picture(series_picture(chart));
    check_picture(stages_picture({small.topology, small.job, small.plan}, small.step, &*run));
  } else {
    check_error(run.error());
  }
  const auto slices = parse_timeline(text, "timeline", "measured", small.topology, small.plan);
  if (slices) {
    check_picture(gantt_picture({small.topology, small.job, small.plan}, small.step, *slices));
  } else {
    check_error(slices.error());
  }
  LH_CHECK(
      fixtures::xml_problem("<a b=\"" + escaped(text) + "\">" + escaped(text) + "</a>").empty(),
      "any text can be escaped");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  longhaul::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
