// Parts that every page uses: buttons, menus, dialogs, notices, messages.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { told } from "../api/client";
import { Icon, type IconName } from "./icon";

type ButtonProps = {
  icon?: IconName;
  look?: string;
  /** For buttons that show nothing but a picture. */
  label?: string;
  pressed?: boolean;
  children?: ComponentChildren;
  onClick?: (event: MouseEvent) => void;
  disabled?: boolean;
  type?: "button" | "submit";
  keys?: string;
  title?: string;
};

export function Button({ icon, look = "", label, pressed, children, onClick, disabled, type = "button", keys, title }: ButtonProps) {
  return (
    <button type={type} class={`button ${look} ${icon && !children ? "icon" : ""}`} aria-label={label} title={title ?? label} aria-pressed={pressed} onClick={onClick} disabled={disabled} aria-keyshortcuts={keys}>
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function Field({ label, help, children }: { label: string; help?: ComponentChildren; children: (id: string) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label class="label" for={id}>{label}</label>
      {children(id)}
      {help && <div class="help">{help}</div>}
    </div>
  );
}

export function Notice({ look = "", icon = "info", children }: { look?: string; icon?: IconName; children: ComponentChildren }) {
  return (
    <div class={`notice ${look}`} role={look === "bad" ? "alert" : undefined}>
      <Icon name={icon} size={15} />
      <p>{children}</p>
    </div>
  );
}

export function Failure({ error, again }: { error: unknown; again?: () => void }) {
  return (
    <div class="column" style={{ gap: "10px", alignItems: "flex-start" }}>
      <Notice look="bad" icon="warning">{told(error)}</Notice>
      {again && <Button look="small" icon="reset" onClick={again}>Try again</Button>}
    </div>
  );
}

export function Empty({ icon, title, children, action }: { icon: IconName; title: string; children?: ComponentChildren; action?: ComponentChildren }) {
  return (
    <div class="empty">
      <div class="picture"><Icon name={icon} size={36} /></div>
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

export function Segments<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: [T, string][]; onChange: (value: T) => void }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button type="button" key={option} aria-pressed={value === option} onClick={() => onChange(option)}>{text}</button>
      ))}
    </div>
  );
}

/** A dialog of the browser's own: it keeps the focus inside and closes with Escape. */
export function Dialog({ title, onClose, children, footer }: { title: string; onClose: () => void; children: ComponentChildren; footer?: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  const leave = (event: MouseEvent) => event.target === ref.current && onClose();
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={onClose} onMouseDown={leave}>
      <header>
        <h2 id={id} style={{ fontSize: "16px" }}>{title}</h2>
        <Button icon="close" label="Close" look="plain" onClick={onClose} />
      </header>
      <div class="inside">{children}</div>
      {footer && <footer>{footer}</footer>}
    </dialog>
  );
}

/** A button that opens a list of things to do. */
export function Menu({ label, icon = "more", look = "", text, children }: { label: string; icon?: IconName; look?: string; text?: string; children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => !place.current?.contains(event.target as Node) && setOpen(false);
    const key = (event: KeyboardEvent) => {
      const items = [...(place.current?.querySelectorAll<HTMLElement>(".menu button:not(:disabled)") ?? [])];
      const at = items.indexOf(document.activeElement as HTMLElement);
      if (event.key === "Escape") {
        setOpen(false);
        place.current?.querySelector<HTMLElement>("button")?.focus();
      } else if (event.key === "ArrowDown") items[(at + 1) % items.length]?.focus();
      else if (event.key === "ArrowUp") items[(at - 1 + items.length) % items.length]?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("pointerdown", away);
    addEventListener("keydown", key);
    return () => {
      removeEventListener("pointerdown", away);
      removeEventListener("keydown", key);
    };
  }, [open]);
  return (
    <div class="menu-place" ref={place}>
      <button type="button" class={`button ${text ? "" : "icon"} ${look}`} aria-label={label} title={label} aria-haspopup="true" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={icon} />
        {text}
      </button>
      {open && <div class="menu" onClick={(event) => (event.target as HTMLElement).closest("button") && setOpen(false)}>{children}</div>}
    </div>
  );
}

// ── messages ──

interface Toast { id: number; look: "good" | "bad"; text: string }
const toasts = signal<Toast[]>([]);
let next = 0;
const TOAST_MS = 6_000;

export function say(text: string, look: Toast["look"] = "good") {
  const toast = { id: next++, look, text };
  toasts.value = [...toasts.value.slice(-3), toast];
  setTimeout(() => drop(toast.id), TOAST_MS);
}

/** Runs something, and tells when it fails. */
export async function attempt<T>(work: Promise<T>, done?: string): Promise<T | undefined> {
  try {
    const result = await work;
    if (done) say(done);
    return result;
  } catch (error) {
    say(told(error), "bad");
    return undefined;
  }
}

function drop(id: number) {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast appear ${toast.look}`}>
          <Icon name={toast.look === "bad" ? "warning" : "check"} />
          <p>{toast.text}</p>
          <Button icon="close" label="Dismiss" look="plain small" onClick={() => drop(toast.id)} />
        </div>
      ))}
    </div>
  );
}
