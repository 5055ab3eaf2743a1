#include "netsim/cities.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "core/config_cursor.h"
#include "core/quantity.h"
#include "netsim/shipped.h"

namespace longhaul {
namespace {

constexpr std::string_view kHeader =
    "provider,name,city,country,zone,latitude,longitude,population_k,aliases";
enum Column {
  kProvider,
  kName,
  kCity,
  kCountry,
  kZone,
  kLatitude,
  kLongitude,
  kPopulation,
  kAliases,
  kColumns
};
constexpr double kClearlyLarger = 2;  // of cities of one name

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Whether something can be looked up by it, alone or before or behind a slash.
bool is_key(std::string_view text) {
  return !text.empty() && place_key(text) == text && text.find('/') == std::string_view::npos;
}

/// One row, or what is wrong with it.
Result<Place> read_place(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ',');
  if (fields.size() != kColumns) {
    return invalid(fmt::format("{} fields, not {}", fields.size(), static_cast<int>(kColumns)),
                   std::string(kHeader));
  }
  Place place;
  place.provider = fields[kProvider];
  place.name = fields[kName];
  place.city = fields[kCity];
  place.country = fields[kCountry];
  if (!is_key(place.name)) {
    return invalid(fmt::format("`{}` is not a name", place.name), "small letters and hyphens");
  }
  if (!place.provider.empty() && !is_key(place.provider)) {
    return invalid(fmt::format("`{}` is not a provider", place.provider));
  }
  if (place.city.empty()) return invalid("the city is empty");
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (place.country.size() != 2 || !std::ranges::all_of(place.country, is_capital)) {
    return invalid(fmt::format("`{}` is not a country's two letters", place.country));
  }
  const std::optional<RouteZone> zone = parse_route_zone(fields[kZone]);
  if (!zone) return invalid(fmt::format("`{}` is not a zone", fields[kZone]));
  place.end.zone = *zone;
  LH_ASSIGN(place.end.at.latitude, parse_number(fields[kLatitude]));
  LH_ASSIGN(place.end.at.longitude, parse_number(fields[kLongitude]));
  if (!is_on_globe(place.end.at)) {
    return invalid("latitudes are -90 to 90 degrees, longitudes -180 to 180");
  }
  if (place.provider.empty()) {
    LH_ASSIGN(place.population, parse_number(fields[kPopulation]));
    if (place.population < 0) return invalid("a city has no fewer than 0 inhabitants");
  }
  if (!fields[kAliases].empty()) {
    for (const std::string_view alias : split(fields[kAliases], ' ')) {
      if (!is_key(alias)) {
        return invalid(fmt::format("`{}` is not an alias", alias), "small letters and hyphens");
      }
      place.aliases.emplace_back(alias);
    }
  }
  return place;
}

}  // namespace

std::string Place::full_name() const {
  return fmt::format("{}/{}", provider.empty() ? place_key(country) : provider, name);
}

std::string Place::location() const {
  return fmt::format("{}, {}", city, country);
}

std::string place_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      key += static_cast<char>(c - 'A' + 'a');
    } else if (c == ' ' || c == '_') {
      key += '-';
    } else if (c != '.' && c != '\'') {  // St. Louis, N'Djamena
      key += c;
    }
  }
  return key;
}

bool is_on_globe(Coordinates at) {
  return at.latitude >= -90 && at.latitude <= 90 && at.longitude >= -180 && at.longitude <= 180;
}

Result<CityTable> CityTable::load() {
  const std::string path = shipped_configs() + "/cities.csv";
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.str().empty()) {
    return invalid(fmt::format("cannot read the table of cities {}: {}", path,
                               std::strerror(errno == 0 ? EINVAL : errno)));
  }
  return parse(text.str(), path);
}

Result<CityTable> CityTable::parse(std::string_view text, const std::string& name) {
  CityTable table;
  std::set<std::string> full_names,
      aliases;  // an alias is that of one city, of one region, or both
  int line_number = 0;
  bool has_header = false;
  for (const std::string_view line : split(text, '\n')) {
    ++line_number;
    const auto at_line = [&](Error error) {
      error.place = {name, line_number, 1};
      return std::unexpected(std::move(error));
    };
    if (line.empty() || line.front() == '#') continue;
    if (!has_header) {
      if (line != kHeader) {
        return at_line(invalid("this is no table of cities", std::string(kHeader)).error());
      }
      has_header = true;
      continue;
    }
    Result<Place> place = read_place(line);
    if (!place) return at_line(std::move(place).error());
    if (!full_names.insert(place->full_name()).second) {
      return at_line(invalid(fmt::format("`{}` appears twice", place->full_name())).error());
    }
    for (const std::string& alias : place->aliases) {
      if (!aliases.insert(place->provider.empty() ? alias : "region/" + alias).second) {
        return at_line(invalid(fmt::format("alias `{}` appears twice", alias)).error());
      }
    }
    table.places_.push_back(std::move(*place));
  }
  if (std::ranges::none_of(table.places_, [](const Place& p) { return p.provider.empty(); })) {
    return std::unexpected(Error{
        ErrorCode::kInvalid, "the table has no city", std::string(kHeader), {name, 1, 1}, "", {}});
  }
  return table;
}

std::vector<const Place*> CityTable::meanings(std::string_view text) const {
  const std::string key = place_key(text);
  const std::size_t slash = key.find('/');
  const std::string group = slash == std::string::npos ? "" : key.substr(0, slash);
  const std::string name = slash == std::string::npos ? key : key.substr(slash + 1);
  const auto all = [&](auto&& is_meant) {
    std::vector<const Place*> found;
    for (const Place& place : places_) {
      const bool in_group = group.empty() || group == place.provider ||
                            (place.provider.empty() && group == place_key(place.country));
      if (in_group && is_meant(place)) found.push_back(&place);
    }
    return found;
  };
  // A full name is that of one place, whatever aliases others have.
  const auto exact = std::ranges::find(places_, key, &Place::full_name);
  if (exact != places_.end()) return {&*exact};
  const auto is_alias = [&](const Place& place) {
    return std::ranges::find(place.aliases, name) != place.aliases.end();
  };
  // Names are written without accents; `São Paulo` is found by its city.
  const bool has_accents = std::ranges::any_of(name, [](char c) { return (c & 0x80) != 0; });
  std::vector<const Place*> found = all([&](const Place& place) {
    return place.provider.empty() && (place.name == name || is_alias(place) ||
                                      (has_accents && place_key(place.city) == name));
  });
  if (found.empty()) found = all([&](const Place& place) { return place.name == name; });
  if (found.empty()) found = all(is_alias);
  std::ranges::stable_sort(found, std::greater{}, &Place::population);
  if (found.size() > 1 && found[0]->population >= kClearlyLarger * found[1]->population &&
      found[0]->population > 0) {
    found.resize(1);
  }
  return found;
}

const Place* CityTable::find_if_clear(std::string_view name) const {
  const std::vector<const Place*> found = meanings(name);
  return found.size() == 1 ? found[0] : nullptr;
}

Result<const Place*> CityTable::find(std::string_view name) const {
  const std::vector<const Place*> found = meanings(name);
  if (found.size() == 1) return found[0];
  if (!found.empty()) {
    std::vector<std::string> choices;
    for (const Place* place : found) choices.push_back(place->full_name());
    return invalid(fmt::format("`{}` may be {}", name, fmt::join(choices, " or ")),
                   "write one of them");
  }
  const bool is_full = name.find('/') != std::string_view::npos;
  std::vector<std::string> known;
  for (const Place& place : places_) {
    known.push_back(is_full ? place.full_name() : place.name);
    if (!is_full) known.insert(known.end(), place.aliases.begin(), place.aliases.end());
  }
  return invalid(fmt::format("no city or cloud region is named `{}`", name),
                 did_you_mean(place_key(name), known,
                              "a city, a region such as aws/us-west-2, or coordinates such as "
                              "50.11,8.68; configs/cities.csv has all names"));
}

const Place* CityTable::find_location(std::string_view location) const {
  const std::size_t comma = location.rfind(", ");
  if (comma == std::string_view::npos) return nullptr;
  return find_if_clear(fmt::format("{}/{}", location.substr(comma + 2), location.substr(0, comma)));
}

const Place& CityTable::nearest_city(Coordinates at) const {
  const Place* nearest = nullptr;
  double least = 0;
  for (const Place& place : places_) {
    if (!place.provider.empty()) continue;
    const double km = great_circle_km(at, place.end.at);
    if (nearest != nullptr && km >= least) continue;
    nearest = &place;
    least = km;
  }
  LH_CHECK(nearest != nullptr, "parse() takes no table without a city");
  return *nearest;
}

}  // namespace longhaul
