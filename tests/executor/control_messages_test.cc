#include "executor/control/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "executor/control/limits.h"
#include "executor/transport/frame.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string error_of(std::string_view text) {
  const auto message = parse_control(text);
  if (message) return "";
  EXPECT_EQ(message.error().code, ErrorCode::kFailed);
  return message.error().message;
}

TEST(ControlMessages, texts_are_those_of_the_format) {
  // 3 = 1.5 x 2^1 = 0x1.8p+1; 1/16 = 2^-4.
  const Prepared prepared = {.step = 7,
                             .finite = true,
                             .loss = 3,
                             .gradient_hash = 0xab,
                             .weights_hash = 0x0123456789abcdef,
                             .squares = {1, 0.0625}};
  const std::pair<ControlMessage, std::string> cases[] = {
      {prepared,
       "LHC1 prepared step=7 finite=true loss=0x1.8p+1 gradient=00000000000000ab "
       "weights=0123456789abcdef squares=0x1p+0,0x1p-4"},
      {Prepared{},
       "LHC1 prepared step=0 finite=true loss=0x0p+0 gradient=0000000000000000 "
       "weights=0000000000000000 squares="},
      {Commit{7, 3, Decision::kApply}, "LHC1 commit step=7 norm=0x1.8p+1 decision=apply"},
      {Commit{8, kInfinity, Decision::kSkip}, "LHC1 commit step=8 norm=inf decision=skip"},
      {Stop{false, "rank 3 is lost"}, "LHC1 stop clean=false reason=rank 3 is lost"},
      {Stopped{8}, "LHC1 stopped committed=8"},
      {Failed{3, "a=b c"}, "LHC1 failed about=3 reason=a=b c"},
      {Ping{41}, "LHC1 ping number=41"},
      {Pong{18446744073709551615u}, "LHC1 pong number=18446744073709551615"},
  };
  for (const auto& [message, text] : cases) {
    EXPECT_EQ(control_text(message), text);
    const auto again = parse_control(text);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(control_text(*again), text);
  }
}

TEST(ControlMessages, numbers_come_back_to_the_bit) {
  const double numbers[] = {0.0,
                            -0.0,
                            0.1,
                            1.0 / 3,
                            std::numeric_limits<double>::max(),
                            std::numeric_limits<double>::min(),
                            std::numeric_limits<double>::denorm_min(),
                            -1e-310,
                            kInfinity,
                            -kInfinity,
                            std::nan("")};
  for (const double number : numbers) {
    double again = 1;
    ASSERT_TRUE(parse_exact(exact_text(number), again)) << exact_text(number);
    EXPECT_TRUE(same_number(number, again)) << exact_text(number);
  }
  EXPECT_FALSE(same_number(0.0, -0.0));
  for (const char* text :
       {"", "1", "0x", "x1p+0", "0x1p", "0x1p+0 ", "0x1P+0", "0X1p+0", "--0x1p+0", "0x-1p+0",
        "0x2p+0", "0x1.80p+1", "0x1p+9999", "INF", "0xinf", "nan(1)", "0x1.00000000000001p+0"}) {
    double value = 0;
    EXPECT_FALSE(parse_exact(text, value)) << text;
  }
}

TEST(ControlMessages, errors_name_the_field) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no control message of version LHC1"},
      {"LHC2 ping number=1", "no control message of version LHC1"},
      {"LHC1", "no control message of version LHC1"},
      {"LHC1 hello", "`hello` is no kind of control message"},
      {"LHC1 ping", "control message `ping`: `number` is missing"},
      {"LHC1 ping number", "control message `ping`: `number` is no field"},
      {"LHC1 ping number=1 ", "`number` is followed by a space and nothing"},
      {"LHC1 ping number=1 number=1", "control message `ping`: `number` is there twice"},
      {"LHC1 ping number=1 colour=red", "control message `ping`: `colour` is unknown"},
      {"LHC1 ping  number=1", "control message `ping`: `number` is missing"},
      {"LHC1 ping number=01", "number is `01`, which is not a whole number in range"},
      {"LHC1 ping number=-1", "number is `-1`, which is not a whole number in range"},
      {"LHC1 ping number=18446744073709551616", "which is not a whole number in range"},
      {"LHC1 commit step=268435456 norm=0x1p+0 decision=apply", "step is `268435456`"},
      {"LHC1 commit step=1 norm=1.5 decision=apply", "norm is `1.5`, which is not an exact number"},
      {"LHC1 commit step=1 norm=0x1p+0 decision=maybe", "decision is `maybe`"},
      {"LHC1 commit step=1 norm=0x1p+0", "`decision` is missing"},
      {"LHC1 failed about=2147483648 reason=x", "about is `2147483648`"},
      {"LHC1 stop clean=yes reason=x", "clean is `yes`, which is not `true` or `false`"},
      {"LHC1 stop clean=true reason=a\nb", "reason is `a?b`"},
      {"LHC1 prepared step=1 finite=true loss=0x1p+0 gradient=ab weights=0123456789abcdef squares=",
       "gradient is `ab`, which is not a hash of 16 hexadecimal digits"},
      {"LHC1 prepared step=1 finite=true loss=0x1p+0 gradient=0123456789abcdef "
       "weights=0123456789abcdeF squares=",
       "weights is `0123456789abcdeF`"},
      {"LHC1 prepared step=1 finite=true loss=0x1p+0 gradient=0123456789abcdef "
       "weights=0123456789abcdef squares=0x1p+0,-0x1p+0",
       "squares is `-0x1p+0`, which is not an exact number that is not negative"},
      {"LHC1 prepared step=1 finite=true loss=0x1p+0 gradient=0123456789abcdef "
       "weights=0123456789abcdef squares=0x1p+0,",
       "squares is ``"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_NE(error_of(text).find(message), std::string::npos) << text << "\n" << error_of(text);
  }
}

TEST(ControlMessages, largest_values_fit_and_the_next_is_refused) {
  EXPECT_EQ(error_of("LHC1 commit step=268435455 norm=0x1p+0 decision=apply"), "");
  EXPECT_EQ(error_of("LHC1 stopped committed=268435456"), "");
  EXPECT_NE(error_of("LHC1 stopped committed=268435457"), "");
  EXPECT_EQ(error_of("LHC1 failed about=2147483647 reason="), "");

  Prepared prepared;
  prepared.squares.assign(kStageTensorsMax, 0x1.fffffffffffffp-1022);
  EXPECT_LE(control_text(prepared).size(), kMaxControlPayload);
  EXPECT_EQ(error_of(control_text(prepared)), "");
  prepared.squares.assign(kStageTensorsMax + 1, 0);
  EXPECT_NE(error_of(control_text(prepared)).find("squares"), std::string::npos);

  const std::string longest(kReasonBytesMax, 'a');
  EXPECT_EQ(control_text(Stop{true, longest + "b"}), control_text(Stop{true, longest}));
  EXPECT_EQ(error_of(control_text(Stop{true, longest})), "");
  EXPECT_NE(error_of(control_text(Stop{true, longest}) + "b"), "");
}

// ---- beside the commit protocol

CheckpointFile file_of(const std::string& name, std::uint64_t bytes, ContentHash hash) {
  CheckpointFile file;
  file.name = name;
  file.bytes = bytes;
  file.hash = hash;
  return file;
}

TEST(ControlMessages, texts_beside_the_protocol_are_those_of_the_format) {
  Measured measured;
  measured.step = 7;
  measured.origin_ns = 18446744073709551615u;
  measured.start = 4;
  measured.compute = 1.5;
  measured.reduce = 0.25;
  measured.commit = -0.5;  // clocks of two processes may disagree
  measured.update = kInfinity;
  measured.sent = {{0, 64, 64}, {2147483647, 1, 18446744073709551615u}};
  const std::pair<ControlMessage, std::string> cases[] = {
      {Validated{50, 768, 4096}, "LHC1 validated step=50 loss=0x1.8p+9 targets=4096"},
      {Validated{}, "LHC1 validated step=0 loss=0x0p+0 targets=0"},
      {Saved{100, {file_of("head.safetensors", 4096, {1, 0xab}), file_of("a-b_0.x", 0, {0, 0})}},
       "LHC1 saved step=100 files=head.safetensors:4096:000000000000000100000000000000ab,"
       "a-b_0.x:0:00000000000000000000000000000000"},
      {Saved{}, "LHC1 saved step=0 files="},
      {Kept{100, 50}, "LHC1 kept step=100 oldest=50"},
      {measured,
       "LHC1 measured step=7 origin=18446744073709551615 start=0x1p+2 compute=0x1.8p+0 "
       "wait=0x0p+0 reduce=0x1p-2 commit=-0x1p-1 update=inf "
       "sent=0:64:64,2147483647:1:18446744073709551615"},
      {Measured{},
       "LHC1 measured step=0 origin=0 start=0x0p+0 compute=0x0p+0 wait=0x0p+0 reduce=0x0p+0 "
       "commit=0x0p+0 update=0x0p+0 sent="},
      {Times{7, 9, {{4, 4.5}, {4.5, 5}}},
       "LHC1 times step=7 origin=9 spans=0x1p+2:0x1.2p+2,0x1.2p+2:0x1.4p+2"},
      {Times{}, "LHC1 times step=0 origin=0 spans="},
      {Recoded{7, 2, true, Codec::kInt8, Codec::kAqInt4, 1.5, 1},
       "LHC1 recoded step=7 peer=2 tensors=gradients from=int8 to=aq-int4 busy=0x1.8p+0 "
       "compute=0x1p+0"},
      {HistoryVisits{7, 1, 30, 2, 4}, "LHC1 histories step=7 first=1 deltas=30 whole=2 healed=4"},
      {Recoded{},
       "LHC1 recoded step=0 peer=0 tensors=activations from=none to=none busy=0x0p+0 "
       "compute=0x0p+0"},
  };
  for (const auto& [message, text] : cases) {
    EXPECT_EQ(control_text(message), text);
    const auto again = parse_control(text);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(control_text(*again), text);
  }
}

TEST(ControlMessages, errors_beside_the_protocol_name_the_field) {
  const std::string hash = "0123456789abcdef0123456789abcdef";
  const auto saved = [&](const std::string& files) { return "LHC1 saved step=1 files=" + files; };
  const auto measured = [](const std::string& sent) {
    return "LHC1 measured step=1 origin=1 start=0x1p+0 compute=0x1p+0 wait=0x1p+0 reduce=0x1p+0 "
           "commit=0x1p+0 update=0x1p+0 sent=" +
           sent;
  };
  const auto times = [](const std::string& spans) {
    return "LHC1 times step=1 origin=1 spans=" + spans;
  };
  const auto recoded = [](const std::string& codecs) {
    return "LHC1 recoded step=1 peer=2 " + codecs + " busy=0x1p+0 compute=0x1p+0";
  };
  const std::string no_file = "which is not NAME:BYTES:HASH";
  const std::string no_sent = "which is not PEER:BYTES:RAW";
  const std::string no_span = "which is not START:END";
  const std::pair<std::string, std::string> cases[] = {
      {"LHC1 validated step=1 loss=0x1p+0", "`targets` is missing"},
      {"LHC1 validated step=1 loss=1 targets=1", "loss is `1`, which is not an exact number"},
      {"LHC1 validated step=268435457 loss=0x1p+0 targets=1", "step is `268435457`"},
      {"LHC1 validated step=1 loss=0x1p+0 targets=-1", "targets is `-1`"},
      {"LHC1 validated step=1 loss=0x1p+0 targets=1 oldest=1", "`oldest` is unknown"},
      {"LHC1 kept step=1", "`oldest` is missing"},
      {"LHC1 kept step=1 oldest=268435457", "oldest is `268435457`"},
      {"LHC1 kept step=1 oldest=1 oldest=1", "`oldest` is there twice"},
      {"LHC1 saved files=", "`step` is missing"},
      {"LHC1 saved step=1", "`files` is missing"},
      {saved("head:1"), no_file},
      {saved("head:1:" + hash + ":1"), no_file},
      {saved(":1:" + hash), no_file},
      {saved("../head:1:" + hash), no_file},
      {saved("/head:1:" + hash), no_file},
      {saved(".head:1:" + hash), no_file},
      {saved("Head:1:" + hash), no_file},  // a file system may not tell it from `head`
      {saved(std::string(256, 'a') + ":1:" + hash), no_file},
      {saved("head:-1:" + hash), no_file},
      {saved("head:18446744073709551616:" + hash), no_file},
      {saved("head:1:" + hash.substr(1)), no_file},
      {saved("head:1:" + hash + "0"), no_file},
      {saved("head:1:0123456789ABCDEF0123456789abcdef"), no_file},
      {saved("head:1:" + hash + ","), "files is ``"},
      {saved("head:1:" + hash + ",,head:1:" + hash), "files is ``"},
      {measured("0:1"), no_sent},
      {measured("0:1:2:3"), no_sent},
      {measured("-1:1:1"), no_sent},
      {measured("2147483648:1:1"), no_sent},
      {measured("0:x:1"), no_sent},
      {measured("0:1:18446744073709551616"), no_sent},
      {measured("0:1:1,"), "sent is ``"},
      {"LHC1 measured step=268435456 origin=1 start=0x1p+0 compute=0x1p+0 wait=0x1p+0 "
       "reduce=0x1p+0 commit=0x1p+0 update=0x1p+0 sent=",
       "step is `268435456`"},
      {"LHC1 measured step=1 origin=1 start=0x1p+0 compute=0x1p+0 wait=0x1p+0 reduce=0x1p+0 "
       "commit=0x1p+0 sent=",
       "`update` is missing"},
      {"LHC1 measured step=1 origin=0x1 start=0x1p+0 compute=0x1p+0 wait=0x1p+0 reduce=0x1p+0 "
       "commit=0x1p+0 update=0x1p+0 sent=",
       "origin is `0x1`"},
      {times("0x1p+0"), no_span},
      {times("0x1p+0:0x1p+0:0x1p+0"), no_span},
      {times("1:2"), no_span},
      {times(":0x1p+0"), no_span},
      {times("0x1p+0:"), no_span},
      {times("0x1p+0:0x1p+0,"), "spans is ``"},
      {"LHC1 times step=1 spans=", "`origin` is missing"},
      {recoded("tensors=weights from=int8 to=int4"), "is not `gradients` or `activations`"},
      {recoded("tensors=gradients from=int9 to=int4"), "from is `int9`, which is not a codec"},
      {recoded("tensors=gradients from=int8 to="), "to is ``, which is not a codec"},
      {recoded("tensors=gradients from=int8"), "`to` is missing"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_NE(error_of(text).find(message), std::string::npos) << text << "\n" << error_of(text);
  }
}

TEST(ControlMessages, the_longest_lists_are_read_and_the_next_item_is_refused) {
  const auto parts = [](std::size_t count) {
    Saved saved;
    saved.files.assign(count, file_of("a", 1, {1, 2}));
    Times times;
    times.spans.assign(count, {1, 2});
    Measured measured;
    measured.sent.assign(count, {1, 2, 3});
    return std::vector<ControlMessage>{saved, times, measured};
  };
  // Lists of 32768 items of 37, 14 and 6 bytes; the first is longer than a message may be.
  const auto fit = parts(kStageTensorsMax);
  EXPECT_EQ(error_of(control_text(fit[0])), "a control message is too long");
  EXPECT_EQ(error_of(control_text(fit[1])), "");
  EXPECT_EQ(error_of(control_text(fit[2])), "");
  const auto more = parts(kStageTensorsMax + 1);
  EXPECT_NE(error_of(control_text(more[1])).find("within the longest list"), std::string::npos);
  EXPECT_NE(error_of(control_text(more[2])).find("within the longest list"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
