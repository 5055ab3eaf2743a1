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
constexpr std::uint64_t kRankMax = std::numeric_limits<int>::max();
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
};

// ---- reading

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
  std::string reason() {
    const std::string_view text = take("reason");
    if (text.size() > kReasonBytesMax || reason_text(text) != text) {
      fail_value("reason", text, "short printable text");
    }
    return std::string(text);
  }
  std::vector<double> squares() {
    std::vector<double> values;
    std::string_view text = take("squares");
    while (!text.empty() && !error_) {
      const std::string_view item = text.substr(0, text.find(','));
      double value = 0;
      if (!parse_exact(item, value) || std::signbit(value)) {
        fail_value("squares", item, "an exact number that is not negative");
      } else if (values.size() == kStageTensorsMax) {
        fail_value("squares", item, "among the largest number of tensors");
      }
      values.push_back(value);
      if (item.size() == text.size()) break;
      text.remove_prefix(item.size() + 1);
      if (text.empty()) fail_value("squares", "", "an exact number");
    }
    return values;
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
  std::array<Field, 8> fields_;
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
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  if (kind == "prepared") return at.finish(read_prepared(at));
  if (kind == "commit") return at.finish(read_commit(at));
  if (kind == "stop") return at.finish(Stop{at.either("clean", "true", "false"), at.reason()});
  if (kind == "stopped") return at.finish(Stopped{at.whole("committed", kControlStepMax + 1)});
  if (kind == "failed") {
    return at.finish(Failed{static_cast<int>(at.whole("about", kRankMax)), at.reason()});
  }
  if (kind == "ping") return at.finish(Ping{at.whole("number", kAny)});
  if (kind == "pong") return at.finish(Pong{at.whole("number", kAny)});
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
