#include "executor/launch/control_link.h"

#include <fmt/core.h>

#include <utility>

namespace longhaul {

ControlLink::ControlLink(EventLoop& loop, std::unique_ptr<Connection> connection, std::uint64_t job,
                         const ControlLimits& limits, ControlLinkHooks hooks)
    : loop_(loop),
      connection_(std::move(connection)),
      job_(job),
      limits_(limits),
      hooks_(std::move(hooks)) {
  connection_->set_handler(this);
  timer_ = loop_.after(limits_.heartbeat_interval, [this] { beat(); });
}

ControlLink::~ControlLink() {
  loop_.cancel(timer_);
  connection_->close();
}

void ControlLink::send(const LaunchMessage& message) {
  FrameHeader header;
  header.type = FrameType::kControl;
  header.job = job_;
  const auto text = std::make_shared<const std::string>(launch_text(message));  // owner: the frame
  LH_CHECK(text->size() <= kMaxControlPayload, "messages are short, and specs were checked");
  connection_->send(header, std::as_bytes(std::span(*text)), [text] {});
}

void ControlLink::watch() {
  is_watched_ = true;
  silent_beats_ = 0;
}

std::optional<std::span<std::byte>> ControlLink::buffer_for(Connection&,
                                                            const FrameHeader& header) {
  silent_beats_ = 0;
  // decode_frame_header has held control payloads to their limit; an error's is held to the same.
  const bool is_text = header.type == FrameType::kControl || header.type == FrameType::kError;
  if (!is_text || header.payload_bytes > kMaxControlPayload) return std::nullopt;
  text_.resize(header.payload_bytes);
  return std::as_writable_bytes(std::span(text_));
}

void ControlLink::received(Connection&, const FrameHeader& header, std::span<const std::byte>) {
  silent_beats_ = 0;
  if (header.type == FrameType::kError) {
    return end(failed(fmt::format("it says: {}", text_.substr(0, kReasonBytesMax))).error());
  }
  if (header.type != FrameType::kControl) return;
  auto message = parse_launch(text_);
  text_.clear();
  if (!message) return end(within("it sent", std::move(message.error())).error());
  const auto handler = hooks_.received;  // may destroy this
  handler(std::move(*message));
}

void ControlLink::end(const Error& why) {
  loop_.cancel(std::exchange(timer_, kNoTimer));
  connection_->close();
  if (const auto handler = std::exchange(hooks_.closed, nullptr)) handler(why);
}

void ControlLink::beat() {
  if (is_watched_ && silent_beats_++ >= limits_.missed_heartbeats) {
    const double silence = limits_.heartbeat_interval.value() * limits_.missed_heartbeats;
    return end(failed(fmt::format("nothing was heard of it for {} s", silence)).error());
  }
  FrameHeader header;
  header.type = FrameType::kPing;
  header.job = job_;
  connection_->send(header, {}, [] {});
  timer_ = loop_.after(limits_.heartbeat_interval, [this] { beat(); });
}

}  // namespace longhaul
