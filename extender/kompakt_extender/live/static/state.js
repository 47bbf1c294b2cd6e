// What the page knows of the cluster, and what an event changed of it.
const HOUR = 360;

export class Cluster {
  constructor() {
    this.forget();
    this.ended = [];
  }

  forget() {
    this.nodes = new Map();
    this.gangs = new Map();
    this.machines = new Map();
    this.history = [];
    this.counts = null;
    this.more = 0;
  }

  // Answers the changed nodes by name, and gangs as [before, after].
  apply(kind, told) {
    const before = this.gangs;
    if (kind === "all") this.forget();
    for (const [number, machine] of Object.entries(told.machines)) this.machines.set(Number(number), machine);
    for (const name of told.goneNodes) this.nodes.delete(name);
    const changes = told.goneGangs.map((key) => this.drop(key));
    for (const node of told.nodes) this.nodes.set(node.name, node);
    for (const gang of told.gangs) changes.push(this.set(gang, before.get(gang.key)));
    this.history = [...this.history, ...told.history].slice(-HOUR);
    this.counts = told.counts;
    if (kind === "all") this.more = told.moreGangs;
    return { nodes: [...told.nodes.map((node) => node.name), ...told.goneNodes], gangs: changes };
  }

  drop(key) {
    const gone = this.gangs.get(key);
    this.gangs.delete(key);
    return [gone, null];
  }

  set(gang, before) {
    if (["Complete", "Failed"].includes(gang.state)) {
      this.gangs.delete(gang.key);
      this.ended = [gang, ...this.ended.filter((one) => one.key !== gang.key)].slice(0, 50);
    } else if (gang.state === "Suspended") this.gangs.delete(gang.key);
    else this.gangs.set(gang.key, gang);
    return [before, gang];
  }

  // Those that wait, the longest first; then by name.
  waiting() {
    const order = (a, b) => (a.since || "9").localeCompare(b.since || "9") || a.key.localeCompare(b.key);
    return [...this.gangs.values()].filter((gang) => gang.waits).sort(order);
  }

  running() {
    return [...this.gangs.values()].filter((gang) => !gang.waits).sort((a, b) => b.gpus - a.gpus || a.key.localeCompare(b.key));
  }
}
