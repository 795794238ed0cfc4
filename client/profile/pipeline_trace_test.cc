// The trace of a pipeline in a profile.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/graph/graph.h"
#include "client/profile/profile.h"
#include "client/pva/pva.h"
#include "device/base/units.h"

namespace vpod::profile {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;

// Four stages that take the same time, so long that little else counts.
compiler::Compiled EqualStages(uint32_t accumulation) {
  constexpr int64_t kWidth = 4096;
  Graph g;
  // Little comes from the host, and the first stage has a gradient of its input as the others do.
  Tensor x =
      g.Add(g.Add(g.Constant({FLOAT16, {512, kWidth}}, 0), g.Input("x", {FLOAT16, {kWidth}})),
            g.Variable("offset", {FLOAT16, {kWidth}}, graph::InitialValue::Filled(0)));
  for (uint32_t stage = 0; stage < 4; ++stage) {
    g.SetStage(stage);
    g.SetIpu(stage);
    for (int layer = 0; layer < 5; ++layer) {
      const Tensor weight =
          g.Variable(absl::StrCat("w", stage, ".", layer), {FLOAT16, {kWidth, kWidth}},
                     graph::InitialValue::Filled(0.01));
      x = g.Unary(program::v1::TANH, g.MatMul(x, weight));
    }
  }
  compiler::CompileOptions options{.ipus_per_replica = 4, .schedule = compiler::Schedule::kGrouped};
  // Otherwise it would not fit.
  options.recomputation = compiler::Recomputation::kAll;
  options.products.memory_proportions.assign(4, 0.3f);
  options.programs = {{.name = "train",
                       .accumulation = accumulation,
                       .loss = g.Mean(g.Cast(x, FLOAT32)),
                       .optimizer = compiler::SgdOptions{}}};
  auto compiled = compiler::Compile(g, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *std::move(compiled);
}

// Each IPU works for as many micro-batches as there are, and waits for three more. Updates, which
// are done once, do not count.
TEST(PipelineTraceTest, UtilisationIsThatOfAPipelineOfEqualStages) {
  for (uint32_t accumulation : {7, 8, 16, 32, 64}) {
    const std::string directory =
        absl::StrCat(testing::TempDir(), "/pipeline_trace.", accumulation);
    auto profiler = Profiler::Create(
        EqualStages(accumulation).executable,
        {.directory = directory, .execution = true, .topology = {.ipus_per_replica = 4}});
    ASSERT_TRUE(profiler.ok()) << profiler.status();
    ASSERT_TRUE((*profiler)->AddRun(0, base::Cycles(1)).ok());
    const auto report = pva::OpenReport((*profiler)->PathOf(0));
    ASSERT_TRUE(report.ok()) << report.status();
    std::vector<uint64_t> busy(4), end(4);
    for (const std::vector<pva::Step>& steps : report->steps) {
      for (const pva::Step& step : steps) {
        const pva::Operation& operation = report->operations[step.operation];
        if (operation.phase == "update" && operation.instruction != "accumulate") continue;
        busy[step.ipu] += step.to - step.from - step.waiting;
        end[step.ipu] += step.to - step.from;
      }
    }
    const double work = std::accumulate(busy.begin(), busy.end(), 0.0),
                 all = 4.0 * static_cast<double>(*std::max_element(end.begin(), end.end()));
    const double expected = accumulation / (accumulation + 3.0);
    EXPECT_NEAR(work / all, expected, 0.02 * expected) << accumulation;
  }
}

}  // namespace
}  // namespace vpod::profile
