#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "core/config_errors.h"
#include "core/quantity.h"
#include "netsim/import/importer.h"

namespace longhaul {
namespace {

constexpr double kDay = 86400;

/// Days since 1970-01-01 of a date of the Gregorian calendar.
std::optional<std::int64_t> days_since_1970(std::int64_t year, std::int64_t month,
                                            std::int64_t day) {
  constexpr std::array<int, 12> lengths = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (year < 1970 || year > 9999 || month < 1 || month > 12 || day < 1) return std::nullopt;
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  const int length = lengths[static_cast<std::size_t>(month - 1)] - (month == 2 && !leap ? 1 : 0);
  if (day > length) return std::nullopt;
  // Years that begin in March, so that the leap day comes last.
  const std::int64_t y = month <= 2 ? year - 1 : year;
  const std::int64_t m = (month + 9) % 12;
  return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/// Takes digits off the front of `text`.
std::optional<std::int64_t> take_number(std::string_view& text, std::size_t digits_max) {
  std::int64_t value = 0;
  const char* end = text.data() + std::min(text.size(), digits_max);
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view any) {
  if (text.empty() || !any.contains(text[0])) return false;
  text.remove_prefix(1);
  return true;
}

/// `12:00:00.5+02:00`, `00:02:12 UTC`: seconds since midnight in UTC.
std::optional<double> time_of_day(std::string_view text) {
  const auto hours = take_number(text, 2);
  if (!hours || *hours > 23 || !take(text, ":")) return std::nullopt;
  const auto minutes = take_number(text, 2);
  if (!minutes || *minutes > 59) return std::nullopt;
  double seconds = static_cast<double>(*hours * 3600 + *minutes * 60);
  if (take(text, ":")) {
    std::size_t size = text.find_first_not_of("0123456789.");
    size = std::min(size, text.size());
    const Result<double> value = parse_number(text.substr(0, size));
    if (!value || *value < 0 || *value >= 61) return std::nullopt;
    seconds += *value;
    text.remove_prefix(size);
  }
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (text.empty() || text == "Z" || text == "UTC" || text == "GMT") return seconds;
  const bool east = text[0] == '+';
  if (!take(text, "+-")) return std::nullopt;
  const auto zone_hours = take_number(text, 2);
  take(text, ":");
  const auto zone_minutes = text.empty() ? std::optional<std::int64_t>(0) : take_number(text, 2);
  if (!zone_hours || !zone_minutes || *zone_hours > 14 || !text.empty()) return std::nullopt;
  return seconds - (east ? 1 : -1) * static_cast<double>(*zone_hours * 3600 + *zone_minutes * 60);
}

/// `16 Nov 2025`, `7 December 2025`.
std::optional<double> written_date(std::string_view text) {
  constexpr std::array<std::string_view, 12> months = {"jan", "feb", "mar", "apr", "may", "jun",
                                                       "jul", "aug", "sep", "oct", "nov", "dec"};
  const auto day = take_number(text, 2);
  if (!day || !take(text, " ")) return std::nullopt;
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || space < 3) return std::nullopt;
  const auto month = std::ranges::find(months, std::string_view(lowered(text.substr(0, 3))));
  text.remove_prefix(space + 1);
  const auto year = take_number(text, 4);
  if (month == months.end() || !year || !text.empty()) return std::nullopt;
  const auto days = days_since_1970(*year, month - months.begin() + 1, *day);
  if (!days) return std::nullopt;
  return static_cast<double>(*days) * kDay;
}

}  // namespace

std::optional<double> parse_time(std::string_view text) {
  if (const Result<double> number = parse_number(text)) {
    // A number is seconds since 1970: between 2001 and 2128, so that neither a date such as
    // 20220214 nor milliseconds pass for one.
    if (*number >= 1e9 && *number < 5e9) return *number;
    return std::nullopt;
  }
  if (const auto date = written_date(text)) return date;
  const auto year = take_number(text, 4);
  if (!year || !take(text, "-")) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || !take(text, "-")) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day) return std::nullopt;
  const auto days = days_since_1970(*year, *month, *day);
  if (!days) return std::nullopt;
  const double midnight = static_cast<double>(*days) * kDay;
  if (text.empty()) return midnight;
  if (!take(text, "T ")) return std::nullopt;
  const auto seconds = time_of_day(text);
  if (!seconds) return std::nullopt;
  return midnight + *seconds;
}

std::string format_time(double unix_s) {
  const auto whole = static_cast<std::int64_t>(std::floor(unix_s));
  const std::int64_t days = whole / 86400;
  const std::int64_t seconds = whole % 86400;
  // The reverse of days_since_1970, after Hinnant's chrono-compatible date algorithms.
  const std::int64_t shifted = days + 719468;
  const std::int64_t era = shifted / 146097;
  const std::int64_t day_of_era = shifted % 146097;
  const std::int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const std::int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t march_month = (5 * day_of_year + 2) / 153;
  const std::int64_t day = day_of_year - (153 * march_month + 2) / 5 + 1;
  const std::int64_t month = march_month < 10 ? march_month + 3 : march_month - 9;
  const std::int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", year, month, day, seconds / 3600,
                     seconds / 60 % 60, seconds % 60);
}

std::string base_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace longhaul
