// Platforms and flows drawn at random, once as SimGrid reads them and once for our flow network, to
// hold the two against each other (suite `simgrid`, tests/tools/simgrid_test).
//
// The model is SimGrid's CM02 with TCP-gamma 0 and no cross-traffic: for the latency of its route
// a flow takes nothing, then it shares every link max-min fairly in inverse proportion to that
// latency. Hosts sit behind links of their own, sites behind shared ones, and two sites are joined
// by one or two of a few shared trunks; every link carries one direction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace longhaul {

struct FlowScene {
  struct Link {
    double rate = 0;  // bytes a second
    double latency_s = 0;
  };
  struct Route {
    int from = 0;  // hosts
    int to = 0;
    std::vector<int> links;
  };
  struct Flow {
    double start_s = 0;
    int route = 0;
    std::uint64_t bytes = 0;
  };
  int hosts = 0;
  std::vector<Link> links;
  std::vector<Route> routes;  // of the pairs of hosts that have flows
  std::vector<Flow> flows;    // by their start

  double latency_s(const Route& route) const;
};

struct SceneSize {
  int hosts = 0;
  int sites = 0;
  int flows = 0;
  double window_s = 0;  // in which all flows start
};
FlowScene random_scene(const SceneSize& size, std::uint64_t seed);
/// The same of 4 to 24 hosts in 2 to 6 sites with 100 to 400 flows.
FlowScene small_random_scene(std::uint64_t seed);

struct FlowRun {
  std::vector<double> end_s;  // of each flow
  double processor_s = 0;     // of the simulation proper: links and flows were read before
};
/// In our flow network.
FlowRun run_flows(const FlowScene& scene);

struct SimgridCall {
  std::string root = ".";    // of the source tree, where tools/simgrid has made the judge
  bool updates_all = false;  // network/optim:Full instead of SimGrid's default Lazy: the rate of
                             // every flow is brought up to date at every event
};
struct SimgridRun : FlowRun {
  std::string version;
  std::vector<std::string> options;  // what decides its results: NAME VALUE
};
/// In SimGrid, by way of files in build/simgrid.
Result<SimgridRun> run_flows_in_simgrid(const FlowScene& scene, const SimgridCall& call);

/// The largest difference of two runs in the time that a flow takes; infinite if one never ends.
double worst_relative_difference(const FlowScene& scene, const FlowRun& ours, const FlowRun& other);
/// Flows that are under way, in the mean over the time until the last has ended.
double mean_flows_at_once(const FlowScene& scene, const FlowRun& run);

}  // namespace longhaul
