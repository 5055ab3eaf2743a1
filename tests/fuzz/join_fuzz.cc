// libFuzzer target: any bytes, read as a message of a launch and as the lines of a worker's stdin,
// must end in a value that comes back the same when it is written and read again, or in an error
// that says something short.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "executor/launch/launch_messages.h"
#include "executor/launch/supervised.h"

namespace longhaul {
namespace {

void check_error(const Error& error) {
  LH_CHECK(!error.message.empty() && error.message.size() < 1000, "an error says something short");
}

void check_message(std::string_view text) {
  const auto message = parse_launch(text);
  if (!message) return check_error(message.error());
  const std::string written = launch_text(*message);
  LH_CHECK(written.find('\n') == std::string::npos, "a message is one line");
  const auto again = parse_launch(written);
  LH_CHECK(again, "what is written can be read");
  LH_CHECK(again->index() == message->index(), "and is of the same kind");
  LH_CHECK(launch_text(*again) == written, "and says the same");
}

void check_stdin(std::string_view text) {
  int starts = 0, connects = 0, ends = 0;
  Supervised supervised({[&](const WorkerStart&) { ++starts; },
                         [&](const PeerAddresses&) { ++connects; },
                         [&](const Error& why) {
                           ++ends;
                           check_error(why);
                         }});
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    supervised.line(std::string(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  supervised.end_of_lines();
  LH_CHECK(starts <= 1 && connects <= starts && ends == 1, "a worker starts once and ends once");
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  longhaul::check_message(text);
  longhaul::check_stdin(text);
  const std::string address = longhaul::address_in_line(text);
  LH_CHECK(address.empty() || longhaul::listening_line(address) == text, "a line says its address");
  return 0;
}
