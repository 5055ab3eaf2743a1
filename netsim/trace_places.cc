#include "netsim/trace_places.h"

#include <cmath>
#include <map>
#include <numbers>
#include <string>

#include "core/config_errors.h"

namespace longhaul {

std::optional<Coordinates> place_coordinates(std::string_view name) {
  // Names in small letters; regions where their operators say that they are, to a tenth of a
  // degree.
  constexpr Coordinates kOregon{45.9, -119.3}, kVirginia{39.0, -77.5}, kOhio{40.1, -83.1},
      kCalifornia{37.4, -121.9}, kMontreal{45.5, -73.6}, kSaoPaulo{-23.5, -46.6},
      kIreland{53.3, -6.3}, kLondon{51.5, -0.1}, kParis{48.9, 2.4}, kFrankfurt{50.1, 8.7},
      kStockholm{59.3, 18.1}, kMilan{45.5, 9.2}, kCapeTown{-33.9, 18.4}, kBahrain{26.1, 50.6},
      kMumbai{19.1, 72.9}, kSingapore{1.3, 103.8}, kHongKong{22.3, 114.2}, kTokyo{35.7, 139.7},
      kOsaka{34.7, 135.5}, kSeoul{37.6, 127.0}, kSydney{-33.9, 151.2}, kIowa{41.3, -95.9},
      kAmsterdam{52.4, 4.9}, kNewYork{40.7, -74.0}, kDallas{32.8, -96.8}, kToronto{43.7, -79.4},
      kMadrid{40.4, -3.7}, kJakarta{-6.2, 106.8};
  static const std::map<std::string, Coordinates, std::less<>> places = {
      {"oregon", kOregon},
      {"us-west-2", kOregon},
      {"virginia", kVirginia},
      {"us-east-1", kVirginia},
      {"east us", kVirginia},
      {"washington dc", kVirginia},
      {"ohio", kOhio},
      {"us-east-2", kOhio},
      {"us-west-1", kCalifornia},
      {"california", kCalifornia},
      {"san francisco", kCalifornia},
      {"montreal", kMontreal},
      {"ca-central-1", kMontreal},
      {"sao paulo", kSaoPaulo},
      {"sa-east-1", kSaoPaulo},
      {"southamerica-east1", kSaoPaulo},
      {"ireland", kIreland},
      {"dublin", kIreland},
      {"eu-west-1", kIreland},
      {"north europe", kIreland},
      {"london", kLondon},
      {"eu-west-2", kLondon},
      {"europe-west2", kLondon},
      {"uk south", kLondon},
      {"paris", kParis},
      {"eu-west-3", kParis},
      {"france central", kParis},
      {"frankfurt", kFrankfurt},
      {"eu-central-1", kFrankfurt},
      {"europe-west3", kFrankfurt},
      {"stockholm", kStockholm},
      {"eu-north-1", kStockholm},
      {"milan", kMilan},
      {"eu-south-1", kMilan},
      {"cape town", kCapeTown},
      {"af-south-1", kCapeTown},
      {"me-south-1", kBahrain},
      {"mumbai", kMumbai},
      {"ap-south-1", kMumbai},
      {"asia-south1", kMumbai},
      {"singapore", kSingapore},
      {"ap-southeast-1", kSingapore},
      {"asia-southeast1", kSingapore},
      {"southeast asia", kSingapore},
      {"hong kong", kHongKong},
      {"ap-east-1", kHongKong},
      {"asia-east2", kHongKong},
      {"tokyo", kTokyo},
      {"ap-northeast-1", kTokyo},
      {"asia-northeast1", kTokyo},
      {"japan east", kTokyo},
      {"osaka", kOsaka},
      {"ap-northeast-3", kOsaka},
      {"japan west", kOsaka},
      {"seoul", kSeoul},
      {"ap-northeast-2", kSeoul},
      {"korea central", kSeoul},
      {"sydney", kSydney},
      {"ap-southeast-2", kSydney},
      {"australia east", kSydney},
      {"us-central1", kIowa},
      {"iowa", kIowa},
      {"amsterdam", kAmsterdam},
      {"west europe", kAmsterdam},
      {"new york", kNewYork},
      {"dallas", kDallas},
      {"toronto", kToronto},
      {"madrid", kMadrid},
      {"jakarta", kJakarta},
      {"ap-southeast-3", kJakarta}};
  const std::size_t colon = name.find(':');
  const auto found =
      places.find(lowered(colon == std::string_view::npos ? name : name.substr(colon + 1)));
  return found == places.end() ? std::nullopt : std::optional(found->second);
}

double distance_km(const Coordinates& a, const Coordinates& b) {
  constexpr double kDegree = std::numbers::pi / 180;
  constexpr double kEarthRadiusKm = 6371;
  // The haversine formula (Sinnott, 1984).
  const double latitudes = std::sin((b.latitude - a.latitude) * kDegree / 2);
  const double longitudes = std::sin((b.longitude - a.longitude) * kDegree / 2);
  const double h = latitudes * latitudes + std::cos(a.latitude * kDegree) *
                                               std::cos(b.latitude * kDegree) * longitudes *
                                               longitudes;
  return 2 * kEarthRadiusKm * std::asin(std::min(1.0, std::sqrt(h)));
}

}  // namespace longhaul
