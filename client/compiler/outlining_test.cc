#include "client/compiler/outlining.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "client/compiler/compiler.h"
#include "client/models/bert.h"
#include "client/models/resnet.h"
#include "device/program/blocks.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;

std::shared_ptr<const program::Executable> Trained(const std::string& model, uint32_t layers) {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  const Tensor labels = graph.Input("labels", {program::v1::INT32, {2}});
  Tensor logits;
  if (model == "bert") {
    models::BertOptions options = models::BertTiny();
    options.layers = layers;
    options.dropout = 0;
    const auto ids = [&](const char* name) {
      return graph.Input(name, {program::v1::INT32, {2, 8}});
    };
    logits = models::BertForClassification(net, {ids("a"), ids("b"), ids("c")}, options, 10);
  } else {
    const Tensor images = graph.Input("images", {program::v1::FLOAT32, {2, 3, 32, 32}});
    logits = models::ResNet(net, images, models::ResNet50());
  }
  const Tensor loss = graph.Mean(graph.SoftmaxCrossEntropy(logits, labels));
  graph.Output("loss", loss);
  const auto compiled =
      Compile(graph, {.programs = {{.name = "train", .loss = loss, .optimizer = AdamOptions{}}}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? compiled->executable : nullptr;
}

int Instructions(const program::v1::Ipu& ipu) {
  int count = 0;
  for (const auto& function : ipu.functions()) count += function.instructions_size();
  for (const auto& block : ipu.blocks()) count += block.instructions_size();
  return count;
}

// The instructions of a layer are written once, however many there are.
TEST(OutliningTest, EqualLayersAreBlocks) {
  const auto four = Trained("bert", 4), twelve = Trained("bert", 12);
  ASSERT_TRUE(four != nullptr && twelve != nullptr);
  const int of_layer =
      (Instructions(twelve->proto().ipus(0)) - Instructions(four->proto().ipus(0))) / 8;
  EXPECT_GT(of_layer, 50);
  const int more = Instructions(twelve->source().ipus(0)) - Instructions(four->source().ipus(0));
  EXPECT_LT(more, 8 * of_layer / 5);
  EXPECT_LT(twelve->Bytes().size(), program::Serialize(twelve->proto()).size());
}

TEST(OutliningTest, WrittenOutTheyAreWhatWasThere) {
  for (const char* model : {"bert", "resnet"}) {
    const auto executable = Trained(model, 3);
    ASSERT_NE(executable, nullptr);
    EXPECT_GT(executable->source().ipus(0).blocks_size(), 0);
    program::v1::Executable shared = executable->proto();
    OutlineBlocks(*shared.mutable_ipus(0));
    using google::protobuf::util::MessageDifferencer;
    EXPECT_TRUE(MessageDifferencer::Equals(shared, executable->source()));
    EXPECT_TRUE(MessageDifferencer::Equals(program::WriteOut(shared), executable->proto()));
  }
}

}  // namespace
}  // namespace vpod::compiler
