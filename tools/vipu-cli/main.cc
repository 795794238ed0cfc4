// vipu-cli: the tool of early releases, which programs such as PopTorch's tests still call. It is
// vipu-admin if -a is among its words, and vipu otherwise.
#include <iostream>

#include "device/base/stdout.h"
#include "tools/vipu/cli.h"

int main(int argc, char** argv) {
  vpod::base::CheckStdoutAtExit();
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool admin = std::erase(words, "-a") > 0;
  return vpod::tools::VipuMain(admin, words, std::cout, std::cerr);
}
