#!/usr/bin/env bash
# scripts/check-docs passes what exists, and names a path that does not and a folder of sources without a page.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/docs" "$tree/plan"
touch "$tree/plan/lower.h" "$tree/plan/lower.cpp"
printf '# plan\nStart at `plan/lower.h`.\n' >"$tree/plan/README.md"
echo 'See `plan/lower.h`, `plan/lower.{h,cpp}`, plan/*.cpp, and and/or words.' >"$tree/README.md"
"$root/scripts/check-docs" "$tree"
printf 'Fine.\nSee [it](plan/gone.h).\n' >"$tree/docs/page.md"
out=$("$root/scripts/check-docs" "$tree") && { echo "a missing path was accepted"; exit 1; }
grep -qF 'docs/page.md:2: names plan/gone.h' <<<"$out" || { echo "not named: $out"; exit 1; }
rm "$tree/docs/page.md"
printf 'Start at `plan/gone.h`.\n' >>"$tree/plan/README.md"
out=$("$root/scripts/check-docs" "$tree") && { echo "a missing path in a folder's page was accepted"; exit 1; }
grep -qF 'plan/README.md:3: names plan/gone.h' <<<"$out" || { echo "not named: $out"; exit 1; }
rm "$tree/plan/README.md"
out=$("$root/scripts/check-docs" "$tree") && { echo "a folder without a page was accepted"; exit 1; }
grep -qF 'plan: has sources but no README.md' <<<"$out" || { echo "not named: $out"; exit 1; }
