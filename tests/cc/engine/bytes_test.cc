#include "tf_rdmabatch/cc/engine/bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace rdmabatch {
namespace {

TEST(BytesTest, FieldsComeBackAsWritten) {
  ByteWriter writer;
  writer.U8(0xfe);
  writer.U16(0xfedc);
  writer.U32(0xfedcba98);
  writer.U64(0xfedcba9876543210);
  writer.String(std::string_view("a\0b", 3), 3);
  writer.String("", 0);
  writer.Raw("xyz");
  ASSERT_TRUE(writer.ok());

  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.U8(), 0xfe);
  EXPECT_EQ(reader.U16(), 0xfedc);
  EXPECT_EQ(reader.U32(), 0xfedcba98);
  EXPECT_EQ(reader.U64(), 0xfedcba9876543210);
  EXPECT_EQ(reader.String(3), std::string_view("a\0b", 3));
  EXPECT_EQ(reader.String(0), "");
  EXPECT_TRUE(reader.ok());
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.remaining(), 3u);
  EXPECT_EQ(reader.Raw(3), "xyz");
  EXPECT_TRUE(reader.done());
}

TEST(BytesTest, IsLittleEndian) {
  ByteWriter writer;
  writer.U16(0x0102);
  writer.U32(0x03040506);
  writer.U64(0x0708090a0b0c0d0e);
  EXPECT_EQ(writer.Take(), "\x02\x01\x06\x05\x04\x03\x0e\x0d\x0c\x0b\x0a\x09\x08\x07");
  EXPECT_TRUE(writer.bytes().empty());
}

TEST(BytesTest, WriterRefusesAStringOverItsLimit) {
  ByteWriter writer;
  writer.String("four", 3);
  EXPECT_FALSE(writer.ok());
  EXPECT_TRUE(writer.bytes().empty());
}

TEST(BytesTest, ReaderRefusesAStringOverItsLimit) {
  ByteWriter writer;
  writer.String("four", 4);
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.String(3), "");
  EXPECT_FALSE(reader.ok());
}

TEST(BytesTest, EveryTruncationFailsAndStaysFailed) {
  ByteWriter writer;
  writer.U8(1);
  writer.U16(2);
  writer.String("hello", 16);
  writer.U64(3);
  std::string whole = writer.Take();
  for (size_t size = 0; size <= whole.size(); ++size) {
    // An exact heap copy: the address sanitizer sees a read past the end.
    std::string cut(whole.data(), size);
    cut.shrink_to_fit();
    ByteReader reader(cut);
    reader.U8();
    reader.U16();
    std::string_view text = reader.String(16);
    uint64_t last = reader.U64();
    bool complete = size == whole.size();
    EXPECT_EQ(reader.ok(), complete) << size;
    EXPECT_EQ(reader.done(), complete) << size;
    EXPECT_EQ(last, complete ? 3u : 0u) << size;
    if (!complete) {
      EXPECT_EQ(reader.U8(), 0);
      EXPECT_EQ(reader.Raw(0), "");
      EXPECT_FALSE(reader.ok());
    } else {
      EXPECT_EQ(text, "hello");
    }
  }
}

TEST(BytesTest, LeftOverBytesAreNotDone) {
  ByteReader reader("ab");
  reader.U8();
  EXPECT_TRUE(reader.ok());
  EXPECT_FALSE(reader.done());
}

TEST(BytesTest, HugeLengthsAreRefused) {
  ByteWriter writer;
  writer.U32(0xffffffff);
  writer.Raw("abc");
  ByteReader limited(writer.bytes());
  limited.String(0xffffffff);
  EXPECT_FALSE(limited.ok());
  ByteReader raw(writer.bytes());
  EXPECT_EQ(raw.Raw(SIZE_MAX), "");
  EXPECT_FALSE(raw.ok());
}

TEST(BytesTest, RandomMessagesComeBack) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    ByteWriter writer;
    int fields = static_cast<int>(random() % 20);
    std::mt19937_64 replay = random;
    for (int i = 0; i < fields; ++i) {
      uint64_t value = random();
      switch (value % 5) {
        case 0:
          writer.U8(static_cast<uint8_t>(value));
          break;
        case 1:
          writer.U16(static_cast<uint16_t>(value));
          break;
        case 2:
          writer.U32(static_cast<uint32_t>(value));
          break;
        case 3:
          writer.U64(value);
          break;
        default:
          writer.String(std::string(value % 77, static_cast<char>(value)), 77);
      }
    }
    ASSERT_TRUE(writer.ok());
    ByteReader reader(writer.bytes());
    for (int i = 0; i < fields; ++i) {
      uint64_t value = replay();
      switch (value % 5) {
        case 0:
          EXPECT_EQ(reader.U8(), static_cast<uint8_t>(value));
          break;
        case 1:
          EXPECT_EQ(reader.U16(), static_cast<uint16_t>(value));
          break;
        case 2:
          EXPECT_EQ(reader.U32(), static_cast<uint32_t>(value));
          break;
        case 3:
          EXPECT_EQ(reader.U64(), value);
          break;
        default:
          EXPECT_EQ(reader.String(77), std::string(value % 77, static_cast<char>(value)));
      }
    }
    EXPECT_TRUE(reader.done());
  }
}

}  // namespace
}  // namespace rdmabatch
