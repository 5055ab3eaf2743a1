// Questions between ranks with an answer of known size (pieces of files, sequences of tokens), or
// of a size that only who answers knows (a part of a message again).
//
//   LHQ1 want id=7 bytes=4096 WHAT      the question, a control message
//   LHQ1 want id=7 at_most=4096 WHAT    the same where the answer may be shorter
//   (operation kind 15, step = id)      the answer, a message of the mesh
//   LHQ1 no id=7 REASON                 or why there is none
//
// Ids are the asker's own. Belongs to the loop's thread; the owner hands over what the mesh hears.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"

namespace longhaul {

/// A piece of an answer is at most so long.
inline constexpr std::size_t kAnswerBytesMax = std::size_t{64} << 20;

class MeshRequests {
 public:
  using Answer = std::move_only_function<void(Result<std::vector<std::byte>>)>;
  /// Answers once, now or later, with so many bytes, or no more where that was asked for.
  using Serve = std::function<void(const std::string& what, std::size_t bytes, Answer answer)>;

  MeshRequests(Mesh& mesh, Serve serve) : mesh_(mesh), serve_(std::move(serve)) {}
  MeshRequests(const MeshRequests&) = delete;
  MeshRequests& operator=(const MeshRequests&) = delete;

  /// `bytes` at most kAnswerBytesMax. `done` is not called once this is destroyed.
  void ask(int peer, const std::string& what, std::size_t bytes, Answer done);
  /// The same for an answer of so many bytes or fewer.
  void ask_at_most(int peer, const std::string& what, std::size_t bytes, Answer done);

  /// True when the text was a message of ours.
  bool received(int peer, const std::string& text);
  /// Fails the questions to that peer.
  void lost(int peer, const Error& why);

 private:
  struct Question {
    int peer = 0;
    Answer done;
  };
  struct Wanted {
    std::uint64_t id = 0;
    std::size_t bytes = 0;
    bool is_at_most = false;
  };
  std::uint64_t open(int peer, std::size_t bytes, Answer done);
  void on_want(int peer, const Wanted& wanted, const std::string& what);
  void finish(std::uint64_t id, Result<std::vector<std::byte>> answer);

  Mesh& mesh_;
  Serve serve_;
  std::map<std::uint64_t, Question> open_;
  std::uint64_t next_id_ = 0;
  // Owned here alone; answers look whether it is still there.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace longhaul
