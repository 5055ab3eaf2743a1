// What the coordinator, its agents and their workers tell each other before the mesh stands, and
// when processes end.
//
// A message is one JSON document on one line: `schema` longhaul/join/1, `kind`, and the fields of
// its struct below, all of them there, none twice and no others. Between agent and coordinator it
// is the payload of a CONTROL frame; an agent writes WorkerStart and PeerAddresses to a worker's
// stdin, a line each. The 64-bit job is text of 16 hexadecimal digits, because not every reader of
// JSON keeps 64 bits.
//
//   agent         --Join-->  coordinator      in its first frame
//   agent      <--Welcome--  coordinator      or an ERROR frame that says why not
//   agent    --Listening-->  coordinator      for each worker
//   agent    <--Addresses--  coordinator      once all workers of the job listen
//   agent       --Exited-->  coordinator      for each worker that has ended, at any time
//   agent  --AgentFailed-->  coordinator      workers cannot be started
//   agent    <--Terminate--  coordinator      workers are to be ended
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"
#include "executor/control/limits.h"

namespace longhaul {

struct LaunchLimits {
  ControlLimits control;  // heartbeats of an agent's connection
  /// From SIGTERM to SIGKILL.
  Seconds grace{10};
  /// Joins with a wrong token; the one that reaches this number ends the launch.
  int wrong_tokens = 10;
};

/// So many addresses and names fit a frame, whatever agents say.
inline constexpr std::size_t kWorkersMax = 2000;
inline constexpr std::size_t kNodeNameMax = 64;
inline constexpr std::size_t kAddressBytesMax = 300;
/// Longest spec, counted as JSON: with its certificates it fits a frame.
inline constexpr std::size_t kSpecBytesMax = (std::size_t{1} << 20) - (std::size_t{64} << 10);
inline constexpr std::size_t kCertificateBytesMax = std::size_t{16} << 10;
/// Longest line of a worker's stdin.
inline constexpr std::size_t kWorkerLineMax = std::size_t{2} << 20;

struct Join {
  std::string token;
  std::string node;        // empty: any that is free
  std::string public_key;  // PEM, or empty
  std::string host;        // where its workers listen; empty: this end of its connection
};

struct Welcome {
  std::uint64_t job = 0;
  std::string node;
  std::vector<int> ranks;
  std::string spec;
  std::string certificate;  // for the public key; empty without TLS, as is this:
  std::string authority;    // who signs the certificates of the job
};

struct Listening {
  int rank = 0;
  std::string address;
};

/// The mesh's addresses and identities, by rank; see MeshConfig. The coordinator is where its
/// agents have found it: an agent puts that address first.
struct PeerAddresses {
  std::vector<std::string> addresses;
  std::vector<std::string> identities;
};

struct WorkerExited {
  int rank = 0;
  int status = 0;         // 0 where it was ended by a signal
  int signal = 0;         // 0 where it ended itself
  std::string last_line;  // of its log

  bool is_clean() const { return status == 0 && signal == 0; }
  /// `rank 3 exited with status 1: LAST LINE`
  std::string text() const;
};

struct AgentFailed {
  std::string reason;
};

struct Terminate {
  std::string reason;
};

/// A worker's first line.
struct WorkerStart {
  int rank = 0;
  std::uint64_t job = 0;
  std::string node;
  std::string host;    // to listen on, at a port of its own
  std::string folder;  // for its files
  std::string spec;
  std::string authority;  // PEM, all three or none
  std::string certificate;
  std::string key;
};

using LaunchMessage = std::variant<Join, Welcome, Listening, PeerAddresses, WorkerExited,
                                   AgentFailed, Terminate, WorkerStart>;

/// One line, without its end. Text that is not UTF-8 has its wrong bytes replaced.
std::string launch_text(const LaunchMessage& message);
/// Errors (kFailed) name the kind and the field.
Result<LaunchMessage> parse_launch(std::string_view text);

/// A spec must be UTF-8 and not longer than fits.
Result<void> check_spec(std::string_view spec);

/// What a worker prints once it listens, without the line's end: `listening HOST:PORT`.
std::string listening_line(std::string_view address);
/// The address in such a line; empty when it is another line.
std::string address_in_line(std::string_view line);

}  // namespace longhaul
