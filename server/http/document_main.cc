// Prints deploy/prometheus/METRICS.md: bazel run //server/http:document
#include <cstdio>

#include "server/http/document.h"

int main() { std::fputs(vpod::http::MetricsDocument().c_str(), stdout); }
