// gc-docker: docker run with access to the IPUs.
#include "tools/gc-docker/container.h"

int main(int argc, char** argv) { return vpod::tools::RunContainerTool("docker", argc, argv); }
