// The Transport door of an emulated run: a transport that behaves in time like the links of a
// SharedPage, around one that carries the bytes (TCP over loopback, or SimTransport in tests).
//
// The HELLO of a mesh (transport_mesh.h) says who is at the two ends of a connection: `sender` is
// the rank that sends it, `segment` the rank it is meant for. HELLO and what comes before it is not
// delayed; after it every frame is:
//
//   kData     waits its turn on the channel (from rank, to rank) and leaves after payload bytes x
//             wire factor / rate, where the rate is what the page gives the channel meanwhile. All
//             connections from one rank to another share the channel, first come first served.
//   others    take no bandwidth and do not wait for data: they leave at once. So control frames
//             and data do not keep their order among each other; each kind does.
//
// A frame arrives, at the handler of the other end, one latency after it left. It is given to the
// inner transport as it leaves and held back at the other end, which can so tell when it is late:
// the time of arrival travels ahead of each frame, in one of its own without a payload:
//
//   type kCredit, flags 0x4000, `offset` the time of arrival on CLOCK_MONOTONIC in nanoseconds
//
// Both ends must therefore be emulated. Differences from the promises of the door, all of them to
// its benefit or without effect on the mesh:
// - A payload is received into memory of this transport; `buffer_for` is called when the frame is
//   due, right before `received`. A handler is asked for one buffer at a time (a mesh relies on
//   it), while many frames are on their way. At most kHeldBytesMax wait at a connection.
// - `closed` comes one latency after the inner connection ended, so after all frames that had left.
//   Frames that had not left are lost.
//
// Timers only wake: times are computed from the page, so a late timer delays nothing that comes
// later. Everything belongs to the thread of the loop.
#pragma once

#include <cstddef>
#include <memory>

#include "executor/emulation/shared_page.h"
#include "executor/transport/transport.h"

namespace longhaul {

/// More than any real path has in flight: 10 Gbit/s for 0.8 s.
inline constexpr std::size_t kHeldBytesMax = std::size_t{1} << 30;

/// `loop` and `page` must outlive the transport and its connections. `clock` is the page's clock; a
/// simulation gives its own. One emulated transport of a process sends for a rank.
std::unique_ptr<Transport> make_emulated_transport(std::unique_ptr<Transport> inner,
                                                   EventLoop& loop, SharedPage& page,
                                                   WallClock clock = monotonic_nanoseconds);

}  // namespace longhaul
