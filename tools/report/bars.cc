#include "tools/report/bars.h"

#include <fmt/core.h>

namespace longhaul {

double draw_bars(Svg& svg, std::span<const BarRow> rows, double longest, const BarsLayout& layout) {
  constexpr double kSize = 11;
  const double width = svg.width() - layout.labels - layout.figures;
  double y = layout.top;
  for (const BarRow& row : rows) {
    svg.text(layout.labels - 8, y + 13, shortened(row.label, 12.5, layout.labels - 10), "row",
             Anchor::kEnd);
    double x = layout.labels;
    for (const BarPart& part : row.parts) {
      if (!(part.value > 0)) continue;
      const double wide = width * part.value / longest;
      const std::string share = fmt::format("{:.0f} %", 100 * part.value / row.whole);
      const std::string hint = fmt::format("{}: {}", part.name, share);
      if (part.is_hatched) {
        svg.hatched(x, y, wide, kBarHeight, hint);
      } else {
        svg.rect(x, y, wide, kBarHeight, part.style, hint);
      }
      if (wide > text_width(share, kSize) + 4) {
        svg.text(x + wide / 2, y + 13, share,
                 part.is_hatched ? "share-plain" : fmt::format("share on-{}", part.style),
                 Anchor::kMiddle);
      }
      x += wide;
    }
    if (row.outline > 0)
      svg.rect(layout.labels, y, width * row.outline / longest, kBarHeight, "outline");
    svg.text(svg.width() - layout.figures + 6, y + 13, row.figure, "small");
    y += kBarRow;
  }
  return y;
}

}  // namespace longhaul
