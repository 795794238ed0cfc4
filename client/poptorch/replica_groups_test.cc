// Parameters that have a value for each group of replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/poptorch/loaded_model.h"
#include "client/poptorch/model.h"
#include "client/poptorch/tape_writer.h"

namespace vpod::poptorch {
namespace {

using ::testing::HasSubstr;
using Vector = std::vector<float>;

// y = x * w and the gradient of sum(y); w has a row for each group.
TapeProgram GroupedTape(const ReplicaGroups& groups, uint32_t processes = 1) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2});
  const ValueId w = writer.Parameter("w", {2});
  const ValueId y = writer.Op("mul.Tensor", {Use{x, /*stop=*/true}, Use{w}}, {2});
  const ValueId loss = writer.Op("sum.default", {Use{y}, std::monostate()}, {});
  writer.Loss(loss);
  writer.Result(y);
  writer.tape().parameters[0].groups = groups;
  return {writer.tape(),
          {.training = true,
           .replicas = 4,
           .processes = processes,
           .reduction = compiler::GradientReduction::kSum},
          Sgd({"w"}, 1)};
}

TEST(ReplicaGroups, HaveParametersOfTheirOwn) {
  // The groups are the replicas {0, 1} and {2, 3}, or {0, 2} and {1, 3}.
  const std::pair<Vector, Vector> expected[] = {{{0, 2, 1, 2, 6, 4, 9, 4}, {0, 0, -2, 2}},
                                                {{0, 2, 3, 4, 2, 2, 9, 4}, {-1, 0, -1, 2}}};
  for (const bool orthogonal : {false, true}) {
    SCOPED_TRACE(orthogonal);
    const auto model = Loaded(GroupedTape({2, orthogonal}));
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->Variables().size(), 2u);  // the parameter and hyper-parameters
    // The next device has the groups, too.
    model->Detach();
    ASSERT_TRUE(model->Load({.ipu_model = true}).ok());
    Vector w = {1, 2, 3, 4}, y(8);
    ASSERT_TRUE(model->WriteState({{{"w", In(w)}}}).ok());
    const Vector x = {0, 1, 1, 1, 2, 1, 3, 1};
    const absl::Status run = model->Run({{In(x)}}, {{Out(y)}});
    ASSERT_TRUE(run.ok()) << run;
    EXPECT_EQ(y, expected[orthogonal].first);
    ASSERT_TRUE(model->ReadState({{{"w", Out(w)}}}).ok());
    EXPECT_EQ(w, expected[orthogonal].second);
  }
}

TEST(ReplicaGroups, AreRefusedIfReplicasDoNotFormThem) {
  EXPECT_THAT(std::string(Model::Create(GroupedTape({3})).status().message()),
              HasSubstr("'w' is for 3 groups of replicas, must be for a factor of the 4 replicas"));
  EXPECT_THAT(std::string(Model::Create(GroupedTape({2}, /*processes=*/2)).status().message()),
              HasSubstr("must be in one process, and there are 2"));
  TapeProgram written = GroupedTape({2});
  written.tape.parameters[0].final = written.tape.results[0];
  EXPECT_THAT(std::string(Model::Create(written).status().message()),
              HasSubstr("'w' is for groups of replicas, and cannot be written in forward"));
}

}  // namespace
}  // namespace vpod::poptorch
