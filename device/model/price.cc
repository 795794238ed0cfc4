#include "device/arch/hardware.h"
#include "device/model/cost.h"
#include "device/program/ops/collective.h"

namespace vpod::model {
namespace {

using program::v1::Instruction;

// Worker cycles for one 64-bit vector (7.3 and 7.4; F20 for what is not listed there).
double UnaryCycles(program::v1::UnaryOperator op, bool half) {
  switch (op) {
    case program::v1::EXPONENT:
      return half ? 4 : 6;
    case program::v1::LOGARITHM:
    case program::v1::TANH:
      return half ? 4 : 12;
    case program::v1::SIGMOID:
      return half ? 6 : 12;
    case program::v1::SQUARE_ROOT:
      return half ? 23 : 10;
    case program::v1::RECIPROCAL:
      return half ? 21 : 10;
    default:
      return 3;
  }
}

double BinaryCycles(program::v1::BinaryOperator op, bool half) {
  switch (op) {
    case program::v1::DIVIDE:
      return half ? 21 : 10;
    case program::v1::MAXIMUM:
    case program::v1::MINIMUM:
      return half ? 4 : 3;
    case program::v1::TANH_GRADIENT:
    case program::v1::SIGMOID_GRADIENT:
      return 9;  // three arithmetic passes (F20)
    default:
      return 3;
  }
}

class Pricer {
 public:
  Pricer(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology)
      : executable_(executable), ipu_(ipu), topology_(topology) {}

  Cost Step(const Instruction& instruction) const {
    switch (instruction.step_case()) {
      case Instruction::kFill:
        return Elementwise(instruction.fill().output(), 1);
      case Instruction::kCopy:
        return Elementwise(instruction.copy().output(), 2);
      case Instruction::kCast:
        return Elementwise(instruction.cast().output(), 3);
      case Instruction::kUnary:
        return Elementwise(
            instruction.unary().output(),
            UnaryCycles(instruction.unary().operator_(), IsHalf(instruction.unary().input())));
      case Instruction::kBinary:
        return Binary(instruction.binary());
      case Instruction::kReduce:
        return ReduceCost(Elements(instruction.reduce().input()),
                          Elements(instruction.reduce().output()),
                          Type(instruction.reduce().input()).type);
      case Instruction::kArgMax:
        return ReduceCost(Elements(instruction.arg_max().input()),
                          Elements(instruction.arg_max().output()),
                          Type(instruction.arg_max().input()).type);
      case Instruction::kMatMul:
        return MatMul(instruction.mat_mul());
      case Instruction::kConv2D:
        return Conv2d(instruction.conv2d());
      case Instruction::kMaxPool2D:
        return Pool(instruction.max_pool2d().output(), instruction.max_pool2d().window());
      case Instruction::kMaxPool2DGradient:
        return Pool(instruction.max_pool2d_gradient().output_gradient(),
                    instruction.max_pool2d_gradient().window());
      case Instruction::kSoftmaxCrossEntropy:
        // Maximum, subtraction, exponential, sum, division and logarithm.
        return Elementwise(instruction.softmax_cross_entropy().logits(), 25);
      case Instruction::kSoftmaxCrossEntropyGradient:
        return Elementwise(instruction.softmax_cross_entropy_gradient().probabilities(), 6);
      case Instruction::kAccumulate:
        return Elementwise(instruction.accumulate().gradient(), 3);
      case Instruction::kSgd:
        return Elementwise(instruction.sgd().weights(), instruction.sgd().has_velocity() ? 9 : 3);
      case Instruction::kAllReduce:
      case Instruction::kReduceScatter:
      case Instruction::kAllGather:
      case Instruction::kAllToAll:
      case Instruction::kBroadcast:
        return Collective(*program::CollectiveOf(instruction));
      case Instruction::kStreamIn:
        return StreamIn(instruction.stream_in().stream());
      case Instruction::kStreamOut:
        return StreamOut(instruction.stream_out().stream());
      case Instruction::kSend:
        return InterIpuCopyCost(Type(instruction.send().tensor()).bytes(), ipu_,
                                instruction.send().to_ipu(), topology_);
      case Instruction::kReceive:
        return InterIpuCopyCost(Type(instruction.receive().tensor()).bytes(),
                                instruction.receive().from_ipu(), ipu_, topology_);
      case Instruction::kRepeat:
      case Instruction::STEP_NOT_SET:
        break;
    }
    return {};
  }

 private:
  program::TensorType Type(uint32_t tensor) const {
    return program::TypeOf(executable_.ipus(ipu_).tensors(tensor));
  }
  uint64_t Elements(uint32_t tensor) const {
    return static_cast<uint64_t>(Type(tensor).elements());
  }
  bool IsHalf(uint32_t tensor) const { return Type(tensor).type == program::v1::FLOAT16; }

  Cost Elementwise(uint32_t tensor, double cycles_per_vector) const {
    Cost cost;
    cost.compute = ElementwiseCycles(Elements(tensor), Type(tensor).type, cycles_per_vector);
    return cost;
  }

  Cost Binary(const program::v1::Binary& op) const {
    const program::TensorType a = Type(op.a()), b = Type(op.b());
    Cost cost;
    cost.compute = ElementwiseCycles(Elements(op.output()), a.type,
                                     BinaryCycles(op.operator_(), IsHalf(op.a())));
    // A broadcast operand first has to reach every tile.
    if (a.dims != b.dims) cost += ExchangePhase(std::min(a.bytes(), b.bytes()));
    return cost;
  }

  Cost MatMul(const program::v1::MatMul& op) const {
    const program::TensorType a = Type(op.a()), output = Type(op.output());
    return MatMulCost(output.dims[0], a.dims[op.transpose_a() ? 0 : 1], output.dims[1], a.type);
  }

  // A convolution is the matmul of its unrolled windows (all three passes).
  Cost Conv2d(const program::v1::Conv2d& op) const {
    const program::TensorType a = Type(op.a()), b = Type(op.b()), output = Type(op.output());
    const auto multiply = [](const program::Dims& d, size_t first, size_t last) {
      uint64_t n = 1;
      for (size_t i = first; i < last; ++i) n *= static_cast<uint64_t>(d[i]);
      return n;
    };
    switch (op.pass()) {
      case program::v1::Conv2d::FORWARD:
        return MatMulCost(multiply(output.dims, 0, 3), multiply(b.dims, 0, 3), output.dims[3],
                          a.type);
      case program::v1::Conv2d::INPUT_GRADIENT:
        return MatMulCost(multiply(a.dims, 0, 3), static_cast<uint64_t>(a.dims[3]),
                          multiply(b.dims, 0, 3), a.type);
      default:
        return MatMulCost(multiply(output.dims, 0, 3), multiply(b.dims, 0, 3), output.dims[3],
                          a.type);
    }
  }

  Cost Pool(uint32_t result, const program::v1::Window& window) const {
    Cost cost;
    cost.compute = ElementwiseCycles(Elements(result) * window.kernel_h() * window.kernel_w(),
                                     Type(result).type, 3);
    return cost;
  }

  Cost StreamIn(uint32_t stream) const {
    Cost cost = Stream(stream);
    cost.from_host = StreamBytes(stream);
    return cost;
  }

  Cost StreamOut(uint32_t stream) const {
    Cost cost = Stream(stream);
    cost.to_host = StreamBytes(stream);
    return cost;
  }

  Bytes StreamBytes(uint32_t index) const {
    return Bytes(program::TypeOf(executable_.streams(static_cast<int>(index))).bytes());
  }

  Cost Stream(uint32_t index) const {
    const uint32_t tiles = executable_.streams(static_cast<int>(index)).tiles();
    return StreamCost(StreamBytes(index).value(), tiles == 0 ? arch::kTilesPerIpu : tiles,
                      topology_);
  }

  Cost Collective(const program::Collective& op) const {
    // Groups are alike; that they make up the job is checked elsewhere.
    const program::GroupMembers group = program::MembersOf(*op.group, topology_.num_replicas, 0);
    CollectiveLoad load{.kind = op.kind, .members = group.size, .stride = group.stride};
    for (uint32_t tensor : op.kind == Instruction::kAllGather ? *op.outputs : *op.inputs) {
      load.bytes += Type(tensor).bytes();
      load.elements += Elements(tensor);
    }
    return CollectiveCost(load, topology_);
  }

  const program::v1::Executable& executable_;
  const uint32_t ipu_;
  const Topology& topology_;
};

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  compute += other.compute;
  exchange += other.exchange;
  sync += other.sync;
  from_host += other.from_host;
  to_host += other.to_host;
  return *this;
}

Cost operator*(Cost cost, uint64_t times) {
  return {cost.compute * times, cost.exchange * times, cost.sync * times, cost.from_host * times,
          cost.to_host * times};
}

Cost Price(const program::v1::Executable& executable, uint32_t ipu, const Instruction& instruction,
           const Topology& topology) {
  Cost cost = Pricer(executable, ipu, topology).Step(instruction);
  cost.compute += Cycles(arch::kControlCyclesPerStep);
  return cost;
}

Cost PriceProgram(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
                  const Topology& topology) {
  Cost total;
  program::ForEachInstruction(executable.programs(program).blocks(ipu).instructions(), 1,
                              [&](const Instruction& instruction, uint64_t times) {
                                total += Price(executable, ipu, instruction, topology) * times;
                              });
  return total;
}

}  // namespace vpod::model
