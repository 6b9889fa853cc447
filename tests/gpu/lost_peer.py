#!/usr/bin/env python3
"""What becomes of a training when a rank dies in the middle of a step: two ranks are started by mpiexec, one kills
itself, and the other is left to notice. Prints one JSON object: what the survivor said, after how many seconds it
ended, its exit code.

Usage: lost_peer.py FOLDER DEADLINE WORKER ARGUMENT…        starts both; the worker's --deadline is given to it
       lost_peer.py --rank FOLDER WORKER ARGUMENT…          one rank, started by mpiexec

mpiexec would end the survivor the moment that a rank is gone. So each rank is the child of a process in a session of
its own, which notes how it ended, and to mpiexec both ranks live on until then.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

PATIENCE = 8  # seconds beyond the deadline
STEP = 5  # in the middle of which rank 1 dies


def record(folder, rank, **what):
    path = folder / f"rank-{rank}.json"
    path.with_suffix(".part").write_text(json.dumps(what))
    path.with_suffix(".part").replace(path)


def recorded(folder, rank):
    try:
        return json.loads((folder / f"rank-{rank}.json").read_text())
    except (OSError, ValueError):
        return None


def one_rank(folder, command):
    rank = int(os.environ["PMI_RANK"])
    watcher = os.fork()
    if watcher == 0:
        os.setsid()  # mpiexec's signals are for its own children's sessions
        with open(folder / f"rank-{rank}.out", "wb") as out, open(folder / f"rank-{rank}.err", "wb") as err:
            worker = subprocess.Popen(command, stdout=out, stderr=err, close_fds=False)  # PMI's descriptor goes along
            code = worker.wait()
        record(folder, rank, exit_code=code, at=time.time())
        os._exit(0)
    os.waitpid(watcher, 0)
    while recorded(folder, 1 - rank) is None and recorded(folder, "end") is None:
        time.sleep(0.05)


def last_words(folder, rank):
    lines = (folder / f"rank-{rank}.err").read_text(errors="replace").splitlines()
    return [line[:300] for line in lines if line.startswith("orrery-worker: ")][-3:]


def both_ranks(folder, deadline, command):
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"ORRERY_FAULT": f"kill:rank=1,step={STEP},at=within"}
    launcher = subprocess.Popen(
        [
            "mpiexec",
            "-disable-auto-cleanup",
            "-n",
            "2",
            sys.executable,
            __file__,
            "--rank",
            folder,
            *command,
            "--deadline",
            str(deadline),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    killed = None
    while True:
        dead, survivor = recorded(folder, 1), recorded(folder, 0)
        if dead and killed is None:
            killed = dead["at"]
        late = killed is not None and time.time() > killed + deadline + PATIENCE
        alone = launcher.poll() is not None and killed is None
        if (dead and survivor) or late or (survivor and killed is None) or alone:
            break
        time.sleep(0.05)
    record(folder, "end")
    told = {
        "deadline_s": deadline,
        "killed": dead is not None and dead["exit_code"] == -9,
        "step_of_training": STEP,
        "survivor": {},
    }
    if survivor:
        told["survivor"] = {
            "exit_code": survivor["exit_code"],
            "seconds": round(max(0.0, survivor["at"] - (killed or survivor["at"])), 2),
        }
    if (folder / "rank-0.err").exists():
        told["survivor"]["says"] = last_words(folder, 0)
    print(json.dumps(told), flush=True)
    try:
        launcher.wait(3)
    except subprocess.TimeoutExpired:
        launcher.kill()
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "--rank":
        one_rank(pathlib.Path(sys.argv[2]), sys.argv[3:])
    elif len(sys.argv) > 3:
        sys.exit(both_ranks(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
    else:
        sys.exit(__doc__)
