// A client made with ACP's TypeScript SDK: joins over a WebSocket, and prompts.
//
// One JSON argument: url, token, folder, prompts, headers (whether the token goes by a header, which only the package
// ws can send, or by a subprotocol, as from a browser). Prints what it was answered, and what it was told meanwhile.

import { client } from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket as WithHeaders } from "ws";

const { url, token, folder, prompts, headers } = JSON.parse(process.argv[2]);

const updates = [];
const app = client()
  .onNotification("session/update", ({ params }) => {
    updates.push(params.update);
  })
  .onRequest("session/request_permission", ({ params }) => ({
    outcome: { outcome: "selected", optionId: params.options[0].optionId },
  }));

const stream = createWebSocketStream(
  url,
  headers
    ? { WebSocket: WithHeaders, headers: { Authorization: `Bearer ${token}` } }
    : { protocols: ["onefold", `onefold.token.${token}`] },
);

const result = await app.connectWith(stream, async (agent) => {
  await agent.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await agent.request("session/new", { cwd: folder, mcpServers: [] });
  const stops = [];
  for (const text of prompts) {
    const answer = await agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
    stops.push(answer.stopReason);
  }
  return { session: sessionId, stops, updates };
});
console.log(`\nRESULT ${JSON.stringify(result)}`);
process.exit(0);
