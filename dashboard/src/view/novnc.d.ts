declare module "@novnc/novnc" {
  export default class RFB extends EventTarget {
    constructor(target: HTMLElement, url: string, options?: { shared?: boolean; wsProtocols?: string[] });
    background: string;
    scaleViewport: boolean;
    viewOnly: boolean;
    qualityLevel: number;
    compressionLevel: number;
    showDotCursor: boolean;
    focus(options?: FocusOptions): void;
    blur(): void;
    disconnect(): void;
    clipboardPasteFrom(text: string): void;
    sendKey(keysym: number, code: string, down?: boolean): void;
    addEventListener(kind: "clipboard", listener: (event: CustomEvent<{ text: string }>) => void): void;
    addEventListener(kind: string, listener: (event: Event) => void): void;
  }
}
