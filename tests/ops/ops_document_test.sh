#!/usr/bin/env bash
# docs/ops.md says what the op tables say.
#   ops_document_test.sh OPS_DOCUMENT PROGRAM_PROTO OPS_MD
set -euo pipefail
"$1" "$2" | diff "$3" - && exit
echo "docs/ops.md differs from the op tables; run tests/ops/run" >&2
exit 1
