// A small HTTP/1.1 server for one page that programs ask for again and again, on the event loop of
// the process that has the figures: a scrape costs it the time to write the page down.
//
// It answers GET and HEAD of the page, 404 elsewhere, 405 to other methods, 400 to what is no
// HTTP; keeps connections open as HTTP says. Nobody can make it wait or grow: so many connections,
// so large a request and so long a time for it are all that one can have (HttpLimits), and what
// comes in a request's body is never kept.
//
// No TLS and no passwords: listen on the loopback, or behind something that has both.
//
// Belongs to the loop's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

class AsioRuntime;

struct HttpPage {
  std::string content_type;
  std::string body;
};

struct HttpLimits {
  std::size_t connections = 32;         // more wait until one ends
  std::size_t header_bytes = 8192;      // of a request; twice as many are refused for sure
  Seconds request_deadline{10};         // from its first byte to its answer's last
  Seconds idle_deadline{90};            // between requests of one connection
  std::size_t drained_bytes = 1 << 20;  // of a body, read so that the sender sees the answer
};

class HttpServer {
 public:
  /// Makes the page, for a request with this `Accept` header.
  using Page = std::function<HttpPage(std::string_view accept)>;

  /// Listens on `host:port`; port 0 is any that is free. Errors: an address that is none, or that
  /// cannot be listened on. The runtime outlives the server.
  static Result<std::unique_ptr<HttpServer>> listen(AsioRuntime& runtime,
                                                    const std::string& address,
                                                    const std::string& path, Page page,
                                                    const HttpLimits& limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Where it listens.
  const std::string& address() const { return address_; }

 private:
  struct State;
  HttpServer(std::shared_ptr<State> state, std::string address);

  std::shared_ptr<State> state_;  // owners: this and its connections
  std::string address_;
};

}  // namespace longhaul
