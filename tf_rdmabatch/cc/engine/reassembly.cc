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
    Incomplete fresh;
    // Zeroes, so that no fragment that lies shows what the memory held, and taken from the system
    // only as fragments fill it.
    fresh.message.bytes.reset(static_cast<uint8_t*>(std::calloc(header.total, 1)));
    if (fresh.message.bytes == nullptr) return false;
    fresh.message.size = header.total;
    bytes_ += header.total;
    found = incomplete_.emplace(header.message, std::move(fresh)).first;
  }
  Incomplete& message = found->second;
  if (message.message.size != header.total || piece.size() > header.total - message.have) {
    return false;
  }
  std::memcpy(message.message.bytes.get() + header.offset, piece.data(), piece.size());
  message.have += piece.size();
  if (message.have < header.total) return true;
  *whole = std::move(message.message);
  bytes_ -= whole->size;
  incomplete_.erase(found);
  return true;
}

}  // namespace rdmabatch
