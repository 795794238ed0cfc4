#include "device/engine/ipu_names.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/program/op.h"

namespace vpod::engine {
namespace {

// The stages of an IPU, ascending; none if there is but one. A stage is on the IPU that runs most
// of its kernels: others only prepare something for it.
std::vector<uint32_t> StagesOf(const program::Executable& executable, uint32_t ipu) {
  std::map<uint32_t, std::vector<uint64_t>> kernels_of;  // by stage, then IPU
  const program::v1::Executable& text = executable.proto();
  const uint32_t ipus = executable.ipus_per_replica();
  for (uint32_t each = 0; each < ipus; ++each) {
    const auto& functions = text.ipus(static_cast<int>(each)).functions();
    for (int f = 0; f < functions.size(); ++f) {
      for (int i = 0; i < functions[f].instructions_size(); ++i) {
        const program::v1::Origin* origin =
            executable.OriginOf(each, static_cast<size_t>(f), static_cast<size_t>(i));
        if (origin == nullptr || origin->phase() == program::v1::Origin::UPDATE) continue;
        const auto op = functions[f].instructions(i).attributes_case();
        if (program::FindOp(op)->role != program::Role::kKernel) continue;
        std::vector<uint64_t>& kernels = kernels_of[origin->stage()];
        kernels.resize(ipus);
        ++kernels[each];
      }
    }
  }
  std::vector<uint32_t> stages;
  if (kernels_of.size() < 2) return stages;
  for (const auto& [stage, kernels] : kernels_of) {
    if (std::max_element(kernels.begin(), kernels.end()) == kernels.begin() + ipu)
      stages.push_back(stage);
  }
  return stages;
}

}  // namespace

std::string NameOfIpu(const program::Executable& executable, uint32_t program, uint32_t ipu) {
  const std::vector<uint32_t> stages = StagesOf(executable, ipu);
  std::string name = absl::StrCat("IPU ", ipu);
  if (stages.empty()) return name;
  absl::StrAppend(&name, stages.size() == 1 ? " (stage " : " (stages ", absl::StrJoin(stages, ", "),
                  " of program '", executable.proto().programs(static_cast<int>(program)).name(),
                  "')");
  return name;
}

}  // namespace vpod::engine
