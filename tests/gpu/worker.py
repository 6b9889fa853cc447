"""How the worker is started: one rank as a process by itself, more of them by mpiexec."""
import os

import figures
from reading import read
from steps import Step

DEADLINE = 60  # seconds that a rank waits for another, or for its device


def cores():
    return len(os.sched_getaffinity(0))


def plan_file(session, plan):
    """The pack's plan, with the paths of where it was unpacked."""
    path = session.work / f"plan-{plan}.yaml"
    path.write_text(read(session.pack / f"plans/{plan}.yaml").replace("@PACK@", str(session.pack)))
    return path


def command(session, plan, run, *flags, threads=1):
    """Trains a plan on GPUs; what is not said is as the plan says."""
    return [
        session.pack / "bin/orrery-worker",
        "--plan",
        plan_file(session, plan),
        "--run",
        session.work / f"run-{run}",
        "--overwrite",
        "--backend",
        "cuda",
        "--no-checkpoint",
        "--threads",
        threads,
        *flags,
    ]


ALONE = ("--transport", "threads")  # one rank needs no MPI


def train_step(session, plan, limit, *flags, variant="", ranks=1, threads=1, judge=figures.golden_training, **judged):
    """plan: of the pack. variant: what is other than it says, by the flags. threads: of the host's part: they draw
    initial weights. judge: its figures, with what it is told besides."""
    name = f"{plan}.{variant}" if variant else plan
    begin, alone = (["mpiexec", "-n", ranks], ()) if ranks > 1 else ([], ALONE)
    return Step(
        f"train-{name}",
        limit,
        [*begin, *command(session, plan, name, "--deadline", DEADLINE, *alone, *flags, threads=threads)],
        lambda _, step, ended: judge(session, step, ended, plan, variant, **judged),
        writes=(f"run-{name}", f"plan-{plan}.yaml", "cache"),
    )
