// What a message says, whatever its format: a list of parts, each { kind, text, … }. What is not understood is shown as
// the text that the server read in it, or as JSON; reading never fails.

const json = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1) ?? "");

export function parts(record) {
  try {
    const found = READERS[record.format]?.(record.body) ?? [];
    const said = found.filter((part) => part && (part.text || part.name || part.kind === "media" || part.kind === "result"));
    if (said.length) return said;
  } catch {
    // Falls through.
  }
  return [{ kind: "text", text: record.text ?? json(record.body) }];
}

const text = (said) => ({ kind: "text", text: json(said ?? "") });
const call = (name, input) => ({ kind: "call", name: String(name ?? "call"), text: argument(input) });
const media = (what) => ({ kind: "media", text: String(what) });
const result = (said, failed = false) => ({ kind: "result", text: flat(said), failed });

/** Arguments in one line if they are one word, else as JSON that a person can read. */
export function argument(input) {
  let value = input;
  if (typeof input === "string") {
    try {
      value = JSON.parse(input);
    } catch {
      return input;
    }
  }
  if (value === null || typeof value !== "object") return json(value ?? "");
  const entries = Object.entries(value);
  if (entries.length === 1 && typeof entries[0][1] === "string") return entries[0][1];
  return entries.map(([name, one]) => `${name}: ${json(one)}`).join("\n");
}

/** Content that is a string, or a list of blocks. */
function flat(content) {
  if (!Array.isArray(content)) return json(content ?? "");
  return content.map((block) => block?.text ?? block?.content?.text ?? (block?.type ? `[${block.type}]` : json(block))).join("\n");
}

function block(one) {
  if (typeof one === "string") return text(one);
  switch (one?.type) {
    case "text":
    case "input_text":
    case "output_text":
      return text(one.text);
    case "refusal":
      return text(one.refusal);
    case "thinking":
      return { kind: "thought", text: json(one.thinking ?? "") };
    case "redacted_thinking":
      return { kind: "thought", text: "(redacted)" };
    case "tool_use":
    case "server_tool_use":
      return call(one.name, one.input);
    case "tool_result":
      return result(one.content, one.is_error === true);
    case "content":
      return block(one.content);
    case "diff":
      return text([one.path, one.newText].filter((said) => typeof said === "string").join("\n"));
    case "resource":
      return typeof one.resource?.text === "string" ? text(one.resource.text) : media(one.resource?.uri ?? "resource");
    case "resource_link":
      return media(one.uri ?? one.name ?? "resource");
    default:
      return media(one?.type ?? "content");
  }
}

const blocks = (content) => (Array.isArray(content) ? content.map(block) : content ? [text(content)] : []);

const READERS = {
  __proto__: null, // looked up with words from elsewhere
  "openai-chat": (body) => [
    ...(body.reasoning_content ? [{ kind: "thought", text: json(body.reasoning_content) }] : []),
    ...(body.role === "tool" || body.role === "function" ? [result(body.content)] : blocks(body.content)),
    ...(body.tool_calls ?? []).map((one) => call(one.function?.name ?? one.custom?.name, one.function?.arguments ?? one.custom?.input)),
    ...(body.function_call ? [call(body.function_call.name, body.function_call.arguments)] : []),
  ],
  anthropic: (body) => blocks(body.content),
  "openai-responses": (body) => {
    if (body.type === "reasoning") return [{ kind: "thought", text: flat(body.summary?.length ? body.summary : body.content ?? "") || "(reasoning)" }];
    if (/_call_output$/.test(body.type ?? "")) return [result(body.output)];
    if (/_call$/.test(body.type ?? "")) return [call(body.name ?? body.type, body.arguments ?? body.input ?? body.action)];
    return blocks(body.content);
  },
  acp: (body) => {
    if (Array.isArray(body.prompt)) return blocks(body.prompt);
    if (body.sessionUpdate === "tool_call") return [call(body.title ?? body.kind, body.rawInput), ...(isOver(body) ? outcome(body) : [])];
    if (body.sessionUpdate === "tool_call_update") return outcome(body);
    const said = blocks([body.content ?? []].flat());
    return body.sessionUpdate === "agent_thought_chunk" ? [{ kind: "thought", text: said.map((one) => one.text).join("\n") }] : said;
  },
};

const isOver = (body) => body.status === "completed" || body.status === "failed";

/** What came of a call: what it shows, else what it gave back as it is. */
function outcome(body) {
  const shown = blocks([body.content ?? []].flat());
  const said = shown.filter((one) => one.kind === "text").map((one) => one.text).join("\n");
  const raw = body.rawOutput === undefined || body.rawOutput === null ? "" : json(body.rawOutput);
  return [{ kind: "result", text: said || raw, failed: body.status === "failed" }, ...shown.filter((one) => one.kind === "media")];
}
