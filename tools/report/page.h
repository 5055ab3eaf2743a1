// A report as one HTML file that loads nothing: pictures, tables, one style sheet, and where long
// series are shown one script. A content security policy with the hashes of both lets nothing else
// in. Same page, same bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/report/assets.h"
#include "tools/report/picture.h"

namespace longhaul {

/// A number that matters.
struct Tile {
  std::string name;
  std::string value;
  std::string note;
};

using TableRows = std::vector<std::vector<std::string>>;  // the first is the header

struct PageItem {
  Picture picture;
  TableRows numbers = {};  // the picture's, folded away below it; may be empty
};

struct Page {
  std::string title;
  std::string subtitle;
  std::vector<Tile> tiles;
  TableRows measured;  // beside what was predicted, after the picture `stages`; may be empty
  std::vector<PageItem> items;
  std::vector<SeriesChart>
      series;        // drawn once more by the chart library, in their pictures' place
  std::string plan;  // text in columns
  std::vector<std::string> assumptions;
  TableRows inputs;
};

std::string page_html(const Page& page, const ChartLibrary& library = chart_library());

/// "sha256-" and the hash in base64, as a content security policy names a block.
std::string policy_hash(std::string_view block);

}  // namespace longhaul
