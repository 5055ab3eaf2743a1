// The table of cities and cloud regions (configs/cities.csv): where places lie.
//
//   LH_ASSIGN(const CityTable cities, CityTable::load());
//   LH_ASSIGN(const Place* place, cities.find("aws/us-west-2"));   // Boardman, US
//
// Names are found whatever their case, with blanks or underscores for hyphens. `jp/tokyo` and
// `aws/us-west-2` say the country or the provider. A bare name is, in this order: a city's name or
// alias, a region's name, a region's alias. Of several cities of one name the one with at least
// twice the inhabitants of the next is meant; otherwise the choice is an error that names them. A
// CityTable is a value; any thread may read it. Format: docs/formats.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/topology.h"
#include "netsim/latency_model.h"

namespace longhaul {

struct Place {
  std::string provider;  // `aws`; empty: a city
  std::string name;      // `us-west-2`, `tokyo`
  std::string city;      // "Boardman", as people write it
  std::string country;   // ISO 3166: "US"
  RouteEnd end;
  double population = 0;  // thousands; of cities
  std::vector<std::string> aliases;

  /// `aws/us-west-2`, `jp/tokyo`: finds this place and no other.
  std::string full_name() const;
  /// "Boardman, US".
  std::string location() const;
};

class CityTable {
 public:
  /// The shipped table (configs/cities.csv).
  static Result<CityTable> load();
  static Result<CityTable> parse(std::string_view text, const std::string& name);

  /// The place that a name means; pointers live as long as the table.
  Result<const Place*> find(std::string_view name) const;
  /// The same for those who can do without: null where find() has an error.
  const Place* find_if_clear(std::string_view name) const;
  /// The city of a location such as "Boardman, US" (city, country); null if there is none.
  const Place* find_location(std::string_view location) const;
  /// The nearest city by great circle.
  const Place& nearest_city(Coordinates at) const;
  const std::vector<Place>& places() const { return places_; }

 private:
  /// What a name may mean, the largest first; only that where it is clearly meant.
  std::vector<const Place*> meanings(std::string_view name) const;

  std::vector<Place> places_;
};

/// `Sao Paulo` -> `sao-paulo`: how names are compared.
std::string place_key(std::string_view name);

/// Two numbers within the globe; nothing otherwise.
bool is_on_globe(Coordinates at);

}  // namespace longhaul
