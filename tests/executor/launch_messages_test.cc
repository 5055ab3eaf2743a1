#include "executor/launch/launch_messages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "executor/launch/supervised.h"
#include "executor/runtime/sim_event_loop.h"
#include "executor/transport/asio_transport.h"

namespace longhaul {
namespace {

const WorkerStart kStart = {3, 0xfedcba9876543210, "b", "10.0.0.2", "runs/x", "a\n\"spec\"", "", "",
                            ""};

TEST(LaunchMessages, come_back_as_they_were) {
  const LaunchMessage messages[] = {
      Join{"token", "a", "PEM\n", "host"},
      Welcome{~std::uint64_t{0}, "a", {1, 2}, "spec \u00e9", "c", "a"},
      Listening{7, "[::1]:7000"},
      PeerAddresses{{"a:1", "b:2"}, {"x", "y"}},
      PeerAddresses{},
      WorkerExited{1, 255, 127, "last"},
      AgentFailed{"why"},
      Terminate{"why"},
      kStart,
  };
  for (const LaunchMessage& message : messages) {
    const std::string text = launch_text(message);
    EXPECT_EQ(text.find('\n'), std::string::npos) << "it is one line";
    const auto again = parse_launch(text);
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(launch_text(*again), text);
  }
  const auto start = parse_launch(launch_text(kStart));
  EXPECT_EQ(std::get<WorkerStart>(*start).spec, kStart.spec);
  EXPECT_EQ(std::get<WorkerStart>(*start).job, kStart.job);
}

TEST(LaunchMessages, wrong_ones_are_refused_by_kind_and_field) {
  const std::string head = R"({"schema": "longhaul/join/1", "kind": )";
  const std::string table[][2] = {
      {"", "not a JSON document"},
      {"[]", "not a JSON document"},
      {"{", "not a JSON document"},
      {"{} x", "not a JSON document"},
      {"{}", "schema ``, and this program speaks longhaul/join/1"},
      {R"({"schema": "longhaul/join/2", "kind": "join"})", "schema `longhaul/join/2`"},
      {R"({"schema": 1, "kind": "join"})", "schema ``"},
      {head + R"("jump"})", "unknown kind `jump`"},
      {head + R"("failed"})", "`reason` of `failed` is missing"},
      {head + R"("failed", "reason": 1})", "`reason` of `failed` is not text"},
      {head + R"("failed", "reason": "", "reason": ""})", "two `reason`"},
      {head + R"("failed", "reason": "", "extra": ""})", "`failed` has an unknown field `extra`"},
      {head + R"("listening", "rank": -1, "address": "a:1"})",
       "`rank` of `listening` is not a whole"},
      {head + R"("listening", "rank": 1.5, "address": "a:1"})", "is not a whole number in range"},
      {head + R"("listening", "rank": 16777217, "address": "a:1"})",
       "is not a whole number in range"},
      {head + R"("listening", "rank": 1, "address": "a"})", "`address` of `listening` is not an"},
      {head + R"("listening", "rank": 1, "address": ":1"})", "is not an address"},
      {head + R"("listening", "rank": 1, "address": "a:"})", "is not an address"},
      {head + R"("listening", "rank": 1, "address": "a:1 "})", "is not an address"},
      {head + R"("listening", "rank": 1, "address": "a:b"})", "is not an address"},
      {head + R"("addresses", "addresses": "a", "identities": []})", "`addresses` is not a list"},
      {head + R"("addresses", "addresses": [1], "identities": []})", "holds what is not text"},
      {head + R"("exited", "rank": 1, "status": 256, "signal": 0, "last_line": ""})", "`status`"},
      {head + R"("exited", "rank": 1, "status": 0, "signal": 128, "last_line": ""})", "`signal`"},
      {head + R"("welcome", "job": "12", "node": "", "ranks": [], "spec": "", "certificate": "",)"
              R"("authority": ""})",
       "`job` of `welcome` is not 16 hexadecimal digits"},
      {head + R"("welcome", "job": "00000000000000FF", "node": "", "ranks": [], "spec": "",)"
              R"("certificate": "", "authority": ""})",
       "`job` of `welcome` is not 16 hexadecimal digits"},
      {head + R"("welcome", "job": "00000000000000ff", "node": "", "ranks": ["1"], "spec": "",)"
              R"("certificate": "", "authority": ""})",
       "`ranks` of `welcome` is not a whole number in range"},
  };
  for (const auto& [text, error] : table) {
    const auto message = parse_launch(text);
    ASSERT_FALSE(message) << text;
    EXPECT_NE(message.error().message.find(error), std::string::npos) << message.error().message;
  }
}

TEST(LaunchMessages, a_log_line_that_is_not_utf8_can_be_sent) {
  EXPECT_TRUE(parse_launch(launch_text(WorkerExited{1, 1, 0, "caf\xe9"})));
}

TEST(LaunchMessages, listening_lines_are_told_from_others) {
  EXPECT_EQ(address_in_line(listening_line("10.0.0.1:7000")), "10.0.0.1:7000");
  EXPECT_EQ(address_in_line("listening [::1]:1"), "[::1]:1");
  for (const std::string line : {"", "listening ", "listening", "listening 7000", "listening a:1\r",
                                 "listening a b:1", "Listening a:1", " listening a:1"}) {
    EXPECT_EQ(address_in_line(line), "") << line;
  }
}

// ---- A worker's stdin.

struct Worker {
  Supervised supervised{{
      [this](const WorkerStart& start) { told += "start " + start.node + ". "; },
      [this](const PeerAddresses& peers) { told += "connect " + peers.addresses.back() + ". "; },
      [this](const Error& why) { told += "abandoned: " + why.message + ". "; },
  }};
  std::string told;
};

PeerAddresses addresses(std::size_t count) {
  return {std::vector<std::string>(count, "a:1"), {}};
}

TEST(SupervisedWorker, starts_connects_and_is_abandoned_at_the_end_of_stdin) {
  Worker worker;
  worker.supervised.line(launch_text(kStart));
  EXPECT_EQ(worker.told, "start b. ");
  worker.supervised.line(launch_text(addresses(4)));
  EXPECT_EQ(worker.told, "start b. connect a:1. ");
  worker.supervised.end_of_lines();
  worker.supervised.end_of_lines();
  worker.supervised.line("more");
  EXPECT_EQ(worker.told,
            "start b. connect a:1. abandoned: stdin has ended: "
            "nobody looks after this worker any "
            "more. ");
}

TEST(SupervisedWorker, lines_out_of_order_are_refused) {
  WorkerStart zero = kStart, half = kStart, other_half = kStart;
  zero.rank = 0;
  half.certificate = half.authority = "PEM";
  other_half.key = "PEM";
  PeerAddresses identities = addresses(4);
  identities.identities = {"a"};
  const std::string start = launch_text(kStart), peers = launch_text(addresses(4));
  const std::pair<std::vector<std::string>, std::string> table[] = {
      {{"hello"}, "abandoned: stdin: a message that is not a JSON document. "},
      {{peers}, "abandoned: stdin: the first line does not start a worker. "},
      {{launch_text(zero)}, "abandoned: stdin: rank 0 is the coordinator's. "},
      {{launch_text(half)}, "together or not at all. "},
      {{launch_text(other_half)}, "together or not at all. "},
      {{start, start}, "is not the list of addresses, once. "},
      {{start, peers, peers}, "is not the list of addresses, once. "},
      {{start, launch_text(addresses(3))}, "abandoned: stdin: 3 addresses, and this is rank 3. "},
      {{start, launch_text(identities)}, "abandoned: stdin: 1 identities of 4 ranks. "},
  };
  for (const auto& [lines, error] : table) {
    Worker worker;
    for (const std::string& line : lines) worker.supervised.line(line);
    worker.supervised.end_of_lines();
    EXPECT_TRUE(worker.told.ends_with(error)) << worker.told;
  }
}

/// Reads a pipe until its end.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(std::exchange(ends[1], -1));
  }
  void write(const std::string& text) const {
    EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int ends[2];
};

TEST(LineReader, posts_whole_lines_and_then_the_end) {
  AsioRuntime runtime;
  Pipe pipe;
  std::vector<std::string> lines;
  const TimerId late = runtime.loop().after(Seconds(20), [&] {
    ADD_FAILURE() << "nothing more comes";
    runtime.stop();
  });
  LineReader reader(
      runtime.loop(), pipe.ends[0],
      [&](const std::string& line) {
        lines.push_back(line);
        if (lines.size() == 3) {
          pipe.write("split\nnever ended");
          pipe.close_writer();
        }
      },
      [&] { runtime.stop(); });
  pipe.write("one\n\nthree\nbegun and ");
  runtime.run();
  runtime.loop().cancel(late);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "three", "begun and split"}));
}

TEST(LineReader, ends_at_a_line_that_is_too_long) {
  AsioRuntime runtime;
  Pipe pipe;
  runtime.loop().after(Seconds(20), [&] { runtime.stop(); });
  bool has_ended = false;
  LineReader reader(
      runtime.loop(), pipe.ends[0], [](const std::string&) { FAIL(); },
      [&] {
        has_ended = true;
        runtime.stop();
      });
  std::thread writer([&] {
    const std::string piece(1 << 12,
                            'x');  // a whole number of them is the limit
    for (std::size_t i = 0; i < kWorkerLineMax / piece.size(); ++i) pipe.write(piece);
    pipe.write("x");
  });
  runtime.run();
  writer.join();
  EXPECT_TRUE(has_ended);
}

TEST(LineReader, can_be_destroyed_while_it_waits) {
  AsioRuntime runtime;
  Pipe pipe;
  {
    LineReader reader(runtime.loop(), pipe.ends[0], [](const std::string&) {}, [] { FAIL(); });
  }
  runtime.run();
}

}  // namespace
}  // namespace longhaul
