// gc-exchangetest: moves blocks from tile to tile and looks at what arrives.
#include "tools/gc-exchangetest/exchange.h"

int main(int argc, char** argv) {
  return vpod::tools::RunTileTest("gc-exchangetest", argc, argv, vpod::tools::TestExchange);
}
