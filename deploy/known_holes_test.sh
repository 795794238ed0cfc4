#!/usr/bin/env bash
# known_holes_test TABLE LIST…: the table of known holes is well-formed, has a row for each package that the lists name, and has judged
# the versions that are installed here.
set -euo pipefail
table=$1
shift
command -v dpkg-query >/dev/null || { echo "SKIPPED: no dpkg-query"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints a line for each thing that is wrong with a table: check TABLE LIST…, where the lines of INSTALLED are "<binary package>
# <source package> <its version>".
check() {
  awk '
    /^#/ || /^$/ { next }
    /^[^ ]/ {
      if (NF != 3) print FILENAME ": not \"<package> <version> <series>\": " $0
      if (row != "" && !judged) print row " has a row without a verdict"
      row = $1; judged = 0
      next
    }
    /^    [^ ]/ { if (!judged) print "words without a hole: " $0; next }
    /^  [^ ]/ {
      judged = 1
      if ($1 !~ /^(-|CVE-[0-9]+-[0-9]+)$/) print row ": not a hole: " $1
      if ($2 !~ /^(fixed|mended|bounded|unaffected|none|system):$/) print row ": not a verdict: " $2
      if (NF < 3) print row ": no reason for " $1
      next
    }
    { print "not a line of the table: " $0 }
    END { if (row != "" && !judged) print row " has a row without a verdict" }' "$1"
  local table=$1 source version lowest series package
  # Versions of what has a row and is installed, of which there may be several.
  while read -r source lowest series version; do
    case $version in "$series"*) ;; *) echo "$source $version was not judged: the table has $series…"; continue ;; esac
    dpkg --compare-versions "$version" ge "$lowest" || echo "$source $version is older than $lowest, the lowest version that was judged: update it"
  done < <(awk 'NR == FNR { if (/^[^ #]/) rows[$1] = $0; next } $2 in rows { print rows[$2], $3 }' "$table" "$work/installed" | sort -u)
  for package in $(sed 's/#.*//' "${@:2}"); do
    source=$(awk -v package="$package" '$1 == package { print $2; exit }' "$work/installed")
    [ -z "$source" ] || grep -q "^$source " "$table" || echo "package $package, of the source package $source, has no row"
  done
}

# The checks find what they are for.
printf 'liba-dev a 1.2-3\nlibb b 2.0-1\n' >"$work/installed"
echo "liba-dev # words" >"$work/list"
expect() { # WORDS of what is found, for the table of standard input
  cat >"$work/table"
  local found
  found=$(check "$work/table" "$work/list")
  [ "$found" = "$*" ] || { echo "error: the check says '$found', not '$*'"; exit 1; }
}
expect "" <<<$'a 1.2-1 1.2\n  CVE-2000-1 fixed: changelog.\n    More words.'
expect "package liba-dev, of the source package a, has no row" <<<$'b 2.0 2.\n  - none: words.'
expect "a 1.2-3 was not judged: the table has 1.1…" <<<$'a 1.1-1 1.1\n  - none: words.'
expect "a 1.2-3 is older than 1.2-4, the lowest version that was judged: update it" <<<$'a 1.2-4 1.2\n  - none: words.'
expect "a has a row without a verdict" <<<$'a 1.2-1 1.2'
expect "a: not a verdict: harmless:" <<<$'a 1.2-1 1.2\n  CVE-2000-1 harmless: words.'
expect "a: not a hole: GHSA" <<<$'a 1.2-1 1.2\n  GHSA fixed: words.'
expect "a: no reason for CVE-2000-1" <<<$'a 1.2-1 1.2\n  CVE-2000-1 fixed:'

# And here.
dpkg-query -W -f '${db:Status-Status} ${Package} ${source:Package} ${source:Version}\n' |
  awk '$1 == "installed" { print $2, $3, $4 }' >"$work/installed"
found=$(check "$table" "$@")
[ -z "$found" ] || { printf 'error: %s\n' "$table:" "$found"; exit 1; }
echo "$(grep -c '^[^ #]' "$table") source packages with $(grep -c '^  CVE' "$table") known holes"
