#include "planner/dtfm_instance_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

constexpr int kDevicesMax = 4096;  // 2 x 128 MiB of matrices

Result<std::string> read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return invalid_at({path, 0, 0}, "the file cannot be opened");
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) return invalid_at({path, 0, 0}, "the file cannot be read");
  return text;
}

Result<std::vector<double>> load_matrix(const std::string& path, int size) {
  LH_ASSIGN(const std::string text, read_text(path));
  return parse_dtfm_matrix(text, path, size);
}

}  // namespace

Result<std::vector<double>> parse_dtfm_matrix(std::string_view text, const std::string& file,
                                              int size) {
  std::vector<double> matrix;
  matrix.reserve(static_cast<std::size_t>(size) * static_cast<std::size_t>(size));
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::size_t line_end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, line_end);
    text.remove_prefix(std::min(line_end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number > size) {
      return invalid_at({file, line_number, 1}, fmt::format("more than {} lines", size));
    }
    int columns = 0;
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      const SourcePlace place = {file, line_number, static_cast<int>(begin) + 1};
      const std::string_view cell = line.substr(begin, end - begin);
      double value = 0;
      const auto [rest, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
      if (error != std::errc{} || rest != cell.data() + cell.size()) {
        return invalid_at(place, fmt::format("'{}' is not a number", cell));
      }
      if (++columns > size) return invalid_at(place, fmt::format("more than {} numbers", size));
      matrix.push_back(value);
      begin = end + 1;
    }
    if (columns < size) {
      return invalid_at({file, line_number, static_cast<int>(line.size()) + 1},
                        fmt::format("{} numbers where {} are wanted", columns, size));
    }
  }
  if (line_number < size) {
    return invalid_at({file, line_number + 1, 1},
                      fmt::format("{} lines where {} are wanted", line_number, size));
  }
  return matrix;
}

Result<DtfmInstance> load_dtfm_matrices(const std::string& latency_file,
                                        const std::string& bandwidth_file) {
  LH_ASSIGN(const std::string latencies, read_text(latency_file));
  const std::string_view first_line = std::string_view(latencies).substr(0, latencies.find('\n'));
  const std::ptrdiff_t columns = std::ranges::count(first_line, ',') + 1;
  if (columns > kDevicesMax) {
    return invalid_at(
        {latency_file, 1, 1},
        fmt::format("{} numbers; at most {} devices can be read", columns, kDevicesMax));
  }
  DtfmInstance instance;
  instance.devices = static_cast<int>(columns);
  LH_ASSIGN(instance.latency_s, parse_dtfm_matrix(latencies, latency_file, instance.devices));
  LH_ASSIGN(instance.gbit_per_s, load_matrix(bandwidth_file, instance.devices));
  for (std::size_t k = 0; k < instance.latency_s.size(); ++k) {
    const auto size = static_cast<std::size_t>(instance.devices);
    const std::size_t from = k / size;
    const std::size_t to = k % size;
    if (from == to) continue;  // never read
    const int line = static_cast<int>(from) + 1;
    const double latency = instance.latency_s[k];
    if (!std::isfinite(latency) || latency < 0) {
      return invalid_at(
          {latency_file, line, 0},
          fmt::format("the latency from device {} to {} cannot be {} ms", from, to, latency));
    }
    const double rate = instance.gbit_per_s[k];
    if (!std::isfinite(rate) || rate <= 0) {
      return invalid_at(
          {bandwidth_file, line, 0},
          fmt::format("the rate from device {} to {} cannot be {} Gbit/s", from, to, rate));
    }
  }
  for (double& latency : instance.latency_s) latency /= 1e3;
  return instance;
}

Result<DtfmInstance> load_dtfm_instance(const std::string& folder, const std::string& name) {
  const std::string stem = folder + "/" + name;
  const std::string meta_file = stem + ".meta.json";
  LH_ASSIGN(const std::string meta_text, read_text(meta_file));
  DtfmInstance instance;
  try {
    const nlohmann::json meta = nlohmann::json::parse(meta_text);
    meta.at("num_devices").get_to(instance.devices);
    meta.at("pipeline_stages_way").get_to(instance.stages);
    meta.at("dp_degree_partition_size").get_to(instance.replicas);
    meta.at("send_gradient_size_gigabytes").get_to(instance.gradient_gb);
    meta.at("send_activation_size_gigabytes").get_to(instance.activation_gb);
  } catch (const nlohmann::json::exception& error) {
    return invalid_at({meta_file, 0, 0}, error.what());
  }
  if (instance.devices < 1 || instance.devices > kDevicesMax) {
    return invalid_at({meta_file, 0, 0}, fmt::format("num_devices is {}, not between 1 and {}",
                                                     instance.devices, kDevicesMax));
  }
  LH_ASSIGN(instance.latency_s, load_matrix(stem + ".delay_ms.csv", instance.devices));
  for (double& latency : instance.latency_s) latency /= 1e3;
  LH_ASSIGN(instance.gbit_per_s, load_matrix(stem + ".bandwidth_gbps.csv", instance.devices));
  if (auto status = check_dtfm_instance(instance); !status) {
    return within(stem, std::move(status).error());
  }
  return instance;
}

}  // namespace longhaul
