"""scripts/test-rust with a small program of tests: what fails is red, what hangs is stopped, what is skipped is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

PROGRAM = r"""
fn sh(script: &str) -> std::process::ExitStatus { std::process::Command::new("/bin/sh").args(["-c", script]).status().unwrap() }

#[test] fn good() {}
#[test] fn bad() { println!("what it printed"); panic!("the reason") }
#[test] fn hangs() { println!("before it hung"); sh("sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > orphan; wait"); }
#[test] fn skips() { eprintln!("hotdesk-skip: there is no moon"); }
#[test] #[ignore = "is a measurement"] fn measures() { panic!() }
#[test] fn one_time_in_three() { assert!(std::env::var("HOTDESK_SEED").unwrap().parse::<u32>().unwrap() % 3 != 0) }
#[test] fn dies() { std::process::abort() }
#[test] fn without_programs() { assert!(std::process::Command::new("true").status().is_err()) }
#[test] fn has_programs() { assert!(std::process::Command::new("true").status().is_ok()) }
#[test] fn at_the_server() { assert_eq!(std::fs::read_to_string(std::env::var("HOTDESK_TEST_SERVED").unwrap() + "/mark").unwrap(), "up\n") }
#[test] fn beside() { std::fs::write("beside", "x").unwrap(); sh("sleep 0.5"); std::fs::remove_file("beside").unwrap() }
#[test] fn alone() { assert!(!std::path::Path::new("beside").exists()) }
#[test] fn broken_server() {}
"""

TABLE = """
at_once_per_cpu = 2
group.unit = { limit_s = 60, no_programs = true }
group.programs = { limit_s = 60 }
group.short = { limit_s = 2 }
group.served = { limit_s = 60, server = "scripts/server" }
group.unserved = { limit_s = 60, server = "scripts/no-server" }
group.alone = { limit_s = 60, at_once = 1 }
rule = [
    { tests = ["it/lib hangs"], group = "short" },
    { tests = ["it/lib has_programs", "it/lib beside"], group = "programs" },
    { tests = ["it/lib at_the"], group = "served" },
    { tests = ["it/lib broken_server"], group = "unserved" },
    { tests = ["it/lib alone"], group = "alone" },
]
"""


def prepare(root: Path) -> None:
    """A repository with the script, a table, and a program of tests behind a cargo of its own."""
    for folder in ("scripts", "target", "it"):
        (root / folder).mkdir()
    shutil.copy(SCRIPTS / "test-rust", root / "scripts/test-rust")
    (root / "scripts/test-rust.toml").write_text(TABLE)
    (root / "it/lib.rs").write_text(PROGRAM)
    subprocess.run(["rustc", "--edition=2024", "--test", "-o", root / "it/lib", root / "it/lib.rs"], check=True)
    message = {"reason": "compiler-artifact", "profile": {"test": True}, "executable": str(root / "it/lib"), "manifest_path": str(root / "it/Cargo.toml"), "target": {"kind": ["lib"], "name": "it"}}
    script(root / "cargo", f"case $* in *--no-run*) echo '{json.dumps(message)}' ;; esac")
    script(root / "scripts/server", 'echo "$1" >>"$(dirname "$0")/calls"; case $1 in start) echo up >"$2/mark"; sleep 1000 & echo $! >"$2/pid" ;; stop) kill "$(cat "$2/pid")" ;; esac')
    script(root / "scripts/no-server", '[ "$1" != start ] || { echo "no such server"; exit 1; }')


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Runner(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        prepare(cls.root)

    def run_it(self, *arguments: str, seed: int = 1) -> tuple[int, str, str]:
        """Its status, its closing line without the time, and all that it said."""
        environment = os.environ | {"CARGO": str(self.root / "cargo"), "HOTDESK_SEED": str(seed)}
        done = subprocess.run([self.root / "scripts/test-rust", *arguments], env=environment, capture_output=True, text=True, timeout=120)
        said = done.stdout + done.stderr
        return done.returncode, re.sub(r" in \d+ s", "", said.strip().splitlines()[-1]), said

    def test_what_is_good_passes(self):
        code, last, said = self.run_it("good", "has_programs", "without_programs", "beside", "alone")
        self.assertEqual((code, last), (0, "5 passed, 0 failed, 0 skipped"), said)
        self.assertIn("it/lib beside", json.loads((self.root / "target/test-times.json").read_text()))

    def test_only_units(self):
        code, last, said = self.run_it("--unit", "good", "has_programs")
        self.assertEqual((code, last), (0, "1 passed, 0 failed, 0 skipped"), said)

    def test_a_failure_is_red_with_its_output_and_its_seed(self):
        code, last, said = self.run_it("bad", "good", "dies")
        self.assertEqual((code, last), (1, "1 passed, 2 failed, 0 skipped"), said)
        for words in ("FAILED it/lib bad (exit code 101", "what it printed", "the reason", "HOTDESK_SEED=1", "FAILED it/lib dies (SIGABRT", "failed  it/lib dies"):
            self.assertIn(words, said)

    def test_a_seed_gives_the_same_choices_again(self):
        for seed, code in ((2, 0), (3, 1), (4, 0), (9, 1)):
            self.assertEqual(self.run_it("one_time_in_three", seed=seed)[0], code, seed)

    def test_what_hangs_is_stopped_with_all_that_it_started(self):
        code, last, said = self.run_it("hangs")
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"), said)
        self.assertIn("not over after 2 s", said)
        self.assertIn("before it hung", said)
        for name in ("child", "orphan"):
            pid = int((self.root / "it" / name).read_text())
            end = time.monotonic() + 20
            while alive(pid):
                self.assertLess(time.monotonic(), end, f"the {name} outlives the test")
                time.sleep(0.02)

    def test_skips_are_named_and_counted(self):
        code, last, said = self.run_it("skips", "measures")
        self.assertEqual((code, last), (0, "0 passed, 0 failed, 2 skipped"), said)
        self.assertIn("skipped it/lib skips: there is no moon", said)
        self.assertIn("skipped it/lib measures: is a measurement", said)

    def test_a_server_is_started_once_and_stopped(self):
        code, last, said = self.run_it("at_the_server", "broken_server")
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"), said)
        self.assertIn("no such server", said)
        self.assertEqual((self.root / "scripts/calls").read_text().split(), ["start", "stop"])

    def test_a_name_that_nobody_has_is_an_error(self):
        code, _, said = self.run_it("no_such_test")
        self.assertTrue(code and "no test is named like that" in said, said)
