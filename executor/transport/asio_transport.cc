#include "executor/transport/asio_transport.h"

#include <fmt/core.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor/transport/address.h"

namespace longhaul {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using TlsStream = asio::ssl::stream<tcp::socket>;

/// Asio's default completion condition moves at most 64 KiB a call; this one asks for the rest.
struct AllAtOnce {
  std::size_t size;
  std::size_t operator()(const error_code& error, std::size_t done) const {
    return error ? 0 : size - done;
  }
};

std::chrono::steady_clock::duration duration_of(Seconds seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds.value()));
}

std::string text_of(const tcp::endpoint& endpoint) {
  return endpoint.address().is_v6()
             ? fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port())
             : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
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
    entry->second.expires_after(duration_of(delay));
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

std::string peer_of(const tcp::socket::lowest_layer_type& socket) {
  error_code ignored;
  return text_of(socket.remote_endpoint(ignored));
}

/// For paths between machines; what a system does not know is left out.
///
/// BBR is what the link model takes TCP for (core/topology.h): it keeps a long path full where
/// packets get lost, and its pace where a connection was idle. Of what has not been sent the kernel
/// holds little, so that a link of several streams gives its next bytes to the one that gets on,
/// and none is left with megabytes that the others could have carried. Loopback is spared: BBR
/// slows it to half.
void tune_for_distance(tcp::socket::lowest_layer_type& socket) {
  constexpr std::string_view kBbr = "bbr";
  constexpr int kUnsentBytes = 256 << 10;
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error || peer.address().is_loopback()) return;
  const int file = socket.native_handle();
  setsockopt(file, IPPROTO_TCP, TCP_CONGESTION, kBbr.data(), kBbr.size());
  setsockopt(file, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof(kUnsentBytes));
}

/// The record of a handshake or of an alert, in any version of TLS.
bool starts_like_tls(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && (bytes[0] == std::byte{0x16} || bytes[0] == std::byte{0x15}) &&
         bytes[1] == std::byte{3};
}

/// The stream of a connection, a TCP socket or a TLS stream after its handshake. Kept alive by the
/// operations in flight, so that the connection that owns it can be destroyed at any time.
template <class Stream>
class Channel : public std::enable_shared_from_this<Channel<Stream>> {
 public:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  /// `key_bytes` is that of TlsLimits.
  Channel(Stream stream, std::string identity, Bytes key_bytes)
      : stream_(std::move(stream)), identity_(std::move(identity)), key_bytes_(key_bytes) {
    error_code ignored;
    stream_.lowest_layer().set_option(tcp::no_delay(true), ignored);
    tune_for_distance(stream_.lowest_layer());
    peer_ = peer_of(stream_.lowest_layer());
    local_ = text_of(stream_.lowest_layer().local_endpoint(ignored));
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
    if constexpr (kTls) {
      // An operation that is half way through OpenSSL goes on when its last step on the socket
      // returns, and the caller's buffers may be gone by then: make OpenSSL refuse to touch them.
      // No goodbye is sent; a frame is whole or nothing, so a stream that is cut short shows.
      SSL_set_shutdown(stream_.native_handle(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    }
    error_code ignored;
    stream_.lowest_layer().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.lowest_layer().close(ignored);
  }

  /// In the kernel, which spaces packets; a failure leaves it as fast as it is.
  void limit_rate(BytesPerSecond rate) {
    const auto bytes = static_cast<std::uint64_t>(std::max(1.0, std::min(rate.value(), 1e15)));
    setsockopt(stream_.lowest_layer().native_handle(), SOL_SOCKET, SO_MAX_PACING_RATE, &bytes,
               sizeof(bytes));
  }
  std::size_t queued() const { return queued_; }
  const std::string& peer() const { return peer_; }
  const std::string& local() const { return local_; }
  const std::string& identity() const { return identity_; }

 private:
  struct Outgoing {
    FrameHeaderBytes header;
    std::span<const std::byte> payload;
    Task sent;
  };

  void fail(const std::string& why, const std::string& hint = "") {
    if (!open_) return;
    Connection* connection = connection_;
    ConnectionHandler* handler = handler_;
    close();
    if (handler != nullptr)
      handler->closed(*connection, failed(fmt::format("{}: {}", peer_, why), hint).error());
  }

  void fail(const error_code& error) {
    fail(error == asio::error::eof || error == asio::ssl::error::stream_truncated
             ? std::string("the peer closed the connection")
             : error.message());
  }

  void read_header() {
    asio::async_read(stream_, asio::buffer(incoming_), AllAtOnce{incoming_.size()},
                     [self = this->shared_from_this()](const error_code& error, std::size_t size) {
                       if (!self->open_) return;
                       if (!kTls && starts_like_tls(std::span(self->incoming_).first(size))) {
                         return self->fail("expected plain TCP, got TLS",
                                           "turn TLS on at both ends, or at neither");
                       }
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
    asio::async_read(stream_, asio::buffer(buffer->data(), buffer->size()),
                     AllAtOnce{buffer->size()},
                     [self = this->shared_from_this(), header = *header, payload = *buffer](
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
    if constexpr (kTls) {
      // The new key's announcement travels before the frame and needs no answer.
      const Bytes bytes(static_cast<double>(size));
      written_ += bytes;
      if (written_ > key_bytes_ &&
          SSL_key_update(stream_.native_handle(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
        written_ = bytes;
      }
    }
    asio::async_write(
        stream_, buffers, AllAtOnce{size},
        [self = this->shared_from_this(), size](const error_code& error, std::size_t) {
          if (!self->open_) return;
          if (error) return self->fail(error);
          Task sent = std::move(self->queue_.front().sent);
          self->queue_.pop_front();
          self->queued_ -= size;
          if (!self->queue_.empty()) self->write_next();
          if (sent) sent();
        });
  }

  Stream stream_;
  std::string peer_;
  std::string local_;
  std::string identity_;
  Bytes key_bytes_;
  Bytes written_;  // with the key at hand
  Connection* connection_ = nullptr;
  ConnectionHandler* handler_ = nullptr;
  bool open_ = true;
  FrameHeaderBytes incoming_{};
  std::deque<Outgoing> queue_;
  std::size_t queued_ = 0;
};

template <class Stream>
class AsioConnection : public Connection {
 public:
  explicit AsioConnection(Stream stream, std::string identity = "", Bytes key_bytes = Bytes())
      : channel_(
            std::make_shared<Channel<Stream>>(std::move(stream), std::move(identity), key_bytes)) {}
  ~AsioConnection() override { channel_->close(); }

  void set_handler(ConnectionHandler* handler) override { channel_->start(this, handler); }
  void send(FrameHeader header, std::span<const std::byte> payload, Task sent) override {
    channel_->send(header, payload, std::move(sent));
  }
  void limit_rate(BytesPerSecond rate) override { channel_->limit_rate(rate); }
  std::size_t queued_bytes() const override { return channel_->queued(); }
  void close() override { channel_->close(); }
  std::string peer() const override { return channel_->peer(); }
  std::string local() const override { return channel_->local(); }
  std::string identity() const override { return channel_->identity(); }

 private:
  std::shared_ptr<Channel<Stream>> channel_;  // owners: this and the operations in flight
};

/// What the connections of a TLS transport share.
struct Tls {
  TlsContext context;
  TlsLimits limits;
  std::function<void(const Error&)> on_refused;
};

/// Makes a connection of a socket: the handshake, then one byte by which the listener says that the
/// dialler is let in. Without it a dialler would take itself for connected: in TLS 1.3 it is done
/// before the listener has seen its certificate.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  using Side = asio::ssl::stream_base::handshake_type;
  using Done = std::move_only_function<void(Result<std::unique_ptr<Connection>>)>;

  Handshake(tcp::socket socket, std::shared_ptr<Tls> tls, Side side)
      : tls_(std::move(tls)),
        side_(side),
        timer_(socket.get_executor()),
        stream_(std::move(socket), new_session(*tls_)) {}

  /// Calls `done` once, from a task of its own, unless it is abandoned before.
  void start(asio::steady_timer::time_point deadline, Done done) {
    done_ = std::move(done);
    timer_.expires_at(deadline);
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (error || !self->done_) return;
      if (!self->why_) self->why_ = failed("no TLS handshake before the deadline").error();
      self->tell_plain_caller();
      self->close();  // which ends the operation in flight
    });
    stream_.async_handshake(side_, [self = shared_from_this()](const error_code& error) {
      if (error) return self->refuse(error);
      if (self->side_ == Side::server) {
        asio::async_write(
            self->stream_, asio::buffer(&self->welcome_, 1),
            [self](const error_code& write_error, std::size_t) { self->welcomed(write_error); });
      } else {
        self->welcome_ = 0;
        asio::async_read(
            self->stream_, asio::buffer(&self->welcome_, 1),
            [self](const error_code& read_error, std::size_t) { self->welcomed(read_error); });
      }
    });
  }

  void abandon() {
    done_ = nullptr;
    timer_.cancel();
    close();
  }

 private:
  static constexpr unsigned char kWelcome = 1;

  static SSL* new_session(const Tls& tls) {
    SSL* session = SSL_new(tls.context.native());
    LH_CHECK(session != nullptr, "only a lack of memory stops OpenSSL here");
    return session;
  }

  void close() {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

  void welcomed(const error_code& error) {
    if (error) return refuse(error);
    if (!done_) return;
    if (welcome_ != kWelcome) {
      return finish(failed("the other end speaks TLS, but not longhaul's protocol"));
    }
    std::string identity = tls_peer_name(stream_.native_handle());
    finish(std::make_unique<AsioConnection<TlsStream>>(std::move(stream_), std::move(identity),
                                                       tls_->limits.key_bytes));
  }

  Error meaning(const error_code& error) {
    if (error.category() == asio::error::get_ssl_category()) {
      return tls_error(stream_.native_handle(), static_cast<unsigned int>(error.value()));
    }
    if (error == asio::error::eof || error == asio::error::connection_reset ||
        error == asio::error::broken_pipe || error == asio::ssl::error::stream_truncated) {
      return failed("expected TLS, but the other end has closed the connection",
                    "does it run without TLS, or is it another program?")
          .error();
    }
    return failed(error.message()).error();
  }

  void refuse(const error_code& error) {
    if (!done_) return;
    if (!why_) why_ = meaning(error);  // the deadline may have said it already
    if (side_ == Side::client) return finish(std::unexpected(*why_));
    // Closing a socket with bytes unread resets the connection, and the caller might lose the alert
    // that tells it why.
    tell_plain_caller();
    error_code ignored;
    stream_.lowest_layer().shutdown(tcp::socket::shutdown_send, ignored);
    drain();
  }

  /// OpenSSL does not answer what is no TLS at all. A plain transport knows an alert when it sees
  /// one: this one is fatal, of TLS 1.2's record layer, "protocol version".
  void tell_plain_caller() {
    if (side_ == Side::client || BIO_number_written(SSL_get_wbio(stream_.native_handle())) > 0)
      return;
    static constexpr unsigned char kAlert[] = {0x15, 3, 3, 0, 2, 2, 70};
    error_code ignored;
    stream_.next_layer().send(asio::buffer(kAlert), 0, ignored);  // fits an unused socket's buffer
  }

  void drain() {
    stream_.next_layer().async_read_some(
        asio::buffer(drained_), [self = shared_from_this()](const error_code& error, std::size_t) {
          if (!self->done_) return;
          if (error) return self->finish(std::unexpected(*self->why_));
          self->drain();
        });
  }

  void finish(Result<std::unique_ptr<Connection>> result) {
    Done task = std::exchange(done_, nullptr);
    timer_.cancel();
    if (!result) close();
    task(std::move(result));
  }

  std::shared_ptr<Tls> tls_;  // owners: the transport, its listeners, diallers and handshakes
  Side side_;
  asio::steady_timer timer_;
  TlsStream stream_;
  unsigned char welcome_ = kWelcome;
  std::array<std::byte, 4096> drained_;
  std::optional<Error> why_;
  Done done_;
};

class AsioTransport : public Transport {
 public:
  /// `tls` is null for plain TCP.
  AsioTransport(asio::io_context& context, std::shared_ptr<Tls> tls)
      : context_(context), tls_(std::move(tls)) {}
  ~AsioTransport() override {
    for (const auto& listener : listeners_) {
      error_code ignored;
      listener->acceptor.close(ignored);
      for (const auto& handshake : std::exchange(listener->handshakes, {})) handshake->abandon();
    }
  }

  Result<std::string> listen(const std::string& address, OnConnection on_connection) override {
    if (tls_ && !tls_->context.may_listen()) {
      return invalid(fmt::format("cannot listen on {}: there is no certificate to show", address),
                     "join the job first");
    }
    LH_ASSIGN(const auto parts, split_address(address));
    error_code error;
    tcp::resolver resolver(context_);
    const auto endpoints =
        resolver.resolve(parts.first, parts.second, tcp::resolver::passive, error);
    if (error || endpoints.empty()) {
      return failed(fmt::format("cannot listen on {}: {}", address, error.message()));
    }
    const tcp::endpoint endpoint = *endpoints.begin();
    auto listener = std::make_shared<Listener>(context_, std::move(on_connection), tls_);
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
      std::shared_ptr<Tls> tls;
      void finish(const std::string& error) {
        timer.cancel();
        OnDialled task = std::exchange(on_dialled, nullptr);
        if (!task) return;  // the deadline came first
        if (!error.empty()) {
          error_code ignored;
          socket.close(ignored);
          resolver.cancel();
          task(failed(fmt::format("cannot reach {}: {}", address, error)));
        } else if (!tls) {
          task(std::make_unique<AsioConnection<tcp::socket>>(std::move(socket)));
        } else {
          std::make_shared<Handshake>(std::move(socket), tls, Handshake::Side::client)
              ->start(timer.expiry(),
                      [task = std::move(task), where = fmt::format("cannot reach {}", address)](
                          Result<std::unique_ptr<Connection>> connection) mutable {
                        if (!connection) connection = within(where, std::move(connection).error());
                        task(std::move(connection));
                      });
        }
      }
    };
    auto attempt = std::make_shared<Attempt>(context_);  // owners: the three operations below
    attempt->on_dialled = std::move(on_dialled);
    attempt->address = address;
    attempt->tls = tls_;
    const auto parts = split_address(address);
    if (!parts) {
      asio::post(context_, [attempt, why = parts.error().message] { attempt->finish(why); });
      return;
    }
    attempt->timer.expires_after(duration_of(deadline));
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
    Listener(asio::io_context& context, OnConnection task, std::shared_ptr<Tls> tls_of_transport)
        : acceptor(context), on_connection(std::move(task)), tls(std::move(tls_of_transport)) {}
    tcp::acceptor acceptor;
    OnConnection on_connection;
    std::shared_ptr<Tls> tls;
    std::set<std::shared_ptr<Handshake>> handshakes;  // in progress, to count and to abandon
    bool full = false;                                // accepts again when one of them ends
  };

  static void accept(const std::shared_ptr<Listener>& listener) {
    listener->full =
        listener->tls && listener->handshakes.size() >= listener->tls->limits.handshakes;
    if (listener->full) return;
    listener->acceptor.async_accept([listener](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !listener->acceptor.is_open()) return;
      // Anything else (a peer that left again, no file descriptors) must not end the listening.
      if (!error && listener->tls) {
        greet(listener, std::move(socket));
      } else if (!error) {
        listener->on_connection(std::make_unique<AsioConnection<tcp::socket>>(std::move(socket)));
      }
      accept(listener);
    });
  }

  static void greet(const std::shared_ptr<Listener>& listener, tcp::socket socket) {
    const std::string peer = peer_of(socket);
    const auto handshake =
        std::make_shared<Handshake>(std::move(socket), listener->tls, Handshake::Side::server);
    listener->handshakes.insert(handshake);
    handshake->start(
        std::chrono::steady_clock::now() + duration_of(listener->tls->limits.handshake_deadline),
        [listener, peer,
         weak = std::weak_ptr(handshake)](Result<std::unique_ptr<Connection>> connection) {
          listener->handshakes.erase(weak.lock());
          if (listener->full) accept(listener);
          if (connection) {
            listener->on_connection(std::move(*connection));
          } else if (listener->tls->on_refused) {
            listener->tls->on_refused(within(peer, std::move(connection).error()).error());
          }
        });
  }

  asio::io_context& context_;
  std::shared_ptr<Tls> tls_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // owners: this, accepts and handshakes
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
  return std::make_unique<AsioTransport>(state_->context, nullptr);
}

Result<std::unique_ptr<Transport>> AsioRuntime::make_transport(TlsOptions options) {
  LH_ASSIGN(TlsContext context, TlsContext::create(options.who));
  return std::make_unique<AsioTransport>(
      state_->context,
      std::make_shared<Tls>(std::move(context), options.limits, std::move(options.on_refused)));
}

boost::asio::io_context& AsioRuntime::context() {
  return state_->context;
}

void AsioRuntime::run() {
  state_->context.restart();
  state_->context.run();
}

void AsioRuntime::stop() {
  state_->context.stop();
}

}  // namespace longhaul
