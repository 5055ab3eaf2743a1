// Runs flows in SimGrid, the judge of our flow network. tools/simgrid compiles it against the
// distribution's packages; nothing else of ours is in it.
//
//   judge [--cfg=NAME:VALUE...] PLATFORM.xml FLOWS
//
// Each line of FLOWS is a flow: start in seconds, sender, receiver, bytes; by their start. It
// prints SimGrid's version, the options that decide the result, the processor and wall seconds of
// the simulation proper (platform and flows have been read before), and the end of each flow in the
// order of the file. Exit status 2 for wrong usage or input.
//
// One actor starts all flows, each as a communication between two hosts without mailbox or
// receiver. That is the cheapest of SimGrid's public ways: no context is switched but when the
// actor sleeps until the next start.
#include <simgrid/s4u.hpp>
// It does not include what it needs.
#include <simgrid/version.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>
#include <xbt/config.hpp>

namespace s4u = simgrid::s4u;

namespace {

struct Flow {
  double start = 0;
  s4u::Host* from = nullptr;
  s4u::Host* to = nullptr;
  std::uint64_t bytes = 0;
  s4u::CommPtr comm;
};

int usage() {
  std::fprintf(stderr, "usage: judge [--cfg=NAME:VALUE...] PLATFORM.xml FLOWS\n");
  return 2;
}

bool read_flows(const char* path, const s4u::Engine& engine, std::vector<Flow>& flows) {
  std::ifstream stream(path);
  Flow flow;
  for (std::string from, to; stream >> flow.start >> from >> to >> flow.bytes;) {
    flow.from = engine.host_by_name_or_null(from);
    flow.to = engine.host_by_name_or_null(to);
    const bool in_order = flows.empty() || flow.start >= flows.back().start;
    if (flow.from == nullptr || flow.to == nullptr || !in_order) return false;
    flows.push_back(flow);
  }
  return stream.eof() && !flows.empty();
}

void start_all(std::vector<Flow>& flows) {
  for (Flow& flow : flows) {
    if (flow.start > s4u::Engine::get_clock()) s4u::this_actor::sleep_until(flow.start);
    flow.comm = s4u::Comm::sendto_init(flow.from, flow.to);
    flow.comm->set_payload_size(flow.bytes);
    flow.comm->detach();
  }
}

void print_options() {
  for (const char* name : {"network/latency-factor", "network/bandwidth-factor", "network/weight-S",
                           "network/TCP-gamma", "maxmin/precision", "surf/precision"}) {
    std::printf("option %s %.17g\n", name, simgrid::config::get_value<double>(name));
  }
  std::printf("option network/crosstraffic %d\n",
              static_cast<int>(simgrid::config::get_value<bool>("network/crosstraffic")));
  for (const char* name : {"network/model", "network/optim"}) {
    std::printf("option %s %s\n", name, simgrid::config::get_value<std::string>(name).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);  // takes the --cfg options away
  if (argc != 3) return usage();
  engine.load_platform(argv[1]);
  std::vector<Flow> flows;
  if (!read_flows(argv[2], engine, flows)) {
    std::fprintf(stderr, "judge: %s is not a list of flows by their start\n", argv[2]);
    return 2;
  }
  s4u::Actor::create("sender", flows.front().from, [&flows] { start_all(flows); });

  const std::clock_t processor = std::clock();
  const auto wall = std::chrono::steady_clock::now();
  engine.run();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - wall;
  const double processor_s =
      static_cast<double>(std::clock() - processor) / static_cast<double>(CLOCKS_PER_SEC);

  std::printf("simgrid %d.%d.%d\n", SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR,
              SIMGRID_VERSION_PATCH);
  print_options();
  std::printf("processor_s %.6f\nwall_s %.6f\n", processor_s, taken.count());
  for (const Flow& flow : flows) std::printf("%.17g\n", flow.comm->get_finish_time());
  return 0;
}
