// Rows of stacked bars, one below the other, with a share written into each part that has room.
// Belongs to one thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/chart.h"

namespace longhaul {

struct BarPart {
  std::string_view style;
  double value = 0;
  bool is_hatched = false;
  std::string name;  // for the hint
};
struct BarRow {
  std::string label;
  std::vector<BarPart> parts;
  double whole = 0;    // what shares are of
  std::string figure;  // at the right
  double outline = 0;  // a frame as long as this; 0: none
};

struct BarsLayout {
  double labels = 96;  // widths at the left and at the right
  double figures = 70;
  double top = 8;
};
inline constexpr double kBarRow = 26;
inline constexpr double kBarHeight = 18;

/// Bars from `longest` down to nothing share the width that is left; answers where they end.
double draw_bars(Svg& svg, std::span<const BarRow> rows, double longest, const BarsLayout& layout);

}  // namespace longhaul
