#include <iostream>

#include "tools/vipu/cli.h"

int main(int argc, char** argv) {
  return vpod::tools::VipuMain(/*admin=*/false, {argv + 1, argv + argc}, std::cout, std::cerr);
}
