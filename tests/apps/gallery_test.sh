#!/usr/bin/env bash
# scripts/gallery: every page is made of inputs that are there, the list says how, and a page that somebody changed is
# found. Usage: gallery_test.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
wrong() { echo "$*"; exit 1; }
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/scripts" "$copy/reports"
cp scripts/gallery "$copy/scripts/"
cp -r reports/gallery "$copy/reports/"
# The cheapest page twice, from another folder.
"$copy/scripts/gallery" --build "$build" cpu-run >/dev/null
"$copy/scripts/gallery" --build "$build" --check cpu-run >/dev/null || wrong "the same inputs gave another page"
echo "<!-- changed -->" >>"$copy/reports/gallery/cpu-run.html"
code=0
"$copy/scripts/gallery" --build "$build" --check cpu-run >/dev/null 2>&1 || code=$?
((code == 5)) || wrong "a changed page was not found: exit code $code"
code=0
"$copy/scripts/gallery" --build "$build" no-such-page >/dev/null 2>&1 || code=$?
((code == 2)) || wrong "a page of no such name: exit code $code"
# Every page of the list is there, and asks for nothing from elsewhere.
count=0
for page in $(grep -oE '\]\([a-z0-9-]+\.html\)' reports/gallery/README.md | tr -d '](,)'); do
  [[ -s reports/gallery/$page ]] || wrong "reports/gallery/$page is listed and missing"
  if grep -qE '(src|href)="?(https?:)?//' "reports/gallery/$page"; then wrong "$page names a resource elsewhere"; fi
  count=$((count + 1))
done
((count == $(ls reports/gallery/*.html | wc -l))) || wrong "the list and the pages differ"
echo "$count pages, made again byte by byte where asked"
