#!/usr/bin/env bash
# training_test TRAIN TRAINING: compares the losses of the program `train` with PyTorch's.
set -euo pipefail
/usr/bin/python3 -c 'import numpy, torch' 2>/dev/null || {
  echo "SKIPPED: python3-torch is not installed (deploy/packages-pytorch.txt): losses are not compared with PyTorch's"
  exit 0
}
# Threads of PyTorch that wait must not take cores from tests beside this one.
export OMP_WAIT_POLICY=passive
exec /usr/bin/python3 "$2" "$1"
