#include "executor/control/journal.h"

#include <fmt/core.h>

#include <limits>
#include <span>
#include <utility>

#include "executor/control/limits.h"
#include "executor/transport/frame.h"

namespace longhaul {
namespace {

constexpr std::string_view kCheckField = " check=";

std::string sealed(std::string_view line) {
  return fmt::format("{}{}{:08x}\n", line, kCheckField,
                     payload_checksum(std::as_bytes(std::span(line))));
}

std::string first_line(std::uint64_t job) {
  return sealed(fmt::format("longhaul-journal/1 job={:016x}", job));
}

std::string line_of(const JournalEntry& entry) {
  return sealed(fmt::format("term={} step={} decision={} norm={} loss={}", entry.term, entry.step,
                            name_of(entry.decision), exact_text(entry.norm),
                            exact_text(entry.loss)));
}

/// Takes `NAME=VALUE` and the space after it off the front.
std::optional<std::string_view> take(std::string_view& line, std::string_view name) {
  if (!line.starts_with(name) || line.substr(name.size(), 1) != "=") return std::nullopt;
  line.remove_prefix(name.size() + 1);
  const std::string_view value = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), value.size() + 1));
  return value;
}

/// A line without its end; nothing when it is not one of ours to the last byte.
std::optional<JournalEntry> parse_line(std::string_view line) {
  std::string_view rest = line;
  const auto term_text = take(rest, "term");
  const auto step_text = take(rest, "step");
  const auto decision = take(rest, "decision");
  const auto norm = take(rest, "norm");
  const auto loss = take(rest, "loss");
  JournalEntry entry;
  std::uint64_t term = 0;
  if (!term_text || !parse_whole(*term_text, std::numeric_limits<std::uint32_t>::max(), term) ||
      !step_text || !parse_whole(*step_text, kControlStepMax, entry.step) || !decision || !norm ||
      !parse_exact(*norm, entry.norm) || !loss || !parse_exact(*loss, entry.loss)) {
    return std::nullopt;
  }
  entry.term = static_cast<std::uint32_t>(term);
  entry.decision = *decision == "apply" ? Decision::kApply : Decision::kSkip;
  // Writing it again checks the rest: names, order, spaces and the checksum.
  if (line_of(entry) != std::string(line) + "\n") return std::nullopt;
  return entry;
}

/// Why `entry` cannot come after `last`; empty when it can.
std::string wrong_order(const std::optional<JournalEntry>& last, const JournalEntry& entry) {
  if (!last) return "";
  if (entry.term < last->term) {
    return fmt::format("term {} after term {}", entry.term, last->term);
  }
  if (entry.step > last->step + 1 || (entry.term == last->term && entry.step != last->step + 1)) {
    return fmt::format("step {} after step {}", entry.step, last->step);
  }
  return "";
}

std::unexpected<Error> damaged(const std::string& name, int line, std::string message) {
  Error error;
  error.code = ErrorCode::kInvalid;
  error.message = std::move(message);
  error.place = {name, line, 0};
  return std::unexpected(std::move(error));
}

}  // namespace

Result<JournalText> parse_journal(std::string_view text, const std::string& name,
                                  std::uint64_t job) {
  JournalText journal;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size(); begin = journal.whole_bytes) {
    const std::size_t end = text.find('\n', begin);
    ++number;
    if (end == std::string_view::npos) {  // torn: never synced
      if (number > 1 || first_line(job).starts_with(text)) break;
      return damaged(name, 1, "this is not the journal of this job");
    }
    const std::string_view line = text.substr(begin, end - begin);
    journal.whole_bytes = end + 1;
    if (number == 1) {
      if (text.substr(0, end + 1) == first_line(job)) continue;
      return damaged(name, 1, "this is not the journal of this job");
    }
    const auto entry = parse_line(line);
    if (!entry) {
      return damaged(name, number, "the line is damaged: what was committed is no longer known");
    }
    const std::string wrong =
        wrong_order(journal.entries.empty() ? std::optional<JournalEntry>()
                                            : std::optional(journal.entries.back()),
                    *entry);
    if (!wrong.empty()) return damaged(name, number, fmt::format("{} is out of order", wrong));
    journal.entries.push_back(*entry);
  }
  return journal;
}

Result<Journal> Journal::open(Storage& storage, const std::string& path, std::uint64_t job,
                              std::uint64_t bytes_max) {
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  std::string text;
  if (kind != EntryKind::kAbsent) {
    LH_ASSIGN(text, read_text(storage, path, bytes_max));
  }
  LH_ASSIGN(const JournalText read, parse_journal(text, path, job));
  text.resize(read.whole_bytes);
  if (text.empty()) text = first_line(job);
  // Anew even when nothing was torn: a line that a killed process wrote and did not sync can be
  // read, and lost by the next power failure. Storage cannot say which, nor cut a file.
  LH_TRY(write_file(storage, path, text));
  LH_ASSIGN(auto file, storage.extend(path));
  Journal journal(std::move(file), text.size(), bytes_max);
  for (const JournalEntry& entry : read.entries) journal.note(entry);
  return journal;
}

void Journal::note(const JournalEntry& entry) {
  trailing_skips_ = entry.decision == Decision::kSkip ? trailing_skips_ + 1 : 0;
  last_ = entry;
}

Result<void> Journal::append(const JournalEntry& entry) {
  if (file_ == nullptr) return failed("the journal has failed before and takes no more steps");
  if (const std::string wrong = wrong_order(last_, entry); !wrong.empty()) {
    return failed(fmt::format("{}: {} would be out of order", file_->path(), wrong));
  }
  const std::string line = line_of(entry);
  if (line.size() > bytes_max_ - bytes_) {
    return failed(fmt::format("{} is full: it may have {} bytes", file_->path(), bytes_max_));
  }
  auto written = file_->append(std::as_bytes(std::span(line)));
  if (written) written = file_->sync();
  if (!written) {
    file_.reset();
    return within(fmt::format("step {} is not journalled", entry.step), std::move(written).error());
  }
  bytes_ += line.size();
  note(entry);
  return {};
}

}  // namespace longhaul
