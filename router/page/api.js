// The router's HTTP API: with the key that a person gave, which lives as long as the browser's tab.

const KEY = "sluice-key";
let key = sessionStorage.getItem(KEY) || "";

export class NeedsKey extends Error {}

export function useKey(value) {
  key = value;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export const hasKey = () => key !== "";

export async function ask(path, options = {}) {
  const headers = {...options.headers};
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, {...options, headers, cache: "no-store"});
  if (answer.status === 401) throw new NeedsKey();
  return answer;
}

export async function json(path) {
  const answer = await ask(path, {signal: AbortSignal.timeout(5000)});
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// Series without labels: a counter's value by its name.
export async function counters(names) {
  const answer = await ask("/metrics", {signal: AbortSignal.timeout(5000)});
  if (!answer.ok) throw new Error(`/metrics: ${answer.status}`);
  const values = Object.fromEntries(names.map((name) => [name, 0]));
  for (const line of (await answer.text()).split("\n")) {
    const space = line.indexOf(" ");
    const name = line.slice(0, space);
    if (name in values) values[name] = Number(line.slice(space + 1));
  }
  return values;
}

// Posts a body and calls `take` with each event of the answer's stream. Throws what the router says went wrong.
export async function stream(path, body, signal, take) {
  const answer = await ask(path, {
    method: "POST", signal, headers: {"Content-Type": "application/json"}, body: JSON.stringify({...body, stream: true}),
  });
  if (!answer.ok) {
    const {message, param} = (await answer.json()).error;
    throw Object.assign(new Error(message), {param});
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const parsed = JSON.parse(data);
      if (parsed.error) throw new Error(parsed.error.message);
      take(parsed);
    }
  }
}
