// What pictures are made of: text, numbers, axes, places for labels, the map's projection.

#include <gtest/gtest.h>

#include "tests/tools/report_fixtures.h"
#include "tools/report/chart.h"
#include "tools/report/globe.h"
#include "tools/report/labels.h"
#include "tools/report/svg.h"

namespace longhaul {
namespace {

TEST(ReportSvg, text_is_escaped_and_what_xml_cannot_hold_becomes_a_space) {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"},
      {"Zürich → 東京 🙂", "Zürich → 東京 🙂"},
      {std::string_view("a\0b\x1f"
                        "c",
                        5),
       "a b c"},
      {"cut \xc3", "cut  "},         // the beginning of a character
      {"\x80", " "},                 // its continuation alone
      {"\xc0\xaf", "  "},            // longer than it needs to be
      {"\xed\xa0\x80", "   "},       // half of a pair of UTF-16
      {"\xf4\x90\x80\x80", "    "},  // beyond the last character
      {"\xef\xbf\xbf", "   "},       // U+FFFF is none
      {"line\nand\ttab", "line\nand\ttab"},
  };
  for (const auto& [text, expected] : rows) EXPECT_EQ(escaped(text), expected);
}

TEST(ReportSvg, coordinates_have_two_decimals_and_no_needless_zeros) {
  EXPECT_EQ(coordinate(12.5), "12.5");
  EXPECT_EQ(coordinate(100), "100");
  EXPECT_EQ(coordinate(-3.14159), "-3.14");
  EXPECT_EQ(coordinate(-0.001), "0");
}

TEST(ReportSvg, a_long_text_ends_in_dots_and_never_inside_a_character) {
  // At size 10 a character counts 5.6: 28.1 hold five, of which the last is the dots.
  EXPECT_EQ(shortened("abcde", 10, 28.1), "abcde");
  EXPECT_EQ(shortened("abcdef", 10, 28.1), "abcd…");
  EXPECT_EQ(shortened("äöüßéè", 10, 28.1), "äöüß…");
  EXPECT_EQ(shortened("abc", 10, 0), "…");
}

TEST(ReportSvg, a_picture_is_well_formed_named_and_has_no_styles_of_its_own) {
  Svg svg("one", 100, 50, "A <title>", "what & why");
  svg.define_hatch();
  svg.begin_clip(0, 0, 10, 10);
  svg.begin_group("row", "\"hint\"");
  svg.rect(1, 2, 3.5, 4, "forward", "a < b");
  svg.hatched(0, 0, 5, 5);
  svg.text(5, 6, "x > y", "small", Anchor::kEnd);
  svg.path("M0 0L1 1", "line", 2, "");
  svg.path("", "line");  // nothing to draw
  svg.end_group();
  svg.end_group();
  const std::string text = std::move(svg).finish();
  EXPECT_EQ(fixtures::xml_problem(text), "") << text;
  EXPECT_TRUE(text.contains("viewBox=\"0 0 100 50\"")) << text;
  EXPECT_TRUE(text.contains("<title id=\"one-title\">A &lt;title&gt;</title>")) << text;
  EXPECT_TRUE(text.contains("<desc id=\"one-desc\">what &amp; why</desc>")) << text;
  EXPECT_TRUE(
      text.contains("<rect class=\"forward\" x=\"1\" y=\"2\" width=\"3.5\" height=\"4\">"
                    "<title>a &lt; b</title></rect>"))
      << text;
  EXPECT_TRUE(text.contains("<path class=\"line\" stroke-width=\"2\" d=\"M0 0L1 1\"/>")) << text;
  EXPECT_FALSE(text.contains("style=")) << text;
}

TEST(ReportSvg, the_check_of_tests_sees_what_is_not_well_formed) {
  for (const std::string_view bad :
       {"<a>", "<a></b>", "</a>", "<a b=c/>", "<a b=\"<\"/>", "x & y", "&nbsp;", "<a"})
    EXPECT_NE(fixtures::xml_problem(bad), "") << bad;
  EXPECT_EQ(fixtures::xml_problem("<a b=\"1\" c=\"2\"><d/>&lt;</a>"), "");
}

TEST(ReportChart, ticks_are_round_and_no_more_than_asked_for) {
  EXPECT_EQ(linear_ticks(0, 10, 6), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(0, 11.84, 9), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(-0.4, 1, 4), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(linear_ticks(3, 3, 5), (std::vector<double>{3}));
  EXPECT_EQ(log_ticks(100, 1000, 5), (std::vector<double>{100, 200, 500, 1000}));
  EXPECT_EQ(log_ticks(10, 10000, 5), (std::vector<double>{10, 100, 1000, 10000}));
  // No power of ten and few factors between: round numbers as on a linear axis.
  EXPECT_EQ(log_ticks(2.5, 3.5, 3), (std::vector<double>{2.5, 3, 3.5}));
  EXPECT_FALSE(std::signbit(linear_ticks(0, 1, 3).front()));
}

TEST(ReportChart, numbers_are_short) {
  const std::pair<double, std::string_view> rows[] = {
      {0, "0"},      {0.25, "0.25"},  {1500, "1500"}, {59342, "59.34k"}, {2097152, "2.097M"},
      {-3e9, "-3G"}, {1e-7, "1e-07"}, {2e15, "2e+15"}};
  for (const auto& [value, text] : rows) EXPECT_EQ(short_number(value), text);
}

TEST(ReportChart, a_long_series_keeps_its_ends_and_every_peak) {
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({static_cast<double>(i), 1});
  points[12'345].y = 9;
  points[77'777].y = -9;
  const std::vector<Point> few = decimated(points, 100);
  EXPECT_LE(few.size(), 400u);
  EXPECT_EQ(few.front(), points.front());
  EXPECT_EQ(few.back(), points.back());
  EXPECT_EQ(std::ranges::count(few, points[12'345]), 1);
  EXPECT_EQ(std::ranges::count(few, points[77'777]), 1);
  EXPECT_TRUE(std::ranges::is_sorted(few, {}, &Point::x));
  // 4 points a column are few enough.
  EXPECT_EQ(decimated(std::span(points).first(400), 100).size(), 400u);
}

TEST(ReportChart, a_line_goes_through_the_values_on_linear_and_logarithmic_axes) {
  // 276 wide: from 58 to 258 along x, and 172 high: from 130 up to 30 along y.
  Svg svg("chart", 276, 172, "", "");
  const Chart linear(svg, {"x", 0, 10, false}, {"y", 0, 4, false});
  EXPECT_EQ(linear.line(std::vector<Point>{{0, 0}, {5, 1}, {10, 4}}), "M58 130L158 105L258 30");
  const Chart logarithmic(svg, {"x", 1, 100, true}, {"y", 0, 4, false});
  EXPECT_EQ(logarithmic.line(std::vector<Point>{{1, 0}, {10, 2}, {100, 4}}),
            "M58 130L158 80L258 30");
}

TEST(ReportChart, an_axis_holds_its_values_whatever_they_are) {
  EXPECT_EQ(axis_for("", std::vector<double>{}, false, false).most, 1);
  const Axis same = axis_for("", std::vector<double>{5, 5}, false, false);
  EXPECT_LT(same.least, 5);
  EXPECT_GT(same.most, 5);
  EXPECT_EQ(axis_for("", std::vector<double>{2, 4}, true, false).least, 0);
  const Axis one = axis_for("", std::vector<double>{100, NAN, INFINITY, -1}, false, true);
  EXPECT_EQ(one.least, 50);
  EXPECT_EQ(one.most, 200);
}

TEST(ReportLabels, labels_overlap_neither_each_other_nor_marks_nor_the_edge) {
  const Box frame = {0, 0, 1000, 400};
  LabelPlacer placer(frame);
  std::vector<Box> boxes;
  std::vector<Point> marks;
  for (int i = 0; i < 12; ++i) marks.push_back({900.0 + 8 * (i % 4), 30.0 + 9 * (i / 4)});
  for (const Point& mark : marks) {
    boxes.push_back({mark.x - 3, mark.y - 3, 6, 6});
    placer.block(boxes.back());
  }
  int placed = 0;
  for (const Point& mark : marks) {
    const Box box = placer.place(mark, 70, 29, 6);
    if (box.width == 0) continue;
    ++placed;
    EXPECT_GE(box.x, 0);
    EXPECT_GE(box.y, 0);
    EXPECT_LE(box.x + box.width, 1000);
    for (const Box& other : boxes) EXPECT_FALSE(box.overlaps(other)) << box.x << " " << box.y;
    boxes.push_back(box);
  }
  EXPECT_GE(placed, 6);
}

TEST(ReportLabels, a_label_moves_off_a_line) {
  LabelPlacer placer({0, 0, 200, 200});
  for (double x = 100; x < 200; x += 5) placer.avoid({x, 100});
  // To the right lies a line, so it goes to the left: 8 between mark and box.
  const Box box = placer.place({100, 100}, 40, 20, 8);
  EXPECT_EQ(box.x, 100 - 8 - 40);
  EXPECT_EQ(box.y, 90);
}

TEST(ReportGlobe, two_places_on_the_equator_lie_where_the_scale_puts_them) {
  // 90 degrees and 6 at each side on 1000 pixels: 9.804 a degree, so x = 6 and 96 degrees. The
  // arc rises by a tenth of its length to 9 degrees north; the height is the least, 360 pixels or
  // 36.72 degrees around 4.5: the upper edge is 22.86 north.
  const Coordinates places[] = {{0, 0}, {0, 90}};
  const std::pair<int, int> links[] = {{0, 1}};
  const Globe globe(places, links, 1000);
  EXPECT_NEAR(globe.height(), 360, 1e-9);
  EXPECT_NEAR(globe.at(places[0]).x, 58.82, 0.01);
  EXPECT_NEAR(globe.at(places[1]).x, 941.18, 0.01);
  EXPECT_NEAR(globe.at(places[0]).y, 224.12, 0.01);
  const auto way = globe.way(places[0], places[1]);
  ASSERT_EQ(way.size(), 1u);
  EXPECT_NEAR(way[0][12].x, 500, 0.01);
  EXPECT_NEAR(way[0][12].y, 224.12 - 88.24, 0.01);  // 9 degrees higher
}

TEST(ReportGlobe, a_link_across_the_pacific_goes_the_short_way) {
  const Coordinates tokyo = {35.7, 139.7};
  const Coordinates oregon = {45.8, -119.7};
  const Coordinates places[] = {oregon, tokyo};
  const std::pair<int, int> links[] = {{0, 1}};
  const Globe globe(places, links, 1000);
  // Asia is at the left, the Pacific in the middle.
  EXPECT_LT(globe.at(tokyo).x, globe.at(oregon).x);
  const auto way = globe.way(oregon, tokyo);
  ASSERT_EQ(way.size(), 1u);
  EXPECT_NEAR(way[0].front().x, globe.at(oregon).x, 1e-6);
  EXPECT_NEAR(way[0].back().x, globe.at(tokyo).x, 1e-6);
  EXPECT_TRUE(std::ranges::is_sorted(way[0], std::greater(), &Point::x));
}

TEST(ReportGlobe, the_map_is_cut_where_fewest_links_cross_and_one_that_does_comes_back) {
  const Coordinates places[] = {{45.8, -119.7}, {35.7, 139.7}, {51.5, -0.1}};
  // Without a link between Tokyo and London the cut is between them; with that alone, elsewhere.
  const std::pair<int, int> west[] = {{0, 1}, {0, 2}};
  const Globe pacific(places, west, 1000);
  EXPECT_LT(pacific.at(places[1]).x, pacific.at(places[0]).x);
  EXPECT_LT(pacific.at(places[0]).x, pacific.at(places[2]).x);
  const std::pair<int, int> east[] = {{1, 2}};
  const Globe eurasia(places, east, 1000);
  EXPECT_LT(eurasia.at(places[2]).x, eurasia.at(places[1]).x);
  // All three: one has to cross. It leaves Tokyo to the left and comes to London from the right.
  const std::pair<int, int> all[] = {{0, 1}, {0, 2}, {1, 2}};
  const Globe globe(places, all, 1000);
  const auto way = globe.way(places[1], places[2]);
  ASSERT_EQ(way.size(), 2u);
  EXPECT_NEAR(way[0].front().x, globe.at(places[1]).x, 1e-6);
  EXPECT_LT(way[0].back().x, 0);
  EXPECT_GT(way[1].front().x, 1000);
  EXPECT_NEAR(way[1].back().x, globe.at(places[2]).x, 1e-6);
}

TEST(ReportGlobe, any_place_is_on_the_map) {
  const std::vector<Coordinates> cases[] = {{{0, 0}},
                                            {{90, 0}},
                                            {{-90, 180}, {90, -180}},
                                            {{10, 179.9}, {10, -179.9}},
                                            {{0, 0}, {0, 0}},
                                            {{0, 0}, {0, 120}, {0, -120}, {60, 60}, {-60, -60}}};
  for (const std::vector<Coordinates>& places : cases) {
    std::vector<std::pair<int, int>> links;
    for (int i = 1; i < static_cast<int>(places.size()); ++i) links.emplace_back(0, i);
    const Globe globe(places, links, 1000);
    EXPECT_LE(globe.height(), 1400);
    for (const Coordinates& place : places) {
      const Point at = globe.at(place);
      EXPECT_TRUE(at.x >= 0 && at.x <= 1000) << at.x;
      EXPECT_TRUE(at.y >= 0 && at.y <= globe.height()) << at.y;
    }
  }
}

TEST(ReportGlobe, the_land_under_a_city_is_drawn) {
  // Oregon is in the first ring or another one that encloses it: count the crossings to the right.
  const Coordinates places[] = {{45.8, -119.7}, {35.7, 139.7}};
  const std::pair<int, int> links[] = {{0, 1}};
  const Globe globe(places, links, 1000);
  const std::string land = globe.land();
  const auto is_on_land = [&](const Point& point) {
    bool inside = false;
    std::string_view rest = land;
    while (!rest.empty()) {
      const std::string_view ring = rest.substr(0, rest.find('Z') + 1);
      rest.remove_prefix(ring.size());
      std::vector<Point> corners;
      for (std::size_t at = 0; at + 1 < ring.size();) {
        const std::size_t space = ring.find(' ', at);
        const std::size_t next = ring.find_first_of("LZ", at + 1);
        corners.push_back({std::stod(std::string(ring.substr(at + 1, space - at - 1))),
                           std::stod(std::string(ring.substr(space + 1, next - space - 1)))});
        at = next;
      }
      for (std::size_t i = 0; i < corners.size(); ++i) {
        const Point& a = corners[i];
        const Point& b = corners[(i + 1) % corners.size()];
        if ((a.y > point.y) == (b.y > point.y)) continue;
        if (point.x < a.x + (point.y - a.y) / (b.y - a.y) * (b.x - a.x)) inside = !inside;
      }
    }
    return inside;
  };
  EXPECT_TRUE(is_on_land(globe.at(places[0])));
  EXPECT_FALSE(is_on_land(globe.at({40, 180})));  // the Pacific
  EXPECT_TRUE(is_on_land(globe.at({66, 179})));   // Chukotka, on both sides of 180 degrees
  EXPECT_TRUE(is_on_land(globe.at({66.5, -177})));
}

}  // namespace
}  // namespace longhaul
