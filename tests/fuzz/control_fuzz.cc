// libFuzzer target: any bytes, read as a control message and as a journal, must end in a value that
// comes back the same when it is written and read again, or in an error that says something short.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "executor/control/journal.h"
#include "executor/control/messages.h"

namespace longhaul {
namespace {

void check_error(const Error& error) {
  LH_CHECK(!error.message.empty() && error.message.size() < 1000, "an error says something short");
}

void check_message(std::string_view text) {
  const auto message = parse_control(text);
  if (!message) return check_error(message.error());
  const std::string written = control_text(*message);
  const auto again = parse_control(written);
  LH_CHECK(again, "what is written can be read");
  LH_CHECK(again->index() == message->index(), "and is of the same kind");
  LH_CHECK(control_text(*again) == written, "and says the same");
}

void check_journal(std::string_view text) {
  constexpr std::uint64_t kJob = 0x0123456789abcdef;
  const auto journal = parse_journal(text, "in", kJob);
  if (!journal) {
    LH_CHECK(journal.error().place.file == "in" && journal.error().place.line > 0,
             "with its place");
    return check_error(journal.error());
  }
  LH_CHECK(journal->whole_bytes <= text.size(), "only what is there is kept");
  const auto again = parse_journal(text.substr(0, journal->whole_bytes), "in", kJob);
  LH_CHECK(again && again->entries.size() == journal->entries.size() &&
               again->whole_bytes == journal->whole_bytes,
           "what is kept is whole");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  longhaul::check_message(text);
  longhaul::check_journal(text);
  return 0;
}
