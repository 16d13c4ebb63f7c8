#include "tf_rdmabatch/cc/engine/transport_rules.h"

#include <algorithm>
#include <string_view>

namespace rdmabatch {
namespace {

constexpr std::string_view kAll = "*";
constexpr std::string_view kJob = "/job:";
constexpr std::string_view kTask = "/task:";

// "/job:ps/task:1" is "ps:1"; "/job:ps" and "/job:ps/task:*" are "ps".
std::string Normal(std::string_view task) {
  if (task.substr(0, kJob.size()) == kJob) {
    task.remove_prefix(kJob.size());
    const size_t slash = task.find(kTask);
    if (slash == std::string_view::npos) return std::string(task);
    return Normal(std::string(task.substr(0, slash)) + ":" +
                  std::string(task.substr(slash + kTask.size())));
  }
  if (task.size() > 2 && task.substr(task.size() - 2) == ":*") task.remove_suffix(2);
  return std::string(task);
}

int Weight(const std::string& task) {
  if (task == kAll) return 0;
  return task.find(':') == std::string::npos ? 1 : 2;
}

bool Fits(const std::string& rule, const std::string& task) {
  return rule == kAll || rule == task || rule == task.substr(0, task.find(':'));
}

Status Unknown(const std::string& name, Span<const TransportFactory> known) {
  std::string names = TransportRules::kAuto;
  for (const TransportFactory& factory : known) names += std::string(", ") + factory.name;
  return {StatusCode::kInvalidArgument, "no transport \"" + name + "\": choose one of " + names +
                                            ", or give rules by task (ps:1=" + known[0].name +
                                            ",*=auto)"};
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Result<TransportRules> TransportRules::Parse(const std::string& text,
                                             Span<const TransportFactory> known) {
  TransportRules rules;
  rules.text_ = text;
  for (const std::string& part : Split(text)) {
    const size_t equal = part.find('=');
    const bool whole = equal == std::string::npos;
    Rule rule{whole ? std::string(kAll) : Normal(part.substr(0, equal)),
              whole ? part : part.substr(equal + 1)};
    const bool exists =
        rule.transport == kAuto ||
        std::any_of(known.begin(), known.end(), [&](const TransportFactory& factory) {
          return rule.transport == factory.name;
        });
    if (rule.task.empty() || (whole && text.size() != part.size()) || !exists) {
      return Unknown(whole ? text : part, known);
    }
    rules.rules_.push_back(std::move(rule));
  }
  rules.rules_.push_back({std::string(kAll), kAuto});
  std::stable_sort(rules.rules_.begin(), rules.rules_.end(),
                   [](const Rule& a, const Rule& b) { return Weight(a.task) > Weight(b.task); });
  return rules;
}

const std::string& TransportRules::For(const std::string& one, const std::string& other) const {
  for (const Rule& rule : rules_) {
    if (Fits(rule.task, one) || Fits(rule.task, other)) return rule.transport;
  }
  return rules_.back().transport;
}

bool TransportRules::MayUse(const std::string& transport) const {
  for (const Rule& rule : rules_) {
    if (rule.transport == kAuto || rule.transport == transport) return true;
    if (rule.task == kAll) return false;  // what stands behind it never counts
  }
  return false;
}

}  // namespace rdmabatch
