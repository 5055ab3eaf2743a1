#include "core/schedule.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::unit_job;
using fixtures::unit_plan;
using Lines = std::vector<std::string>;

constexpr auto kGpipe = ScheduleFamily::kGpipe;
constexpr auto kOneForwardOneBackward = ScheduleFamily::kOneForwardOneBackward;

/// One tasklet's list as a person would write it: `SEND_ACT 0 > 1 after 0` sends to cell 1 what the
/// instruction at index 0 made.
Lines lines_of(const TaskletSchedule& tasklet) {
  Lines lines;
  for (const Instruction& instruction : tasklet.instructions) {
    std::string line(name_of(instruction.op));
    if (instruction.micro_batch >= 0) line += fmt::format(" {}", instruction.micro_batch);
    if (instruction.peer >= 0) line += fmt::format(" > {}", instruction.peer);
    for (const std::int32_t before : instruction.after) {
      if (before >= 0) line += fmt::format(" after {}", before);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// The compute lane alone.
Lines computes_of(const TaskletSchedule& tasklet) {
  Lines lines;
  for (const Instruction& instruction : tasklet.instructions) {
    if (lane_of(instruction.op) != Lane::kCompute || instruction.op == Op::kUpdate) continue;
    lines.push_back(fmt::format("{} {}", name_of(instruction.op), instruction.micro_batch));
  }
  return lines;
}

TEST(MakeSchedule, one_forward_one_backward_of_two_stages_and_three_micro_batches) {
  const Schedule schedule =
      make_schedule(unit_plan(kOneForwardOneBackward, 2, {3}), unit_job(2, 3));
  ASSERT_EQ(schedule.tasklets.size(), 2u);
  // K = 2: two forwards, then one backward and one forward in turn, then the backwards left.
  EXPECT_EQ(lines_of(schedule.tasklets[0]), (Lines{
                                                "FWD 0",                   //  0
                                                "SEND_ACT 0 > 1 after 0",  //  1
                                                "FWD 1",                   //  2
                                                "SEND_ACT 1 > 1 after 2",  //  3
                                                "RECV_GRAD 0 > 1",         //  4
                                                "BWD 0 after 4",           //  5
                                                "FWD 2",                   //  6
                                                "SEND_ACT 2 > 1 after 6",  //  7
                                                "RECV_GRAD 1 > 1",         //  8
                                                "BWD 1 after 8",           //  9
                                                "RECV_GRAD 2 > 1",         // 10
                                                "BWD 2 after 10",          // 11
                                                "PREPARE after 11",        // 12
                                                "UPDATE after 12",         // 13
                                            }));
  // K = 1: each micro-batch goes back as soon as it came.
  EXPECT_EQ(lines_of(schedule.tasklets[1]), (Lines{
                                                "RECV_ACT 0 > 0",            //  0
                                                "FWD 0 after 0",             //  1
                                                "BWD 0",                     //  2
                                                "SEND_GRAD 0 > 0 after 2",   //  3
                                                "RECV_ACT 1 > 0",            //  4
                                                "FWD 1 after 4",             //  5
                                                "BWD 1",                     //  6
                                                "SEND_GRAD 1 > 0 after 6",   //  7
                                                "RECV_ACT 2 > 0",            //  8
                                                "FWD 2 after 8",             //  9
                                                "BWD 2",                     // 10
                                                "SEND_GRAD 2 > 0 after 10",  // 11
                                                "PREPARE after 10",          // 12
                                                "UPDATE after 12",           // 13
                                            }));
}

TEST(MakeSchedule, gpipe_of_two_stages_and_three_micro_batches) {
  const Schedule schedule = make_schedule(unit_plan(kGpipe, 2, {3}), unit_job(2, 3));
  EXPECT_EQ(lines_of(schedule.tasklets[0]), (Lines{
                                                "FWD 0",                   //  0
                                                "SEND_ACT 0 > 1 after 0",  //  1
                                                "FWD 1",                   //  2
                                                "SEND_ACT 1 > 1 after 2",  //  3
                                                "FWD 2",                   //  4
                                                "SEND_ACT 2 > 1 after 4",  //  5
                                                "RECV_GRAD 0 > 1",         //  6
                                                "BWD 0 after 6",           //  7
                                                "RECV_GRAD 1 > 1",         //  8
                                                "BWD 1 after 8",           //  9
                                                "RECV_GRAD 2 > 1",         // 10
                                                "BWD 2 after 10",          // 11
                                                "PREPARE after 11",        // 12
                                                "UPDATE after 12",         // 13
                                            }));
  EXPECT_EQ(computes_of(schedule.tasklets[1]),
            (Lines{"FWD 0", "FWD 1", "FWD 2", "BWD 0", "BWD 1", "BWD 2"}));
}

TEST(MakeSchedule, a_stage_between_receives_and_sends_both_ways) {
  const Schedule schedule =
      make_schedule(unit_plan(kOneForwardOneBackward, 3, {1}), unit_job(3, 1));
  EXPECT_EQ(lines_of(schedule.tasklets[1]), (Lines{
                                                "RECV_ACT 0 > 0",           // 0
                                                "FWD 0 after 0",            // 1
                                                "SEND_ACT 0 > 2 after 1",   // 2
                                                "RECV_GRAD 0 > 2",          // 3
                                                "BWD 0 after 3",            // 4
                                                "SEND_GRAD 0 > 0 after 4",  // 5
                                                "PREPARE after 4",          // 6
                                                "UPDATE after 6",           // 7
                                            }));
}

TEST(MakeSchedule, recompute_runs_before_the_wait_for_the_gradient) {
  Job job = unit_job(2, 1);
  job.recompute = Recompute::kYes;
  const Schedule schedule = make_schedule(unit_plan(kOneForwardOneBackward, 2, {1}), job);
  EXPECT_EQ(lines_of(schedule.tasklets[0]),
            (Lines{"FWD 0", "SEND_ACT 0 > 1 after 0", "RECOMPUTE 0", "RECV_GRAD 0 > 1",
                   "BWD 0 after 3", "PREPARE after 4", "UPDATE after 5"}));
  EXPECT_EQ(lines_of(schedule.tasklets[1]),
            (Lines{"RECV_ACT 0 > 0", "FWD 0 after 0", "RECOMPUTE 0", "BWD 0",
                   "SEND_GRAD 0 > 0 after 3", "PREPARE after 3", "UPDATE after 5"}));
}

TEST(MakeSchedule, a_single_stage_talks_to_nobody) {
  const Schedule schedule =
      make_schedule(unit_plan(kOneForwardOneBackward, 1, {2}), unit_job(1, 2));
  EXPECT_EQ(lines_of(schedule.tasklets[0]),
            (Lines{"FWD 0", "BWD 0", "FWD 1", "BWD 1", "PREPARE after 3", "UPDATE after 4"}));
}

/// What comes after the last backward of each cell.
std::vector<Lines> endings(int stages, int pipelines, bool tied) {
  const Plan plan = unit_plan(kOneForwardOneBackward, stages,
                              std::vector<int>(static_cast<std::size_t>(pipelines), 1));
  const Schedule schedule = make_schedule(plan, unit_job(stages, pipelines, tied));
  std::vector<Lines> out;
  for (const TaskletSchedule& tasklet : schedule.tasklets) {
    out.emplace_back();
    for (const Instruction& instruction : tasklet.instructions) {
      if (lane_of(instruction.op) == Lane::kReduce) {
        out.back().emplace_back(name_of(instruction.op));
      }
    }
  }
  return out;
}

TEST(MakeSchedule, the_ends_of_a_tied_model_exchange_the_embedding) {
  const Lines alone = {"PREPARE"};
  const Lines tied = {"TIED_REDUCE", "PREPARE"};
  const Lines reduce = {"REDUCE", "PREPARE"};
  const Lines both = {"REDUCE", "TIED_REDUCE", "PREPARE"};
  EXPECT_EQ(endings(3, 1, false), (std::vector{alone, alone, alone}));
  EXPECT_EQ(endings(3, 1, true), (std::vector{tied, alone, tied}));
  EXPECT_EQ(endings(2, 2, false), (std::vector{reduce, reduce, reduce, reduce}));
  EXPECT_EQ(endings(3, 2, true), (std::vector{both, reduce, both, both, reduce, both}));
  // At one stage the two accumulators are on one device.
  EXPECT_EQ(endings(1, 1, true), std::vector<Lines>{alone});
  EXPECT_EQ(endings(1, 2, true), (std::vector<Lines>{reduce, reduce}));
}

TEST(MakeSchedule, reductions_wait_for_the_last_backward_and_prepare_for_the_reductions) {
  const Schedule schedule =
      make_schedule(unit_plan(kOneForwardOneBackward, 2, {1, 1}), unit_job(2, 2, true));
  EXPECT_EQ(lines_of(schedule.tasklets[3]),
            (Lines{"RECV_ACT 0 > 2", "FWD 0 after 0", "BWD 0", "SEND_GRAD 0 > 2 after 2",
                   "REDUCE after 2", "TIED_REDUCE after 2", "PREPARE after 5", "UPDATE after 6"}));
}

TEST(MakeSchedule, in_flight_is_capped_by_a_pipelines_own_micro_batches) {
  // Pipeline 0 has 3 micro-batches and pipeline 1 has 1; GPipe's K is 3.
  const Schedule schedule = make_schedule(unit_plan(kGpipe, 1, {3, 1}), unit_job(1, 4));
  EXPECT_EQ(computes_of(schedule.tasklets[0]),
            (Lines{"FWD 0", "FWD 1", "FWD 2", "BWD 0", "BWD 1", "BWD 2"}));
  EXPECT_EQ(computes_of(schedule.tasklets[1]), (Lines{"FWD 0", "BWD 0"}));
}

TEST(MakeSchedule, every_stage_runs_every_micro_batch_once_and_in_order) {
  for (const std::vector<int>& in_flight :
       {std::vector{1, 1, 1}, {2, 2, 1}, {5, 3, 1}, {5, 5, 5}}) {
    Plan plan = unit_plan(kOneForwardOneBackward, 3, {5});
    plan.in_flight = in_flight;
    const Schedule schedule = make_schedule(plan, unit_job(3, 5));
    EXPECT_TRUE(build_graph(schedule));
    for (const TaskletSchedule& tasklet : schedule.tasklets) {
      std::map<Op, int> next;
      int open = 0;
      int open_max = 0;
      for (const Instruction& instruction : tasklet.instructions) {
        if (instruction.micro_batch < 0) continue;
        EXPECT_EQ(instruction.micro_batch, next[instruction.op]++);
        open += instruction.op == Op::kForward ? 1 : instruction.op == Op::kBackward ? -1 : 0;
        open_max = std::max(open_max, open);
      }
      for (const auto& [op, count] : next) EXPECT_EQ(count, 5);
      EXPECT_EQ(open_max, in_flight[static_cast<std::size_t>(tasklet.stage)]);
    }
  }
}

// ---- Split backwards.

Plan greedy_plan(std::vector<int> micro_batches, const std::vector<std::string>& orders) {
  Plan plan =
      unit_plan(ScheduleFamily::kGreedy, static_cast<int>(orders.size()), std::move(micro_batches));
  for (const std::string& order : orders) plan.orders.push_back(*parse_order(order));
  return plan;
}

TEST(MakeSchedule, a_greedy_list_sends_gradients_before_it_makes_those_of_the_weights) {
  const Plan plan = greedy_plan({2}, {"F0 F1 B0 W0 B1 W1", "F0 B0 F1 B1 W0 W1"});
  const Schedule schedule = make_schedule(plan, unit_job(2, 2));
  EXPECT_EQ(lines_of(schedule.tasklets[0]), (Lines{
                                                "FWD 0",                   //  0
                                                "SEND_ACT 0 > 1 after 0",  //  1
                                                "FWD 1",                   //  2
                                                "SEND_ACT 1 > 1 after 2",  //  3
                                                "RECV_GRAD 0 > 1",         //  4
                                                "BWD_INPUT 0 after 4",     //  5
                                                "BWD_WEIGHT 0",            //  6
                                                "RECV_GRAD 1 > 1",         //  7
                                                "BWD_INPUT 1 after 7",     //  8
                                                "BWD_WEIGHT 1",            //  9
                                                "PREPARE after 9",         // 10
                                                "UPDATE after 10",         // 11
                                            }));
  EXPECT_EQ(lines_of(schedule.tasklets[1]), (Lines{
                                                "RECV_ACT 0 > 0",           //  0
                                                "FWD 0 after 0",            //  1
                                                "BWD_INPUT 0",              //  2
                                                "SEND_GRAD 0 > 0 after 2",  //  3
                                                "RECV_ACT 1 > 0",           //  4
                                                "FWD 1 after 4",            //  5
                                                "BWD_INPUT 1",              //  6
                                                "SEND_GRAD 1 > 0 after 6",  //  7
                                                "BWD_WEIGHT 0",             //  8
                                                "BWD_WEIGHT 1",             //  9
                                                "PREPARE after 9",          // 10
                                                "UPDATE after 10",          // 11
                                            }));
  EXPECT_TRUE(build_graph(schedule));
}

TEST(MakeSchedule, a_greedy_list_recomputes_before_the_input_gradient) {
  Job job = unit_job(1, 2);
  job.recompute = Recompute::kYes;
  const Schedule schedule = make_schedule(greedy_plan({2}, {"F0 F1 B0 B1 W0 W1"}), job);
  EXPECT_EQ(computes_of(schedule.tasklets[0]),
            (Lines{"FWD 0", "FWD 1", "RECOMPUTE 0", "BWD_INPUT 0", "RECOMPUTE 1", "BWD_INPUT 1",
                   "BWD_WEIGHT 0", "BWD_WEIGHT 1"}));
}

TEST(MakeSchedule, reduces_follow_the_last_weight_gradient) {
  const Plan plan = greedy_plan({1, 1}, {"F0 B0 W0", "F0 B0 W0"});
  const Lines lines = lines_of(make_schedule(plan, unit_job(2, 2, true)).tasklets[0]);
  EXPECT_EQ(Lines(lines.end() - 5, lines.end()),
            (Lines{"BWD_WEIGHT 0", "REDUCE after 4", "TIED_REDUCE after 4", "PREPARE after 6",
                   "UPDATE after 7"}));
}

TEST(MakeSchedule, a_smaller_pipeline_runs_the_order_without_what_it_does_not_have) {
  const Plan plan = greedy_plan({3, 1}, {"F0 F1 B0 F2 W0 B1 W1 B2 W2"});
  const Schedule schedule = make_schedule(plan, unit_job(1, 4));
  EXPECT_EQ(computes_of(schedule.tasklets[1]), (Lines{"FWD 0", "BWD_INPUT 0", "BWD_WEIGHT 0"}));
  EXPECT_EQ(computes_of(schedule.tasklets[0]).size(), 9u);
}

// ---- The graph.

TEST(BuildGraph, has_lane_after_and_message_edges) {
  // Stage 0: FWD SEND_ACT RECV_GRAD BWD PREPARE UPDATE. The compute lane gives FWD-BWD-UPDATE, two
  // edges; `after` gives four (send, backward, prepare, update). Stage 1 likewise has two and four.
  // Two messages. Together 14.
  const Schedule schedule =
      make_schedule(unit_plan(kOneForwardOneBackward, 2, {1}), unit_job(2, 1));
  const Result<ScheduleGraph> graph = build_graph(schedule);
  ASSERT_TRUE(graph) << graph.error().text();
  EXPECT_EQ(graph->size(), 12u);
  EXPECT_EQ(graph->first_node, (std::vector<std::int32_t>{0, 6, 12}));
  EXPECT_EQ(graph->next.size(), 14u);
  EXPECT_EQ(graph->next_begin.back(), 14);
  std::int32_t waits = 0;
  for (const std::int32_t count : graph->waits) waits += count;
  EXPECT_EQ(waits, 14);
  // Node 1 is stage 0's SEND_ACT; its one successor is stage 1's RECV_ACT, node 6.
  ASSERT_EQ(graph->next_begin[2] - graph->next_begin[1], 1);
  EXPECT_EQ(graph->next[static_cast<std::size_t>(graph->next_begin[1])], 6);
  // Only the first forward waits for nothing.
  for (std::size_t n = 0; n < graph->size(); ++n) EXPECT_EQ(graph->waits[n] == 0, n == 0);
}

/// A schedule of two cells with the given lists.
Schedule hand_made(std::vector<Instruction> first, std::vector<Instruction> second) {
  Schedule schedule{2, 1, {{0, 0, std::move(first)}, {0, 1, std::move(second)}}};
  return schedule;
}

std::string refusal(const Schedule& schedule) {
  const Result<ScheduleGraph> graph = build_graph(schedule);
  EXPECT_FALSE(graph);
  if (graph) return "";
  EXPECT_EQ(graph.error().code, ErrorCode::kInvalid);
  return graph.error().message;
}

TEST(BuildGraph, a_lone_send_is_refused) {
  EXPECT_EQ(refusal(hand_made({{Op::kSendActivation, 3, 1}}, {})),
            "SEND_ACT 3 of stage 0 of pipeline 0 has no matching receive");
}

TEST(BuildGraph, a_lone_receive_is_refused) {
  EXPECT_EQ(refusal(hand_made({{Op::kReceiveGradient, 3, 1}}, {})),
            "RECV_GRAD 3 of stage 0 of pipeline 0 has no matching send");
}

TEST(BuildGraph, a_receive_of_another_micro_batch_or_tensor_does_not_match) {
  EXPECT_NE(refusal(hand_made({{Op::kSendActivation, 0, 1}}, {{Op::kReceiveActivation, 1, 0}})),
            "");
  EXPECT_NE(refusal(hand_made({{Op::kSendActivation, 0, 1}}, {{Op::kReceiveGradient, 0, 0}})), "");
  EXPECT_TRUE(
      build_graph(hand_made({{Op::kSendActivation, 0, 1}}, {{Op::kReceiveActivation, 0, 0}})));
}

TEST(BuildGraph, a_message_sent_or_received_twice_is_refused) {
  EXPECT_EQ(refusal(hand_made({{Op::kSendActivation, 0, 1}, {Op::kSendActivation, 0, 1}},
                              {{Op::kReceiveActivation, 0, 0}})),
            "SEND_ACT 0 of stage 0 of pipeline 0 has no matching receive");
  EXPECT_EQ(refusal(hand_made({{Op::kSendActivation, 0, 1}},
                              {{Op::kReceiveActivation, 0, 0}, {Op::kReceiveActivation, 0, 0}})),
            "RECV_ACT 0 of stage 1 of pipeline 0 has no matching send");
}

TEST(BuildGraph, an_after_outside_the_list_is_refused) {
  const auto with_after = [](std::int32_t before) {
    return hand_made({{Op::kForward, 0}, {Op::kBackward, 0, -1, {before, -1}}}, {});
  };
  EXPECT_TRUE(build_graph(with_after(0)));
  EXPECT_EQ(refusal(with_after(2)),
            "BWD 0 of stage 0 of pipeline 0 waits for instruction 2, which its list does not have");
  EXPECT_NE(refusal(with_after(-2)), "");
}

TEST(BuildGraph, an_instruction_that_waits_for_itself_is_refused) {
  EXPECT_EQ(refusal(hand_made({{Op::kForward, 0, -1, {0, -1}}}, {})),
            "the schedule dead-locks: FWD 0 of stage 0 of pipeline 0\n"
            "    waits for FWD 0 of stage 0 of pipeline 0");
}

TEST(BuildGraph, a_dead_lock_is_named_instruction_by_instruction) {
  // In flight 1, then 2: stage 1 wants a second forward before its first backward, stage 0 sends a
  // second activation only after its first backward. These eight wait for each other in a ring.
  Plan plan = unit_plan(kOneForwardOneBackward, 2, {2});
  plan.in_flight = {1, 2};
  const std::string message = refusal(make_schedule(plan, unit_job(2, 2)));
  const Lines ring = {
      "FWD 1 of stage 1",       // waits for
      "RECV_ACT 1 of stage 1",  // waits for
      "SEND_ACT 1 of stage 0",  "FWD 1 of stage 0",       "BWD 0 of stage 0",
      "RECV_GRAD 0 of stage 0", "SEND_GRAD 0 of stage 1", "BWD 0 of stage 1",
  };
  EXPECT_TRUE(message.starts_with("the schedule dead-locks: ")) << message;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    // The text goes round until its first instruction comes again, so that all pairs show.
    const std::string link =
        ring[i] + " of pipeline 0\n    waits for " + ring[(i + 1) % ring.size()] + " of pipeline 0";
    EXPECT_TRUE(message.contains(link)) << link << "\n" << message;
  }
}

TEST(BuildGraph, crossing_waits_of_two_lanes_dead_lock) {
  // Each cell receives before it sends what the other waits for.
  const std::string message =
      refusal(hand_made({{Op::kReceiveGradient, 0, 1}, {Op::kSendActivation, 0, 1, {0, -1}}},
                        {{Op::kReceiveActivation, 0, 0}, {Op::kSendGradient, 0, 0, {0, -1}}}));
  EXPECT_TRUE(message.contains("dead-locks")) << message;
}

TEST(Ops, have_names_and_lanes) {
  EXPECT_EQ(name_of(Op::kTiedReduce), "TIED_REDUCE");
  EXPECT_EQ(name_of(Op::kReceiveGradient), "RECV_GRAD");
  EXPECT_EQ(lane_of(Op::kRecompute), Lane::kCompute);
  EXPECT_EQ(lane_of(Op::kUpdate), Lane::kCompute);
  EXPECT_EQ(lane_of(Op::kSendGradient), Lane::kSend);
  EXPECT_EQ(lane_of(Op::kReceiveActivation), Lane::kReceive);
  EXPECT_EQ(lane_of(Op::kPrepare), Lane::kReduce);
  EXPECT_EQ((Schedule{3, 2, {}}).name_of_cell(4), "stage 1 of pipeline 1");
}

}  // namespace
}  // namespace longhaul
