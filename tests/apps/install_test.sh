#!/usr/bin/env bash
# cmake --install gives a tree that works by itself: the command finds its catalogue and its worker beside it, and not in
# the source tree. Usage: install_test.sh BUILD_DIR
set -euo pipefail
build=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cmake --install "$build" --prefix "$tree/usr" >/dev/null
cd "$tree"
mv usr moved  # wherever it stands
orrery=$tree/moved/bin/orrery

first=$("$orrery" doctor --json | grep -o '"detail":"[^"]*models, [^"]*clusters"')
grep -q "$tree/moved/share/orrery" <<<"$first" || { echo "does not find its own catalogue first: $first"; exit 1; }
"$orrery" plan "$tree/moved/share/orrery/examples/tiny-gpt-localhost-2.yaml" --gpus 1 -o plan.yaml >/dev/null
if [[ -x $build/bin/orrery-worker ]]; then
  "$orrery" train plan.yaml --run run --steps 1 >/dev/null
  [[ -s run/metrics.jsonl ]] || { echo "no metrics"; exit 1; }
fi
for said in man/man1/orrery.1 bash-completion/completions/orrery zsh/site-functions/_orrery \
  fish/vendor_completions.d/orrery.fish; do
  grep -q -- calibrate "moved/share/$said" || { echo "share/$said names no verbs"; exit 1; }
done
# zsh loads its script by running it as the function: it has to complete then, too.
last='if [[ $funcstack[1] == _orrery ]]; then _orrery "$@"; else compdef _orrery orrery; fi'
[[ $(tail -n 1 moved/share/zsh/site-functions/_orrery) == "$last" ]] || { echo "zsh's first Tab is lost"; exit 1; }
echo "an installed tree plans and trains, and its man page and completions are there"
