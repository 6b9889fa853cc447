"""Runs steps on a machine that may go away at any moment: each step has a deadline and costs only itself, and what it
gave is on disk before the next one begins. A folder of results has four files, because some machines give few back:
  results.jsonl   a JSON object for each step that has ended, as soon as it has
  page.txt        for people, and results.json, for programs: of all steps so far, made again after each
  results.tar.gz  these, and all that the steps wrote: what `gpu-check --judge` and `--after` read
"""
import contextlib
import dataclasses
import gzip
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import time
import traceback
import zlib
from typing import Callable, Optional, Union

import reading

GRACE = 3.0  # seconds between asking a step to end and ending it
LEAST = 1.0  # with less time left a step is not begun
MOST_ARCHIVED = 15 << 20  # bytes of results.tar.gz: files above 16 MiB may not come back
MOST_OF_A_FILE = 32 << 20


def passes(session, step, ended):
    """The figures of a step that has none: whether it ended well."""
    return {"passed": ended["exit_code"] == 0}


@dataclasses.dataclass
class Step:
    """One program. Its output is NAME.out and NAME.err in the work folder."""

    name: str
    limit: float  # seconds that it may count on; it may take as much again of what earlier steps have left over
    command: Union[list, Callable]  # or of the seconds that it gets
    figures: Callable = passes  # (session, step, how it ended) -> what it gave, with "passed"
    environment: Optional[dict] = None  # None: that of Orrery's programs
    writes: tuple = ()  # files and folders beside its output, relative to the work folder


class NoGpu(Exception):
    """Nothing of this can run here, and why."""


# -- the archive -----------------------------------------------------------------------------------------------------
class Archive:
    """A tar that grows: each file is a gzip member of its own, so that a machine that dies while one is written loses
    that one alone. A file that is added again replaces the one before it, as in every tar."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def add(self, files):
        """files: (path, name in the archive). -> the names that found no room."""
        left_out = []
        with open(self.path, "ab") as archive:
            for path, name in files:
                try:
                    size, data = path.stat().st_size, b""
                    if size <= MOST_OF_A_FILE:
                        data = path.read_bytes()
                except OSError:
                    continue
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = len(data), int(time.time())
                padding = bytes(-len(data) % tarfile.BLOCKSIZE)
                piece = gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) + data + padding, 6)
                if size > MOST_OF_A_FILE or archive.tell() + len(piece) > MOST_ARCHIVED:
                    left_out.append(name)
                else:
                    archive.write(piece)
        return left_out


def unzipped(path):
    """Of a file of gzip members, as far as it goes."""
    data, out = pathlib.Path(path).read_bytes(), bytearray()
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            out += member.decompress(data)
        except zlib.error:
            break
        data = member.unused_data
    return bytes(out)


def extract(archive, folder):
    """All whole files of an archive, also of one whose machine went away while it was written."""
    with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(unzipped(archive)), mode="r:") as tar:
        for entry in tar:
            parts = pathlib.PurePosixPath(entry.name).parts
            if not entry.isfile() or ".." in parts or entry.name.startswith("/"):
                continue
            data = tar.extractfile(entry).read()  # an error where it ends before
            path = pathlib.Path(folder).joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def files_below(folder, names):
    for name in names:
        path = folder / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not file.is_symlink():
                yield file, str(file.relative_to(folder))


# -- steps -----------------------------------------------------------------------------------------------------------
class Session:
    """The steps of one call. make_page: results of steps -> (lines of text, object, whether all is well)."""

    def __init__(self, out, work, pack, make_page, environment=None):
        self.out, self.work, self.pack = pathlib.Path(out), pathlib.Path(work), pathlib.Path(pack)
        self.make_page = make_page
        self.own = dict(
            os.environ if environment is None else environment
        )  # as this machine has it: for PyTorch and tools
        self.environment = dict(self.own)  # of Orrery's programs
        self.results, self.passed, self.finished = [], False, False
        self.began, self.due = time.monotonic(), 0.0
        for folder in (self.out, self.work):
            folder.mkdir(parents=True, exist_ok=True)
        self.archive = Archive(self.out / "results.tar.gz")
        for name in ("results.jsonl", "results.tar.gz", "results.json", "page.txt"):
            (self.out / name).unlink(missing_ok=True)

    def elapsed(self):
        return time.monotonic() - self.began

    def use_libraries(self, folders, **variables):
        """The pack's programs find their own libraries, then CUDA's, then what this machine says."""
        path = [str(self.pack / "lib"), *folders, self.own.get("LD_LIBRARY_PATH", "")]
        self.environment = (
            self.own
            | {
                "LD_LIBRARY_PATH": ":".join(folder for folder in path if folder),
                "PATH": f"{self.pack / 'bin'}:{self.own.get('PATH', '')}",
                "HYDRA_LAUNCHER": "fork",
                "HYDRA_IFACE": "lo",
                # One machine: UCX over TCP can hang in MPI_Finalize where shared memory is not all there.
                "UCX_TLS": "self,posix,sysv",
                "ORRERY_CACHE_DIR": str(self.work / "cache"),
            }
            | variables
        )

    def result(self, name):
        return next((r for r in self.results if r["step"] == name), {})

    def run(self, *steps):
        """Steps side by side, to the end of all. Each may take twice its limit, as long as all steps so far stay
        within the sum of theirs."""
        self.due += max(step.limit for step in steps)
        left = self.due - self.elapsed()
        running = [self._start(step, min(2 * step.limit, left)) for step in steps if left >= LEAST]
        for step in steps if left < LEAST else ():
            self._keep(step, {"exit_code": None, "seconds": 0.0}, {"passed": False, "why": "no time left"})
        while running:
            for one in list(running):
                ended = one.poll()
                if ended:
                    running.remove(one)
                    beside = {"beside": len(steps) - 1} if len(steps) > 1 else {}  # its times are not its own
                    self._keep(one.step, ended | beside, self._figures(one.step, ended))
            time.sleep(0.02)
        self._reap()

    def note(self, name, **figures):
        """A result without a program."""
        self._keep(Step(name, 0, []), {"exit_code": None, "seconds": 0.0}, figures)

    def finish(self):
        """There are no more steps: the page says so until then."""
        self.finished = True
        self.show()

    def show(self):
        """The page and the object, from the results so far."""
        try:
            lines, result, self.passed = self.make_page(self.results)
        except Exception:  # a fault of the page's own: what was measured stays
            why = traceback.format_exc().splitlines()
            lines, result, self.passed = (
                ["THE PAGE COULD NOT BE MADE: see results.jsonl", "", *why],
                {"page": why},
                False,
            )
        if not self.finished:
            count = f"{len(self.results)} step{'' if len(self.results) == 1 else 's'}"
            lines = [f"{lines[0]}, NOT FINISHED: {count} so far", *lines[1:]]
        text = json.dumps(reading.finite({"finished": self.finished} | result), indent=1)
        for path, content in (("page.txt", "\n".join(lines)), ("results.json", text)):
            part = self.out / (path + ".part")
            part.write_text(content + "\n")
            part.replace(self.out / path)
        self.archive.add((self.out / name, name) for name in ("results.jsonl", "page.txt", "results.json"))

    def _start(self, step, seconds):
        environment = self.environment if step.environment is None else step.environment
        return Running(step, seconds, self.work, environment)

    def _figures(self, step, ended):
        try:
            found = {"passed": False, **step.figures(self, step, ended)}
        except Exception as error:
            found = {"passed": False, "why": f"its results could not be read: {type(error).__name__}: {error}"}
        if found["passed"] is False:  # its last words
            err, out = (reading.last_lines(self.work / f"{step.name}.{end}", 6) for end in ("err", "out"))
            found["says"] = err or out
        return found

    def _keep(self, step, ended, figures):
        line = reading.finite({"step": step.name} | ended | figures | {"step": step.name})
        self.results.append(line)
        with open(self.out / "results.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        left_out = self.archive.add(files_below(self.work, (step.name + ".out", step.name + ".err", *step.writes)))
        if left_out:
            print(f"gpu-check: {step.name}: no room in results.tar.gz for {', '.join(left_out)}", file=sys.stderr)
        how = "" if ended["exit_code"] is None else f"exit {ended['exit_code']}, {ended['seconds']:.1f} s, "
        print(
            f"gpu-check: {step.name}: {how}{'ok' if line['passed'] else 'FAILED'} ({self.elapsed():.0f} s so far)",
            file=sys.stderr,
            flush=True,
        )
        self.show()

    def _reap(self):
        """What a step has left: ranks of mpiexec are in sessions of their own and outlive it. Only programs of the
        unpacked pack, whose folder nobody else uses."""
        programs = str(self.pack.resolve() / "bin") + "/"
        for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
            with contextlib.suppress(OSError):
                if os.readlink(link).startswith(programs):
                    os.kill(int(link.parent.name), signal.SIGKILL)


class Running:
    """A step under way."""

    def __init__(self, step, seconds, work, environment):
        self.step, self.seconds, self.began, self.asked = step, seconds, time.monotonic(), None
        command = step.command(seconds) if callable(step.command) else step.command
        with open(work / (step.name + ".out"), "wb") as out, open(work / (step.name + ".err"), "wb") as err:
            try:
                self.process = subprocess.Popen(
                    [str(word) for word in command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=work,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                self.process = None
                err.write(f"{error}\n".encode())

    def poll(self):
        """How it ended: exit code (negative: a signal's number), seconds, whether it ran out of time. None: not yet."""
        now = time.monotonic()
        if self.process is None:
            return {"exit_code": 127, "seconds": 0.0, "timed_out": False}
        code = self.process.poll()
        if code is not None:
            self._signal(signal.SIGKILL)  # what it has left in its session
            return {"exit_code": code, "seconds": round(now - self.began, 2), "timed_out": self.asked is not None}
        if self.asked is None and now - self.began > self.seconds:
            self.asked = now
            self._signal(signal.SIGTERM)
        elif self.asked is not None and now - self.asked > GRACE:
            self._signal(signal.SIGKILL)
        return None

    def _signal(self, number):
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, number)
