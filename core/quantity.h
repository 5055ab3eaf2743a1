// Quantities as text, read and printed with their unit. The only place where bits exist.
//
// Reading: a number, then a unit that is always required (`48 ms`, `0.6 Gbit/s`, `16 GiB`; the
// space may be left out). Units are case-sensitive. Decimal prefixes are powers of 1000 (kB, MB),
// binary ones of 1024 (KiB, MiB). Refused with a hint: a number without a unit, `Gbps` and `GBps`
// (bits or bytes?), `Kb`, negative or non-finite values.
// Printing: about four significant digits, the unit that gives a mantissa of 1 to 1000; what
// is printed can be read back.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

Result<Seconds> parse_duration(std::string_view text);     // ps ns us ms s min h d
Result<Bytes> parse_size(std::string_view text);           // B kB MB GB TB KiB MiB GiB TiB
Result<BytesPerSecond> parse_rate(std::string_view text);  // bit/s kbit/s .. Tbit/s, B/s .. TiB/s
Result<FlopsPerSecond> parse_flop_rate(std::string_view text);  // FLOP/s .. PFLOP/s
Result<double> parse_usd_per_hour(std::string_view text);       // USD/h
Result<double> parse_usd_per_byte(std::string_view text);       // USD/GB, USD/TB, USD/GiB
/// A plain finite number, the whole text.
Result<double> parse_number(std::string_view text);

std::string format_duration(Seconds time);          // "48 ms", "1.234 s", "2 min 5 s" is not used
std::string format_size(Bytes amount);              // binary: "16 GiB", "471.2 MiB"
std::string format_bit_rate(BytesPerSecond rate);   // network rates: "523 Mbit/s", "1.1 Gbit/s"
std::string format_flop_rate(FlopsPerSecond rate);  // "125 TFLOP/s"
/// The shortest decimal that reads back to exactly this double (for files).
std::string format_exact(double value);

}  // namespace longhaul
