#!/usr/bin/env python3
"""The half of gpu-check that runs on a GPU machine, without a GPU: fake programs leave what broken ones leave, and the
page must come out, say so, and be no success.

Usage: check_test.py [-k PATTERN] …
"""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import check  # noqa: E402
import figures  # noqa: E402
import judge  # noqa: E402
import machine  # noqa: E402
import page  # noqa: E402
import reading  # noqa: E402
import speed  # noqa: E402
import steps  # noqa: E402
from fakes import FAKE_TORCH, TESTS, Folder, job_of  # noqa: E402


class WholeCalls(unittest.TestCase):
    """check.py with fake programs, from its command line to its exit code."""

    def setUp(self):
        self.folder = Folder()
        self.addCleanup(shutil.rmtree, self.folder.path)

    def test_a_sound_machine_passes_and_every_step_is_a_line(self):
        code, text, result, lines = self.folder.call()
        self.assertEqual(code, 0, self.folder.said + text)
        self.assertIn("PASSED", text)
        self.assertIn("attention by cuDNN 9.19.0", text)
        self.assertIn("cuDNN 9.19.0 in", text)
        names = [line["step"] for line in lines]
        for name in (
            *(f"operators-{shard}" for shard, _ in figures.SHARDS),
            "train-serial",
            "memcheck",
            "racecheck",
            "counters",
        ):
            self.assertIn(name, names)
        self.assertEqual(lines, result["results"])
        self.assertTrue(result["finished"])
        self.assertNotIn("NOT FINISHED", text)
        self.assertIn("orrery::exec::cuda::kernel", text)
        self.assertIn("DRAM Throughput 85.1 %", text)
        self.assertIn("said:\n  orrery-worker: rank 0: waited more than 10 s", text)
        self.archive_has_what_judge_and_after_read()

    def archive_has_what_judge_and_after_read(self):
        self.assertEqual(
            sorted(p.name for p in self.folder.out.iterdir()),
            ["page.txt", "results.json", "results.jsonl", "results.tar.gz"],
        )
        there = self.folder.path / "there"
        self.assertTrue(judge.unpack(self.folder.out, there))
        for name in (
            "probe.out",
            "plan-unseen-1.yaml",
            "run-unseen-1/metrics.jsonl",
            "operators-attention.out",
            "memcheck.log",
        ):
            self.assertTrue((there / name).exists(), name)
        self.assertEqual((there / "plan-serial.yaml").read_text(), f"data: {self.folder.pack.resolve()}/data\n")
        self.assertEqual(judge.measured(there, "unseen-1"), (0.01, 1e9))
        self.assertEqual((there / "page.txt").read_text(), (self.folder.out / "page.txt").read_text())

    def test_broken_runs_cost_only_themselves(self):
        broken = {
            "bf16": "a loss that is no number",
            "tf32": "a truncated line",
            "lossless": "no file",
            "dropout": "no JSON",
            "gpt2-124m-bf16": "own attention",
            "gpt2-124m": "a time that is no number",
            "serial": "NaN",
        }
        crash = "Cuda/Operators.Agree/attention_grad_flash"
        code, text, result, lines = self.folder.call(
            FAKE_BROKEN=json.dumps(broken), FAKE_CRASH=crash, FAKE_BENCH_FAILS="1"
        )
        self.assertEqual(code, 5, self.folder.said)
        self.assertNotIn("THE PAGE", text)
        by_name = {line["step"]: line for line in lines}
        wanted = {
            "train-bf16": "the loss of step 7 is no number",
            "train-tf32": "1 line of its metrics cut off or no JSON",
            "train-lossless": "0 of 20 steps",
            "train-dropout": "it did not start",
            "train-serial": "the loss of step 4 is no number",
            "train-gpt2-124m-bf16": "cuDNN is there and was not used: attention by own, tensor cores",
            "operators-attention": f"ended within {crash}; signal 11",
            "bench": "rope: CUDA: an illegal memory access",
        }
        for name, why in wanted.items():
            with self.subTest(name):
                self.assertIs(by_name[name]["passed"], False)
                self.assertIn(why, by_name[name]["why"])
                self.assertIn(why, text)
        self.assertIn("no-graphs has other losses", text)  # beside the run whose losses are no numbers
        failed = {name for name, line in by_name.items() if line["passed"] is False}
        self.assertEqual(failed, set(wanted))
        self.assertEqual(sorted(failed), sorted(result["failed"]))
        self.assertEqual([row["name"] for row in by_name["bench"]["operators"]], ["matmul", "gelu"])
        for shard, tests in TESTS.items():
            if shard != "attention":
                self.assertEqual(by_name[f"operators-{shard}"]["ok"], len(tests))

    def test_no_driver_everywhere_is_a_page_too(self):
        for name in ("orrery-worker", "gpu_bench", "mpiexec"):
            self.folder.program(
                self.folder.pack / "bin" / name, "import sys\nsys.exit('no driver: this machine has none')"
            )
        code, text, _, lines = self.folder.call()
        names = [line["step"] for line in lines]
        self.assertEqual(code, 5)
        for line in lines:
            if line["step"].startswith("train-"):
                self.assertIs(line["passed"], False)
                self.assertIn("it did not start", line["why"])
        self.assertIn("no driver: this machine has none", text)
        self.assertIn("no driver: this machine has none", lines[names.index("bench")]["says"])
        code, text, _, _ = self.folder.call("--speed")
        self.assertEqual(code, 5)
        self.assertIn("THERE IS NO RATIO AGAINST A COMPILED PYTORCH", text)
        self.assertIn("no driver: this machine has none", text)

    def test_a_machine_without_a_gpu_is_none_of_these(self):
        self.folder.program(
            self.folder.pack / "bin/test_gpu", "print('skipped, no GPU: no driver')\nraise SystemExit(77)"
        )
        for flags in ((), ("--speed",)):
            code, _, _, lines = self.folder.call(*flags)
            self.assertEqual(code, 6)
            self.assertEqual([line["step"] for line in lines], ["machine", "device"])
            self.assertIn("skipped, no GPU: no driver", self.folder.said)

    def test_speed_trains_all_and_names_its_ratios(self):
        self.folder.program(self.folder.pack / "check/torch_training.py", FAKE_TORCH)
        code, text, result, lines = self.folder.call("--speed", FAKE_TORCH_MODES="blocks")
        self.assertEqual(code, 0, self.folder.said + text)
        self.assertIn("Orrery with --no-repeat / PyTorch compiled (blocks): 2.00, goal 1.2: reached", text)
        self.assertIn("over 989.4 TFLOP/s", text)
        first = [line["step"] for line in lines if line["step"].startswith(("train", "torch"))][:2]
        self.assertEqual(first, ["train-speed-gpt2-124m.no-repeat", "torch-gpt2-124m"])
        row = result["models"]["gpt2-124m"]
        self.assertAlmostEqual(row["no_repeat"]["mfu"], row["flops_per_step"] / 0.01 / 989.4e12)


class Listed(steps.Session):
    """Runs nothing: which steps there would be on a machine that has all tools."""

    def __init__(self, folder):
        super().__init__(
            folder / "out",
            folder / "work",
            folder / "pack",
            lambda results: ([""], {}, True),
            {"LD_LIBRARY_PATH": "/the/driver", "PATH": "/bin"},
        )
        self.asked = []

    def run(self, *group):
        self.due += max(step.limit for step in group)
        self.asked.append(group)

    def note(self, name, **figures_):
        pass

    def result(self, name):
        return {
            "machine": {
                "gpu": {"compute_cap": "9.0"},
                "tools": {"ncu": "/ncu", "compute-sanitizer": "/cs"},
                "cudnn": "9",
            },
            "kernel-times": {"kernels": [{"kernel": "k"}]},
            "device": {"exit_code": 0},
        }[name]


def listed(call):
    folder = Folder(with_cudnn=False)
    (folder.pack / "bin/train_gpt2cu").touch()
    for plan in range(2, 7):
        (folder.pack / f"plans/unseen-{plan}.yaml").touch()
    try:
        session = Listed(folder.path)
        call(session)
        return session
    finally:
        shutil.rmtree(folder.path)


class Calls(unittest.TestCase):
    """The steps of both calls, by their list."""

    def setUp(self):
        self.first, self.second = listed(check.first_call), listed(lambda session: check.second_call(session, None))

    def test_the_limits_of_each_call_sum_to_less_than_ten_minutes(self):
        for session in (self.first, self.second):
            self.assertGreater(session.due, 400)
            self.assertLessEqual(session.due, 575)  # beside them: unpacking, pages, the last step's grace

    def test_two_ranks_come_last_and_one_rank_needs_no_mpi(self):
        for session in (self.first, self.second):
            commands = [
                [str(w) for w in s.command] for group in session.asked for s in group if not callable(s.command)
            ]
            pairs = [i for i, words in enumerate(commands) if words[0] == "mpiexec" or "lost_peer" in " ".join(words)]
            self.assertEqual(pairs, list(range(len(commands) - len(pairs), len(commands))))
            for words in commands[: len(commands) - len(pairs)]:
                if any(word.endswith("orrery-worker") for word in words):
                    self.assertEqual(words[words.index("--transport") + 1], "threads")
        self.assertEqual(len(self.first.asked[-1]), 1)

    def test_pytorch_and_tools_have_the_machines_own_libraries(self):
        seen = set()
        for group in self.first.asked + self.second.asked:
            for step in group:
                environment = self.first.environment if step.environment is None else step.environment
                own = step.name.startswith("torch") or step.name in (
                    "memcheck",
                    "racecheck",
                    "kernel-times",
                    "counters",
                )
                if own:
                    seen.add(step.name)
                    self.assertEqual(environment["LD_LIBRARY_PATH"], "/the/driver", step.name)
                else:
                    self.assertTrue(environment["LD_LIBRARY_PATH"].endswith(":/the/driver"), step.name)
                    self.assertIn("/pack/lib:", environment["LD_LIBRARY_PATH"])
        self.assertLessEqual({"torch", "torch-gpt2-124m", "memcheck", "counters"}, seen)

    def test_blocks_are_compiled_first(self):
        for group in self.second.asked:
            for step in group:
                if step.name.startswith("torch-"):
                    words = step.command(100.0)
                    self.assertTrue(words[words.index("--modes") + 1].startswith("blocks"))
                    self.assertEqual(words[words.index("--seconds") + 1], 95)


class Steps(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.session = steps.Session(
            self.folder / "out", self.folder / "work", self.folder / "pack", lambda r: ([""], {}, True)
        )

    def test_a_page_says_that_steps_are_missing_until_there_are_none(self):
        self.session.make_page = lambda results: (["PASSED"], {}, True)
        self.run_quietly(steps.Step("one", 5, ["true"]))
        self.assertEqual((self.folder / "out/page.txt").read_text(), "PASSED, NOT FINISHED: 1 step so far\n")
        self.session.finish()
        self.assertEqual((self.folder / "out/page.txt").read_text(), "PASSED\n")

    def run_quietly(self, *group):
        with contextlib.redirect_stderr(io.StringIO()):
            self.session.run(*group)
        return [self.session.result(step.name) for step in group]

    def test_a_step_that_hangs_is_ended_and_keeps_its_output(self):
        with mock.patch.object(steps, "GRACE", 0.3):
            began = time.monotonic()
            stubborn = "trap '' TERM; echo a row; while :; do sleep 0.1; done"
            one, two = self.run_quietly(
                steps.Step("hangs", 1.5, ["bash", "-c", stubborn]), steps.Step("works", 1.5, ["true"])
            )
        self.assertLess(time.monotonic() - began, 10)
        self.assertTrue(one["timed_out"])
        self.assertEqual(one["exit_code"], -9)
        self.assertEqual((self.folder / "work/hangs.out").read_text(), "a row\n")
        self.assertTrue(two["passed"])
        self.assertTrue(self.run_quietly(steps.Step("next", 5, ["true"]))[0]["passed"])

    def test_a_step_may_take_what_earlier_ones_saved_and_no_more(self):
        given = []
        take = lambda seconds: given.append(seconds) or ["true"]
        self.run_quietly(steps.Step("a", 10, take))
        self.run_quietly(steps.Step("b", 4, take))
        self.session.began -= 14  # as if both had taken all that they had
        self.run_quietly(steps.Step("c", 4, take))
        self.assertAlmostEqual(given[0], 10, delta=1)
        self.assertAlmostEqual(given[1], 8, delta=0.1)  # twice its limit
        self.assertAlmostEqual(given[2], 4, delta=1)
        self.session.began -= 1000
        late = self.run_quietly(steps.Step("d", 4, take))[0]
        self.assertEqual((late["passed"], late["why"], len(given)), (False, "no time left", 3))

    def test_figures_and_pages_that_fail_cost_nothing_else(self):
        def broken(session, step, ended):
            raise KeyError("loss")

        self.session.make_page = lambda results: 1 / 0
        one, two = self.run_quietly(steps.Step("one", 5, ["true"], broken), steps.Step("two", 5, ["/no/such/program"]))
        self.assertIn("could not be read: KeyError", one["why"])
        self.assertEqual(two["exit_code"], 127)
        self.assertIn("ZeroDivisionError", (self.folder / "out/page.txt").read_text())
        self.assertEqual(len((self.folder / "out/results.jsonl").read_text().splitlines()), 2)
        self.assertFalse(self.session.passed)

    def test_an_archive_that_was_being_written_gives_what_was_whole(self):
        archive, source = steps.Archive(self.folder / "a.tar.gz"), self.folder / "source"
        (source / "run").mkdir(parents=True)
        (source / "run/metrics").write_text("first")
        (source / "big").write_bytes(os.urandom(5000))
        archive.add(steps.files_below(source, ["run", "big", "not there"]))
        (source / "run/metrics").write_text("second")
        archive.add(steps.files_below(source, ["run"]))
        listing = subprocess.run(["tar", "tzf", archive.path], capture_output=True, text=True, check=True)
        self.assertEqual((listing.stdout.split(), listing.stderr), (["run/metrics", "big", "run/metrics"], ""))
        whole = archive.path.read_bytes()
        for cut, wanted in ((len(whole), "second"), (len(whole) - 60, "first"), (5000, "first")):
            archive.path.write_bytes(whole[:cut])
            target = self.folder / f"cut-{cut}"
            steps.extract(archive.path, target)
            self.assertEqual((target / "run/metrics").read_text(), wanted)
            self.assertEqual((target / "big").exists(), cut > 5000)

    def test_an_archive_stays_small_enough_to_come_back(self):
        archive = steps.Archive(self.folder / "a.tar.gz")
        (self.folder / "large").write_bytes(os.urandom(3000))
        (self.folder / "small").write_text("kept")
        with mock.patch.object(steps, "MOST_ARCHIVED", 2000):
            self.assertEqual(archive.add(steps.files_below(self.folder, ["large", "small"])), ["large"])
        steps.extract(archive.path, self.folder / "x")
        self.assertEqual((self.folder / "x/small").read_text(), "kept")


class Machines(unittest.TestCase):
    def test_cudnn_is_found_where_pips_wheels_keep_it(self):
        with tempfile.TemporaryDirectory() as folder:
            base = pathlib.Path(folder) / "nvidia"
            for place, libraries in (
                ("cu13/lib", machine.LIBRARIES[:2]),
                ("cudnn/lib", ("libcudnn.so.9", *machine.CUDNN_PARTS)),
            ):
                (base / place).mkdir(parents=True)
                for library in libraries:
                    (base / place / library).touch()
            with mock.patch.object(sys, "path", [folder]), mock.patch.object(machine, "FOLDERS", ()):
                found = machine.find_libraries({})
                self.assertEqual(found["libcudnn.so.9"], str(base / "cudnn/lib"))
                self.assertEqual(found["libcublas.so.13"], str(base / "cu13/lib"))
                self.assertNotIn("libnccl.so.2", found)
                (base / "cudnn/lib" / machine.CUDNN_PARTS[0]).unlink()  # a part is missing: no cuDNN
                self.assertNotIn("libcudnn.so.9", machine.find_libraries({}))

    def test_a_machine_without_cudnn_fails_loudly(self):
        folder = Folder(with_cudnn=False)
        self.addCleanup(shutil.rmtree, folder.path)
        session = steps.Session(
            folder.out, folder.path / "work", folder.pack, lambda results: page.page(results, folder.pack)
        )
        absent = (None, "libcudnn.so.9: cannot open shared object file")
        with mock.patch.object(machine, "cudnn_version", return_value=absent), contextlib.redirect_stderr(
            io.StringIO()
        ):
            check.look_around(session)
        self.assertFalse(session.passed)
        text = (folder.out / "page.txt").read_text()
        self.assertIn("cuDNN IS NOT THERE", text)
        self.assertIn("cannot open shared object file", text)
        self.assertIn("FAILED (machine)", text)

    def test_peaks_are_of_the_device_by_its_datasheet(self):
        peaks = machine.catalogue_peaks(HERE.parent.parent / "clusters/catalog/devices")
        for name, peak in (
            ("NVIDIA H200", 989.4e12),
            ("NVIDIA H100 80GB HBM3", 989.4e12),
            ("NVIDIA A100-SXM4-80GB", 312e12),
            ("NVIDIA A100-PCIE-40GB", 312e12),
            ("NVIDIA H100 PCIe", 756e12),
            ("NVIDIA H100 NVL", 835e12),
            ("NVIDIA GH200 480GB", 989.4e12),
            ("NVIDIA L40S", 362.05e12),
            ("NVIDIA H200 NVL", None),
            ("NVIDIA A100X", None),
            ("NVIDIA GeForce RTX 4090", None),
            ("", None),
        ):
            self.assertEqual(machine.datasheet_peak(name, peaks)[0], peak, name)


class Figures(unittest.TestCase):
    def test_every_test_is_of_one_shard(self):
        for shard, tests in TESTS.items():
            for test in tests:
                self.assertEqual(figures.shard_of(test), shard)

    @unittest.skipUnless(os.environ.get("ORRERY_TEST_GPU"), "test_gpu is not built")
    def test_shards_are_what_google_test_makes_of_their_filters(self):
        list_of = lambda *flags: figures.listed_tests(
            subprocess.run(
                [os.environ["ORRERY_TEST_GPU"], "--gtest_list_tests", *flags], capture_output=True, text=True
            ).stdout
        )
        tests = list_of()
        self.assertGreater(len(tests), 1000)
        mine = {name: [test for test in tests if figures.shard_of(test) == name] for name, _ in figures.SHARDS}
        self.assertTrue(all(mine.values()), mine)
        for name in ("attention", "compression", "others"):  # the first, one within, and the rest
            self.assertEqual(list_of("--gtest_filter=" + figures.filter_of(name)), mine[name])

    def test_what_tools_refuse_is_no_failure_and_what_they_find_is_one(self):
        ended = {"exit_code": 1, "seconds": 1.0}
        cases = (
            ("========= Error: Device not supported.", None, "Device not supported"),
            ("========= Invalid __global__ write of size 4\n========= ERROR SUMMARY: 3 errors", False, "3 errors"),
            ("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)", False, "2 errors"),
            ("", False, "no summary"),
        )
        with tempfile.TemporaryDirectory() as folder:
            session, step = mock.Mock(work=pathlib.Path(folder)), steps.Step("memcheck", 1, [])
            for text, passed, why in cases:
                (session.work / "memcheck.log").write_text(text)
                found = figures.sanitizer(session, step, ended)
                self.assertEqual(found["passed"], passed)
                self.assertIn(why, found["why"])
            (session.work / "memcheck.log").write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
            self.assertIsNone(figures.kernel_times(session, step, ended)["passed"])

    def test_a_survivor_must_end_by_itself_say_why_and_be_in_time(self):
        sound = {"exit_code": 1, "seconds": 10.4, "says": ["orrery-worker: rank 0: waited more than 10 s"]}
        cases = (
            ({}, None),
            ({"exit_code": 0}, "with 0"),
            ({"exit_code": -9}, "with -9"),
            ({"says": []}, "said nothing"),
            ({"seconds": 16.0}, "needed 16.0 s"),
            ({"exit_code": None}, "did not end"),
        )
        with tempfile.TemporaryDirectory() as folder:
            session, step = mock.Mock(work=pathlib.Path(folder)), steps.Step("lost-peer", 1, [])
            for change, why in cases:
                told = {"deadline_s": 10, "killed": True, "step_of_training": 5, "survivor": sound | change}
                (session.work / "lost-peer.out").write_text(json.dumps(told))
                found = figures.lost_peer(session, step, {"exit_code": 0})
                self.assertEqual(found["passed"], why is None, found)
                self.assertIn(why or "", found["why"])

    def test_numbers_of_json_are_finite_or_none(self):
        self.assertEqual(reading.parsed('{"a": NaN, "b": [Infinity, 1.5]}'), {"a": None, "b": [None, 1.5]})
        self.assertIsNone(reading.parsed('{"a": 1'))
        self.assertEqual(
            [reading.number(v) for v in (1, 2.5, None, True, "3", float("nan"))], [1.0, 2.5, None, None, None, None]
        )
        self.assertEqual(reading.apart([1.0, None], [1.0, 2.0]), float("inf"))

    def test_a_part_of_the_page_that_fails_leaves_the_others(self):
        results = [
            {"step": "train-x", "kind": "training", "passed": True},
            {"step": "bench", "kind": "bench", "passed": True, "operators": [{"name": "matmul", "time_s": 1e-5}]},
        ]
        lines, _, passed = page.page(results, pathlib.Path("/nowhere"))
        self.assertFalse(passed)
        self.assertTrue(any("THIS PART OF THE PAGE FAILED (training_lines)" in line for line in lines))
        self.assertTrue(any(line.startswith("matmul") for line in lines))


class Ratios(unittest.TestCase):
    def rows(self, modes, free=0.01, bits=0.012, peak=989.4e12):
        losses = {"losses": [10.0, 9.0], "passed": True}
        results = [
            {"step": "train-speed-gpt2-124m.no-repeat", "step_time_s": free, **losses},
            {"step": "train-speed-gpt2-124m", "step_time_s": bits, **losses},
            {"step": "torch-gpt2-124m", "modes": modes, "passed": True},
        ]
        row = speed.compare(results, job_of("gpt2-124m"), peak)
        return row, "\n".join(speed.model_lines("gpt2-124m", row))

    def test_the_headline_is_of_two_sides_that_need_not_repeat(self):
        row, text = self.rows(
            {
                "blocks": {"step_time_s": 0.013, "losses": [10.0]},
                "whole": {"step_time_s": 0.0125, "losses": [10.0]},
                "eager": {"step_time_s": 0.001},
            }
        )
        self.assertAlmostEqual(row["ratio"], 1.25)
        self.assertIn("Orrery with --no-repeat / PyTorch compiled (whole): 1.25, goal 1.2: reached", text)
        self.assertIn("Orrery that repeats bit by bit / PyTorch compiled (whole), which need not: 1.04", text)
        self.assertLess(text.index("--no-repeat / PyTorch"), text.index("repeats bit by bit / PyTorch"))
        self.assertNotIn("eager (not compiled", text)

    def test_a_ratio_against_eager_is_none_against_compile(self):
        row, text = self.rows(
            {"blocks": {"error": "OutOfTime: not done in 75 s"}, "eager": {"step_time_s": 0.02, "losses": [10.0]}}
        )
        self.assertIsNone(row["ratio"])
        self.assertFalse(row["reached"])
        self.assertIn("THERE IS NO RATIO AGAINST A COMPILED PYTORCH (blocks: OutOfTime: not done in 75 s)", text)
        self.assertIn("PyTorch eager (not compiled, for no goal): 2.00", text)
        self.assertNotIn("PyTorch compiled (", text)

    def test_mfu_is_model_flops_over_the_datasheets_peak(self):
        row, text = self.rows({})
        self.assertAlmostEqual(row["flops_per_step"] / 1e12, 27.99, delta=0.02)  # GPT-2 124M, 32 x 1,024
        self.assertAlmostEqual(row["repeat"]["mfu"], row["flops_per_step"] / 0.012 / 989.4e12)
        self.assertIsNone(self.rows({}, peak=None)[0]["no_repeat"]["mfu"])

    def test_losses_that_are_far_apart_are_not_right(self):
        row, text = self.rows({"blocks": {"step_time_s": 0.02, "losses": [11.0]}})
        self.assertFalse(row["right"])
        self.assertIn("WRONG", text)


@unittest.skipUnless(os.environ.get("ORRERY_WORKER"), "the worker is not built")
class LostPeer(unittest.TestCase):
    """Two real ranks on CPUs, of which one dies."""

    def test_the_survivor_says_why_and_ends(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            golden = HERE.parent / "golden/pytorch"
            (folder / "job.yaml").write_text(
                textwrap.dedent(
                    f"""
                model: {HERE}/golden-gpt.yaml
                cluster: localhost-2
                batch: 8
                sequence: 16
                precision: fp32
                plan: {{data: 2, tensor: 1, pipeline: 1, micro_batch: 2}}
                training: {{steps: 20, data: {golden}/tokens.bin, initial_weights: {golden}/initial.safetensors}}
            """
                )
            )
            subprocess.run(
                [os.environ["ORRERY_BINARY"], "plan", folder / "job.yaml", "-o", folder / "plan.yaml"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            ran = subprocess.run(
                [
                    sys.executable,
                    HERE / "lost_peer.py",
                    folder / "ranks",
                    "3",
                    os.environ["ORRERY_WORKER"],
                    "--plan",
                    folder / "plan.yaml",
                    "--run",
                    folder / "run",
                    "--no-checkpoint",
                    "--threads",
                    "1",
                ],
                capture_output=True,
                text=True,
                timeout=60,
            )
            (folder / "lost-peer.out").write_text(ran.stdout)
            found = figures.lost_peer(
                mock.Mock(work=folder), steps.Step("lost-peer", 1, []), {"exit_code": ran.returncode}
            )
            self.assertTrue(found["passed"], f"{found} {ran.stderr}")
            self.assertIn("waited more than 3.0 s", found["survivor"]["says"][0])
            self.assertGreater(found["survivor"]["exit_code"], 0)


if __name__ == "__main__":
    unittest.main()
