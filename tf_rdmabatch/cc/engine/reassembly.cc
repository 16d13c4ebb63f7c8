#include "tf_rdmabatch/cc/engine/reassembly.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "tf_rdmabatch/cc/engine/wire.h"

namespace rdmabatch {

bool Reassembly::Take(Span<const uint8_t> fragment, Whole* whole) {
  FragmentHeader header;
  if (fragment.size() < sizeof(header)) return false;
  std::memcpy(&header, fragment.data(), sizeof(header));
  const Span<const uint8_t> piece = fragment.subspan(sizeof(header));
  if (header.total > max_message_bytes_ || header.offset > header.total ||
      piece.size() > header.total - header.offset || piece.empty()) {
    return false;
  }
  auto found = incomplete_.find(header.message);
  if (found == incomplete_.end()) {
    if (incomplete_.size() >= most_messages_ || header.total > most_bytes_ - bytes_) return false;
    Incomplete fresh = Begin(header.total);
    if (fresh.message.bytes == nullptr) return false;
    bytes_ += header.total;
    found = incomplete_.emplace(header.message, std::move(fresh)).first;
  }
  Incomplete& message = found->second;
  if (message.message.size != header.total || piece.size() > header.total - message.have) {
    return false;
  }
  uint8_t* const bytes = message.message.bytes.get();
  if (!message.zeroed && header.offset != message.have) {
    // Pieces that overlap leave gaps: nobody shall see what the memory held.
    std::memset(bytes + message.have, 0, header.total - message.have);
    message.zeroed = true;
  }
  std::memcpy(bytes + header.offset, piece.data(), piece.size());
  message.have += piece.size();
  if (message.have < header.total) return true;
  *whole = std::move(message.message);
  bytes_ -= whole->size;
  incomplete_.erase(found);
  return true;
}

Reassembly::Incomplete Reassembly::Begin(uint64_t size) {
  Incomplete fresh;
  if (spare_.room >= size) {
    fresh.message = std::exchange(spare_, {});
  } else {
    // A large one takes memory from the system only as fragments fill it.
    fresh.zeroed = size > kSpareBytes;
    fresh.message.bytes.reset(
        static_cast<uint8_t*>(fresh.zeroed ? std::calloc(size, 1) : std::malloc(size)));
    fresh.message.room = size;
  }
  fresh.message.size = size;
  return fresh;
}

void Reassembly::Reuse(Whole whole) {
  if (whole.room <= kSpareBytes && whole.room > spare_.room) spare_ = std::move(whole);
}

}  // namespace rdmabatch
