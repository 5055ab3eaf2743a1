#include "tools/what_if_grammar.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/config_cursor.h"
#include "core/quantity.h"
#include "tools/what_if_words.h"

namespace longhaul {
namespace {

struct Entry {
  EditVerb verb;
  std::string_view name;
  Property property;
  Measure measure;
};

constexpr std::array kProperties = {
    Entry{EditVerb::kLink, "bandwidth", Property::kBandwidth, Measure::kRate},
    Entry{EditVerb::kLink, "latency", Property::kLatency, Measure::kDuration},
    Entry{EditVerb::kLink, "rtt", Property::kRoundTrip, Measure::kDuration},
    Entry{EditVerb::kLink, "loss", Property::kLoss, Measure::kNumber},
    Entry{EditVerb::kLink, "jitter", Property::kJitter, Measure::kDuration},
    Entry{EditVerb::kLink, "scope", Property::kScope, Measure::kScope},
    Entry{EditVerb::kLink, "streams", Property::kStreams, Measure::kCountOrAuto},
    Entry{EditVerb::kInside, "bandwidth", Property::kBandwidth, Measure::kRate},
    Entry{EditVerb::kInside, "latency", Property::kLatency, Measure::kDuration},
    Entry{EditVerb::kInside, "rtt", Property::kRoundTrip, Measure::kDuration},
    Entry{EditVerb::kInside, "loss", Property::kLoss, Measure::kNumber},
    Entry{EditVerb::kInside, "jitter", Property::kJitter, Measure::kDuration},
    Entry{EditVerb::kInside, "scope", Property::kScope, Measure::kScope},
    Entry{EditVerb::kInside, "streams", Property::kStreams, Measure::kCountOrAuto},
    Entry{EditVerb::kSite, "uplink", Property::kUplink, Measure::kRateOrUnlimited},
    Entry{EditVerb::kSite, "downlink", Property::kDownlink, Measure::kRateOrUnlimited},
    Entry{EditVerb::kSite, "egress", Property::kEgress, Measure::kUsdPerByte},
    Entry{EditVerb::kNode, "nic", Property::kNic, Measure::kRateOrUnlimited},
    Entry{EditVerb::kDevice, "speed", Property::kSpeed, Measure::kFlopRate},
    Entry{EditVerb::kDevice, "memory", Property::kMemory, Measure::kSize},
    Entry{EditVerb::kDevice, "price", Property::kPrice, Measure::kUsdPerHour},
    Entry{EditVerb::kDevice, "failures", Property::kFailures, Measure::kNumber},
    Entry{EditVerb::kDevice, "kind", Property::kKind, Measure::kName},
    Entry{EditVerb::kTcp, "window", Property::kWindow, Measure::kSizeOrUnlimited},
    Entry{EditVerb::kTcp, "streams", Property::kStreams, Measure::kCountOrAuto},
    Entry{EditVerb::kTcp, "congestion", Property::kCongestion, Measure::kCongestion},
    Entry{EditVerb::kTcp, "wire_factor", Property::kWireFactor, Measure::kNumber},
};

struct Verb {
  std::string_view name;
  EditVerb verb;
  std::string_view form;  // what follows it
};
constexpr std::array kVerbs = {
    Verb{"link", EditVerb::kLink, "link A->B PROPERTY VALUE"},
    Verb{"inside", EditVerb::kInside, "inside SITE PROPERTY VALUE"},
    Verb{"site", EditVerb::kSite, "site SITE PROPERTY VALUE"},
    Verb{"node", EditVerb::kNode, "node NODE nic VALUE"},
    Verb{"device", EditVerb::kDevice, "device DEVICE|KIND|* PROPERTY VALUE"},
    Verb{"tcp", EditVerb::kTcp, "tcp PROPERTY VALUE"},
    Verb{"job", EditVerb::kJob, "job KEY VALUE"},
    Verb{"percentile", EditVerb::kPercentile, "percentile 0..100"},
    Verb{"remove", EditVerb::kRemove, "remove site|node|device|link NAME"},
    Verb{"add", EditVerb::kAdd, "add site|node NAME:DEVICES"},
};

std::string_view form_of(EditVerb verb) {
  return std::ranges::find(kVerbs, verb, &Verb::verb)->form;
}

std::vector<std::string> names_of(const auto& entries, auto&& keep) {
  std::vector<std::string> names;
  for (const auto& entry : entries) {
    if (keep(entry)) names.emplace_back(entry.name);
  }
  return names;
}

/// A sentence being read. What is missing is missed behind the last word.
class HeadReader {
 public:
  HeadReader(std::string_view text, std::span<const EditWord> words) : text_(text), words_(words) {}

  Result<EditHead> read() {
    head_.edit.text = text_;
    LH_ASSIGN(const EditWord verb, next("an edit begins with what it changes", all_verbs()));
    const auto found = std::ranges::find(kVerbs, verb.text, &Verb::name);
    if (found == kVerbs.end()) {
      const auto names = names_of(kVerbs, [](const Verb&) { return true; });
      const bool is_name = verb.text.contains(':');
      return wrong(verb, fmt::format("no edit begins with `{}`", verb.text),
                   did_you_mean(verb.text, names,
                                is_name ? "a scenario is `NAME: edit; edit`, with a space after "
                                          "the colon"
                                        : all_verbs()));
    }
    head_.edit.verb = found->verb;
    switch (found->verb) {
      case EditVerb::kLink:
        LH_TRY(ends());
        break;
      case EditVerb::kJob: {
        LH_ASSIGN(head_.edit.target,
                  next("`job` needs a key of the job file", "such as `job batch.global 2048`"));
        head_.edit.property = Property::kJobValue;
        break;
      }
      case EditVerb::kPercentile:
        head_.edit.property = Property::kPercentile;
        head_.measure = Measure::kNumber;
        break;
      case EditVerb::kRemove:
      case EditVerb::kAdd:
        LH_TRY(noun());
        break;
      case EditVerb::kTcp:
        break;
      default: {
        LH_ASSIGN(head_.edit.target, next(fmt::format("`{}` needs a name", found->name),
                                          fmt::format("write `{}`", found->form)));
      }
    }
    const bool has_property =
        std::ranges::find(kProperties, found->verb, &Entry::verb) != kProperties.end();
    if (has_property) LH_TRY(property());
    head_.used = used_;
    return std::move(head_);
  }

 private:
  std::unexpected<Error> wrong(const EditWord& word, std::string message,
                               std::string hint = "") const {
    return wrong_edit(text_, word.column, std::move(message), std::move(hint));
  }

  static std::string all_verbs() {
    return fmt::format("edits begin with {}",
                       fmt::join(names_of(kVerbs, [](const Verb&) { return true; }), ", "));
  }

  int end_column() const { return edit_columns(text_) + 1; }

  Result<EditWord> next(std::string message, std::string hint) {
    if (used_ < words_.size()) return words_[used_++];
    return wrong_edit(text_, end_column(), std::move(message), std::move(hint));
  }

  /// Ends of a link: `A->B`, `A<->B`, `*`, with or without spaces around the arrow.
  Result<void> ends() {
    const std::string hint = "write `link A->B`, `link A<->B`, `link A->*` or `link *`";
    LH_ASSIGN(EditWord ends, next("`link` needs its two ends", hint));
    while (used_ < words_.size() &&
           (ends.text.ends_with("->") || words_[used_].text.starts_with("->") ||
            words_[used_].text.starts_with("<->"))) {
      ends.text += words_[used_++].text;
    }
    Edit& edit = head_.edit;
    if (ends.text == "*") {
      edit.target = edit.to = ends;
      return {};
    }
    const std::size_t arrow = ends.text.find("->");
    if (arrow == ends.text.npos)
      return wrong(ends, fmt::format("`{}` are not two ends of a link", ends.text), hint);
    edit.both_ways = arrow > 0 && ends.text[arrow - 1] == '<';
    const std::size_t from_size = arrow - (edit.both_ways ? 1 : 0);
    edit.target = {ends.text.substr(0, from_size), ends.column};
    edit.to = {ends.text.substr(arrow + 2),
               ends.column + edit_columns(ends.text.substr(0, arrow + 2))};
    if (edit.target.text.empty() || edit.to.text.empty())
      return wrong(ends, fmt::format("`{}` lacks an end", ends.text), hint);
    if (edit.to.text.contains("->"))
      return wrong(ends, fmt::format("`{}` has more than two ends", ends.text), hint);
    return {};
  }

  Result<void> noun() {
    Edit& edit = head_.edit;
    const bool adds = edit.verb == EditVerb::kAdd;
    const std::string hint = fmt::format("write `{}`", form_of(edit.verb));
    LH_ASSIGN(const EditWord word,
              next(fmt::format("what is to be {}?", adds ? "added" : "removed"), hint));
    const std::vector<std::string> nouns =
        adds ? std::vector<std::string>{"site", "node"}
             : std::vector<std::string>{"site", "node", "device", "link"};
    if (std::ranges::find(nouns, word.text) == nouns.end()) {
      return wrong(
          word, fmt::format("`{}` cannot be {}", word.text, adds ? "added" : "removed"),
          did_you_mean(word.text, nouns, fmt::format("one of {}", fmt::join(nouns, ", "))));
    }
    edit.noun = word.text;
    if (edit.noun == "link") return ends();
    LH_ASSIGN(edit.target, next(fmt::format("which {}?", edit.noun), hint));
    if (!adds) return {};
    const std::size_t colon = edit.target.text.find(':');
    if (colon == edit.target.text.npos || colon == 0 || colon + 1 == edit.target.text.size()) {
      return wrong(edit.target,
                   fmt::format("`{}` does not say which devices it has", edit.target.text),
                   fmt::format("write `add {} NAME:8xa100`", edit.noun));
    }
    edit.devices = edit.target.text.substr(colon + 1);
    edit.target.text.resize(colon);
    return {};
  }

  Result<void> property() {
    const EditVerb verb = head_.edit.verb;
    const auto is_its = [&](const Entry& entry) { return entry.verb == verb; };
    const std::vector<std::string> names = names_of(kProperties, is_its);
    const std::string_view subject = std::ranges::find(kVerbs, verb, &Verb::verb)->name;
    const std::string all =
        fmt::format("a {}'s properties: {}", verb == EditVerb::kInside ? "link" : subject,
                    fmt::join(names, ", "));
    LH_ASSIGN(const EditWord word,
              next(fmt::format("`{}` needs a property and a value", subject), all));
    for (const Entry& entry : kProperties) {
      if (entry.verb != verb || entry.name != word.text) continue;
      head_.edit.property = entry.property;
      head_.measure = entry.measure;
      return {};
    }
    // Whose is it, if not this one's?
    const auto other = std::ranges::find(kProperties, word.text, &Entry::name);
    std::string hint = all;
    if (other != kProperties.end()) {
      hint = fmt::format("write `{}`; {}", form_of(other->verb), all);
    }
    return wrong(word,
                 fmt::format("`{}` is not a property of a {}", word.text,
                             verb == EditVerb::kInside ? "link" : subject),
                 did_you_mean(word.text, names, hint));
  }

  std::string_view text_;
  std::span<const EditWord> words_;
  std::size_t used_ = 0;
  EditHead head_;
};

/// The words that a property takes beside or instead of numbers.
std::vector<std::string> choices_of(Measure measure) {
  switch (measure) {
    case Measure::kScope:
      return {"node", "site_pair"};
    case Measure::kCongestion:
      return {"bbr", "cubic"};
    case Measure::kRateOrUnlimited:
    case Measure::kSizeOrUnlimited:
      return {"unlimited"};
    case Measure::kCountOrAuto:
      return {"auto"};
    default:
      return {};
  }
}

/// A percentage or a factor behind an operator; errors have no place yet.
Result<Change> changed_by(char sign, std::string_view operand, Measure measure) {
  using How = Change::How;
  if (is_word(measure)) {
    return invalid(fmt::format("a word cannot be changed by `{}`", sign), "give the word itself");
  }
  if (sign == '*' || sign == '/') {
    LH_ASSIGN(const double factor, parse_number(operand));
    if (factor <= 0) {
      return invalid(fmt::format("a factor must be more than 0, and `{}` is not", operand),
                     "give the value itself, without a factor");
    }
    return Change{sign == '*' ? How::kTimes : How::kOver, factor, ""};
  }
  if (operand.ends_with('%')) {
    std::string_view digits = operand.substr(0, operand.size() - 1);
    while (digits.ends_with(' ')) digits.remove_suffix(1);
    LH_ASSIGN(const double percent, parse_number(digits));
    const double factor = sign == '+' ? 1 + percent / 100 : 1 - percent / 100;
    if (percent < 0 || factor <= 0) {
      return invalid(fmt::format("`{}{}` leaves nothing", sign, operand),
                     "less than 100 % can be taken away");
    }
    return Change{How::kTimes, factor, ""};
  }
  LH_ASSIGN(const double amount,
            in_base_units(measure == Measure::kAny ? Measure::kNumber : measure, operand));
  return Change{sign == '+' ? How::kPlus : How::kMinus, amount, ""};
}

Result<Change> parse_change(std::string_view text, Measure measure) {
  using How = Change::How;
  if (std::string_view("*/+-").contains(text.front())) {
    std::string_view operand = text.substr(1);
    while (operand.starts_with(' ')) operand.remove_prefix(1);
    if (operand.empty()) {
      return invalid(fmt::format("`{}` by how much?", text.front()),
                     "such as *2, /4, +10% or -5ms");
    }
    return changed_by(text.front(), operand, measure);
  }
  const std::vector<std::string> choices = choices_of(measure);
  const bool is_choice = std::ranges::find(choices, text) != choices.end();
  if (measure == Measure::kAny || measure == Measure::kName || is_choice) {
    return Change{How::kWord, 0, std::string(text)};
  }
  if (is_word(measure)) {
    const std::string all = fmt::format("one of {}", fmt::join(choices, ", "));
    return invalid(fmt::format("`{}` is none of the values", text),
                   did_you_mean(text, choices, all));
  }
  Result<double> number = in_base_units(measure, text);
  if (!number && !choices.empty()) {
    std::string& hint = number.error().hint;
    hint = did_you_mean(
        text, choices,
        fmt::format("{}{}or {}", hint, hint.empty() ? "" : "; ", fmt::join(choices, ", ")));
  }
  if (!number) return std::unexpected(std::move(number).error());
  return Change{How::kSet, *number, ""};
}

}  // namespace

Result<EditHead> edit_head(std::string_view text, std::span<const EditWord> words) {
  return HeadReader(text, words).read();
}

Result<double> in_base_units(Measure measure, std::string_view text) {
  const auto value = [](const auto& parsed) -> Result<double> {
    if (!parsed) return std::unexpected(parsed.error());
    return parsed->value();
  };
  switch (measure) {
    case Measure::kRate:
    case Measure::kRateOrUnlimited:
      return value(parse_rate(text));
    case Measure::kDuration:
      return value(parse_duration(text));
    case Measure::kSize:
    case Measure::kSizeOrUnlimited:
      return value(parse_size(text));
    case Measure::kFlopRate:
      return value(parse_flop_rate(text));
    case Measure::kUsdPerHour:
      return parse_usd_per_hour(text);
    case Measure::kUsdPerByte:
      return parse_usd_per_byte(text);
    default:
      break;
  }
  if (text.ends_with('%')) {
    return invalid(fmt::format("`{}` is a percentage, and this takes a plain number", text),
                   "write 0.01 for one in a hundred; +1% makes a value a hundredth larger");
  }
  return parse_number(text);
}

bool is_word(Measure measure) {
  return measure == Measure::kScope || measure == Measure::kCongestion || measure == Measure::kName;
}

double Change::of(double old) const {
  switch (how) {
    case How::kTimes:
      return old * number;
    case How::kOver:
      return old / number;
    case How::kPlus:
      return old + number;
    case How::kMinus:
      return old - number;
    default:
      return number;
  }
}

Result<Edit> parse_edit(std::string_view text) {
  LH_ASSIGN(const std::vector<EditWord> words, edit_words(text));
  LH_ASSIGN(EditHead head, edit_head(text, words));
  Edit edit = std::move(head.edit);
  edit.value = edit_rest(text, words, head.used);
  const auto wrong = [&](std::string message, std::string hint) {
    return wrong_edit(text, edit.value.column, std::move(message), std::move(hint));
  };
  if (edit.verb == EditVerb::kRemove || edit.verb == EditVerb::kAdd) {
    if (!edit.value.text.empty())
      return wrong(fmt::format("nothing follows here, but `{}` does", edit.value.text),
                   "one sentence is one edit; `;` separates several");
    return edit;
  }
  if (edit.value.text.empty()) {
    return wrong("the value is missing", fmt::format("write `{}`", form_of(edit.verb)));
  }
  Result<Change> change = parse_change(edit.value.text, head.measure);
  if (!change) return wrong(change.error().message, change.error().hint);
  edit.change = *std::move(change);
  return edit;
}

Result<std::vector<Edit>> parse_edits(std::string_view text) {
  std::vector<Edit> edits;
  for (const std::string_view sentence : edit_sentences(text)) {
    LH_ASSIGN(Edit edit, parse_edit(sentence));
    edits.push_back(std::move(edit));
  }
  return edits;
}

Result<NamedEdits> parse_scenario(std::string_view text) {
  NamedEdits out;
  out.name = text;
  const std::size_t colon = text.find(": ");
  if (colon != text.npos) {
    out.name = text.substr(0, colon);
    text.remove_prefix(colon + 2);
  }
  LH_ASSIGN(out.edits, parse_edits(text));
  if (out.name.empty()) return wrong_edit(text, 1, "the scenario's name is empty");
  return out;
}

}  // namespace longhaul
