// Contributions, Collect and Publish.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "tf_rdmabatch/cc/engine/store_server.h"
#include "tf_rdmabatch/cc/engine/sums.h"

namespace rdmabatch {
namespace {

// Workers are told once so much is published, so that they read while the rest is copied.
constexpr uint64_t kBytesPerNotice = 4 << 20;

std::string Number(uint64_t number) { return std::to_string(number); }

}  // namespace

Disposition ParameterServer::Impl::OnPush(Connection& connection, const IncomingMessage& message) {
  const auto header = DecodePush(message.payload);
  if (!header) return Disposition::kViolate;
  auto* const peer = static_cast<StorePeer*>(connection.context());
  ServedParameter* const p = table_.Find(header->parameter);
  if (p == nullptr || peer == nullptr || !peer->opened.Has(header->parameter)) {
    Refuse(connection, peer, *header, StatusCode::kNotFound, "this connection has not opened it");
    return Disposition::kDone;
  }
  const bool nothing = (header->flags & kPushNothing) != 0;
  if (header->block >= p->info.blocks) {
    Refuse(connection, peer, *header, StatusCode::kOutOfRange,
           "it has no block " + Number(header->block));
    return Disposition::kDone;
  }
  const uint32_t blocks = BlocksIn(p->info, header->block, header->bytes);
  if (nothing ? header->bytes != 0 : blocks == 0) {
    Refuse(connection, peer, *header, StatusCode::kInvalidArgument,
           Number(header->bytes) + " bytes are not whole blocks from block " +
               Number(header->block) + " on");
    return Disposition::kDone;
  }
  if (nothing) {
    PushHeader each = *header;
    for (each.block = 0; p->bsp() && each.block < p->info.blocks; ++each.block) {
      if (PushBsp(connection, message, peer, *p, each, nullptr) == Taken::kRefused) break;
    }
    return Disposition::kDone;
  }
  const uint8_t* data = message.payload.data() + sizeof(PushHeader);
  // A slot is held for one block alone: what is held of several is copied.
  IncomingMessage part = message;
  part.holdable &= blocks == 1;
  bool held = false;
  for (PushHeader each = *header; each.block < header->block + blocks; ++each.block) {
    each.bytes = BlockBytes(p->info, each.block);
    if (!p->bsp()) {
      PushAsp(*p, each, data);
    } else {
      const Taken taken = PushBsp(connection, part, peer, *p, each, data);
      if (taken == Taken::kRefused) break;
      held = taken == Taken::kHeld;
    }
    data += each.bytes;
  }
  return held ? Disposition::kHold : Disposition::kDone;
}

ParameterServer::Impl::Taken ParameterServer::Impl::PushBsp(Connection& connection,
                                                            const IncomingMessage& message,
                                                            StorePeer* peer, ServedParameter& p,
                                                            const PushHeader& header,
                                                            const uint8_t* data) {
  if (header.contributor >= p.contributors.size()) {
    return Refuse(connection, peer, header, StatusCode::kOutOfRange,
                  "it has no contributor " + Number(header.contributor));
  }
  Contributor& contributor = p.contributors[header.contributor];
  if (contributor.connection.load(std::memory_order_relaxed) != peer->id) {
    AdoptContributor(p, header, peer);
  }
  if (header.step == 0 || header.step >> 63 != 0) {
    return Refuse(connection, peer, header, StatusCode::kInvalidArgument,
                  "there is no step " + Number(header.step));
  }
  ServedBlock& block = p.blocks[header.block];
  Taken taken = Taken::kNow;
  bool complete = false;
  bool twice = false;
  HeldPush released;
  {
    SpinGuard guard(block.flag);
    const uint64_t step = block.step.load(std::memory_order_relaxed);
    if (header.step > step) {
      taken = HoldPush(connection, message, peer, block, header, data, &released);
      twice = taken == Taken::kRefused;
      if (twice) taken = Taken::kNow;
    } else if (header.step < step) {
      // Late, of a step that was given up.
      progress_counters_.refused.Add(1);
    } else {
      twice = !Contribute(p, header.block, header.contributor, data, &progress_counters_);
      complete = !twice && Complete(p, header.block);
    }
  }
  released.Release();
  if (complete) AnnounceComplete(p);
  // Whoever replaces a contributor cannot know which blocks had arrived.
  if (!twice || header.step == contributor.takeover_step) return taken;
  return Refuse(connection, peer, header, StatusCode::kAlreadyExists,
                "contributor " + Number(header.contributor) + " has contributed block " +
                    Number(header.block) + " of step " + Number(header.step));
}

// Whether every contribution to the block's step is in now. Under its flag.
bool ParameterServer::Impl::Complete(ServedParameter& p, uint32_t index) {
  ServedBlock& block = p.blocks[index];
  if (block.count.load(std::memory_order_relaxed) != p.info.spec.contributors) return false;
  Settle(p, index);
  block.completed.store(block.step.load(std::memory_order_relaxed), std::memory_order_release);
  return true;
}

// Under the block's flag. False: this contribution is in already.
bool ParameterServer::Impl::Contribute(ServedParameter& p, uint32_t block, uint32_t contributor,
                                       const uint8_t* data, Counters* counters) {
  std::atomic<uint64_t>& bits = p.BitsOf(block, contributor);
  const uint64_t old = bits.load(std::memory_order_relaxed);
  const uint64_t bit = uint64_t{1} << (contributor % 64);
  if ((old & bit) != 0) return false;
  Accumulate(p, block, data, counters);
  bits.store(old | bit, std::memory_order_relaxed);
  return true;
}

void ParameterServer::Impl::Accumulate(ServedParameter& p, uint32_t index, const uint8_t* data,
                                       Counters* counters) {
  ServedBlock& block = p.blocks[index];
  block.count.store(block.count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (data == nullptr) return;
  const uint32_t bytes = BlockBytes(p.info, index);
  if (!block.filled.load(std::memory_order_relaxed)) {
    CopyStream(p.AccumulatorOf(index), data, bytes);
    block.filled.store(true, std::memory_order_relaxed);
  } else {
    AddInto(p.info.spec.dtype, p.AccumulatorOf(index), data, bytes / DTypeSize(p.info.spec.dtype));
  }
  counters->copies.AddShared(1);
  counters->bytes_copied.AddShared(bytes);
}

void ParameterServer::Impl::Settle(ServedParameter& p, uint32_t index) {
  if (p.blocks[index].filled.load(std::memory_order_relaxed)) return;
  std::memset(p.AccumulatorOf(index), 0, BlockBytes(p.info, index));
}

void ParameterServer::Impl::AnnounceComplete(ServedParameter& p) {
  const uint64_t complete = p.completed_blocks.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (complete >= p.wake_at.load(std::memory_order_seq_cst)) p.progress.Notify();
  if (complete >= p.waiting_at.load(std::memory_order_seq_cst)) EndReached(p);
}

void ParameterServer::Impl::PushAsp(ServedParameter& p, const PushHeader& header,
                                    const uint8_t* data) {
  SpinGuard guard(p.blocks[header.block].flag);
  Accumulate(p, header.block, data, &progress_counters_);
}

// Keeps a contribution to a later step until that is the awaited one. It takes the place of what
// the contributor sent to an earlier one, which it has given up; that is `released`.
ParameterServer::Impl::Taken ParameterServer::Impl::HoldPush(
    Connection& connection, const IncomingMessage& message, StorePeer* peer, ServedBlock& block,
    const PushHeader& header, const uint8_t* data, HeldPush* released) {
  if (peer->closed.load(std::memory_order_acquire)) return Taken::kNow;
  auto place = std::find_if(block.held.begin(), block.held.end(), [&](const HeldPush& other) {
    return other.contributor == header.contributor;
  });
  if (place != block.held.end() && place->step >= header.step) {
    return place->step == header.step ? Taken::kRefused : Taken::kNow;
  }
  // At most half of the slots are held, so that the pushes that Collect waits for get through.
  const uint32_t slots = engine.load(std::memory_order_relaxed)->options().slots;
  HeldPush held;
  held.step = header.step;
  held.contributor = header.contributor;
  held.connection = connection.shared_from_this();
  held.peer = peer->shared_from_this();
  held.in_slot =
      data != nullptr && message.holdable && peer->held.load(std::memory_order_relaxed) < slots / 2;
  held.hold = message.hold;
  if (!held.in_slot) held.copy.assign(data, data + header.bytes);
  held.data = held.in_slot || data == nullptr ? data : held.copy.data();
  const bool in_slot = held.in_slot;
  if (in_slot) peer->held.fetch_add(1, std::memory_order_relaxed);
  if (place == block.held.end()) {
    block.held.push_back(std::move(held));
  } else {
    *released = std::exchange(*place, std::move(held));
  }
  return in_slot ? Taken::kHeld : Taken::kNow;
}

void ParameterServer::Impl::AdoptContributor(ServedParameter& p, const PushHeader& header,
                                             StorePeer* peer) {
  Contributor& contributor = p.contributors[header.contributor];
  std::lock_guard<std::mutex> lock(p.members);
  contributor.takeover_step = std::exchange(contributor.left_behind, false) ? header.step : 0;
  contributor.name = peer->name;
  contributor.connection.store(peer->id, std::memory_order_relaxed);
  contributor.ended =
      peer->closed.load(std::memory_order_acquire)
          ? Status(StatusCode::kUnavailable, "the connection to " + peer->name + " ended")
          : Status::Ok();
}

Status ParameterServer::Impl::Collect(ServedParameter& p, uint64_t step, uint8_t* destination,
                                      Deadline deadline) {
  for (uint32_t b = 0; b < p.info.blocks; ++b) {
    RDMABATCH_RETURN_IF_ERROR(WaitComplete(p, b, step, deadline));
    if (destination == nullptr) continue;
    const uint32_t bytes = BlockBytes(p.info, b);
    CopyStream(destination + uint64_t{b} * p.info.spec.block_bytes, p.AccumulatorOf(b), bytes);
    application_counters_.copies.AddShared(1);
    application_counters_.bytes_copied.AddShared(bytes);
  }
  ReopenAll(p, step + 1);
  return Status::Ok();
}

Status ParameterServer::Impl::TakeSum(ServedParameter& p, uint64_t step,
                                      std::shared_ptr<HeapBuffer>* next, Deadline deadline) {
  for (uint32_t b = 0; b < p.info.blocks; ++b) {
    RDMABATCH_RETURN_IF_ERROR(WaitComplete(p, b, step, deadline));
  }
  // Nobody accumulates until a block is opened again, which the progress thread acquires.
  p.accumulator.swap(*next);
  ReopenAll(p, step + 1);
  return Status::Ok();
}

Status ParameterServer::Impl::Expect(ServedParameter& p, uint64_t step) {
  const uint64_t awaited = p.step.load(std::memory_order_acquire);
  if (step < awaited || step >> 63 != 0) {
    return {StatusCode::kFailedPrecondition, "parameter \"" + p.info.spec.name + "\" awaits step " +
                                                 Number(awaited) + ", not " + Number(step)};
  }
  if (step > awaited) ReopenAll(p, step);
  return Status::Ok();
}

void ParameterServer::Impl::ReopenAll(ServedParameter& p, uint64_t step) {
  p.complete_at.fetch_add(p.info.blocks, std::memory_order_seq_cst);
  p.step.store(step, std::memory_order_release);
  for (uint32_t b = 0; b < p.info.blocks; ++b) Reopen(p, b, step);
}

// Opens a step of a block, with what was held for it. What came of earlier ones is dropped, if it
// was not collected.
void ParameterServer::Impl::Reopen(ServedParameter& p, uint32_t b, uint64_t step) {
  ServedBlock& block = p.blocks[b];
  std::vector<HeldPush> over;
  bool given_up = false;
  bool complete = false;
  {
    SpinGuard guard(block.flag);
    given_up = block.completed.load(std::memory_order_relaxed) !=
               block.step.load(std::memory_order_relaxed);
    block.count.store(0, std::memory_order_relaxed);
    block.filled.store(false, std::memory_order_relaxed);
    for (uint32_t w = 0; w < p.bit_words; ++w) {
      p.bits[uint64_t{b} * p.bit_words + w].store(0, std::memory_order_relaxed);
    }
    block.step.store(step, std::memory_order_release);
    auto first = std::stable_partition(block.held.begin(), block.held.end(),
                                       [&](const HeldPush& held) { return held.step > step; });
    std::move(first, block.held.end(), std::back_inserter(over));
    block.held.erase(first, block.held.end());
    for (const HeldPush& held : over) {
      if (held.step != step) {
        application_counters_.refused.AddShared(1);
        continue;
      }
      (void)Contribute(p, b, held.contributor, held.data, &application_counters_);
    }
    complete = Complete(p, b);
  }
  for (HeldPush& held : over) held.Release();
  if (given_up) AnnounceComplete(p);
  if (complete) AnnounceComplete(p);
}

uint64_t ParameterServer::Impl::CollectNow(ServedParameter& p, uint8_t* destination) {
  uint32_t pushes = ~uint32_t{0};
  for (uint32_t b = 0; b < p.info.blocks; ++b) {
    ServedBlock& block = p.blocks[b];
    const uint32_t bytes = BlockBytes(p.info, b);
    SpinGuard guard(block.flag);
    const uint32_t count = block.count.load(std::memory_order_relaxed);
    pushes = std::min(pushes, count);
    block.count.store(0, std::memory_order_relaxed);
    block.filled.store(false, std::memory_order_relaxed);
    if (destination == nullptr) continue;
    uint8_t* const to = destination + uint64_t{b} * p.info.spec.block_bytes;
    if (count == 0) {
      std::memset(to, 0, bytes);
      continue;
    }
    CopyStream(to, p.AccumulatorOf(b), bytes);
    application_counters_.copies.AddShared(1);
    application_counters_.bytes_copied.AddShared(bytes);
  }
  p.step.fetch_add(1, std::memory_order_relaxed);
  return pushes;
}

Status ParameterServer::Impl::Publish(ServedParameter& p, uint64_t version,
                                      Span<const PublishedPiece> pieces) {
  std::atomic<uint64_t>* const words = p.place.words(version);
  uint8_t* const data = p.place.data(version);
  bool in_place = true;
  for (const PublishedPiece& piece : pieces) in_place &= piece.data == nullptr;
  if (in_place) application_counters_.in_place.AddShared(1);
  const uint64_t block_bytes = p.info.spec.block_bytes;
  const uint64_t blocks_per_notice =
      in_place ? p.info.blocks : std::max<uint64_t>(1, kBytesPerNotice / block_bytes);
  {
    std::lock_guard<std::mutex> lock(p.members);
    for (Opener& opener : p.openers) opener.notified = 0;
  }
  for (uint64_t first = 0; first < p.info.blocks; first += blocks_per_notice) {
    const auto end =
        static_cast<uint32_t>(std::min<uint64_t>(p.info.blocks, first + blocks_per_notice));
    for (uint64_t b = first; b < end; ++b) {
      if (!in_place) {
        words[b].store(2 * version - 1, std::memory_order_relaxed);
        // Stores past the caches are ordered by nothing less.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const uint64_t from = b * block_bytes;
        CopyPieces(data, from, from + BlockBytes(p.info, static_cast<uint32_t>(b)), &pieces);
      }
      words[b].store(2 * version, std::memory_order_release);
    }
    if (end == p.info.blocks) p.version.store(version, std::memory_order_release);
    Notify(p, end, version);
  }
  return Status::Ok();
}

// Copies what lies from byte `from` to `end` of a parameter, and forgets the pieces that end there.
void ParameterServer::Impl::CopyPieces(uint8_t* data, uint64_t from, uint64_t end,
                                       Span<const PublishedPiece>* pieces) {
  while (!pieces->empty() && (*pieces)[0].offset < end) {
    const PublishedPiece& piece = (*pieces)[0];
    const uint64_t begin = std::max(from, piece.offset);
    const uint64_t stop = std::min(end, piece.offset + piece.bytes);
    if (piece.data != nullptr && stop > begin) {
      CopyStream(data + begin, static_cast<const uint8_t*>(piece.data) + (begin - piece.offset),
                 stop - begin);
      application_counters_.copies.AddShared(1);
      application_counters_.bytes_copied.AddShared(stop - begin);
    }
    if (piece.offset + piece.bytes > end) return;
    *pieces = {pieces->data() + 1, pieces->size() - 1};
  }
}

// Tells every worker that blocks up to `end` are published. One without a free slot hears of them
// with the next notice, or after the last from the control thread.
void ParameterServer::Impl::Notify(ServedParameter& p, uint32_t end, uint64_t version) {
  std::lock_guard<std::mutex> lock(p.members);
  for (Opener& opener : p.openers) {
    auto connection = opener.peer->connection.lock();
    if (connection == nullptr) continue;
    const PublishedNotice notice{opener.cookie, opener.notified, end - opener.notified, 0, version};
    const Span<const uint8_t> head(reinterpret_cast<const uint8_t*>(&notice), sizeof(notice));
    const Status sent = connection->TrySend({MessageKind::kPublished, 0, head, {}});
    if (sent.ok()) {
      opener.notified = end;
    } else if (sent.code() == StatusCode::kResourceExhausted && end == p.info.blocks) {
      Enqueue([this, peer = opener.peer, cookie = opener.cookie, parameter = &p] {
        SendSoon({peer, MessageKind::kPublished, {}, parameter, cookie});
      });
    }
  }
}

}  // namespace rdmabatch
