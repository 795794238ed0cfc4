#!/usr/bin/env bash
# tutorials_test TEST: runs a test of a command of this folder.
set -euo pipefail
exec /usr/bin/python3 "$1"
