#include "device/model/memory_options.h"

#include <algorithm>
#include <iterator>

namespace vpod::model {
namespace {

constexpr std::string OptionNames::*kFields[] = {
    &OptionNames::float16,
    &OptionNames::micro_batch,
    &OptionNames::optimizer,
    &OptionNames::accumulation,
    &OptionNames::recomputation,
    &OptionNames::memory_proportions,
    &OptionNames::off_chip_activations,
    &OptionNames::off_chip_optimizer_state,
    &OptionNames::off_chip_weights,
    &OptionNames::off_chip_accumulators,
    &OptionNames::tensor_shards,
    &OptionNames::ipus_per_replica,
    &OptionNames::ipus_without_pipeline,
};
static_assert(std::size(kFields) * sizeof(std::string) == sizeof(OptionNames));

}  // namespace

OptionNames NoOptions() { return OptionNamesIn(std::vector<std::string>(std::size(kFields))); }

std::vector<std::string> ListOf(const OptionNames& names) {
  std::vector<std::string> list;
  for (const auto field : kFields) list.push_back(names.*field);
  return list;
}

OptionNames OptionNamesIn(const std::vector<std::string>& list) {
  OptionNames names;
  for (size_t i = 0; i < std::min(list.size(), std::size(kFields)); ++i)
    names.*kFields[i] = list[i];
  return names;
}

}  // namespace vpod::model
