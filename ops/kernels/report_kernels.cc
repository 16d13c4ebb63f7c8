// RdmabatchStats, RdmabatchRoundTimes, RdmabatchRoundReport, RdmabatchUpdated and
// RdmabatchTransports: what this process's task says of itself.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

// Sets an output to a vector of strings.
absl::Status SetStrings(OpKernelContext* context, int output,
                        const std::vector<std::string>& strings) {
  Tensor* tensor = nullptr;
  TF_RETURN_IF_ERROR(
      context->allocate_output(output, {static_cast<int64_t>(strings.size())}, &tensor));
  for (size_t i = 0; i < strings.size(); ++i) tensor->flat<tstring>()(i) = strings[i];
  return absl::OkStatus();
}

class StatsKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    const CounterValues counters = (*task)->counters();
    const RoundTotals totals = (*task)->times().totals();
    std::vector<std::string> names;
    std::vector<int64_t> values;
#define RDMABATCH_X(name, meaning) \
  names.emplace_back(#name);       \
  values.push_back(static_cast<int64_t>(counters.name));
    RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X
#define RDMABATCH_X(name, meaning) \
  names.emplace_back(#name);       \
  values.push_back(totals.name);
    RDMABATCH_ROUND_TOTALS(RDMABATCH_X)
#undef RDMABATCH_X
    names.emplace_back("tuned_block_bytes");
    values.push_back(static_cast<int64_t>((*task)->tuned_bytes()));
    OP_REQUIRES_OK(context, SetStrings(context, 0, names));
    Tensor* tensor = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(1, {static_cast<int64_t>(values.size())}, &tensor));
    std::copy(values.begin(), values.end(), tensor->flat<int64_t>().data());
  }
};

class RoundTimesKernel : public tensorflow::OpKernel {
 public:
  explicit RoundTimesKernel(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("last", &last_));
  }

  void Compute(OpKernelContext* context) override {
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    const std::vector<std::string> names = {
#define RDMABATCH_X(name, meaning) #name,
        RDMABATCH_ROUND_FIELDS(RDMABATCH_X)
#undef RDMABATCH_X
    };
    OP_REQUIRES_OK(context, SetStrings(context, 0, names));
    const std::vector<Round> rounds = (*task)->times().Last(static_cast<size_t>(last_));
    const auto columns = static_cast<int64_t>(names.size() + Round::kMicroSteps);
    Tensor* tensor = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                1, {static_cast<int64_t>(rounds.size()), columns}, &tensor));
    int64_t* out = tensor->flat<int64_t>().data();
    for (const Round& round : rounds) {
#define RDMABATCH_X(name, meaning) *out++ = round.name;
      RDMABATCH_ROUND_FIELDS(RDMABATCH_X)
#undef RDMABATCH_X
      out = std::copy(round.micro_step_end.begin(), round.micro_step_end.end(), out);
    }
  }

 private:
  int64_t last_ = 0;
};

class RoundReportKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    auto number = NumberOf(context, "number", 1);
    OP_REQUIRES_OK(context, ToAbsl(number.status()));
    const Round round = (*task)->times().Of(*number);
    const int64_t fields[] = {*number,
#define RDMABATCH_X(name, meaning) round.name,
                              RDMABATCH_ROUND_FIELDS(RDMABATCH_X)
#undef RDMABATCH_X
    };
    Tensor* tensor = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, {static_cast<int64_t>(std::size(fields))}, &tensor));
    std::copy(std::begin(fields), std::end(fields), tensor->flat<int64_t>().data());
  }
};

class UpdatedKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    auto step = NumberOf(context, "step", 1);
    OP_REQUIRES_OK(context, ToAbsl(step.status()));
    (*task)->times().Updated(*step);
  }
};

class TransportsKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    std::vector<std::string> peers;
    std::vector<std::string> transports;
    for (auto& [peer, transport] : (*task)->Transports()) {
      peers.push_back(peer);
      transports.push_back(std::move(transport));
    }
    OP_REQUIRES_OK(context, SetStrings(context, 0, peers));
    OP_REQUIRES_OK(context, SetStrings(context, 1, transports));
  }
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchStats").Device(tensorflow::DEVICE_CPU), StatsKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchRoundTimes").Device(tensorflow::DEVICE_CPU),
                        RoundTimesKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchRoundReport").Device(tensorflow::DEVICE_CPU),
                        RoundReportKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchUpdated").Device(tensorflow::DEVICE_CPU), UpdatedKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchTransports").Device(tensorflow::DEVICE_CPU),
                        TransportsKernel);

}  // namespace
}  // namespace rdmabatch::ops
