// Instances of DT-FM's problem for tests, and the lowest cost by trying everything.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/rng.h"
#include "planner/dtfm_instance_file.h"
#include "planner/dtfm_objective.h"

namespace longhaul {

inline const std::string kGoldenDtfm = LONGHAUL_SOURCE_DIR "/tests/golden/dtfm";

inline DtfmInstance golden_dtfm(const std::string& name) {
  auto instance = load_dtfm_instance(kGoldenDtfm, name);
  EXPECT_TRUE(instance) << instance.error().text();
  return *instance;
}

/// From best.json, a flat object of numbers.
inline double best_known_dtfm(const std::string& name) {
  std::ifstream file(kGoldenDtfm + "/best.json");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t key = text.find("\"" + name + "\":");
  EXPECT_NE(key, std::string::npos) << name;
  return key == std::string::npos ? 0 : std::stod(text.substr(text.find(':', key) + 1));
}

struct DtfmShape {
  int stages;
  int replicas;
};

/// Devices in random sites; one latency and one rate for each pair of sites (and direction).
inline DtfmInstance random_dtfm(const DtfmShape& shape, int sites, bool symmetric, Rng& rng) {
  DtfmInstance instance;
  instance.stages = shape.stages;
  instance.replicas = shape.replicas;
  instance.devices = shape.stages * shape.replicas;
  instance.gradient_gb = 0.65;
  instance.activation_gb = 0.47;
  std::vector<std::size_t> site;
  for (int i = 0; i < instance.devices; ++i)
    site.push_back(rng.index(static_cast<std::size_t>(sites)));
  const auto width = static_cast<std::size_t>(sites);
  std::vector<double> latency(width * width);
  std::vector<double> rate(width * width);
  for (std::size_t a = 0; a < width; ++a) {
    for (std::size_t b = 0; b < width; ++b) {
      latency[a * width + b] = a == b ? 0.005 : 0.01 + 0.2 * rng.uniform();
      rate[a * width + b] = a == b ? 2 : 0.3 + rng.uniform();
      if (symmetric && b < a) {
        latency[a * width + b] = latency[b * width + a];
        rate[a * width + b] = rate[b * width + a];
      }
    }
  }
  for (const std::size_t a : site) {
    for (const std::size_t b : site) {
      instance.latency_s.push_back(latency[a * width + b]);
      instance.gbit_per_s.push_back(rate[a * width + b]);
    }
  }
  return instance;
}

/// The cheapest of all ordered partitions.
inline DtfmCost cheapest_of_all(const DtfmInstance& instance) {
  std::vector<int> label;
  for (int s = 0; s < instance.stages; ++s) {
    label.insert(label.end(), static_cast<std::size_t>(instance.replicas), s);
  }
  DtfmCost best;
  best.total_s = 1e300;
  do {
    DtfmPartition partition(static_cast<std::size_t>(instance.stages));
    for (std::size_t device = 0; device < label.size(); ++device) {
      partition[static_cast<std::size_t>(label[device])].push_back(static_cast<int>(device));
    }
    const DtfmCost cost = evaluate_dtfm_in_order(instance, partition);
    if (cost.total_s < best.total_s) best = cost;
  } while (std::ranges::next_permutation(label).found);
  return best;
}

}  // namespace longhaul
