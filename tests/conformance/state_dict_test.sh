#!/usr/bin/env bash
# state_dict_test INFER STATE_DICT SCRIPT: takes PyTorch's weights into the program `infer` and back.
set -euo pipefail
/usr/bin/python3 -c 'import numpy, torch' 2>/dev/null || {
  echo "SKIPPED: python3-torch is not installed (deploy/packages-pytorch.txt): state dicts are not converted"
  exit 0
}
# Threads of PyTorch that wait must not take cores from tests beside this one.
export OMP_WAIT_POLICY=passive
exec /usr/bin/python3 "$2" "$1" "$3"
