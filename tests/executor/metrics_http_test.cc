// The server on real sockets: its loop runs on a thread of its own, the test is the client. Every
// read of the client ends, by what it waits for or by the end of the connection.
#include "executor/metrics/http_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "executor/transport/address.h"
#include "executor/transport/asio_transport.h"

namespace longhaul {
namespace {

class Client {
 public:
  explicit Client(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(split_address(address)->second)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send_text(std::string_view text) const {
    ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  void stop_sending() const { shutdown(socket_, SHUT_WR); }
  /// Reads until `end` has come, or all there is.
  std::string read_until(std::string_view end) {
    while (!held_.contains(end) && read_more()) continue;
    const std::size_t size = std::min(held_.size(), held_.find(end) + end.size());
    const std::string read = held_.substr(0, size);
    held_.erase(0, size);
    return read;
  }
  std::string read_all() {
    while (read_more()) continue;
    return std::exchange(held_, "");
  }

 private:
  bool read_more() {
    char buffer[4096];
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    held_.append(buffer, static_cast<std::size_t>(got));
    return true;
  }

  int socket_;
  std::string held_;
};

class MetricsHttp : public testing::Test {
 protected:
  void serve(const HttpLimits& limits = {}) {
    auto server = HttpServer::listen(
        runtime_, "127.0.0.1:0", "/metrics",
        [this](std::string_view accept) {
          return HttpPage{"text/plain", fmt::format("page {} for `{}`\n", ++pages_, accept)};
        },
        limits);
    ASSERT_TRUE(server) << server.error().text();
    server_ = *std::move(server);
    loop_ = std::thread([this] { runtime_.run(); });
  }
  void TearDown() override {
    runtime_.loop().post([this] { server_ = nullptr; });  // and with it all connections
    if (loop_.joinable()) loop_.join();
  }
  /// All that is answered to one request, after which the client sends no more.
  std::string answer(std::string_view request) const {
    Client client(server_->address());
    client.send_text(request);
    client.stop_sending();
    return client.read_all();
  }

  AsioRuntime runtime_;
  std::unique_ptr<HttpServer> server_;
  std::thread loop_;
  int pages_ = 0;  // of the loop's thread
};

TEST_F(MetricsHttp, the_page_is_answered_with_its_type_and_size) {
  serve();
  EXPECT_EQ(answer("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\nConnection: close\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 17\r\n"
            "Connection: close\r\n\r\npage 1 for `a/b`\n");
}

TEST_F(MetricsHttp, requests_are_answered_as_http_says) {
  serve();
  const std::string page = "\r\n\r\npage";
  const struct {
    std::string request;
    std::string status;
    std::string also;  // somewhere in the answer
  } cases[] = {
      {"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK", page},
      {"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK", "Connection: close"},
      {"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK", "Content-Length: 14"},
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 Not Found", "only /metrics"},
      {"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 Not Found", ""},
      {"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 405 ", "Allow: GET, HEAD\r\n"},
      {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 405 ",
       "Connection: close"},
      {"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ", "names its host"},
      {"GET /metrics\r\n\r\n", "HTTP/1.1 400 ", "no HTTP"},
      {std::string("\x16\x03\x01\x02\x00\x01\r\n", 8), "HTTP/1.1 400 ", "no HTTP"},  // TLS
      {"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 ", ""},
  };
  for (const auto& [request, status, also] : cases) {
    const std::string got = answer(request);
    EXPECT_TRUE(got.starts_with(status)) << request << got;
    EXPECT_TRUE(got.contains(also)) << request << got;
    EXPECT_EQ(got.contains(page), also == page || request.contains("1.0")) << request << got;
  }
  // Half a request and then nothing: no answer.
  EXPECT_EQ(answer("GET /metrics HT"), "");
  EXPECT_EQ(answer(""), "");
}

TEST_F(MetricsHttp, a_connection_is_kept_for_the_next_request) {
  serve();
  Client client(server_->address());
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  client.send_text(request);
  EXPECT_TRUE(client.read_until("for ``\n").contains("keep-alive\r\n\r\npage 1"));
  // Two at once are answered one after the other.
  client.send_text(request + request);
  EXPECT_TRUE(client.read_until("for ``\n").contains("page 2"));
  EXPECT_TRUE(client.read_until("for ``\n").contains("page 3"));
  client.stop_sending();
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(MetricsHttp, headers_have_a_limit) {
  HttpLimits limits;
  limits.header_bytes = 256;
  serve(limits);
  const auto with_header = [](std::size_t size) {
    return "GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + std::string(size, 'x') + "\r\n\r\n";
  };
  const std::size_t room = 256 - with_header(0).size();
  EXPECT_TRUE(answer(with_header(room)).starts_with("HTTP/1.1 200 "));
  // Beast looks at the limit where it has to read on: a little more may pass, twice as much not.
  for (const std::size_t size : {std::size_t{512}, std::size_t{100'000}}) {
    EXPECT_TRUE(answer(with_header(size)).starts_with("HTTP/1.1 431 ")) << size;
  }
}

TEST_F(MetricsHttp, a_body_without_end_is_cut_off) {
  HttpLimits limits;
  limits.drained_bytes = 100'000;
  serve(limits);
  Client client(server_->address());
  client.send_text("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_TRUE(client.read_until("there is only GET here\n").starts_with("HTTP/1.1 405 "));
  for (int i = 0; i < 1000; ++i) client.send_text(std::string(1000, 'x'));
  EXPECT_EQ(client.read_all(), "");  // comes to an end
}

TEST_F(MetricsHttp, who_is_slow_is_let_go) {
  HttpLimits limits;
  limits.request_deadline = milliseconds(20);
  serve(limits);
  Client client(server_->address());
  client.send_text("GET /metr");
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(MetricsHttp, who_is_idle_is_let_go) {
  HttpLimits limits;
  limits.idle_deadline = milliseconds(300);  // a busy machine sends the request within it
  serve(limits);
  Client client(server_->address());
  client.send_text("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.read_all().ends_with("page 1 for ``\n"));
}

TEST_F(MetricsHttp, one_more_than_the_limit_waits_until_another_has_gone) {
  HttpLimits limits;
  limits.connections = 1;
  serve(limits);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  auto first = std::make_unique<Client>(server_->address());
  first->send_text(request);
  EXPECT_TRUE(first->read_until("for ``\n").contains("page 1"));
  Client second(server_->address());
  second.send_text(request);
  first->send_text(request);
  EXPECT_TRUE(first->read_until("for ``\n").contains("page 2"));  // not the second's
  first = nullptr;
  EXPECT_TRUE(second.read_until("for ``\n").contains("page 3"));
}

TEST_F(MetricsHttp, an_address_that_cannot_be_had_is_an_error) {
  serve();
  const auto refusal = [](const std::string& address) {
    AsioRuntime runtime;
    const auto server = HttpServer::listen(runtime, address, "/", [](auto) { return HttpPage{}; });
    return server ? "accepted" : server.error().message;
  };
  EXPECT_TRUE(refusal(server_->address()).contains("Address already in use"));
  EXPECT_TRUE(refusal("127.0.0.1").contains("is not an address"));
  EXPECT_TRUE(refusal(":80").contains("is not an address"));
  EXPECT_TRUE(refusal("127.0.0.1:70000").contains("port 70000"));
  EXPECT_TRUE(refusal("127.0.0.1:port").contains("cannot listen on 127.0.0.1:port"));
  EXPECT_TRUE(refusal("192.0.2.1:0").contains("cannot listen"));  // not of this machine
}

TEST(TransportAddress, the_loopback_is_known_by_its_numbers_and_one_name) {
  for (const char* here : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(is_loopback_address(here)) << here;
  }
  for (const char* elsewhere : {"128.0.0.1:1", "0.0.0.0:1", "[::]:1", "localhost.org:1", ":1"}) {
    EXPECT_FALSE(is_loopback_address(elsewhere)) << elsewhere;
  }
}

}  // namespace
}  // namespace longhaul
