// poprun: launches the instances of a job on the IPUs of a partition.
#include "client/launch/launch.h"

int main(int argc, char** argv) {
  return vpod::launch::Poprun(std::vector<std::string>(argv + 1, argv + argc));
}
