// Reads the YAML files that people write. Every value knows its file, line and column; unknown and
// repeated keys are errors with a did-you-mean; all errors of a file are reported at once.
//
//   LH_ASSIGN(ConfigFile file, ConfigFile::load("job.yaml"));
//   Cursor root = file.root();
//   job.layers = root.key("model").key("layers").integer({.min = 1, .max = 10000});
//   job.seed = root.optional("seed").integer({.min = 0, .max = 1 << 30}, 0);
//   LH_TRY(file.finish());     // unknown keys, and every error recorded above, sorted by place
//
// A read never stops the reader: on a missing or wrong value it records the error in the file and
// answers the fallback, and reads below an absent value are silent, so a loader is straight-line
// code. Call finish() before trusting anything that was read. Not thread-safe; a Cursor must not
// outlive its document, which a moved ConfigFile takes along.
//
// What is known: a name that was asked for with key(), optional() or has() is a known key of that
// map; the other keys of such a map are errors. A map that nobody asked for a key is not judged. A
// key without a value (`layers:`) is present and is the wrong kind for every read: only a key that
// is not there at all gives the fallback silently.
//
// Limits: 16 MiB a file, 64 levels of nesting, 100 errors reported. Text is UTF-8 without control
// characters. Anchors, aliases, tags and several documents in a file are refused. Columns count
// characters, not bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

struct ConfigDocument;  // the parsed text and its errors
struct ConfigNode;

struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

class Cursor {
 public:
  /// False for a value that the file does not have.
  bool present() const { return node_ != nullptr; }
  bool is_map() const;
  bool is_list() const;
  bool is_scalar() const;
  /// Path from the root, for example `sites[2].nodes[0].nic`; empty for the root. An absent value
  /// has the path at which it would be.
  std::string path() const;
  SourcePlace place() const;

  /// A key that must be there; its absence is recorded as an error at this map. This and the next
  /// two record an error when the value is no map: where several kinds are allowed, ask is_map().
  Cursor key(std::string_view name) const;
  /// A key that may be absent.
  Cursor optional(std::string_view name) const;
  bool has(std::string_view name) const { return optional(name).present(); }
  /// Items of a list; an error unless this is a list (of at least one item when `nonempty`).
  std::vector<Cursor> items(bool nonempty = true) const;
  /// Entries of a map whose keys are free names; every key counts as known.
  std::vector<std::pair<std::string, Cursor>> entries() const;

  // Scalars. Each records an error and answers `fallback` when the value is of another kind, out of
  // range or lacks its unit; answers `fallback` silently when absent. A number or a boolean in
  // quotes is a text; a quantity or a choice may be quoted.
  std::string text(std::string fallback = "") const;
  std::int64_t integer(IntegerRange range = {}, std::int64_t fallback = 0) const;
  double number(NumberRange range = {}, double fallback = 0) const;
  bool boolean(bool fallback = false) const;
  /// One of `choices`; the error lists them. Answers the index into `choices`.
  std::size_t choice(std::span<const std::string_view> choices, std::size_t fallback = 0) const;
  std::size_t choice(std::initializer_list<std::string_view> choices,
                     std::size_t fallback = 0) const {
    return choice(std::span(choices.begin(), choices.size()), fallback);
  }
  Seconds duration(Seconds fallback = {}) const;                 // `48 ms`, >= 0
  Bytes size(Bytes fallback = {}) const;                         // `16 GiB`, >= 0
  BytesPerSecond rate(BytesPerSecond fallback = {}) const;       // `0.6 Gbit/s`, > 0
  FlopsPerSecond flop_rate(FlopsPerSecond fallback = {}) const;  // `125 TFLOP/s`, > 0
  double usd_per_hour(double fallback = 0) const;                // `3.06 USD/h`, >= 0
  double usd_per_byte(double fallback = 0) const;                // `0.02 USD/GB`, >= 0

  /// Records an error at this value: for rules that span several values. Works on an absent value
  /// too (the place is then that of the nearest enclosing map that exists).
  void fail(std::string message, std::string hint = "") const;

 private:
  friend class ConfigFile;
  Cursor(ConfigDocument* document, ConfigNode* node, ConfigNode* nearest, std::string absent = "")
      : document_(document), node_(node), nearest_(nearest), absent_path_(std::move(absent)) {}
  ConfigNode* map_or_error() const;
  ConfigNode* scalar_or_error(std::string_view wanted, std::string_view example) const;
  void wrong(std::string_view wanted, std::string_view example, std::string hint = "") const;
  template <class T>
  T quantity(Result<T> (*parse)(std::string_view), std::string_view wanted,
             std::string_view example, bool zero_allowed, T fallback) const;

  ConfigDocument* document_;
  ConfigNode* node_;         // null: absent
  ConfigNode* nearest_;      // the node itself, or the nearest enclosing one that exists
  std::string absent_path_;  // path() of an absent value
};

class ConfigFile {
 public:
  static Result<ConfigFile> load(const std::string& path);
  /// `name` stands for the file in messages.
  static Result<ConfigFile> parse(std::string_view text, std::string name);
  ConfigFile(ConfigFile&&) noexcept;
  ConfigFile& operator=(ConfigFile&&) noexcept;
  ~ConfigFile();

  Cursor root();
  const std::string& name() const;
  /// The whole text as it was read (to be hashed by callers that identify inputs).
  const std::string& text() const;
  /// Also checks that `schema: <expected>` is there: `longhaul/job/1`. Call first: when the file is
  /// of another kind or version, finish() reports that alone, and not what follows from it.
  void expect_schema(std::string_view expected);
  /// All recorded errors and all unknown keys, sorted by place, as one Error; or success.
  Result<void> finish();

 private:
  explicit ConfigFile(std::unique_ptr<ConfigDocument> document);
  std::unique_ptr<ConfigDocument> document_;
};

/// The candidate nearest to `word`, or empty when none is near enough to be meant. Nearness is the
/// number of letters inserted, deleted, replaced or swapped with their neighbour; case is free; of
/// equally near ones the first. Words of more than 64 bytes are near nothing.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);
/// The hint that guesses which of `known` was meant by `word`, or `otherwise` when none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         const std::string& otherwise = "");

/// `text` as a YAML scalar that reads back as itself, in a flow list or map too: plain when it is
/// made of letters, digits and `_./-` alone, else in double quotes. For files that we write.
std::string yaml_text(std::string_view text);

}  // namespace longhaul
