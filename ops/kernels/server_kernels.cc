// RdmabatchServe, RdmabatchPublish, RdmabatchPublishVariables and RdmabatchCollect: what a server
// does with parameters.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/kernel.h"
#include "ops/kernels/tensor_buffer.h"
#include "tensorflow/core/framework/resource_var.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ServeKernel : public tensorflow::OpKernel {
 public:
  explicit ServeKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    std::vector<std::string> names;
    std::vector<tensorflow::DataType> dtypes;
    std::vector<tensorflow::TensorShape> shapes;
    std::vector<int64_t> sizes;
    int64_t contributors = 1;
    int64_t versions = 1;
    int64_t block_bytes = 0;
    std::string consistency;
    OP_REQUIRES_OK(construction, construction->GetAttr("names", &names));
    OP_REQUIRES_OK(construction, construction->GetAttr("dtypes", &dtypes));
    OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes));
    OP_REQUIRES_OK(construction, construction->GetAttr("sizes", &sizes));
    OP_REQUIRES_OK(construction, construction->GetAttr("contributors", &contributors));
    OP_REQUIRES_OK(construction, construction->GetAttr("versions", &versions));
    OP_REQUIRES_OK(construction, construction->GetAttr("consistency", &consistency));
    OP_REQUIRES_OK(construction, construction->GetAttr("block_bytes", &block_bytes));
    auto shape = shapes.begin();
    for (size_t i = 0; i < names.size(); ++i) {
      const Layout layout(dtypes[i], {shape, shape + sizes[i]});
      shape += sizes[i];
      ParameterSpec& spec = specs_.emplace_back();
      spec.name = names[i];
      spec.dtype = FromTensorFlow(dtypes[i]).value_or(DType::kFloat32);
      spec.shape = layout.EngineShape();
      spec.contributors = static_cast<uint32_t>(contributors);
      spec.versions = static_cast<uint32_t>(versions);
      spec.block_bytes =
          block_bytes < 0 ? BlockTuner::kGrainBytes : static_cast<uint32_t>(block_bytes);
      spec.consistency = consistency == "asp" ? Consistency::kAsp : Consistency::kBsp;
    }
  }

  void Compute(OpKernelContext* context) override {
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    for (const ParameterSpec& spec : specs_) {
      OP_REQUIRES_OK(context, ToAbsl((*task)->server().Serve(spec)));
    }
    Tensor* served = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &served));
    served->scalar<int32_t>()() = static_cast<int32_t>(specs_.size());
  }

 private:
  std::vector<ParameterSpec> specs_;
};

// Those that lie there already have no data: nothing is copied.
std::vector<PublishedPiece> PiecesOf(const Parameter& parameter, const TensorRefs& values,
                                     const SharedView* view) {
  const Layout& layout = parameter.spec.layout;
  std::vector<PublishedPiece> pieces;
  for (size_t i = 0; i < values.size(); ++i) {
    const void* data = values[i]->data();
    if (view != nullptr && data == view->data() + layout.offsets[i]) data = nullptr;
    if (layout.bytes_of(i) == 0) data = nullptr;
    pieces.push_back({layout.offsets[i], layout.bytes_of(i), data});
  }
  return pieces;
}

class PublishKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto parameter = ParameterOf(context);
    OP_REQUIRES_OK(context, ToAbsl(parameter.status()));
    auto version = NumberOf(context, "version", 1);
    OP_REQUIRES_OK(context, ToAbsl(version.status()));
    auto values = ValuesOf(context, **parameter);
    OP_REQUIRES_OK(context, ToAbsl(values.status()));
    auto task = (*parameter)->Served();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    const RoundTimes::Op timed = (*task)->times().Publish(*version);
    const auto pieces = PiecesOf(**parameter, *values, nullptr);
    OP_REQUIRES_OK(context, ToAbsl((*task)->server().Publish((*parameter)->spec.name,
                                                             static_cast<uint64_t>(*version),
                                                             {pieces.data(), pieces.size()})));
    timed.Ends();
  }
};

// Variables, locked as long as this lives.
class LockedVariables {
 public:
  explicit LockedVariables(OpKernelContext* context) {
    tensorflow::OpInputList handles;
    status_ = FromAbsl(context->input_list("variables", &handles));
    variables_.resize(handles.size());
    std::vector<tensorflow::Var*> order;
    for (int i = 0; status_.ok() && i < handles.size(); ++i) {
      const auto& handle = handles[i].scalar<tensorflow::ResourceHandle>()();
      status_ = FromAbsl(tensorflow::LookupResource(context, handle, &variables_[i]));
      if (status_.ok()) order.push_back(variables_[i].get());
    }
    if (!status_.ok()) return;
    // As TensorFlow does it, so that nobody waits for the other.
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->mu() < b->mu(); });
    order.erase(std::unique(order.begin(), order.end()), order.end());
    for (tensorflow::Var* variable : order) locks_.emplace_back(*variable->mu());
  }

  const Status& status() const { return status_; }
  Tensor* tensor(size_t i) const { return variables_[i]->tensor(); }
  TensorRefs tensors() const {
    TensorRefs tensors;
    for (const auto& variable : variables_) tensors.push_back(variable->tensor());
    return tensors;
  }

 private:
  Status status_;
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::deque<tensorflow::mutex_lock> locks_;
};

class PublishVariablesKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto parameter = ParameterOf(context);
    OP_REQUIRES_OK(context, ToAbsl(parameter.status()));
    auto version = NumberOf(context, "version", 1);
    OP_REQUIRES_OK(context, ToAbsl(version.status()));
    const LockedVariables variables(context);
    OP_REQUIRES_OK(context, ToAbsl(variables.status()));
    auto task = (*parameter)->Served();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    const RoundTimes::Op timed = (*task)->times().Publish(*version);
    OP_REQUIRES_OK(context, ToAbsl(Publish((*task)->server(), **parameter, variables,
                                           static_cast<uint64_t>(*version))));
    timed.Ends();
  }

 private:
  // What does not lie in the published memory is copied there, and lies there from then on. Where
  // somebody else still reads what lay there before, that becomes a copy.
  static Status Publish(ParameterServer& server, const Parameter& parameter,
                        const LockedVariables& variables, uint64_t version) {
    const TensorRefs values = variables.tensors();
    RDMABATCH_RETURN_IF_ERROR(CheckParts(static_cast<int64_t>(values.size()), parameter));
    RDMABATCH_RETURN_IF_ERROR(parameter.CheckValues(values));
    auto view = ViewOf(server, parameter.spec.name, /*renew=*/false);
    if (!view.ok()) return view.status();
    const auto pieces = PiecesOf(parameter, values, view->get());
    const auto there = std::count_if(pieces.begin(), pieces.end(), [](const PublishedPiece& piece) {
      return piece.data == nullptr && piece.bytes != 0;
    });
    const bool all = there == static_cast<std::ptrdiff_t>(values.size());
    // The server's and this one, and one for each variable that lies there.
    const bool renew = !all && *view != nullptr && view->use_count() > 2 + there;
    if (renew) {
      view->reset();
      view = ViewOf(server, parameter.spec.name, renew);
      if (!view.ok()) return view.status();
    }
    RDMABATCH_RETURN_IF_ERROR(
        server.Publish(parameter.spec.name, version, {pieces.data(), pieces.size()}));
    for (size_t i = 0; *view != nullptr && i < pieces.size(); ++i) {
      if (pieces[i].bytes == 0 || (pieces[i].data == nullptr && !renew)) continue;
      *variables.tensor(i) = parameter.Part(i, *view, const_cast<uint8_t*>((*view)->data()), true);
    }
    return Status::Ok();
  }

  // Null where variables do not lie in the published memory.
  static Result<std::shared_ptr<SharedView>> ViewOf(ParameterServer& server,
                                                    const std::string& name, bool renew) {
    auto info = server.Info(name);
    if (!info.ok()) return info.status();
    if (info->spec.versions != 1 || info->spec.consistency != Consistency::kBsp) {
      return std::shared_ptr<SharedView>();
    }
    return server.PublishedView(name, renew);
  }
};

class CollectKernel : public WaitingKernel {
 public:
  using WaitingKernel::WaitingKernel;

 protected:
  Status Start(Run* run) override {
    auto parameter = ParameterOf(run->context);
    if (!parameter.ok()) return parameter.status();
    RDMABATCH_RETURN_IF_ERROR(CheckParts(run->context->num_outputs(), **parameter));
    auto step = NumberOf(run->context, "step", 1);
    if (!step.ok()) return step.status();
    auto served = (*parameter)->Served();
    if (!served.ok()) return served.status();
    run->what = "collecting " + (*parameter)->DebugString();
    ParameterServer& server = run->task->server();
    const std::string& name = (*parameter)->spec.name;
    const RoundTimes::Op timed = run->task->times().Collect(*step);
    const auto take = [run = *run, parameter = *parameter, step = *step, timed] {
      Status taken = Take(run, *parameter, step);
      timed.Ends();
      return taken;
    };
    if (server.IsComplete(name, *step)) {
      run->End(take());
      return Status::Ok();
    }
    timed.Blocks();
    server.WhenComplete(name, *step, Pend(*run, [take, timed] {
                          timed.Resumes();
                          return take();
                        }));
    return Status::Ok();
  }

 private:
  static Status Take(const Run& run, const Parameter& parameter, uint64_t step) {
    auto sum = run.task->server().TakeSum(parameter.spec.name, step, Deadline::After(0));
    if (!sum.ok()) return sum.status();
    for (size_t i = 0; i < parameter.size(); ++i) {
      run.context->set_output(static_cast<int>(i),
                              parameter.Part(i, *sum, sum->get(), /*exclusive=*/true));
    }
    return Status::Ok();
  }
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchServe").Device(tensorflow::DEVICE_CPU), ServeKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPublish").Device(tensorflow::DEVICE_CPU), PublishKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPublishVariables").Device(tensorflow::DEVICE_CPU),
                        PublishVariablesKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchCollect").Device(tensorflow::DEVICE_CPU), CollectKernel);

}  // namespace
}  // namespace rdmabatch::ops
