#include <iostream>

#include "device/base/stdout.h"
#include "tools/vipu/cli.h"

int main(int argc, char** argv) {
  vpod::base::CheckStdoutAtExit();
  return vpod::tools::VipuMain(/*admin=*/true, {argv + 1, argv + argc}, std::cout, std::cerr);
}
