#include "tf_rdmabatch/cc/transport/tcp/watchdog.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tf_rdmabatch/cc/transport/tcp/socket.h"

namespace rdmabatch::tcp {
namespace {

constexpr int kSilentLooks = 4;
// One probe of a window may be on its way.
constexpr int kSilentProbes = 2;
constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS, which older headers lack

}  // namespace

Watchdog::Watchdog(int socket) : socket_(socket), watches_(!IsLocal(socket)) {
  const int most_ms = 1000;
  if (watches_) (void)setsockopt(socket, IPPROTO_TCP, kRtoMaxMs, &most_ms, sizeof(most_ms));
}

Watchdog::Verdict Watchdog::Look(uint32_t since_ms) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return Verdict::kAnswers;
  const bool waits = info.tcpi_unacked != 0 || info.tcpi_probes >= kSilentProbes;
  silent_looks_ = waits && info.tcpi_last_ack_recv >= since_ms ? silent_looks_ + 1 : 0;
  if (silent_looks_ >= kSilentLooks) return Verdict::kDead;
  return !waits && info.tcpi_last_data_sent >= kLookMs ? Verdict::kIdle : Verdict::kAnswers;
}

}  // namespace rdmabatch::tcp
