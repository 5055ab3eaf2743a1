#include "executor/run/mesh_requests.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "executor/control/limits.h"
#include "executor/control/messages.h"
#include "executor/transport/frame.h"

namespace longhaul {
namespace {

constexpr std::string_view kWant = "LHQ1 want ";
constexpr std::string_view kNo = "LHQ1 no ";
constexpr std::uint64_t kIdMax = (std::uint64_t{1} << 28) - 1;
constexpr std::uint8_t kAnswerKind = 15;

std::uint64_t operation_of(std::uint64_t id) {
  return encode_operation({.step = static_cast<std::uint32_t>(id), .kind = kAnswerKind});
}

/// Takes `NAME=NUMBER ` from the front of the text.
std::optional<std::uint64_t> take_number(std::string_view& text, std::string_view name,
                                         std::uint64_t max) {
  if (!text.starts_with(name) || text.substr(name.size(), 1) != "=") return std::nullopt;
  text.remove_prefix(name.size() + 1);
  const std::string_view digits = text.substr(0, text.find(' '));
  std::uint64_t value = 0;
  if (digits.size() == text.size() || !parse_whole(digits, max, value)) return std::nullopt;
  text.remove_prefix(digits.size() + 1);
  return value;
}

}  // namespace

std::uint64_t MeshRequests::open(int peer, std::size_t bytes, Answer done) {
  LH_CHECK(bytes <= kAnswerBytesMax, "longer answers are asked for in pieces");
  const std::uint64_t id = next_id_++ & kIdMax;
  open_[id] = {peer, std::move(done)};
  return id;
}

void MeshRequests::ask(int peer, const std::string& what, std::size_t bytes, Answer done) {
  const std::uint64_t id = open(peer, bytes, std::move(done));
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);  // owners: the mesh's completion
  const std::span<std::byte> span(*buffer);
  mesh_.receive(peer, operation_of(id), 0, span,
                [this, id, buffer, alive = std::weak_ptr(alive_)]() mutable {
                  if (!alive.expired()) finish(id, std::move(*buffer));
                });
  mesh_.send_control(peer, fmt::format("{}id={} bytes={} {}", kWant, id, bytes, what));
}

void MeshRequests::ask_at_most(int peer, const std::string& what, std::size_t bytes, Answer done) {
  const std::uint64_t id = open(peer, bytes, std::move(done));
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);  // owners: the mesh's callback
  const std::span<std::byte> span(*buffer);
  mesh_.receive_growing(
      peer, operation_of(id), 0, span,
      [this, id, buffer, alive = std::weak_ptr(alive_)](std::size_t arrived, bool is_last) mutable {
        if (!is_last || alive.expired()) return;
        buffer->resize(arrived);
        finish(id, std::move(*buffer));
      });
  mesh_.send_control(peer, fmt::format("{}id={} at_most={} {}", kWant, id, bytes, what));
}

bool MeshRequests::received(int peer, const std::string& text) {
  std::string_view rest = text;
  if (rest.starts_with(kWant)) {
    rest.remove_prefix(kWant.size());
    const auto id = take_number(rest, "id", kIdMax);
    if (!id) return false;
    const bool is_at_most = rest.starts_with("at_most=");
    const auto bytes = take_number(rest, is_at_most ? "at_most" : "bytes", kAnswerBytesMax);
    if (!bytes) return false;
    on_want(peer, {*id, static_cast<std::size_t>(*bytes), is_at_most}, std::string(rest));
    return true;
  }
  if (rest.starts_with(kNo)) {
    rest.remove_prefix(kNo.size());
    const auto id = take_number(rest, "id", kIdMax);
    if (!id) return false;
    const auto at = open_.find(*id);
    if (at != open_.end() && at->second.peer == peer) {
      finish(*id, failed(fmt::format("rank {} has not what is wanted: {}", peer, rest)));
    }
    return true;
  }
  return false;
}

void MeshRequests::on_want(int peer, const Wanted& wanted, const std::string& what) {
  const auto refuse = [this, peer, id = wanted.id](const std::string& why) {
    mesh_.send_control(peer, fmt::format("{}id={} {}", kNo, id, why.substr(0, kReasonBytesMax)));
  };
  if (!serve_) return refuse("nothing is served here");
  serve_(what, wanted.bytes,
         [this, peer, wanted, refuse,
          alive = std::weak_ptr(alive_)](Result<std::vector<std::byte>> answer) {
           if (alive.expired()) return;
           if (!answer) return refuse(answer.error().message);
           const bool is_short = answer->size() < wanted.bytes;
           if (answer->size() > wanted.bytes || (is_short && !wanted.is_at_most)) {
             return refuse(fmt::format("it has {} bytes, not {}", answer->size(), wanted.bytes));
           }
           // Owners: the mesh's completion.
           auto kept = std::make_shared<std::vector<std::byte>>(std::move(*answer));
           const std::span<const std::byte> span(*kept);
           mesh_.send(peer, operation_of(wanted.id), 0, span, [kept] {});
         });
}

void MeshRequests::finish(std::uint64_t id, Result<std::vector<std::byte>> answer) {
  const auto at = open_.find(id);
  if (at == open_.end()) return;
  Answer done = std::move(at->second.done);
  open_.erase(at);
  done(std::move(answer));
}

void MeshRequests::lost(int peer, const Error& why) {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, question] : open_) {
    if (question.peer == peer) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) finish(id, std::unexpected(why));
}

}  // namespace longhaul
