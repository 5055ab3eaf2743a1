#include "executor/control/journal.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kJob = 0x0123456789abcdef;
constexpr const char* kPath = "runs/x/journal";

JournalEntry entry(std::uint64_t step, std::uint32_t term = 1) {
  return {term, step, step % 3 == 2 ? Decision::kSkip : Decision::kApply,
          0.1 * static_cast<double>(step), 11.0 / static_cast<double>(step + 1)};
}

/// A run folder whose journal has steps 0 to `steps` - 1.
struct RunFolder {
  explicit RunFolder(std::uint64_t steps) {
    storage.put("runs/x/plan", "");
    auto journal = Journal::open(storage, kPath, kJob);
    EXPECT_TRUE(journal);
    for (std::uint64_t s = 0; s < steps; ++s) EXPECT_TRUE(journal->append(entry(s)));
  }
  const std::string& text() const { return storage.bytes(kPath); }
  std::size_t steps() const { return parse_journal(text(), kPath, kJob)->entries.size(); }

  SimStorage storage;
};

std::string error_of(std::string_view text) {
  const auto journal = parse_journal(text, "j", kJob);
  if (journal) return "";
  EXPECT_EQ(journal.error().code, ErrorCode::kInvalid);
  return journal.error().place.text() + " " + journal.error().message;
}

TEST(Journal, opened_again_goes_on_where_it_ended) {
  RunFolder run(3);
  auto journal = Journal::open(run.storage, kPath, kJob);
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->last());
  EXPECT_EQ(journal->last()->step, 2u);
  EXPECT_EQ(journal->trailing_skips(), 1);  // step 2
  EXPECT_TRUE(journal->append(entry(3)));
  const auto read = parse_journal(run.text(), kPath, kJob);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->entries.size(), 4u);
  for (std::uint64_t s = 0; s < 4; ++s) {
    const JournalEntry& at = read->entries[s];
    EXPECT_EQ(at.term, 1u);
    EXPECT_EQ(at.step, s);
    EXPECT_EQ(at.decision, entry(s).decision);
    EXPECT_EQ(at.norm, entry(s).norm);
    EXPECT_EQ(at.loss, entry(s).loss);
  }
}

TEST(Journal, looks_as_documented) {
  const RunFolder run(1);
  const std::string text = run.text();
  EXPECT_TRUE(text.starts_with("longhaul-journal/1 job=0123456789abcdef check="));
  EXPECT_NE(text.find("\nterm=1 step=0 decision=apply norm=0x0p+0 loss=0x1.6p+3 check="),
            std::string::npos);
}

TEST(Journal, torn_last_line_is_cut_off_wherever_it_is_torn) {
  const std::string whole = RunFolder(2).text();
  const std::size_t first_end = whole.find('\n') + 1;
  const std::size_t second_end = whole.find('\n', first_end) + 1;
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    RunFolder run(0);
    run.storage.put(kPath, whole.substr(0, bytes));
    auto journal = Journal::open(run.storage, kPath, kJob);
    ASSERT_TRUE(journal) << bytes;
    const std::uint64_t steps = bytes < second_end ? 0 : 1;
    EXPECT_EQ(run.steps(), steps) << bytes;
    EXPECT_EQ(run.text(), whole.substr(0, steps == 0 ? first_end : second_end)) << bytes;
    EXPECT_TRUE(journal->append(entry(steps))) << bytes;
    EXPECT_EQ(run.steps(), steps + 1) << bytes;
  }
}

TEST(Journal, any_flipped_bit_of_a_whole_line_is_found_and_placed) {
  const std::string whole = RunFolder(2).text();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = whole;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      if (at == whole.size() - 1) {
        // Without its end the last line is as if torn.
        EXPECT_EQ(parse_journal(bad, "j", kJob)->entries.size(), 1u);
        continue;
      }
      const auto line = 1 + std::count(whole.begin(), whole.begin() + static_cast<long>(at), '\n');
      EXPECT_TRUE(error_of(bad).starts_with("j:" + std::to_string(line))) << at << error_of(bad);
    }
  }
}

TEST(Journal, refuses_missing_repeated_and_foreign_lines) {
  const std::string text = RunFolder(3).text();
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(error_of(lines[0] + lines[1] + lines[3]), "j:3 step 2 after step 0 is out of order");
  EXPECT_EQ(error_of(lines[0] + lines[1] + lines[1]), "j:3 step 0 after step 0 is out of order");
  EXPECT_EQ(error_of(lines[1]), "j:1 this is not the journal of this job");
  EXPECT_FALSE(parse_journal(text, "j", kJob + 1));
  EXPECT_EQ(error_of("somebody's notes"), "j:1 this is not the journal of this job");
}

TEST(Journal, a_new_term_may_start_from_an_earlier_step_but_not_beyond) {
  RunFolder run(5);
  auto journal = Journal::open(run.storage, kPath, kJob);
  EXPECT_FALSE(journal->append(entry(6)));     // step 5 is missing
  EXPECT_FALSE(journal->append(entry(4)));     // committed already
  EXPECT_FALSE(journal->append(entry(6, 2)));  // beyond
  EXPECT_TRUE(journal->append(entry(5, 2)));
  EXPECT_TRUE(journal->append(entry(2, 3)));   // from a checkpoint
  EXPECT_FALSE(journal->append(entry(3, 2)));  // an old term
  EXPECT_TRUE(journal->append(entry(3, 3)));
  EXPECT_EQ(run.steps(), 8u);
}

TEST(Journal, takes_nothing_after_an_error) {
  RunFolder run(1);
  auto journal = Journal::open(run.storage, kPath, kJob);
  run.storage.fail_at(run.storage.operations() + 2);  // the sync
  EXPECT_FALSE(journal->append(entry(1)));
  EXPECT_FALSE(journal->append(entry(1)));
  // Whatever was written is known after opening.
  journal = Journal::open(run.storage, kPath, kJob);
  ASSERT_TRUE(journal);
  EXPECT_TRUE(journal->append(entry(run.steps())));
}

TEST(Journal, size_limit_holds_the_last_line_that_fits) {
  RunFolder run(1);
  const std::size_t line = run.text().size() - run.text().find('\n') - 1;
  // Steps 0 and 3 are both applied; their numbers have other lengths, so step 0 again in term 2.
  auto full = Journal::open(run.storage, kPath, kJob, run.text().size() + line - 1);
  EXPECT_FALSE(full->append(entry(0, 2)));
  auto fits = Journal::open(run.storage, kPath, kJob, run.text().size() + line);
  EXPECT_TRUE(fits->append(entry(0, 2)));
}

TEST(Journal, what_open_has_answered_survives_a_power_failure) {
  // The process was killed between write and sync: the line is there, and only in memory.
  RunFolder run(1);
  {
    auto journal = Journal::open(run.storage, kPath, kJob);
    run.storage.fail_at(run.storage.operations() + 2);
    EXPECT_FALSE(journal->append(entry(1)));
  }
  auto journal = Journal::open(run.storage, kPath, kJob);
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->last()->step, 1u);
  run.storage.restart(CrashLoss::kAllUnsynced);
  EXPECT_EQ(run.steps(), 2u);
}

}  // namespace
}  // namespace longhaul
