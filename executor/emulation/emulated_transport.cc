#include "executor/emulation/emulated_transport.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "executor/emulation/fluid_channels.h"

namespace longhaul {
namespace {

constexpr std::uint16_t kFlagArrival = 0x4000;

FrameHeader arrival_frame(std::int64_t time) {
  FrameHeader header;
  header.type = FrameType::kCredit;
  header.flags = kFlagArrival;
  header.offset = static_cast<std::uint64_t>(time);
  return header;
}

bool is_arrival(const FrameHeader& header) {
  return header.type == FrameType::kCredit && (header.flags & kFlagArrival) != 0;
}

class Link;

/// A data frame that has not left.
struct Waiting {
  Link* link;  // takes its frames away before it goes
  FrameHeader header;
  std::span<const std::byte> payload;
  Task sent;
};

/// The sending end of a channel.
struct Channel {
  int from = 0;
  int to = 0;
  std::deque<Waiting> waiting;
  std::size_t in_page = 0;  // the first so many of them
  TimerId timer = kNoTimer;
};

struct Core : std::enable_shared_from_this<Core> {
  Core(EventLoop& loop_of_process, SharedPage& shared_page, WallClock wall_clock)
      : loop(loop_of_process), page(shared_page), clock(std::move(wall_clock)) {}

  Channel& channel(int from, int to);
  void pace(Channel& channel);
  void drop(Channel& channel, const Link* link);
  TimerId at(std::int64_t time, Task task) {
    const std::int64_t delay = std::max<std::int64_t>(time - clock(), 0);
    return loop.after(Seconds(static_cast<double>(delay) / 1e9), std::move(task));
  }

  EventLoop& loop;
  SharedPage& page;
  const WallClock clock;
  std::map<std::pair<int, int>, Channel> channels;
};

/// One connection.
class Link final : public ConnectionHandler, public std::enable_shared_from_this<Link> {
 public:
  Link(std::shared_ptr<Core> core, std::unique_ptr<Connection> connection)
      : inner(std::move(connection)), core_(std::move(core)) {}

  void set_handler(Connection* outer, ConnectionHandler* handler);
  void send(FrameHeader header, std::span<const std::byte> payload, Task sent);
  void transmit(const FrameHeader& header, std::span<const std::byte> payload, Task sent,
                std::int64_t arrival);
  void close();

  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override;
  void received(Connection&, const FrameHeader& header, std::span<const std::byte>) override;
  void closed(Connection&, const Error& why) override;

  const std::unique_ptr<Connection> inner;
  std::size_t queued_bytes = 0;  // with headers, of frames that have not left

 private:
  /// A frame that is here and not due, or the end of the connection.
  struct Held {
    std::int64_t due = 0;  // 0: at once
    FrameHeader header;
    std::unique_ptr<std::byte[]> payload;
    std::optional<Error> end;
  };

  void meet(std::uint32_t self, std::uint32_t other);
  void hold(Held held);
  void deliver_due();
  void deliver(const Held& held);
  void end(const Error& why);
  std::int64_t latency_here() const {
    return channel_ == nullptr ? 0 : core_->page.latency_nanoseconds(channel_->to, channel_->from);
  }

  const std::shared_ptr<Core> core_;  // owners: the transport and its connections
  Connection* outer_ = nullptr;
  ConnectionHandler* handler_ = nullptr;
  bool is_open_ = true;
  bool is_inner_over_ = false;
  Channel* channel_ = nullptr;  // from here to the other end; null until the greeting

  std::deque<Held> held_;
  std::size_t held_bytes_ = 0;
  TimerId timer_ = kNoTimer;  // for the first of them
  // Of the frame being read.
  std::int64_t due_ = 0;
  std::unique_ptr<std::byte[]> incoming_;
};

// ---- Sending.

Channel& Core::channel(int from, int to) {
  const auto [place, is_new] = channels.try_emplace({from, to});
  Channel& channel = place->second;
  if (is_new) {
    channel.from = from;
    channel.to = to;
    page.clear(from, to, clock);  // an earlier process of the rank may have left something
  }
  return channel;
}

/// Gives what has left to the inner transport, and the page what waits.
void Core::pace(Channel& channel) {
  if (channel.waiting.empty()) return;
  loop.cancel(std::exchange(channel.timer, kNoTimer));
  std::vector<std::pair<Waiting, std::int64_t>> leaving;
  std::int64_t look_again_at = kNeverNanoseconds;
  while (true) {
    std::vector<std::size_t> sizes;
    for (std::size_t i = channel.in_page; i < channel.waiting.size() && sizes.size() < kFramesAhead;
         ++i) {
      sizes.push_back(channel.waiting[i].payload.size());
    }
    const SharedPage::Pace pace = page.pace(channel.from, channel.to, sizes, clock);
    channel.in_page += pace.accepted;
    for (const std::int64_t departure : pace.departures) {
      leaving.emplace_back(std::move(channel.waiting.front()), departure);
      channel.waiting.pop_front();
      --channel.in_page;
    }
    look_again_at = pace.look_again_at;
    if (pace.accepted == 0 || channel.in_page == channel.waiting.size()) break;
  }
  if (!channel.waiting.empty()) {
    channel.timer = at(look_again_at, [weak = weak_from_this(), &channel] {
      const auto self = weak.lock();
      if (!self) return;
      channel.timer = kNoTimer;
      self->pace(channel);
    });
  }
  const std::int64_t latency = page.latency_nanoseconds(channel.from, channel.to);
  for (auto& [frame, departure] : leaving) {
    frame.link->queued_bytes -= kFrameHeaderBytes + frame.payload.size();
    frame.link->transmit(frame.header, frame.payload, std::move(frame.sent), departure + latency);
  }
}

/// Takes away what one connection has not sent. What others have begun to send starts again: two
/// connections that send data on one channel are rare, and the end of one of them is rarer.
void Core::drop(Channel& channel, const Link* link) {
  const auto is_mine = [link](const Waiting& frame) { return frame.link == link; };
  if (std::ranges::none_of(channel.waiting, is_mine)) return;
  std::deque<Waiting> dropped;  // destroyed when all is in order: completions own things
  std::deque<Waiting> kept;
  for (Waiting& frame : channel.waiting) {
    (is_mine(frame) ? dropped : kept).push_back(std::move(frame));
  }
  channel.waiting = std::move(kept);
  channel.in_page = 0;
  loop.cancel(std::exchange(channel.timer, kNoTimer));
  page.clear(channel.from, channel.to, clock);
  pace(channel);
}

void Link::set_handler(Connection* outer, ConnectionHandler* handler) {
  outer_ = outer;
  const bool is_first = handler_ == nullptr;
  handler_ = handler;
  if (is_first) inner->set_handler(this);
}

void Link::send(FrameHeader header, std::span<const std::byte> payload, Task sent) {
  if (!is_open_ || is_inner_over_) return;
  const bool is_first = channel_ == nullptr;
  if (is_first && header.type == FrameType::kHello) meet(header.sender, header.segment);
  if (is_first) return inner->send(header, payload, std::move(sent));
  if (header.type == FrameType::kData) {
    queued_bytes += kFrameHeaderBytes + payload.size();
    channel_->waiting.push_back({this, header, payload, std::move(sent)});
    return core_->pace(*channel_);
  }
  core_->pace(*channel_);  // what has left by now goes first
  transmit(header, payload, std::move(sent),
           core_->clock() + core_->page.latency_nanoseconds(channel_->from, channel_->to));
}

void Link::transmit(const FrameHeader& header, std::span<const std::byte> payload, Task sent,
                    std::int64_t arrival) {
  inner->send(arrival_frame(arrival), {}, [] {});
  inner->send(header, payload, std::move(sent));
}

/// From here on frames take time. A greeting that names no two ranks of the emulation changes
/// nothing; the mesh will refuse it.
void Link::meet(std::uint32_t self, std::uint32_t other) {
  const auto ranks = static_cast<std::uint32_t>(core_->page.ranks());
  if (self >= ranks || other >= ranks || self == other) return;
  channel_ = &core_->channel(static_cast<int>(self), static_cast<int>(other));
}

void Link::close() {
  if (!is_open_) return;
  is_open_ = false;
  handler_ = nullptr;
  core_->loop.cancel(timer_);
  held_.clear();
  inner->close();
  if (channel_ != nullptr) core_->drop(*channel_, this);
}

// ---- Receiving.

std::optional<std::span<std::byte>> Link::buffer_for(Connection&, const FrameHeader& header) {
  if (held_bytes_ + header.payload_bytes > kHeldBytesMax) return std::nullopt;
  incoming_ = std::make_unique_for_overwrite<std::byte[]>(header.payload_bytes);
  return std::span(incoming_.get(), header.payload_bytes);
}

void Link::received(Connection&, const FrameHeader& header, std::span<const std::byte>) {
  if (is_arrival(header)) {
    due_ = static_cast<std::int64_t>(header.offset);
    return;
  }
  if (channel_ == nullptr && header.type == FrameType::kHello) meet(header.segment, header.sender);
  if (due_ != 0) core_->page.count_frame(core_->clock() - due_);
  hold({std::exchange(due_, 0), header, std::exchange(incoming_, nullptr), std::nullopt});
}

void Link::closed(Connection&, const Error& why) {
  is_inner_over_ = true;
  if (channel_ != nullptr) core_->drop(*channel_, this);
  hold({core_->clock() + latency_here(), {}, nullptr, why});
}

void Link::hold(Held held) {
  held_bytes_ += held.header.payload_bytes;
  held_.push_back(std::move(held));
  deliver_due();
}

/// In the order in which they came, each when it is due.
void Link::deliver_due() {
  const auto self = shared_from_this();  // a handler may destroy the connection
  while (is_open_ && !held_.empty()) {
    if (core_->clock() < held_.front().due) {
      if (timer_ != kNoTimer) return;
      timer_ = core_->at(held_.front().due, [weak = weak_from_this()] {
        const auto link = weak.lock();
        if (!link) return;
        link->timer_ = kNoTimer;
        link->deliver_due();
      });
      return;
    }
    const Held held = std::move(held_.front());
    held_.pop_front();
    held_bytes_ -= held.header.payload_bytes;
    if (held.end) return end(*held.end);
    deliver(held);
  }
}

void Link::deliver(const Held& held) {
  const std::size_t size = held.header.payload_bytes;
  std::span<std::byte> buffer;
  if (size > 0) {
    const auto named = handler_->buffer_for(*outer_, held.header);
    if (!is_open_) return;  // the handler closed it
    if (!named) return end(failed(inner->peer() + ": a frame came that nobody waits for").error());
    LH_CHECK(named->size() == size, "a payload's buffer has its size");
    buffer = *named;
    std::copy_n(held.payload.get(), size, buffer.begin());
  }
  handler_->received(*outer_, held.header, buffer);
}

void Link::end(const Error& why) {
  ConnectionHandler* handler = handler_;
  close();
  handler->closed(*outer_, why);
}

// ---- The door.

class EmulatedConnection final : public Connection {
 public:
  EmulatedConnection(const std::shared_ptr<Core>& core, std::unique_ptr<Connection> inner)
      : link_(std::make_shared<Link>(core, std::move(inner))) {}
  ~EmulatedConnection() override { link_->close(); }

  void set_handler(ConnectionHandler* handler) override { link_->set_handler(this, handler); }
  void send(FrameHeader header, std::span<const std::byte> payload, Task sent) override {
    link_->send(header, payload, std::move(sent));
  }
  std::size_t queued_bytes() const override {
    return link_->queued_bytes + link_->inner->queued_bytes();
  }
  void close() override { link_->close(); }
  std::string peer() const override { return link_->inner->peer(); }
  std::string local() const override { return link_->inner->local(); }
  std::string identity() const override { return link_->inner->identity(); }

 private:
  // Owners: this, and a call in progress whose handler may destroy this.
  const std::shared_ptr<Link> link_;
};

class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(std::unique_ptr<Transport> inner, std::shared_ptr<Core> core)
      : inner_(std::move(inner)), core_(std::move(core)) {}

  Result<std::string> listen(const std::string& address, OnConnection on_connection) override {
    return inner_->listen(address, [core = core_, task = std::move(on_connection)](
                                       std::unique_ptr<Connection> connection) {
      task(std::make_unique<EmulatedConnection>(core, std::move(connection)));
    });
  }

  void dial(const std::string& address, Seconds deadline, OnDialled on_dialled) override {
    inner_->dial(address, deadline,
                 [core = core_, task = std::move(on_dialled)](
                     Result<std::unique_ptr<Connection>> connection) mutable {
                   if (!connection) return task(std::unexpected(std::move(connection).error()));
                   task(std::make_unique<EmulatedConnection>(core, std::move(*connection)));
                 });
  }

 private:
  const std::unique_ptr<Transport> inner_;
  const std::shared_ptr<Core> core_;
};

}  // namespace

std::unique_ptr<Transport> make_emulated_transport(std::unique_ptr<Transport> inner,
                                                   EventLoop& loop, SharedPage& page,
                                                   WallClock clock) {
  return std::make_unique<EmulatedTransport>(std::move(inner),
                                             std::make_shared<Core>(loop, page, std::move(clock)));
}

}  // namespace longhaul
