// The real side of the ProcessHost door: libuv on a thread of its own. Children get no other
// descriptor of this process than their stdin, stdout and stderr, and are killed with the children
// of their own, as far as these have stayed in their session.
#pragma once

#include <memory>

#include "executor/launch/process_host.h"

namespace longhaul {

/// The loop must outlive the host.
std::unique_ptr<ProcessHost> make_uv_process_host(EventLoop& loop);

}  // namespace longhaul
