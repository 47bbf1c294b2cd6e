// The live page: one stream of events, one picture of the cluster, and what a reader opens of it.
import { Cluster } from "./state.js";
import { follow, useToken } from "./stream.js";
import { byId, el, say } from "./dom.js";
import { setFree, showGangs, showTime } from "./gangs.js";
import { beginNodes, showAllNodes, showNodes } from "./nodes.js";
import { beginDetail, openGang, openNode } from "./detail.js";
import { askAgain, beginWhatIf } from "./whatif.js";
import { showHistory } from "./history.js";
import { clock, plural, zone } from "./words.js";

const cluster = new Cluster();
const NAMES = [["waiting", "gangs waiting"], ["free", "GPUs free"], ["held", "held"], ["unhealthy", "unhealthy"]];

function showCounts(counts) {
  if (!byId("counts").children.length) {
    byId("counts").append(...NAMES.map(([key, name]) => el("div", {}, el("dt", {}, name), el("dd", { id: `count-${key}` }))));
  }
  for (const [key] of NAMES) say(byId(`count-${key}`), String(counts[key]));
  document.title = counts.waiting ? `${plural(counts.waiting, "gang")} waiting - kompakt` : "kompakt: nothing waits";
}

function told(kind, event) {
  if (kind !== "all" && kind !== "change") return;
  if (kind === "all") byId("shared").replaceChildren(); // numbers of machines mean others in another process
  const changes = cluster.apply(kind, event);
  document.documentElement.dataset.at = event.at;
  showCounts(event.counts);
  setFree(event.counts.free);
  if (kind === "all" || changes.gangs.length) showGangs(cluster, openGang);
  if (kind === "all") showAllNodes();
  else if (changes.nodes.length) { showNodes(changes.nodes); askAgain(); }
  if (event.history.length) showHistory(cluster.history);
  if (kind === "change") announce(changes.gangs);
}

// For those who hear the page: what began to wait, and what got its GPUs; the newest first, three at once, each second at most. A
// new gang waits before its first decision says why: it is told of then.
const unexplained = (gang) => Boolean(gang?.waits && !gang.message);
let unsaid = [];
let speaking = 0;
function announce(changes) {
  const worthIt = ([before, after]) => !unexplained(after) && (unexplained(before) || before?.waits !== after?.waits);
  const words = changes.filter(worthIt).map(([before, after]) =>
    (after?.waits ? `${after.name} waits: ${after.message}` : after && after.level ? `${after.name} has its GPUs` : `${(after ?? before)?.name ?? "a gang"} is over`));
  unsaid = [...words, ...unsaid].slice(0, 3);
  if (!speaking) speak();
}

function speak() {
  speaking = 0;
  if (!unsaid.length) return;
  say(byId("news"), unsaid.join(". "));
  unsaid = [];
  speaking = setTimeout(speak, 1000);
}

let lostAt = 0;
function state(what, why) {
  if (what === "lost" && !lostAt) lostAt = Date.now();
  if (what === "live") lostAt = 0;
  byId("link").dataset.state = what;
  say(byId("link"), what === "live" ? "live" : `not live since ${clock(lostAt)}: ${why}; trying again`);
}

// Resolves when a token was entered.
function needsToken() {
  byId("ask-token").hidden = false;
  byId("token").focus();
  return new Promise((entered) => {
    byId("ask-token").onsubmit = (event) => {
      event.preventDefault();
      useToken(byId("token").value);
      byId("token").value = "";
      byId("ask-token").hidden = true;
      entered();
    };
  });
}

byId("what-if").addEventListener("submit", (event) => event.preventDefault());
byId("history").addEventListener("toggle", () => showHistory(cluster.history));
beginNodes(cluster, (name) => openNode(cluster, name));
beginDetail();
say(byId("zone"), zone());
beginWhatIf();
setInterval(showTime, 1000);
follow(told, state, needsToken);
