#!/usr/bin/env python3
"""plot.py RUN.json OUT.svg [PAGE.md]: desks and memory over the time of a scale run; its figures as a table in the page."""

import json
import re
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 250, 70, 30, 60
COLOURS = {"running": "#2a7", "starting": "#c80", "creating": "#88c", "deleting": "#c44", "hotdesk": "#2a7", "apiserver": "#55c", "etcd": "#c80", "controller-manager": "#888", "scheduler": "#bbb"}


def chart(title: str, unit: str, top: float, lines: dict[str, list[tuple[float, float]]], end: float, marks: list[dict]) -> str:
    most = max((y for line in lines.values() for _, y in line), default=1) or 1
    x = lambda at: LEFT + at / end * (WIDTH - LEFT - 20)  # noqa: E731
    y = lambda value: top + HEIGHT - value / most * HEIGHT  # noqa: E731
    out = [f'<text x="{LEFT}" y="{top - 10}" font-weight="bold">{title}</text>']
    for part in range(5):
        value = most * part / 4
        out.append(f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - 20}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}{unit}</text>')
    for part in range(0, 11):
        at = end * part / 10
        out.append(f'<text x="{x(at):.1f}" y="{top + HEIGHT + 18}" text-anchor="middle">{at:.0f} s</text>')
    for number, mark in enumerate(marks):
        at = x(mark["at"])
        out.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{top + HEIGHT}" stroke="#999" stroke-dasharray="3 3"/>')
        out.append(f'<text x="{at + 3:.1f}" y="{top + 12}" fill="#666">{number + 1}</text>')
    for place, (name, line) in enumerate(lines.items()):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS.get(name, "#333")}" stroke-width="2"/>')
        out.append(f'<text x="{LEFT + 260 + place * 120}" y="{top - 10}" fill="{COLOURS.get(name, "#333")}">{name}</text>')
    return "\n".join(out)


def table(figures: dict, picture: str) -> str:
    def times(part: dict) -> str:
        return ", ".join(f"{name} {part[name]:g} ms" for name in ("p50", "p95", "p99") if name in part) or "-"

    def sizes(part: dict) -> str:
        return ", ".join(f"{name} {size:.0f}" for name, size in sorted(part.items(), key=lambda pair: -pair[1]))

    f, latency = figures, figures["latency_ms"]
    rows = [
        (f"{f['desks']:,} desks on {f['nodes']} nodes, all running", f"{f['create_s']} s: {f['create_rate']} a second"),
        ("a create, asked of the gateway", times(latency["create"])),
        ("any desk, asked of the gateway meanwhile", times(latency["get"])),
        ("a create, from its order to a desk that is ready (buckets)", times(f["step_create_ms"])),
        ("one write of the store (buckets)", times(f["store_ms"])),
        ("one pass of reconcile (buckets)", times(f["reconcile_ms"])),
        ("a Pod, asked of the API server (its own buckets)", times(f["api_server_create_ms"])),
        (f"{f['killed']} nodes with {f['lost']} desks die: all run elsewhere", f"{f['elsewhere_s']} s, nothing lost"),
        ("the orchestrator is killed: the next one has all desks", f"{f['adopted_s']} s, the same Pods"),
        ("all deleted, nothing left", f"{f['delete_s']} s: {f['desks'] / f['delete_s']:.1f} a second"),
        ("memory with all running, MiB", sizes(f["memory_running"])),
        ("memory at most, MiB", sizes(f["memory_peak"])),
    ]
    lines = [f"On {f['cores']} cores shared by all of it, load {f['load']} at the end.", "", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {how} |" for what, how in rows), "", f"![desks and memory over time]({picture})"])


def main() -> None:
    with open(sys.argv[1]) as file:
        run = json.load(file)
    samples, marks = run["samples"], run["marks"]
    end = max(s["at"] for s in samples) or 1

    def lines(part: str, names: list[str]) -> dict[str, list[tuple[float, float]]]:
        return {name: [(s["at"], s[part].get(name, 0)) for s in samples] for name in names}

    states = [name for name in ("creating", "running", "starting", "deleting") if any(s["states"].get(name) for s in samples)]
    first = chart("desks", "", TOP, lines("states", states), end, marks)
    second = chart("memory", " MiB", TOP + HEIGHT + GAP, lines("memory", list(samples[0]["memory"])), end, marks)
    legend = TOP + 2 * HEIGHT + GAP + 45
    notes = "\n".join(f'<text x="{LEFT}" y="{legend + 16 * n}">{n + 1}: {m["at"]:.0f} s, {m["what"]}</text>' for n, m in enumerate(marks))
    height = legend + 16 * len(marks) + 10
    with open(sys.argv[2], "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">\n'
                  f'<rect width="100%" height="100%" fill="white"/>\n{first}\n{second}\n{notes}\n</svg>\n')

    if len(sys.argv) > 3:
        page = Path(sys.argv[3])
        new = table(run["figures"], Path(sys.argv[2]).name)
        page.write_text(re.sub(r"(<!-- figures[^>]*-->\n).*?(\n<!-- /figures -->)", lambda m: m[1] + new + m[2], page.read_text(), flags=re.S))


main()
