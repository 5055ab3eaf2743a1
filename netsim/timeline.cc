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

}  // namespace

std::string timeline_json(const StepResult& result, const Topology& topology, const Plan& plan) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const auto event = [&](const std::string& text) {
    if (out.back() == '}') out += ",\n";
    out += text;
  };
  for (int s = 0; s < topology.site_count(); ++s) {
    event(fmt::format(
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}}}", s + 1,
        json_string(topology.sites[static_cast<std::size_t>(s)].name)));
  }
  const auto thread_of = [&](int cell, Track track) { return cell * kTracks + track + 1; };
  const auto device_of = [&](int cell) {
    return static_cast<std::size_t>(plan.device(cell / plan.stages(), cell % plan.stages()));
  };
  const int cells = plan.stages() * plan.pipelines();
  for (int cell = 0; cell < cells; ++cell) {
    const Device& device = topology.devices[device_of(cell)];
    constexpr std::string_view suffix[] = {"", " sends activations", " sends gradients",
                                           " reduces"};
    for (const Track track : {kComputeTrack, kForwardTrack, kBackwardTrack, kReduceTrack}) {
      event(
          fmt::format("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{"
                      "\"name\":{}}}}}",
                      device.site + 1, thread_of(cell, track),
                      json_string(fmt::format("pipeline {} stage {} {}{}", cell / plan.stages(),
                                              cell % plan.stages(), device.name, suffix[track]))));
    }
  }
  for (const TimelineSlice& slice : result.timeline) {
    std::string name(name_of(slice.op));
    if (slice.micro_batch >= 0) name += fmt::format(" {}", slice.micro_batch);
    std::string args;
    if (slice.peer >= 0)
      args = fmt::format("\"to\":{}", json_string(topology.devices[device_of(slice.peer)].name));
    event(
        fmt::format("{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},"
                    "\"dur\":{},\"args\":{{{}}}}}",
                    name, category_of(slice.op), topology.devices[device_of(slice.cell)].site + 1,
                    thread_of(slice.cell, track_of(slice.op)), microseconds_text(slice.start),
                    microseconds_text(slice.end - slice.start), args));
  }
  out += "\n]}\n";
  return out;
}

}  // namespace longhaul
