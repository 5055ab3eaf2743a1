// libFuzzer target: any bytes, read as a config, must end in values or in errors with a place that
// exists; never in a crash, a hang or a leak. Each document is read by every reader everywhere, and
// once more as a job would be, with expected keys and a schema.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/config_cursor.h"
#include "core/result.h"

namespace longhaul {
namespace {

void read_everything(const Cursor& cursor) {
  cursor.path();
  cursor.place();
  cursor.text();
  cursor.integer({.min = -10, .max = 10});
  cursor.number({.min = 0});
  cursor.boolean();
  cursor.choice({"gpt2", "llama"});
  cursor.duration();
  cursor.size();
  cursor.rate();
  cursor.flop_rate();
  cursor.usd_per_hour();
  cursor.usd_per_byte();
  cursor.has("layers");
  for (const Cursor& item : cursor.items()) read_everything(item);
  for (const auto& [name, value] : cursor.entries()) read_everything(value);
}

void read_as_job(ConfigFile& file) {
  file.expect_schema("longhaul/job/1");
  const Cursor root = file.root();
  const Cursor model = root.key("model");
  model.key("family").choice({"gpt2", "llama"});
  model.key("layers").integer({.min = 1, .max = 1000});
  model.optional("dropout").number({.min = 0, .max = 1});
  model.optional("tied").boolean(true);
  root.key("steps").integer({.min = 1});
  for (const Cursor& link : root.optional("links").items()) {
    link.key("latency").duration();
    if (link.key("rate").rate() < bytes_per_second(1)) link.fail("too slow", "take a faster one");
  }
  for (const auto& [name, memory] : root.optional("memory").entries()) memory.size();
}

void check_errors(const Error& error, std::string_view text) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad file is wrong input");
  LH_CHECK(error.count() <= 100, "a report has a limit");
  LH_CHECK(!error.text().empty(), "an error says something");
  const auto check_place = [&](const Error& one) {
    LH_CHECK(one.place.line >= 1 && one.place.column >= 1, "every error has a place");
    LH_CHECK(static_cast<std::size_t>(one.place.line) <= text.size() + 1, "the place exists");
    LH_CHECK(one.excerpt.ends_with('^'), "every error shows its line");
  };
  check_place(error);
  for (const Error& other : error.others) check_place(other);
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool as_job : {false, true}) {
    auto file = ConfigFile::parse(text, "fuzz.yaml");
    if (!file) {
      check_errors(file.error(), text);
      return 0;
    }
    if (as_job) {
      read_as_job(*file);
    } else {
      read_everything(file->root());
    }
    if (const auto done = file->finish(); !done) check_errors(done.error(), text);
  }
  return 0;
}
