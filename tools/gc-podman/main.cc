// gc-podman: podman run with access to the IPUs.
#include "tools/gc-docker/container.h"

int main(int argc, char** argv) { return vpod::tools::RunContainerTool("podman", argc, argv); }
