#!/usr/bin/env bash
# vpod_test TEST: runs a test of the module with the distribution's Python.
set -euo pipefail
PYTHONPATH=$(dirname "$(dirname "$1")") exec /usr/bin/python3 "$1"
