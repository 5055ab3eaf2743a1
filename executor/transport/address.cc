#include "executor/transport/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <utility>

namespace longhaul {

Result<std::pair<std::string, std::string>> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = host_of_address(address);
  if (colon == std::string::npos || host.empty() || colon + 1 == address.size()) {
    return invalid(fmt::format("`{}` is not an address", address),
                   "write host:port, such as 10.0.0.2:7000");
  }
  std::string port = address.substr(colon + 1);
  // The resolver would take it modulo 65536.
  const bool is_number = port.find_first_not_of("0123456789") == std::string::npos;
  if (is_number && (port.size() > 5 || std::stoi(port) > 65535)) {
    return invalid(fmt::format("there is no port {}", port), "ports are 0 to 65535");
  }
  return std::pair(std::move(host), std::move(port));
}

std::string host_of_address(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

bool is_loopback_address(const std::string& address) {
  const std::string host = host_of_address(address);
  in_addr ip{};
  if (inet_pton(AF_INET, host.c_str(), &ip) == 1) return ntohl(ip.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

}  // namespace longhaul
