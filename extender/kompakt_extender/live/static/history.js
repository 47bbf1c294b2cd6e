// The last hour as two lines, and in words.
import { byId, el, svg } from "./dom.js";
import { clock, plural } from "./words.js";

const [WIDTH, HEIGHT] = [720, 60];

export function showHistory(samples) {
  if (!byId("history").open) return;
  byId("hour").replaceChildren(...(samples.length < 2 ? [el("p", {}, "No hour is known yet; a sample is taken every ten seconds.")] : [picture(samples), legend(samples)]));
}

function picture(samples) {
  const [first, last] = [samples[0].at, samples[samples.length - 1].at];
  const line = (of, most) => samples.map((one, i) => `${i ? "L" : "M"}${((one.at - first) / Math.max(1, last - first)) * WIDTH} ${HEIGHT - 2 - (of(one) / Math.max(1, most)) * (HEIGHT - 6)}`).join("");
  const waiting = Math.max(...samples.map((one) => one.waiting));
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": spoken(samples) },
    svg("path", { class: "free", d: line((one) => one.free, Math.max(...samples.map((one) => one.gpus))) }),
    svg("path", { class: "waiting", d: line((one) => one.waiting, waiting) }));
}

function span(samples, of) {
  const values = samples.map(of);
  return `${Math.min(...values)} to ${Math.max(...values)}, now ${values[values.length - 1]}`;
}

const spoken = (samples) => `free GPUs ${span(samples, (one) => one.free)}; gangs waiting ${span(samples, (one) => one.waiting)}`;

const legend = (samples) => el("p", { class: "key" },
  `From ${clock(samples[0].at * 1000)} to ${clock(samples[samples.length - 1].at * 1000)}. Solid line: free GPUs, ${span(samples, (one) => one.free)} of ${plural(samples[samples.length - 1].gpus, "GPU")}. `
  + `Dashed line: gangs that wait, ${span(samples, (one) => one.waiting)}. Unhealthy GPUs: ${span(samples, (one) => one.unhealthy)}.`);
