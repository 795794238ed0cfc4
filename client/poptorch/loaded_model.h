// What tests of models that are written as tapes share: memory of the test, and models on an
// IPUModel.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/poptorch/model.h"

namespace vpod::poptorch {

template <class T>
ConstBytes In(const std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}
template <class T>
MutableBytes Out(std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}

inline OptimizerOptions Sgd(std::vector<std::string> parameters, float rate) {
  return {.groups = {{std::move(parameters), compiler::SgdOptions{.learning_rate = rate}}}};
}

inline std::unique_ptr<Model> Loaded(const TapeProgram& program) {
  auto model = Model::Create(program);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return nullptr;
  absl::Status status = (*model)->Compile();
  EXPECT_TRUE(status.ok()) << status;
  if (status.ok()) status = (*model)->Load({.ipu_model = true});
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? *std::move(model) : nullptr;
}

}  // namespace vpod::poptorch
