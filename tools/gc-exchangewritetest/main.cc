// gc-exchangewritetest: writes blocks to all tiles at once and looks at what arrives.
#include "tools/gc-exchangetest/exchange.h"

int main(int argc, char** argv) {
  return vpod::tools::RunTileTest("gc-exchangewritetest", argc, argv,
                                  vpod::tools::TestExchangeWrite);
}
