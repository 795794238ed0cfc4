#include <iostream>

#include "tools/vipu/cli.h"

int main(int argc, char** argv) {
  return vpod::tools::VipuMain(/*admin=*/true, {argv + 1, argv + argc}, std::cout, std::cerr);
}
