#include "executor/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

StoredTensor tensor(std::string name, TensorType type, std::vector<std::uint64_t> shape) {
  StoredTensor made;
  made.name = std::move(name);
  made.type = type;
  made.shape = std::move(shape);
  return made;
}

/// A file from its header and data, the length in front.
std::string file_text(std::string header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data);
}

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// Made by the official Python package (safetensors 0.8.0):
//   save({"b": float32 [[1, 2, 3], [4, 5, -0.5]], "a": int64 [1, -2], "c": uint8 [7, 8, 9],
//         "d": float16 [0.5], "a2": float32 3.5 (no dimension), "e": float32 of shape [0, 4],
//         "i": int32 [-1], 'q"\n\u00e9': uint8 [1]}, metadata={"format": "pt"})
constexpr std::string_view kGoldenHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
    R"("a2":{"dtype":"F32","shape":[],"data_offsets":[16,20]},)"
    R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[20,44]},)"
    R"("e":{"dtype":"F32","shape":[0,4],"data_offsets":[44,44]},)"
    R"("i":{"dtype":"I32","shape":[1],"data_offsets":[44,48]},)"
    R"("d":{"dtype":"F16","shape":[1],"data_offsets":[48,50]},)"
    R"("c":{"dtype":"U8","shape":[3],"data_offsets":[50,53]},)"
    "\"q\\\"\\n\xc3\xa9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[53,54]}}";
constexpr std::string_view kGoldenData =
    "0100000000000000feffffffffffffff"                  // a
    "00006040"                                          // a2
    "0000803f0000004000004040000080400000a040000000bf"  // b; e has no bytes
    "ffffffff"                                          // i
    "0038"                                              // d
    "07080901";                                         // c, q

TEST(SafetensorsWriter, writes_the_bytes_of_the_official_writer) {
  SimStorage storage;
  auto writer = SafetensorsWriter::create(
      storage, "golden",
      {tensor("b", TensorType::kF32, {2, 3}), tensor("a", TensorType::kI64, {2}),
       tensor("c", TensorType::kU8, {3}), tensor("d", TensorType::kF16, {1}),
       tensor("a2", TensorType::kF32, {}), tensor("e", TensorType::kF32, {0, 4}),
       tensor("i", TensorType::kI32, {1}), tensor("q\"\n\xc3\xa9", TensorType::kU8, {1})});
  ASSERT_TRUE(writer) << writer.error().text();
  const std::int64_t a[] = {1, -2};
  const float a2 = 3.5;
  const float b[] = {1, 2, 3, 4, 5, -0.5};
  const std::int32_t i = -1;
  const std::uint16_t d = 0x3800;  // 0.5 in half precision
  ASSERT_TRUE(writer->append(std::as_bytes(std::span(a))));
  ASSERT_TRUE(writer->append(std::as_bytes(std::span(&a2, 1))));
  ASSERT_TRUE(writer->append(std::as_bytes(std::span(b).first(2))));  // in two pieces
  ASSERT_TRUE(writer->append(std::as_bytes(std::span(b).subspan(2))));
  ASSERT_TRUE(writer->append(std::as_bytes(std::span(&i, 1))));
  ASSERT_TRUE(writer->append(std::as_bytes(std::span(&d, 1))));
  ASSERT_TRUE(writer->append(bytes_of("\x07\x08\x09\x01")));
  const auto summary = writer->commit();
  ASSERT_TRUE(summary);

  const std::string& bytes = storage.bytes("golden");
  // The header has 479 bytes; 1 space makes 8 + 480 a multiple of 8. The data is 54 bytes.
  ASSERT_EQ(kGoldenHeader.size(), 479u);
  EXPECT_EQ(bytes.substr(0, 8), std::string_view("\xe0\x01\0\0\0\0\0\0", 8));  // 480
  EXPECT_EQ(bytes.substr(8, 480), std::string(kGoldenHeader) + " ");
  EXPECT_EQ(hex(std::string_view(bytes).substr(488)), kGoldenData);
  EXPECT_EQ(summary->bytes, 542u);
  EXPECT_EQ(summary->hash, ContentHash::of(bytes_of(bytes)));
}

TEST(SafetensorsReader, reads_what_was_written) {
  SimStorage storage;
  std::string data;
  for (std::size_t i = 0; i < kGoldenData.size(); i += 2) {
    data += static_cast<char>(std::stoi(std::string(kGoldenData.substr(i, 2)), nullptr, 16));
  }
  storage.put("golden", file_text(std::string(kGoldenHeader) + " ", data));
  auto reader = SafetensorsReader::open(storage, "golden");
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ(reader->metadata(), (TensorMetadata{{"format", "pt"}}));
  EXPECT_EQ(reader->tensors().size(), 8u);
  EXPECT_EQ(reader->find("nothing"), nullptr);
  const StoredTensor* const b = reader->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, TensorType::kF32);
  EXPECT_EQ(b->shape, (std::vector<std::uint64_t>{2, 3}));
  float values[2] = {};
  ASSERT_TRUE(reader->read(*b, 16, std::as_writable_bytes(std::span(values))));
  EXPECT_EQ(values[0], 5.0f);
  EXPECT_EQ(values[1], -0.5f);
  EXPECT_EQ(reader->find("e")->bytes(), 0u);
  EXPECT_EQ(reader->find("q\"\n\xc3\xa9")->bytes(), 1u);
}

TEST(SafetensorsReader, need_names_file_tensor_and_both_shapes) {
  SimStorage storage;
  storage.put("f",
              file_text(R"({"w":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}})", "1234"));
  auto reader = SafetensorsReader::open(storage, "f");
  ASSERT_TRUE(reader);
  const std::vector<std::uint64_t> right = {1, 2};
  const std::vector<std::uint64_t> wrong = {2, 1};
  EXPECT_TRUE(reader->need("w", TensorType::kF16, right));
  EXPECT_EQ(reader->need("w", TensorType::kF16, wrong).error().text(),
            "f: error: tensor `w` is F16 [1, 2], not F16 [2, 1]");
  EXPECT_EQ(reader->need("w", TensorType::kF32, right).error().text(),
            "f: error: tensor `w` is F16 [1, 2], not F32 [1, 2]");
  EXPECT_EQ(reader->need("x", TensorType::kF32, right).error().text(),
            "f: error: tensor `x` is missing");
}

TEST(SafetensorsReader, takes_any_order_and_any_white_space_behind_the_header) {
  SimStorage storage;
  storage.put("f", file_text("{\"a\":{\"data_offsets\":[1,2],\"shape\":[1],\"dtype\":\"U8\"},"
                             "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}} \n ",
                             "xy"));
  const auto reader = SafetensorsReader::open(storage, "f");
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ(reader->tensors()[0].name, "b");
  storage.put("empty", file_text("{}", ""));
  EXPECT_TRUE(SafetensorsReader::open(storage, "empty"));
}

struct HostileFile {
  std::string bytes;
  std::string message;
};

/// One tensor `w`, of one byte unless said otherwise.
std::string one(std::string_view inside, std::string_view data = "x") {
  return file_text("{\"w\":{" + std::string(inside) + "}}", data);
}

TEST(SafetensorsReader, hostile_files_are_refused_with_the_reason) {
  const std::string deep = "{\"w\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const std::string good = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  const std::string huge(8, '\xff');
  std::string header_max(8, '\0');  // 100,000,001: the smallest length that is refused
  const std::uint64_t too_long = 100'000'001;
  std::memcpy(header_max.data(), &too_long, 8);
  const HostileFile files[] = {
      {"", "0 bytes are no safetensors file"},
      {"1234567", "7 bytes are no safetensors file"},
      {huge + "{}", "a header of 18446744073709551615 bytes; the format allows 100000000"},
      {header_max + "{}", "a header of 100000001 bytes; the format allows 100000000"},
      {file_text("{}", "").substr(0, 9), "a header of 2 bytes in a file of 9"},
      {file_text("", ""), "the header does not start with `{`"},
      {file_text(" {}", ""), "the header does not start with `{`"},
      {file_text("[]", ""), "the header does not start with `{`"},
      {file_text("{", ""), "the header is not JSON at its byte 2"},
      {file_text("{}x", ""), "the header is not JSON at its byte 3"},
      {file_text("{\"\xff\":{}}", ""), "the header is not JSON at its byte 3"},
      {file_text("{\"\xc3\":{}}", ""), "the header is not JSON at its byte 4"},
      {file_text("{\"\xed\xa0\x80\":{}}", ""), "the header is not JSON at its byte 4"},
      {file_text("{\"w\":1}", ""), "tensor `w` is a number, not an object"},
      {file_text("{\"w\":\"x\"}", ""), "tensor `w` is a text, not an object"},
      {file_text("{\"w\":[]}", ""), "tensor `w` is a list, not an object"},
      {file_text("{\"w\":null}", ""), "tensor `w` is null, not an object"},
      {file_text(deep, ""), "tensor `w` is a list, not an object"},
      {file_text("{\"w\":{" + good + "},\"w\":{" + good + "}}", "x"), "tensor `w` is there twice"},
      {one(good + R"(,"dtype":"U8")"), "tensor `w`: `dtype` is there twice"},
      {one(good + R"(,"shape":[1])"), "tensor `w`: `shape` is there twice"},
      {one(good + R"(,"data_offsets":[0,1])"), "tensor `w`: `data_offsets` is there twice"},
      {one(good + R"(,"offsets":[0,1])"), "tensor `w`: the key `offsets` is unknown"},
      {one(R"("shape":[1],"data_offsets":[0,1])"), "tensor `w`: `dtype` is missing"},
      {one(R"("dtype":"U8","data_offsets":[0,1])"), "tensor `w`: `shape` is missing"},
      {one(R"("dtype":"U8","shape":[1])"), "tensor `w`: `data_offsets` is missing"},
      {one(R"("dtype":"U9","shape":[1],"data_offsets":[0,1])"),
       "tensor `w`: `U9` is no known dtype"},
      {one(R"("dtype":8,"shape":[1],"data_offsets":[0,1])"), "tensor `w`: `dtype` holds a number"},
      {one(R"("dtype":["U8"],"shape":[1],"data_offsets":[0,1])"),
       "tensor `w`: `dtype` holds a list"},
      {one(R"("dtype":"U8","shape":"1","data_offsets":[0,1])"), "tensor `w`: `shape` holds a text"},
      {one(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])"),
       "tensor `w`: `shape` holds a list"},
      {one(R"("dtype":"U8","shape":{},"data_offsets":[0,1])"),
       "tensor `w`: `shape` holds an object"},
      {one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"),
       "tensor `w`: `shape` holds a negative number"},
      {one(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"),
       "tensor `w`: `shape` holds a number that is not whole or does not fit into 64 bits"},
      {one(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])"),
       "tensor `w`: `shape` holds a number that is not whole or does not fit into 64 bits"},
      {one(R"("dtype":"U8","shape":[true],"data_offsets":[0,1])"),
       "tensor `w`: `shape` holds a boolean"},
      {one(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"),
       "tensor `w`: `shape` has more than 16 dimensions"},
      {one(R"("dtype":"U8","shape":[1],"data_offsets":[0])"),
       "tensor `w`: `data_offsets` has less than two numbers"},
      {one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"),
       "tensor `w`: `data_offsets` has more than two numbers"},
      {one(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"),
       "tensor `w` ends at byte 0, before it begins at 1"},
      {one(R"("dtype":"U8","shape":[2],"data_offsets":[0,1])"),
       "tensor `w` has 1 bytes, but U8 [2] needs 2"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,1])"),
       "tensor `w` has 1 bytes, but F32 [1] needs 4"},
      {one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1])"),
       "tensor `w` has 1 bytes, but U8 [4294967296, 4294967296] needs more than 2^64"},
      {one(R"("dtype":"U8","shape":[9223372036854775808,2,0],"data_offsets":[0,0])", ""),
       "tensor `w` has 0 bytes, but U8 [9223372036854775808, 2, 0] needs more than 2^64"},
      {one(good, ""), "tensor `w` ends at byte 1 of 0 bytes of data"},
      {one(good, "xy"), "the tensors end at byte 1 of 2 bytes of data"},
      {one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", "xy"),
       "tensor `w` begins at byte 1, after a hole that begins at 0"},
      {file_text(R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                 R"("w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                 "xyz"),
       "tensor `w` begins at byte 1, inside the one that ends at 2"},
      {file_text(R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                 R"("w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                 "xy"),
       "tensor `w` begins at byte 0, inside the one that ends at 2"},
      {file_text(R"({"__metadata__":{"a":1}})", ""), "`__metadata__` holds a number, not text"},
      {file_text(R"({"__metadata__":{"a":{}}})", ""), "`__metadata__` holds an object, not text"},
      {file_text(R"({"__metadata__":{"a":"1","a":"2"}})", ""),
       "`__metadata__` has the key `a` twice"},
      {file_text(R"({"__metadata__":{},"__metadata__":{}})", ""), "`__metadata__` is there twice"},
      {file_text("{\"" + std::string(200, 'n') + "\\n\":1}", ""),
       "tensor `" + std::string(80, 'n') + "...` is a number, not an object"},
  };
  for (const HostileFile& file : files) {
    SimStorage storage;
    storage.put("bad", file.bytes);
    const auto reader = SafetensorsReader::open(storage, "bad");
    ASSERT_FALSE(reader) << file.message;
    EXPECT_EQ(reader.error().message, file.message);
    EXPECT_EQ(reader.error().place.file, "bad");
  }
}

TEST(SafetensorsReader, file_that_is_cut_anywhere_is_refused) {
  SimStorage storage;
  auto writer = SafetensorsWriter::create(
      storage, "whole", {tensor("a", TensorType::kF32, {2}), tensor("b", TensorType::kU8, {3})});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(bytes_of("12345678abc")));
  ASSERT_TRUE(writer->commit());
  const std::string whole = storage.bytes("whole");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    storage.put("cut", whole.substr(0, size));
    EXPECT_FALSE(SafetensorsReader::open(storage, "cut")) << size;
  }
  storage.put("longer", whole + "x");
  EXPECT_FALSE(SafetensorsReader::open(storage, "longer"));
}

TEST(SafetensorsWriter, refuses_names_that_a_reader_would_refuse) {
  SimStorage storage;
  const auto refusal = [&](std::vector<StoredTensor> tensors, const TensorMetadata& metadata) {
    const auto writer = SafetensorsWriter::create(storage, "f", std::move(tensors), metadata);
    return writer ? "" : writer.error().message;
  };
  EXPECT_EQ(refusal({tensor("w", TensorType::kU8, {1}), tensor("w", TensorType::kF32, {1})}, {}),
            "f: two tensors are named `w`");
  EXPECT_EQ(refusal({tensor("__metadata__", TensorType::kU8, {1})}, {}),
            "f: no tensor may be named __metadata__");
  EXPECT_EQ(refusal({tensor("\xff", TensorType::kU8, {1})}, {}), "f: `\\xff` is not UTF-8");
  EXPECT_EQ(refusal({}, {{"k", "\xff"}}), "f: `\\xff` is not UTF-8");
  EXPECT_EQ(refusal({tensor("w", TensorType::kU64, {std::uint64_t{1} << 61})}, {}),
            "f: tensor `w` [2305843009213693952] is too large for a file");
  EXPECT_TRUE(storage.files().empty());
}

TEST(SafetensorsWriter, leaves_nothing_without_commit) {
  SimStorage storage;
  storage.put("f", "old");
  {
    auto writer = SafetensorsWriter::create(storage, "f", {tensor("w", TensorType::kU8, {4})});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(bytes_of("123")));
  }
  EXPECT_EQ(storage.files(), std::vector<std::string>{"f"});
  EXPECT_EQ(storage.bytes("f"), "old");
}

TEST(ContentHash, is_what_xxh128sum_prints) {
  // printf abc | xxh128sum; and of no bytes at all.
  EXPECT_EQ(ContentHash::of(bytes_of("abc")).text(), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(ContentHash::of({}).text(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(ContentHash::parse("06b05ab6733a618578af5f94892f3950"),
            ContentHash::of(bytes_of("abc")));
  EXPECT_EQ(ContentHash::parse("06b05ab6733a618578af5f94892f395"), std::nullopt);
  EXPECT_EQ(ContentHash::parse("06b05ab6733a618578af5f94892f39500"), std::nullopt);
  EXPECT_EQ(ContentHash::parse("06B05ab6733a618578af5f94892f3950"), std::nullopt);
}

TEST(ContentHash, does_not_depend_on_how_the_bytes_are_cut) {
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  const ContentHash whole = ContentHash::of(bytes_of(text));
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{256}, text.size()}) {
    ContentHasher hasher;
    hasher.add(bytes_of(text).first(cut));
    hasher.add(bytes_of(text).subspan(cut));
    EXPECT_EQ(hasher.value(), whole);
  }
}

}  // namespace
}  // namespace longhaul
