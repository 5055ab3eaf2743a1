#include "netsim/import/table.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/config_errors.h"
#include "netsim/csv_text.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxColumns = 4096;

Result<void> check_characters(std::string_view line, int number, const Importer& importer) {
  const std::size_t at = find_control_character(line);
  if (at == std::string_view::npos) return {};
  return importer.error(
      number, static_cast<int>(at) + 1,
      fmt::format("control character 0x{:02x}", static_cast<unsigned char>(line[at])),
      "is this a text file?");
}

/// A cell without emphasis, code marks and links: `**Dallas**`, `[Tokyo](https://...)`.
std::string plain_cell(std::string_view cell) {
  cell = trimmed(cell);
  std::string out;
  for (std::size_t i = 0; i < cell.size(); ++i) {
    const bool link_end = cell[i] == ']' && i + 1 < cell.size() && cell[i + 1] == '(';
    if (link_end) {
      i = std::min(cell.find(')', i), cell.size());
    } else if (!std::string_view("*`[]").contains(cell[i])) {
      out += cell[i];
    }
  }
  return std::string(trimmed(out));
}

std::vector<std::string> markdown_cells(std::string_view line) {
  line = trimmed(line);
  if (line.starts_with('|')) line.remove_prefix(1);
  if (line.ends_with('|')) line.remove_suffix(1);
  std::vector<std::string> cells;
  while (true) {
    const std::size_t bar = line.find('|');
    cells.push_back(plain_cell(line.substr(0, bar)));
    if (bar == std::string_view::npos) return cells;
    line.remove_prefix(bar + 1);
  }
}

bool is_separator(std::string_view line) {
  line = trimmed(line);
  return line.contains('-') && line.contains('|') &&
         line.find_first_not_of("|-: ") == std::string_view::npos;
}

/// The header of a markdown table is the line above its separator.
Result<Tables> read_markdown(std::string_view text, const Importer& importer) {
  Tables all;
  std::string heading;
  std::string_view previous;
  bool inside = false;
  TextLines lines(text);
  while (lines.next()) {
    const std::string_view line = trimmed(lines.line());
    LH_TRY(check_characters(lines.line(), lines.number(), importer));
    if (is_separator(line) && previous.contains('|')) {
      Table table{markdown_cells(previous), {}, lines.number() - 1, heading, true};
      if (table.header.size() > kMaxColumns) {
        return importer.error(table.line, 1, fmt::format("more than {} columns", kMaxColumns));
      }
      all.tables.push_back(std::move(table));
      inside = true;
    } else if (inside && line.contains('|') && !line.starts_with('{')) {
      Table& table = all.tables.back();
      Table::Row row{markdown_cells(line), lines.number()};
      if (row.cells.size() > table.header.size()) {
        return importer.error(row.line, 1,
                              fmt::format("{} cells, but the table has {} columns",
                                          row.cells.size(), table.header.size()));
      }
      row.cells.resize(table.header.size());  // cells at the end may be left out
      table.rows.push_back(std::move(row));
    } else {
      inside = false;
      if (line.starts_with('#')) {
        const std::string_view title = trimmed(line.substr(
            line.find_first_not_of('#') == std::string_view::npos ? line.size()
                                                                  : line.find_first_not_of('#')));
        if (parse_time(title) || !parse_time(heading)) heading = title;
      }
      all.surroundings += fmt::format("{}\n", line);
    }
    previous = line;
  }
  return all;
}

char separator_of(std::string_view header) {
  char best = ',';
  for (const char c : {';', '\t'}) {
    if (std::ranges::count(header, c) > std::ranges::count(header, best)) best = c;
  }
  return best;
}

Result<Tables> read_csv(std::string_view text, const Importer& importer) {
  Tables all;
  char separator = ',';
  TextLines lines(text);
  while (lines.next()) {
    const std::string_view line = lines.line();
    LH_TRY(check_characters(line, lines.number(), importer));
    if (trimmed(line).empty()) continue;
    if (line.starts_with('#')) {
      all.surroundings += fmt::format("{}\n", trimmed(line.substr(1)));
      continue;
    }
    // netperf prints what it tests above its table.
    if (all.tables.empty() && line.starts_with("MIGRATED ")) {
      all.surroundings += fmt::format("{}\n", line);
      continue;
    }
    if (all.tables.empty()) separator = separator_of(line);
    std::expected<std::vector<CsvField>, CsvMistake> fields = split_csv(line, separator);
    if (!fields) {
      return importer.error(lines.number(), fields.error().column, fields.error().message);
    }
    std::vector<std::string> cells;
    for (CsvField& field : *fields) cells.push_back(std::move(field.text));
    if (all.tables.empty()) {
      if (cells.size() > kMaxColumns) {
        return importer.error(lines.number(), 1, fmt::format("more than {} columns", kMaxColumns));
      }
      all.tables.push_back({std::move(cells), {}, lines.number(), "", false});
      continue;
    }
    Table& table = all.tables.back();
    if (cells.size() != table.header.size() && table.header.size() < 3) {
      return importer.error(table.line, 1, "not a format that is known, and no table",
                            "docs/formats.md lists the formats; a table of pairs has columns such "
                            "as from,to,rtt_ms");
    }
    if (cells.size() != table.header.size()) {
      return importer.error(lines.number(), 1,
                            fmt::format("{} fields, but the header has {} columns", cells.size(),
                                        table.header.size()),
                            "a text with commas must stand in double quotes");
    }
    table.rows.push_back({std::move(cells), lines.number()});
  }
  return all;
}

}  // namespace

int Table::find(std::string_view name) const {
  const auto found = std::ranges::find(header, name);
  return found == header.end() ? -1 : static_cast<int>(found - header.begin());
}

Result<Tables> read_tables(std::string_view text, const Importer& importer) {
  bool is_markdown = false;
  TextLines lines(text);
  while (lines.next() && !is_markdown) is_markdown = is_separator(lines.line());
  LH_ASSIGN(Tables all, is_markdown ? read_markdown(text, importer) : read_csv(text, importer));
  std::erase_if(all.tables, [](const Table& table) { return table.rows.empty(); });
  if (all.tables.empty()) {
    return importer.error("no table in this file has a row below its header");
  }
  return all;
}

}  // namespace longhaul
