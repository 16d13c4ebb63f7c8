// TransportRules: what a program wants of its connections: the best transport, or a certain one.
#ifndef TF_RDMABATCH_CC_ENGINE_TRANSPORT_RULES_H_
#define TF_RDMABATCH_CC_ENGINE_TRANSPORT_RULES_H_

#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace rdmabatch {

// Immutable.
class RDMABATCH_EXPORT TransportRules {
 public:
  static constexpr char kAuto[] = "auto";

  // A transport's name or "auto", for all connections; or rules by task, as in
  // "ps:1=NAME,worker=NAME,*=auto": of a task, of a job's tasks, of all others. A task may also be
  // written /job:ps/task:1. kInvalidArgument quotes what is wrong.
  static Result<TransportRules> Parse(const std::string& text,
                                      Span<const TransportFactory> known = Transports());

  // What the connection of two tasks is to use: a name or "auto". A rule is about the connections
  // of its tasks, whichever side connects, so that both sides find the same; one of a task counts
  // more than one of a job, and that more than "*"; of equals the first.
  const std::string& For(const std::string& one, const std::string& other) const;
  // Whether any connection may use a transport.
  bool MayUse(const std::string& transport) const;
  // As given to Parse.
  const std::string& text() const { return text_; }

 private:
  struct Rule {
    std::string task;  // "ps:1", "ps" or "*"
    std::string transport;
  };

  std::string text_;
  std::vector<Rule> rules_;  // what counts more comes first; the last is of "*"
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_TRANSPORT_RULES_H_
