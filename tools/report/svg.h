// Writes one picture as SVG text that a page can hold: a view box, a title and a description for
// who cannot see it, and elements with a class instead of colours, so that one style sheet serves
// light and dark. Same calls, same bytes. Belongs to one thread.
//
// No element has a `style` attribute: the page's content security policy forbids them.
#pragma once

#include <string>
#include <string_view>

namespace longhaul {

/// Text for an element or an attribute between double quotes; characters that XML knows not at all
/// become spaces.
std::string escaped(std::string_view text);
/// A coordinate with at most two decimals, without trailing zeros: "12.5", "-3", "0".
std::string coordinate(double value);
/// About how wide a text is; one that is a little narrower is no harm.
double text_width(std::string_view text, double size);
/// The text, or its beginning and `…` where it would be wider.
std::string shortened(std::string_view text, double size, double width);

enum class Anchor { kStart, kMiddle, kEnd };

class Svg {
 public:
  /// `id` names the picture in its page; ids of its parts begin with it.
  Svg(std::string_view id, double width, double height, std::string_view title,
      std::string_view description);

  void rect(double x, double y, double width, double height, std::string_view style,
            std::string_view hint = {});
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void circle(double x, double y, double radius, std::string_view style,
              std::string_view hint = {});
  void path(std::string_view d, std::string_view style, std::string_view hint = {});
  /// A line of its own width.
  void path(std::string_view d, std::string_view style, double width, std::string_view hint);
  void text(double x, double y, std::string_view text, std::string_view style = {},
            Anchor anchor = Anchor::kStart);
  void begin_group(std::string_view style, std::string_view hint = {});
  void end_group();
  /// Everything until end_group is cut at this rectangle.
  void begin_clip(double x, double y, double width, double height);
  /// The hatching that `hatched` fills with; before its first use.
  void define_hatch();
  /// Filled with define_hatch's pattern; `style` colours its ground.
  void hatched(double x, double y, double width, double height, std::string_view hint = {});

  double width() const { return width_; }
  double height() const { return height_; }
  /// The whole picture.
  std::string finish() &&;

 private:
  void end(std::string_view element, std::string_view hint);

  std::string id_;
  double width_;
  double height_;
  int clips_ = 0;
  std::string out_;
};

}  // namespace longhaul
