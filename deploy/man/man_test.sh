#!/usr/bin/env bash
# man_test PAGE…: manual pages have what a page needs, and man shows them without a warning.
set -euo pipefail
bad=0
fail() { echo "error: $*"; bad=1; }

[ $# -gt 0 ] || fail "no pages"
man=$(command -v man) || echo "SKIPPED: man is not installed (deploy/packages-test.txt): the pages are not formatted"
for page in "$@"; do
  for section in NAME SYNOPSIS "SEE ALSO"; do
    grep -q "^.SH \"\\?$section" "$page" || fail "$page has no section $section"
  done
  if [ -n "$man" ]; then
    warnings=$(LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fail "$page: $warnings"
  fi
done
# One of each kind of row, from each tool's own table.
admin=$(printf '%s\n' "$@" | grep /vipu-admin.1)
for text in '.SS "create partition"' '\fB\-\-gw\-routing default|ring\fP' 'link\-down' '.SH "EXIT STATUS"'; do
  grep -qF -- "$text" "$admin" || fail "$admin has no line '$text'"
done
exit $bad
