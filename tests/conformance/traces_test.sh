#!/usr/bin/env bash
# traces_test TRACES: runs traces of PyTorch models on the device.
set -euo pipefail
/usr/bin/python3 -c 'import numpy, torch' 2>/dev/null || {
  echo "SKIPPED: python3-torch is not installed (deploy/packages-pytorch.txt): no model of PyTorch is traced"
  exit 0
}
export OMP_WAIT_POLICY=passive PYTHONPATH=client/python
exec /usr/bin/python3 "$1"
