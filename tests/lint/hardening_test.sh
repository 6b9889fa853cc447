#!/usr/bin/env bash
# Every source was compiled with the defences of cmake/hardening.cmake, and what was linked has them; a program and a
# source without are found. Usage: tests/lint/hardening_test.sh BUILD_FOLDER COMPILER
set -euo pipefail
build=$1 compiler=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What `file`, a program or a library, lacks; a word a line.
lacking() {
  local headers dynamic symbols
  headers=$(readelf -hlW "$1")
  dynamic=$(readelf -dW "$1")
  symbols=$(readelf --dyn-syms -W "$1")
  grep -qE 'Type: +DYN' <<<"$headers" || echo PIE
  grep -q GNU_RELRO <<<"$headers" || echo RELRO
  grep -qE '\(FLAGS(_1)?\).*\b(BIND_)?NOW\b' <<<"$dynamic" || echo bind-now
  grep -qE 'GNU_STACK .* RW +0x' <<<"$headers" || echo stack-without-execution
  grep -q ' __stack_chk_fail' <<<"$symbols" || echo stack-protector
  grep -qE ' __[a-z]+_chk@' <<<"$symbols" || echo fortified-calls
}

# Of compile commands, as CMake writes them, those without a flag; fortification needs optimisation.
commands_lacking() {
  for flag in -fstack-protector-strong -fstack-clash-protection -D_FORTIFY_SOURCE=; do
    grep '"command":' "$1" | grep -ve "$flag" | sed "s/^/without $flag: /" || true
  done
}

bad=0
for name in orrery orrery-worker liborrery_cuda.so; do
  file=$build/bin/$name
  [[ -e $file ]] || continue
  missing=$(lacking "$file")
  if [[ -n $missing ]]; then
    echo "$file lacks: ${missing//$'\n'/, }"
    bad=1
  fi
done
[[ -e $build/bin/orrery ]] || { echo "$build/bin/orrery is not built"; bad=1; }
missing=$(commands_lacking "$build/compile_commands.json")
if [[ -n $missing ]]; then
  head -n 5 <<<"$missing"
  bad=1
fi

# What has none of them is told so, one by one.
cat >"$scratch/plain.cpp" <<'CODE'
#include <cstdio>
#include <cstring>
int main(int count, char** words) {
  char copy[16];
  std::strcpy(copy, words[count - 1]);
  std::puts(copy);
}
CODE
plain="-O2 -U_FORTIFY_SOURCE -fno-stack-protector -no-pie -fno-pie -Wl,-z,norelro -Wl,-z,lazy -Wl,-z,execstack"
# shellcheck disable=SC2086
"$compiler" $plain "$scratch/plain.cpp" -o "$scratch/plain" 2>/dev/null
found=$(lacking "$scratch/plain" | tr '\n' ' ')
expected="PIE RELRO bind-now stack-without-execution stack-protector fortified-calls "
[[ $found == "$expected" ]] || { echo "of a program without defences found: $found"; bad=1; }
printf '  "command": "c++ -O2 -fstack-protector-strong -D_FORTIFY_SOURCE=3 -c a.cpp",\n' >"$scratch/commands.json"
found=$(commands_lacking "$scratch/commands.json")
if [[ $found != "without -fstack-clash-protection: "* || $(wc -l <<<"$found") != 1 ]]; then
  echo "of a command found: $found"
  bad=1
fi
exit $((bad ? 5 : 0))
