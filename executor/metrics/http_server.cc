#include "executor/metrics/http_server.h"

#include <fmt/core.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "executor/transport/address.h"
#include "executor/transport/asio_transport.h"

namespace longhaul {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

std::chrono::nanoseconds duration_of(Seconds seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds.value()));
}

std::string text_of(const tcp::endpoint& endpoint) {
  return fmt::format(fmt::runtime(endpoint.address().is_v6() ? "[{}]:{}" : "{}:{}"),
                     endpoint.address().to_string(), endpoint.port());
}

struct Answer {
  int status = 200;
  std::string reason = "OK";
  HttpPage page;
  std::string more_headers;  // each with its line's end
};

Answer refusal(int status, std::string reason, std::string_view says) {
  return {status, std::move(reason), {"text/plain; charset=utf-8", std::string(says) + "\n"}, ""};
}

/// Whether what was read is no HTTP, rather than not there.
bool is_garbage(const error_code& error) {
  return error.category() == make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

struct HttpServer::State : std::enable_shared_from_this<State> {
  class Client;

  State(asio::io_context& context, std::string path_of_page, Page page_maker,
        const HttpLimits& its_limits)
      : acceptor(context),
        path(std::move(path_of_page)),
        page(std::move(page_maker)),
        limits(its_limits) {}

  void accept();
  void left(Client* client);
  void close();

  tcp::acceptor acceptor;
  const std::string path;
  const Page page;
  const HttpLimits limits;
  std::set<Client*> clients;
  bool is_accepting = false;
  bool is_closed = false;
};

/// One connection; alive while an operation of it is in flight.
class HttpServer::State::Client : public std::enable_shared_from_this<Client> {
 public:
  Client(std::shared_ptr<State> state, tcp::socket socket)
      : state_(std::move(state)), stream_(std::move(socket)), buffer_(state_->limits.header_bytes) {
    state_->clients.insert(this);
  }
  ~Client() { state_->left(this); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void wait_for_request() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(state_->limits.header_bytes));
    parser_->body_limit(boost::none);  // a body is not kept, however long
    if (buffer_.size() > 0) return read_request();
    stream_.expires_after(duration_of(state_->limits.idle_deadline));
    stream_.async_read_some(buffer_.prepare(std::min<std::size_t>(buffer_.max_size(), 1024)),
                            [self = shared_from_this()](const error_code& error, std::size_t size) {
                              if (error) return self->close();
                              self->buffer_.commit(size);
                              self->read_request();
                            });
  }

  void close() {
    error_code ignored;
    stream_.socket().close(ignored);
  }

 private:
  void read_request() {
    stream_.expires_after(duration_of(state_->limits.request_deadline));
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](const error_code& error, std::size_t) {
          if (!error) return self->answer();
          if (error == http::error::header_limit || error == http::error::buffer_overflow) {
            return self->send(refusal(431, "Request Header Fields Too Large",
                                      "a request's headers are short here"),
                              false);
          }
          if (!is_garbage(error)) return self->close();  // it has left, or was too slow
          self->send(refusal(400, "Bad Request", "this is no HTTP request"), false);
        });
  }

  void answer() {
    const auto& request = parser_->get();
    // The rest of a request with a body would be read as the next one.
    const bool is_kept = request.keep_alive() && parser_->is_done();
    send(answer_to(request), is_kept);
  }

  Answer answer_to(const http::request<http::empty_body>& request) const {
    if (request.version() >= 11 && request.find(http::field::host) == request.end()) {
      return refusal(400, "Bad Request", "an HTTP/1.1 request names its host");
    }
    const std::string_view target = request.target();
    if (target.substr(0, target.find('?')) != state_->path) {
      return refusal(404, "Not Found", fmt::format("there is only {} here", state_->path));
    }
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      Answer answer = refusal(405, "Method Not Allowed", "there is only GET here");
      answer.more_headers = "Allow: GET, HEAD\r\n";
      return answer;
    }
    Answer answer;
    answer.page = state_->page(std::string_view(request[http::field::accept]));
    return answer;
  }

  void send(const Answer& answer, bool is_kept) {
    const auto& request = parser_->get();
    out_ = fmt::format(
        "HTTP/1.{} {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: {}\r\n\r\n",
        request.version() == 10 ? 0 : 1, answer.status, answer.reason, answer.page.content_type,
        answer.page.body.size(), answer.more_headers, is_kept ? "keep-alive" : "close");
    if (request.method() != http::verb::head) out_ += answer.page.body;
    asio::async_write(stream_, asio::buffer(out_),
                      [self = shared_from_this(), is_kept](const error_code& error, std::size_t) {
                        if (error) return self->close();
                        if (is_kept) return self->wait_for_request();
                        self->say_goodbye();
                      });
  }

  /// Closing a socket with bytes unread resets the connection, and the caller might lose the
  /// answer: what it still sends is read first, within limits.
  void say_goodbye() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    drain();
  }

  void drain() {
    stream_.async_read_some(asio::buffer(drained_), [self = shared_from_this()](
                                                        const error_code& error, std::size_t size) {
      self->drained_bytes_ += size;
      if (error || self->drained_bytes_ > self->state_->limits.drained_bytes) {
        return self->close();
      }
      self->drain();
    });
  }

  const std::shared_ptr<State> state_;  // owners: see HttpServer
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::string out_;
  std::array<char, 4096> drained_;
  std::size_t drained_bytes_ = 0;
};

void HttpServer::State::accept() {
  if (is_closed || is_accepting || clients.size() >= limits.connections) return;
  is_accepting = true;
  acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
    self->is_accepting = false;
    if (self->is_closed) return;
    // A caller that left again, or no file descriptors: neither ends the listening.
    if (!error) std::make_shared<Client>(self, std::move(socket))->wait_for_request();
    self->accept();
  });
}

void HttpServer::State::left(Client* client) {
  clients.erase(client);
  accept();
}

void HttpServer::State::close() {
  is_closed = true;
  error_code ignored;
  acceptor.close(ignored);
  for (Client* const client : clients) client->close();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(AsioRuntime& runtime,
                                                       const std::string& address,
                                                       const std::string& path, Page page,
                                                       const HttpLimits& limits) {
  LH_ASSIGN(const auto parts, split_address(address));
  error_code error;
  tcp::resolver resolver(runtime.context());
  const auto endpoints = resolver.resolve(parts.first, parts.second, tcp::resolver::passive, error);
  if (error || endpoints.empty()) {
    return invalid(fmt::format("cannot listen on {}: {}", address, error.message()));
  }
  const tcp::endpoint endpoint = *endpoints.begin();
  const auto state = std::make_shared<State>(runtime.context(), path, std::move(page), limits);
  state->acceptor.open(endpoint.protocol(), error);
  if (!error) state->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) state->acceptor.bind(endpoint, error);
  if (!error) state->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed(fmt::format("cannot listen on {}: {}", address, error.message()));
  state->accept();
  return std::unique_ptr<HttpServer>(
      new HttpServer(state, text_of(state->acceptor.local_endpoint())));
}

HttpServer::HttpServer(std::shared_ptr<State> state, std::string address)
    : state_(std::move(state)), address_(std::move(address)) {}

HttpServer::~HttpServer() {
  state_->close();
}

}  // namespace longhaul
