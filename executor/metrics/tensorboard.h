// TensorBoard's event files, written without TensorFlow: each function answers the bytes of one
// record, which whoever calls appends to a file `events.out.tfevents.*`.
//
// A record (TFRecord), little-endian:
//   u64 size | u32 masked CRC-32C of these 8 bytes | data | u32 masked CRC-32C of the data
// where masked(c) = rotate_right(c, 15) + 0xa282ead8. The data is a protobuf message Event, of
// which these fields are written (number, wire type):
//   1 double wall_time | 2 varint step | 3 string file_version | 5 Summary | 7 SessionLog
//   Summary    { 1 Value { 1 string tag, 2 float simple_value } ... }
//   SessionLog { 1 varint status }
// A file begins with the record of its version. Field numbers are those of tensorflow/core/util/
// event.proto and tensorflow/core/framework/summary.proto.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhaul {

struct TensorboardScalar {
  std::string tag;  // what stands before its first `/` is the chart's group
  double value = 0;
};

/// The first record of a file. Wall times are seconds since 1970.
std::string tensorboard_start(double wall_time);
/// A run begins again at `step`: what earlier files of the folder have of this step and of later
/// ones is void, and readers drop it.
std::string tensorboard_restart(double wall_time, std::uint64_t step);
/// Values are kept as fp32.
std::string tensorboard_scalars(double wall_time, std::uint64_t step,
                                std::span<const TensorboardScalar> scalars);

/// `events.out.tfevents.1700000000.host.suffix`: readers of a folder take files in the order of
/// their names. What a file name cannot have in `host` becomes `_`.
std::string tensorboard_file_name(std::uint64_t seconds, std::string_view host,
                                  std::string_view suffix);

}  // namespace longhaul
