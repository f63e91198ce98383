// The parts of a message as the server read them, whatever its format: a list of { kind, text, … }. Reading never fails.

const json = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1) ?? "");

/** A message that is one text comes without parts, and so does the text of a part that is all there is. */
export function parts(record) {
  const whole = record.text ?? json(record.body);
  return (record.parts ?? [{ kind: "text" }]).map((part) => ({ ...part, text: part.kind === "call" ? argument(part.text) : part.text ?? whole }));
}

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
