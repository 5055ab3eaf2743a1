#include "executor/control/messages.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "executor/control/limits.h"
#include "executor/transport/frame.h"

namespace longhaul {
namespace {

constexpr std::string_view kVersion = "LHC1";
constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kRankMax = std::numeric_limits<int>::max();
constexpr std::uint64_t kSequencesMax = std::uint64_t{1} << 40;  // of a step
// `-0x1.fffffffffffffp-1022` and a comma.
static_assert(kStageTensorsMax * 25 + 256 <= kMaxControlPayload, "a whole stage fits a message");
static_assert(kReasonBytesMax + 64 <= kMaxControlPayload);

// ---- writing

std::string reason_text(std::string_view reason) {
  std::string text(reason.substr(0, kReasonBytesMax));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

struct Writer {
  std::string operator()(const Prepared& m) const {
    std::string text = fmt::format(
        "prepared step={} finite={} loss={} gradient={:016x} weights={:016x} squares=", m.step,
        m.finite, exact_text(m.loss), m.gradient_hash, m.weights_hash);
    for (std::size_t i = 0; i < m.squares.size(); ++i) {
      if (i > 0) text += ',';
      text += exact_text(m.squares[i]);
    }
    return text;
  }
  std::string operator()(const Commit& m) const {
    return fmt::format("commit step={} norm={} decision={}", m.step, exact_text(m.norm),
                       name_of(m.decision));
  }
  std::string operator()(const Stop& m) const {
    return fmt::format("stop clean={} reason={}", m.clean, reason_text(m.reason));
  }
  std::string operator()(const Stopped& m) const {
    return fmt::format("stopped committed={}", m.committed);
  }
  std::string operator()(const Failed& m) const {
    return fmt::format("failed about={} reason={}", m.about, reason_text(m.reason));
  }
  std::string operator()(const Ping& m) const { return fmt::format("ping number={}", m.number); }
  std::string operator()(const Pong& m) const { return fmt::format("pong number={}", m.number); }
  std::string operator()(const Validated& m) const {
    return fmt::format("validated step={} loss={} targets={}", m.step, exact_text(m.loss),
                       m.targets);
  }
  std::string operator()(const Saved& m) const {
    std::string text = fmt::format("saved step={} files=", m.step);
    for (std::size_t i = 0; i < m.files.size(); ++i) {
      text += fmt::format("{}{}:{}:{}", i > 0 ? "," : "", m.files[i].name, m.files[i].bytes,
                          m.files[i].hash.text());
    }
    return text;
  }
  std::string operator()(const Kept& m) const {
    return fmt::format("kept step={} oldest={}", m.step, m.oldest);
  }
  std::string operator()(const Measured& m) const {
    std::string text = fmt::format(
        "measured step={} origin={} start={} compute={} wait={} reduce={} commit={} "
        "update={} sent=",
        m.step, m.origin_ns, exact_text(m.start), exact_text(m.compute), exact_text(m.wait),
        exact_text(m.reduce), exact_text(m.commit), exact_text(m.update));
    for (std::size_t i = 0; i < m.sent.size(); ++i) {
      text += fmt::format("{}{}:{}:{}", i > 0 ? "," : "", m.sent[i].peer, m.sent[i].bytes,
                          m.sent[i].raw);
    }
    return text;
  }
  std::string operator()(const Times& m) const {
    std::string text = fmt::format("times step={} origin={} spans=", m.step, m.origin_ns);
    for (std::size_t i = 0; i < m.spans.size(); ++i) {
      text += fmt::format("{}{}:{}", i > 0 ? "," : "", exact_text(m.spans[i].first),
                          exact_text(m.spans[i].second));
    }
    return text;
  }
  std::string operator()(const HistoryVisits& m) const {
    return fmt::format("histories step={} first={} deltas={} whole={} healed={}", m.step, m.first,
                       m.deltas, m.whole, m.healed);
  }
  std::string operator()(const Recoded& m) const {
    return fmt::format("recoded step={} peer={} tensors={} from={} to={} busy={} compute={}",
                       m.step, m.peer, m.are_gradients ? "gradients" : "activations",
                       name_of(m.from), name_of(m.to), exact_text(m.busy), exact_text(m.compute));
  }
};

// ---- reading

/// A file name of ours, and no path out of a folder.
bool is_plain_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789-._";
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == name.npos;
}

/// What a message quotes of a peer's text.
std::string quoted(std::string_view text) {
  constexpr std::size_t kQuotedMax = 40;
  return reason_text(text.substr(0, kQuotedMax)) + (text.size() > kQuotedMax ? "..." : "");
}

/// The fields of one message. The first error is kept; readers answer something harmless after it.
class Fields {
 public:
  Fields(std::string_view kind, std::string_view text) : kind_(kind) { split(text); }

  std::uint64_t whole(std::string_view name, std::uint64_t max) {
    std::uint64_t value = 0;
    const std::string_view text = take(name);
    if (!parse_whole(text, max, value)) fail_value(name, text, "a whole number in range");
    return value;
  }
  double number(std::string_view name) {
    double value = 0;
    const std::string_view text = take(name);
    if (!parse_exact(text, value)) fail_value(name, text, "an exact number");
    return value;
  }
  std::uint64_t hash(std::string_view name) {
    const std::string_view text = take(name);
    std::uint64_t value = 0;
    const bool digits = text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (text.size() != 16 || !digits ||
        std::from_chars(text.data(), text.data() + text.size(), value, 16).ec != std::errc()) {
      fail_value(name, text, "a hash of 16 hexadecimal digits");
    }
    return value;
  }
  /// Which of the two `text` is: true for the first.
  bool either(std::string_view name, std::string_view first, std::string_view second) {
    const std::string_view text = take(name);
    if (text != first && text != second) {
      fail_value(name, text, fmt::format("`{}` or `{}`", first, second));
    }
    return text == first;
  }
  Codec codec(std::string_view name) {
    const std::string_view text = take(name);
    const std::optional<Codec> codec = codec_named(text);
    if (!codec) fail_value(name, text, "a codec");
    return codec.value_or(Codec::kNone);
  }
  std::string reason() {
    const std::string_view text = take("reason");
    if (text.size() > kReasonBytesMax || reason_text(text) != text) {
      fail_value("reason", text, "short printable text");
    }
    return std::string(text);
  }
  std::vector<double> squares() {
    std::vector<double> values;
    for_each_item("squares", "an exact number that is not negative", [&](std::string_view item) {
      double value = 0;
      const bool good = parse_exact(item, value) && !std::signbit(value);
      values.push_back(value);
      return good;
    });
    return values;
  }
  std::vector<CheckpointFile> files() {
    std::vector<CheckpointFile> files;
    for_each_item("files", "NAME:BYTES:HASH", [&](std::string_view item) {
      const auto parts = split_item<3>(item);
      if (!parts) return false;
      CheckpointFile file;
      file.name = (*parts)[0];
      const std::optional<ContentHash> hash = ContentHash::parse((*parts)[2]);
      if (!is_plain_name(file.name) || !hash || !parse_whole((*parts)[1], kAny, file.bytes)) {
        return false;
      }
      file.hash = *hash;
      files.push_back(std::move(file));
      return true;
    });
    return files;
  }
  std::vector<Measured::Sent> sent() {
    std::vector<Measured::Sent> all;
    for_each_item("sent", "PEER:BYTES:RAW", [&](std::string_view item) {
      const auto parts = split_item<3>(item);
      std::uint64_t peer = 0;
      Measured::Sent sent;
      if (!parts || !parse_whole((*parts)[0], kRankMax, peer) ||
          !parse_whole((*parts)[1], kAny, sent.bytes) ||
          !parse_whole((*parts)[2], kAny, sent.raw)) {
        return false;
      }
      sent.peer = static_cast<int>(peer);
      all.push_back(sent);
      return true;
    });
    return all;
  }
  std::vector<std::pair<double, double>> spans() {
    std::vector<std::pair<double, double>> all;
    for_each_item("spans", "START:END", [&](std::string_view item) {
      const auto parts = split_item<2>(item);
      std::pair<double, double> span;
      if (!parts || !parse_exact((*parts)[0], span.first) ||
          !parse_exact((*parts)[1], span.second)) {
        return false;
      }
      all.push_back(span);
      return true;
    });
    return all;
  }

  /// The message, unless something was wrong or is left over.
  Result<ControlMessage> finish(ControlMessage message) {
    for (std::size_t i = 0; i < count_ && !error_; ++i) {
      if (!fields_[i].taken) fail("is unknown", fields_[i].name);
    }
    if (error_) return std::unexpected(std::move(*error_));
    return message;
  }

 private:
  /// Reads a list `A,B,...`; `read` answers whether it could make sense of an item.
  template <class Read>
  void for_each_item(std::string_view name, std::string_view wanted, const Read& read) {
    std::string_view text = take(name);
    std::size_t count = 0;
    while (!text.empty() && !error_) {
      const std::string_view item = text.substr(0, text.find(','));
      if (++count > kStageTensorsMax) return fail_value(name, item, "within the longest list");
      if (!read(item)) return fail_value(name, item, wanted);
      if (item.size() == text.size()) return;
      text.remove_prefix(item.size() + 1);
      if (text.empty()) fail_value(name, "", wanted);
    }
  }
  /// `A:B:C` in exactly N parts.
  template <std::size_t N>
  static std::optional<std::array<std::string_view, N>> split_item(std::string_view item) {
    std::array<std::string_view, N> parts;
    for (std::size_t i = 0; i + 1 < N; ++i) {
      const std::size_t colon = item.find(':');
      if (colon == item.npos) return std::nullopt;
      parts[i] = item.substr(0, colon);
      item.remove_prefix(colon + 1);
    }
    if (item.find(':') != item.npos) return std::nullopt;
    parts[N - 1] = item;
    return parts;
  }

  struct Field {
    std::string_view name;
    std::string_view value;
    bool taken = false;
  };

  void split(std::string_view text) {
    while (!text.empty()) {
      const std::size_t equals = text.find('=');
      const std::string_view name = text.substr(0, equals);
      if (equals == text.npos) return fail("is no field", name);
      for (std::size_t i = 0; i < count_; ++i) {
        if (fields_[i].name == name) return fail("is there twice", name);
      }
      if (count_ == fields_.size()) return fail("is one field too many", name);
      const std::string_view rest = text.substr(equals + 1);
      const std::string_view value = name == "reason" ? rest : rest.substr(0, rest.find(' '));
      fields_[count_++] = {name, value, false};
      if (value.size() == rest.size()) return;
      text = rest.substr(value.size() + 1);
      if (text.empty()) return fail("is followed by a space and nothing", name);
    }
  }

  std::string_view take(std::string_view name) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (fields_[i].name != name) continue;
      fields_[i].taken = true;
      return fields_[i].value;
    }
    fail("is missing", name);
    return "";
  }
  void fail(std::string_view what, std::string_view name) {
    if (error_) return;
    error_ =
        failed(fmt::format("control message `{}`: `{}` {}", kind_, quoted(name), what)).error();
  }
  void fail_value(std::string_view name, std::string_view text, std::string_view wanted) {
    if (error_) return;
    error_ = failed(fmt::format("control message `{}`: {} is `{}`, which is not {}", kind_, name,
                                quoted(text), wanted))
                 .error();
  }

  std::string_view kind_;
  std::array<Field, 12> fields_;
  std::size_t count_ = 0;
  std::optional<Error> error_;
};

Prepared read_prepared(Fields& at) {
  Prepared m;
  m.step = at.whole("step", kControlStepMax);
  m.finite = at.either("finite", "true", "false");
  m.loss = at.number("loss");
  m.gradient_hash = at.hash("gradient");
  m.weights_hash = at.hash("weights");
  m.squares = at.squares();
  return m;
}

Measured read_measured(Fields& at) {
  Measured m;
  m.step = at.whole("step", kControlStepMax);
  m.origin_ns = at.whole("origin", kAny);
  m.start = at.number("start");
  m.compute = at.number("compute");
  m.wait = at.number("wait");
  m.reduce = at.number("reduce");
  m.commit = at.number("commit");
  m.update = at.number("update");
  m.sent = at.sent();
  return m;
}

HistoryVisits read_history_visits(Fields& at) {
  HistoryVisits m;
  m.step = at.whole("step", kControlStepMax);
  m.first = at.whole("first", kSequencesMax);
  m.deltas = at.whole("deltas", kSequencesMax);
  m.whole = at.whole("whole", kSequencesMax);
  m.healed = at.whole("healed", kSequencesMax);
  return m;
}

Recoded read_recoded(Fields& at) {
  Recoded m;
  m.step = at.whole("step", kControlStepMax);
  m.peer = static_cast<int>(at.whole("peer", kRankMax));
  m.are_gradients = at.either("tensors", "gradients", "activations");
  m.from = at.codec("from");
  m.to = at.codec("to");
  m.busy = at.number("busy");
  m.compute = at.number("compute");
  return m;
}

Commit read_commit(Fields& at) {
  Commit m;
  m.step = at.whole("step", kControlStepMax);
  m.norm = at.number("norm");
  m.decision = at.either("decision", "apply", "skip") ? Decision::kApply : Decision::kSkip;
  return m;
}

}  // namespace

std::string_view name_of(Decision decision) {
  return decision == Decision::kApply ? "apply" : "skip";
}

std::string control_text(const ControlMessage& message) {
  return std::string(kVersion) + " " + std::visit(Writer{}, message);
}

Result<ControlMessage> parse_control(std::string_view text) {
  if (text.size() > kMaxControlPayload) return failed("a control message is too long");
  if (!text.starts_with(kVersion) || text.substr(kVersion.size(), 1) != " ") {
    return failed(fmt::format("`{}` is no control message of version {}", quoted(text), kVersion));
  }
  text.remove_prefix(kVersion.size() + 1);
  const std::size_t space = text.find(' ');
  const std::string_view kind = text.substr(0, space);
  Fields at(kind, space == text.npos ? "" : text.substr(space + 1));
  if (kind == "prepared") return at.finish(read_prepared(at));
  if (kind == "commit") return at.finish(read_commit(at));
  if (kind == "stop") return at.finish(Stop{at.either("clean", "true", "false"), at.reason()});
  if (kind == "stopped") return at.finish(Stopped{at.whole("committed", kControlStepMax + 1)});
  if (kind == "failed") {
    return at.finish(Failed{static_cast<int>(at.whole("about", kRankMax)), at.reason()});
  }
  if (kind == "ping") return at.finish(Ping{at.whole("number", kAny)});
  if (kind == "pong") return at.finish(Pong{at.whole("number", kAny)});
  constexpr std::uint64_t kSteps = kControlStepMax + 1;
  if (kind == "validated") {
    return at.finish(
        Validated{at.whole("step", kSteps), at.number("loss"), at.whole("targets", kAny)});
  }
  if (kind == "saved") return at.finish(Saved{at.whole("step", kSteps), at.files()});
  if (kind == "kept") return at.finish(Kept{at.whole("step", kSteps), at.whole("oldest", kSteps)});
  if (kind == "measured") return at.finish(read_measured(at));
  if (kind == "times") {
    return at.finish(
        Times{at.whole("step", kControlStepMax), at.whole("origin", kAny), at.spans()});
  }
  if (kind == "histories") return at.finish(read_history_visits(at));
  if (kind == "recoded") return at.finish(read_recoded(at));
  return failed(fmt::format("`{}` is no kind of control message", quoted(kind)));
}

std::string exact_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), std::abs(value),
                                 std::chars_format::hex);
  return (std::signbit(value) ? "-0x" : "0x") + std::string(digits.data(), end.ptr);
}

bool parse_exact(std::string_view text, double& value) {
  if (text == "nan") value = std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") value = std::numeric_limits<double>::infinity();
  if (text == "-inf") value = -std::numeric_limits<double>::infinity();
  if (text == "nan" || text == "inf" || text == "-inf") return true;
  const std::string_view whole_text = text;
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (!text.starts_with("0x")) return false;
  text.remove_prefix(2);
  // from_chars would also take a second sign, `inf` and `nan` here.
  if (text.empty() || (text[0] != '0' && text[0] != '1')) return false;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::hex);
  if (stop != end || error != std::errc()) return false;
  if (negative) value = -value;
  // Only our own spelling: every other one was rounded, or is a peer that counts differently.
  return exact_text(value) == whole_text;
}

bool parse_whole(std::string_view text, std::uint64_t max, std::uint64_t& value) {
  if (text.size() > 1 && text[0] == '0') return false;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && stop == end && error == std::errc() && value <= max;
}

bool same_number(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace longhaul
