#!/usr/bin/env bash
# capture_test TEST: runs a test of the capture with the distribution's Python.
set -euo pipefail
PYTHONPATH=$(dirname "$(dirname "$1")") OMP_NUM_THREADS=1 exec /usr/bin/python3 "$1"
