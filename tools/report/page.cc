#include "tools/report/page.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <array>
#include <map>

#include "core/result.h"
#include "tools/report/assets.h"

namespace longhaul {
namespace {

constexpr std::size_t kLibraryColumns = 4000;  // at most 4 points each are kept of a series

std::string figure(const PageItem& item) {
  const Picture& picture = item.picture;
  std::string out =
      fmt::format("<figure class=\"card{}\" id=\"{}-card\">\n<h2>{}</h2>\n",
                  picture.is_wide ? " wide" : "", picture.id, escaped(picture.heading));
  if (!picture.svg.empty()) out += "<div class=\"scroll\">" + picture.svg + "</div>\n";
  if (!picture.caption.empty())
    out += fmt::format("<figcaption>{}</figcaption>\n", escaped(picture.caption));
  return out;
}

std::string table(const TableRows& rows, std::string_view style = "") {
  std::string out = fmt::format("<div class=\"scroll\"><table class=\"{}\">\n", style);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    out += "<tr>";
    for (const std::string& cell : rows[r]) {
      out += r == 0 ? fmt::format("<th scope=\"col\">{}</th>", escaped(cell))
                    : fmt::format("<td>{}</td>", escaped(cell));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string tiles(const std::vector<Tile>& all) {
  std::string out = "<dl class=\"tiles\">\n";
  for (const Tile& tile : all) {
    out +=
        fmt::format("<div class=\"tile\"><dt>{}</dt><dd>{}</dd><dd class=\"note\">{}</dd></div>\n",
                    escaped(tile.name), escaped(tile.value), escaped(tile.note));
  }
  return out + "</dl>\n";
}

/// What the script draws, as JSON without `<`. Lines and levels share one list of steps.
std::string series_json(const std::vector<SeriesChart>& charts) {
  // JSON strings of names of ours: nothing in them needs an escape.
  const auto number = [](double value) { return fmt::format("{:.7g}", value); };
  std::string out = "[";
  for (const SeriesChart& chart : charts) {
    std::map<double, std::vector<std::string>> rows;
    const std::size_t columns = chart.lines.size() + chart.levels.size();
    for (std::size_t i = 0; i < chart.lines.size(); ++i) {
      for (const Point& point : decimated(chart.lines[i].points, kLibraryColumns)) {
        std::vector<std::string>& row = rows[point.x];
        row.resize(columns, "null");
        row[i] = number(point.y);
      }
    }
    std::string names;
    std::vector<std::string> data(columns + 1);
    for (const SeriesLine& line : chart.lines)
      names += fmt::format("{}[\"{}\",{}]", names.empty() ? "" : ",", line.name, line.has_marks);
    for (std::size_t i = 0; i < chart.levels.size(); ++i) {
      names += fmt::format(",[\"{}\",null]", chart.levels[i].name);
      for (auto& [x, row] : rows) row[chart.lines.size() + i] = number(chart.levels[i].value);
    }
    for (const auto& [x, row] : rows) {
      data[0] += (data[0].empty() ? "" : ",") + number(x);
      for (std::size_t i = 0; i < columns; ++i)
        data[i + 1] += (data[i + 1].empty() ? "" : ",") + row[i];
    }
    out += fmt::format("{}{{\"id\":\"{}\",\"unit\":\"{}\",\"zero\":{},\"lines\":[{}],\"data\":[",
                       out.size() > 1 ? ",\n" : "", chart.id, chart.unit, chart.from_zero, names);
    for (std::size_t i = 0; i < data.size(); ++i)
      out += fmt::format("{}[{}]", i > 0 ? "," : "", data[i]);
    out += "]}";
  }
  return out + "]";
}

}  // namespace

std::string policy_hash(std::string_view block) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned int size = 0;
  const int done =
      EVP_Digest(block.data(), block.size(), hash.data(), &size, EVP_sha256(), nullptr);
  LH_CHECK(done == 1, "OpenSSL knows SHA-256");
  std::array<unsigned char, 4 * EVP_MAX_MD_SIZE / 3 + 4> text{};
  const int length = EVP_EncodeBlock(text.data(), hash.data(), static_cast<int>(size));
  return "sha256-" + std::string(text.begin(), text.begin() + length);
}

std::string page_html(const Page& page, const ChartLibrary& library) {
  const bool has_script = !page.series.empty() && !library.script.empty();
  std::string style(page_style());
  if (has_script) style += library.style;
  const std::string script =
      has_script ? std::string(library.script) + std::string(page_script()) : "";
  std::string policy = fmt::format(
      "default-src 'none'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
      policy_hash(style));
  if (has_script) policy += fmt::format("; script-src '{}'", policy_hash(script));
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<main>\n<h1>{}</h1>\n<p class=\"subtitle\">{}</p>\n",
      policy, escaped(page.title), style, escaped(page.title), escaped(page.subtitle));
  out += tiles(page.tiles);
  out += "<div class=\"cards\">\n";
  for (const PageItem& item : page.items) {
    out += figure(item);
    if (!item.numbers.empty())
      out += "<details><summary>numbers</summary>\n" + table(item.numbers) + "</details>\n";
    out += "</figure>\n";
    if (item.picture.id == "stages" && !page.measured.empty()) {
      out += "<section class=\"card\">\n<h2>Predicted and measured</h2>\n" + table(page.measured) +
             "</section>\n";
    }
  }
  out += fmt::format(
      "<section class=\"card wide\">\n<h2>The plan</h2>\n<div "
      "class=\"scroll\"><pre>{}</pre></div>\n"
      "</section>\n",
      escaped(page.plan));
  out +=
      "<section class=\"card\">\n<h2>Inputs</h2>\n" + table(page.inputs, "words") + "</section>\n";
  out += "<section class=\"card\">\n<h2>Assumed</h2>\n";
  if (page.assumptions.empty()) {
    out += "<p>Nothing: the cluster's files say it all.</p>\n";
  } else {
    out += "<ul>\n";
    for (const std::string& assumption : page.assumptions)
      out += fmt::format("<li>{}</li>\n", escaped(assumption));
    out += "</ul>\n";
  }
  out += "</section>\n</div>\n</main>\n";
  if (has_script) {
    out += fmt::format(
        "<script type=\"application/json\" id=\"series-data\">{}</script>\n<script>{}</script>\n",
        series_json(page.series), script);
  }
  return out + "</body>\n</html>\n";
}

}  // namespace longhaul
