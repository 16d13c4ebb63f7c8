// What a lane posts to a device, and what it does with what a broken or hostile peer writes.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/cc/engine/lane_harness.h"
#include "tf_rdmabatch/cc/engine/wire.h"

namespace rdmabatch::testing {
namespace {

class LaneWire : public ::testing::Test {
 protected:
  void SetUp() override { Make(LaneOptions()); }
  void Make(const EngineOptions& options) {
    pair_ = MakeLanes("fake", options, options);
    ASSERT_NE(pair_, nullptr);
    geometry_ = {options.slots, options.slot_bytes};
    layout_ = LayoutOf(geometry_, geometry_);
  }
  LaneEnd& a() { return pair_->a; }
  LaneEnd& b() { return pair_->b; }
  // What a hostile A writes to B.
  void PokeArrived(uint64_t word) {
    std::memcpy(b().memory() + layout_.arrived, &word, sizeof(word));
  }
  void PokeSlot(uint32_t slot, const void* bytes, size_t size) {
    std::memcpy(b().memory() + layout_.slots + uint64_t{slot} * geometry_.slot_bytes, bytes, size);
  }
  void Arrive(uint32_t immediate) {
    if (b().lane->OnImmediate(immediate)) b().lane->HandleArrivals();
  }
  void ExpectRefused(const std::string& reason) {
    ASSERT_EQ(b().sink.failures.size(), 1u);
    EXPECT_EQ(b().sink.failures[0].code(), StatusCode::kDataLoss);
    EXPECT_NE(b().sink.failures[0].message().find(reason), std::string::npos)
        << b().sink.failures[0].message();
    EXPECT_TRUE(b().lane->failed());
    EXPECT_TRUE(b().fake->closed());
    EXPECT_EQ(b().counters().refused, 1u);
    EXPECT_EQ(b().Send("late", false), SendOutcome::kFailed);
    Arrive(kImmediateWords);
    EXPECT_EQ(b().sink.failures.size(), 1u) << "once";
  }
  // Slot 0 holds this header and this message, and is announced.
  void ExpectGarbageRefused(const SlotHeader& slot, const MessageHeader& message,
                            const std::string& reason) {
    Make(LaneOptions());
    PokeSlot(0, &slot, sizeof(slot));
    std::memcpy(b().memory() + layout_.slots + sizeof(slot), &message, sizeof(message));
    PokeArrived(1);
    Arrive(kImmediateWords);
    ExpectRefused(reason);
    EXPECT_TRUE(b().sink.messages.empty());
  }

  std::unique_ptr<LanePair> pair_;
  LaneGeometry geometry_;
  LaneLayout layout_;
};

// A slot counts its messages in 16 bits.
TEST_F(LaneWire, ASlotThatHoldsAsManyMessagesAsItCanCountIsFull) {
  EngineOptions options = LaneOptions();
  options.slot_bytes = 2 << 20;
  options.batch_bytes = 16 << 20;
  Make(options);
  constexpr uint64_t kMessages = 70000;
  for (uint64_t tag = 0; tag < kMessages; ++tag) {
    ASSERT_EQ(a().Send("x", true, tag), SendOutcome::kSent);
  }
  ASSERT_TRUE(a().lane->Flush());
  pair_->PumpAll();
  EXPECT_EQ(b().sink.failures.size(), 0u);
  ASSERT_EQ(b().sink.messages.size(), kMessages);
  EXPECT_EQ(b().sink.messages.back().tag, kMessages - 1);
}

TEST_F(LaneWire, NeighbouringSlotsAreOneWriteWhenTheGapIsSmall) {
  const uint32_t whole = a().lane->max_payload();
  // Slots 0, 1 and 2 go together: 512 bytes stay unused in slot 0; slot 2 leaves more.
  ASSERT_EQ(a().Send(std::string(whole - 512, 'a'), true), SendOutcome::kSent);
  ASSERT_EQ(a().Send(std::string(whole, 'b'), true), SendOutcome::kSent);
  ASSERT_EQ(a().Send(std::string(whole - 520, 'c'), true), SendOutcome::kSent);
  ASSERT_EQ(a().Send(std::string(whole, 'd'), false), SendOutcome::kSent);
  const auto& posted = a().fake->posted;
  ASSERT_EQ(posted.size(), 3u);
  EXPECT_EQ(posted[0].op, OpCode::kWrite);
  EXPECT_EQ(posted[0].length, 2 * 4096u + 4096 - 520);
  EXPECT_FALSE(posted[0].inline_data);
  EXPECT_EQ(posted[1].length, 4096u);
  EXPECT_EQ(posted[1].remote - posted[0].remote, 3 * 4096u);
  EXPECT_EQ(posted[2].op, OpCode::kWriteImm);
  EXPECT_EQ(posted[2].immediate, kImmediateWords);
  EXPECT_EQ(posted[2].length, 8u);
  EXPECT_TRUE(posted[2].inline_data);
  b().Pump();
  ASSERT_EQ(b().sink.messages.size(), 4u);
  EXPECT_EQ(b().sink.messages[2].bytes, std::string(whole - 520, 'c'));
  EXPECT_FALSE(a().fake->out_of_reach);
}

TEST_F(LaneWire, SlotsThatAreNotNeighboursAreWritesOfTheirOwn) {
  b().sink.keep = true;
  const std::string whole(a().lane->max_payload(), 'x');
  for (int i = 0; i < 64; ++i) ASSERT_EQ(a().Send(whole, i < 63), SendOutcome::kSent);
  pair_->PumpAll();
  for (const uint32_t slot : {10u, 11u, 13u, 40u}) ASSERT_TRUE(b().lane->Release(slot));
  a().fake->posted.clear();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(a().Send(whole, i < 3), SendOutcome::kSent);
  ASSERT_EQ(a().fake->posted.size(), 4u) << "10 and 11 together, 13, 40, the word";
  EXPECT_EQ(a().fake->posted[0].length, 2 * 4096u);
  EXPECT_EQ(a().fake->posted[1].length, 4096u);
  b().Pump();
  EXPECT_EQ(b().sink.messages.size(), 68u);
}

TEST_F(LaneWire, SmallSlotsAreInline) {
  ASSERT_EQ(a().Send(std::string(96, 's'), false), SendOutcome::kSent);
  ASSERT_EQ(a().fake->posted.size(), 2u);
  EXPECT_EQ(a().fake->posted[0].length, 128u);
  EXPECT_TRUE(a().fake->posted[0].inline_data);
  ASSERT_EQ(a().Send(std::string(97, 's'), false), SendOutcome::kSent);
  EXPECT_FALSE(a().fake->posted[2].inline_data);
}

TEST_F(LaneWire, AnswersCarryTheFreedWords) {
  ASSERT_EQ(a().Send("to b", false), SendOutcome::kSent);
  b().sink.keep = true;
  b().Pump();
  b().fake->posted.clear();
  b().fake->hold_completions = true;
  ASSERT_TRUE(b().lane->Release(0));
  ASSERT_EQ(b().fake->posted.size(), 1u);
  EXPECT_EQ(b().fake->posted[0].op, OpCode::kWrite) << "nobody waits: no immediate";
  EXPECT_EQ(b().fake->posted[0].remote, reinterpret_cast<uint64_t>(a().memory()) + layout_.freed);
}

TEST_F(LaneWire, AFullSendQueueIsBackpressureAndGoesOn) {
  a().fake->hold_completions = true;
  uint64_t sent = 0;
  // Each flush is a chain; nothing completes, but slots come back.
  while (a().Send("m", true, sent) == SendOutcome::kSent) {
    ++sent;
    if (!a().lane->Flush()) break;
    b().Pump();
    ASSERT_LT(sent, 10000u);
  }
  EXPECT_EQ(a().counters().queue_stalls, 1u);
  EXPECT_TRUE(a().lane->wants_service());
  EXPECT_TRUE(a().fake->wants_events);
  b().Pump();
  EXPECT_EQ(b().sink.messages.size(), sent - 1);
  EXPECT_FALSE(a().lane->Service()) << "still full";
  EXPECT_TRUE(a().fake->wants_events) << "and still to be woken";
  a().fake->completable = 1000;
  EXPECT_TRUE(a().lane->Service());
  b().Pump();
  EXPECT_EQ(b().sink.messages.size(), sent);
  EXPECT_TRUE(a().sink.failures.empty());
}

// A completion that comes between the last look and the wish to be woken must not be slept on.
TEST_F(LaneWire, ACompletionJustBeforeTheWishIsNotMissed) {
  a().fake->hold_completions = true;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(a().Send("m", false), SendOutcome::kSent);
  EXPECT_EQ(a().counters().doorbells, 2u);
  a().fake->on_want = [&] {
    a().fake->completable = 2;
    a().fake->on_want = nullptr;
  };
  EXPECT_TRUE(a().lane->Service()) << "or the progress thread sleeps";
  EXPECT_TRUE(a().lane->wants_service());
  a().lane->Service();
  EXPECT_EQ(a().counters().doorbells, 3u);
}

TEST_F(LaneWire, ReadsAndWritesAreCutAndCompleteTogether) {
  auto segment = Segment::Create(10u << 20);
  ASSERT_TRUE(segment.ok());
  auto local = a().transport->RegisterMemory(*segment, Access::kLocal);
  auto remote_segment = Segment::Create(10u << 20);
  ASSERT_TRUE(remote_segment.ok());
  auto exported = b().transport->RegisterMemory(*remote_segment, Access::kRemoteWrite);
  auto remote = a().fake->Import(*b().fake->Export(*exported));
  ASSERT_TRUE(remote.ok());
  std::memset(segment->data(), 7, segment->size());
  const Transfer transfers[] = {{OpCode::kWrite, *local, 0, *remote, 0, 9u << 20},
                                {OpCode::kWrite, *local, 0, *remote, 9u << 20, 100}};
  a().fake->hold_completions = true;
  TransferBatch batch;
  EXPECT_FALSE(a().lane->PostTransfers(transfers, &batch));
  ASSERT_EQ(a().fake->posted.size(), 4u) << "4 + 4 + 1 MiB, and 100 bytes";
  EXPECT_EQ(a().counters().doorbells, 1u);
  EXPECT_EQ(a().counters().bytes_written, (9u << 20) + 100);
  EXPECT_FALSE(a().lane->PostTransfers(transfers, &batch));
  EXPECT_EQ(a().fake->posted.size(), 4u);
  a().fake->completable = 1;
  EXPECT_TRUE(a().lane->PostTransfers(transfers, &batch));
  EXPECT_EQ(std::memcmp(segment->data(), remote_segment->data(), (9u << 20) + 100), 0);
  EXPECT_FALSE(a().fake->out_of_reach);
}

TEST_F(LaneWire, AWordMayShowWhatIsNotAnnouncedYet) {
  ASSERT_EQ(a().Send("first", false), SendOutcome::kSent);
  ASSERT_EQ(a().Send("second", false), SendOutcome::kSent);
  b().Pump(1);
  ASSERT_EQ(b().sink.messages.size(), 1u) << "the word shows both, the immediate but one";
  EXPECT_EQ(b().sink.messages[0].bytes, "first");
  b().Pump(1);
  ASSERT_EQ(b().sink.messages.size(), 2u);
  EXPECT_EQ(b().sink.messages[1].bytes, "second");
}

TEST_F(LaneWire, GarbageInASlotIsRefused) {
  const MessageHeader small{0, 16, 0, 0, 0};
  ExpectGarbageRefused({4097, 1, 0, 0}, small, "holds more than it can");
  ExpectGarbageRefused({~0u, 1, 0, 0}, small, "holds more than it can");
  ExpectGarbageRefused({15, 1, 0, 0}, small, "holds more than it can");
  ExpectGarbageRefused({0, 0, 0, 0}, small, "holds more than it can");
  ExpectGarbageRefused({16, 1, 0, 0}, small, "ends within a message header");
  ExpectGarbageRefused({31, 1, 0, 0}, small, "ends within a message header");
  ExpectGarbageRefused({32, 1, 0, 0}, {1, 16, 0, 0, 0}, "longer than its slot");
  ExpectGarbageRefused({4096, 1, 0, 0}, {4096 - 31, 16, 0, 0, 0}, "longer than its slot");
  ExpectGarbageRefused({4096, 1, 0, 0}, {~0u, 16, 0, 0, 0}, "longer than its slot");
  ExpectGarbageRefused({4096, 1, 0, 0}, {~0u - 7, 16, 0, 0, 0}, "longer than its slot");
}

TEST_F(LaneWire, ACountThatLiesIsRefusedWhereTheSlotEnds) {
  const SlotHeader slot{32 + 8, 2, 0, 0};
  const MessageHeader message{5, 16, 0, 0, 9};
  PokeSlot(0, &slot, sizeof(slot));
  std::memcpy(b().memory() + layout_.slots + sizeof(slot), &message, sizeof(message));
  PokeArrived(1);
  Arrive(kImmediateWords);
  EXPECT_EQ(b().sink.messages.size(), 1u) << "what came before it was a message";
  ExpectRefused("ends within a message header");
}

TEST_F(LaneWire, ASlotThatIsHeldCannotBeAnnounced) {
  b().sink.keep = true;
  ASSERT_EQ(a().Send("held", false), SendOutcome::kSent);
  b().Pump();
  PokeArrived(0);
  Arrive(kImmediateWords);
  ExpectRefused("announced while in use");
}

TEST_F(LaneWire, ASlotOfNoAnnouncementIsIgnored) {
  for (const uint64_t batch : {uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    const SlotHeader slot{16, 0, 0, batch};
    PokeSlot(5, &slot, sizeof(slot));
    PokeArrived(1u << 5);
    Arrive(kImmediateRequest);
    EXPECT_TRUE(b().sink.messages.empty());
    EXPECT_EQ(b().lane->failed(), false);
  }
}

TEST_F(LaneWire, ImmediatesOutOfRangeAreRefused) {
  for (const uint32_t slot : {64u, 4096u, 0x3fffffffu}) {
    for (const Confirm confirm : {Confirm::kBatch, Confirm::kEach}) {
      EngineOptions options = LaneOptions();
      options.confirm = confirm;
      Make(options);
      Arrive(kImmediateSlot | slot);
      ExpectRefused(confirm == Confirm::kEach ? "announced while in use" : "did not arrive");
      Make(options);
      Arrive(kImmediateAck | slot);
      ExpectRefused("a slot that does not exist");
    }
  }
}

TEST_F(LaneWire, OneSlotAnnouncedTwiceIsRefused) {
  for (const Confirm confirm : {Confirm::kBatch, Confirm::kEach}) {
    EngineOptions options = LaneOptions();
    options.confirm = confirm;
    Make(options);
    b().sink.keep = true;
    for (uint64_t batch = 0; batch < 2; ++batch) {
      EXPECT_FALSE(b().lane->failed());
      const SlotHeader slot{16 + 16, 1, 0, batch};
      PokeSlot(3, &slot, sizeof(slot));
      Arrive(kImmediateSlot | 3);
    }
    ExpectRefused(confirm == Confirm::kEach ? "announced while in use" : "did not arrive");
  }
}

TEST_F(LaneWire, ALoneSlotOfAnotherAnnouncementIsRefused) {
  const SlotHeader slot{16 + 16, 1, 0, 1};
  PokeSlot(3, &slot, sizeof(slot));
  Arrive(kImmediateSlot | 3);
  ExpectRefused("did not arrive");
  EXPECT_TRUE(b().sink.messages.empty());
}

// Two announcements that come together are looked for in the words, however many slots each has.
TEST_F(LaneWire, LoneMessagesThatComeTogetherAllArrive) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(a().Send("one", false), SendOutcome::kSent);
    EXPECT_EQ(a().fake->posted.back().immediate & kImmediateTypeMask, kImmediateSlot);
    if (round != 1) b().Pump();
    ASSERT_EQ(a().Send("two", false), SendOutcome::kSent);
    pair_->PumpAll();
    EXPECT_EQ(b().sink.messages.size(), 2u * (static_cast<size_t>(round) + 1));
    EXPECT_FALSE(b().lane->failed());
  }
}

TEST_F(LaneWire, AnImmediateBeforeTheConnectionIsAgreedIsRefused) {
  LaneEnd early;
  early.transport = std::make_shared<FakeTransport>();
  ASSERT_NO_FATAL_FAILURE(MakeLane(&early, LaneOptions(), LaneOptions()));
  EXPECT_FALSE(early.lane->OnImmediate(kImmediateWords));
  ASSERT_EQ(early.sink.failures.size(), 1u);
  EXPECT_EQ(early.sink.failures[0].code(), StatusCode::kDataLoss);
}

TEST_F(LaneWire, FreeingWhatWasNeverAnnouncedFailsTheSender) {
  for (const bool each : {false, true}) {
    EngineOptions options = LaneOptions();
    options.confirm = each ? Confirm::kEach : Confirm::kBatch;
    options.window = each ? 1 : 0;
    Make(options);
    if (each) {
      ASSERT_EQ(a().Send("m", false), SendOutcome::kSent);
      EXPECT_TRUE(a().lane->OnImmediate(kImmediateAck | 9));
    } else {
      const std::string whole(a().lane->max_payload(), 'x');
      for (int i = 0; i < 64; ++i) ASSERT_EQ(a().Send(whole, true), SendOutcome::kSent);
      const uint64_t word = 1;
      std::memcpy(a().memory() + layout_.freed, &word, sizeof(word));
    }
    EXPECT_EQ(a().Send("m", false), SendOutcome::kFailed);
    ASSERT_EQ(a().sink.failures.size(), 1u);
    EXPECT_EQ(a().sink.failures[0].code(), StatusCode::kDataLoss);
    EXPECT_NE(a().sink.failures[0].message().find("never announced"), std::string::npos);
  }
}

TEST_F(LaneWire, AMessageThatTheHostRefusesFailsTheLane) {
  b().sink.on_message = [](const MessageHeader&, Span<const uint8_t>, SlotHold) {
    return Disposition::kViolate;
  };
  ASSERT_EQ(a().Send("bad", false), SendOutcome::kSent);
  b().Pump();
  ExpectRefused("refused");
}

TEST_F(LaneWire, ABrokenEndpointFailsTheLaneWithItsReason) {
  a().fake->Close();
  EXPECT_EQ(a().Send("m", false), SendOutcome::kSent);
  EXPECT_TRUE(a().lane->failed());
  EXPECT_EQ(a().Send("m", false), SendOutcome::kFailed);
  EXPECT_EQ(a().lane->status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace rdmabatch::testing
