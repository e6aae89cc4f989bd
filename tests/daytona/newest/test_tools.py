"""Git, Python that remembers, accessibility trees and the environment, with the newest release."""

from __future__ import annotations

import os

import pytest
from daytona import CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, DaytonaError, DaytonaTimeoutError
from daytona.common.errors import DaytonaNotFoundError
from support import supports


@pytest.fixture(scope="module")
def sandbox(url, key):
    client = Daytona(DaytonaConfig(api_key=key, api_url=url, target="us"))
    one = client.create(CreateSandboxFromSnapshotParams(snapshot=os.environ.get("HOTDESK_TEMPLATE", "base")))
    yield one
    client.delete(one)


@supports("git", "init, clone, add, commit, status, history, branches, checkout, push, pull, reset, restore, remotes, settings")
def test_git(sandbox):
    git = sandbox.git
    sandbox.git.init("server", bare=True, initial_branch="main")
    git.init("work", initial_branch="main")
    sandbox.fs.upload_file("eins\n".encode(), "work/ä b.txt")
    status = git.status("work")
    assert (status.current_branch, status.detached, status.branch_published) == ("main", False, False)
    assert [(file.name, file.worktree) for file in status.file_status] == [("ä b.txt", "Untracked")]
    git.add("work", ["."])
    assert git.status("work").file_status[0].staging == "Added"
    first = git.commit("work", "first\n\nand why", "Ada", "ada@example.org").sha
    assert len(first) == 40 and git.status("work").file_status == []

    home = sandbox.get_user_home_dir()
    git.remote_add("work", "origin", f"{home}/server")
    assert git.remote_get("work", "origin") == f"{home}/server"
    git.push("work", set_upstream=True)
    git.clone(f"{home}/server", "other")
    assert sandbox.fs.download_file("other/ä b.txt") == "eins\n".encode()
    sandbox.process.exec("echo zwei >> 'ä b.txt'", cwd="other")
    git.add("other", ["ä b.txt"])
    second = git.commit("other", "second", "Ben", "ben@example.org").sha
    assert git.status("other").ahead == 1
    git.push("other")
    git.pull("work")
    assert sandbox.fs.download_file("work/ä b.txt") == "eins\nzwei\n".encode()
    git.clone(f"{home}/server", "third", commit_id=first)
    assert git.status("third").detached is True

    git.create_branch("work", "idea")
    assert sorted(git.branches("work").branches) == ["idea", "main"] and git.status("work").current_branch == "idea"
    git.checkout_branch("work", "main")
    git.delete_branch("work", "idea")
    assert git.branches("work").branches == ["main"]
    sandbox.process.exec("echo drei >> 'ä b.txt'", cwd="work")
    git.restore("work", ["ä b.txt"])
    assert git.status("work").file_status == []
    git.reset("work", mode="hard", target="HEAD~1")
    assert sandbox.fs.download_file("work/ä b.txt") == "eins\n".encode()
    assert second != first

    git.configure_user("Ada", "ada@example.org")
    assert git.get_config("user.name", scope="global") == "Ada" and git.get_config("no.such") is None
    with pytest.raises(DaytonaNotFoundError, match="not a git repository|cannot change to"):
        git.status("nowhere")
    with pytest.raises(DaytonaError):
        git.checkout_branch("work", "no-such-branch")
    with pytest.raises(DaytonaError):
        git.clone(f"{home}/no-such", "never")


@supports("code interpreter", "Python that remembers; contexts of one's own; output as it comes, errors, variables, a time limit")
def test_code_interpreter(sandbox):
    python = sandbox.code_interpreter
    assert python.run_code("x = 41").error is None
    heard = []
    done = python.run_code("import os, sys\nprint(x + 1)\nos.system('echo sub')\nprint('ä', file=sys.stderr)", on_stdout=lambda m: heard.append(m.output))
    assert (done.stdout, done.stderr, done.error) == ("42\nsub\n", "ä\n", None) and "".join(heard) == "42\nsub\n"
    failed = python.run_code("def f():\n    raise ValueError('no')\nf()")
    assert (failed.error.name, failed.error.value) == ("ValueError", "no") and "line 2, in f" in failed.error.traceback
    assert python.run_code("import os; print(os.environ['COLOUR'])", envs={"COLOUR": "teal"}).stdout == "teal\n"
    assert python.run_code("print(os.environ.get('COLOUR'))").stdout == "None\n"

    own = python.create_context(cwd="/tmp")
    assert own.cwd == "/tmp" and own.language == "python" and own.active
    assert python.run_code("import os; print(os.getcwd(), 'x' in globals())", context=own).stdout == "/tmp False\n"
    assert [context.id for context in python.list_contexts()] == [own.id]
    with pytest.raises(DaytonaTimeoutError):
        python.run_code("import time\ntime.sleep(60)", context=own, timeout=1)
    assert python.run_code("print('still here')", context=own).stdout == "still here\n", "it was interrupted, not ended"
    python.delete_context(own)
    assert python.list_contexts() == []
    with pytest.raises(DaytonaError):
        python.delete_context(own)
    with pytest.raises(DaytonaError, match="context not found"):
        python.run_code("1", context=own)
    big = python.run_code("print('x' * 3_000_000)")
    assert len(big.stdout) == 3_000_001


@supports("computer use", "accessibility: the tree of a program or of all, nodes by role, name and state; focus, invoke, set")
def test_accessibility(sandbox, until):
    nodes = sandbox.computer_use.accessibility
    sandbox.process.exec("nohup gedit >/dev/null 2>&1 &")
    window = until(lambda: next((w for w in sandbox.computer_use.display.get_windows().windows if "gedit" in w.title), None), 60, "gedit's window")
    tree = until(lambda: (t := nodes.get_tree(scope="all")).root.children and t, 60, "a program tells its tree")
    assert tree.root.role == "desktop frame" and "gedit" in [app.name for app in tree.root.children]
    shallow = nodes.get_tree(scope="all", max_depth=1)
    assert shallow.truncated and all(not app.children for app in shallow.root.children)
    assert until(lambda: nodes.get_tree().root.name == "gedit", 30, "it has the keyboard"), window.title
    [area] = until(lambda: nodes.find_nodes(scope="all", role="text", states=["editable", "multi-line"]).matches, 30, "its text")
    assert area.bounds.width > 100
    nodes.focus_node(area.id)
    nodes.set_node_value(area.id, "von fern")
    until(lambda: any("*" in w.title for w in sandbox.computer_use.display.get_windows().windows), 30, "the window says that its text has changed")
    button = nodes.find_nodes(scope="all", role="button", name="^O.en$", name_match="regex").matches[0]
    assert button.name == "Open" and button.actions
    found = nodes.find_nodes(scope="all", name="o", name_match="substring", limit=2)
    assert len(found.matches) == 2 and found.truncated
    with pytest.raises(DaytonaError):
        nodes.invoke_node("no-such-node")
    with pytest.raises(DaytonaNotFoundError):
        nodes.get_tree(scope="pid", pid=999999)


@supports("sandboxes", "`update_env`: variables of all that is started afterwards")
def test_environment(sandbox):
    sandbox.update_env({"LATER": "yes", "GONE": "soon"})
    assert sandbox.process.exec("echo $LATER $GONE").result == "yes soon\n"
    sandbox.update_env({}, unset=["GONE"])
    assert sandbox.process.exec("echo $LATER $GONE").result == "yes\n"
