// Asks the extender, beside which this page lies, also behind the API server's proxy. fetch instead of EventSource: that one
// sends no headers, and without `kompakt ui` the token goes in one.
const API = new URL("../v1alpha1/", document.baseURI);
const SILENT = 45_000;
let token = "";

// `begun`: what was refused had begun, as a stream does that its token has outlived.
export class Refused extends Error {
  constructor(status, message, begun = false) {
    super(message);
    this.status = status;
    this.begun = begun;
  }
}

export const useToken = (text) => { token = text.trim(); };
const headers = () => (token ? { "Kompakt-Token": token } : {});

async function opened(path, more = {}) {
  const answer = await fetch(new URL(path, API), { headers: { ...headers(), ...more.headers }, method: more.method, body: more.body, signal: more.signal, credentials: "same-origin" });
  if (answer.ok) return answer;
  const text = await answer.text();
  let said = text.slice(0, 300);
  try { const body = JSON.parse(text); said = body.detail ?? body.message ?? said; } catch { /* not JSON: shown as it is */ }
  throw new Refused(answer.status, said || `HTTP ${answer.status}`);
}

const path = (parts) => parts.map(encodeURIComponent).join("/");
export const ask = async (...parts) => (await opened(path(parts))).json();
export const askWhatIf = async (body) =>
  (await opened("what-if", { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();

// One stream until it ends; `told` hears each event, and what is thrown says why it ended.
async function once(told) {
  const stop = new AbortController();
  let silence = setTimeout(() => stop.abort(), SILENT);
  try {
    const reader = (await opened("events", { signal: stop.signal })).body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), SILENT);
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      events.forEach((text) => parsed(text, told));
    }
  } finally {
    clearTimeout(silence);
    stop.abort();
  }
}

function parsed(text, told) {
  const [, kind, data] = /^event: (\w+)\ndata: (.*)$/s.exec(text) ?? [];
  if (!kind) return;
  const found = JSON.parse(data);
  if (kind === "end") throw new Refused(found.status, found.detail, true);
  told(kind, found);
}

// Streams for as long as the page is open. `state` hears "live", or "lost" with why; `needsToken` gives one, in its time.
export async function follow(told, state, needsToken) {
  for (let failures = 0; ;) {
    try {
      await once((kind, found) => { failures = 0; told(kind, found); state("live", ""); });
      state("lost", "the stream ended");
    } catch (error) {
      const why = error.name === "AbortError" ? "nothing was heard for 45 seconds" : error.message;
      state("lost", why);
      if (error.status === 401 && !error.begun) await needsToken(why);
    }
    failures += 1;
    await new Promise((wake) => { setTimeout(wake, Math.min(300 * 2 ** failures, 10_000)); });
  }
}
