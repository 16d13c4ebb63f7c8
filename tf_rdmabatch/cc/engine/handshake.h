// The handshake: how two engines that share a token agree on a transport and connect their lanes.
//
// Over the bootstrap connection, after authentication: both say who they are (Hello); the
// connecting side tries transports in its order of preference, the listening side offers an
// acceptor a lane; once a transport works, both exchange the descriptors of their lane segments,
// and say that they are ready.
#ifndef TF_RDMABATCH_CC_ENGINE_HANDSHAKE_H_
#define TF_RDMABATCH_CC_ENGINE_HANDSHAKE_H_

#include <memory>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/bootstrap.h"
#include "tf_rdmabatch/cc/engine/connection.h"
#include "tf_rdmabatch/cc/engine/engine.h"
#include "tf_rdmabatch/cc/engine/hello.h"

namespace rdmabatch {

// Texts that fit into a frame, each of at most `most` bytes, as many as the peer expects.
inline constexpr size_t kMaxOffer = 256;
std::string EncodeList(const std::vector<std::string>& items, size_t most);
Result<std::vector<std::string>> DecodeList(const std::string& bytes, size_t count, size_t most);

// One attempt, used by one thread. Blocks up to its deadline.
class Handshake {
 public:
  Handshake(Engine* engine, BootstrapSocket socket, Deadline deadline);
  // The connecting and the listening half. The connection is active when they return.
  Result<std::shared_ptr<Connection>> Connect();
  Result<std::shared_ptr<Connection>> Accept();

 private:
  Status ExchangeHellos(bool active);
  Status TryTransports();
  Status TryTransport(const std::shared_ptr<Transport>& transport, Deadline until);
  std::string WhyNot(const std::string& name) const;
  Deadline TryUntil(const std::vector<std::string>& later) const;
  void Choose(const std::string& name, const std::string& why, const std::string& failed);
  Status ServeTransports();
  Status ServeTransport(const std::shared_ptr<Transport>& transport);
  Status AcceptLanes(std::vector<std::unique_ptr<Acceptor>>* acceptors);
  Status MakeLanes(const std::shared_ptr<Transport>& transport);
  Status ExchangeSegments();
  Status Ready(bool active);
  Status ReceiveReady();
  Result<std::shared_ptr<Connection>> Finish(bool active, Status status);
  std::shared_ptr<Transport> Find(const std::string& name) const;

  Status Send(const std::string& frame);
  Result<std::string> Receive();
  // A frame that holds a status.
  Status SendStatus(const Status& status);
  Status ReceiveStatus();

  Engine* const engine_;
  const Deadline deadline_;
  std::shared_ptr<Connection> connection_;
  Hello mine_;
  Hello peer_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_HANDSHAKE_H_
