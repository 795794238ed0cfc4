#include <algorithm>

#include "device/model/products.h"

namespace vpod::model {
namespace {

using program::v1::Convolution;
using Plane = PlannedConvolution::Plane;

// Two dimensions of what has one to three: the first two of three go together.
template <class Sizes>
Plane PlaneOf(const Sizes& sizes, size_t first = 0) {
  Plane plane = {1, 1};
  const auto end = static_cast<size_t>(sizes.size());
  for (size_t i = first; i < end; ++i)
    plane[i + 1 == end ? 1 : 0] *= static_cast<uint64_t>(sizes[static_cast<int>(i)]);
  return plane;
}

bool IsOne(const Plane& plane) { return plane == Plane{1, 1}; }

// The three passes as convolutions (spec/planner.md 4).
class Passes {
 public:
  Passes(const Instruction& instruction, const PlanContext& context)
      : op_(instruction.convolution()),
        window_(op_.window()),
        a_(context.Type(instruction.inputs(0))),
        b_(context.Type(instruction.inputs(1))),
        output_(context.Type(instruction.outputs(0))),
        stride_(PlaneOf(window_.stride())),
        dilation_(PlaneOf(window_.dilation())),
        kernel_(PlaneOf(window_.kernel())) {}

  // Image and weights of the result lie anywhere.
  PlannedConvolution Plan() const {
    const uint64_t groups = op_.groups();
    PlannedConvolution plan{.groups = groups, .half = a_.type == program::v1::FLOAT16};
    SetOptions(op_.plan(), plan);
    switch (op_.pass()) {
      case Convolution::INPUT_GRADIENT:
        InputGradient(plan, Dim(a_, 1) / groups, Dim(output_, 1) / groups);
        break;
      case Convolution::WEIGHT_GRADIENT:
        WeightGradient(plan, Dim(a_, 1) / groups, Dim(b_, 1) / groups);
        break;
      default:
        Forward(plan, Dim(a_, 1) / groups, Dim(output_, 1) / groups);
    }
    return plan;
  }

 private:
  static uint64_t Dim(const program::TensorType& type, size_t i) {
    return static_cast<uint64_t>(type.dims[i]);
  }

  bool HasPadding() const {
    const auto pads = [](uint32_t pad) { return pad > 0; };
    return std::any_of(window_.pad_before().begin(), window_.pad_before().end(), pads) ||
           std::any_of(window_.pad_after().begin(), window_.pad_after().end(), pads);
  }
  // The pixels of images are rows of a product.
  bool IsPointwise() const { return IsOne(kernel_) && !HasPadding(); }

  void Forward(PlannedConvolution& plan, uint64_t channels, uint64_t outputs) const {
    plan.batch = Dim(a_, 0);
    plan.inputs = channels;
    plan.outputs = outputs;
    plan.field = PlaneOf(output_.dims, 2);
    plan.kernel = kernel_;
    plan.stride = stride_;
    plan.dilation = dilation_;
    if (IsPointwise() && IsOne(stride_)) FlattenField(plan);
  }

  void InputGradient(PlannedConvolution& plan, uint64_t outputs, uint64_t channels) const {
    plan.batch = Dim(a_, 0);
    plan.inputs = outputs;
    plan.outputs = channels;
    plan.kernel = kernel_;
    if (IsPointwise()) {
      // Zeros between the pixels are put there afterwards.
      plan.field = PlaneOf(a_.dims, 2);
      return FlattenField(plan);
    }
    plan.field = PlaneOf(output_.dims, 2);
    plan.dilation = dilation_;
    plan.spread = stride_;
  }

  // Images are the channels here, and the field of the forward pass is the window.
  void WeightGradient(PlannedConvolution& plan, uint64_t channels, uint64_t outputs) const {
    plan.batch = channels;
    plan.outputs = outputs;
    const Plane field = PlaneOf(b_.dims, 2);
    plan.inputs = std::max<uint64_t>(1, Dim(a_, 0));  // sums of nothing are written
    if (IsPointwise()) {
      plan.inputs *= field[0] * field[1];
      return;
    }
    plan.field = kernel_;
    plan.kernel = field;
    plan.stride = dilation_;
    plan.dilation = stride_;
  }

  static void FlattenField(PlannedConvolution& plan) {
    plan.batch *= plan.field[0] * plan.field[1];
    plan.field = {1, 1};
  }

  const Convolution& op_;
  const program::v1::SlidingWindow& window_;
  const program::TensorType a_, b_, output_;
  const Plane stride_, dilation_, kernel_;
};

TilePlan ConvolutionPlan(const Instruction& instruction, const PlanContext& context) {
  using enum PlannedConvolution::Place;
  PlannedConvolution plan = Passes(instruction, context).Plan();
  // Images lie with the channels innermost, as the passes read them that add over channels.
  const Convolution::Pass pass = instruction.convolution().pass();
  plan.image = PlaceOf(instruction, context, 0,
                       pass == Convolution::WEIGHT_GRADIENT ? kInOtherOrder : kElsewhere);
  plan.weights =
      PlaceOf(instruction, context, 1, pass == Convolution::FORWARD ? kElsewhere : kInOtherOrder);
  return PlanOf(context.PartitionOf(plan));
}

}  // namespace

std::vector<PlanDef> ConvolutionPlans() { return {{Instruction::kConvolution, ConvolutionPlan}}; }

}  // namespace vpod::model
