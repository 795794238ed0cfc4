#!/usr/bin/env bash
# tutorials_test TEST: runs the test of the runner of public programs.
set -euo pipefail
exec /usr/bin/python3 "$1"
