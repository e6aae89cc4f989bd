// Something that is read from the desk, again and again while it is looked at.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

export interface Read<T> { value: T | null; error: unknown; again: () => void }

export function useRead<T>(read: () => Promise<T>, on: unknown[], everyMs?: number): Read<T> {
  const [state, setState] = useState<{ value: T | null; error: unknown }>({ value: null, error: null });
  const turn = useRef(0);
  const again = useCallback(() => {
    const mine = ++turn.current;
    read().then(
      (value) => mine === turn.current && setState({ value, error: null }),
      (error) => mine === turn.current && setState((old) => ({ value: old.value, error })),
    );
  }, on);
  useEffect(() => {
    again();
    if (!everyMs) return;
    const timer = setInterval(() => document.visibilityState === "visible" && again(), everyMs);
    return () => clearInterval(timer);
  }, [again, everyMs]);
  useEffect(() => () => void turn.current++, []);
  return { ...state, again };
}
