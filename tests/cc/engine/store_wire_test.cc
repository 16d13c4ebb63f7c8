#include "tf_rdmabatch/cc/engine/store_wire.h"

#include <gtest/gtest.h>

namespace rdmabatch {
namespace {

OpenReply Reply() {
  OpenReply reply;
  reply.cookie = 7;
  reply.id = 3;
  reply.info.spec.dtype = DType::kBfloat16;
  reply.info.spec.shape = {5, 100};
  reply.info.spec.contributors = 3;
  reply.info.spec.block_bytes = 64;
  reply.info.version = 9;
  reply.info.step = 4;
  reply.region = "descriptor";
  reply.region_bytes = 4096;
  reply.layout.words_offset = 128;
  reply.layout.data_offset = 256;
  return reply;
}

TEST(StoreWire, RepliesComeBack) {
  const auto decoded = DecodeOpened(BytesOf(Encode(Reply())));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->cookie, 7u);
  EXPECT_EQ(decoded->id, 3u);
  EXPECT_EQ(decoded->info.spec.dtype, DType::kBfloat16);
  EXPECT_EQ(decoded->info.spec.shape, (std::vector<uint64_t>{5, 100}));
  EXPECT_EQ(decoded->info.bytes, 1000u);
  EXPECT_EQ(decoded->info.blocks, 16u);
  EXPECT_EQ(BlockBytes(decoded->info, 15), 40u);
  EXPECT_EQ(decoded->info.version, 9u);
  EXPECT_EQ(decoded->region, "descriptor");
}

TEST(StoreWire, RepliesThatDoNotFitTheirRegionAreRefused) {
  const auto decodes = [](void (*change)(OpenReply*)) {
    OpenReply reply = Reply();
    change(&reply);
    return DecodeOpened(BytesOf(Encode(reply))).has_value();
  };
  EXPECT_TRUE(decodes([](OpenReply*) {}));
  EXPECT_TRUE(decodes([](OpenReply* r) { r->layout.data_offset = 4096 - 1000; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->layout.data_offset = 4096 - 999; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->layout.data_offset = ~uint64_t{0} - 8; }));
  EXPECT_TRUE(decodes([](OpenReply* r) { r->layout.words_offset = 4096 - 128; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->layout.words_offset = 4096 - 120; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->layout.words_offset = 4; }));
  // Of two versions the second has to fit as well.
  EXPECT_FALSE(decodes([](OpenReply* r) { r->info.spec.versions = 0; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->info.spec.versions = 3; }));
  const auto two = [](OpenReply* r) {
    r->info.spec.versions = 2;
    r->layout.words_stride = 128;
    r->layout.data_offset = 384;
    r->layout.data_stride = 1024;
  };
  OpenReply reply = Reply();
  two(&reply);
  const auto decoded = DecodeOpened(BytesOf(Encode(reply)));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->layout.DataOf(4), 384u);
  EXPECT_EQ(decoded->layout.DataOf(5), 384u + 1024);
  EXPECT_EQ(decoded->layout.WordsOf(5), 128u + 128);
  for (const uint64_t stride : {uint64_t{4096 - 384 - 999}, ~uint64_t{0}}) {
    reply.layout.data_stride = stride;
    EXPECT_FALSE(DecodeOpened(BytesOf(Encode(reply))));
  }
  two(&reply);
  reply.layout.words_stride = ~uint64_t{0} - 7;
  EXPECT_FALSE(DecodeOpened(BytesOf(Encode(reply))));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->info.spec.block_bytes = 0; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->info.spec.block_bytes = 65; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->info.spec.contributors = 0; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->info.spec.shape = {~uint64_t{0}, ~uint64_t{0}}; }));
  EXPECT_FALSE(decodes([](OpenReply* r) { r->info.spec.shape.assign(33, 1); }));
}

TEST(StoreWire, CutMessagesAreRefused) {
  const std::string open = Encode(OpenRequest{1, "w"});
  const std::string opened = Encode(Reply());
  const std::string refused = Encode(Refusal{1, {StatusCode::kNotFound, "no"}});
  EXPECT_TRUE(DecodeOpen(BytesOf(open)));
  EXPECT_TRUE(DecodeRefused(BytesOf(refused)));
  for (size_t bytes = 0; bytes < opened.size(); ++bytes) {
    EXPECT_FALSE(DecodeOpened(BytesOf(opened).first(bytes)));
    if (bytes < open.size()) {
      EXPECT_FALSE(DecodeOpen(BytesOf(open).first(bytes)));
    }
    if (bytes < refused.size()) {
      EXPECT_FALSE(DecodeRefused(BytesOf(refused).first(bytes)));
    }
  }
  EXPECT_FALSE(DecodeOpen(BytesOf(open + "x")));
  EXPECT_FALSE(DecodeOpen(BytesOf(Encode(OpenRequest{1, ""}))));
}

TEST(StoreWire, RefusalsArePrintableAndShort) {
  const Refusal refusal{5, {StatusCode::kOutOfRange, "a\n\x1b" + std::string(5000, 'b')}};
  const auto decoded = DecodeRefused(BytesOf(Encode(refusal)));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->cookie, 5u);
  EXPECT_EQ(decoded->status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(decoded->status.message().substr(0, 4), "a??b");
  EXPECT_EQ(decoded->status.message().size(), 1024u);
  EXPECT_FALSE(DecodeRefused(BytesOf(Encode(Refusal{5, {StatusCode::kOk, "fine"}}))));
}

}  // namespace
}  // namespace rdmabatch
