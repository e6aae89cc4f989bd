"""Runs pieces of Python one after another in one namespace, and tells what they do: a line of JSON in, many out."""

import ast
import codecs
import json
import os
import signal
import sys
import threading
import traceback
import types

TOLD = os.fdopen(os.dup(1), "w", encoding="utf-8")
ASKED = os.fdopen(os.dup(0), encoding="utf-8")
#: Written behind what a piece printed, to know when all of it was read.
END = b"\0" + os.urandom(16).hex().encode() + b"\0"
#: Of a text in one line, in characters, each of which JSON may write with twelve: who reads gives up a line of 1 MiB.
LONGEST = 40_000
LOCK = threading.Lock()
OWN = os.getpid()
request = None


def tell(**what):
    with LOCK:
        TOLD.write(json.dumps({"request": request, **what}) + "\n")
        TOLD.flush()


class Printed(threading.Thread):
    """One stream of this process and of all that it starts."""

    def __init__(self, number, kind):
        super().__init__(daemon=True)
        # The sink is kept: the code may close the stream, or lead it elsewhere.
        self.source, self.sink = os.pipe()
        os.dup2(self.sink, number)
        self.kind, self.read = kind, threading.Event()
        self.start()

    def run(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        data = b""
        while more := os.read(self.source, 65536):
            data += more
            while END in data:
                piece, _, data = data.partition(END)
                self.pass_on(decoder.decode(piece))
                self.read.set()
            # What may be the beginning of the end waits for the rest.
            kept = next((n for n in range(min(len(END) - 1, len(data)), 0, -1) if END.startswith(data[-n:])), 0)
            piece, data = data[: len(data) - kept], data[len(data) - kept :]
            self.pass_on(decoder.decode(piece))

    def pass_on(self, text):
        if text:
            tell(event=self.kind, data=text)

    def drain(self):
        self.read.clear()
        os.write(self.sink, END)
        # A client that reads slowly is waited for; a thread whose end the code has closed is not.
        while self.is_alive() and not self.read.wait(1):
            pass


def interrupt(_, frame):
    """Interrupts the code, and nothing of ours."""
    if frame is None or frame.f_code is run.__code__:
        return
    while frame and frame.f_code is not run.__code__:
        frame = frame.f_back
    if frame:
        raise KeyboardInterrupt


def run(code, space, wants_result):
    """Returns what is to be told of the end: a result, an exception, or nothing."""
    try:
        tree = compile(code, "<code>", "exec", ast.PyCF_ONLY_AST)
        last = None
        if wants_result and tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, "<code>", "exec"), space)
        if last is not None:
            value = eval(compile(last, "<code>", "eval"), space)
            if value is not None:
                return {"event": "result", "data": cut(repr(value))}
    except BaseException as error:  # also its end, which is no end of ours
        return error
    finally:
        if os.getpid() != OWN:
            # A copy that the code has made and that came back: there is nothing here for it to do.
            os._exit(0)


def described(error):
    trace = error.__traceback__
    while trace and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    try:
        value = str(error)
    except BaseException:
        value = "(its text can't be had)"
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException:
        text = "(its traceback can't be had)"
    return {"event": "error", "name": cut(type(error).__name__, 1000), "value": cut(value), "traceback": sane(text)[-LONGEST:]}


def cut(text, longest=LONGEST):
    text = sane(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def sane(text):
    """Half characters can't be told."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def main():
    global request
    streams = Printed(1, "stdout"), Printed(2, "stderr")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGINT, interrupt)
    # What the code defines is found where others look for it: `pickle` does.
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = [""]
    tell(event="ready")
    for line in ASKED:
        asked = json.loads(line)
        request = asked["request"]
        env = asked["env"]
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        last = run(asked["code"], module.__dict__, asked["result"])
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        for stream in streams:
            stream.drain()
        if isinstance(last, BaseException):
            last = described(last)
        if last:
            tell(**last)
        tell(event="end")


main()
