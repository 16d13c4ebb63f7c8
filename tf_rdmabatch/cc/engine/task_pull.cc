// What a task pulls, and into which memory.
#include <utility>

#include "tf_rdmabatch/cc/engine/task.h"

namespace rdmabatch {
namespace {

// Of one parameter: what was pulled last may be in use while the next version comes.
constexpr size_t kSpareLandings = 2;
// Smaller ones are read through a buffer that all share, since registering is slow.
constexpr uint64_t kMinRegion = 64 << 10;

}  // namespace

std::unique_ptr<Landing> Task::MakeLanding(const ParameterClient::Parameter& parameter) {
  auto landing = std::make_unique<Landing>();
  const uint64_t bytes = ParameterClient::Info(parameter).bytes;
  if (!ParameterClient::IsDirect(parameter) && bytes >= kMinRegion) {
    auto region = engine_->Allocate(bytes, Access::kLocal);
    // Where no more memory may be registered, there is a copy more.
    if (region.ok()) landing->region = std::move(*region);
  }
  if (landing->region == nullptr) landing->heap = HeapBuffer::Create(bytes);
  return landing->region != nullptr || landing->heap != nullptr ? std::move(landing) : nullptr;
}

Result<Pulled> Task::Pull(RemoteParameter& parameter, uint64_t version, Deadline deadline) {
  ParameterClient::Parameter& opened = *parameter.opened();
  std::shared_ptr<Pool<Landing>> pool;
  {
    std::lock_guard<std::mutex> lock(parameter.views_mutex_);
    if (parameter.landing_ == nullptr) {
      // It may outlive the task, which nobody pulls to by then.
      parameter.landing_ =
          Pool<Landing>::Create(kSpareLandings, [this, &opened] { return MakeLanding(opened); });
    }
    pool = parameter.landing_;
  }
  auto landing = pool->Take();
  if (landing == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "parameter \"" + parameter.expected.name + "\" does not fit in memory");
  }
  RDMABATCH_RETURN_IF_ERROR(client_.Pull(opened, version, landing->data(), parameter.bytes(),
                                         deadline, landing->region.get()));
  void* const data = landing->data();
  return Pulled{std::move(landing), data, true};
}

Result<Pulled> Task::PullView(RemoteParameter& parameter, uint64_t version, Deadline deadline) {
  auto view = ViewOf(parameter, version);
  if (!view.ok()) return view.status();
  if (*view == nullptr) return Pull(parameter, version, deadline);
  counters_.views.AddShared(1);
  counters_.bytes_viewed.AddShared(parameter.bytes());
  void* const data = const_cast<uint8_t*>((*view)->data());
  return Pulled{std::move(*view), data, false};
}

Status Task::Release(RemoteParameter& parameter) {
  std::lock_guard<std::mutex> lock(parameter.views_mutex_);
  for (RemoteParameter::View& view : parameter.views_) {
    RDMABATCH_RETURN_IF_ERROR(DetachUsed(view, parameter));
  }
  return Status::Ok();
}

Status Task::DetachUsed(RemoteParameter::View& view, const RemoteParameter& parameter) {
  // Nobody gives it away meanwhile, so a number that is 1 stays 1.
  if (view.memory == nullptr || view.memory.use_count() == 1) return Status::Ok();
  RDMABATCH_RETURN_IF_ERROR(view.memory->Detach());
  view.memory = nullptr;
  counters_.copies.AddShared(1);
  counters_.bytes_copied.AddShared(parameter.bytes());
  return Status::Ok();
}

Result<std::shared_ptr<SharedView>> Task::ViewOf(RemoteParameter& parameter, uint64_t version) {
  std::lock_guard<std::mutex> lock(parameter.views_mutex_);
  const uint8_t* const shared = client_.Shared(*parameter.opened(), version);
  if (shared == nullptr) return std::shared_ptr<SharedView>();
  const bool one = ParameterClient::Info(*parameter.opened()).spec.versions == 1;
  for (RemoteParameter::View& view : parameter.views_) {
    if (!one && view.version < version) RDMABATCH_RETURN_IF_ERROR(DetachUsed(view, parameter));
  }
  RemoteParameter::View& view = parameter.views_[one ? 0 : version % 2];
  if (view.memory == nullptr) {
    auto memory = SharedView::Of(shared, parameter.bytes());
    if (!memory.ok()) return std::shared_ptr<SharedView>();
    view.memory = std::move(*memory);
  }
  view.version = version;
  return view.memory;
}

}  // namespace rdmabatch
