#include "client/models/stages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace vpod::models {
namespace {

// "layer1." of "layer1.2"
std::string WithoutNumber(std::string block) {
  while (!block.empty() && absl::ascii_isdigit(static_cast<unsigned char>(block.back())))
    block.pop_back();
  return block;
}

}  // namespace

Stages::Stages(graph::Graph& graph, std::vector<std::string> beginnings)
    : graph_(graph),
      beginnings_(std::move(beginnings)),
      first_ipu_(graph.ipu()),
      first_stage_(graph.stage()) {}

void Stages::Enter(const std::string& block) {
  blocks_.push_back(block);
  if (begun_ == beginnings_.size() || beginnings_[begun_] != block) return;
  ++begun_;
  graph_.SetIpu(first_ipu_ + begun_);
  graph_.SetStage(first_stage_ + begun_);
}

bool Stages::End() {
  if (!graph_.status().ok()) return false;
  if (begun_ == beginnings_.size()) return true;
  const std::string& missing = beginnings_[begun_];
  const bool exists = std::find(blocks_.begin(), blocks_.end(), missing) != blocks_.end();
  graph_.Fail(absl::InvalidArgumentError(
      exists ? absl::StrCat("block '", missing, "' is not behind block '", beginnings_[begun_ - 1],
                            "', with which the stage before it begins")
             : absl::StrCat("there is no block '", missing,
                            "' for a stage to begin with, the blocks are ", BlocksText())));
  return false;
}

void Stages::ReturnToFirst() {
  if (graph_.ipu() == first_ipu_) return;
  graph_.SetIpu(first_ipu_);
  graph_.SetStage(graph_.stage() + 1);
}

std::string Stages::BlocksText() const {
  std::string text;
  for (size_t first = 0, last = 0; first < blocks_.size(); first = last + 1) {
    const std::string name = WithoutNumber(blocks_[first]);
    for (last = first; last + 1 < blocks_.size() && WithoutNumber(blocks_[last + 1]) == name;)
      ++last;
    absl::StrAppend(&text, first > 0 ? ", " : "", blocks_[first]);
    if (last > first) absl::StrAppend(&text, " to ", blocks_[last]);
  }
  return text;
}

}  // namespace vpod::models
