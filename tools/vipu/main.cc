#include "tools/vipu/cli.h"

int main(int argc, char** argv) { return vpod::tools::VipuMain(argc, argv, /*admin=*/false); }
