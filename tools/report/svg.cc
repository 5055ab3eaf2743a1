#include "tools/report/svg.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <utility>

namespace longhaul {
namespace {

/// Characters of UTF-8: all bytes but those that continue one.
std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

std::string class_of(std::string_view style) {
  return style.empty() ? "" : fmt::format(" class=\"{}\"", style);
}

/// Bytes of the UTF-8 character that `text` begins with; 0 where it is none that XML may hold.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return first >= 0x20 || first == '\n' || first == '\t' ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3fu);
  }
  const std::uint32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < least || code > 0x10ffff || is_surrogate || (code & 0xfffe) == 0xfffe ? 0 : length;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    switch (length == 0 ? ' ' : text[0]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += length == 0 ? " " : text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text, double size) {
  return 0.56 * size * static_cast<double>(characters(text));
}

std::string shortened(std::string_view text, double size, double width) {
  if (text_width(text, size) <= width) return std::string(text);
  std::string out(text);
  while (!out.empty() && text_width(out, size) + 0.56 * size > width) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty()) out.pop_back();
  }
  return out + "…";
}

Svg::Svg(std::string_view id, double width, double height, std::string_view title,
         std::string_view description)
    : id_(id), width_(width), height_(height) {
  out_ = fmt::format(
      "<svg id=\"{0}\" viewBox=\"0 0 {1} {2}\" role=\"img\" aria-labelledby=\"{0}-title "
      "{0}-desc\">\n<title id=\"{0}-title\">{3}</title>\n"
      "<desc id=\"{0}-desc\">{4}</desc>\n",
      id_, coordinate(width), coordinate(height), escaped(title), escaped(description));
}

void Svg::end(std::string_view element, std::string_view hint) {
  out_ += hint.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", escaped(hint), element);
}

void Svg::rect(double x, double y, double width, double height, std::string_view style,
               std::string_view hint) {
  out_ += fmt::format("<rect{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", class_of(style),
                      coordinate(x), coordinate(y), coordinate(width), coordinate(height));
  end("rect", hint);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  out_ += fmt::format("<line{} x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", class_of(style),
                      coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2));
}

void Svg::circle(double x, double y, double radius, std::string_view style, std::string_view hint) {
  out_ += fmt::format("<circle{} cx=\"{}\" cy=\"{}\" r=\"{}\"", class_of(style), coordinate(x),
                      coordinate(y), coordinate(radius));
  end("circle", hint);
}

void Svg::path(std::string_view d, std::string_view style, std::string_view hint) {
  if (d.empty()) return;
  out_ += fmt::format("<path{} d=\"{}\"", class_of(style), d);
  end("path", hint);
}

void Svg::path(std::string_view d, std::string_view style, double width, std::string_view hint) {
  if (d.empty()) return;
  out_ +=
      fmt::format("<path{} stroke-width=\"{}\" d=\"{}\"", class_of(style), coordinate(width), d);
  end("path", hint);
}

void Svg::text(double x, double y, std::string_view text, std::string_view style, Anchor anchor) {
  constexpr std::string_view kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  out_ += fmt::format("<text{} x=\"{}\" y=\"{}\"{}>{}</text>\n", class_of(style), coordinate(x),
                      coordinate(y), kAnchors[static_cast<int>(anchor)], escaped(text));
}

void Svg::begin_group(std::string_view style, std::string_view hint) {
  out_ += fmt::format("<g{}>", class_of(style));
  if (!hint.empty()) out_ += fmt::format("<title>{}</title>", escaped(hint));
  out_ += '\n';
}

void Svg::end_group() {
  out_ += "</g>\n";
}

void Svg::begin_clip(double x, double y, double width, double height) {
  const std::string name = fmt::format("{}-clip{}", id_, clips_++);
  out_ += fmt::format(
      "<clipPath id=\"{0}\"><rect x=\"{1}\" y=\"{2}\" width=\"{3}\" height=\"{4}\"/></clipPath>\n"
      "<g clip-path=\"url(#{0})\">\n",
      name, coordinate(x), coordinate(y), coordinate(width), coordinate(height));
}

void Svg::define_hatch() {
  out_ += fmt::format(
      "<defs><pattern id=\"{}-hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
      "<rect class=\"hatch-ground\" width=\"5\" height=\"5\"/>"
      "<path class=\"hatch-line\" d=\"M-1 6L6 -1M-1 1L1 -1M4 6L6 4\"/></pattern></defs>\n",
      id_);
}

void Svg::hatched(double x, double y, double width, double height, std::string_view hint) {
  out_ += fmt::format("<rect fill=\"url(#{}-hatch)\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
                      id_, coordinate(x), coordinate(y), coordinate(width), coordinate(height));
  end("rect", hint);
}

std::string Svg::finish() && {
  return std::move(out_) + "</svg>\n";
}

}  // namespace longhaul
