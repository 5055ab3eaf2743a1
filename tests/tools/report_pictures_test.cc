// Each picture of a report as SVG text: what stands where, and that it stays well-formed.

#include <gtest/gtest.h>

#include "tests/tools/report_fixtures.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

using fixtures::SmallStep;
using fixtures::xml_problem;

Planned planned(const SmallStep& small) {
  return {small.topology, small.job, small.plan};
}

/// With bytes that only a careful writer gets right.
void give_bad_names(SmallStep& small) {
  constexpr std::string_view kBad = "<b>&\"'";
  for (Site& site : small.topology.sites) site.name = kBad;
  for (Device& device : small.topology.devices) device.name = kBad;
  small.topology.kinds[0].name = kBad;
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Explanation limited(double saved_s) {
  Explanation explanation;
  explanation.step = Seconds(10);
  explanation.links = {{0, 1, Bytes(5e6), Seconds(2.5), Seconds(saved_s), Seconds(0)}};
  return explanation;
}

TEST(ReportMap, sites_lie_at_their_coordinates_and_the_limiting_link_is_named) {
  const SmallStep small;
  const Picture map = map_picture(planned(small), small.step, limited(0.3));
  EXPECT_EQ(xml_problem(map.svg), "") << map.svg;
  // Where ReportGlobe.two_places_on_the_equator... has them; a device in use: radius 4 + 1.1.
  EXPECT_TRUE(map.svg.contains("<circle class=\"site\" cx=\"58.82\" cy=\"224.12\" r=\"5.1\">"))
      << map.svg;
  EXPECT_TRUE(map.svg.contains("<circle class=\"site\" cx=\"941.18\" cy=\"224.12\" r=\"5.1\">"));
  EXPECT_TRUE(map.svg.contains("<title>a (coordinator): 1 of 1 devices in use</title>"));
  EXPECT_TRUE(map.svg.contains(">limits the step: a – b, 16 Mbit/s</text>"));
  EXPECT_TRUE(map.svg.contains("class=\"limit-halo\""));
  EXPECT_TRUE(map.svg.contains("class=\"land\""));
  EXPECT_TRUE(map.caption.contains("10 % more rate would save 300 ms")) << map.caption;
}

TEST(ReportMap, a_link_that_saves_less_than_a_thousandth_of_the_step_does_not_limit_it) {
  const SmallStep small;
  EXPECT_TRUE(
      map_picture(planned(small), small.step, limited(0.01)).svg.contains("limits the step:"));
  const Picture map = map_picture(planned(small), small.step, limited(0.0099));
  EXPECT_FALSE(map.svg.contains("limits the step:")) << map.svg;
  EXPECT_TRUE(map.caption.contains("No single link's rate limits the step"));
}

TEST(ReportMap, links_have_the_colour_of_their_class_and_the_legend_names_it) {
  SmallStep small;
  small.topology.sites.push_back(
      {"c", "", BytesPerSecond::infinity(), BytesPerSecond::infinity(), 0, Coordinates{0, 45}});
  small.topology.links.assign(9, {});
  const auto rate = [&](int from, int to, double bits) {
    small.topology.links[static_cast<std::size_t>(3 * from + to)].rate = BytesPerSecond(bits / 8);
  };
  rate(0, 1, 90e6);
  rate(0, 2, 300e6);
  rate(1, 2, 700e6);
  small.step.traffic = {{0, 1, {}, Bytes(4)}, {0, 2, {}, Bytes(4)}, {1, 2, {}, Bytes(1)}};
  const Picture map = map_picture(planned(small), small.step, {});
  // Borders within (90, 700]: 100, 200, 500. Four classes of five colours: 0, 1, 2, 4.
  for (const std::string_view text :
       {"below 100 Mbit/s", "100 Mbit/s to 200 Mbit/s", "200 Mbit/s to 500 Mbit/s",
        "500 Mbit/s and more", "class=\"link rate0\"", "class=\"link rate2\"",
        "class=\"link rate4\"", "c: 0 of 0 devices in use"})
    EXPECT_TRUE(map.svg.contains(text)) << text;
  // Widths go with the root of the bytes: 7 for the most, 1 + 6 / 2 for a quarter of it.
  EXPECT_EQ(count(map.svg, "rate4\" stroke-width=\"4\""), 1u);
  EXPECT_EQ(count(map.svg, "rate0\" stroke-width=\"7\""), 1u);
}

TEST(ReportMap, without_coordinates_sites_stand_in_a_circle) {
  SmallStep small;
  for (Site& site : small.topology.sites) site.coordinates.reset();
  const Picture map = map_picture(planned(small), small.step, {});
  EXPECT_EQ(xml_problem(map.svg), "");
  // The first of two above the middle, the second below: 170 of 230.
  EXPECT_TRUE(map.svg.contains("<circle class=\"site\" cx=\"500\" cy=\"60\"")) << map.svg;
  EXPECT_TRUE(map.svg.contains("<circle class=\"site\" cx=\"500\" cy=\"400\""));
  EXPECT_FALSE(map.svg.contains("class=\"land\""));
  EXPECT_TRUE(map.caption.contains("no coordinates"));
}

TEST(ReportMap, one_site_of_two_without_coordinates_stands_below_the_map) {
  SmallStep small;
  small.topology.sites[1].coordinates.reset();
  const Picture map = map_picture(planned(small), small.step, limited(1));
  EXPECT_EQ(xml_problem(map.svg), "");
  EXPECT_TRUE(map.svg.contains("class=\"land\""));
  EXPECT_TRUE(map.svg.contains(">without coordinates</text>"));
  EXPECT_TRUE(map.svg.contains("<circle class=\"site\" cx=\"500\"")) << map.svg;
}

TEST(ReportMap, names_are_escaped_and_a_step_without_traffic_has_a_map) {
  SmallStep small;
  give_bad_names(small);
  EXPECT_EQ(xml_problem(map_picture(planned(small), small.step, limited(1)).svg), "");
  small.step.traffic.clear();
  const Picture map = map_picture(planned(small), small.step, {});
  EXPECT_EQ(xml_problem(map.svg), "");
  EXPECT_TRUE(map.caption.contains("Nothing is sent between sites"));
}

// The lane begins at 158 and is 930 wide: 93 a second in a step of 10 s. The first row is below
// the axis (34) and its pipeline's heading (24); the second 16 + 2 x 3 + 1 + 5 below that.
TEST(ReportGantt, bars_stand_at_their_times) {
  const SmallStep small;
  const Picture gantt = gantt_picture(planned(small), small.step, {});
  EXPECT_EQ(xml_problem(gantt.svg), "") << gantt.svg;
  for (const std::string_view bar : {
           "class=\"bar forward\" d=\"M158 58h186v16h-186z\"",
           "class=\"bar backward\" d=\"M809 58h93v16h-93z\"",
           "class=\"bar reduce\" d=\"M902 58h93v16h-93z\"",
           "class=\"bar update\" d=\"M1041.5 58h46.5v16h-46.5z\"",
           "class=\"bar forward\" d=\"M623 86h93v16h-93z\"",
           // The transfer below the row, from 0 to 5 s.
           "class=\"send-forward\" d=\"M158 75h465v2.6h-465z\"",
           // Idle until its last backward: hatched. Then it waits for the commit.
           "<rect fill=\"url(#gantt-hatch)\" x=\"158\" y=\"58\" width=\"744\" height=\"16\"/>",
           "<rect class=\"lane-wait\" x=\"902\" y=\"58\" width=\"186\" height=\"16\"/>",
           "compute 40.0 %, transfer 10.0 %, bubble 20.0 %",
           ">0 s</text>",
           ">10 s</text>",
       })
    EXPECT_TRUE(gantt.svg.contains(bar)) << bar << "\n" << gantt.svg;
  EXPECT_FALSE(gantt.svg.contains("measured"));
}

TEST(ReportGantt, a_measured_row_stands_below_the_predicted_one_on_the_same_axis) {
  const SmallStep small;
  const std::vector<TimelineSlice> measured = {
      {Op::kForward, 0, 0, -1, fixtures::at_s(0), fixtures::at_s(4), {}},
      {Op::kBackward, 0, 0, -1, fixtures::at_s(10), fixtures::at_s(20), {}},
  };
  const Picture gantt = gantt_picture(planned(small), small.step, measured);
  EXPECT_EQ(xml_problem(gantt.svg), "");
  // 46.5 a second now, as the measured step ended at 20 s; the lane is 16 + 6 + 3 lower, 12 high.
  EXPECT_TRUE(gantt.svg.contains("class=\"bar forward\" d=\"M158 58h93v16h-93z\"")) << gantt.svg;
  EXPECT_TRUE(gantt.svg.contains("class=\"bar forward\" d=\"M158 83h186v12h-186z\""));
  EXPECT_TRUE(gantt.svg.contains("class=\"bar backward\" d=\"M623 83h465v12h-465z\""));
  EXPECT_TRUE(gantt.svg.contains("class=\"time-end\""));
  EXPECT_TRUE(gantt.caption.contains("which took 20 s")) << gantt.caption;
}

TEST(ReportGantt, numbers_of_micro_batches_are_in_bars_that_hold_the_longest) {
  SmallStep small;
  // Each 1 s or 93 pixels, where the number of the first 0.1 s or 9.3: too narrow for two digits.
  small.step.timeline = {{Op::kForward, 7, 0, -1, fixtures::at_s(0), fixtures::at_s(0.1), {}},
                         {Op::kForward, 8, 0, -1, fixtures::at_s(1), fixtures::at_s(2), {}},
                         {Op::kForward, 10, 0, -1, fixtures::at_s(2), fixtures::at_s(3), {}}};
  const Picture gantt = gantt_picture(planned(small), small.step, {});
  EXPECT_FALSE(gantt.svg.contains(">7</text>"));
  EXPECT_TRUE(gantt.svg.contains(">8</text>"));
  EXPECT_TRUE(gantt.svg.contains(">10</text>"));
}

TEST(ReportGantt, a_hundred_thousand_slices_become_shares_and_few_bytes) {
  SmallStep small;
  small.step.timeline.clear();
  // Forward half of the time, backward a quarter, a quarter idle, in steps of 0.2 ms.
  for (int i = 0; i < 50'000; ++i) {
    const double start = 10.0 * i / 50'000;
    small.step.timeline.push_back(
        {Op::kForward, i, 0, -1, fixtures::at_s(start), fixtures::at_s(start + 0.0001), {}});
    small.step.timeline.push_back({Op::kBackward,
                                   i,
                                   0,
                                   -1,
                                   fixtures::at_s(start + 0.0001),
                                   fixtures::at_s(start + 0.00015),
                                   {}});
  }
  const Picture gantt = gantt_picture(planned(small), small.step, {});
  EXPECT_EQ(xml_problem(gantt.svg), "");
  EXPECT_LT(gantt.svg.size(), 20'000u);
  // All columns are alike, so that each kind is one bar: 8 of 16 pixels high, and 4 below it.
  EXPECT_TRUE(gantt.svg.contains("class=\"forward\" d=\"M158 58h930v8h-930z\"")) << gantt.svg;
  EXPECT_TRUE(gantt.svg.contains("class=\"backward\" d=\"M158 66h930v4h-930z\""));
  EXPECT_TRUE(gantt.caption.contains("heights show the share"));
}

TEST(ReportGantt, of_many_pipelines_those_that_end_last_are_shown) {
  SmallStep small;
  constexpr int kPipelines = 40;
  small.plan.devices.assign(kPipelines, {0, 1});
  small.plan.micro_batches.assign(kPipelines, 1);
  small.step.tasklets.resize(2 * kPipelines);
  small.step.timeline.clear();
  for (int d = 0; d < kPipelines; ++d) {
    small.step.timeline.push_back({Op::kBackward,
                                   0,
                                   2 * d,
                                   -1,
                                   fixtures::at_s(0),
                                   fixtures::at_s(d == 3 ? 10 : 9 - 0.1 * d),
                                   {}});
  }
  const Picture gantt = gantt_picture(planned(small), small.step, {});
  // 24 rows are 12 pipelines: the fourth, and of the others the first eleven.
  EXPECT_EQ(count(gantt.svg, ">pipeline "), 12u);
  EXPECT_TRUE(gantt.svg.contains(">pipeline 11: 1 micro-batch</text>"));
  EXPECT_FALSE(gantt.svg.contains(">pipeline 12:"));
  EXPECT_TRUE(gantt.caption.contains("the 12 pipelines of 40 that end last")) << gantt.caption;
}

TEST(ReportGantt, names_are_escaped) {
  SmallStep small;
  give_bad_names(small);
  EXPECT_EQ(xml_problem(gantt_picture(planned(small), small.step, {}).svg), "");
}

// 5 MB in 5 s are 1 MB/s of the 2 MB/s of the link: half of it over half of the step. The curve
// begins at 190 and is 588 wide; its ground is at 58 and its full height 22.
TEST(ReportLinks, a_curve_is_what_is_used_of_the_rate) {
  const SmallStep small;
  const Picture links = links_picture(planned(small), small.step);
  EXPECT_EQ(xml_problem(links.svg), "");
  EXPECT_TRUE(links.svg.contains("d=\"M190 58V47H484V58H778V58z\"")) << links.svg;
  EXPECT_TRUE(links.svg.contains(">25 %, peak 50 % of 16 Mbit/s</text>")) << links.svg;
}

TEST(ReportLinks, a_finite_uplink_has_a_row_and_the_fullest_is_first) {
  SmallStep small;
  small.topology.sites[0].uplink = BytesPerSecond(1e6);
  const Picture links = links_picture(planned(small), small.step);
  const std::size_t uplink = links.svg.find(">a uplink</text>");
  const std::size_t link = links.svg.find(">a → b</text>");
  ASSERT_NE(uplink, std::string::npos) << links.svg;
  ASSERT_NE(link, std::string::npos);
  EXPECT_LT(uplink, link);
  EXPECT_TRUE(links.svg.contains(">50 %, peak 100 % of 8 Mbit/s</text>")) << links.svg;
}

TEST(ReportLinks, messages_of_exchanges_count) {
  SmallStep small;
  small.step.exchange_messages.push_back(
      {Op::kReduce, -1, 0, 1, fixtures::at_s(5), fixtures::at_s(10), Bytes(10e6)});
  const Picture links = links_picture(planned(small), small.step);
  // Half for half of the step, then all.
  EXPECT_TRUE(links.svg.contains("d=\"M190 58V47H484V36H778V58z\"")) << links.svg;
}

TEST(ReportLinks, a_rate_of_each_pair_of_nodes_counts_the_pairs_that_use_it) {
  SmallStep small;
  for (Link& link : small.topology.links) link.scope = LinkScope::kNode;
  small.topology.nodes.push_back(small.topology.nodes[0]);
  small.topology.devices.push_back({"a-2/0", 2, 0, 0});
  small.plan.devices.push_back({2, 1});
  small.plan.micro_batches.push_back(1);
  small.step.tasklets.resize(4);
  small.step.timeline.push_back(
      {Op::kSendActivation, 0, 2, 3, fixtures::at_s(0), fixtures::at_s(5), Bytes(5e6)});
  // 2 MB/s of two pairs of 2 MB/s each.
  EXPECT_TRUE(links_picture(planned(small), small.step)
                  .svg.contains(">25 %, peak 50 % of 32 Mbit/s</text>"));
}

TEST(ReportLinks, nothing_to_show_is_said) {
  SmallStep small;
  small.step.timeline.clear();
  const Picture links = links_picture(planned(small), small.step);
  EXPECT_EQ(links.svg, "");
  EXPECT_FALSE(links.caption.empty());
}

// The bars begin at 104 and are 264 wide in a step of 10 s.
TEST(ReportStages, each_part_of_a_stage_is_as_long_as_its_time) {
  const SmallStep small;
  const Picture stages = stages_picture(planned(small), small.step, nullptr);
  EXPECT_EQ(xml_problem(stages.svg), "");
  EXPECT_EQ(count(stages.svg, "<rect class=\"compute\" x=\"104\""), 3u);  // two stages, and all
  EXPECT_TRUE(
      stages.svg.contains("<rect class=\"compute\" x=\"104\" y=\"8\" width=\"105.6\" height=\"18\">"
                          "<title>compute: 40 %</title>"))
      << stages.svg;
  EXPECT_TRUE(stages.svg.contains("<rect class=\"transfer\" x=\"209.6\" y=\"8\" width=\"26.4\""));
  EXPECT_TRUE(
      stages.svg.contains("<rect fill=\"url(#stages-hatch)\" x=\"236\" y=\"8\" width=\"52.8\""));
  EXPECT_FALSE(stages.svg.contains("measured"));
}

TEST(ReportStages, a_run_adds_what_it_measured_on_the_same_scale) {
  const SmallStep small;
  RunData run;
  run.parts = MeasuredParts{10, 4, 4, 1, 1};  // 20 s: the predicted rows are half as long now
  const Picture stages = stages_picture(planned(small), small.step, &run);
  EXPECT_TRUE(stages.svg.contains("<rect class=\"compute\" x=\"104\" y=\"8\" width=\"52.8\""))
      << stages.svg;
  EXPECT_TRUE(stages.svg.contains("<rect class=\"compute\" x=\"104\" y=\"86\" width=\"132\""));
  EXPECT_TRUE(stages.svg.contains(">measured</text>"));
  EXPECT_TRUE(stages.svg.contains(">20 s</text>"));
}

TEST(ReportCritical, parts_are_named_and_nothing_is_drawn_where_nothing_is_said) {
  SmallStep small;
  EXPECT_EQ(critical_picture(planned(small), small.step).heading, "");
  small.step.critical = {{CriticalKind::kBandwidth, 0, 1, Seconds(6)},
                         {CriticalKind::kCompute, 1, 1, Seconds(3)},
                         {CriticalKind::kLatency, 1, 0, Seconds(1)}};
  const Picture critical = critical_picture(planned(small), small.step);
  EXPECT_EQ(xml_problem(critical.svg), "");
  for (const std::string_view text :
       {">a → b: sends</text>", ">b-1/0: computes</text>", ">b → a: latency</text>",
        // From 180, 194 long for the longest.
        "<rect class=\"transfer\" x=\"180\" y=\"8\" width=\"194\"",
        "<rect class=\"compute\" x=\"180\" y=\"34\" width=\"97\"", ">60 %</text>"})
    EXPECT_TRUE(critical.svg.contains(text)) << text << critical.svg;
}

TEST(ReportMemory, the_fullest_is_first_in_the_frame_of_its_device) {
  const SmallStep small;
  const Picture memory = memory_picture(planned(small));
  EXPECT_EQ(xml_problem(memory.svg), "");
  // From 146, 190 wide for 16 GiB.
  EXPECT_EQ(count(memory.svg, "<rect class=\"outline\" x=\"146\""), 2u) << memory.svg;
  EXPECT_TRUE(memory.svg.contains(">stage 0, card</text>"));
  EXPECT_TRUE(memory.svg.contains("of 16 GiB</text>"));
}

TEST(ReportMemory, alike_devices_are_one_row) {
  SmallStep small;
  small.plan.devices = {{0, 1}, {1, 0}};
  small.plan.micro_batches = {2, 2};
  EXPECT_TRUE(memory_picture(planned(small)).svg.contains(">stage 0, 2 card</text>"));
}

TEST(ReportPareto, the_front_goes_down_in_steps_and_the_knee_is_named) {
  const PricedPlan plans[] = {{10, 300, "2 x 4", true, false},
                              {20, 100, "<2> x 2", true, true},
                              {40, 80, "2 x 1", true, false},
                              {25, 200, "4 x 1", false, false},
                              {900, 90, "far", false, false}};
  const Picture pareto = pareto_picture(plans, plans[0]);
  EXPECT_EQ(xml_problem(pareto.svg), "");
  // The axes run from 10 - 1.8 to 40 + 1.8 s over 58 .. 422 and from 80 - 13.2 to 300 + 13.2 USD
  // over 298 .. 30, so (10, 300), (20, 100), (40, 80) are here:
  EXPECT_TRUE(
      pareto.svg.contains("class=\"front-line\" d=\"M77.5 44.36H185.83V261.89H402.5V283.64\""))
      << pareto.svg;
  EXPECT_TRUE(pareto.svg.contains(">knee: &lt;2&gt; x 2</text>"));
  EXPECT_EQ(count(pareto.svg, "class=\"behind\""), 1u);  // the one far away would flatten the rest
  EXPECT_TRUE(pareto.svg.contains(">this plan</text>"));
}

WhatIfTable sweep_of(bool is_log) {
  WhatIfTable table;
  table.axis = "link <a> bandwidth";
  table.unit = "Mbit/s";
  table.is_log = is_log;
  for (const auto& [x, step, binding] :
       {std::tuple(10.0, 8.0, "a link"), {100.0, 4.0, "a link"}, {1000.0, 2.0, "compute"}}) {
    WhatIfRow row;
    row.change = "to " + std::to_string(x);
    row.x = x;
    row.step = Seconds(step);
    row.binding = binding;
    table.rows.push_back(row);
  }
  return table;
}

// 440 wide: x from 58 to 422; y from 278 (0 s) up to 30 (8.64 s, 1.08 times the most).
TEST(ReportSweep, points_stand_on_a_logarithmic_axis_where_it_is_one) {
  const Picture sweep = sweep_picture(sweep_of(true), "sweep0");
  EXPECT_EQ(xml_problem(sweep.svg), "");
  EXPECT_TRUE(sweep.svg.contains("class=\"line line0\" d=\"M58 48.37L240 163.19L422 220.59\""))
      << sweep.svg;
  // The third point has another binding resource, hence a square: 8 by 8 around it.
  EXPECT_TRUE(sweep.svg.contains("d=\"M418 216.59h8v8h-8z\"")) << sweep.svg;
  EXPECT_TRUE(sweep.svg.contains(">binds: a link</text>"));
  EXPECT_TRUE(sweep.svg.contains(">binds: compute</text>"));
  EXPECT_TRUE(sweep.svg.contains(">link &lt;a&gt; bandwidth, Mbit/s</text>"));
  const Picture linear = sweep_picture(sweep_of(false), "sweep0");
  EXPECT_FALSE(linear.svg.contains("L240 "));
}

TEST(ReportSweep, a_point_without_a_step_is_a_cross_and_says_why) {
  WhatIfTable table = sweep_of(true);
  table.rows[1].problem = "it does not fit";
  const Picture sweep = sweep_picture(table, "sweep0");
  EXPECT_EQ(xml_problem(sweep.svg), "");
  EXPECT_TRUE(sweep.svg.contains("class=\"problem\" x=\"240\" y=\"273\""));
  EXPECT_TRUE(sweep.caption.contains("it does not fit"));
}

TEST(ReportSweep, as_it_is_is_a_level_and_another_plan_a_hollow_mark) {
  WhatIfTable table = sweep_of(true);
  table.rows[0].x.reset();
  table.rows[1].replanned = true;
  const Picture sweep = sweep_picture(table, "sweep0");
  EXPECT_TRUE(sweep.svg.contains("<line class=\"level\" x1=\"58\" y1=\"48.37\""));
  EXPECT_TRUE(sweep.svg.contains(">as it is</text>"));
  EXPECT_EQ(count(sweep.svg, "class=\"mark hollow\""), 2u);  // and its legend
}

TEST(ReportSweep, changes_of_several_kinds_are_bars) {
  WhatIfTable table = sweep_of(false);
  for (WhatIfRow& row : table.rows) row.x.reset();
  table.rows[2].problem = "no device is left";
  const Picture sweep = sweep_picture(table, "sweep0");
  EXPECT_EQ(xml_problem(sweep.svg), "");
  // 204 wide from 170; the shares are of the first.
  EXPECT_TRUE(sweep.svg.contains("x=\"170\" y=\"8\" width=\"204\"")) << sweep.svg;
  EXPECT_TRUE(sweep.svg.contains("x=\"170\" y=\"34\" width=\"102\""));
  EXPECT_TRUE(sweep.svg.contains(">50 %</text>"));
  EXPECT_TRUE(sweep.svg.contains(">no step</text>"));
}

TEST(ReportSweep, whatever_is_in_a_table_it_is_well_formed) {
  WhatIfTable table;
  EXPECT_EQ(xml_problem(sweep_picture(table, "s").svg), "");
  table = sweep_of(true);
  for (WhatIfRow& row : table.rows) row.problem = "none";
  EXPECT_EQ(xml_problem(sweep_picture(table, "s").svg), "");
  table = sweep_of(true);
  table.rows[0].x = -1;  // not on a logarithmic axis
  const Picture sweep = sweep_picture(table, "s");
  EXPECT_EQ(xml_problem(sweep.svg), "");
  EXPECT_FALSE(sweep.svg.contains("nan"));
}

RunData run_of(std::size_t steps) {
  RunData run;
  for (std::size_t i = 0; i < steps; ++i) {
    const auto step = static_cast<double>(i);
    run.loss.push_back({step, 5 - 4 * step / static_cast<double>(steps)});
    run.step_s.push_back({step, 0.5});
    run.tokens_per_s.push_back({step, 8192});
  }
  run.validation = {{static_cast<double>(steps), 2}};
  run.result.bigram_loss = 2.5;
  run.result.step_predicted_s = 0.4;
  return run;
}

TEST(ReportSeries, a_run_has_loss_speed_and_time_with_what_they_are_measured_by) {
  const std::vector<SeriesChart> charts = run_charts(run_of(100));
  ASSERT_EQ(charts.size(), 3u);
  for (const SeriesChart& chart : charts) EXPECT_EQ(xml_problem(series_picture(chart).svg), "");
  const Picture loss = series_picture(charts[0]);
  EXPECT_TRUE(loss.svg.contains(">a bigram model: 2.5</text>")) << loss.svg;
  // Validation after the last step: at the right edge.
  EXPECT_TRUE(loss.svg.contains("<circle class=\"dot line1\" cx=\"422\"")) << loss.svg;
  EXPECT_TRUE(series_picture(charts[2]).svg.contains(">predicted: 0.4</text>"));
}

TEST(ReportSeries, a_million_steps_are_a_small_picture) {
  const std::vector<SeriesChart> charts = run_charts(run_of(1'000'000));
  EXPECT_LT(series_picture(charts[0]).svg.size(), 50'000u);
}

TEST(ReportSeries, a_run_that_made_nothing_has_no_charts) {
  EXPECT_TRUE(run_charts(RunData{}).empty());
}

}  // namespace
}  // namespace longhaul
