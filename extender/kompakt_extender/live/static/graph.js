// A node's GPUs on a circle, numbered, with a line for each link; who holds a GPU says its letter.
import { byId, svg } from "./dom.js";
import { bits, ranges } from "./words.js";

const CIRCLE = 16; // more GPUs than that stand in rows, without lines
const AT = (index, count) => {
  if (count > CIRCLE) return [14 + (index % 9) * 24, 20 + Math.floor(index / 9) * 30];
  const angle = (2 * Math.PI * index) / count - Math.PI / 2;
  return [110 + 78 * Math.cos(angle), 110 + 78 * Math.sin(angle)];
};
export const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
export const letter = (position) => LETTERS[position % 26];

// The lines of a machine, drawn once and used by all nodes of its kind.
function wires(number, machine) {
  const id = `wires-${number}`;
  if (byId(id)) return id;
  const fastest = Math.max(1, ...machine.links.map((link) => link[4]));
  const slowest = Math.min(fastest, ...machine.links.map((link) => link[4]));
  const lines = machine.links.map(([a, b, , , speed]) => {
    const [[x1, y1], [x2, y2]] = [AT(a, machine.gpus), AT(b, machine.gpus)];
    const slow = speed < fastest / 4 || (speed === slowest && slowest < fastest / 2);
    return svg("line", { x1, y1, x2, y2, "stroke-width": slow ? 0.6 : 0.8 + (2.8 * speed) / fastest, class: slow && "slow" });
  });
  byId("shared").append(svg("symbol", { id, viewBox: "0 0 220 220" }, svg("g", { class: "wires" }, lines)));
  return id;
}

// What a picture says, for those who do not see it.
export function described(node, machine) {
  const held = node.holders.map((one, i) => `${letter(i)}, ${named(one)}, GPU ${ranges(bits(one.mask))}`).join("; ");
  const bad = bits(node.unhealthyMask);
  return `${machine.gpus} GPUs; free: ${ranges(bits(node.freeMask)) || "none"}` + (held ? `; held: ${held}` : "") + (bad.length ? `; unhealthy: ${ranges(bad)}` : "");
}

export const named = (holder) => (holder.name ? `${holder.namespace}/${holder.name}` : `a pod of another namespace (uid ${holder.uid})`);

// `chosen`: GPUs that a what-if would give.
export function graph(node, machine, chosen = []) {
  const [free, bad] = [new Set(bits(node.freeMask)), new Set(bits(node.unhealthyMask))];
  const holders = new Map();
  node.holders.forEach((one, position) => bits(one.mask).forEach((gpu) => holders.set(gpu, position)));
  const lines = machine.gpus > CIRCLE ? null : svg("use", { href: `#${wires(node.machine, machine)}`, width: 220, height: 220 });
  const dots = Array.from({ length: machine.gpus }, (_, i) => dot(i, machine.gpus, { holder: holders.get(i), free: free.has(i), bad: bad.has(i), chosen: chosen.includes(i) }));
  const height = machine.gpus > CIRCLE ? 30 * Math.ceil(machine.gpus / 9) + 14 : 220;
  return svg("svg", { viewBox: `0 0 220 ${height}`, class: "graph", role: "img", "aria-label": described(node, machine) }, lines, dots);
}

function dot(index, count, { holder, free, bad, chosen }) {
  const [x, y] = AT(index, count);
  const out = count > CIRCLE ? [0, 15] : [(x - 110) * 0.27, (y - 110) * 0.27];
  const kind = bad ? "bad" : holder !== undefined ? `held h${holder % 6}` : free ? "" : "kept";
  const mark = [holder === undefined ? "" : letter(holder), bad ? "×" : "", kind === "kept" ? "–" : ""].join("");
  return svg("g", { class: `gpu ${kind} ${chosen ? "chosen" : ""}` },
    svg("circle", { cx: x, cy: y, r: count > CIRCLE ? 9 : 11 }), svg("circle", { class: "ring", cx: x, cy: y, r: 14.5 }),
    svg("text", { class: "index", x, y }, String(index)), mark && svg("text", { class: "letter", x: x + out[0], y: y + out[1] }, mark));
}
