// Nodes as cards. There may be thousands: each has its place, and only those near the window are drawn.
import { byId, el, say } from "./dom.js";
import { graph, letter, named } from "./graph.js";
import { bits, gigabytes, plural, ranges } from "./words.js";

const FULL = "NotEnoughFreeGPUs"; // "0 of 8 free" says so already
const cards = new Map(); // by name: the element, whether it is near the window, and what it was drawn of
let cluster;
let open;
let offers = new Map(); // of a what-if, by node

export function beginNodes(known, opener) {
  [cluster, open] = [known, opener];
  byId("filter").addEventListener("input", showAllNodes);
  byId("only").addEventListener("change", showAllNodes);
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const card = cards.get(entry.target.dataset.name);
    if (card) { card.near = entry.isIntersecting; fill(card); }
  }
}, { rootMargin: "400px" });

export function setOffers(found) {
  offers = new Map(found.map((offer, rank) => [offer.node, { ...offer, rank: rank + 1 }]));
  for (const card of cards.values()) card.of = null;
  showAllNodes();
}

function matches(node, words, only) {
  if (offers.size && !offers.has(node.name)) return false;
  if (only === "free" && !bits(node.freeMask).length) return false;
  if (only === "unusable" && node.usable) return false;
  const text = `${node.name} ${node.rack} ${node.block} ${node.holders.map(named).join(" ")}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

// In the order of names, numbers in them taken as numbers; those of a what-if in its order.
const BY_NAME = new Intl.Collator("en", { numeric: true });
function order(a, b) {
  return (offers.get(a.name)?.rank ?? 0) - (offers.get(b.name)?.rank ?? 0) || BY_NAME.compare(a.name, b.name);
}

export function showAllNodes() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = [...cluster.nodes.values()].filter((node) => matches(node, words, byId("only").value)).sort(order);
  for (const name of [...cards.keys()]) if (!cluster.nodes.has(name)) { near.unobserve(cards.get(name).item); cards.delete(name); }
  byId("nodes").replaceChildren(...shown.map((node) => card(node.name).item));
  for (const node of shown) if (card(node.name).near) fill(card(node.name));
  say(byId("nodes-count"), String(cluster.nodes.size));
  say(byId("shown"), shown.length < cluster.nodes.size ? `${shown.length} of ${plural(cluster.nodes.size, "node")}` : "");
}

// Only these changed; where one came, went or must go elsewhere, all are laid out anew.
export function showNodes(names) {
  if (names.some((name) => !cluster.nodes.has(name) || !cards.has(name))) showAllNodes();
  for (const name of names) {
    const found = cards.get(name);
    if (!found?.near) continue;
    fill(found);
    found.item.classList.remove("changed");
    requestAnimationFrame(() => found.item.classList.add("changed"));
  }
}

function card(name) {
  if (!cards.has(name)) {
    const item = el("li", { "data-name": name });
    cards.set(name, { item, near: false, of: null });
    near.observe(item);
  }
  return cards.get(name);
}

function fill(found) {
  const node = cluster.nodes.get(found.item.dataset.name);
  if (!found.near || !node || found.of === node) return;
  found.of = node;
  if (!performance.getEntriesByName("first-node").length) performance.mark("first-node");
  const focused = found.item.contains(document.activeElement);
  found.item.replaceChildren(...inside(node, cluster.machines.get(node.machine), offers.get(node.name)));
  found.item.classList.toggle("chosen", offers.has(node.name));
  if (focused) found.item.querySelector("button").focus();
}

function inside(node, machine, offer) {
  const free = machine ? `${bits(node.freeMask).length} of ${machine.gpus} free` : "";
  return [
    el("span", { class: "free" }, free),
    el("button", { type: "button", click: () => open(node.name) }, node.name),
    offer ? el("p", { class: "offer" }, `${offer.rank}. GPU ${ranges(offer.gpus)}${offer.value ? `: ${gigabytes(offer.value)} GB/s` : ""}`) : "",
    machine ? graph(node, machine, offer?.gpus) : el("p", {}, "no link graph is reported"),
    machine ? el("p", { class: "left" }, left(node)) : "",
    el("ul", { class: "who" }, node.holders.slice(0, 4).map((one, i) => el("li", {}, `${letter(i)} ${named(one)}${one.how === "Bound" ? "" : ` (${one.how})`}`)),
      node.holders.length > 4 ? el("li", {}, `and ${node.holders.length - 4} more`) : ""),
    ...node.whyNot.filter((why) => why.reason !== FULL).slice(0, 1).map((why) => el("p", { class: "why" }, `Not usable: ${why.message}`)),
  ];
}

// The best sets among the free GPUs: for a Ring of 2, 4, 8.
function left(node) {
  const told = node.bestLeft.filter((one) => one.value).map((one) => `${gigabytes(one.value)} of ${one.gpus} GPUs`);
  return told.length ? `Best free Ring, GB/s: ${told.join(", ")}` : "No Ring is free";
}
