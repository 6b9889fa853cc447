#!/usr/bin/env bash
# scripts/plant-faults says what was caught and what survived, leaves the tree alone, and refuses what it cannot plant.
set -euo pipefail
script=$(cd "$(dirname "$0")/../.." && pwd)/scripts/plant-faults
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts" "$tree/room" "$tree/tests/teeth"
git -C "$tree" init -q
printf '/build*/\n' >"$tree/.gitignore"
printf '// Sums.\nint sum(int a, int b) {\n  return a + b;\n}\nint twice(int a) {\n  return a * 2;\n}\n' >"$tree/room/sum.cpp"

# A build that needs no compiler: a program that looks at its source, and says what a test of it would say.
cat >"$tree/scripts/build" <<'BUILD'
#!/usr/bin/env bash
set -e
grep -q 'does not compile' room/sum.cpp && { echo "error: sum.cpp"; exit 1; }
mkdir -p build/bin
cp room/sum.cpp build/seen
cat >build/bin/test_room <<'TEST'
#!/usr/bin/env bash
here=$(dirname "$0")/..
case "$*" in
  *filter=Sum.*list_tests*) printf 'Sum.\n  Adds\n'; exit ;;
  *list_tests*) exit ;;
esac
grep -q 'a + b' "$here/seen" && exit
printf '[ RUN      ] Sum.Adds\n'
grep -q 'crash' "$here/seen" && kill -SEGV $$
printf '[  FAILED  ] Sum.Adds\n'
exit 1
TEST
chmod +x build/bin/test_room
BUILD
chmod +x "$tree/scripts/build"

plants() {  # plants EXIT TEXT [ARGUMENT...] <<< faults: the script's exit code, and what it says
  local want=$1 text=$2 status=0 out before after
  shift 2
  cat >"$tree/tests/teeth/room.faults"
  before=$(sha256sum "$tree/room/sum.cpp")
  out=$("$script" --root "$tree" "$@" 2>&1) || status=$?
  after=$(sha256sum "$tree/room/sum.cpp")
  if ((status != want)) || ! grep -qF -- "$text" <<<"$out" || [[ $before != "$after" ]]; then
    echo "not exit $want with '$text' (exit $status, tree $([[ $before == "$after" ]] || echo not) as it was):"
    echo "$out"
    exit 1
  fi
}
fault() {  # fault NAME OLD NEW [TESTS]
  printf 'fault %s\nbreaks Sums.\nfile room/sum.cpp\n- %s\n+ %s\ncaught-by test_room %s\n' "$1" "$2" "$3" "${4:-Sum.*}"
}

plants 0 '| minus | Sums. | caught | Sum.Adds |' <<<"$(fault minus 'return a + b;' 'return a - b;')"
plants 0 'caught | Sum.Adds (exit -11)' <<<"$(fault crash 'return a + b;' 'return a - b;  // crash')"
plants 5 '| thrice | Sums. | SURVIVED |' <<<"$(fault thrice 'return a * 2;' 'return a * 3;')"
plants 5 '2 faults: 1 caught, 1 SURVIVED' \
  <<<"$(fault minus 'return a + b;' 'return a - b;'; fault thrice 'return a * 2;' 'return a * 3;')"
plants 0 '1 faults: 1 caught' minus \
  <<<"$(fault minus 'return a + b;' 'return a - b;'; fault thrice 'return a * 2;' 'return a * 3;')"
plants 5 'does not build' <<<"$(fault broken 'return a + b;' 'does not compile')"
plants 5 'stands in room/sum.cpp 0 times' --check <<<"$(fault gone 'return a + c;' 'return a;')"
plants 5 'stands in room/sum.cpp 2 times' --check <<<"$(fault vague '}' '')"
plants 5 'changes nothing' --check <<<"$(fault same 'return a + b;' 'return a + b;')"
plants 0 '| minus | Sums. | caught | Sum.Adds |' <<<"$(fault minus 'return a + b;' 'return a - b;' | sed 's#^file .*#file room#')"
plants 5 'there is no lounge' --check <<<"$(fault minus 'return a + b;' 'return a - b;' | sed 's#^file .*#file lounge#')"
plants 5 'has no test Gone.*' <<<"$(fault minus 'return a + b;' 'return a - b;' 'Gone.*')"
plants 5 'has no file, program' --check <<<$'fault half\nbreaks Sums.\n- return a + b;'
plants 2 'is called nobody' nobody <<<"$(fault minus 'return a + b;' 'return a - b;')"
# Without a fault the test fails: then nothing that it says is worth anything.
sed -i 's/a + b/b + a/' "$tree/room/sum.cpp"
plants 5 'fails without any fault' <<<"$(fault minus 'return b + a;' 'return a - b;')"
# What a planting that was killed has left is gone at the next start.
sed -i 's/b + a/a + b/' "$tree/room/sum.cpp"
sed -i 's/a + b/a - b/' "$tree/build/teeth/tree/room/sum.cpp"
plants 0 '1 faults: 1 caught' <<<"$(fault minus 'return a + b;' 'return a - b;')"
echo "faults are planted, caught, and taken back"
