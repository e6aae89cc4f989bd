"""Planted faults: dependencies that deny.toml does not want turn scripts/deny red."""
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
# The script's name has no ending, so `import` does not find it.
loader = importlib.machinery.SourceFileLoader("deny", os.path.join(ROOT, "scripts/deny"))
deny = importlib.util.module_from_spec(importlib.util.spec_from_loader("deny", loader))
loader.exec_module(deny)

CONFIG = """
[licenses]
allow = ["MIT", "Apache-2.0"]
private = { ignore = true }
[bans]
wildcards = "deny"
allow-wildcard-paths = true
multiple-versions = "deny"
deny = [{ name = "openssl-sys", reason = "TLS is rustls" }]
skip = [SKIP]
[sources]
unknown-registry = "deny"
unknown-git = "deny"
[advisories]
unmaintained = "workspace"
ignore = [IGNORE]
"""
ADVISORY = """```toml
[advisory]
id = "RUSTSEC-2020-0001"
package = "bad"
date = "2020-01-01"
MORE
[versions]
patched = [">= 1.2.3"]
unaffected = ["< 1.0.0"]
```

# Memory is read that is not its own
"""


class Planted(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp(prefix="hotdesk-deny-")
        self.addCleanup(shutil.rmtree, self.place)

    def run_deny(self, *crates, skip="", ignore="", flags=(), advisory=None, requirement="^1", config=CONFIG):
        """`ours` uses every one of (name, version, {more})."""
        packages = [{"id": "ours", "name": "ours", "version": "0.1.0", "license": None, "publish": [], "source": None,
                     "dependencies": [{"name": name, "req": requirement, "path": None} for name, *_ in crates]}]
        for name, version, *more in crates:
            packages.append({"id": f"{name} {version}", "name": name, "version": version, "license": "MIT OR Apache-2.0", "publish": None,
                             "source": deny.CRATES_IO, "dependencies": [], **(more[0] if more else {})})
        nodes = [{"id": p["id"], "deps": [{"pkg": o["id"]} for o in packages[1:]] if p["id"] == "ours" else []} for p in packages]
        files = {"metadata": json.dumps({"packages": packages, "workspace_members": ["ours"], "resolve": {"nodes": nodes}}),
                 "config": config.replace("SKIP", skip).replace("IGNORE", ignore)}
        for name, text in files.items():
            with open(os.path.join(self.place, name), "w") as file:
                file.write(text)
        database = os.path.join(self.place, "db")
        if advisory is not None:
            os.makedirs(os.path.join(database, "crates/bad"), exist_ok=True)
            with open(os.path.join(database, "crates/bad/RUSTSEC-2020-0001.md"), "w") as file:
                file.write(ADVISORY.replace("MORE", advisory))
        return subprocess.run([sys.executable, os.path.join(ROOT, "scripts/deny"), "--metadata", os.path.join(self.place, "metadata"),
                               "--config", os.path.join(self.place, "config"), *flags],
                              capture_output=True, text=True, env=dict(os.environ, HOTDESK_ADVISORY_DB=database))

    def green(self, *crates, **more):
        done = self.run_deny(*crates, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def red(self, said, *crates, **more):
        done = self.run_deny(*crates, **more)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(said, done.stderr + done.stdout)
        return done

    def test_good(self):
        self.green(("good", "1.0.0"))

    def test_licences(self):
        self.red("viral 1.0.0 has the licence GPL-3.0-only", ("viral", "1.0.0", {"license": "GPL-3.0-only"}))
        self.red("half 1.0.0 has the licence MIT AND GPL-3.0-only", ("half", "1.0.0", {"license": "MIT AND GPL-3.0-only"}))
        self.red("with 1.0.0", ("with", "1.0.0", {"license": "Apache-2.0 WITH LLVM-exception"}))
        self.red("none 1.0.0 names no licence", ("none", "1.0.0", {"license": None}))
        self.red("is no licence expression", ("odd", "1.0.0", {"license": "(MIT"}))
        self.green(("either", "1.0.0", {"license": "GPL-3.0-only OR (MIT AND Apache-2.0)"}), ("old", "1.0.0", {"license": "GPL-2.0/MIT"}))

    def test_bans(self):
        self.red("openssl-sys 0.9.1 is banned: TLS is rustls", ("openssl-sys", "0.9.1"))
        self.red("ours takes any version of loose", ("loose", "1.0.0"), requirement="*")

    def test_duplicates(self):
        two = ("twice", "1.0.0"), ("twice", "2.0.0")
        self.red("twice 1.0.0 is there besides twice 2.0.0, wanted by ours", *two)
        self.green(*two, skip='{ crate = "twice@1", reason = "ours" }')
        self.red("without a reason", *two, skip='{ crate = "twice@1" }')
        self.red("deny.toml lets twice@1 be a duplicate, and there is none any more", two[1], skip='{ crate = "twice@1", reason = "ours" }')
        self.red("deny.toml lets twice@3 be", *two, skip='{ crate = "twice@1", reason = "ours" }, { crate = "twice@3", reason = "ours" }')

    def test_sources(self):
        self.red("elsewhere 1.0.0 comes from git+https", ("elsewhere", "1.0.0", {"source": "git+https://example.org/x#1"}))
        self.red("comes from registry+https://example.org", ("elsewhere", "1.0.0", {"source": "registry+https://example.org/index"}))

    def test_words_that_nobody_reads(self):
        self.red("[bans] skipp is not understood", ("good", "1.0.0"), config=CONFIG.replace("skip =", "skipp ="))

    def test_advisories(self):
        done = self.green(("bad", "1.1.0"))
        self.assertIn("advisories were NOT checked", done.stdout)
        self.red("advisories were NOT checked", ("bad", "1.1.0"), flags=["--advisories"])
        self.red("bad 1.1.0: RUSTSEC-2020-0001 Memory is read", ("bad", "1.1.0"), advisory="")
        self.green(("bad", "1.2.3"), advisory="")
        self.green(("bad", "0.9.9"), advisory="")
        self.green(("bad", "1.1.0"), advisory='withdrawn = "2020-02-02"')
        self.green(("bad", "1.1.0"), advisory="", ignore='{ id = "RUSTSEC-2020-0001", reason = "not called" }')
        self.red("without a reason", ("bad", "1.1.0"), advisory="", ignore='{ id = "RUSTSEC-2020-0001" }')
        self.red("which touches nothing here", ("bad", "1.2.3"), advisory="", ignore='{ id = "RUSTSEC-2020-0001", reason = "not called" }')
        self.red("RUSTSEC-2020-0001", ("bad", "1.1.0"), advisory='informational = "unmaintained"')   # ours chose it
        self.red("RUSTSEC-2020-0001", ("bad", "1.1.0"), advisory='informational = "unsound"')
        self.assertIn("warning: bad", self.green(("bad", "1.1.0"), advisory='informational = "notice"').stderr)

    def test_requirements(self):
        for requirement, takes, refuses in [
            (">= 1.2.3, < 2", ["1.2.3", "1.9.0"], ["1.2.2", "2.0.0", "1.2.3-rc.1"]),
            ("^0.2.3", ["0.2.3", "0.2.9"], ["0.3.0", "0.2.2", "1.0.0"]),
            ("0.17", ["0.17.16"], ["0.18.0", "0.16.9"]),
            ("1", ["1.0.0", "1.99.0"], ["2.0.0", "0.9.0"]),
            ("^0.0.3", ["0.0.3"], ["0.0.4"]),
            ("~1.2", ["1.2.9"], ["1.3.0"]),
            ("=1.2.3", ["1.2.3"], ["1.2.4"]),
            ("> 1.0.0-alpha.2", ["1.0.0-alpha.10", "1.0.0"], ["1.0.0-alpha.2", "1.0.0-alpha.1"]),
        ]:
            for one in takes:
                self.assertTrue(deny.takes(requirement, one), (requirement, one))
            for one in refuses:
                self.assertFalse(deny.takes(requirement, one), (requirement, one))


if __name__ == "__main__":
    unittest.main()
