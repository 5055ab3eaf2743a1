#include "executor/transport/mesh_listener.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace longhaul {

/// Somebody whose connection is still ours.
struct MeshListener::Caller : ConnectionHandler {
  enum class State { kSilent, kGreeted, kRefused };

  Caller(MeshListener& owner, std::unique_ptr<Connection> link)
      : listener(owner), connection(std::move(link)) {
    connection->set_handler(this);
  }
  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override {
    if (state != State::kSilent || header.type != FrameType::kControl ||
        header.payload_bytes > kJoinBytesMax) {
      return std::nullopt;
    }
    text.resize(header.payload_bytes);
    return std::as_writable_bytes(std::span(text));
  }
  void received(Connection&, const FrameHeader& header, std::span<const std::byte>) override {
    if (state == State::kRefused) return;
    if (state == State::kSilent && header.payload_bytes == 0 && header.type == FrameType::kHello) {
      return listener.greeted(*this, header);
    }
    if (state == State::kSilent && header.type == FrameType::kControl) {
      return listener.joined(*this, text);
    }
    listener.ended(*this, state == State::kSilent ? "a frame came before the greeting"
                                                  : "a frame came before the greeting's answer");
  }
  void closed(Connection&, const Error& why) override { listener.ended(*this, why.message); }

  MeshListener& listener;
  std::unique_ptr<Connection> connection;
  State state = State::kSilent;
  FrameHeader hello;
  std::string text;  // of its join, or why it is refused
};

Result<std::shared_ptr<MeshListener>> MeshListener::open(Transport& transport, EventLoop& loop,
                                                         const std::string& address) {
  const std::shared_ptr<MeshListener> listener(new MeshListener(loop));
  LH_ASSIGN(listener->address_,
            transport.listen(address, [listener](std::unique_ptr<Connection> connection) {
              listener->accept(std::move(connection));
            }));
  return listener;
}

MeshListener::MeshListener(EventLoop& loop) : loop_(loop) {}
MeshListener::~MeshListener() = default;

void MeshListener::accept(std::unique_ptr<Connection> connection) {
  if (is_closed_) return;
  // Those that still read why they are refused count with those that say nothing.
  const auto is_idle = [](const auto& caller) { return caller->state != Caller::State::kGreeted; };
  if (static_cast<std::size_t>(std::ranges::count_if(callers_, is_idle)) >= silent_max_) {
    drop(**std::ranges::find_if(callers_, is_idle));
  }
  callers_.push_back(std::make_unique<Caller>(*this, std::move(connection)));
}

MeshListener::Caller& MeshListener::retire(Caller& caller) {
  const auto place =
      std::ranges::find_if(callers_, [&](const auto& other) { return other.get() == &caller; });
  LH_CHECK(place != callers_.end(), "a caller is taken once");
  retired_.push_back(std::move(*place));
  callers_.erase(place);
  loop_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->retired_.clear();
  });
  return caller;
}

std::unique_ptr<Connection> MeshListener::take(Caller& caller) {
  return std::move(retire(caller).connection);
}

void MeshListener::drop(Caller& caller) {
  retire(caller).connection->close();
}

void MeshListener::on_greeting(OnGreeting handler, std::size_t expected) {
  on_greeting_ = std::move(handler);
  silent_max_ = std::max(kSilentMax, expected);
  std::vector<Caller*> waiting;
  for (const auto& caller : callers_) {
    if (caller->state == Caller::State::kGreeted) waiting.push_back(caller.get());
  }
  for (Caller* caller : waiting) greeted(*caller, caller->hello);
}

void MeshListener::greeted(Caller& caller, const FrameHeader& hello) {
  if (on_greeting_) {
    const auto self = shared_from_this();
    const OnGreeting handler = on_greeting_;  // it may be replaced meanwhile
    const FrameHeader header = hello;
    return handler(take(caller), header);
  }
  const auto is_greeted = [](const auto& other) { return other->state == Caller::State::kGreeted; };
  if (static_cast<std::size_t>(std::ranges::count_if(callers_, is_greeted)) == kGreetedMax) {
    return refuse(take(caller), "too many callers wait for this mesh");
  }
  caller.state = Caller::State::kGreeted;
  caller.hello = hello;
}

void MeshListener::joined(Caller& caller, const std::string& text) {
  if (!on_join_) return refuse(take(caller), "nobody can join here");
  const auto self = shared_from_this();
  const OnJoin handler = on_join_;
  const std::string copy = text;
  handler(take(caller), copy);
}

void MeshListener::ended(Caller& caller, const std::string& why) {
  if (caller.state != Caller::State::kRefused) {
    last_trouble_ = fmt::format("a connection from {} ended: {}", caller.connection->peer(), why);
  }
  drop(caller);
}

void MeshListener::refuse(std::unique_ptr<Connection> connection, const std::string& why) {
  if (is_closed_) return;
  last_trouble_ = fmt::format("a connection from {} was refused: {}", connection->peer(), why);
  callers_.push_back(std::make_unique<Caller>(*this, std::move(connection)));
  Caller& caller = *callers_.back();
  caller.state = Caller::State::kRefused;
  FrameHeader header;
  header.type = FrameType::kError;
  const auto text = std::make_shared<const std::string>(why);  // owner: the frame
  caller.connection->send(header, std::as_bytes(std::span(*text)),
                          [&caller, text, weak = weak_from_this()] {
                            // Not called once the connection is closed, so the caller is there.
                            if (const auto self = weak.lock()) self->drop(caller);
                          });
}

void MeshListener::close() {
  is_closed_ = true;
  // Their destructors may be the last of whoever owns this.
  const auto self = shared_from_this();
  const OnGreeting greeting = std::exchange(on_greeting_, nullptr);
  const OnJoin join = std::exchange(on_join_, nullptr);
  while (!callers_.empty()) drop(*callers_.front());
}

}  // namespace longhaul
