#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "tools/bench.h"

namespace longhaul {
namespace {

std::string machine() {
  std::string name = "unknown processor";
  std::ifstream cpu_info("/proc/cpuinfo");
  for (std::string line; std::getline(cpu_info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) name = line.substr(colon + 2);
    break;
  }
  return fmt::format("{}, {} threads", name, std::thread::hardware_concurrency());
}

}  // namespace

int report(const std::string& suite, const std::vector<BenchFigure>& figures) {
  std::size_t width = 6;
  for (const BenchFigure& figure : figures) width = std::max(width, figure.name.size());
  fmt::print("{:<{}}  {:>14}  {:>14}  {:<6}  {:<6}  {:<5}  {}\n", "figure", width, "value",
             "target", "unit", "better", "holds", "peer");
  bool all_hold = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const std::string machine_name = machine();
  for (const BenchFigure& figure : figures) {
    fmt::print("{:<{}}  {:>14.7g}  {:>14.7g}  {:<6}  {:<6}  {:<5}  {}\n", figure.name, width,
               figure.value, figure.target, figure.unit, figure.better, figure.holds ? "yes" : "NO",
               figure.peer);
    all_hold = all_hold && figure.holds;
    list.push_back({{"name", figure.name},
                    {"value", figure.value},
                    {"unit", figure.unit},
                    {"target", figure.target},
                    {"better", figure.better},
                    {"holds", figure.holds},
                    {"peer", figure.peer},
                    {"command", figure.command},
                    {"machine", machine_name}});
  }
  const std::filesystem::path path = std::filesystem::path("build/bench") / (suite + ".json");
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream stream(path);
  stream << list.dump(2) << '\n';
  stream.close();
  if (!stream) {
    fmt::print(stderr, "error: {} cannot be written\n", path.string());
    return 1;
  }
  fmt::print(stderr, "wrote {}\n", path.string());
  return all_hold ? 0 : 3;
}

double peak_gibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1024 * 1024);
}

}  // namespace longhaul
