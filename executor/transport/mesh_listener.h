// The one port of a process, open before it knows who its peers are.
//
// Takes callers, reads their first frame and hands them on by its type: HELLO to the mesh (see
// transport_mesh.h), a control text of at most kJoinBytesMax bytes to whoever takes joins; anything
// else ends the connection. Callers who greet before there is a mesh wait for it, at most
// kGreetedMax of them; of those who say nothing kSilentMax are kept (more where a mesh waits for
// more), and the oldest makes room for the next. A connection that is handed on has its next frames
// read by its new handler.
//
// Belongs to the thread of the event loop. The transport and the loop must outlive it, or close()
// must be called before they go.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/transport/transport.h"

namespace longhaul {

class MeshListener : public std::enable_shared_from_this<MeshListener> {
 public:
  static constexpr std::size_t kSilentMax = 64;
  static constexpr std::size_t kGreetedMax = 4096;
  static constexpr std::size_t kJoinBytesMax = std::size_t{64} << 10;

  using OnGreeting = std::function<void(std::unique_ptr<Connection>, const FrameHeader& hello)>;
  using OnJoin = std::function<void(std::unique_ptr<Connection>, const std::string& text)>;

  /// Listens on `address` (`host:port`; port 0 takes a free one). Owners: the caller, and the
  /// transport, which cannot close a port before it ends itself.
  static Result<std::shared_ptr<MeshListener>> open(Transport& transport, EventLoop& loop,
                                                    const std::string& address);
  ~MeshListener();
  MeshListener(const MeshListener&) = delete;
  MeshListener& operator=(const MeshListener&) = delete;

  /// Where it listens, with the real port.
  const std::string& address() const { return address_; }

  /// Who takes callers that greet, those that wait included. Without: they wait. `expected` are as
  /// many as may call at once: so many may be silent.
  void on_greeting(OnGreeting handler, std::size_t expected = 0);
  /// Who takes callers that join. Without: they are refused.
  void on_join(OnJoin handler) { on_join_ = std::move(handler); }

  /// Tells a caller why it is not let in (an ERROR frame), and ends the connection once that has
  /// left.
  void refuse(std::unique_ptr<Connection> connection, const std::string& why);
  /// Forgets its handlers and callers, and takes no more.
  void close();

  /// What went wrong last with somebody who called or was called, for reports of who is missing.
  const std::string& last_trouble() const { return last_trouble_; }
  void set_last_trouble(std::string what) { last_trouble_ = std::move(what); }

 private:
  struct Caller;

  explicit MeshListener(EventLoop& loop);
  void accept(std::unique_ptr<Connection> connection);
  void greeted(Caller& caller, const FrameHeader& hello);
  void joined(Caller& caller, const std::string& text);
  void ended(Caller& caller, const std::string& why);
  /// No more a caller; freed in a later task, because it may be the one that is called.
  Caller& retire(Caller& caller);
  /// Retires the caller, and takes or closes its connection.
  std::unique_ptr<Connection> take(Caller& caller);
  void drop(Caller& caller);

  EventLoop& loop_;
  std::string address_;
  OnGreeting on_greeting_;
  OnJoin on_join_;
  std::size_t silent_max_ = kSilentMax;
  std::deque<std::unique_ptr<Caller>> callers_;
  std::vector<std::unique_ptr<Caller>> retired_;
  std::string last_trouble_;
  bool is_closed_ = false;
};

}  // namespace longhaul
