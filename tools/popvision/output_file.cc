#include "tools/popvision/output_file.h"

#include <fstream>

#include "device/base/unfinished_file.h"

namespace vpod::popvision {

absl::Status WriteOutput(const std::string& path, const std::function<void(std::ostream&)>& write) {
  return base::ReplaceWhole(path, [&](const std::string& name) {
    std::ofstream file(name, std::ios::binary);
    write(file);
    file.close();
    return !file.fail();
  });
}

}  // namespace vpod::popvision
