"""Runs pieces of Python one after another in one namespace, and tells what they print: a line of JSON in, many out."""

import codecs
import json
import os
import signal
import sys
import threading
import traceback

TOLD = os.fdopen(os.dup(1), "w", encoding="utf-8")
ASKED = os.fdopen(os.dup(0), encoding="utf-8")
#: Written behind what a piece printed, to know when all of it was read.
END = b"\0" + os.urandom(16).hex().encode() + b"\0"
#: Of a text in one line: who reads gives up a line of 1 MiB.
LONGEST = 50_000
LOCK = threading.Lock()
request = None
runs = False


def tell(**what):
    with LOCK:
        TOLD.write(json.dumps({"request": request, **what}) + "\n")
        TOLD.flush()


class Printed(threading.Thread):
    """One stream of this process and of all that it starts."""

    def __init__(self, number, kind):
        super().__init__(daemon=True)
        self.source, sink = os.pipe()
        os.dup2(sink, number)
        os.close(sink)
        self.number, self.kind, self.read = number, kind, threading.Event()
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
            tell(type=self.kind, text=text)

    def drain(self):
        self.read.clear()
        os.write(self.number, END)
        self.read.wait(5)


def interrupt(*_):
    if runs:
        raise KeyboardInterrupt


def main():
    global request, runs
    streams = Printed(1, "stdout"), Printed(2, "stderr")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGINT, interrupt)
    space = {"__name__": "__main__", "__doc__": None}
    sys.argv = [""]
    sys.path.insert(0, "")
    for line in ASKED:
        asked = json.loads(line)
        request = asked["request"]
        envs = asked.get("envs") or {}
        before = {name: os.environ.get(name) for name in envs}
        os.environ.update(envs)
        tell(type="begun")
        try:
            runs = True
            exec(compile(asked["code"], "<code>", "exec"), space)
        except BaseException as error:  # also its end, which is no end of ours
            runs = False
            trace = error.__traceback__ and error.__traceback__.tb_next
            text = "".join(traceback.format_exception(type(error), error, trace))
            failed = {"name": type(error).__name__, "value": str(error)[:LONGEST], "traceback": text[-LONGEST:]}
        else:
            failed = None
        runs = False
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
        if failed:
            tell(type="error", **failed)
        tell(type="control", text="completed")


main()
