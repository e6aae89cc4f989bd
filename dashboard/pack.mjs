// Packs the built page: what can be packed is kept packed alone, as the gateway serves it. Fails when the page has grown too large.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const PAGE = "dist/page";
/** Packed, without noVNC: somebody on a slow line waits for it. */
const MOST_BYTES = 500_000;
/** The chunk that holds noVNC. */
const VIEWER = /^rfb-/;

let total = 0;
let viewer = 0;
for (const name of readdirSync(PAGE, { recursive: true })) {
  const path = join(PAGE, name);
  if (!statSync(path).isFile()) continue;
  let size = statSync(path).size;
  if (/\.(js|css|html|svg)$/.test(name)) {
    // Without a time in it, so that the same page is the same bytes.
    const packed = gzipSync(readFileSync(path), { level: 9 });
    writeFileSync(`${path}.gz`, packed);
    rmSync(path);
    size = packed.length;
  }
  if (VIEWER.test(name.split("/").pop())) viewer += size;
  else total += size;
}
if (!viewer) throw new Error("noVNC is in no chunk of its own: the page's size can't be told");
console.log(`the page is ${Math.round(total / 1000)} kB packed (at most ${MOST_BYTES / 1000} kB), and noVNC ${Math.round(viewer / 1000)} kB`);
if (total > MOST_BYTES) throw new Error(`the page is larger than ${MOST_BYTES / 1000} kB: look at what was added`);
