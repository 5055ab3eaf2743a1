// Control messages between the coordinator and the workers, and their text.
//
// A message is one line of ASCII, `LHC1 KIND FIELD=VALUE ...`, of at most kMaxControlPayload bytes:
//
//   LHC1 prepared step=7 finite=true loss=0x1.8p+1 gradient=HASH weights=HASH squares=0x1p+0,0x1p-4
//   LHC1 commit step=7 norm=0x1.08p+0 decision=apply     (or skip)
//   LHC1 stop clean=false reason=rank 3 answered none of 6 heartbeats
//   LHC1 stopped committed=8
//   LHC1 failed about=3 reason=connection reset by peer
//   LHC1 ping number=41      LHC1 pong number=41
//
// Those are the commit protocol's. Beside it a worker tells, and a coordinator answers:
//
//   LHC1 validated step=50 loss=0x1.8p+9 targets=4096
//   LHC1 saved step=100 files=head.safetensors:4096:HASH32,...     LHC1 kept step=100 oldest=50
//   LHC1 measured step=7 origin=... start=0x1p+2 compute=... wait=... reduce=... commit=...
//     update=... sent=PEER:BYTES:RAW,...
//   LHC1 times step=7 origin=... spans=0x1p+2:0x1.2p+2,...
//   LHC1 histories step=7 first=0 deltas=30 whole=2 healed=1
//   LHC1 recoded step=7 peer=2 tensors=activations from=int8 to=int4 busy=0x1p+0 compute=0x1p-1
//
// One space between fields, in any order; `reason` comes last and takes the rest of the line,
// spaces included. Whole numbers are decimal without leading zeros, HASH is 16 lower-case
// hexadecimal digits, and fp64 numbers are C's hexadecimal floats, `inf`, `-inf` or `nan`: exact. A
// field that is unknown, missing or there twice is an error that names it, and so is a value that
// is not in its range: a peer that speaks otherwise is not of this version. `LHC1` names the
// version.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/codec.h"
#include "core/result.h"
#include "executor/checkpoint/layer_files.h"

namespace longhaul {

/// What becomes of a step whose gradients are reduced.
enum class Decision { kApply, kSkip };
std::string_view name_of(Decision decision);

/// A worker holds the reduced gradient of its whole stage and has not updated.
struct Prepared {
  std::uint64_t step = 0;
  bool finite = true;  // every element of its reduced gradient
  /// This worker's part of the step's loss: parts of all workers add up. 0 but at the last stage.
  double loss = 0;
  std::uint64_t gradient_hash = 0;
  std::uint64_t weights_hash = 0;  // before the update of this step
  /// Of the reduced gradient, one a tensor of the stage, in model order. Not negative; may be inf
  /// or nan.
  std::vector<double> squares;
};

/// The step is journalled.
struct Commit {
  std::uint64_t step = 0;
  double norm = 0;  // global 2-norm before clipping; inf or nan where the step is skipped
  Decision decision = Decision::kApply;
};

/// Finish what was committed, then do no more.
struct Stop {
  bool clean = true;  // false: something failed, and `reason` is the first cause
  std::string reason;
};

/// A worker's last word.
struct Stopped {
  std::uint64_t committed = 0;  // steps behind its weights
};

/// A worker cannot go on.
struct Failed {
  int about = 0;  // the rank that it blames: its own, or a peer that it lost
  std::string reason;
};

struct Ping {
  std::uint64_t number = 0;  // counted from 1
};
struct Pong {
  std::uint64_t number = 0;  // of the ping that it answers
};

// ---- beside the commit protocol

/// What a last stage's forwards over its part of the validation sequences gave.
struct Validated {
  std::uint64_t step = 0;  // steps behind the weights
  double loss = 0;         // sum over the targets, nats
  std::uint64_t targets = 0;
};

/// The files of the worker's parts are durable on its disk.
struct Saved {
  std::uint64_t step = 0;
  std::vector<CheckpointFile> files;
};
/// The coordinator wants nothing more of the checkpoint: it exists, or could not be kept. Those of
/// fewer steps than `oldest` may go.
struct Kept {
  std::uint64_t step = 0;
  std::uint64_t oldest = 0;
};

/// Where a worker's step went, and what it sent.
struct Measured {
  std::uint64_t step = 0;
  /// When the times below are 0, in nanoseconds of a clock that processes of one machine share.
  std::uint64_t origin_ns = 0;
  double start = 0;    // s; all others are durations
  double compute = 0;  // forwards, recomputations, backwards
  double wait = 0;     // between the first of them and the last, for tensors to come
  double reduce = 0;   // from the last backward until the gradients are reduced
  double commit = 0;   // until the coordinator's commit
  double update = 0;
  struct Sent {
    int peer = 0;  // rank
    std::uint64_t bytes = 0;
    std::uint64_t raw = 0;  // before codecs
    bool operator==(const Sent&) const = default;
  };
  std::vector<Sent> sent;  // by peer, ascending
};

/// Start and end of every instruction of a step, for a timeline.
struct Times {
  std::uint64_t step = 0;
  std::uint64_t origin_ns = 0;
  std::vector<std::pair<double, double>> spans;  // s since the origin, by instruction
};

/// How the sequences of a step left a worker whose activations have histories (executor/history).
/// Told before Measured.
struct HistoryVisits {
  std::uint64_t step = 0;
  std::uint64_t first = 0;   // whole, and remembered
  std::uint64_t deltas = 0;  // as differences to what both ends remember
  std::uint64_t whole = 0;   // for want of room
  std::uint64_t healed = 0;  // of the differences: the receiver had lost what they were to
  HistoryVisits& operator+=(const HistoryVisits& other) {
    first += other.first;
    deltas += other.deltas;
    whole += other.whole;
    healed += other.healed;
    return *this;
  }
  std::uint64_t sequences() const { return first + deltas + whole; }
};

/// What a worker sends to a neighbour is written otherwise from the next step on, because its link
/// is slower or faster than was thought.
struct Recoded {
  std::uint64_t step = 0;
  int peer = 0;                // rank
  bool are_gradients = false;  // else activations
  Codec from = Codec::kNone;
  Codec to = Codec::kNone;
  double busy = 0;     // s, sending them in that step
  double compute = 0;  // s, the worker's own work in it
};

using ControlMessage = std::variant<Prepared, Commit, Stop, Stopped, Failed, Ping, Pong, Validated,
                                    Saved, Kept, Measured, Times, HistoryVisits, Recoded>;

/// Bytes of a reason that are not printable ASCII become `?`; reasons longer than kReasonBytesMax
/// (limits.h) are cut.
std::string control_text(const ControlMessage& message);

/// Errors (kFailed) name the kind and the field.
Result<ControlMessage> parse_control(std::string_view text);

/// An fp64 number as it is written here.
std::string exact_text(double value);
/// Reads what exact_text writes; false when `text` is something else.
[[nodiscard]] bool parse_exact(std::string_view text, double& value);
/// A whole number without sign or leading zero; false when `text` is something else.
[[nodiscard]] bool parse_whole(std::string_view text, std::uint64_t max, std::uint64_t& value);
/// Same bits, or both not a number.
bool same_number(double a, double b);

}  // namespace longhaul
