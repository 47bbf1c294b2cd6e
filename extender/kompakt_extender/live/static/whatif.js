// What if a pod asked for so many GPUs: by two clicks; asked again while the cluster changes.
import { askWhatIf } from "./stream.js";
import { byId, el, say } from "./dom.js";
import { setOffers } from "./nodes.js";
import { gigabytes, plural } from "./words.js";

const SIZES = [1, 2, 4, 8, 16];
const PATTERNS = ["None", "Ring", "Chain", "Tree", "Clique", "AllToAll", "Star"];
const asked = { gpus: 0, pattern: "Ring" };
let number = 0; // of the question, so that a late answer to an earlier one is left out
let due = 0;

export function beginWhatIf() {
  radios("sizes", SIZES, (value) => { asked.gpus = value; });
  radios("patterns", PATTERNS, (value) => { asked.pattern = value; });
  byId("forget").addEventListener("click", forget);
  mark();
}

// As radio buttons are: one of them can be reached by Tab, arrows go on.
function radios(id, values, choose) {
  const pick = (value) => { choose(value); mark(); question(); };
  const made = values.map((value) => el("button", { type: "button", role: "radio", "data-value": value, click: () => pick(value) }, String(value)));
  byId(id).append(...made);
  byId(id).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = made[(made.indexOf(document.activeElement) + step + made.length) % made.length];
    next.focus();
    next.click();
  });
}

function mark() {
  for (const [id, value] of [["sizes", asked.gpus], ["patterns", asked.pattern]]) {
    const all = [...byId(id).children];
    const chosen = all.find((one) => one.dataset.value === String(value));
    for (const one of all) {
      one.setAttribute("aria-checked", String(one === chosen));
      one.tabIndex = one === (chosen ?? all[0]) ? 0 : -1;
    }
  }
}

function forget() {
  asked.gpus = 0;
  number += 1;
  mark();
  setOffers([]);
  say(byId("what-if-says"), "");
  byId("forget").hidden = true;
  byId("sizes").firstElementChild.focus();
}

// The cluster changed: what was answered may hold no longer. At most once a second.
export function askAgain() {
  if (asked.gpus && !due) due = setTimeout(() => { due = 0; question(); }, 1000);
}

async function question() {
  if (!asked.gpus) return;
  const mine = (number += 1);
  byId("forget").hidden = false;
  try {
    const answer = await askWhatIf({ gpus: asked.gpus, pattern: asked.pattern, sensitivity: "High", limit: 50 });
    if (mine !== number) return;
    setOffers(answer.offers);
    say(byId("what-if-says"), told(answer));
  } catch (error) {
    if (mine === number) say(byId("what-if-says"), error.message);
  }
}

function told(answer) {
  const best = answer.offers[0];
  const what = `${plural(asked.gpus, "GPU")}, pattern ${asked.pattern}`;
  if (!best) return `${what}: no node could take that now. ${answer.never || answer.rejections.map((one) => `${one.nodes}: ${one.message}`).join("; ")}`;
  const worth = answer.ideal && best.value ? `${gigabytes(best.value)} GB/s of ${gigabytes(answer.ideal)} at best` : "links do not matter";
  return `${what}: ${answer.fits} of ${plural(answer.nodes, "node")} could take that now, first ${best.node} (${worth}). Nothing is reserved.`;
}
