// The lists of gangs: what waits, with why and until when; what has GPUs; what ended.
import { byId, el, say } from "./dom.js";
import { asks, clock, lasting, place, plural, until } from "./words.js";

const LISTED = 300; // in a list; the rest is counted
let free; // GPUs of the whole cluster
const drawn = new Map(); // by list and key: the element, and the gang that it shows

export const setFree = (count) => { free = count; };

export function showGangs(cluster, open) {
  const [waiting, running] = [cluster.waiting(), cluster.running()];
  setFree(cluster.counts.free);
  say(byId("waiting-count"), String(waiting.length));
  say(byId("running-count"), String(running.length + cluster.more));
  const unseen = cluster.counts.waiting - waiting.length; // of namespaces that this account may not see
  byId("nothing-waits").hidden = waiting.length > 0 || unseen > 0;
  const left = Math.max(0, waiting.length - LISTED) + Math.max(0, unseen);
  byId("waiting-more").hidden = left === 0;
  say(byId("waiting-more"), unseen > 0 ? `${plural(left, "more gang waits", "more gangs wait")}, ${unseen} in namespaces that you may not see` : `and ${plural(left, "more gang", "more gangs")}`);
  list("waiting", waiting.slice(0, LISTED), waits, open);
  list("running", running.slice(0, LISTED), has, open);
  list("ended", cluster.ended, over, open);
  byId("ended-section").hidden = cluster.ended.length === 0;
  const more = Math.max(0, running.length - LISTED) + cluster.more;
  byId("running-more").hidden = more === 0;
  say(byId("running-more"), `and ${plural(more, "more gang", "more gangs")}`);
}

// Elements of gangs that did not change stay, and with them the focus.
function list(id, gangs, inside, open) {
  const parent = byId(id);
  const wanted = gangs.map((gang) => {
    const key = `${id} ${gang.key}`;
    const known = drawn.get(key);
    if (known?.gang === gang) return known.item;
    const item = known?.item ?? el("li");
    const focused = item.contains(document.activeElement);
    item.replaceChildren(...inside(gang, open));
    if (focused) item.querySelector("button").focus();
    drawn.set(key, { item, gang });
    return item;
  });
  const now = new Set(wanted);
  for (const item of [...parent.children]) if (!now.has(item)) item.remove();
  wanted.forEach((item, position) => { if (parent.children[position] !== item) parent.insertBefore(item, parent.children[position] ?? null); });
  for (const [key, { item }] of drawn) if (key.startsWith(`${id} `) && !now.has(item)) drawn.delete(key);
}

const heading = (gang, open) => el("button", { type: "button", click: () => open(gang) }, `${gang.namespace}/${gang.name}`);
const kind = (gang) => el("span", { class: "tail" }, gang.kind === "TrainingJob" ? "" : ` ${gang.kind}`);

function waits(gang, open) {
  const since = gang.since ? ["waits", el("span", {}, el("span", { class: "ago", "data-since": gang.since }, ago(gang.since)), `, since ${clock(gang.since)}`)] : ["waits", "for its pods to exist"];
  const pairs = [["why", el("span", { class: "why" }, gang.message || gang.reason || gang.state)], ["until", el("span", { class: "until" }, until(gang, Date.now(), free))], ["asks for", asks(gang)], since];
  if (gang.overtaken) pairs.push(["passed by", plural(gang.overtaken, "later gang")]);
  return [heading(gang, open), kind(gang), gang.state === "Waiting" ? "" : el("span", { class: "tail" }, ` ${gang.state}`), definition(pairs)];
}

const definition = (pairs) => el("dl", {}, pairs.flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));

function has(gang, open) {
  const where = gang.nodes.length > 2 ? plural(gang.nodes.length, "node") : gang.nodes.join(", ");
  const worth = gang.ideal ? `, ${Math.round((100 * gang.value) / gang.ideal)}% of the best` : "";
  const bound = gang.bound < gang.workers ? `, ${gang.bound} of ${gang.workers} pods bound` : "";
  return [heading(gang, open), kind(gang), el("p", {}, `${plural(gang.gpus, "GPU")} in ${place(gang.level)}${where ? ` (${where})` : ""}${worth}${bound}`)];
}

const over = (gang, open) => [heading(gang, open), el("p", {}, `${gang.state}${gang.message ? `: ${gang.message}` : ""}`)];
const ago = (since) => lasting((Date.now() - new Date(since)) / 1000);

// Once a second: what reads otherwise as time passes.
export function showTime() {
  for (const { item, gang } of drawn.values()) {
    if (!gang.waits) continue;
    const [since, end] = [item.querySelector(".ago"), item.querySelector(".until")];
    if (since) say(since, ago(since.dataset.since));
    if (end) say(end, until(gang, Date.now(), free));
  }
}
