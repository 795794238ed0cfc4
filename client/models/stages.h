// How models that are chains of blocks are dealt to the IPUs of a replica.
#pragma once

#include <string>
#include <vector>

#include "client/graph/graph.h"

namespace vpod::models {

// Puts the blocks of a model on the graph's IPU and on those that follow, as stages of a pipeline:
//
//   Stages stages(graph, {"layer3.0"});
//   for (…) {
//     stages.Enter(block);
//     x = Block(x);
//   }
//   stages.End();
class Stages {
 public:
  // Each beginning is the name of the block with which the next stage begins.
  Stages(graph::Graph& graph, std::vector<std::string> beginnings);

  // Before the operations of a block are added.
  void Enter(const std::string& block);
  // After those of the last block. A beginning that no block has, or that is not behind the one
  // before it, is an error of the graph. False: it has one.
  bool End();
  // After End, for what shares variables with the first stage: another stage, on its IPU.
  void ReturnToFirst();

  // "layer1.0 to layer1.2, layer2.0": the blocks up to now.
  std::string BlocksText() const;

 private:
  graph::Graph& graph_;
  const std::vector<std::string> beginnings_;
  const uint32_t first_ipu_, first_stage_;
  uint32_t begun_ = 0;
  std::vector<std::string> blocks_;
};

}  // namespace vpod::models
