// Which tensors an instruction reads and writes. The one place that knows the tensor fields of
// every instruction; the compiler renumbers and plans memory with it.
#pragma once

#include "proto/program/v1/program.pb.h"

namespace vpod::graph {

// The tensors of a collective.
template <class Op, class Read, class Write>
void VisitLists(Op& op, const Read& read, const Write& write) {
  for (uint32_t& index : *op.mutable_inputs()) read(&index);
  for (uint32_t& index : *op.mutable_outputs()) write(&index);
}

// Calls `read` and `write` with a pointer to each tensor index of a computing or transferring
// instruction (not of a Repeat's body). Both may change the index. A tensor that is updated in
// place is visited by `read`, then by `write`.
template <class Read, class Write>
void VisitTensors(program::v1::Instruction& instruction, const Read& read, const Write& write) {
  using program::v1::Instruction;
  const auto in = [&](uint32_t index, auto&& set) {
    read(&index);
    set(index);
  };
  const auto out = [&](uint32_t index, auto&& set) {
    write(&index);
    set(index);
  };
#define VPOD_IN(message, field) \
  in((message)->field(), [&](uint32_t i) { (message)->set_##field(i); })
#define VPOD_OUT(message, field) \
  out((message)->field(), [&](uint32_t i) { (message)->set_##field(i); })
  switch (instruction.step_case()) {
    case Instruction::kFill: {
      auto* op = instruction.mutable_fill();
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kCopy: {
      auto* op = instruction.mutable_copy();
      VPOD_IN(op, input);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kCast: {
      auto* op = instruction.mutable_cast();
      VPOD_IN(op, input);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kUnary: {
      auto* op = instruction.mutable_unary();
      VPOD_IN(op, input);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kBinary: {
      auto* op = instruction.mutable_binary();
      VPOD_IN(op, a);
      VPOD_IN(op, b);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kReduce: {
      auto* op = instruction.mutable_reduce();
      VPOD_IN(op, input);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kArgMax: {
      auto* op = instruction.mutable_arg_max();
      VPOD_IN(op, input);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kMatMul: {
      auto* op = instruction.mutable_mat_mul();
      VPOD_IN(op, a);
      VPOD_IN(op, b);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kConv2D: {
      auto* op = instruction.mutable_conv2d();
      VPOD_IN(op, a);
      VPOD_IN(op, b);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kMaxPool2D: {
      auto* op = instruction.mutable_max_pool2d();
      VPOD_IN(op, input);
      VPOD_OUT(op, output);
      break;
    }
    case Instruction::kMaxPool2DGradient: {
      auto* op = instruction.mutable_max_pool2d_gradient();
      VPOD_IN(op, input);
      VPOD_IN(op, output_gradient);
      VPOD_OUT(op, input_gradient);
      break;
    }
    case Instruction::kSoftmaxCrossEntropy: {
      auto* op = instruction.mutable_softmax_cross_entropy();
      VPOD_IN(op, logits);
      VPOD_IN(op, labels);
      VPOD_OUT(op, loss);
      VPOD_OUT(op, probabilities);
      break;
    }
    case Instruction::kSoftmaxCrossEntropyGradient: {
      auto* op = instruction.mutable_softmax_cross_entropy_gradient();
      VPOD_IN(op, probabilities);
      VPOD_IN(op, labels);
      VPOD_IN(op, loss_gradient);
      VPOD_OUT(op, logits_gradient);
      break;
    }
    case Instruction::kAccumulate: {
      auto* op = instruction.mutable_accumulate();
      VPOD_IN(op, gradient);
      VPOD_IN(op, accumulator);
      VPOD_OUT(op, accumulator);
      break;
    }
    case Instruction::kSgd: {
      auto* op = instruction.mutable_sgd();
      VPOD_IN(op, weights);
      VPOD_IN(op, gradient);
      VPOD_IN(op, learning_rate);
      if (op->has_velocity()) VPOD_IN(op, velocity);
      VPOD_OUT(op, weights);
      if (op->has_velocity()) VPOD_OUT(op, velocity);
      break;
    }
    case Instruction::kAllReduce:
      VisitLists(*instruction.mutable_all_reduce(), read, write);
      break;
    case Instruction::kReduceScatter:
      VisitLists(*instruction.mutable_reduce_scatter(), read, write);
      break;
    case Instruction::kAllGather:
      VisitLists(*instruction.mutable_all_gather(), read, write);
      break;
    case Instruction::kAllToAll:
      VisitLists(*instruction.mutable_all_to_all(), read, write);
      break;
    case Instruction::kBroadcast:
      VisitLists(*instruction.mutable_broadcast(), read, write);
      break;
    case Instruction::kStreamIn: {
      auto* op = instruction.mutable_stream_in();
      VPOD_OUT(op, tensor);
      break;
    }
    case Instruction::kStreamOut: {
      auto* op = instruction.mutable_stream_out();
      VPOD_IN(op, tensor);
      break;
    }
    case Instruction::kSend: {
      auto* op = instruction.mutable_send();
      VPOD_IN(op, tensor);
      break;
    }
    case Instruction::kReceive: {
      auto* op = instruction.mutable_receive();
      VPOD_OUT(op, tensor);
      break;
    }
    case Instruction::kRepeat:
    case Instruction::STEP_NOT_SET:
      break;
  }
#undef VPOD_IN
#undef VPOD_OUT
}

}  // namespace vpod::graph
