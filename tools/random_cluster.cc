#include "tools/random_cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <vector>

#include "core/model_math.h"
#include "core/rng.h"
#include "netsim/cluster_file.h"

namespace longhaul {
namespace {

struct City {
  const char* name;
  double latitude;   // degrees north
  double longitude;  // degrees east
};
constexpr City kCityList[kCities] = {{"oregon", 45.8, -119.7},
                                     {"virginia", 39.0, -77.5},
                                     {"ohio", 40.0, -83.0},
                                     {"tokyo", 35.7, 139.7},
                                     {"seoul", 37.6, 127.0},
                                     {"singapore", 1.35, 103.8},
                                     {"sydney", -33.9, 151.2},
                                     {"london", 51.5, -0.1},
                                     {"frankfurt", 50.1, 8.7},
                                     {"dublin", 53.3, -6.3},
                                     {"paris", 48.9, 2.35},
                                     {"stockholm", 59.3, 18.1},
                                     {"milan", 45.5, 9.2},
                                     {"zurich", 47.4, 8.5},
                                     {"warsaw", 52.2, 21.0},
                                     {"helsinki", 60.2, 24.9},
                                     {"amsterdam", 52.4, 4.9},
                                     {"madrid", 40.4, -3.7},
                                     {"mumbai", 19.1, 72.9},
                                     {"hyderabad", 17.4, 78.5},
                                     {"bangkok", 13.8, 100.5},
                                     {"jakarta", -6.2, 106.8},
                                     {"taipei", 25.0, 121.6},
                                     {"osaka", 34.7, 135.5},
                                     {"melbourne", -37.8, 145.0},
                                     {"auckland", -36.8, 174.8},
                                     {"montreal", 45.5, -73.6},
                                     {"calgary", 51.0, -114.1},
                                     {"dallas", 32.8, -96.8},
                                     {"iowa", 41.3, -95.9},
                                     {"los-angeles", 34.1, -118.2},
                                     {"queretaro", 20.6, -100.4},
                                     {"sao-paulo", -23.5, -46.6},
                                     {"santiago", -33.4, -70.7},
                                     {"cape-town", -33.9, 18.4},
                                     {"johannesburg", -26.2, 28.0},
                                     {"tel-aviv", 32.1, 34.8},
                                     {"dubai", 25.2, 55.3},
                                     {"doha", 25.3, 51.5},
                                     {"reykjavik", 64.1, -21.9},
                                     // The rest only where the first 40 are too few.
                                     {"lisbon", 38.7, -9.1},
                                     {"barcelona", 41.4, 2.2},
                                     {"rome", 41.9, 12.5},
                                     {"vienna", 48.2, 16.4},
                                     {"prague", 50.1, 14.4},
                                     {"berlin", 52.5, 13.4},
                                     {"hamburg", 53.6, 10.0},
                                     {"munich", 48.1, 11.6},
                                     {"brussels", 50.9, 4.4},
                                     {"copenhagen", 55.7, 12.6},
                                     {"oslo", 59.9, 10.8},
                                     {"tallinn", 59.4, 24.8},
                                     {"riga", 56.9, 24.1},
                                     {"vilnius", 54.7, 25.3},
                                     {"budapest", 47.5, 19.0},
                                     {"bucharest", 44.4, 26.1},
                                     {"sofia", 42.7, 23.3},
                                     {"athens", 38.0, 23.7},
                                     {"istanbul", 41.0, 29.0},
                                     {"marseille", 43.3, 5.4},
                                     {"lyon", 45.8, 4.8},
                                     {"manchester", 53.5, -2.2},
                                     {"edinburgh", 55.9, -3.2},
                                     {"geneva", 46.2, 6.1},
                                     {"cairo", 30.0, 31.2},
                                     {"nairobi", -1.3, 36.8},
                                     {"lagos", 6.5, 3.4},
                                     {"accra", 5.6, -0.2},
                                     {"casablanca", 33.6, -7.6},
                                     {"riyadh", 24.7, 46.7},
                                     {"muscat", 23.6, 58.4},
                                     {"karachi", 24.9, 67.0},
                                     {"delhi", 28.6, 77.2},
                                     {"chennai", 13.1, 80.3},
                                     {"bangalore", 13.0, 77.6},
                                     {"colombo", 6.9, 79.9},
                                     {"dhaka", 23.8, 90.4},
                                     {"hanoi", 21.0, 105.8},
                                     {"kuala-lumpur", 3.1, 101.7},
                                     {"manila", 14.6, 121.0},
                                     {"hong-kong", 22.3, 114.2},
                                     {"busan", 35.2, 129.1},
                                     {"sapporo", 43.1, 141.4},
                                     {"perth", -32.0, 115.9},
                                     {"brisbane", -27.5, 153.0},
                                     {"adelaide", -34.9, 138.6},
                                     {"honolulu", 21.3, -157.9},
                                     {"seattle", 47.6, -122.3},
                                     {"san-jose", 37.3, -121.9},
                                     {"phoenix", 33.4, -112.1},
                                     {"denver", 39.7, -105.0},
                                     {"chicago", 41.9, -87.6},
                                     {"atlanta", 33.7, -84.4},
                                     {"miami", 25.8, -80.2},
                                     {"new-york", 40.7, -74.0},
                                     {"toronto", 43.7, -79.4},
                                     {"bogota", 4.7, -74.1},
                                     {"lima", -12.0, -77.0},
                                     {"buenos-aires", -34.6, -58.4},
                                     {"rio", -22.9, -43.2}};

constexpr const char* kKinds[] = {"h100", "a100", "v100", "t4", "l4", "l40s", "rtx3090", "rtx4090"};

double kilometres(const City& a, const City& b) {
  constexpr double kRadians = std::numbers::pi / 180;
  constexpr double kEarthRadius = 6371;
  // Haversine.
  const double north = std::sin((a.latitude - b.latitude) * kRadians / 2);
  const double east = std::sin((a.longitude - b.longitude) * kRadians / 2);
  const double h = north * north +
                   std::cos(a.latitude * kRadians) * std::cos(b.latitude * kRadians) * east * east;
  return 2 * kEarthRadius * std::asin(std::sqrt(std::min(1.0, h)));
}

template <class T, std::size_t N>
const T& one_of(const T (&items)[N], Rng& rng) {
  return items[rng.index(N)];
}

double between(double low, double high, Rng& rng) {
  return low + (high - low) * rng.uniform();
}

std::vector<int> some_cities(int count, Rng& rng) {
  constexpr int kFirst = 40;
  std::vector<int> cities(count <= kFirst ? kFirst : kCities);
  std::iota(cities.begin(), cities.end(), 0);
  rng.shuffle(std::span(cities));
  cities.resize(static_cast<std::size_t>(count));
  return cities;
}

/// Rates in Gbit/s.
constexpr double kCityRates[] = {0.1, 0.2, 0.5, 1, 1, 2, 5};
constexpr double kSmallRates[] = {0.1, 0.2, 0.2, 0.5, 1};
constexpr double kCityUplinks[] = {1, 2, 5, 10, 20};
constexpr double kSmallUplinks[] = {0.1, 0.2, 0.5, 1};

/// Links inside a city.
struct InsideLinks {
  double latency_ms[2];  // between these
  double gbit_per_s[2];
};
constexpr InsideLinks kDataCentre{{0.05, 0.3}, {5, 50}};
/// Servers of several hosts of a region. What is much nearer can't be emulated: the real way of a
/// frame through one busy machine takes up to 5 ms.
constexpr InsideLinks kRegion{{6, 10}, {1, 5}};

template <std::size_t N>
std::string links_text(const std::vector<int>& cities, const double (&rates)[N],
                       const InsideLinks& inside, Rng& rng, const LinkStretch& stretch = {}) {
  std::string text;
  for (std::size_t a = 0; a < cities.size(); ++a) {
    const City& here = kCityList[cities[a]];
    // One draw a statement: the order in which arguments are evaluated is not defined.
    const double inside_ms = between(inside.latency_ms[0], inside.latency_ms[1], rng);
    const double inside_rate = between(inside.gbit_per_s[0], inside.gbit_per_s[1], rng);
    text += fmt::format("    - {{inside: {}, latency: {:.2f} ms, bandwidth: {:.0f} Gbit/s}}\n",
                        here.name, inside_ms, inside_rate);
    for (std::size_t b = a + 1; b < cities.size(); ++b) {
      const City& there = kCityList[cities[b]];
      const double latency_ms = kilometres(here, there) / 200'000 * 1.5 * 1e3 + 1;
      const double rate = one_of(rates, rng);
      const bool is_pipe = rng.chance(0.2);
      for (const bool back : {false, true}) {
        const double there_ms = stretch.latency * latency_ms * between(0.95, 1.05, rng);
        const double there_rate = stretch.rate * rate * between(0.7, 1.3, rng);
        text += fmt::format(
            "    - {{from: {}, to: {}, latency: {:.2f} ms, bandwidth: {:.4f} Gbit/s{}}}\n",
            back ? there.name : here.name, back ? here.name : there.name, there_ms, there_rate,
            is_pipe ? ", scope: site_pair" : "");
      }
    }
  }
  return text;
}

/// What a site is, but for its nodes.
template <std::size_t N>
std::string site_text(const City& city, const double (&uplinks)[N], Rng& rng,
                      const LinkStretch& stretch = {}) {
  std::string text =
      fmt::format("  - name: {}\n    egress: {:.3f} USD/GB\n", city.name, between(0.01, 0.12, rng));
  if (rng.chance(0.5)) {
    const double uplink = stretch.rate * one_of(uplinks, rng);
    const double downlink = rng.chance(0.5) ? uplink : 2 * uplink;
    text +=
        fmt::format("    uplink: {:.6g} Gbit/s\n    downlink: {:.6g} Gbit/s\n", uplink, downlink);
  }
  return text + "    nodes:\n";
}

std::string head_text(const std::string& name, const std::string& description) {
  return fmt::format(
      "schema: longhaul/cluster/1\nname: {}\ndescription: \"{}\"\nnetwork:\n  links:\n", name,
      description);
}

std::string node_text(const char* kind, int count, Rng& rng) {
  constexpr double kNics[] = {1, 10, 10, 25, 100};  // Gbit/s
  const double nic = one_of(kNics, rng);
  // NVLink, or PCIe.
  const bool is_fast = kind[0] == 'h' || kind[0] == 'a' || kind[0] == 'v';
  return fmt::format(
      "      - {{devices: {}x{}, nic: {} Gbit/s, inside: {{bandwidth: {} GB/s, latency: 10 "
      "us}}}}\n",
      count, kind, nic, is_fast ? 200 : 12);
}

struct Shape {
  const char* name;
  int batch;  // sequences: the tokens of a step that GPT-3's table 2.1 has for the size
  const char* model;
};
constexpr Shape kShapes[] = {
    {"gpt-124m", 512,
     "family: gpt2, layers: 12, width: 768, heads: 12, context: 1024, vocabulary: 50257"},
    {"gpt-350m", 512,
     "family: gpt2, layers: 24, width: 1024, heads: 16, context: 1024, vocabulary: 50257"},
    {"gpt-1.3b", 512,
     "family: gpt2, layers: 24, width: 2048, heads: 16, context: 2048, vocabulary: 50257"},
    {"llama-1b", 512,
     "family: llama, layers: 16, width: 2048, heads: 32, kv_heads: 8, ffn_width: 8192, context: "
     "2048, vocabulary: 128256, tied_embedding: true"},
    {"gpt-2.7b", 512,
     "family: gpt2, layers: 32, width: 2560, heads: 32, context: 2048, vocabulary: 50257"},
    {"llama-7b", 1024,
     "family: llama, layers: 32, width: 4096, heads: 32, kv_heads: 32, ffn_width: 11008, context: "
     "2048, vocabulary: 32000"}};

std::string job_text(const Shape& shape, std::uint64_t seed) {
  Rng rng(fmt::format("random job {}", shape.name), seed);
  constexpr const char* kCodecs[] = {"none", "none", "int8"};
  constexpr double kParts[] = {0.5, 1, 2};
  const int batch = static_cast<int>(shape.batch * one_of(kParts, rng));
  const char* activations = one_of(kCodecs, rng);
  const char* gradients = one_of(kCodecs, rng);
  const bool recompute = rng.chance(0.3);
  return fmt::format(
      "schema: longhaul/job/1\nname: {}\nmodel: {{{}}}\nbatch: {{global: {}, micro_batch: "
      "auto}}\nprecision: fp16\nrecompute: {}\ncompression: {{activations: {}, gradients: {}}}\n",
      shape.name, shape.model, batch, recompute, activations, gradients);
}

Topology parsed(const std::string& text, const std::string& name) {
  Result<Topology> topology = parse_cluster(text, name, ".");
  LH_CHECK(topology.has_value(), "a drawn cluster is a good file");
  return std::move(*topology);
}

}  // namespace

std::string random_cluster_text(std::uint64_t seed, int devices_max) {
  LH_CHECK(devices_max >= 4, "two sites of two devices are the smallest");
  Rng rng("random cluster", seed);
  const int sites = std::min(2 + static_cast<int>(rng.below(7)), std::max(2, devices_max / 2));
  const std::vector<int> cities = some_cities(sites, rng);
  std::vector<const char*> kinds(std::begin(kKinds), std::end(kKinds));
  rng.shuffle(std::span(kinds));
  kinds.resize(1 + rng.index(4));
  std::string text = head_text(fmt::format("random-{}", seed), "drawn at random");
  text += links_text(cities, kCityRates, kDataCentre, rng);
  text += "sites:\n";
  int left = devices_max;
  for (int s = 0; s < sites; ++s) {
    text += site_text(kCityList[cities[static_cast<std::size_t>(s)]], kCityUplinks, rng);
    const int nodes = 1 + static_cast<int>(rng.below(3));
    for (int n = 0; n < nodes; ++n) {
      constexpr int kCounts[] = {1, 2, 4, 8};
      const int wanted = one_of(kCounts, rng);
      // Two devices are kept for each site to come.
      const int count = std::min(wanted == 1 && n == 0 ? 2 : wanted, left - 2 * (sites - s - 1));
      const char* kind = kinds[rng.index(kinds.size())];
      if (count < 1) break;
      left -= count;
      text += node_text(kind, count, rng);
    }
  }
  return text;
}

Topology random_cluster(std::uint64_t seed, int devices_max) {
  return parsed(random_cluster_text(seed, devices_max), fmt::format("random-{}", seed));
}

std::string random_job_text(std::uint64_t seed, const Topology& topology) {
  double memory = 0;
  for (int d = 0; d < topology.device_count(); ++d)
    memory += (topology.kind_of(d).memory - topology.kind_of(d).reserved).value();
  std::string smallest;
  std::vector<std::string> fitting;
  for (const Shape& shape : kShapes) {
    const std::string text = job_text(shape, seed);
    const Result<Job> job = parse_job(text, shape.name);
    LH_CHECK(job.has_value(), "a drawn job is a good file");
    if (smallest.empty()) smallest = text;
    constexpr double kStateBytes = 18;  // of a parameter
    if (kStateBytes * model_parameters(job->model) <= memory / 2) fitting.push_back(text);
  }
  if (fitting.empty()) return smallest;
  Rng rng("random job", seed);
  return fitting[rng.index(fitting.size())];
}

Job random_job(std::uint64_t seed, const Topology& topology) {
  return *parse_job(random_job_text(seed, topology), "random job");
}

std::string small_cluster_text(std::uint64_t seed, const LinkStretch& stretch) {
  Rng rng("small cluster", seed);
  const int sites = 2 + static_cast<int>(rng.below(3));
  const int devices = 4 + static_cast<int>(rng.below(5));
  const std::vector<int> cities = some_cities(sites, rng);
  std::string text = head_text(fmt::format("small-{}", seed), "small servers, drawn at random");
  text += links_text(cities, kSmallRates, kRegion, rng, stretch);
  text += "sites:\n";
  int done = 0;
  for (int s = 0; s < sites; ++s) {
    text += site_text(kCityList[cities[static_cast<std::size_t>(s)]], kSmallUplinks, rng, stretch);
    int left = devices / sites + (s < devices % sites ? 1 : 0);
    while (left > 0) {
      // The first device is of one kind and the last of the other.
      const bool is_half = done > 0 && (done + 1 == devices || rng.chance(0.5));
      text += fmt::format("      - {{devices: {}, nic: 1 Gbit/s}}\n", is_half ? "vps-half" : "vps");
      ++done;
      --left;
    }
  }
  return text;
}

Topology small_cluster(std::uint64_t seed) {
  return parsed(small_cluster_text(seed), "small");
}

std::string city_cluster_text(const CityClusterSize& size, std::uint64_t seed) {
  LH_CHECK(size.sites >= 1 && size.sites <= kCities && size.devices >= size.sites,
           "a site is a city and has a device");
  Rng rng("city cluster", seed);
  const std::vector<int> cities = some_cities(size.sites, rng);
  std::string text = head_text(fmt::format("cities-{}-{}-{}", size.sites, size.devices, seed),
                               "for scale, drawn at random");
  text += links_text(cities, kCityRates, kDataCentre, rng);
  text += "sites:\n";
  for (int s = 0; s < size.sites; ++s) {
    text += site_text(kCityList[cities[static_cast<std::size_t>(s)]], kCityUplinks, rng);
    int left = size.devices / size.sites + (s < size.devices % size.sites ? 1 : 0);
    while (left > 0) {
      constexpr int kDevicesOfNode = 8;
      constexpr const char* kCloudKinds[] = {"a100", "v100", "l4", "h100"};
      const int count = std::min(left, kDevicesOfNode);
      text += node_text(one_of(kCloudKinds, rng), count, rng);
      left -= count;
    }
  }
  return text;
}

Topology city_cluster(const CityClusterSize& size, std::uint64_t seed) {
  return parsed(city_cluster_text(size, seed), "cities");
}

}  // namespace longhaul
