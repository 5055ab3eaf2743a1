#include "executor/metrics/tensorboard.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul {
namespace {

std::string hex_of(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

/// The message of a record: what stands between size and checksum.
std::string message_of(std::string_view record) {
  return hex_of(record.substr(12, record.size() - 16));
}

TEST(MetricsTensorboard, a_file_of_one_scalar_has_the_bytes_that_tensorflow_writes) {
  // The file's version at 1.7e9 s, then loss 2.5 of step 3 a second later; bytes of a prototype
  // that TensorBoard reads, 40 + 42 of them.
  const std::vector<TensorboardScalar> scalars = {{"loss", 2.5}};
  EXPECT_EQ(hex_of(tensorboard_start(1.7e9)),
            "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
  EXPECT_EQ(hex_of(tensorboard_scalars(1.7e9 + 1, 3, scalars)),
            "1a00000000000000129bd82d"
            "0900004040fc54d94110032a0d0a0b0a046c6f73731500002040"
            "2e733f50");
}

TEST(MetricsTensorboard, a_restart_is_a_session_that_starts) {
  // 09 wall time 0; 10 step 300 = ac 02; 3a 02 a message of 2 bytes: 08 01, status START.
  EXPECT_EQ(message_of(tensorboard_restart(0, 300)),
            "090000000000000000"
            "10ac02"
            "3a020801");
}

TEST(MetricsTensorboard, scalars_of_a_step_are_one_event) {
  // Each value: 0a size { 0a size tag, 15 fp32 }. -1 is bf800000, nan 7fc00000 (little-endian).
  const std::vector<TensorboardScalar> scalars = {{"a/b", -1}, {"c", std::nan("")}};
  EXPECT_EQ(message_of(tensorboard_scalars(0, 0, scalars)),
            "090000000000000000"
            "1000"
            "2a16"
            "0a0a"
            "0a03612f62"
            "15000080bf"
            "0a08"
            "0a0163"
            "150000c07f");
}

TEST(MetricsTensorboard, lengths_of_more_than_127_bytes_take_two) {
  // A tag of 200 bytes: the value has 2 + 1 + 200 + 5 = 208 bytes (d0 01), the summary 211 (d3 01).
  const std::vector<TensorboardScalar> scalars = {{std::string(200, 't'), 0}};
  const std::string message = message_of(tensorboard_scalars(0, std::uint64_t{1} << 40, scalars));
  EXPECT_TRUE(
      message.starts_with("090000000000000000"
                          "10808080808020"
                          "2ad301"
                          "0ad001"
                          "0ac801"
                          "7474"))
      << message;
}

TEST(MetricsTensorboard, a_file_is_named_by_its_time_and_its_machine) {
  EXPECT_EQ(tensorboard_file_name(1700000000, "node-1.example", "term-1"),
            "events.out.tfevents.1700000000.node-1.example.term-1");
  EXPECT_EQ(tensorboard_file_name(7, "a/b c", "x"), "events.out.tfevents.7.a_b_c.x");
  EXPECT_EQ(tensorboard_file_name(7, "", "x"), "events.out.tfevents.7.host.x");
}

}  // namespace
}  // namespace longhaul
