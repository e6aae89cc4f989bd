// Server-sent events over fetch: EventSource does not tell why it failed, and sends no headers of ours.
import { request, type Options } from "./client";

export interface Message { id: string; event: string; data: string }

/** The first wait before coming back, and the longest. */
const SOON_MS = 400;
const LATE_MS = 5_000;

interface Listener {
  message(message: Message): void;
  /** The stream is open, or was lost with this error. */
  state?(open: boolean, error?: unknown): void;
  /** Whether it is worth coming back after an error. */
  again?(error: unknown): boolean;
}

/** Reads a stream for ever, coming back by itself; the returned function ends it. */
export function listen(path: string, options: Options, listener: Listener): () => void {
  const ending = new AbortController();
  void follow(path, options, listener, ending.signal);
  return () => ending.abort();
}

async function follow(path: string, options: Options, listener: Listener, signal: AbortSignal) {
  let wait = SOON_MS;
  let last = "";
  while (!signal.aborted) {
    let error: unknown;
    try {
      const headers: Record<string, string> = { accept: "text/event-stream", ...options.headers };
      if (last) headers["last-event-id"] = last;
      const answer = await request(path, { ...options, headers, signal });
      listener.state?.(true);
      wait = SOON_MS;
      for await (const message of messages(answer.body!)) {
        if (message.id) last = message.id;
        if (message.data) listener.message(message);
      }
    } catch (caught) {
      error = caught;
    }
    if (signal.aborted) return;
    listener.state?.(false, error);
    if (error && listener.again && !listener.again(error)) return;
    await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    wait = Math.min(wait * 2, LATE_MS);
  }
}

async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      yield parse(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function parse(block: string): Message {
  const message: Message = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const cut = line.indexOf(":");
    if (cut <= 0) continue;
    const name = line.slice(0, cut);
    const value = line.slice(cut + 1).replace(/^ /, "");
    if (name === "data") message.data += (message.data ? "\n" : "") + value;
    else if (name === "id" || name === "event") message[name] = value;
  }
  return message;
}
