#!/usr/bin/env bash
# ops_test RUN_CASES OPS: compares some cases of each op with PyTorch.
set -euo pipefail
/usr/bin/python3 -c 'import numpy, torch' 2>/dev/null || {
  echo "SKIPPED: python3-torch is not installed (deploy/packages-pytorch.txt): ops are not compared with PyTorch's"
  exit 0
}
# Threads of PyTorch that wait must not take cores from tests beside this one.
export OMP_WAIT_POLICY=passive
exec "$2" --program "$1" --seed 13 --cases 1000
