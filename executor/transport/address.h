// Addresses as people write them: `host:port`, `[v6]:port`. Pure; any thread.
#pragma once

#include <string>
#include <utility>

#include "core/result.h"

namespace longhaul {

/// Host, without the brackets of an IPv6 address, and port. Error: kInvalid.
Result<std::pair<std::string, std::string>> split_address(const std::string& address);

/// What stands before the port, without the brackets of an IPv6 address.
std::string host_of_address(const std::string& address);

/// Whether only this machine reaches it. No name but `localhost` is taken for one: what others mean
/// is decided elsewhere.
bool is_loopback_address(const std::string& address);

}  // namespace longhaul
