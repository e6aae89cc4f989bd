// A terminal on the desk. Its emulator is fetched when somebody opens it.
import { useEffect, useRef, useState } from "preact/hooks";
import { send, socketAddress, told } from "../api/client";
import { theme } from "../ui/shell";
import { Button, Notice } from "../ui/parts";
import { PanelHead } from "./panels";
import "@xterm/xterm/css/xterm.css";

export function TerminalPanel({ desk }: { desk: string }) {
  const place = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const light = theme.value === "light";
  useEffect(() => {
    let ended = false;
    let tidy = () => {};
    setProblem(null);
    open(desk, place.current!, light, setProblem).then((close) => (ended ? close() : (tidy = close)), (error) => setProblem(told(error)));
    return () => {
      ended = true;
      tidy();
    };
  }, [desk, turn, light]);
  return (
    <>
      <PanelHead title="Terminal"><Button icon="reset" look="small plain" label="New terminal" onClick={() => setTurn(turn + 1)} /></PanelHead>
      {problem && <div class="panel-pad"><Notice look="warn" icon="info">{problem}</Notice></div>}
      <div class="terminal" ref={place} />
    </>
  );
}

async function open(desk: string, place: HTMLElement, light: boolean, ended: (why: string) => void): Promise<() => void> {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import("@xterm/xterm"), import("@xterm/addon-fit")]);
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const terminal = new Terminal({
    fontFamily: '"Geist Mono", ui-monospace, monospace',
    fontSize: 13,
    lineHeight: 1.25,
    cursorBlink: true,
    screenReaderMode: true,
    theme: {
      background: colour("surface"), foreground: colour("text"), cursor: colour("accent"), selectionBackground: light ? "#00000022" : "#ffffff2a",
      ...(light ? { black: "#17171a", green: "#10713f", yellow: "#855300", blue: "#3a49b8", red: "#b9262c", cyan: "#0b6a72", magenta: "#8a2f8f", white: "#55555e", brightBlack: "#6b6b75" } : {}),
    },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  place.replaceChildren();
  // What is typed before the shell is there waits for it.
  const early: string[] = [];
  let type = (text: string): unknown => early.push(text);
  terminal.onData((text) => type(text));
  terminal.open(place);
  fit.fit();
  const size = { cols: terminal.cols, rows: terminal.rows };
  const made = await send<{ id: number }>("POST", `v1/desks/${desk}/terminals`, { ...size, tag: "dashboard" });
  const path = `v1/desks/${desk}/terminals/${made.id}`;
  const socket = new WebSocket(socketAddress(`${path}/attach`));
  socket.binaryType = "arraybuffer";
  socket.onmessage = (event) => {
    if (typeof event.data !== "string") return terminal.write(new Uint8Array(event.data));
    const said = JSON.parse(event.data);
    if (said.event === "exit") ended("the shell has ended; the button above opens another");
    if (said.event === "problem") ended(said.problem.detail);
  };
  socket.onopen = () => {
    type = (text) => socket.readyState === WebSocket.OPEN && socket.send(new TextEncoder().encode(text));
    if (early.length > 0) type(early.join(""));
  };
  let closed = false;
  socket.onclose = () => !closed && ended("the connection to the terminal ended; the button above opens another");
  terminal.onResize(({ cols, rows }) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ do: "resize", cols, rows })));
  const resized = new ResizeObserver(() => fit.fit());
  resized.observe(place);
  terminal.focus();
  return () => {
    closed = true;
    resized.disconnect();
    socket.close();
    terminal.dispose();
    send("DELETE", path).catch(() => {});
  };
}
