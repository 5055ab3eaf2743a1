#include "executor/launch/launch_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "executor/transport/frame.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSchema = "longhaul/join/1";
constexpr int kRankMax = 1 << 24;

// Kinds, in the order of LaunchMessage.
constexpr std::string_view kKinds[] = {"join",   "welcome", "listening", "addresses",
                                       "exited", "failed",  "terminate", "start"};
static_assert(std::size(kKinds) == std::variant_size_v<LaunchMessage>);

/// What an error quotes of a peer's text.
std::string excerpt(std::string_view text) {
  constexpr std::size_t kQuotedMax = 40;
  std::string cut(text.substr(0, kQuotedMax));
  for (char& c : cut) {
    if (c < ' ' || c > '~') c = '?';
  }
  return cut + (text.size() > kQuotedMax ? "..." : "");
}

std::string job_text(std::uint64_t job) {
  return fmt::format("{:016x}", job);
}

/// `host:port`, of characters that need no escape anywhere.
bool is_address(std::string_view text) {
  constexpr std::string_view kCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]%";
  const std::size_t colon = text.rfind(':');
  return text.size() <= kAddressBytesMax && colon != std::string_view::npos && colon > 0 &&
         colon + 1 < text.size() && text.find_first_not_of(kCharacters) == std::string_view::npos &&
         text.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
}

/// Writes the fields of a message, or reads them: one list of fields serves both.
class Writer {
 public:
  explicit Writer(Json& json) : json_(json) {}
  void text(const char* name, const std::string& value) { json_[name] = value; }
  void address(const char* name, const std::string& value) { text(name, value); }
  void number(const char* name, int value, int /*max*/) { json_[name] = value; }
  void job(const char* name, std::uint64_t value) { json_[name] = job_text(value); }
  void texts(const char* name, const std::vector<std::string>& values) { json_[name] = values; }
  void ranks(const char* name, const std::vector<int>& values) { json_[name] = values; }

 private:
  Json& json_;
};

/// The first error is kept; values after it are of no account.
class Reader {
 public:
  Reader(const Json& json, std::string_view kind) : json_(json), kind_(kind) {}

  void text(const char* name, std::string& value) {
    const Json* const field = take(name);
    if (field == nullptr) return;
    if (!field->is_string()) return fail(name, "is not text");
    value = field->get<std::string>();
  }
  void address(const char* name, std::string& value) {
    text(name, value);
    if (error_.empty() && !is_address(value)) fail(name, "is not an address");
  }
  void number(const char* name, int& value, int max) {
    if (const Json* const field = take(name)) read_number(name, *field, max, value);
  }
  void job(const char* name, std::uint64_t& value) {
    std::string digits;
    text(name, digits);
    if (!error_.empty()) return;
    const auto end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value, 16);
    if (read.ec != std::errc() || read.ptr != end || digits != job_text(value)) {
      fail(name, "is not 16 hexadecimal digits");
    }
  }
  void texts(const char* name, std::vector<std::string>& values) {
    const Json* const field = take_list(name);
    if (field == nullptr) return;
    for (const Json& entry : *field) {
      if (!entry.is_string()) return fail(name, "holds what is not text");
      values.push_back(entry.get<std::string>());
    }
  }
  void ranks(const char* name, std::vector<int>& values) {
    const Json* const field = take_list(name);
    if (field == nullptr) return;
    for (const Json& entry : *field) {
      values.push_back(0);
      read_number(name, entry, kRankMax, values.back());
    }
  }
  /// Why it is not such a message; empty when it is.
  std::string error() const {
    if (!error_.empty()) return error_;
    for (const auto& [name, value] : json_.items()) {
      if (!taken_.contains(name)) {
        return fmt::format("`{}` has an unknown field `{}`", kind_, excerpt(name));
      }
    }
    return "";
  }

 private:
  const Json* take(const char* name) {
    taken_.insert(name);
    if (!error_.empty()) return nullptr;
    const auto field = json_.find(name);
    if (field != json_.end()) return &*field;
    fail(name, "is missing");
    return nullptr;
  }
  const Json* take_list(const char* name) {
    const Json* const field = take(name);
    if (field == nullptr || field->is_array()) return field;
    fail(name, "is not a list");
    return nullptr;
  }
  void read_number(const char* name, const Json& field, int max, int& value) {
    if (!field.is_number_unsigned() || field.get<std::uint64_t>() > static_cast<unsigned>(max)) {
      return fail(name, "is not a whole number in range");
    }
    value = field.get<int>();
  }
  void fail(const char* name, const char* what) {
    if (error_.empty()) error_ = fmt::format("`{}` of `{}` {}", name, kind_, what);
  }

  const Json& json_;
  std::string_view kind_;
  std::set<std::string> taken_ = {"schema", "kind"};
  std::string error_;
};

void fields(auto& f, Join& m) {
  f.text("token", m.token);
  f.text("node", m.node);
  f.text("public_key", m.public_key);
  f.text("host", m.host);
}
void fields(auto& f, Welcome& m) {
  f.job("job", m.job);
  f.text("node", m.node);
  f.ranks("ranks", m.ranks);
  f.text("spec", m.spec);
  f.text("certificate", m.certificate);
  f.text("authority", m.authority);
}
void fields(auto& f, Listening& m) {
  f.number("rank", m.rank, kRankMax);
  f.address("address", m.address);
}
void fields(auto& f, PeerAddresses& m) {
  f.texts("addresses", m.addresses);
  f.texts("identities", m.identities);
}
void fields(auto& f, WorkerExited& m) {
  f.number("rank", m.rank, kRankMax);
  f.number("status", m.status, 255);
  f.number("signal", m.signal, 127);
  f.text("last_line", m.last_line);
}
void fields(auto& f, AgentFailed& m) {
  f.text("reason", m.reason);
}
void fields(auto& f, Terminate& m) {
  f.text("reason", m.reason);
}
void fields(auto& f, WorkerStart& m) {
  f.number("rank", m.rank, kRankMax);
  f.job("job", m.job);
  f.text("node", m.node);
  f.text("host", m.host);
  f.text("folder", m.folder);
  f.text("spec", m.spec);
  f.text("authority", m.authority);
  f.text("certificate", m.certificate);
  f.text("key", m.key);
}

template <std::size_t kKind = 0>
Result<LaunchMessage> read_message(const Json& json, std::string_view kind) {
  if constexpr (kKind == std::size(kKinds)) {
    return failed(fmt::format("a message of unknown kind `{}`", excerpt(kind)));
  } else {
    if (kind != kKinds[kKind]) return read_message<kKind + 1>(json, kind);
    std::variant_alternative_t<kKind, LaunchMessage> message;
    Reader reader(json, kind);
    fields(reader, message);
    if (std::string wrong = reader.error(); !wrong.empty()) return failed(std::move(wrong));
    return message;
  }
}

/// A text field of every message; empty when it is not there.
std::string text_of(const Json& json, const char* name) {
  const auto field = json.find(name);
  return field != json.end() && field->is_string() ? field->get<std::string>() : "";
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

constexpr std::string_view kListening = "listening ";

}  // namespace

std::string WorkerExited::text() const {
  std::string text = signal != 0 ? fmt::format("rank {} was ended by signal {}", rank, signal)
                                 : fmt::format("rank {} exited with status {}", rank, status);
  return last_line.empty() ? text : text + ": " + last_line;
}

std::string launch_text(const LaunchMessage& message) {
  Json json = {{"schema", kSchema}, {"kind", kKinds[message.index()]}};
  Writer writer(json);
  std::visit([&](auto copy) { fields(writer, copy); }, message);
  return dump(json);
}

Result<LaunchMessage> parse_launch(std::string_view text) {
  std::set<std::string> names;
  std::string repeated;
  const auto look = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key &&
        !names.insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  const Json json = Json::parse(text, look, false);
  if (!json.is_object()) return failed("a message that is not a JSON document");
  if (!repeated.empty()) return failed(fmt::format("a message with two `{}`", excerpt(repeated)));
  if (const std::string schema = text_of(json, "schema"); schema != kSchema) {
    return failed(fmt::format("a message of schema `{}`, and this program speaks {}",
                              excerpt(schema), kSchema),
                  "use the same version of longhaul everywhere");
  }
  return read_message(json, text_of(json, "kind"));
}

Result<void> check_spec(std::string_view spec) {
  const std::string once = dump(Json(spec));
  if (once.size() > kSpecBytesMax) {
    return invalid(fmt::format("the job's description has {} bytes, and at most {} can be sent",
                               once.size(), kSpecBytesMax));
  }
  if (Json::parse(once).get<std::string>() != spec) {
    return invalid("the job's description is not UTF-8");
  }
  return {};
}

std::string listening_line(std::string_view address) {
  return fmt::format("{}{}", kListening, address);
}

std::string address_in_line(std::string_view line) {
  if (!line.starts_with(kListening)) return "";
  line.remove_prefix(kListening.size());
  return is_address(line) ? std::string(line) : "";
}

}  // namespace longhaul
