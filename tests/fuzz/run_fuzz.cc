// libFuzzer target: any bytes, read as the description of a run and as the questions that ranks ask
// one another, must end in a value that comes back the same when it is written and read again, or
// in an error that says something short. What is accepted can be worked with.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "executor/run/file_transfer.h"
#include "executor/run/run_data.h"
#include "executor/run/run_spec.h"
#include "executor/run/stage_boundaries.h"
#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

void check_spec(std::string_view text) {
  const auto spec = parse_run_spec(text);
  if (!spec) {
    LH_CHECK(spec.error().code == ErrorCode::kInvalid, "a bad description is wrong input");
    LH_CHECK(!spec.error().message.empty() && spec.error().message.size() < 1000,
             "an error says something short");
    return;
  }
  const std::string written = run_spec_text(*spec);
  const auto again = parse_run_spec(written);
  LH_CHECK(again, "what is written can be read");
  LH_CHECK(run_spec_text(*again) == written, "and says the same");
  // What is accepted can be carried out; large grids would only take the fuzzer's time.
  if (spec->job.model.layers > 64 || spec->cells() > 64 || spec->job.global_batch > 256 ||
      validation_sequences(*spec) > 256) {
    return;
  }
  LH_CHECK(build_graph(make_schedule(spec->plan, spec->job)), "no stage waits for ever");
  for (int pipeline = 0; pipeline < spec->plan.pipelines(); ++pipeline) {
    for (const BoundaryHistory& boundary : histories_of(*spec, pipeline)) {
      LH_CHECK(0 <= boundary.capacity && boundary.capacity <= boundary.samples,
               "no more histories than samples");
    }
  }
  LH_CHECK(coordinator_config(*spec).stages.size() == spec->plan.layers.size(), "a group a stage");
  LH_CHECK(build_graph(make_schedule(validation_plan(*spec), spec->job)), "nor when it validates");
}

void check_questions(std::string_view text) {
  if (const auto wanted = parse_wanted_sequences(text)) {
    LH_CHECK(!wanted->numbers.empty(), "a question asks for something");
    for (const std::int64_t number : wanted->numbers) LH_CHECK(number >= 0, "by its number");
  }
  if (const auto resend = parse_resend(text)) {
    LH_CHECK(resend->micro_batch >= 0 && resend->sequence >= 0, "places are counted from 0");
    LH_CHECK(resend_text(*resend) == text, "there is one way to ask");
  }
  const auto piece = parse_file_piece(text);
  if (!piece) return;
  SimStorage storage;
  storage.put("root/secret", "no checkpoint's");
  storage.put("root/checkpoints/term-000001-step-000000100/head.safetensors", "weights");
  const auto read = read_file_piece(storage, "root/checkpoints", *piece, 4);
  LH_CHECK(!read || (piece->folder == "term-000001-step-000000100" &&
                     piece->name == "head.safetensors" && piece->offset <= 3),
           "no path leads out of the checkpoint");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  longhaul::check_spec(text);
  longhaul::check_questions(text);
  return 0;
}
