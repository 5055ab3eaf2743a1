#include "netsim/timeline.h"

#include <fmt/core.h>

#include <algorithm>

namespace longhaul {
namespace {

// Threads of one device, in the order in which they are shown.
enum Track { kComputeTrack, kForwardTrack, kBackwardTrack, kReduceTrack, kTracks };

Track track_of(Op op) {
  switch (op) {
    case Op::kSendActivation:
      return kForwardTrack;
    case Op::kSendGradient:
      return kBackwardTrack;
    case Op::kReduce:
    case Op::kTiedReduce:
      return kReduceTrack;
    default:
      return kComputeTrack;
  }
}

std::string_view category_of(Op op) {
  switch (track_of(op)) {
    case kComputeTrack:
      return "compute";
    case kReduceTrack:
      return "reduce";
    default:
      return "transfer";
  }
}

/// JSON string of plain text: names come from files that people wrote.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// Microseconds with picosecond digits, exactly.
std::string microseconds_text(SimTime time) {
  return fmt::format("{}.{:06}", time.picoseconds() / 1000000, time.picoseconds() % 1000000);
}

/// Appends the events of one group; its processes are `first_pid`, one a site, and up.
class GroupWriter {
 public:
  GroupWriter(std::string& out, const Topology& topology, const Plan& plan, int first_pid)
      : out_(out), topology_(topology), plan_(plan), first_pid_(first_pid) {}

  void write(const TimelineGroup& group) {
    name_processes(group.name);
    for (int cell = 0; cell < plan_.stages() * plan_.pipelines(); ++cell) name_threads(cell);
    for (const TimelineSlice& slice : group.slices) write(slice);
  }

 private:
  void event(const std::string& text) {
    if (out_.back() == '}') out_ += ",\n";
    out_ += text;
  }
  const Device& device_of(int cell) const {
    const int device = plan_.device(cell / plan_.stages(), cell % plan_.stages());
    return topology_.devices[static_cast<std::size_t>(device)];
  }
  int process_of(int cell) const { return first_pid_ + device_of(cell).site; }
  static int thread_of(int cell, Track track) { return cell * kTracks + track + 1; }

  void name_processes(const std::string& group) {
    for (int s = 0; s < topology_.site_count(); ++s) {
      const std::string& site = topology_.sites[static_cast<std::size_t>(s)].name;
      event(fmt::format(
          "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}}}",
          first_pid_ + s, json_string(group.empty() ? site : group + " " + site)));
    }
  }

  void name_threads(int cell) {
    constexpr std::string_view suffix[] = {"", " sends activations", " sends gradients",
                                           " reduces"};
    for (const Track track : {kComputeTrack, kForwardTrack, kBackwardTrack, kReduceTrack}) {
      event(fmt::format(
          "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{"
          "\"name\":{}}}}}",
          process_of(cell), thread_of(cell, track),
          json_string(fmt::format("pipeline {} stage {} {}{}", cell / plan_.stages(),
                                  cell % plan_.stages(), device_of(cell).name, suffix[track]))));
    }
  }

  void write(const TimelineSlice& slice) {
    std::string name(name_of(slice.op));
    if (slice.micro_batch >= 0) name += fmt::format(" {}", slice.micro_batch);
    std::string args;
    if (slice.peer >= 0) args = fmt::format("\"to\":{}", json_string(device_of(slice.peer).name));
    event(
        fmt::format("{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},"
                    "\"dur\":{},\"args\":{{{}}}}}",
                    name, category_of(slice.op), process_of(slice.cell),
                    thread_of(slice.cell, track_of(slice.op)), microseconds_text(slice.start),
                    microseconds_text(slice.end - slice.start), args));
  }

  std::string& out_;
  const Topology& topology_;
  const Plan& plan_;
  const int first_pid_;
};

}  // namespace

std::string timeline_json(std::span<const TimelineGroup> groups, const Topology& topology,
                          const Plan& plan) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  int first_pid = 1;
  for (const TimelineGroup& group : groups) {
    GroupWriter(out, topology, plan, first_pid).write(group);
    first_pid += topology.site_count();
  }
  out += "\n]}\n";
  return out;
}

std::string timeline_json(const StepResult& result, const Topology& topology, const Plan& plan) {
  const TimelineGroup group = {"", result.timeline};
  return timeline_json({&group, 1}, topology, plan);
}

}  // namespace longhaul
