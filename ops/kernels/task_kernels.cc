// RdmabatchConfigure, RdmabatchConnect and RdmabatchSoftware: this process and its task.
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

// A process that was given a token serves nobody who has another: what it was started for is
// another job.
Status CheckOwnToken(const std::string& token) {
  const char* own = std::getenv("TF_RDMABATCH_TOKEN");
  if (own == nullptr || *own == '\0' || token == own) return Status::Ok();
  return {StatusCode::kPermissionDenied,
          "this task was started with another token than the chief has: set the same "
          "TF_RDMABATCH_TOKEN for all tasks of the job, or for none but the chief"};
}

class ConfigureKernel : public tensorflow::OpKernel {
 public:
  explicit ConfigureKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    int64_t slots = 0;
    int64_t slot_bytes = 0;
    int64_t threads = 0;
    int64_t contributor = 0;
    float spin_us = 0;
    std::string confirm;
    OP_REQUIRES_OK(construction, construction->GetAttr("transport", &options_.engine.transport));
    OP_REQUIRES_OK(construction, construction->GetAttr("ports", &options_.engine.ports));
    OP_REQUIRES_OK(construction, construction->GetAttr("slots", &slots));
    OP_REQUIRES_OK(construction, construction->GetAttr("slot_bytes", &slot_bytes));
    OP_REQUIRES_OK(construction, construction->GetAttr("threads", &threads));
    OP_REQUIRES_OK(construction, construction->GetAttr("contributor", &contributor));
    OP_REQUIRES_OK(construction, construction->GetAttr("confirm", &confirm));
    OP_REQUIRES_OK(construction, construction->GetAttr("spin_us", &spin_us));
    OP_REQUIRES_OK(construction, construction->GetAttr("tune_blocks", &options_.tune_blocks));
    options_.engine.software.push_back({"TensorFlow", TENSORFLOW_MINOR});
    options_.engine.confirm = confirm == "each" ? Confirm::kEach : Confirm::kBatch;
    options_.engine.slots = static_cast<uint32_t>(slots);
    options_.engine.slot_bytes = static_cast<uint32_t>(slot_bytes);
    options_.engine.spin_us = spin_us;
    options_.threads = static_cast<int>(threads);
    options_.contributor = static_cast<uint32_t>(contributor);
  }

  void Compute(OpKernelContext* context) override {
    TaskOptions options = options_;
    options.engine.name = context->input(0).scalar<tstring>()();
    options.engine.token = context->input(1).scalar<tstring>()();
    options.listen = context->input(2).scalar<tstring>()();
    OP_REQUIRES_OK(context, ToAbsl(CheckOwnToken(options.engine.token)));
    auto task = Task::Start(options);
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    Tensor* address = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &address));
    address->scalar<tstring>()() = (*task)->address();
  }

 private:
  TaskOptions options_;
};

// Rows of a name and a value: on which host this process runs, and what it has in which version.
// Its name and its result stay what they are, so that any two versions can tell each other.
class SoftwareKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    std::vector<SoftwareVersion> rows = {{"host", HostIdentity::OfThisHost().name}};
    for (SoftwareVersion& own : SoftwareOfThisLibrary()) rows.push_back(std::move(own));
    rows.push_back({"TensorFlow", TENSORFLOW_MINOR});
    Tensor* software = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, {static_cast<int64_t>(rows.size()), 2}, &software));
    for (size_t i = 0; i < rows.size(); ++i) {
      software->matrix<tstring>()(i, 0) = rows[i].name;
      software->matrix<tstring>()(i, 1) = rows[i].version;
    }
  }
};

class ConnectKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit ConnectKernel(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("timeout", &timeout_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Run run{context, std::move(done), nullptr, timeout_, "connecting to the job's tasks"};
    auto task = CurrentTask();
    if (!task.ok()) return run.End(task.status());
    run.task = std::move(*task);
    const Tensor& names = context->input(0);
    const Tensor& addresses = context->input(1);
    if (names.NumElements() != addresses.NumElements()) {
      return run.End({StatusCode::kInvalidArgument, "each peer needs a name and an address"});
    }
    std::vector<std::pair<std::string, std::string>> peers;
    for (int64_t i = 0; i < names.NumElements(); ++i) {
      peers.emplace_back(names.flat<tstring>()(i), addresses.flat<tstring>()(i));
    }
    auto waiter = Pend(run, [context, count = peers.size()] {
      Tensor* connected = nullptr;
      RDMABATCH_RETURN_IF_ERROR(FromAbsl(context->allocate_output(0, {}, &connected)));
      connected->scalar<int32_t>()() = static_cast<int32_t>(count);
      return Status::Ok();
    });
    const Deadline deadline = Deadline::After(timeout_);
    run.task->PostControl([task = run.task, peers, deadline, waiter] {
      Status status;
      for (const auto& [name, address] : peers) {
        if (status.ok()) status = task->Connect(name, address, deadline, *waiter);
      }
      waiter->End(status);
    });
  }

 private:
  float timeout_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchConfigure").Device(tensorflow::DEVICE_CPU), ConfigureKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchSoftware").Device(tensorflow::DEVICE_CPU), SoftwareKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchConnect").Device(tensorflow::DEVICE_CPU), ConnectKernel);

}  // namespace
}  // namespace rdmabatch::ops
