// A program that vpod plan runs: four replicas share out the state of its optimiser.
#include "client/compiler/compiler.h"
#include "client/session/open.h"
#include "client/session/session.h"
#include "device/base/status.h"

namespace vpod {
namespace {

absl::Status Train() {
  graph::Graph graph;
  const auto x = graph.Input("x", {program::v1::FLOAT32, {4, 128}});
  const auto w = graph.Variable("w", {program::v1::FLOAT32, {128, 128}},
                                graph::InitialValue::Uniform(0.1, /*seed=*/1));
  compiler::CompileOptions options;
  options.tensor_shards = 4;
  options.programs = {{.name = "train",
                       .loss = graph.Mean(graph.MatMul(x, w)),
                       .optimizer = compiler::AdamOptions()}};
  VPOD_ASSIGN_OR_RETURN(const auto compiled, compiler::Compile(graph, options));
  VPOD_ASSIGN_OR_RETURN(auto device, session::OpenDevice());
  return session::Session::Create(std::move(device), compiled).status();
}

}  // namespace
}  // namespace vpod

int main() { return vpod::Train().ok() ? 0 : 1; }
