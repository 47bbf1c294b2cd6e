// One node or one gang in full, as the explain API answers.
import { ask } from "./stream.js";
import { byId, el, facts, table } from "./dom.js";
import { graph, letter, named } from "./graph.js";
import { asks, bits, clock, gigabytes, lasting, place, plural, ranges, size, until } from "./words.js";

let shown = ""; // what the dialog is about, so that a late answer to an earlier question is left out

export function beginDetail() {
  byId("detail").addEventListener("close", () => { shown = ""; });
}

function show(title, about) {
  byId("detail-title").textContent = title;
  byId("detail-body").replaceChildren(el("p", { role: "status" }, "asking …"));
  shown = about;
  if (!byId("detail").open) byId("detail").showModal();
}

function fill(about, ...children) {
  if (shown === about) byId("detail-body").replaceChildren(...children.flat(2).filter(Boolean));
}

const trouble = (error) => el("p", { class: "trouble", role: "alert" }, error.message);

export async function openNode(cluster, name) {
  const about = `node ${name}`;
  show(name, about);
  try {
    const answer = await ask("nodes", name);
    const node = cluster.nodes.get(name);
    const machine = node && cluster.machines.get(node.machine);
    fill(about, answer.whyNot.map((why) => el("p", { class: "trouble" }, `No pod can use it: ${why.message}`)),
      machine && graph(node, machine), values(answer), holders(node), gpus(answer), links(answer), machineFacts(answer));
  } catch (error) { fill(about, trouble(error)); }
}

const values = (node) => table("What its free GPUs are worth", ["best Ring of", "GB/s now", "GB/s when the node is empty"],
  node.bestLeft.map((one) => [`${one.gpus} GPUs`, one.value ? gigabytes(one.value) : "fewer are free", gigabytes(one.empty)]));

const holders = (node) => node && table("Who holds what", ["", "pod", "GPUs", "how"],
  node.holders.map((one, i) => [letter(i), named(one), ranges(bits(one.mask)), one.how]));

const gpus = (node) => table("GPUs", ["GPU", "held by", "health", "NUMA node", "model"],
  node.gpuList.map((one) => [String(one.index), one.holders.map(named).join(", ") || (one.free ? "free" : "nobody; not to be given away"), one.health, one.numaNode < 0 ? "unknown" : String(one.numaNode), one.model]));

function links(node) {
  const kinds = new Map();
  for (const one of node.links) {
    const key = `${one.kind}${one.lanes > 1 ? ` × ${one.lanes}` : ""}`;
    const found = kinds.get(key) ?? { speed: one.megabytesPerSecond, pairs: [] };
    found.pairs.push(`${one.a}-${one.b}`);
    kinds.set(key, found);
  }
  const rows = [...kinds].sort((a, b) => b[1].speed - a[1].speed).map(([kind, { speed, pairs }]) => [kind, gigabytes(speed), pairs.length > 30 ? plural(pairs.length, "pair") : pairs.join(" ")]);
  return table("Links", ["kind", "GB/s", "between GPUs"], rows);
}

const machineFacts = (node) => [el("h3", {}, "Free besides GPUs"), facts([["CPU", `${node.freeCpuMillis / 1000}`], ["memory", size(node.freeMemoryBytes)], ["pods", String(node.freePods)]])];

export async function openGang(gang) {
  const about = gang.key;
  show(`${gang.namespace}/${gang.name}`, about);
  const job = gang.kind === "TrainingJob";
  try {
    const [answer, life] = await Promise.all([ask(job ? "jobs" : "gangs", gang.namespace, gang.name), job ? ask("jobs", gang.namespace, gang.name, "life").catch(() => null) : null]);
    fill(about, standing(gang, answer, life), life && progress(life), life && compression(life), gang.waits ? [refused(answer), rooms(answer), pods(answer)] : pods(answer), life && moves(life));
  } catch (error) { fill(about, trouble(error)); }
}

function standing(gang, answer, life) {
  const told = answer.scheduling;
  const plan = told.plan ?? {};
  const worth = plan.value ? `${gigabytes(plan.value)} GB/s${plan.ideal ? `, ${Math.round((100 * plan.value) / plan.ideal)}% of the best on an empty node` : ""}` : "";
  const waits = ["Waiting", "Reserved"].includes(answer.state);
  return facts([
    ["state", `${answer.state}: ${answer.message}`],
    ["until", gang.waits && until(gang, Date.now())],
    ["since", waits && told.waitingSince && `${clock(told.waitingSince)} (${lasting((Date.now() - new Date(told.waitingSince)) / 1000)})`],
    ["asks for", asks(gang)],
    ["phase", life?.phase],
    ["attempt", gang.kind === "TrainingJob" && `${answer.attempt}${life?.restarts ? `, after ${plural(life.restarts, "restart")} that count` : ""}${life?.disruptions ? `, ${plural(life.disruptions, "disruption")}` : ""}`],
    ["last restart", life?.lastRestart?.time && `${clock(life.lastRestart.time)}, ${life.lastRestart.reason ?? ""}: ${life.lastRestart.message ?? ""}`],
    ["level", plan.level && place(plan.level)],
    ["value", worth],
    ["pods", `${answer.workers.present} of ${answer.workers.expected} are there, ${answer.workers.bound} bound`],
    ["passed by", told.overtaken ? plural(told.overtaken, "later gang") : ""],
    ["reserved", told.reserved?.map((one) => `${one.gpus} of ${one.node}`).join(", ")],
    ["ends for it", told.victims?.map((one) => (one.name ? `${one.namespace}/${one.name}` : `uid ${one.uid}`)).join(", ")],
    ["asked to end", told.preempt && `${told.preempt.message}, since ${clock(told.preempt.requestedAt)}`],
    ["left out", told.excludedNodes?.map((one) => `${one.node} until ${clock(one.until)}`).join(", ")],
    ["started", life?.startTime && clock(life.startTime)],
    ["ended", life?.completionTime && clock(life.completionTime)],
  ]);
}

function progress(life) {
  const { step, total, loss, samplesPerSecond, eta } = life.progress;
  if (step === undefined) return null;
  const bar = total ? el("progress", { value: step, max: total, "aria-label": "steps done" }) : "";
  return [el("h3", {}, "Progress"), bar, facts([["step", total ? `${step} of ${total} (${Math.round((100 * step) / total)}%)` : String(step)], ["loss", loss], ["samples/s", samplesPerSecond], ["ends about", eta && clock(eta)]])];
}

// Figures as the runtime wrote them. `layers` where the status has any.
function compression(life) {
  const { ratio, peakBytes, plainPeakBytes, overheadPercent, mode, reason, steps, violations, offloadedBytes, raw, layers, active } = life.compression;
  if (ratio === undefined && reason === undefined) return null;
  const kept = Array.isArray(raw) ? raw : Object.entries(raw ?? {}).map(([why, count]) => ({ reason: why, count }));
  return [el("h3", {}, "Compression of activations"), facts([
    ["state", active === false ? reason : mode],
    ["kept", ratio && `${ratio} times less`],
    ["peak memory", peakBytes !== undefined && `${size(peakBytes)}${plainPeakBytes !== undefined ? ` instead of ${size(plainPeakBytes)}` : ""}`],
    ["overhead", overheadPercent !== undefined && `${overheadPercent} %`],
    ["steps", steps !== undefined && String(steps)],
    ["in host memory", offloadedBytes ? size(offloadedBytes) : ""],
    ["bounds broken", violations !== undefined && String(violations)],
  ]), table("By layer", ["layer", "figures"], Object.entries(layers ?? {}).map(([name, one]) => [one?.name ?? name, words(one)])),
  table("Left as they are, by reason", ["reason", "figures"], kept.map((one) => [String(one.reason ?? ""), words(one)]))];
}

const words = (one) => (one !== null && typeof one === "object" ? Object.entries(one).filter(([key]) => !["name", "reason"].includes(key)).map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ") : String(one));

const pods = (answer) => table("Pods", ["pod", "node", "GPUs"], answer.pods.map((one) => [one.name, one.node || "none yet", `${one.gpus.length} of ${one.asks}`]));
const rooms = (answer) => table("Nodes that come nearest", ["node", "free", "takes", "why not"], answer.rooms.map((one) => [one.node, one.free, one.takes, one.message]));
const refused = (answer) => table("Nodes that cannot take its largest worker", ["nodes", "why", "for example"], answer.rejections.map((one) => [one.nodes, one.message, one.examples.join(", ")]));
const moves = (life) => table("What it went through", ["when", "what", "why"], [...life.conditions].sort((a, b) => String(b.lastTransitionTime).localeCompare(String(a.lastTransitionTime)))
  .map((one) => [one.lastTransitionTime ? clock(one.lastTransitionTime) : "", `${one.type} is ${one.status}`, `${one.reason ?? ""}${one.message ? `: ${one.message}` : ""}`]));
