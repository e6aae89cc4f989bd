"""OSWorld's own, unmodified `DesktopEnv` from PyPI on a fleet: reset, step and evaluate, over several desks at once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import inert
import pytest
import served

import hotdesk.osworld

pytestmark = pytest.mark.alone

ROUNDS = 20
DESKS = 4
SCREEN = (1280, 800)
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def fleet():
    with served.fleet() as one:
        yield one


@pytest.fixture(scope="module")
def make_env(fleet, tmp_path_factory):
    """Makes environments that live on the fleet."""
    inert.install()
    patch = pytest.MonkeyPatch()
    for name, value in environment(fleet).items():
        patch.setenv(name, value)
    hotdesk.osworld.install()
    from desktop_env.desktop_env import DesktopEnv

    made = []

    def make(**more):
        env = DesktopEnv(provider_name="docker", cache_dir=str(tmp_path_factory.mktemp("cache")), screen_size=SCREEN, **more)
        env.controller.retry_interval = 0.2
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()
    hotdesk.osworld.uninstall()
    patch.undo()


def environment(fleet) -> dict[str, str]:
    return {
        "HOTDESK_URL": fleet.url,
        "HOTDESK_KEY": fleet.key,
        "HOTDESK_OSWORLD_TEMPLATE": served.TEMPLATE,
        "HOTDESK_OSWORLD_LABELS": "suite=osworld",
        "HOTDESK_OSWORLD_MEMORY_MIB": "1024",
    }


def task(number: int, config: list, evaluator: dict) -> dict:
    return {"id": f"task-{number}", "instruction": f"do number {number}", "config": config, "evaluator": evaluator}


def file_task(number: int, tmp_path: Path) -> tuple[dict, str]:
    """Make a file with the same lines as one that is there, and leave nothing else."""
    gold = tmp_path / f"gold-{number}.txt"
    gold.write_text(f"line {number}\ngrüße\n")
    config = [
        {"type": "upload_file", "parameters": {"files": [{"local_path": str(gold), "path": "~/gold.txt"}]}},
        {"type": "execute", "parameters": {"command": ["sh", "-c", "ls ~ > ~/before"]}},
    ]
    evaluator = {
        "func": ["compare_text_file", "exact_match", "check_include_exclude"],
        "conj": "and",
        "result": [
            {"type": "vm_file", "path": "~/answer.txt", "dest": "answer.txt"},
            {"type": "vm_command_line", "command": "wc -l < ~/answer.txt", "shell": True},
            {"type": "vm_command_line", "command": ["sh", "-c", "cat ~/before"]},
        ],
        "expected": [
            {"type": "vm_file", "path": "~/gold.txt", "dest": "gold.txt"},
            {"type": "rule", "rules": {"expected": "2\n"}},
            {"type": "rule", "rules": {"include": ["gold.txt"], "exclude": ["answer.txt", "mark-of-another-round"]}},
        ],
        "options": [{}, {}, {}],
    }
    # arbitrary Python is the agent's word for everything; here it needs no interpreter in the desk
    return task(number, config, evaluator), "cp ~/gold.txt ~/answer.txt; touch ~/mark-of-another-round"


def episode(env, number: int, tmp_path: Path) -> None:
    config, command = file_task(number, tmp_path)
    seen = env.reset(task_config=config)
    assert seen["screenshot"][:4] == b"\x89PNG" and "<desktop-frame" in seen["accessibility_tree"] and seen["instruction"] == f"do number {number}"
    x, y = 100 + number, 200 + number
    seen, reward, done, info = env.step(f"pyautogui.moveTo({x}, {y})", pause=0.05)
    assert (reward, done, info) == (0, False, {}) and seen["screenshot"]
    assert env.controller.execute_python_command("print('alive')")["output"] == "alive\n"
    env.setup_controller.setup([{"type": "execute", "parameters": {"command": command, "shell": True}}])
    assert env.evaluate() == 1.0, f"round {number} on {env.path_to_vm}"


def test_many_rounds_on_four_desks_at_once(make_env, fleet, tmp_path):
    with ThreadPoolExecutor(DESKS) as pool:
        environments = list(pool.map(lambda _: make_env(), range(DESKS)))
        desks = {e.provider.desk(e.path_to_vm).id for e in environments}
        assert len(desks) == DESKS

        def rounds(env):
            mine = tmp_path / Path(env.path_to_vm).name  # what one sends, no other writes
            mine.mkdir()
            for number in range(ROUNDS):
                episode(env, number, mine)
            return True

        assert all(pool.map(rounds, environments))
        listed = {d.id: d for d in fleet.client().desks.list(labels={"suite": "osworld"})}
        assert desks <= set(listed), "a reset keeps the desk"
        assert all(listed[d].info.labels["client"] == "osworld" and listed[d].info.resources.memory_mib == 1024 for d in desks)
        assert all(listed[d].info.screen == hotdesk.Size(*SCREEN) for d in desks)
        resets = [e for e in fleet.client().past_events(limit=1000) if e.state is hotdesk.State.RESETTING]
        assert len(resets) >= DESKS * (ROUNDS - 1), "each reset of a used environment is a reset of the fleet"
        list(pool.map(lambda e: e.close(), environments))
    left = {d.id for d in fleet.client().desks.list() if d.state is not hotdesk.State.DELETED}
    assert not (left & desks), "close deletes the desk"


def test_typing_into_a_program(make_env, monkeypatch):
    """What a benchmark really does: a program is opened, keys are pressed, the tree is read, the file is judged."""
    served.ensure_built("base")
    monkeypatch.setenv("HOTDESK_OSWORLD_TEMPLATE", "base")
    env = make_env()
    config = [
        {"type": "launch", "parameters": {"command": ["gedit", "~/note.txt"]}},
        {"type": "execute_with_verification", "parameters": {"command": ["true"], "verification": {"window_exists": "note.txt"}, "max_wait_time": 60}},
        {"type": "activate_window", "parameters": {"window_name": "note.txt"}},
    ]
    evaluator = {
        "postconfig": [{"type": "execute", "parameters": {"command": "for i in $(seq 100); do test -s ~/note.txt && break; sleep 0.1; done", "shell": True}}],
        "func": ["exact_match", "exact_match"],
        "result": [{"type": "vm_command_line", "command": ["cat", "~/note.txt"]}, {"type": "vm_screen_size"}],
        "expected": [{"type": "rule", "rules": {"expected": "if a<b: go\n"}}, {"type": "rule", "rules": {"expected": {"width": SCREEN[0], "height": SCREEN[1]}}}],
    }
    seen = env.reset(task_config=task(1, config, evaluator))
    assert "note.txt" in seen["accessibility_tree"]
    # The editor ends the last line by itself.
    env.step("pyautogui.typewrite('a<b: go'); pyautogui.press('home'); pyautogui.write('if ')", pause=0.5)
    seen, *_ = env.step("pyautogui.hotkey('ctrl', 's')", pause=0.5)
    assert "if a&lt;b: go" in seen["accessibility_tree"]
    assert env.evaluate() == 1.0
    env.close()


def test_an_infeasible_task_and_a_missing_file(make_env):
    env = make_env()
    env.reset(task_config=task(1, [], {"func": "infeasible"}))
    assert env.evaluate() == 0
    env.step("FAIL", pause=0)
    assert env.evaluate() == 1
    env.reset(task_config=task(2, [], {"func": "compare_text_file", "result": {"type": "vm_file", "path": "~/no", "dest": "no"}, "expected": {"type": "vm_file", "path": "~/no", "dest": "no"}}))
    env.controller.retry_interval = 0.1
    assert env.evaluate() == 0
    env.close()


def test_a_desk_that_is_lost_is_replaced_at_the_next_reset(make_env, fleet, tmp_path):
    env = make_env()
    episode(env, 1, tmp_path)
    first = env.provider.desk(env.path_to_vm).id
    fleet.client().desks.get(first).delete()
    env.provider.start_emulator(env.path_to_vm, True, "Ubuntu")
    assert env.provider.desk(env.path_to_vm).id != first
    env._start_emulator()
    env.is_environment_used = False
    episode(env, 2, tmp_path)
    env.close()


def test_the_fleet_may_be_restarted_between_steps(make_env, fleet, tmp_path):
    env = make_env()
    episode(env, 1, tmp_path)
    fleet.kill()
    fleet.start(wait=False)
    episode(env, 2, tmp_path)
    env.close()


def test_a_desk_that_exists_is_used_and_kept(make_env, fleet):
    with fleet.client().desks.create(served.TEMPLATE, name="mine") as desk:
        env = make_env(path_to_vm="desk:mine")
        assert env.provider.desk("desk:mine").id == desk.id
        env.close()
        assert desk.refresh().state is hotdesk.State.RUNNING


def test_saved_states(make_env, fleet):
    env = make_env(snapshot_name="prepared")
    env.controller.execute_python_command("pass")
    assert env.provider.desk(env.path_to_vm).exec("echo saved > ~/state").ok
    env._save_state("prepared")
    assert env.provider.desk(env.path_to_vm).exec("echo spoiled > ~/state").ok
    env.is_environment_used = True
    env.reset(task_config=task(1, [], {"func": "infeasible"}))
    assert env.provider.desk(env.path_to_vm).files.read_text("~/state") == "saved\n"
    env.close()
    for snapshot in fleet.client().snapshots.list():
        fleet.client().snapshots.delete(snapshot.id)


def test_an_unmodified_script_with_processes_of_its_own(fleet, tmp_path):
    """`python -m hotdesk.osworld SCRIPT`, where the script starts two processes, by fork and by spawn, with an environment each."""
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(f"""
        import multiprocessing, sys
        sys.path.insert(0, {str(HERE)!r})
        import inert; inert.install()

        def work(number, results):
            from desktop_env.desktop_env import DesktopEnv
            env = DesktopEnv(provider_name="docker", cache_dir=sys.argv[1] + f"/cache-{{number}}", screen_size={SCREEN})
            seen = env.reset(task_config={{"id": str(number), "instruction": "x", "config": [], "evaluator": {{
                "func": "exact_match", "result": {{"type": "vm_command_line", "command": "echo $((40 + 2))", "shell": True}},
                "expected": {{"type": "rule", "rules": {{"expected": "42\\n"}}}}}}}})
            env.step("pyautogui.click(5, 5)", pause=0)
            results.put((env.evaluate(), len(seen["screenshot"]) > 1000))
            env.close()

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                results = context.Queue()
                processes = [context.Process(target=work, args=(n, results)) for n in range(2)]
                [p.start() for p in processes]
                print(method, [results.get(timeout=90) for _ in processes])
                [p.join() for p in processes]
    """))
    env = {**os.environ, **environment(fleet), "HOTDESK_OSWORLD_LABELS": "suite=script", "PYTHONPATH": str(served.ROOT / "python")}
    done = subprocess.run([sys.executable, "-m", "hotdesk.osworld", str(script), str(tmp_path)], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    for method in ("fork", "spawn"):
        assert f"{method} [(1.0, True), (1.0, True)]" in done.stdout, done.stdout + done.stderr[-2000:]
    left = [d for d in fleet.client().desks.list(labels={"client": "osworld", "suite": "script"}) if d.state is not hotdesk.State.DELETED]
    assert not left, f"a script leaves nothing behind: {left}"
