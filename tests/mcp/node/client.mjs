// The TypeScript SDK: connects over HTTP and over stdio, and prints what it saw as JSON.
// client.mjs URL KEY BINARY DESK
import { createRequire } from "node:module";

// Packages are in the folder that the test works in, not beside this file.
const require = createRequire(`${process.cwd()}/`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");

const [url, key, binary, desk] = process.argv.slice(2);
const ways = {
  http: new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers: { Authorization: `Bearer ${key}` } } }),
  stdio: new StdioClientTransport({ command: binary, args: ["mcp"], env: { HOTDESK_URL: url, HOTDESK_KEY: key } }),
};
const seen = {};
for (const [way, transport] of Object.entries(ways)) {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  const look = await client.callTool({ name: "look", arguments: { desk } });
  const run = await client.callTool({ name: "run", arguments: { desk, command: "echo hello" } });
  const wrong = await client.callTool({ name: "look", arguments: { desk: "nobody" } });
  const { resources } = await client.listResources();
  seen[way] = {
    tools: tools.map((tool) => tool.name),
    kinds: look.content.map((part) => part.type),
    run: run.content[0].text,
    wrong: [wrong.isError, wrong.content[0].text],
    resources: resources.map((resource) => resource.uri),
  };
  await client.close();
}
console.log(JSON.stringify(seen));
