#include "core/result.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace longhaul {

std::string SourcePlace::text() const {
  std::string out = file;
  if (line > 0) out += fmt::format(":{}", line);
  if (line > 0 && column > 0) out += fmt::format(":{}", column);
  return out;
}

std::string Error::text() const {
  std::string out = "error: ";
  if (!place.file.empty()) out = place.text() + ": " + out;
  out += message;
  if (!excerpt.empty()) out += "\n" + excerpt;
  if (!hint.empty()) out += "\n  hint: " + hint;
  for (const Error& other : others) out += "\n" + other.text();
  return out;
}

std::unexpected<Error> within(std::string_view context, Error error) {
  error.message = fmt::format("{}: {}", context, error.message);
  return std::unexpected(std::move(error));
}

void check_failed(const char* file, int line, const char* condition, std::string_view why) {
  fmt::print(stderr, "{}:{}: check failed: {}: {}\n", file, line, condition, why);
  std::fflush(stderr);
  std::abort();
}

}  // namespace longhaul
