// The control thread: accepts peers, and notices when one closes or dies. One an engine.
#ifndef TF_RDMABATCH_CC_ENGINE_CONTROL_H_
#define TF_RDMABATCH_CC_ENGINE_CONTROL_H_

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/engine/bootstrap.h"
#include "tf_rdmabatch/cc/engine/connection.h"

namespace rdmabatch {

class Engine;

class ControlThread {
 public:
  explicit ControlThread(Engine* engine) : engine_(engine) {}
  ~ControlThread() { Stop(); }

  Status Start();
  // Joins the thread and those of handshakes under way. Idempotent.
  void Stop();

  Result<std::string> Listen(const std::string& address);
  // Something to watch was added or removed.
  void Wake();

 private:
  struct Accepting {
    std::thread thread;
    std::atomic<bool> done{false};
  };

  void Run();
  void WatchOnce();
  void AcceptPeer(int listener);
  void Greet(BootstrapSocket socket);
  bool IsNews(const std::string& address, const Status& why);
  void ReapAccepting(bool all);
  void CheckPeer(const std::shared_ptr<Connection>& connection);

  Engine* const engine_;
  UniqueFd wake_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<UniqueFd> listeners_;                        // mutex_
  std::set<std::pair<std::string, StatusCode>> refusals_;  // mutex_: which hosts were refused, why
  std::list<Accepting> accepting_;  // control thread, and Stop after it ended
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_CONTROL_H_
