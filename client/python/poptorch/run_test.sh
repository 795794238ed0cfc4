#!/usr/bin/env bash
# run_test TEST: runs a test of the package with the distribution's Python and PyTorch.
set -euo pipefail
/usr/bin/python3 -c 'from importlib.util import find_spec; exit(not (find_spec("numpy") and find_spec("torch")))' || {
  echo "SKIPPED: python3-torch is not installed (deploy/packages-pytorch.txt): no model of PyTorch is run"
  exit 0
}
# Threads of PyTorch that wait must not take cores from tests beside this one.
export OMP_WAIT_POLICY=passive
modules=$PWD/client/python
PYTHONPATH=$modules:$modules/poptorch/_testing exec /usr/bin/python3 "$1"
