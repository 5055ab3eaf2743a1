// Files that the build puts into the binary, so that it makes reports wherever it is.
#pragma once

#include <string_view>

namespace longhaul {

/// coastlines.txt, page.css and page.js of this folder.
std::string_view coastlines();
std::string_view page_style();
std::string_view page_script();
/// The chart library uPlot for long series, script (with its licence) and style sheet; both empty
/// where the build had none: tools/setup fetches it.
struct ChartLibrary {
  std::string_view script;
  std::string_view style;
};
ChartLibrary chart_library();

}  // namespace longhaul
