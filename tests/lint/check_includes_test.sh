#!/usr/bin/env bash
# scripts/check-includes passes a clean tree and names each planted violation with its file and line.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

plant() {  # plant FILE <<< text: replaces the tree by one file beside a clean one
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/base" "$tree/$(dirname "$1")"
  printf '#pragma once\n/// Clean.\n#include <string>\n' >"$tree/base/clean.h"
  cat >"$tree/$1"
}
accepted() {
  "$root/scripts/check-includes" "$tree" >/dev/null || { echo "refused, but is allowed: $1"; failures=$((failures + 1)); }
}
refused() {  # refused FILE:LINE TEXT
  local out status=0
  out=$("$root/scripts/check-includes" "$tree") || status=$?
  if ((status != 5)) || ! grep -qF "$1" <<<"$out" || ! grep -qF "$2" <<<"$out"; then
    echo "not refused as '$1 … $2' (exit $status): $out"
    failures=$((failures + 1))
  fi
}

plant sim/good.cpp <<<$'// Replays.\n#include <nlohmann/json.hpp>\n#include "cost/estimate/memory.h"\n#include "sim/replay/replay.h"'
accepted "sim includes cost"
plant cost/arrow.cpp <<<$'// Upwards.\n\n#include "sim/simulate.h"'
refused cost/arrow.cpp:3: 'cost may not know sim'
plant models/sideways.h <<<$'#pragma once\n/// Sideways.\n#include "clusters/cluster.h"'
refused models/sideways.h:3: 'models may not know clusters'
plant exec/prices.cpp <<<$'// Decides.\n#include "cost/results.h"'
refused exec/prices.cpp:2: 'exec may not know cost'
plant plan/spec/job.cpp <<<$'// A room inside a room.\n#include "plan/lower/lower.h"'
refused plan/spec/job.cpp:2: 'plan/spec may not know plan/lower'
plant plan/lower/lower.cpp <<<$'// The other way.\n#include "plan/spec/job.h"'
accepted "lowering knows plans"
plant exec/ring.cpp <<<$'// Not the MPI transport.\n#include <mpi.h>'
refused exec/ring.cpp:2: 'exec/mpi'
plant exec/mpi/ring.cpp <<<$'// The MPI transport.\n#include <mpi.h>'
accepted "mpi.h in exec/mpi"
plant exec/cpu/gpu.cpp <<<$'// Not CUDA.\n#include <cuda_runtime.h>'
refused exec/cpu/gpu.cpp:2: 'exec/cuda'
plant plan/read.cpp <<<$'// Reads by itself.\n#include <yaml-cpp/yaml.h>'
refused plan/read.cpp:2: 'base/*.cpp'
plant apps/verb.cpp <<<$'// A second costly unit.\n#include <CLI/CLI.hpp>'
refused apps/verb.cpp:2: 'apps/command_line.cpp'
plant cost/heavy.h <<<$'#pragma once\n/// Heavy.\n#include <nlohmann/json.hpp>'
refused cost/heavy.h:3: 'json_fwd'
plant clusters/flow.h <<<$'#pragma once\n/// Heavy.\n#include <boost/graph/push_relabel_max_flow.hpp>'
refused clusters/flow.h:3: 'slow to compile'
plant cost/clock.cpp <<<$'// Looks at the clock.\n#include <chrono>'
refused cost/clock.cpp:2: 'touches no file, clock'
plant plan/noisy.cpp <<<$'// Prints.\n#include <cstdio>\nvoid f() { std::printf("x"); }'
refused plan/noisy.cpp:3: 'prints nothing'
plant plan/relative.cpp <<<$'// Not from the root.\n#include "schedule.h"'
refused plan/relative.cpp:2: 'project root'
plant base/silent.h <<<$'#pragma once\n#include <string>'
refused base/silent.h:2: 'what it is for'
plant base/guardless.h <<<$'/// No guard.'
refused base/guardless.h:1: '#pragma once'

if ((failures)); then echo "$failures rules are not kept"; exit 1; fi
echo "every planted violation is found"
