// The coordinator's journal of committed steps. A step is committed exactly when its line is
// durable here: the line is synced before any worker hears COMMIT.
//
//   longhaul-journal/1 job=0123456789abcdef check=HHHHHHHH
//   term=1 step=0 decision=apply norm=0x1.08p+0 loss=0x1.6p+3 check=HHHHHHHH
//   term=1 step=1 decision=skip norm=inf loss=nan check=HHHHHHHH
//
// Lines end in \n. `check` is the CRC-32C, 8 hexadecimal digits, of all of the line before `
// check`; numbers are written as in messages.h. Steps of a term follow one another; a larger term
// goes on after the last step or again from an earlier one (a checkpoint), never beyond: what was
// committed since is then history of a run that was lost.
//
// A crash can leave part of a last line: it was never synced, so nobody was told, and it is cut
// off. A damaged line before the last, or a whole last line that is wrong, is an error with file
// and line. Opening writes what it has read anew: what was there may never have been synced.
//
// Calls block: they are made on a thread that may (see storage.h), by one thread at a time. After
// an error the journal takes no more: what the file holds is known only by opening it again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/control/messages.h"
#include "executor/storage/storage.h"

namespace longhaul {

struct JournalEntry {
  std::uint32_t term = 0;
  std::uint64_t step = 0;
  Decision decision = Decision::kApply;
  double norm = 0;
  double loss = 0;
};

struct JournalText {
  std::vector<JournalEntry> entries;
  std::size_t whole_bytes = 0;  // without a torn last line
};
/// `name` stands for the file in errors (kInvalid).
Result<JournalText> parse_journal(std::string_view text, const std::string& name,
                                  std::uint64_t job);

/// Some 10 million steps. A step that would grow the journal beyond is refused.
inline constexpr std::uint64_t kJournalBytesMax = std::uint64_t{1} << 30;

class Journal {
 public:
  /// Opens the journal of `job`, or starts one. Its folder must be there.
  static Result<Journal> open(Storage& storage, const std::string& path, std::uint64_t job,
                              std::uint64_t bytes_max = kJournalBytesMax);

  /// The entry is durable when this answers. It must be the next step of its term, see above.
  Result<void> append(const JournalEntry& entry);

  /// The last committed step, of whatever term.
  const std::optional<JournalEntry>& last() const { return last_; }
  /// Steps in a row, up to the last, that were skipped.
  int trailing_skips() const { return trailing_skips_; }

 private:
  Journal(std::unique_ptr<WritableFile> file, std::uint64_t bytes, std::uint64_t bytes_max)
      : file_(std::move(file)), bytes_(bytes), bytes_max_(bytes_max) {}
  void note(const JournalEntry& entry);

  std::unique_ptr<WritableFile> file_;  // null after an error
  std::uint64_t bytes_;
  std::uint64_t bytes_max_;
  std::optional<JournalEntry> last_;
  int trailing_skips_ = 0;
};

}  // namespace longhaul
