#include "executor/transport/asio_transport.h"

#include <fmt/core.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace longhaul {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// Asio's default completion condition moves at most 64 KiB a call; this one asks for the rest.
struct AllAtOnce {
  std::size_t size;
  std::size_t operator()(const error_code& error, std::size_t done) const {
    return error ? 0 : size - done;
  }
};

std::string text_of(const tcp::endpoint& endpoint) {
  return endpoint.address().is_v6()
             ? fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port())
             : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

/// `host:port`, `[v6]:port`.
Result<std::pair<std::string, std::string>> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, std::min(colon, address.size()));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  if (colon == std::string::npos || host.empty() || colon + 1 == address.size()) {
    return invalid(fmt::format("`{}` is not an address", address),
                   "write host:port, such as 10.0.0.2:7000");
  }
  return std::pair(host, address.substr(colon + 1));
}

class AsioLoop : public EventLoop {
 public:
  explicit AsioLoop(asio::io_context& context) : context_(context) {}

  Seconds now() const override {
    return Seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }
  void post(Task task) override { asio::post(context_, std::move(task)); }
  TimerId after(Seconds delay, Task task) override {
    const TimerId id = next_id_++;
    const auto [entry, is_new] = timers_.try_emplace(id, context_);
    entry->second.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(delay.value())));
    entry->second.async_wait([this, id, task = std::move(task)](const error_code&) mutable {
      if (timers_.erase(id) > 0) task();  // absent: cancelled
    });
    return id;
  }
  void cancel(TimerId timer) override { timers_.erase(timer); }

 private:
  asio::io_context& context_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::map<TimerId, asio::steady_timer> timers_;
  TimerId next_id_ = 1;
};

/// The socket of a connection. Kept alive by the operations in flight, so that the connection that
/// owns it can be destroyed at any time.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  explicit Channel(tcp::socket socket) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    const tcp::endpoint remote = socket_.remote_endpoint(ignored);
    peer_ = text_of(remote);
  }

  void start(Connection* connection, ConnectionHandler* handler) {
    connection_ = connection;
    const bool first = handler_ == nullptr;
    handler_ = handler;
    if (first) read_header();
  }

  void send(FrameHeader header, std::span<const std::byte> payload, Task sent) {
    if (!open_) return;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.payload_crc = payload_checksum(payload);
    queued_ += kFrameHeaderBytes + payload.size();
    queue_.push_back({encode_frame_header(header), payload, std::move(sent)});
    if (queue_.size() == 1) write_next();
  }

  void close() {
    open_ = false;
    handler_ = nullptr;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

  std::size_t queued() const { return queued_; }
  const std::string& peer() const { return peer_; }

 private:
  struct Outgoing {
    FrameHeaderBytes header;
    std::span<const std::byte> payload;
    Task sent;
  };

  void fail(const std::string& why) {
    if (!open_) return;
    Connection* connection = connection_;
    ConnectionHandler* handler = handler_;
    close();
    if (handler != nullptr)
      handler->closed(*connection, failed(fmt::format("{}: {}", peer_, why)).error());
  }

  void fail(const error_code& error) {
    fail(error == asio::error::eof ? std::string("the peer closed the connection")
                                   : error.message());
  }

  void read_header() {
    asio::async_read(socket_, asio::buffer(incoming_), AllAtOnce{incoming_.size()},
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (!self->open_) return;
                       if (error) return self->fail(error);
                       self->read_payload();
                     });
  }

  void read_payload() {
    Result<FrameHeader> header = decode_frame_header(incoming_);
    if (!header) return fail(header.error().message);
    if (header->payload_bytes == 0) return deliver(*header, {});
    const auto buffer = handler_->buffer_for(*connection_, *header);
    if (!open_) return;  // the handler closed it
    if (!buffer) return fail("a frame came that nobody waits for");
    LH_CHECK(buffer->size() == header->payload_bytes, "a payload's buffer has its size");
    asio::async_read(socket_, asio::buffer(buffer->data(), buffer->size()),
                     AllAtOnce{buffer->size()},
                     [self = shared_from_this(), header = *header, payload = *buffer](
                         const error_code& error, std::size_t) {
                       if (!self->open_) return;
                       if (error) return self->fail(error);
                       self->deliver(header, payload);
                     });
  }

  void deliver(const FrameHeader& header, std::span<const std::byte> payload) {
    if (payload_checksum(payload) != header.payload_crc) {
      return fail("a frame's payload does not match its checksum");
    }
    handler_->received(*connection_, header, payload);
    if (open_) read_header();
  }

  void write_next() {
    const Outgoing& next = queue_.front();
    const std::array<asio::const_buffer, 2> buffers = {
        asio::buffer(next.header), asio::const_buffer(next.payload.data(), next.payload.size())};
    const std::size_t size = next.header.size() + next.payload.size();
    asio::async_write(socket_, buffers, AllAtOnce{size},
                      [self = shared_from_this(), size](const error_code& error, std::size_t) {
                        if (!self->open_) return;
                        if (error) return self->fail(error);
                        Task sent = std::move(self->queue_.front().sent);
                        self->queue_.pop_front();
                        self->queued_ -= size;
                        if (!self->queue_.empty()) self->write_next();
                        if (sent) sent();
                      });
  }

  tcp::socket socket_;
  std::string peer_;
  Connection* connection_ = nullptr;
  ConnectionHandler* handler_ = nullptr;
  bool open_ = true;
  FrameHeaderBytes incoming_{};
  std::deque<Outgoing> queue_;
  std::size_t queued_ = 0;
};

class AsioConnection : public Connection {
 public:
  explicit AsioConnection(tcp::socket socket)
      : channel_(std::make_shared<Channel>(std::move(socket))) {}
  ~AsioConnection() override { channel_->close(); }

  void set_handler(ConnectionHandler* handler) override { channel_->start(this, handler); }
  void send(FrameHeader header, std::span<const std::byte> payload, Task sent) override {
    channel_->send(header, payload, std::move(sent));
  }
  std::size_t queued_bytes() const override { return channel_->queued(); }
  void close() override { channel_->close(); }
  std::string peer() const override { return channel_->peer(); }

 private:
  std::shared_ptr<Channel> channel_;  // owners: this and the operations in flight
};

class AsioTransport : public Transport {
 public:
  explicit AsioTransport(asio::io_context& context) : context_(context) {}
  ~AsioTransport() override {
    for (const auto& listener : listeners_) {
      error_code ignored;
      listener->acceptor.close(ignored);
    }
  }

  Result<std::string> listen(const std::string& address, OnConnection on_connection) override {
    LH_ASSIGN(const auto parts, split_address(address));
    error_code error;
    tcp::resolver resolver(context_);
    const auto endpoints =
        resolver.resolve(parts.first, parts.second, tcp::resolver::passive, error);
    if (error || endpoints.empty()) {
      return failed(fmt::format("cannot listen on {}: {}", address, error.message()));
    }
    const tcp::endpoint endpoint = *endpoints.begin();
    auto listener = std::make_shared<Listener>(context_, std::move(on_connection));
    listener->acceptor.open(endpoint.protocol(), error);
    if (!error) listener->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) listener->acceptor.bind(endpoint, error);
    if (!error) listener->acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) return failed(fmt::format("cannot listen on {}: {}", address, error.message()));
    listeners_.push_back(listener);
    accept(listener);
    return text_of(listener->acceptor.local_endpoint());
  }

  void dial(const std::string& address, Seconds deadline, OnDialled on_dialled) override {
    struct Attempt {
      explicit Attempt(asio::io_context& context)
          : resolver(context), socket(context), timer(context) {}
      tcp::resolver resolver;
      tcp::socket socket;
      asio::steady_timer timer;
      OnDialled on_dialled;
      std::string address;
      void finish(const std::string& error) {
        timer.cancel();
        OnDialled task = std::exchange(on_dialled, nullptr);
        if (!task) return;  // the deadline came first
        if (error.empty()) {
          task(std::make_unique<AsioConnection>(std::move(socket)));
        } else {
          error_code ignored;
          socket.close(ignored);
          resolver.cancel();
          task(failed(fmt::format("cannot reach {}: {}", address, error)));
        }
      }
    };
    auto attempt = std::make_shared<Attempt>(context_);  // owners: the three operations below
    attempt->on_dialled = std::move(on_dialled);
    attempt->address = address;
    const auto parts = split_address(address);
    if (!parts) {
      asio::post(context_, [attempt, why = parts.error().message] { attempt->finish(why); });
      return;
    }
    attempt->timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(deadline.value())));
    attempt->timer.async_wait([attempt](const error_code& error) {
      if (!error) attempt->finish("no answer");
    });
    attempt->resolver.async_resolve(
        parts->first, parts->second, [attempt](const error_code& error, const auto& endpoints) {
          if (error) return attempt->finish(error.message());
          asio::async_connect(attempt->socket, endpoints,
                              [attempt](const error_code& connect_error, const tcp::endpoint&) {
                                attempt->finish(connect_error ? connect_error.message() : "");
                              });
        });
  }

 private:
  struct Listener {
    Listener(asio::io_context& context, OnConnection task)
        : acceptor(context), on_connection(std::move(task)) {}
    tcp::acceptor acceptor;
    OnConnection on_connection;
  };

  static void accept(const std::shared_ptr<Listener>& listener) {
    listener->acceptor.async_accept([listener](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !listener->acceptor.is_open()) return;
      // Anything else (a peer that left again, no file descriptors) must not end the listening.
      if (!error) listener->on_connection(std::make_unique<AsioConnection>(std::move(socket)));
      accept(listener);
    });
  }

  asio::io_context& context_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // owners: this and the accept in flight
};

}  // namespace

struct AsioRuntime::State {
  asio::io_context context{1};
  AsioLoop loop{context};
};

AsioRuntime::AsioRuntime() : state_(std::make_unique<State>()) {}
AsioRuntime::~AsioRuntime() = default;

EventLoop& AsioRuntime::loop() {
  return state_->loop;
}

std::unique_ptr<Transport> AsioRuntime::make_transport() {
  return std::make_unique<AsioTransport>(state_->context);
}

void AsioRuntime::run() {
  state_->context.restart();
  state_->context.run();
}

void AsioRuntime::stop() {
  state_->context.stop();
}

}  // namespace longhaul
