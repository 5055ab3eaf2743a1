#include "netsim/cities.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "netsim/shipped.h"

namespace longhaul {
namespace {

const CityTable& shipped() {
  static const CityTable table = [] {
    Result<CityTable> loaded = CityTable::load();
    EXPECT_TRUE(loaded) << loaded.error().text();
    return std::move(loaded).value();  // throws, which ends the test
  }();
  return table;
}

std::string found(std::string_view name) {
  const Result<const Place*> place = shipped().find(name);
  return place ? (*place)->full_name() : place.error().text();
}

// ---- The shipped table.

TEST(Cities, the_shipped_table_has_cities_and_the_regions_of_five_clouds) {
  std::map<std::string, int> count;
  for (const Place& place : shipped().places()) ++count[place.provider];
  EXPECT_GE(count[""], 250);
  EXPECT_GE(count["aws"], 30);
  EXPECT_GE(count["azure"], 50);
  EXPECT_GE(count["gcp"], 40);
  EXPECT_GE(count["oracle"], 30);
  EXPECT_GE(count["ibm"], 10);
  EXPECT_LT(std::filesystem::file_size(shipped_configs() + "/cities.csv"), 60'000u);
}

TEST(Cities, every_full_name_finds_its_place) {
  for (const Place& place : shipped().places()) {
    EXPECT_EQ(found(place.full_name()), place.full_name());
  }
}

TEST(Cities, a_region_is_found_by_its_code_alone) {
  for (const Place& place : shipped().places()) {
    if (!place.provider.empty()) {
      EXPECT_EQ(found(place.name), place.full_name());
    }
  }
}

TEST(Cities, an_alias_finds_its_place_unless_it_is_the_name_of_a_city) {
  std::set<std::string> city_names;
  for (const Place& place : shipped().places()) {
    if (!place.provider.empty()) continue;
    city_names.insert(place.name);
    city_names.insert(place.aliases.begin(), place.aliases.end());
  }
  int aliases = 0;
  for (const Place& place : shipped().places()) {
    for (const std::string& alias : place.aliases) {
      ++aliases;
      if (!place.provider.empty() && city_names.contains(alias)) continue;
      EXPECT_EQ(found(alias), place.full_name()) << alias;
    }
  }
  EXPECT_GT(aliases, 50);
}

TEST(Cities, a_region_stands_in_a_city_of_its_country) {
  // Towns such as Boydton are in no list of cities; those that are lie where the city lies.
  for (const Place& place : shipped().places()) {
    const Place* city = shipped().find_location(place.location());
    if (city == nullptr) continue;
    EXPECT_LT(great_circle_km(city->end.at, place.end.at), 1) << place.full_name();
    EXPECT_EQ(city->end.zone, place.end.zone) << place.full_name();
  }
}

// ---- Names.

TEST(Cities, names_are_found_however_they_are_written) {
  EXPECT_EQ(found("tokyo"), "jp/tokyo");
  EXPECT_EQ(found("Tokyo"), "jp/tokyo");
  EXPECT_EQ(found("JP/Tokyo"), "jp/tokyo");
  EXPECT_EQ(found("new york"), "us/new-york-city");
  EXPECT_EQ(found("NYC"), "us/new-york-city");
  EXPECT_EQ(found("Los_Angeles"), "us/los-angeles");
  EXPECT_EQ(found("St. Louis"), "us/st-louis");
  EXPECT_EQ(found("São Paulo"), "br/sao-paulo");
  EXPECT_EQ(found("us-west-2"), "aws/us-west-2");
  EXPECT_EQ(found("oregon"), "aws/us-west-2");
  EXPECT_EQ(found("gcp/us-west1"), "gcp/us-west1");
}

TEST(Cities, the_clearly_larger_city_of_a_name_is_meant) {
  EXPECT_EQ(found("london"), "gb/london");  // 9.0 million; 0.4 in Ontario
  EXPECT_EQ(found("ca/london"), "ca/london");
  EXPECT_EQ(found("hyderabad"), "in/hyderabad");  // 7.0 million; 1.9 in Pakistan
}

TEST(Cities, where_no_city_of_a_name_is_clearly_larger_the_choices_are_named) {
  const std::string error = found("cambridge");  // 145,000 and 110,000
  EXPECT_TRUE(error.contains("`cambridge` may be gb/cambridge or us/cambridge")) << error;
  EXPECT_EQ(shipped().find_if_clear("cambridge"), nullptr);
}

TEST(Cities, a_misspelt_name_is_guessed) {
  EXPECT_TRUE(found("tokio").contains("did you mean `tokyo`?")) << found("tokio");
  EXPECT_TRUE(found("aws/us-wets-2").contains("did you mean `aws/us-west-2`?"));
  EXPECT_TRUE(found("atlantis-under-the-sea").contains("a city, a region such as aws/us-west-2"));
  EXPECT_TRUE(found("").contains("no city or cloud region is named ``"));
}

TEST(Cities, a_location_is_a_city_and_its_country) {
  const Place* boardman = shipped().find_location("Boardman, US");
  ASSERT_NE(boardman, nullptr);
  EXPECT_EQ(boardman->end.at, (Coordinates{45.84, -119.7}));
  EXPECT_EQ(shipped().find_location("London, CA")->full_name(), "ca/london");
  EXPECT_EQ(shipped().find_location("London"), nullptr);
  EXPECT_EQ(shipped().find_location("a cellar, US"), nullptr);
}

TEST(Cities, the_nearest_city_is_found_across_the_date_line) {
  EXPECT_EQ(shipped().nearest_city({49.9, 8.6}).full_name(), "de/darmstadt");
  // 18 S, 179.9 W lies 156 km east of Suva (178.44 E).
  EXPECT_EQ(shipped().nearest_city({-18.0, -179.9}).full_name(), "fj/suva");
}

// ---- Files.

TEST(Cities, a_wrong_table_is_refused_with_the_line) {
  const std::string header =
      "# comment\nprovider,name,city,country,zone,latitude,longitude,population_k,aliases\n";
  const std::string tokyo = ",tokyo,Tokyo,JP,ea,35.69,139.69,9700,\n";
  const struct {
    std::string text;
    std::string_view says;
  } cases[] = {
      {"", "the table has no city"},
      {header, "the table has no city"},
      {header + "aws,us-west-2,Boardman,US,na,45.84,-119.70,,\n", "the table has no city"},
      {"name,city\n", "t.csv:1:1: error: this is no table of cities"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,139.69,9700\n", "t.csv:3:1: error: 8 fields, not 9"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,139.69,9700,,\n", "10 fields, not 9"},
      {header + ",Tokyo,Tokyo,JP,ea,35.69,139.69,9700,\n", "`Tokyo` is not a name"},
      {header + ",,Tokyo,JP,ea,35.69,139.69,9700,\n", "`` is not a name"},
      {header + ",to/kyo,Tokyo,JP,ea,35.69,139.69,9700,\n", "`to/kyo` is not a name"},
      {header + "AWS,tokyo,Tokyo,JP,ea,35.69,139.69,,\n", "`AWS` is not a provider"},
      {header + "aws/,tokyo,Tokyo,JP,ea,35.69,139.69,,\n", "`aws/` is not a provider"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,139.69,9700,old/edo\n", "`old/edo` is not an alias"},
      {header + ",tokyo,,JP,ea,35.69,139.69,9700,\n", "the city is empty"},
      {header + ",tokyo,Tokyo,JPN,ea,35.69,139.69,9700,\n", "`JPN` is not a country's"},
      {header + ",tokyo,Tokyo,jp,ea,35.69,139.69,9700,\n", "`jp` is not a country's"},
      {header + ",tokyo,Tokyo,/P,ea,35.69,139.69,9700,\n", "`/P` is not a country's"},
      {header + ",tokyo,Tokyo,JP,xx,35.69,139.69,9700,\n", "`xx` is not a zone"},
      {header + ",tokyo,Tokyo,JP,ea,north,139.69,9700,\n", "north"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,,9700,\n", "number"},
      {header + ",tokyo,Tokyo,JP,ea,90.01,139.69,9700,\n", "latitudes are -90 to 90"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,-180.01,9700,\n", "longitudes -180 to 180"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,139.69,,\n", "number"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,139.69,-1,\n", "no fewer than 0"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,139.69,9700,Edo\n", "`Edo` is not an alias"},
      {header + ",tokyo,Tokyo,JP,ea,35.69,139.69,9700,edo  edo2\n", "`` is not an alias"},
      {header + tokyo + tokyo, "t.csv:4:1: error: `jp/tokyo` appears twice"},
      {header + tokyo + ",edo,Edo,JP,ea,35,139,1,old\n,nara,Nara,JP,ea,34,135,1,old\n",
       "alias `old` appears twice"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.text);
    const Result<CityTable> table = CityTable::parse(bad.text, "t.csv");
    ASSERT_FALSE(table);
    EXPECT_EQ(table.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(table.error().text().contains(bad.says)) << table.error().text();
  }
  EXPECT_TRUE(CityTable::parse(header + tokyo, "t.csv"));
  // The poles and the date line are on the globe; a city and a region may share an alias.
  EXPECT_TRUE(CityTable::parse(
      header + ",pole,Pole,AQ,oc,-90,180,0,south\n" + "x,base,Base,AQ,oc,90,-180,,south\n",
      "t.csv"));
}

}  // namespace
}  // namespace longhaul
