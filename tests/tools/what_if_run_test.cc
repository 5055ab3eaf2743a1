// What an edit does to a step. The expected numbers follow from the fixture's sum:
//   forward, send, latency, forward, backward, send, latency, backward at the first stage; its
//   PREPARE stays in delft (0.25 ms), the COMMIT to the second stage takes a latency; then the
//   update.
// So a step holds two sends (25.165824 ms each, at 62.5e6 B/s) and three latencies (20 ms each).
#include "tools/what_if_run.h"

#include <algorithm>
#include <atomic>

#include "tests/tools/what_if_fixtures.h"

namespace longhaul {
namespace {

constexpr double kSendMs = 25.165824;
constexpr double kNear = 1e-6;  // ms: rounding to picoseconds

/// Whether two rows say the same, but for their names.
void expect_same(const WhatIfRow& a, const WhatIfRow& b) {
  EXPECT_EQ(a.problem, b.problem);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.tokens_per_s, b.tokens_per_s);
  EXPECT_EQ(a.usd_per_billion_tokens, b.usd_per_billion_tokens);
  EXPECT_EQ(a.binding, b.binding);
}

TEST_F(WhatIfTest, twice_the_bandwidth_halves_the_transfers) {
  EXPECT_NEAR(longer_ms("link delft<->riga bandwidth *2"), -kSendMs, kNear);
  EXPECT_NEAR(longer_ms("link * bandwidth 1 Gbit/s"), -kSendMs, kNear);
  EXPECT_NEAR(longer_ms("link * bandwidth +100%"), -kSendMs, kNear);
  EXPECT_NEAR(longer_ms("link * bandwidth +500Mbit/s"), -kSendMs, kNear);
  // One direction carries one of the two.
  EXPECT_NEAR(longer_ms("link delft->riga bandwidth *2"), -kSendMs / 2, kNear);
  EXPECT_NEAR(longer_ms("link riga->* bandwidth /2"), kSendMs, kNear);
  EXPECT_NEAR(longer_ms("link *->riga bandwidth -250Mbit/s"), kSendMs, kNear);
}

TEST_F(WhatIfTest, latency_counts_for_each_message_on_the_way) {
  EXPECT_NEAR(longer_ms("link * latency +10ms"), 30, kNear);
  EXPECT_NEAR(longer_ms("link * latency /2"), -30, kNear);
  // There and back are one round trip, whichever way it is named: three messages are 15 ms later.
  EXPECT_NEAR(longer_ms("link delft->riga rtt +10ms"), 15, kNear);
  EXPECT_NEAR(longer_ms("link riga->delft rtt 50ms"), 15, kNear);
  EXPECT_NEAR(longer_ms("link delft->riga rtt *1.25"), 15, kNear);
  // To riga go the activation and the COMMIT, back comes the gradient.
  EXPECT_NEAR(longer_ms("link delft->riga latency 30ms"), 20, kNear);
  EXPECT_NEAR(longer_ms("link riga->delft latency -50%"), -10, kNear);
  // The PREPARE.
  EXPECT_NEAR(longer_ms("inside delft latency +1ms"), 1, kNear);
  EXPECT_NEAR(longer_ms("inside * latency *3"), 0.5, kNear);
}

TEST_F(WhatIfTest, uplinks_downlinks_and_nics_limit_as_a_link_does) {
  EXPECT_NEAR(longer_ms("site delft uplink 250 Mbit/s"), kSendMs, kNear);
  EXPECT_NEAR(longer_ms("site delft downlink 250 Mbit/s"), kSendMs, kNear);
  EXPECT_NEAR(longer_ms("site * uplink 250 Mbit/s"), 2 * kSendMs, kNear);
  EXPECT_NEAR(longer_ms("node riga-1 nic 250 Mbit/s"), 2 * kSendMs, kNear);
  EXPECT_NEAR(longer_ms("node * nic /40"), 2 * kSendMs, kNear);  // 10 Gbit/s / 40
  EXPECT_NEAR(longer_ms("tcp wire_factor 1.5"), kSendMs, kNear);
}

TEST_F(WhatIfTest, speed_divides_the_time_of_passes) {
  // step(s) = rest + C / s: from 1 to 2 C/2 is saved, from 2 to 4 C/4, and half the speed adds C.
  const double saved = -longer_ms("device * speed *2");
  EXPECT_GT(saved, 0);
  EXPECT_NEAR(longer_ms("device * speed /2"), 2 * saved, kNear);
  EXPECT_NEAR(-longer_ms("device lab speed *4"), 1.5 * saved, kNear);
  // 50 TFLOP/s at half efficiency; precisions that the job does not use stay.
  EXPECT_NEAR(longer_ms("device * speed 50 TFLOP/s"), -saved, kNear);
  // What only one device is meant of splits its kind: the two devices' savings add up.
  EXPECT_NEAR(-longer_ms("device delft-1/0 speed *2") - longer_ms("device riga-1/0 speed *2"),
              saved, kNear);
  EXPECT_NEAR(-longer_ms("device riga-1/0 speed *2; device lab speed *2; device riga-1/0 speed /2"),
              saved, kNear);
}

TEST_F(WhatIfTest, compression_shrinks_what_goes_between_sites) {
  // int8: a byte an element and 2 bytes for 64 of them, of 2 bytes an element: 33/64, and a header
  // of 68 B a message.
  EXPECT_NEAR(longer_ms("job compression.activations int8"),
              -2 * kSendMs * 31 / 64 + 2 * 68 / 62.5e6 * 1e3, kNear);
}

TEST_F(WhatIfTest, a_codec_without_histories_takes_the_jobs_word_about_them_away) {
  EXPECT_NEAR(longer_ms("job compression.activations aq-int4; job compression.history.first int8; "
                        "job compression.activations int8"),
              longer_ms("job compression.activations int8"), 1e-9);
}

TEST_F(WhatIfTest, money_is_a_steps_price_over_its_tokens) {
  // Two devices at 1 USD/h; 24 x 128 tokens a step.
  const WhatIfRow base = as_it_is();
  ASSERT_TRUE(base.usd_per_billion_tokens);
  EXPECT_NEAR(*base.usd_per_billion_tokens, 2 * base.step.value() / 3600 / (24 * 128) * 1e9, 1e-9);
  EXPECT_NEAR(base.tokens_per_s, 24 * 128 / base.step.value(), 1e-9);
  EXPECT_NEAR(*row("device * price *3").usd_per_billion_tokens, 3 * *base.usd_per_billion_tokens,
              1e-9);
  // Each site sends one tensor of 1572864 B.
  EXPECT_NEAR(*row("site delft egress 1 USD/GB").usd_per_billion_tokens,
              *base.usd_per_billion_tokens + 1572864e-9 / (24 * 128) * 1e9, 1e-6);
  EXPECT_FALSE(row("device * price 0 USD/h").usd_per_billion_tokens.has_value());
}

TEST_F(WhatIfTest, a_link_that_a_window_limits_follows_latency_and_not_bandwidth) {
  // One stream of 1 MB at 40 ms round trip: 25e6 B/s, 62.91456 ms a send.
  use(edited(kWhatIfCluster, "window: unlimited", "window: 1 MB, streams: 1"), kWhatIfJob,
      kWhatIfPlan);
  const WhatIfRow doubled = row("link delft<->riga bandwidth *2");
  EXPECT_EQ(doubled.step, as_it_is().step);
  ASSERT_EQ(doubled.notes.size(), 1u);
  EXPECT_TRUE(
      doubled.notes[0].contains("TCP lets no more than 200 Mbit/s through from delft to riga"))
      << doubled.notes[0];
  // Half the latency is twice the rate: two sends of half, three latencies of half.
  EXPECT_NEAR(longer_ms("link * latency *0.5"), -(62.91456 + 30), kNear);
  EXPECT_NEAR(longer_ms("tcp window *2"), -62.91456, kNear);
  EXPECT_NEAR(longer_ms("tcp streams 2"), -62.91456, kNear);
  EXPECT_NEAR(longer_ms("link * streams 2"), -62.91456, kNear);
  // At most what was measured: 62.5e6 B/s.
  EXPECT_NEAR(longer_ms("link * streams 10"), -2 * (62.91456 - kSendMs), kNear);
  EXPECT_EQ(row("link * latency *2; link * latency /2").step, as_it_is().step);
}

TEST_F(WhatIfTest, loss_costs_under_cubic_and_is_said_to_cost_nothing_under_bbr) {
  EXPECT_EQ(longer_ms("link * loss 0.01"), 0);
  EXPECT_TRUE(row("link * loss 0.01").notes.at(0).contains("bbr"));
  // Mathis: 1.22 x 1448 B / (40 ms x sqrt 0.01) = 441640 B/s with one stream.
  EXPECT_NEAR(longer_ms("tcp congestion cubic; tcp streams 1; link * loss 0.01"),
              2 * (1572864 / 441640.0 * 1e3 - kSendMs), 1e-3);
}

TEST_F(WhatIfTest, what_changes_nothing_gives_the_same_row) {
  const WhatIfRow base = as_it_is();
  for (const std::string edits :
       {"link * latency +0ms",
        "link * bandwidth *1",
        "link * bandwidth +0%",
        "link * bandwidth *2; link * bandwidth /2",
        "link * latency *4; link * latency /4",
        "link * latency +8ms; link * latency -8ms",
        "device riga-1/0 speed *2; device lab speed /1; device riga-1/0 speed /2",
        "tcp streams 3; tcp streams auto",
        "site delft uplink 1 Mbit/s; site delft uplink unlimited",
        "link * scope site_pair; link * scope node",
        "job batch.global *2; job batch.global /2",
        "job precision fp32; job precision fp16",
        "node * nic *2; node * nic /2",
        "remove site oslo",
        "remove device oslo-1/0",
        "remove node oslo-1",
        "remove link riga<->oslo",
        "add node oslo:lab",
        "inside oslo latency *3",
        "link * jitter 5ms"}) {
    SCOPED_TRACE(edits);
    expect_same(row(edits), base);
  }
}

TEST_F(WhatIfTest, several_sets_are_one_row_in_their_order) {
  const WhatIfTable made =
      table({.sets = {"link * bandwidth 1 Gbit/s", "link * bandwidth *2", "link * latency +10ms"}});
  ASSERT_EQ(made.rows.size(), 2u);
  EXPECT_EQ(made.rows[0].change, "as it is");
  EXPECT_EQ(made.rows[1].change,
            "link * bandwidth 1 Gbit/s; link * bandwidth *2; link * latency +10ms");
  // A quarter of the time for each send, 30 ms more of latency.
  EXPECT_NEAR((made.rows[1].step - made.rows[0].step).value() * 1e3, -1.5 * kSendMs + 30, kNear);
}

TEST_F(WhatIfTest, scenarios_start_from_what_there_is) {
  const WhatIfTable made =
      table({.sets = {"link * latency +10ms"},
             .scenarios = {"fast: link * bandwidth *2", "far: link * latency *2"}});
  ASSERT_EQ(made.rows.size(), 4u);
  const auto longer = [&](std::size_t r) {
    return (made.rows[r].step - made.rows[0].step).value() * 1e3;
  };
  EXPECT_NEAR(longer(1), 30, kNear);
  EXPECT_EQ(made.rows[2].change, "fast");
  EXPECT_NEAR(longer(2), -kSendMs, kNear);
  EXPECT_NEAR(longer(3), 60, kNear);
}

TEST_F(WhatIfTest, a_sweep_has_a_row_for_each_point_and_the_bases_own_value_gives_its_row) {
  const WhatIfTable made = table({.sweeps = {"link * bandwidth 250Mbit/s..1Gbit/s log 3"}});
  ASSERT_EQ(made.rows.size(), 4u);
  EXPECT_EQ(made.axis, "link * bandwidth");
  EXPECT_EQ(made.unit, "Mbit/s");
  EXPECT_TRUE(made.is_log);
  EXPECT_FALSE(made.rows[0].x.has_value());
  EXPECT_EQ(made.rows[2].x, 500);
  expect_same(made.rows[2], made.rows[0]);
  EXPECT_NEAR((made.rows[1].step - made.rows[0].step).value() * 1e3, 2 * kSendMs, kNear);
  EXPECT_NEAR((made.rows[3].step - made.rows[0].step).value() * 1e3, -kSendMs, kNear);
}

TEST_F(WhatIfTest, two_sweeps_are_combined_on_top_of_the_sets) {
  const WhatIfTable made =
      table({.sets = {"link * latency +10ms"},
             .sweeps = {"link * bandwidth *1,*2", "device * price 1 USD/h,2 USD/h"}});
  ASSERT_EQ(made.rows.size(), 6u);  // as it is, the set, 2 x 2
  EXPECT_EQ(made.rows[5].change, "link * bandwidth *2; device * price 2 USD/h");
  EXPECT_EQ(made.rows[5].x, 2);
  EXPECT_NEAR((made.rows[5].step - made.rows[0].step).value() * 1e3, 30 - kSendMs, kNear);
  EXPECT_EQ(made.rows[2].step, made.rows[1].step);
  EXPECT_TRUE(std::ranges::count(made.rows[5].notes, "on top of link * latency +10ms"));
}

TEST_F(WhatIfTest, points_that_the_job_cannot_have_say_why_and_the_others_go_on) {
  const WhatIfTable made = table({.sweeps = {"job batch.global 24,25,48,3000000"}});
  ASSERT_EQ(made.rows.size(), 5u);
  EXPECT_EQ(made.rows[1].problem, "");
  EXPECT_TRUE(
      made.rows[2].problem.contains("25 sequences do not come in the plan's micro-batches of 24"))
      << made.rows[2].problem;
  EXPECT_EQ(made.rows[3].problem, "");
  EXPECT_TRUE(made.rows[4].problem.contains("1048576")) << made.rows[4].problem;
}

TEST_F(WhatIfTest, a_larger_batch_is_shared_as_the_plan_shares_it) {
  const std::string two_pipelines =
      edited(edited(edited(kWhatIfPlan, "- [delft-1/0, riga-1/0]", "- [delft-1/0]\n  - [riga-1/0]"),
                    "layers: [4, 4]", "layers: [8]"),
             "micro_batch: 24\n  micro_batches: [1]", "micro_batch: 2\n  micro_batches: [8, 4]");
  use(kWhatIfCluster, kWhatIfJob, two_pipelines);
  const WhatIfRow doubled = row("job batch.global *2");
  EXPECT_EQ(doubled.problem, "");
  EXPECT_TRUE(doubled.notes.at(0).contains("24 micro-batches of 2 instead of 12"))
      << doubled.notes[0];
  // 12 : 6 of 18, and of 7 the two thirds round to 5 : 2.
  EXPECT_EQ(row("job batch.global 14").problem, "");
  EXPECT_TRUE(row("job batch.global 2").problem.contains("too few for 2 pipelines"));
  // Another micro-batch of the job is the plan's, too.
  EXPECT_TRUE(row("job batch.micro_batch 4").notes.at(0).contains("6 micro-batches of 4"));
}

TEST_F(WhatIfTest, a_greedy_plan_gets_orders_for_another_batch) {
  const std::string greedy =
      edited(edited(kWhatIfPlan, "micro_batch: 24\n  micro_batches: [1]",
                    "micro_batch: 12\n  micro_batches: [2]"),
             "schedule: {family: 1f1b}",
             "schedule: {family: greedy, orders: [F0 F1 B0 W0 B1 W1, F0 B0 W0 F1 B1 W1]}");
  use(kWhatIfCluster, kWhatIfJob, greedy);
  EXPECT_EQ(row("job batch.global 48").problem, "");
  EXPECT_EQ(row("job batch.global 12").problem, "");
}

TEST_F(WhatIfTest, a_plan_that_does_not_fit_says_why_and_what_helps) {
  const struct {
    std::string edits;
    std::string_view says;
  } cases[] = {
      {"job model.layers 12", "hold 8 layers, and the model has 12 (--replan"},
      {"job precision bf16", "device delft-1/0 is a lab, which has no bf16 speed (--replan"},
      {"device * memory 1100 MiB", "stage 1 needs"},
      {"device * memory 1100 MiB", "recompute: true`; --replan searches another plan)"},
      {"remove link delft<->riga", "needs the link delft -> riga, which was removed"},
      {"remove link riga->delft", "needs the link riga -> delft, which was removed"},
      {"remove site riga; remove site oslo", "gone (riga-1/0), and idle ones cannot take"},
      {"link * latency 100 d", "longer than 50 days"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.edits);
    EXPECT_TRUE(row(each.edits).problem.contains(each.says)) << row(each.edits).problem;
  }
}

TEST_F(WhatIfTest, an_idle_device_takes_the_place_of_one_that_is_removed) {
  const WhatIfRow moved = row("remove site riga");
  EXPECT_EQ(moved.problem, "");
  ASSERT_EQ(moved.notes.size(), 1u);
  EXPECT_EQ(moved.notes[0],
            "1 of the plan's devices is gone (riga-1/0): idle ones take their place");
  // Oslo is 30 ms from delft, riga 20 ms: three latencies more.
  EXPECT_NEAR((moved.step - as_it_is().step).value() * 1e3, 30, kNear);
  const WhatIfRow without_delft = row("remove site delft");
  EXPECT_EQ(without_delft.problem, "");
  EXPECT_TRUE(without_delft.notes.at(0).contains("the coordinator moves from delft to riga"));
}

TEST_F(WhatIfTest, a_new_site_stands_idle_until_a_plan_is_searched) {
  const std::string add =
      "add site bonn:4xlab; link bonn->* rtt 1ms; link bonn->* bandwidth 10 Gbit/s";
  expect_same(row(add), as_it_is());
  const WhatIfTable made = table({.sets = {add}, .replan = true, .effort = 0.05});
  ASSERT_EQ(made.rows.size(), 3u);
  EXPECT_EQ(made.rows[1].change, kPlannedAnew);
  EXPECT_TRUE(made.rows[2].replanned);
  EXPECT_LT(made.rows[2].step, made.rows[1].step);
}

TEST_F(WhatIfTest, the_links_of_a_new_site_are_those_that_are_said_or_those_of_another) {
  const auto links_of = [&](const std::string& edits, const std::string& like) {
    WhatIfBase base = base_;
    base.links_like = like;
    World world(base);
    const Result<void> done = world.apply(parse_edits(edits).value());
    EXPECT_TRUE(done) << done.error().text();
    return world.topology();
  };
  const Topology like = links_of("add site bonn:lab", "riga");
  const int bonn = like.find_site("bonn");
  ASSERT_EQ(bonn, 3);
  EXPECT_EQ(like.link(bonn, 0).latency, milliseconds(20));   // as riga -> delft
  EXPECT_EQ(like.link(bonn, 1).latency, microseconds(250));  // as inside riga
  EXPECT_EQ(like.link(bonn, 2).rate, gigabits_per_second(0.5));
  EXPECT_EQ(like.nodes.back().name, "bonn-1");
  EXPECT_EQ(like.devices.back().name, "bonn-1/0");
  // Said one way, it holds both ways.
  const Topology said =
      links_of("add site bonn:lab; link bonn->* latency 5ms; link bonn->* bandwidth 1 Gbit/s", "");
  EXPECT_EQ(said.link(0, bonn).latency, milliseconds(5));
  EXPECT_EQ(said.link(0, bonn).rate, gigabits_per_second(1));
  // Without a bandwidth it is the NIC's or the windows'.
  const Topology assumed =
      links_of("add site bonn:lab; link *->bonn rtt 8ms; tcp window 1 MB; tcp streams 1", "");
  EXPECT_EQ(assumed.link(bonn, 2).rate, bytes_per_second(1e6 / 8e-3));
}

TEST_F(WhatIfTest, a_rate_that_nothing_limits_is_refused) {
  use(edited(edited(kWhatIfCluster, "window: unlimited", "window: 1 MB"),
             "{between: [riga, oslo], latency: 10 ms, bandwidth: 500 Mbit/s}",
             "{between: [riga, oslo], latency: 10 ms}"),
      kWhatIfJob, kWhatIfPlan);
  const std::string no_nics = "node * nic unlimited; ";
  EXPECT_EQ(row(no_nics + "tcp streams 1").problem, "");
  for (const std::string edits : {"tcp window unlimited", "link * latency 0ms"}) {
    const Result<WhatIfTable> made = what_if(base_, plan_, {.sets = {no_nics + edits}});
    ASSERT_FALSE(made) << edits;
    EXPECT_EQ(made.error().message, "nothing limits the rate from riga to oslo");
  }
}

TEST_F(WhatIfTest, a_new_site_is_looked_up_in_the_clusters_trace) {
  folder_.write("links.csv",
                "from,to,latency_ms,basis,gbit_per_s\n"
                "a,b,10,one_way,1\na,c,20,one_way,1\nb,c,30,one_way,0.5\n"
                "a,b,50,one_way,1\n");
  use(R"(schema: longhaul/cluster/1
name: traced
device_files: {lab: lab.yaml}
network: {trace: links.csv, tcp: {window: unlimited}}
sites:
  - {name: delft, trace_name: a, nodes: [{devices: lab}]}
  - {name: riga, trace_name: b, nodes: [{devices: lab}]}
)",
      kWhatIfJob, kWhatIfPlan);
  World world(base_);
  ASSERT_TRUE(world.apply(parse_edits("add site c:2xlab").value()));
  EXPECT_EQ(world.topology().link(0, 2).latency, milliseconds(20));
  EXPECT_EQ(world.topology().link(2, 1).latency, milliseconds(30));  // mirrored
  EXPECT_EQ(world.topology().link(2, 1).rate, gigabits_per_second(0.5));
  EXPECT_TRUE(world.notes().at(0).contains("the trace's place c")) << world.notes()[0];
  // From delft to riga 10 and 50 ms were measured: 30 in the middle, 50 at the worst. Three
  // messages a step.
  EXPECT_NEAR(longer_ms("percentile 100"), 60, kNear);
  EXPECT_NEAR(longer_ms("percentile 0"), -60, kNear);
  // A percentile comes first, wherever it stands.
  EXPECT_NEAR(longer_ms("link * latency +1ms; percentile 100"), 63, kNear);
}

TEST_F(WhatIfTest, a_new_sites_distance_may_be_what_is_swept) {
  const WhatIfTable made =
      table({.added = {"site bonn:lab"}, .sweeps = {"link bonn->* rtt 10ms,20ms"}});
  ASSERT_EQ(made.rows.size(), 3u);  // without a distance the addition alone is no row
  EXPECT_EQ(made.rows[1].problem, "");
}

TEST_F(WhatIfTest, every_site_can_be_taken_away_in_turn) {
  const WhatIfTable made = table({.sweeps = {"remove site *"}});
  ASSERT_EQ(made.rows.size(), 4u);
  EXPECT_EQ(made.rows[3].change, "remove site oslo");
  expect_same(made.rows[3], made.rows[0]);
}

TEST_F(WhatIfTest, the_number_of_threads_changes_nothing) {
  WhatIfRequest request{.scenarios = {"a: link * latency *2", "b: device * speed /2"},
                        .sweeps = {"link * bandwidth *0.25..*4 log 9"}};
  const std::string one = what_if_json(table(request));
  request.threads = 4;
  EXPECT_EQ(what_if_json(table(request)), one);
  EXPECT_EQ(what_if_json(table(request)), one);
}

TEST_F(WhatIfTest, an_interrupt_leaves_the_rows_that_are_done) {
  std::atomic<int> asked = 0;
  const WhatIfHooks hooks{.interrupted = [&] { return ++asked > 3; }};
  const Result<WhatIfTable> made =
      what_if(base_, plan_, {.sweeps = {"percentile_is_no_matter"}}, hooks);
  EXPECT_FALSE(made);
  const Result<WhatIfTable> cut =
      what_if(base_, plan_, {.sweeps = {"link * latency +1ms..+9ms lin 9"}}, hooks);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->rows.size(), 3u);
}

TEST_F(WhatIfTest, edits_that_mean_nothing_here_are_refused_at_their_word) {
  const struct {
    std::string_view edits;
    std::string_view says;
    std::string_view hint;
  } cases[] = {
      {"link delt->riga bandwidth *2", "--set, column 6: no site is named `delt`",
       "did you mean `delft`?"},
      {"link delft->paris bandwidth *2", "--set, column 13: no site is named `paris`",
       "sites: delft, riga, oslo"},
      {"link delft->delft bandwidth *2", "column 6: a link leads from one site", "inside delft"},
      {"inside bonn latency 1ms", "column 8: no site is named `bonn`", "sites: "},
      {"site bonn uplink 1 Gbit/s", "column 6: no site is named `bonn`", "sites: "},
      {"site delft uplink *2", "column 19: the uplink of delft is unlimited", "the value itself"},
      {"tcp window +10%", "column 12: the window is unlimited", "the value itself"},
      {"tcp streams *2", "column 13: the number of streams is auto", "from 1 to 64"},
      {"tcp streams 65", "column 13: the number of streams must be a whole number from 1 to 64",
       ""},
      {"tcp streams 1.5", "column 13: the number of streams must be a whole number", ""},
      {"tcp wire_factor 0.9", "column 17: the wire factor must lie between 1 and 2", ""},
      {"link * latency -50ms", "column 16: the latency from delft to riga must not be negative",
       ""},
      {"link * loss 1", "column 13: the loss from delft to riga must lie between 0 and 0.999", ""},
      {"link * bandwidth 0 bit/s",
       "column 18: the bandwidth from delft to riga must be more than 0", ""},
      {"link * bandwidth -1Gbit/s",
       "column 18: the bandwidth from delft to riga must be more than 0", ""},
      {"node delft nic 1 Gbit/s", "column 6: no node is named `delft`", "did you mean `delft-1`"},
      {"device v100 speed *2", "column 8: no device and no kind is named `v100`", "kinds: lab"},
      {"device lab kind v10", "column 17: unknown device kind `v10`", "shipped kinds"},
      {"device lab kind 8xv100", "column 17: `8xv100` is more than the name of a kind",
       "kind v100"},
      {"device lab failures 2", "column 21: the failures of lab must lie between 0 and 1", ""},
      {"device lab price -2USD/h", "column 18: the price of lab must not be negative", ""},
      {"job batch.globl 48", "column 5: unknown key `globl`", "did you mean `global`?"},
      {"job batch 48", "column 5: `batch` is a map", ""},
      {"job batch.global.x 48", "column 5: `batch.global` is no map", ""},
      {"job batch.global zero", "column 18: `batch.global` must be a whole number", ""},
      {"job precision *2", "column 15: the job's `precision` is `fp16`, no number", "value itself"},
      {"job compression.floor *2", "column 23: the job has no `compression.floor`", "value itself"},
      {"job batch.micro_batch 7",
       "column 23: the global batch of 24 sequences is not a multiple of 7", "divisor"},
      {"job training.steps 5", "column 20: missing key `data`", ""},
      {"percentile 95", "column 1: cluster `three` names no trace", "edit links instead"},
      {"percentile 101", "column 12: `101` is no percentile", "from 0 to 100"},
      {"percentile *2", "column 12: `*2` is no percentile", "from 0 to 100"},
      {"remove site bonn", "column 13: no site is named `bonn`", "sites: "},
      {"remove node delft", "column 13: no node is named `delft`", "did you mean `delft-1`"},
      {"remove device delft-1/1", "column 15: no device and no kind", "did you mean `delft-1/0`"},
      {"remove device lab", "column 15: without device lab no device is left", ""},
      {"remove link delft->bonn", "column 20: no site is named `bonn`", "sites: "},
      {"remove link delft->riga; link delft->riga latency 1ms",
       "column 6: the link delft -> riga was removed", ""},
      {"add site delft:lab", "column 10: there is a site `delft` already", "add node delft:lab"},
      {"add site bonn:8xv10", "column 10: unknown device kind `v10`", "shipped kinds"},
      {"add site bonn:0xlab", "column 10: `0xlab` is not a number of devices", ""},
      {"add site bo/nn:lab", "column 10: a site's name may not contain `/`", ""},
      {"add site bonn:lab", "nothing says how far bonn is from delft, riga, oslo",
       "link bonn->* rtt 120ms"},
      {"add site bonn:lab; link bonn->delft rtt 1ms", "how far bonn is from riga, oslo",
       "--links-like"},
      {"add site bonn:lab; link bonn->* latency *2",
       "column 22: the latency from bonn to delft is not known yet", "itself first"},
      {"add site bonn:lab; link bonn->* bandwidth *2", "is not known yet", "itself first"},
      {"add node bonn:lab", "column 10: no site is named `bonn`", "sites: "},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.edits);
    const Result<WhatIfTable> made = what_if(base_, plan_, {.sets = {std::string(each.edits)}});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(made.error().message.contains(each.says)) << made.error().text();
    EXPECT_TRUE(made.error().hint.contains(each.hint)) << made.error().hint;
  }
}

TEST_F(WhatIfTest, wrong_requests_name_the_option) {
  const struct {
    WhatIfRequest request;
    std::string_view says;
  } cases[] = {
      {{.removed = {"london"}}, "--remove, column 8: `london` cannot be removed"},
      {{.added = {"site bonn"}}, "--add, column 10: `bonn` does not say"},
      {{.scenarios = {"a: link * latency"}}, "--scenario, column 15: the value is missing"},
      {{.sweeps = {"link * latency 1ms..2ms"}}, "--sweep, column 16: a range needs its number"},
      {{.sweeps = {"link bonn->* latency 1ms,2ms"}}, "--sweep, column 6: no site is named `bonn`"},
      {{.sweeps = {"percentile 5..95 lin 3"}}, "--sweep, column 1: cluster `three` names no trace"},
      {{.sweeps = {"percentile 1,2", "percentile 1,2", "percentile 1,2"}}, "3 sweeps span more"},
      {{.sweeps = {"link * latency +1ms..+2ms lin 101", "link * latency +1ms..+2ms lin 100"}},
       "101 x 100 points are more than 10000"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.says);
    const Result<WhatIfTable> made = what_if(base_, plan_, each.request);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(made.error().message.contains(each.says)) << made.error().text();
  }
  WhatIfBase base = base_;
  base.links_like = "rigo";
  const Result<WhatIfTable> made = what_if(base, plan_, {.added = {"site bonn:lab"}});
  ASSERT_FALSE(made);
  EXPECT_TRUE(made.error().text().contains("did you mean `riga`?")) << made.error().text();
}

}  // namespace
}  // namespace longhaul
