#!/usr/bin/env bash
# scripts/check-format passes lines of 120 columns and names one that is longer, but for tables and what tests quote.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{docs,base,tests,scripts,cmake}
cp "$root/.clang-format" "$tree"
long() { printf "$1%0$(($2 - ${#1}))d" 0; }  # $2 columns that begin with $1
long '// ' 120 >"$tree/base/a.h"
printf '\n' >>"$tree/base/a.h"
{ long '| ' 300; printf '\n'; long 'äö ' 120; printf '\n'; long '      $ ' 110; printf '\n'; } >"$tree/docs/page.md"
long '      = help: ' 300 >"$tree/docs/printed.md"
# clang-format leaves a string alone that it may not break.
{ printf 'const char* given = R"(\n'; long 'key: ' 300; printf '\n)";\n'; } >"$tree/tests/a_test.cpp"
mkdir -p "$tree"/{tests/data,reports/gallery/inputs}
for given in tests/data reports/gallery/inputs; do long 'key: ' 300 >"$tree/$given/given.yaml"; done
"$root/scripts/check-format" "$tree"
planted() {  # FILE TEXT: with this file the check fails, and names it
  local before=
  [[ -f $tree/$1 ]] && before=$(cat "$tree/$1")
  mkdir -p "$(dirname "$tree/$1")"
  printf '%s\n' "$2" >"$tree/$1"
  local out
  out=$("$root/scripts/check-format" "$tree" 2>&1) && { echo "$1: a long line was accepted"; exit 1; }
  grep -qF "$1:1: 121 columns" <<<"$out" || { echo "$1 was not named: $out"; exit 1; }
  rm "$tree/$1"
  [[ -z $before ]] || printf '%s\n' "$before" >"$tree/$1"
}
planted docs/more.md "$(long 'Words ' 121)"
planted docs/more.md "$(long '    formula ' 121)"
planted scripts/run "$(long '# ' 121)"
planted cmake/more.cmake "$(long '# ' 121)"
planted tests/more.cmake "$(long '# ' 121)"
planted clusters/catalog/more.yaml "$(long 'key: ' 121)"
planted reports/html/charts/more.vg.json "$(long '{"a": ' 121)"
planted base/b.cpp "$(long '// NOLINT ' 121)"
