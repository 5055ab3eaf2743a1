// Sweeps: a sentence with several values in the place of one.
#include <fmt/core.h>

#include <cmath>
#include <span>

#include "core/quantity.h"
#include "tools/what_if_words.h"

namespace longhaul {
namespace {

/// A number and its unit, each without the spaces between them.
struct Parts {
  std::string number;
  std::string unit;
};
Parts split_value(std::string_view text) {
  std::size_t size = 0;
  if (text.starts_with('-') || text.starts_with('+')) ++size;
  bool has_exponent = false;
  while (size < text.size()) {
    const char c = text[size];
    const auto is_digit = [&](std::size_t i) {
      return i < text.size() && text[i] >= '0' && text[i] <= '9';
    };
    if (is_digit(size) || (c == '.' && !text.substr(size).starts_with(".."))) {
      ++size;
    } else if ((c == 'e' || c == 'E') && !has_exponent && size > 0 &&
               (is_digit(size + 1) || is_digit(size + 2))) {
      has_exponent = true;
      size += 2;
    } else {
      break;
    }
  }
  Parts parts{std::string(text.substr(0, size)), std::string(text.substr(size))};
  parts.unit.erase(0, parts.unit.find_first_not_of(' '));
  return parts;
}

/// A value between the ends of a sweep: six digits, so that it can be read and written again.
double rounded(double value) {
  return parse_number(fmt::format("{:.6g}", value)).value_or(value);
}

/// The values of a sweep, before they are edits.
class SweepReader {
 public:
  SweepReader(std::string_view text, const EditHead& head, EditWord values, std::string subject)
      : text_(text), head_(head), values_(std::move(values)), subject_(std::move(subject)) {}

  Result<Sweep> read() {
    const Edit& edit = head_.edit;
    if (edit.verb == EditVerb::kAdd) {
      return wrong("what is added cannot be swept",
                   "sweep a property, such as `--sweep 'link * bandwidth *0.5..*2 log 5'`");
    }
    if (values_.text.empty()) {
      return wrong("a sweep needs values",
                   "such as 50Mbit/s..5Gbit/s log 12, *0.5..*2 log 5 or 1,2,4");
    }
    const bool is_range = values_.text.contains("..");
    if (is_range) {
      LH_TRY(range());
    } else {
      LH_TRY(list());
    }
    return std::move(sweep_);
  }

 private:
  std::unexpected<Error> wrong(std::string message, std::string hint = "") const {
    return wrong_edit(text_, values_.column, std::move(message), std::move(hint));
  }

  /// Adds a point that is `text` behind the subject.
  Result<void> add(const std::string& text, std::optional<double> x) {
    const std::string whole = subject_ + " " + text;
    Result<Edit> edit = parse_edit(whole);
    // The place is one of the sweep, not of the sentence that was made of it.
    if (!edit) return wrong(edit.error().message, edit.error().hint);
    sweep_.points.push_back({whole, x, *std::move(edit)});
    return {};
  }

  static std::string_view kind_of(char sign) {
    return sign == '*'   ? " (factor)"
           : sign == '/' ? " (divisor)"
           : sign == '+' ? " (added)"
           : sign == '-' ? " (taken away)"
                         : "";
  }

  Result<void> range() {
    if (is_word(head_.measure)) {
      return wrong("words have nothing between them", "give a list, such as node,site_pair");
    }
    std::string_view text = values_.text;
    const std::size_t dots = text.find("..");
    std::vector<EditWord> behind;  // `50Mbit/s..5Gbit/s log 12`: the words after the second value
    LH_ASSIGN(behind, edit_words(text.substr(dots + 2)));
    int count = 0;
    if (behind.size() < 2) {
      return wrong("a range needs its number of points", "such as 50Mbit/s..5Gbit/s log 12");
    }
    const std::string spelled = behind.back().text;
    behind.pop_back();
    const Result<double> number = parse_number(spelled);
    if (!number || *number != std::floor(*number)) {
      return wrong(fmt::format("`{}` is not a number of points", spelled),
                   "a range ends with it, such as 50Mbit/s..5Gbit/s log 12");
    }
    if (*number < 2 || *number > kSweepPointsMax) {
      return wrong(fmt::format("a range has 2 to {} points, not {}", kSweepPointsMax, spelled));
    }
    count = static_cast<int>(*number);
    if (behind.back().text == "log" || behind.back().text == "lin") {
      sweep_.is_log = behind.back().text == "log";
      behind.pop_back();
    } else if (behind.size() > 1) {
      const bool is_unit =
          behind.size() == 2 && in_base_units(head_.measure, "1 " + behind[1].text);
      if (!is_unit) {
        return wrong(fmt::format("`{}` is neither lin nor log", behind.back().text),
                     "points are spaced evenly (lin) or in the logarithm (log)");
      }
    }
    if (behind.empty()) return wrong("the range has no second end");
    std::string to;
    for (const EditWord& word : behind) to += (to.empty() ? "" : " ") + word.text;
    return points(std::string(text.substr(0, dots)), to, count);
  }

  /// `from` and `to` as they are written, an operator before each of them or none.
  Result<void> points(std::string from, std::string to, int count) {
    while (from.ends_with(' ')) from.pop_back();
    if (from.empty()) return wrong("the range has no first end", "such as 1..10 lin 10");
    char sign = 0;
    if (std::string_view("*/+-").contains(from.front())) sign = from.front();
    const bool same =
        sign == 0 ? !std::string_view("*/+-").contains(to.front()) : to.front() == sign;
    if (!same) {
      return wrong("the two ends of a range change the value in different ways",
                   "such as *0.25..*4 log 9, or 50Mbit/s..5Gbit/s log 12");
    }
    std::string prefix;
    if (sign != 0) {
      prefix = sign;
      from.erase(0, 1);
      to.erase(0, 1);
    }
    // Each end for itself, for what is wrong with it; then both in the unit of the first.
    for (const std::string& end : {from, to}) {
      if (const Result<Edit> edit = parse_edit(subject_ + " " + prefix + end); !edit) {
        return wrong(edit.error().message, edit.error().hint);
      }
    }
    const Parts first = split_value(from);
    const Parts second = split_value(to);
    const bool is_plain = first.unit.empty() || first.unit == "%";
    LH_ASSIGN(const double a, end_number(first.number));
    LH_ASSIGN(double b, end_number(second.number));
    if (is_plain != (second.unit.empty() || second.unit == "%") ||
        (is_plain && first.unit != second.unit)) {
      return wrong("the two ends of a range have different units");
    }
    if (!is_plain && first.unit != second.unit) {
      const Result<double> one = in_base_units(head_.measure, "1 " + first.unit);
      const Result<double> other = in_base_units(head_.measure, "1 " + second.unit);
      if (!one || !other) return wrong("the two ends of a range have different units");
      b = parse_number(fmt::format("{:.12g}", b * (*other / *one))).value_or(b);
    }
    if (a >= b) {
      return wrong(fmt::format("the range from {} to {} does not rise", from, to),
                   "the smaller end comes first");
    }
    if (sweep_.is_log && a <= 0) {
      return wrong(fmt::format("{} has no logarithm", from),
                   "begin above 0, or space the points evenly (lin)");
    }
    sweep_.axis = subject_ + std::string(kind_of(sign));
    sweep_.unit = first.unit;
    // Counts stay whole.
    const bool is_whole =
        sign == 0 && first.unit.empty() && head_.edit.verb != EditVerb::kPercentile &&
        (head_.measure == Measure::kAny || head_.measure == Measure::kCountOrAuto) &&
        a == std::floor(a) && b == std::floor(b);
    double last = -HUGE_VAL;
    for (int i = 0; i < count; ++i) {
      const double t = static_cast<double>(i) / (count - 1);
      double x = sweep_.is_log ? a * std::pow(b / a, t) : a + (b - a) * t;
      x = i == 0 ? a : i == count - 1 ? b : is_whole ? std::round(x) : rounded(x);
      if (x == last) continue;  // whole numbers close to one another
      last = x;
      const std::string gap = first.unit.empty() || first.unit == "%" ? "" : " ";
      LH_TRY(add(prefix + format_exact(x) + gap + first.unit, x));
    }
    return {};
  }

  Result<double> end_number(const std::string& text) const {
    const Result<double> number = parse_number(text);
    if (!number) return wrong(fmt::format("`{}` cannot be the end of a range", text));
    return *number;
  }

  Result<void> list() {
    sweep_.axis = subject_;
    std::string_view text = values_.text;
    std::optional<std::string> unit;
    bool is_numeric = true;
    std::vector<std::string> items;
    while (true) {
      const std::size_t comma = std::min(text.find(','), text.size());
      std::string item(text.substr(0, comma));
      item.erase(0, item.find_first_not_of(' '));
      while (item.ends_with(' ')) item.pop_back();
      if (item.empty()) return wrong("the list has an empty value", "such as 1,2,4");
      items.push_back(std::move(item));
      if (comma == text.size()) break;
      text.remove_prefix(comma + 1);
    }
    if (items.size() > kSweepPointsMax)
      return wrong(fmt::format("a sweep has at most {} points", kSweepPointsMax));
    char sign = 0;
    for (const std::string& item : items) {
      const char own = std::string_view("*/+-").contains(item.front()) ? item.front() : '\0';
      const Parts parts = split_value(own == 0 ? item : item.substr(1));
      if (!parse_number(parts.number)) is_numeric = false;
      if (unit && (*unit != parts.unit || sign != own)) is_numeric = false;
      unit = parts.unit;
      sign = own;
    }
    for (const std::string& item : items) {
      std::optional<double> x;
      if (is_numeric) x = *parse_number(split_value(sign == 0 ? item : item.substr(1)).number);
      LH_TRY(add(item, x));
    }
    if (is_numeric) {
      sweep_.unit = *unit;
      sweep_.axis += kind_of(sign);
    }
    return {};
  }

  std::string_view text_;
  const EditHead& head_;
  EditWord values_;
  std::string subject_;
  Sweep sweep_;
};

/// `remove site a,b,c` and `remove site *`.
Result<Sweep> sweep_of_removals(std::string_view text, std::span<const EditWord> words,
                                const EditHead& head) {
  Sweep sweep;
  sweep.axis = fmt::format("remove {}", head.edit.noun);
  const EditWord more = edit_rest(text, words, head.used);
  if (!more.text.empty()) {
    return wrong_edit(text, more.column,
                      fmt::format("nothing follows here, but `{}` does", more.text),
                      "names are separated by commas alone");
  }
  if (head.edit.target.text == "*" && head.edit.noun != "link") {
    sweep.every = head.edit.noun;
    return sweep;
  }
  std::string_view names = words.back().text;
  while (true) {
    const std::string_view name = names.substr(0, names.find(','));
    if (name.empty()) {
      return wrong_edit(text, words.back().column,
                        fmt::format("which {}? a name in the list is empty", head.edit.noun));
    }
    const EditWord name_word{std::string(name), 1};
    const std::string whole = fmt::format("{} {}", sweep.axis, edit_text({&name_word, 1}));
    Result<Edit> edit = parse_edit(whole);
    // The place is one of the sweep, not of the sentence that was made of it.
    if (!edit)
      return wrong_edit(text, words.back().column, edit.error().message, edit.error().hint);
    sweep.points.push_back({whole, std::nullopt, *std::move(edit)});
    if (name.size() == names.size()) return sweep;
    names.remove_prefix(name.size() + 1);
  }
}

}  // namespace

Result<Sweep> parse_sweep(std::string_view text) {
  LH_ASSIGN(const std::vector<EditWord> words, edit_words(text));
  LH_ASSIGN(const EditHead head, edit_head(text, words));
  if (head.edit.verb == EditVerb::kRemove) return sweep_of_removals(text, words, head);
  const std::string subject = edit_text(std::span(words).first(head.used));
  return SweepReader(text, head, edit_rest(text, words, head.used), subject).read();
}

}  // namespace longhaul
