#include "client/compiler/passes.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::Form;
using program::v1::FLOAT32;
using program::v1::Instruction;
using testing::ElementsAre;
using testing::HasSubstr;

Instruction FromText(const std::string& text) {
  Instruction instruction;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction)) << text;
  return instruction;
}

TEST(PassesTest, OpsExistFromTheirFormOn) {
  const struct {
    const char* op;
    Form first;
  } cases[] = {
      {"binary { operator: ADD }", Form::kGraph},
      {"batch_norm { epsilon: 1 }", Form::kGraph},
      {"all_reduce { operator: SUM }", Form::kGraph},
      {"batch_norm { epsilon: 1 activation: RELU }", Form::kFused},
      {"batch_norm_gradient { epsilon: 1 add: true }", Form::kFused},
      {"map {}", Form::kFused},
      {"sgd {}", Form::kLowered},
      {"stream_in {}", Form::kLowered},
      {"repeat {}", Form::kAssembled},
  };
  for (const auto& [op, first] : cases) {
    for (const Form form : {Form::kGraph, Form::kFused, Form::kLowered, Form::kAssembled})
      EXPECT_EQ(CheckForm("fusion", form, {FromText(op)}).ok(), form >= first) << op;
  }
  EXPECT_EQ(CheckForm("fusion", Form::kFused, {FromText("sgd {}")}).message(),
            "after pass 'fusion' there is the op sgd, which only a later pass may make");
}

class DumpTest : public testing::Test {
 protected:
  DumpTest() {
    std::string path = testing::TempDir() + "/dump.XXXXXX";
    directory_ = std::string(mkdtemp(path.data())) + "/made/when/needed";
    const Tensor x = graph_.Input("x", {FLOAT32, {2, 3}});
    const Tensor w = graph_.Variable("w", {FLOAT32, {3}}, {1, 2, 3});
    const Tensor y = graph_.Relu(graph_.Multiply(x, w));
    graph_.Output("y", graph_.Reshape(y, {6}));
    options_.programs = {{.name = "infer"},
                         {.name = "train/sgd", .loss = graph_.Sum(y), .optimizer = SgdOptions{}}};
    options_.dump_passes = directory_;
  }

  std::string Read(const std::string& name) const {
    return base::ReadFile(directory_ + "/" + name);
  }

  Graph graph_;
  CompileOptions options_;
  std::string directory_;
};

TEST_F(DumpTest, EachPassWritesAFile) {
  const auto compiled = Compile(graph_, options_);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(directory_))
    names.push_back(file.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_THAT(
      names,
      ElementsAre("0-infer-gradients.txt", "1-infer-dead-code.txt", "2-infer-fusion.txt",
                  "3-infer-lowering.txt", "4-train_sgd-gradients.txt", "5-train_sgd-dead-code.txt",
                  "6-train_sgd-fusion.txt", "7-train_sgd-lowering.txt", "8-all-executable.txt"));
  EXPECT_EQ(Read("1-infer-dead-code.txt"),
            "program \"infer\" ipus 1 replicas 1 device_iterations 1 accumulation 1 off_chip_state "
            "false off_chip_accumulators false tensor_shards 1\n"
            "%0 = input \"x\" : float32[2,3] on IPU 0\n"
            "%1 = variable \"w\" : float32[3] on IPU 0\n"
            "%2 = binary { operator: MULTIPLY } (%0, %1) : float32[2,3] on IPU 0 "
            "from { op: \"multiply\" }\n"
            "%3 = unary { operator: RELU } (%2) : float32[2,3] on IPU 0 from { op: \"relu\" }\n"
            "%4 = reshape (%3) : float32[6] on IPU 0\n"
            "output \"y\" %4\n");
  EXPECT_THAT(Read("2-infer-fusion.txt"), HasSubstr("%3 = map {"));
  EXPECT_THAT(Read("3-infer-lowering.txt"), HasSubstr("body:\n  %0 = stream_in {"));
  EXPECT_THAT(Read("7-train_sgd-lowering.txt"), HasSubstr("= sgd {"));
}

TEST_F(DumpTest, AliasesSayWhereTheirGradientGoes) {
  const Tensor x = graph_.inputs()[0], square = graph_.Multiply(x, x);
  graph_.Output("stopped", graph_.Stop(square));
  graph_.Output("passed", graph_.PassBy(square, x));
  ASSERT_TRUE(Compile(graph_, options_).ok());
  const std::string text = Read("0-infer-gradients.txt");
  EXPECT_THAT(text,
              HasSubstr(absl::StrCat(" = stop (%", square.id, ") : float32[2,3] on IPU 0\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat(" = pass_by (%", square.id, ") gradient to %", x.id,
                                           " : float32[2,3] on IPU 0\n")));
}

// Beyond the gradients it is no other value than the one that it is an alias of.
TEST_F(DumpTest, AStopDoesNotKeepOperationsFromFusing) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  graph.Output("y", graph.Relu(graph.Stop(graph.Multiply(x, x))));
  options_.programs = {{.name = "infer"}};
  ASSERT_TRUE(Compile(graph, options_).ok());
  EXPECT_THAT(Read("2-infer-fusion.txt"), HasSubstr(" = map {"));
}

TEST_F(DumpTest, TheLastOneReadsBackToTheSameExecutable) {
  const auto compiled = Compile(graph_, options_);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  program::v1::Executable text;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(Read("8-all-executable.txt"), &text));
  const auto read = program::Executable::Make(std::move(text));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->Bytes(), compiled->executable->Bytes());
  options_.dump_passes.clear();
  EXPECT_EQ(Compile(graph_, options_)->executable->hash(), (*read)->hash());
}

TEST_F(DumpTest, TheOthersReadBackToTheSameText) {
  ASSERT_TRUE(Compile(graph_, options_).ok());
  for (const char* name : {"0-infer-gradients.txt", "1-infer-dead-code.txt", "2-infer-fusion.txt",
                           "4-train_sgd-gradients.txt", "6-train_sgd-fusion.txt"}) {
    const auto program = ReadGraph(Read(name));
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(Print(*program), Read(name));
  }
  const auto lowered = ReadLowered(Read("7-train_sgd-lowering.txt"));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(Print(*lowered), Read("7-train_sgd-lowering.txt"));
}

TEST_F(DumpTest, ADirectoryThatCannotBeMadeIsNamed) {
  options_.dump_passes = "/dev/null/passes";
  EXPECT_THAT(std::string(Compile(graph_, options_).status().message()),
              HasSubstr("cannot make the directory /dev/null/passes"));
}

}  // namespace
}  // namespace vpod::compiler
