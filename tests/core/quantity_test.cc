#include "core/quantity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/rng.h"

namespace longhaul {
namespace {

TEST(Quantity, every_unit_is_read) {
  // The right-hand sides are the definitions of the units: 1 bit is 1/8 byte, 1 KiB is 1024 bytes.
  EXPECT_EQ(parse_duration("3 ps")->value(), 3 / 1e12);
  EXPECT_EQ(parse_duration("3 ns")->value(), 3 / 1e9);
  EXPECT_EQ(*parse_duration("3 us"), microseconds(3));
  EXPECT_EQ(*parse_duration("48 ms"), milliseconds(48));
  EXPECT_EQ(*parse_duration("1.5 s"), seconds(1.5));
  EXPECT_EQ(*parse_duration("2 min"), seconds(120));
  EXPECT_EQ(*parse_duration("1.5 h"), seconds(5400));
  EXPECT_EQ(*parse_duration("1 d"), seconds(86400));

  EXPECT_EQ(*parse_size("7 B"), bytes(7));
  EXPECT_EQ(*parse_size("7 kB"), bytes(7e3));
  EXPECT_EQ(*parse_size("7 MB"), bytes(7e6));
  EXPECT_EQ(*parse_size("7 GB"), bytes(7e9));
  EXPECT_EQ(*parse_size("7 TB"), bytes(7e12));
  EXPECT_EQ(*parse_size("2 KiB"), bytes(2048));
  EXPECT_EQ(*parse_size("2 MiB"), bytes(2097152));
  EXPECT_EQ(*parse_size("16 GiB"), gibibytes(16));
  EXPECT_EQ(*parse_size("1 TiB"), gibibytes(1024));

  EXPECT_EQ(*parse_rate("8 bit/s"), bytes_per_second(1));
  EXPECT_EQ(*parse_rate("8 kbit/s"), bytes_per_second(1e3));
  EXPECT_EQ(*parse_rate("8 Mbit/s"), bytes_per_second(1e6));
  EXPECT_EQ(*parse_rate("0.6 Gbit/s"), gigabits_per_second(0.6));
  EXPECT_EQ(*parse_rate("8 Tbit/s"), bytes_per_second(1e12));
  EXPECT_EQ(*parse_rate("5 B/s"), bytes_per_second(5));
  EXPECT_EQ(*parse_rate("5 kB/s"), bytes_per_second(5e3));
  EXPECT_EQ(*parse_rate("5 MB/s"), bytes_per_second(5e6));
  EXPECT_EQ(*parse_rate("5 GB/s"), bytes_per_second(5e9));
  EXPECT_EQ(*parse_rate("5 TB/s"), bytes_per_second(5e12));
  EXPECT_EQ(*parse_rate("1 KiB/s"), bytes_per_second(1024));
  EXPECT_EQ(*parse_rate("1 MiB/s"), bytes_per_second(1048576));
  EXPECT_EQ(*parse_rate("1 GiB/s"), bytes_per_second(1073741824));
  EXPECT_EQ(*parse_rate("1 TiB/s"), bytes_per_second(1099511627776));

  EXPECT_EQ(*parse_flop_rate("9 FLOP/s"), flops_per_second(9));
  EXPECT_EQ(*parse_flop_rate("9 kFLOP/s"), flops_per_second(9e3));
  EXPECT_EQ(*parse_flop_rate("9 MFLOP/s"), flops_per_second(9e6));
  EXPECT_EQ(*parse_flop_rate("9 GFLOP/s"), flops_per_second(9e9));
  EXPECT_EQ(*parse_flop_rate("125 TFLOP/s"), flops_per_second(125e12));
  EXPECT_EQ(*parse_flop_rate("1 PFLOP/s"), flops_per_second(1e15));

  EXPECT_EQ(*parse_usd_per_hour("3.06 USD/h"), 3.06);
  EXPECT_EQ(*parse_usd_per_byte("0.02 USD/GB"), 0.02 / 1e9);
  EXPECT_EQ(*parse_usd_per_byte("20 USD/TB"), 20 / 1e12);
  EXPECT_EQ(*parse_usd_per_byte("1 USD/GiB"), 1 / 1073741824.0);
}

TEST(Quantity, the_space_and_the_way_a_number_is_written_are_free) {
  for (const char* text : {"48ms", "48 ms", "48   ms", "+48 ms", "48.0 ms", "4.8e1 ms", "48. ms"}) {
    EXPECT_EQ(parse_duration(text).value_or(Seconds(-1)), milliseconds(48)) << text;
  }
  EXPECT_EQ(*parse_duration(".5 s"), seconds(0.5));
  EXPECT_EQ(*parse_duration("0 s"), seconds(0));
  EXPECT_EQ(*parse_rate("1e3B/s"), bytes_per_second(1000));  // not 1 with the unit `e3B/s`
}

TEST(Quantity, bad_text_is_refused_with_its_cure) {
  enum Kind { kDuration, kSize, kRate, kFlop, kHour, kByte };
  struct Row {
    Kind kind;
    std::string text;
    std::string message;  // a part of it
    std::string hint;     // a part of it
  };
  const std::string durations = "ps, ns, us, ms, s, min, h, d";
  const std::vector<Row> rows = {
      {kDuration, "48", "`48` has no unit", durations},
      {kDuration, "0", "`0` has no unit", durations},
      {kDuration, "48 ", "has no unit", durations},
      {kDuration, "", "`` is not a duration", "for example 48 ms"},
      {kDuration, " 48 ms", "is not a duration", "for example 48 ms"},
      {kDuration, "ms", "`ms` is not a duration", "for example 48 ms"},
      {kDuration, ".", "`.` is not a duration", "for example 48 ms"},
      {kDuration, "inf s", "`inf s` is not a duration", "for example"},
      {kDuration, "nan s", "`nan s` is not a duration", "for example"},
      {kDuration, "-1 ms", "`-1 ms` is negative", ""},
      {kDuration, "-0 ms", "is negative", ""},
      {kDuration, "1e400 s", "too large", ""},
      {kDuration, "1e308 d", "too large", ""},    // 8.64e312 has no double
      {kDuration, "1e-320 ps", "too small", ""},  // 1e-332 would be zero
      {kDuration, "48 ms ", "unknown unit `ms `", "known units: " + durations},
      {kDuration, "48 lightyears", "unknown unit `lightyears`", "known units: " + durations},
      {kDuration, "1,5 ms", "unknown unit", "`.` before the decimals"},
      {kDuration, "1_000 ms", "unknown unit", "without separators"},
      {kDuration, "5 MS", "unknown unit `MS`", "write ms: units are case-sensitive"},
      {kDuration, "5 m", "unknown unit `m`", "min for minutes or ms for milliseconds"},
      {kDuration, "5 \u00b5s", "unknown unit", "write us"},
      {kDuration, "5 seconds", "unknown unit", "write s"},
      {kDuration, "5 minutes", "unknown unit", "write min"},
      {kDuration, "5 hours", "unknown unit", "write h"},
      {kDuration, "5 days", "unknown unit", "write d"},
      {kDuration, "5 msec", "unknown unit", "write ms"},
      {kDuration, "5 GB", "unknown unit `GB`", "GB is a unit of size; a duration takes one of"},
      {kSize, "16", "`16` has no unit", "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"},
      {kSize, "5 Kb", "unknown unit `Kb`", "write kB for a power of 1000 or KiB"},
      {kSize, "5 KB", "unknown unit `KB`", "write kB for a power of 1000 or KiB"},
      {kSize, "5 Gb", "unknown unit `Gb`", "write GB for a power of 1000 or GiB"},
      {kSize, "5 G", "unknown unit `G`", "write GB for a power of 1000 or GiB"},
      {kSize, "5 bytes", "unknown unit", "write B"},
      {kSize, "5 gib", "unknown unit `gib`", "write GiB: units are case-sensitive"},
      {kRate, "0.6 Gbps", "unknown unit `Gbps`", "write Gbit/s for bits or GB/s for bytes"},
      {kRate, "0.6 GBps", "unknown unit `GBps`", "write Gbit/s for bits or GB/s for bytes"},
      {kRate, "0.6 Gb/s", "unknown unit `Gb/s`", "write Gbit/s for bits or GB/s for bytes"},
      {kRate, "5 mbps", "unknown unit `mbps`", "write Mbit/s for bits or MB/s for bytes"},
      {kRate, "5 Kbps", "unknown unit `Kbps`", "write kbit/s for bits or kB/s for bytes"},
      {kRate, "5 bps", "unknown unit `bps`", "write bit/s for bits or B/s for bytes"},
      {kRate, "5 Gbit", "unknown unit `Gbit`", "write Gbit/s for bits"},
      {kRate, "5 gbit/s", "unknown unit `gbit/s`", "write Gbit/s: units are case-sensitive"},
      {kRate, "5 MiB", "unknown unit `MiB`", "MiB is a unit of size"},
      {kFlop, "125 TFLOPS", "unknown unit `TFLOPS`", "write TFLOP/s"},
      {kFlop, "125 Tflop/s", "unknown unit `Tflop/s`", "write TFLOP/s"},
      {kHour, "3.06", "has no unit", "USD/h"},
      {kHour, "3.06 $/h", "unknown unit `$/h`", "write USD/h"},
      {kByte, "0.02 USD/MB", "unknown unit `USD/MB`", "USD/GB, USD/TB, USD/GiB"},
      {kByte, "0.02 USD/h", "unknown unit `USD/h`", "USD/h is a unit of price per hour"},
  };
  for (const Row& row : rows) {
    const auto error = [&]() -> Error {
      const auto drop = [](auto result) { return result ? Error{} : result.error(); };
      switch (row.kind) {
        case kDuration:
          return drop(parse_duration(row.text));
        case kSize:
          return drop(parse_size(row.text));
        case kRate:
          return drop(parse_rate(row.text));
        case kFlop:
          return drop(parse_flop_rate(row.text));
        case kHour:
          return drop(parse_usd_per_hour(row.text));
        case kByte:
          return drop(parse_usd_per_byte(row.text));
      }
      return {};
    }();
    EXPECT_EQ(error.code, ErrorCode::kInvalid) << row.text;
    EXPECT_NE(error.message.find(row.message), std::string::npos)
        << row.text << ": " << error.text();
    EXPECT_NE(error.hint.find(row.hint), std::string::npos) << row.text << ": " << error.text();
  }
}

TEST(Quantity, an_error_quotes_long_and_binary_text_short_and_whole) {
  // 39 letters and then a two-byte letter that straddles the 40th byte: it is left out whole.
  const auto error =
      parse_duration(std::string(39, 'x') + "\u00e9" + std::string(1000, 'y')).error();
  EXPECT_EQ(error.message, "`" + std::string(39, 'x') + "...` is not a duration");
  EXPECT_EQ(parse_duration("\x1b[31m").error().message, "`?[31m` is not a duration");
}

TEST(Quantity, a_plain_number_is_the_whole_text) {
  EXPECT_EQ(*parse_number("1e-3"), 1e-3);
  EXPECT_EQ(*parse_number("-2.5"), -2.5);
  EXPECT_EQ(*parse_number("+7"), 7);
  EXPECT_EQ(*parse_number("0"), 0);
  EXPECT_EQ(*parse_number("1.7976931348623157e308"), 1.7976931348623157e308);  // the largest double
  for (const char* text : {"", "x", "1 ", " 1", "1x", "inf", "-inf", "nan", "1e", "0x10", "--1",
                           "+-1", "1e309", "-1e309", "1e-400", "1,5"}) {
    EXPECT_FALSE(parse_number(text).has_value()) << text;
  }
}

TEST(Quantity, prints_four_digits_and_the_unit_of_a_mantissa_from_1_to_1000) {
  EXPECT_EQ(format_duration(milliseconds(48)), "48 ms");
  EXPECT_EQ(format_duration(seconds(1.23449)), "1.234 s");
  EXPECT_EQ(format_duration(seconds(0)), "0 s");
  EXPECT_EQ(format_duration(Seconds(1e-12)), "1 ps");
  EXPECT_EQ(format_duration(Seconds(5e-13)), "0.5 ps");
  EXPECT_EQ(format_duration(milliseconds(-3)), "-3 ms");
  EXPECT_EQ(format_duration(Seconds::infinity()), "inf s");
  // Both sides of each change of unit; 999.96 and 59.9996 round up to the next unit.
  EXPECT_EQ(format_duration(milliseconds(999.94)), "999.9 ms");
  EXPECT_EQ(format_duration(milliseconds(999.96)), "1 s");
  EXPECT_EQ(format_duration(seconds(999.9)), "999.9 s");
  EXPECT_EQ(format_duration(seconds(1000)), "16.67 min");
  EXPECT_EQ(format_duration(seconds(59.99 * 60)), "59.99 min");
  EXPECT_EQ(format_duration(seconds(59.9996 * 60)), "1 h");
  EXPECT_EQ(format_duration(seconds(86340)), "23.98 h");
  EXPECT_EQ(format_duration(seconds(86400)), "1 d");
  EXPECT_EQ(format_duration(seconds(86400e6)), "1e+06 d");
  EXPECT_EQ(format_duration(seconds(8.64e304)), "1e+300 d");  // 8.64e316 ps has no double

  EXPECT_EQ(format_size(gibibytes(16)), "16 GiB");
  EXPECT_EQ(format_size(bytes(471.2 * 1048576)), "471.2 MiB");
  EXPECT_EQ(format_size(bytes(1023)), "1023 B");
  EXPECT_EQ(format_size(bytes(1024)), "1 KiB");
  EXPECT_EQ(format_size(gibibytes(2048)), "2 TiB");
  EXPECT_EQ(format_size(bytes(0)), "0 B");

  EXPECT_EQ(format_bit_rate(gigabits_per_second(0.523)), "523 Mbit/s");
  EXPECT_EQ(format_bit_rate(gigabits_per_second(1.1)), "1.1 Gbit/s");
  EXPECT_EQ(format_bit_rate(bytes_per_second(0.125)), "1 bit/s");
  EXPECT_EQ(format_bit_rate(bytes_per_second(0.125e12)), "1 Tbit/s");

  EXPECT_EQ(format_flop_rate(flops_per_second(125e12)), "125 TFLOP/s");
  EXPECT_EQ(format_flop_rate(flops_per_second(989.5e12)), "989.5 TFLOP/s");
  EXPECT_EQ(format_flop_rate(flops_per_second(1e15)), "1 PFLOP/s");
}

TEST(Quantity, what_is_printed_reads_back_to_four_digits) {
  Rng rng("quantity_test", 1);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::pow(10.0, -14 + 36 * rng.uniform());
    // Four significant digits: a relative error of at most half a unit in the fourth, 5e-4.
    const double tolerance = 5.01e-4 * value;
    const auto time = parse_duration(format_duration(Seconds(value)));
    const auto size = parse_size(format_size(Bytes(value)));
    const auto rate = parse_rate(format_bit_rate(BytesPerSecond(value)));
    const auto flop_rate = parse_flop_rate(format_flop_rate(FlopsPerSecond(value)));
    ASSERT_TRUE(time && size && rate && flop_rate) << value;
    ASSERT_NEAR(time->value(), value, tolerance);
    ASSERT_NEAR(size->value(), value, tolerance);
    ASSERT_NEAR(rate->value(), value, tolerance);
    ASSERT_NEAR(flop_rate->value(), value, tolerance);
    ASSERT_EQ(*parse_number(format_exact(value)), value);
  }
}

TEST(Quantity, exact_format_is_the_shortest) {
  EXPECT_EQ(format_exact(0.1), "0.1");
  EXPECT_EQ(format_exact(100), "100");
  EXPECT_EQ(format_exact(0.1 + 0.2), "0.30000000000000004");
}

}  // namespace
}  // namespace longhaul
