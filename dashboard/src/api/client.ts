// Requests to the gateway. The browser adds the cookie of the session by itself.
import { signal } from "@preact/signals";

/** What the gateway says when it can't. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly hint: string | null,
    readonly retryAfter: number | null,
  ) {
    super(detail);
  }
}

/** Where the page is served, with a slash at its end; the API lies beside it. */
export const base = new URL(".", document.baseURI);

/** Null until it is known. */
export const signedIn = signal<boolean | null>(null);

/** Called when the session turned out to be over. */
let lost = () => {};
export function onSessionLost(handler: () => void) {
  lost = handler;
}

/** Who looks: a name of this tab that the desk knows the lease by. */
export const viewer = own("hotdesk.viewer", () => crypto.getRandomValues(new Uint32Array(3)).join("-"));

function own(name: string, make: () => string): string {
  const kept = sessionStorage.getItem(name);
  if (kept) return kept;
  const made = make();
  sessionStorage.setItem(name, made);
  return made;
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export interface Options {
  method?: string;
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Without this the desk counts the request as work, and is not idle. */
  glance?: boolean;
}

export function address(path: string, query: Query = {}): URL {
  const url = new URL(path.replace(/^\//, ""), base);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) url.searchParams.set(name, String(value));
  }
  return url;
}

export function socketAddress(path: string, query: Query = {}): string {
  const url = address(path, query);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

export async function request(path: string, options: Options = {}): Promise<Response> {
  const { method = "GET", query, body, signal, glance } = options;
  const headers: Record<string, string> = { "x-hotdesk-viewer": viewer, ...options.headers };
  if (glance) headers["x-hotdesk-glance"] = "1";
  const plain = body === undefined || body instanceof Blob || typeof body === "string";
  if (!plain) headers["content-type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(address(path, query), { method, headers, body: plain ? (body as BodyInit | undefined) : JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "the fleet does not answer", "it may be starting again; the page keeps trying", 1);
  }
  if (answer.ok || answer.status === 304) return answer;
  const problem = await read(answer);
  if (problem.status === 401 && signedIn.value) lost();
  throw problem;
}

async function read(answer: Response): Promise<Problem> {
  const after = Number(answer.headers.get("retry-after")) || null;
  try {
    const told = await answer.json();
    return new Problem(answer.status, told.code ?? "unknown", told.detail ?? told.title ?? answer.statusText, told.hint ?? null, after);
  } catch {
    return new Problem(answer.status, "unknown", `the fleet answered ${answer.status}`, null, after);
  }
}

export async function get<T>(path: string, options?: Options): Promise<T> {
  return (await request(path, options)).json();
}

export async function send<T>(method: string, path: string, body?: unknown, options: Options = {}): Promise<T> {
  const answer = await request(path, { ...options, method, body });
  const text = await answer.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** The words for a person. */
export function told(error: unknown): string {
  if (error instanceof Problem) return error.hint ? `${error.detail}. ${error.hint}` : error.detail;
  return error instanceof Error ? error.message : String(error);
}

/** Whether the desk or the fleet does not know that part of the API. */
export function isMissing(error: unknown): boolean {
  return error instanceof Problem && (error.status === 404 || error.status === 405);
}
