// The sentences of `longhaul simulate`'s what-if options, as text: one edit a sentence, words with
// spaces between them, several sentences with `;` between them. The grammar is written down in
// docs/formats.md. Nothing here knows a cluster or a job: names are looked up when an edit is
// applied (tools/what_if_world.h). Pure functions.
//
// Errors are kInvalid; they name the word that is wrong, its column, and what would be right.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace longhaul {

/// A part of a sentence and the column at which it stands, in characters from 1.
struct EditWord {
  std::string text;
  int column = 1;
};

enum class EditVerb {
  kLink,
  kInside,
  kSite,
  kNode,
  kDevice,
  kTcp,
  kJob,
  kPercentile,
  kRemove,
  kAdd
};

enum class Property {
  // of links
  kBandwidth,
  kLatency,
  kRoundTrip,
  kLoss,
  kJitter,
  kScope,
  kStreams,  // and of TCP
  // of sites and nodes
  kUplink,
  kDownlink,
  kEgress,
  kNic,
  // of devices
  kSpeed,
  kMemory,
  kPrice,
  kFailures,
  kKind,
  // of TCP
  kWindow,
  kCongestion,
  kWireFactor,
  // without a name
  kPercentile,
  kJobValue,
};

/// What becomes of a value.
struct Change {
  enum class How { kSet, kWord, kTimes, kOver, kPlus, kMinus };
  How how = How::kSet;
  double number = 0;  // in base units: seconds, bytes, bytes a second, ...
  std::string word;   // of kWord: `site_pair`, `auto`, `unlimited`, a kind, a value of a job

  /// The new value of `old`. Not for kWord.
  double of(double old) const;
};

struct Edit {
  EditVerb verb = EditVerb::kLink;
  std::string text;        // the whole sentence
  EditWord target;         // whose property: a name, a kind, `*`, a job's path; where a link begins
  EditWord to;             // of a link
  bool both_ways = false;  // of a link: A<->B
  std::string noun;        // of remove and add: site, node, device or link
  std::string devices;     // of add: `8xa100,4xt4`
  Property property = Property::kBandwidth;
  EditWord value;  // as it is written, the operator included
  Change change;
  std::string option;  // where it was given, for messages: `--set`
};

/// One sentence.
Result<Edit> parse_edit(std::string_view text);
/// `edit; edit`: at least one.
Result<std::vector<Edit>> parse_edits(std::string_view text);
/// `NAME: edit; edit`. Without a name, the sentences are the name.
struct NamedEdits {
  std::string name;
  std::vector<Edit> edits;
};
Result<NamedEdits> parse_scenario(std::string_view text);

/// The points of a sweep, each as the edit that it stands for.
struct SweepPoint {
  std::string text;         // the edit as a person would write it
  std::optional<double> x;  // in Sweep::unit; none for words
  Edit edit;
};
struct Sweep {
  std::string axis =
      {};  // `link * bandwidth`; ` (factor)` and the like where the values are changes
  std::string unit = {};  // `Mbit/s`, or empty
  bool is_log = false;
  std::vector<SweepPoint> points = {};
  /// `remove site *`: one point a site (node, device); the caller knows which there are.
  std::string every = {};
};
inline constexpr int kSweepPointsMax = 10000;
/// `SUBJECT FROM..TO [lin|log] N` or `SUBJECT A,B,C`, where SUBJECT is an edit without its value.
Result<Sweep> parse_sweep(std::string_view text);

/// An error about a part of a sentence: the message, the sentence with a caret, the hint. Its place
/// has a column and no file.
std::unexpected<Error> wrong_edit(std::string_view text, int column, std::string message,
                                  std::string hint = "");
/// The same with the option that the sentence stands in: `--set, column 6: ...`.
std::unexpected<Error> in_option(std::string_view option, Error error);

}  // namespace longhaul
