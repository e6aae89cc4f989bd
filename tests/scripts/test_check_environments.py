"""Planted faults: what a bare machine would lack turns scripts/check-environments red, with the place of the fault."""
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The script's name has no ending, so `import` does not find it.
loader = importlib.machinery.SourceFileLoader("check", os.path.join(ROOT, "scripts/check-environments"))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
sys.dont_write_bytecode = True
loader.exec_module(check)


class Planted(unittest.TestCase):
    """On a copy of what the check reads."""

    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp(prefix="hotdesk-check-")
        cls.tree = os.path.join(cls.base, "tree")
        cls.addClassCleanup(shutil.rmtree, cls.base)
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                               check=True, capture_output=True, text=True).stdout.split("\0")
        for name in names:
            source = os.path.join(ROOT, name)
            wanted = name.startswith(("tests/", "python/", "scripts/", "bench/", ".ci/", "crates/")) or name == "Makefile"
            if name and wanted and os.path.isfile(source) and os.path.getsize(source) < 1_000_000 and not name.startswith("tests/clouds/specs/"):
                place = os.path.join(cls.tree, name)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copy2(source, place)

    def change(self, name, before, after):
        path = os.path.join(self.tree, name)
        with open(path) as file:
            text = file.read()
        self.assertIn(before, text, f"{name} is not as this test expects it")
        self.write(name, text.replace(before, after))

    def write(self, name, text):
        """Until the end of the test."""
        path = os.path.join(self.tree, name)
        if os.path.exists(path):
            with open(path) as file:
                self.addCleanup(self.put, path, file.read())
        else:
            self.addCleanup(os.remove, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
        self.put(path, text)

    def put(self, path, text):
        with open(path, "w") as file:
            file.write(text)

    def check(self):
        return subprocess.run([sys.executable, os.path.join(self.tree, "scripts/check-environments"), "--root", self.tree],
                              capture_output=True, text=True, env=dict(os.environ, XDG_CACHE_HOME=os.path.join(self.base, "none")))

    def red(self, *said):
        done = self.check()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for text in said:
            self.assertIn(text, done.stderr)

    def test_as_it_is(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_requirement_that_the_tests_import(self):
        self.change("tests/clouds/requirements.txt", "trustme==", "# trustme==")
        self.red("`import trustme` needs trustme, which tests/clouds/requirements*.txt do not name")

    def test_a_requirement_of_our_package_which_imports_it_late(self):
        """As it was: tests/clouds had no Pillow, and `desk.screenshot_image()` imports it when it is called."""
        self.change("tests/clouds/requirements.txt", "Pillow==", "# Pillow==")
        self.red("python/hotdesk/_pictures.py:", "tests/clouds/requirements*.txt do not name")

    def test_what_only_comes_along_with_another(self):
        self.change("tests/fleet/requirements.txt", "hypothesis==", "# hypothesis==")
        self.red("tests/fleet/test_api.py:", "`import hypothesis`")

    def test_a_module_of_debian_that_the_environment_does_not_see(self):
        self.change("bench/requirements.txt", "# system: gi pyatspi", "#")
        self.red("`import pyatspi` is Debian's, and bench/requirements.txt has no line")

    def test_a_package_of_npm(self):
        self.change("tests/dashboard/package.json", '"axe-core"', '"axe-gone"')
        self.red("tests/dashboard/browser.mjs:", "imports axe-core, which tests/dashboard/package.json does not name")

    def test_a_debian_module(self):
        self.change("scripts/setup", "python3-pyatspi", "")
        self.red("`import pyatspi` needs the Debian package python3-pyatspi")

    def test_a_module_in_a_script_of_debians_interpreter(self):
        self.change("tests/with-desk", "import json\n", "import json\nimport requests\n")
        self.red("tests/with-desk:", "the standard library only")

    def test_a_file_that_no_environment_runs(self):
        self.write("tests/new/test_new.py", "import os\n")
        self.red("tests/new/test_new.py:1: no environment runs this file")

    def test_a_plugin_of_pytest(self):
        self.change("tests/clouds/requirements.txt", "pytest-xdist==", "# pytest-xdist==")
        self.red("gives pytest a flag of pytest-xdist")

    def test_packages_of_programs(self):
        for name, package, said in [
            ("a test in Python", "openssl", "tests/fleet/test_api.py:"),
            ("Rust", "rclone", "starts rclone of the Debian package rclone"),
            ("a shell script", "shellcheck", "scripts/lint-shell:"),
            ("a function of a shell script", "etcd-server", "starts etcd of the Debian package etcd-server"),
        ]:
            with self.subTest(name):
                self.doCleanups()
                with open(os.path.join(self.tree, "scripts/setup")) as file:
                    words = file.read()
                self.write("scripts/setup", re.sub(rf"(?<=[\s(]){package}(?=[\s)])", "", words))
                self.red(said)

    def test_a_program_wherever_a_shell_can_hide_it(self):
        for line in [
            "strace ls", "x=$(strace ls)", 'echo "a $(strace ls) b"', "true && strace ls", "if strace ls; then :; fi", "for a in 1; do strace; done",
            "case $1 in a) strace ;; *) true ;; esac", "A=b strace", "timeout -k 5 10 strace", "sudo -n env A=b strace", "{ strace; }", "(strace)",
            "f() { strace; }", "cat <(strace)", "bash -c 'strace ls'", "trap 'strace' EXIT", "cat <<END\n$(strace)\nEND", "! strace", "ls | xargs -0 strace",
            "`strace`", "a=(\"$(strace)\")", "while read -r x; do strace \"$x\"; done < <(ls)", "ip netns exec space strace",
        ]:
            with self.subTest(line):
                programs = list(check.shell_programs(f"#!/usr/bin/env bash\nset -e\n{line}\ntail\n"))
                self.assertIn("strace", [program for program, _ in programs])
                self.assertEqual(programs[-1], ("tail", 4 + line.count("\n")), "and it reads on where the command ends")

    def test_words_that_are_no_programs(self):
        self.write("scripts/zz", """#!/usr/bin/env bash
# strace in a comment
echo strace "strace" 'strace; strace'
a=(strace nft)
case $1 in strace | nft) echo ;; esac
cat <<'END'
$(strace)
strace
END
command -v strace >/dev/null || true
strace() { echo; }
strace
""")
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_program_that_nobody_knows(self):
        self.write("scripts/zz", "#!/bin/sh\nfrobnicate\n")
        self.red("scripts/zz:2: starts frobnicate, and no package is known that has it")

    def test_a_script_that_is_not_there(self):
        self.change("Makefile", "scripts/test-gce", "scripts/test-gone")
        self.red("starts scripts/test-gone, and there is no such file")


if __name__ == "__main__":
    unittest.main()
