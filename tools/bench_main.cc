// longhaul-bench SUITE [--quick | --full] [--threads N]; SUITE is a name of the table below or
// `all`. `codec` takes a safetensors file, too.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tools/bench.h"

namespace {

struct Suite {
  const char* name;
  int (*run)(bool quick, int threads);
  int (*run_full)(int threads) = nullptr;                        // where --full is more
  int (*run_on)(bool quick, const std::string& file) = nullptr;  // where a file may be given
};
int run_codec(bool quick, int) {
  return longhaul::bench_codec(quick, "");
}

constexpr Suite kSuites[] = {
    {"cities", longhaul::bench_cities},
    {"clusters", longhaul::bench_clusters, longhaul::bench_clusters_full},
    {"codec", run_codec, nullptr, longhaul::bench_codec},
    {"compression", longhaul::bench_compression, longhaul::bench_compression_full},
    {"compute", longhaul::bench_compute},
    {"data", longhaul::bench_data},
    {"dtfm", longhaul::bench_dtfm},
    {"fidelity", longhaul::bench_fidelity, longhaul::bench_fidelity_full},
    {"kernels", longhaul::bench_kernels},
    {"netsim", longhaul::bench_netsim},
    {"order", longhaul::bench_order},
    {"planner", longhaul::bench_planner},
    {"scale", longhaul::bench_scale, longhaul::bench_scale_full},
    {"simgrid", longhaul::bench_simgrid},
    {"tcp", longhaul::bench_tcp, longhaul::bench_tcp_full}};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures longhaul and compares with targets.", "longhaul-bench");
  std::string wanted;
  bool quick = false;
  bool full = false;
  int threads = 1;
  std::vector<std::string> names = {"all"};
  for (const Suite& suite : kSuites) names.emplace_back(suite.name);
  app.add_option("suite", wanted, "suite to run")->required()->check(CLI::IsMember(names));
  std::string file;
  app.add_option("file", file, "codec: a safetensors file whose tensors are measured, too");
  CLI::Option* is_quick = app.add_flag("--quick", quick, "fewer instances and repetitions");
  app.add_flag("--full", full, "more of them, where a suite has more; hours")->excludes(is_quick);
  app.add_option("--threads", threads, "threads of a search")->check(CLI::Range(1, 256));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto chosen =
      std::ranges::find_if(kSuites, [&](const Suite& suite) { return suite.name == wanted; });
  if (!file.empty() && (chosen == std::end(kSuites) || chosen->run_on == nullptr)) {
    fmt::print(stderr, "error: the suite {} takes no file\n", wanted);
    return 2;
  }
  if (!file.empty()) return chosen->run_on(quick, file);
  int status = 0;
  for (const Suite& suite : kSuites) {
    if (wanted != "all" && wanted != suite.name) continue;
    const int outcome =
        full && suite.run_full != nullptr ? suite.run_full(threads) : suite.run(quick, threads);
    // A suite that could not run outweighs one whose figures miss their targets.
    if (status == 0 || (status == 3 && outcome != 0)) status = outcome;
  }
  return status;
}
