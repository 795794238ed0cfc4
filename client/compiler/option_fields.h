// The fields of a program's options by name, for the printed form that has them on one line.
#pragma once

#include <concepts>
#include <type_traits>

#include "client/compiler/graph_program.h"

namespace vpod::compiler {

// A struct that is read or filled.
template <class T, class Struct>
concept AnyConst = std::same_as<std::remove_const_t<T>, Struct>;

// Each function calls `field(name, value)` for the fields in their order.
void ForEachField(AnyConst<SgdOptions> auto& sgd, const auto& field) {
  field("learning_rate", sgd.learning_rate);
  field("momentum", sgd.momentum);
  field("dampening", sgd.dampening);
  field("weight_decay", sgd.weight_decay);
  field("nesterov", sgd.nesterov);
  field("maximize", sgd.maximize);
  field("float16_velocity", sgd.float16_velocity);
  field("dampen_all", sgd.dampen_all);
  field("combined", sgd.combined);
  field("velocity_scaling", sgd.velocity_scaling);
}

void ForEachField(AnyConst<AdamOptions> auto& adam, const auto& field) {
  field("learning_rate", adam.learning_rate);
  field("beta1", adam.beta1);
  field("beta2", adam.beta2);
  field("epsilon", adam.epsilon);
  field("weight_decay", adam.weight_decay);
  field("decoupled_weight_decay", adam.decoupled_weight_decay);
  field("amsgrad", adam.amsgrad);
  field("maximize", adam.maximize);
  field("float16_first_moment", adam.float16_first_moment);
  field("float16_second_moment", adam.float16_second_moment);
  field("bias_correction", adam.bias_correction);
}

void ForEachField(AnyConst<RmsPropOptions> auto& rms, const auto& field) {
  field("learning_rate", rms.learning_rate);
  field("alpha", rms.alpha);
  field("epsilon", rms.epsilon);
  field("weight_decay", rms.weight_decay);
  field("momentum", rms.momentum);
  field("centered", rms.centered);
  field("maximize", rms.maximize);
  field("float16_first_moment", rms.float16_first_moment);
  field("float16_second_moment", rms.float16_second_moment);
  field("tensorflow", rms.tensorflow);
}

void ForEachField(AnyConst<LambOptions> auto& lamb, const auto& field) {
  field("learning_rate", lamb.learning_rate);
  field("beta1", lamb.beta1);
  field("beta2", lamb.beta2);
  field("epsilon", lamb.epsilon);
  field("weight_decay", lamb.weight_decay);
  field("maximize", lamb.maximize);
  field("float16_first_moment", lamb.float16_first_moment);
  field("float16_second_moment", lamb.float16_second_moment);
  field("bias_correction", lamb.bias_correction);
  field("max_weight_norm", lamb.max_weight_norm);
}

void ForEachField(AnyConst<LarsOptions> auto& lars, const auto& field) {
  field("learning_rate", lars.learning_rate);
  field("momentum", lars.momentum);
  field("weight_decay", lars.weight_decay);
  field("trust", lars.trust);
  field("epsilon", lars.epsilon);
  field("maximize", lars.maximize);
}

void ForEachField(AnyConst<AutomaticLossScale> auto& scale, const auto& field) {
  field("growth", scale.growth);
  field("backoff", scale.backoff);
  field("interval", scale.interval);
}

void ForEachField(AnyConst<HistogramLossScale> auto& scale, const auto& field) {
  field("bin_edge", scale.bin_edge);
  field("upper_proportion", scale.upper_proportion);
  field("period", scale.period);
}

void ForEachField(AnyConst<RoundingState> auto& state, const auto& field) {
  field("seed", state.seed);
  field("number", state.number);
  field("counter", state.counter);
  field("replicas", state.replicas);
}

// The options that every program has.
void ForEachField(AnyConst<GraphProgram> auto& program, const auto& field) {
  field("ipus", program.ipus);
  field("replicas", program.replicas);
  field("device_iterations", program.spec.device_iterations);
  field("accumulation", program.spec.accumulation);
  field("off_chip_state", program.off_chip_state);
  field("off_chip_accumulators", program.off_chip_accumulators);
  field("tensor_shards", program.tensor_shards);
}

}  // namespace vpod::compiler
