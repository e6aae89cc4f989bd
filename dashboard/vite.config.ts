// The build goes to dist/page, which the gateway embeds; `npm run dev` passes the API on to a running fleet.
import { defineConfig } from "vite";

declare const process: { env: Record<string, string | undefined> };
const fleet = process.env.HOTDESK_URL ?? "http://127.0.0.1:7700";

export default defineConfig({
  // Relative, so that a fleet behind a proxy's path works; index.html's <base> says where the page is.
  base: "./",
  build: {
    outDir: "dist/page",
    emptyOutDir: true,
    target: "es2022",
    // noVNC and the terminal are fetched when they are first needed.
    chunkSizeWarningLimit: 400,
    assetsInlineLimit: 0,
  },
  server: {
    proxy: Object.fromEntries(["/v1", "/metrics", "/health", "/ready"].map((path) => [path, { target: fleet, ws: true }])),
  },
});
