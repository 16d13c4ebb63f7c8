// The hot path of TcpEndpoint.
#include <sys/epoll.h>

#include "tf_rdmabatch/cc/transport/tcp/tcp_endpoint.h"

namespace rdmabatch::tcp {

size_t TcpEndpoint::Post(Span<const WorkRequest> chain) {
  const size_t accepted = Queue(chain);
  if (accepted != 0) SendQueued();
  return accepted;
}

size_t TcpEndpoint::Queue(Span<const WorkRequest> chain) {
  if (chain.empty() || link_.failure() != nullptr) return 0;
  const size_t accepted = queue_.Append(chain);
  if (accepted < chain.size()) counters_->queue_stalls.Add(1);
  if (accepted == 0) return 0;
  counters_->doorbells.Add(1);
  counters_->work_requests.Add(accepted);
  return accepted;
}

size_t TcpEndpoint::PollSend(Span<Completion> completions) {
  const Failure* failed = link_.failure();
  size_t count = 0;
  if (failed == nullptr || (failed == &kPeerGone && !link_.closed())) {
    count = queue_.TakeCompletions(completions);
    if (count != 0) counters_->send_completions.Add(count);
  }
  if (failed == nullptr) return count;
  return count + ReportFailure(completions.subspan(count), 0, &send_failure_reported_);
}

void TcpEndpoint::Note(uint32_t events) {
  if ((events & EPOLLOUT) != 0) output_.HaveRoom();
  if ((events & ~uint32_t{EPOLLOUT}) != 0) readable_ = true;
}

size_t TcpEndpoint::Visit(Span<Completion> completions) {
  // What was perceived by the last poll is said by now, unless nothing was sent since.
  if (output_.owes_acknowledgement()) output_.Send();
  size_t count = input_.Take(completions, readable_);
  readable_ = false;
  if (!input_.ended()) return count;
  // The event of a broken connection never goes away by itself.
  if (!unwatched_) {
    unwatched_ = true;
    link_.Unwatch();
  }
  if (link_.closed()) return count;
  return count + ReportFailure(completions.subspan(count), context_, &receive_failure_reported_);
}

size_t TcpEndpoint::ReportFailure(Span<Completion> completions, uint64_t id, bool* reported) {
  if (*reported || completions.empty()) return 0;
  *reported = true;
  completions[0] = {id, 0, false, link_.failure()->message};
  return 1;
}

}  // namespace rdmabatch::tcp
