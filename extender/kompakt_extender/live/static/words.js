// How numbers and moments read.
export const gigabytes = (value) => (value / 1000).toFixed(1);
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
export const bits = (mask) => {
  const found = [];
  for (let rest = BigInt(mask), index = 0; rest > 0n; rest >>= 1n, index += 1) if (rest & 1n) found.push(index);
  return found;
};

// 0-3, 5: as the command line writes them.
export function ranges(indices) {
  const parts = [];
  for (const index of indices) {
    const last = parts[parts.length - 1];
    if (last && last[1] === index - 1) last[1] = index;
    else parts.push([index, index]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a},${b}` : `${a}-${b}`)).join(",");
}

export function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const clock = (moment) => {
  const at = new Date(moment);
  if (Number.isNaN(at.getTime())) return String(moment);
  const time = at.toLocaleTimeString([], { hourCycle: "h23" });
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
};

export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

export const size = (bytes) => (bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${(bytes / 1e6).toFixed(bytes >= 1e7 ? 0 : 2)} MB`);

const PLACES = { Machine: "one machine", Rack: "one rack", Block: "one block", Cluster: "the whole cluster" };
export const place = (level) => PLACES[level] ?? level;

export const asks = (gang) => {
  const each = gang.workers > 1 && gang.gpus % gang.workers === 0 ? `, ${gang.workers} pods of ${gang.gpus / gang.workers}` : "";
  const pattern = gang.pattern && gang.pattern !== "None" ? `, pattern ${gang.pattern}` : "";
  return gang.gpus ? `${plural(gang.gpus, "GPU")}${each}${pattern}` : plural(gang.workers, "pod");
};

// Until when a gang waits: by a clock where it does, else by what.
export function until(gang, now, free) {
  if (gang.until) {
    const left = new Date(gang.until) - now;
    const then = gang.state === "Reserved" ? "then its reservation ends" : `then it takes any room, not only ${place(gang.waitsFor)}`;
    const zone = new Date().getTimezoneOffset() ? " local time" : ""; // the planner's sentence has UTC
    return `${clock(gang.until)}${zone} (${left > 0 ? `in ${lasting(left / 1000)}` : "now"}); ${then}`;
  }
  if (gang.state === "WaitingForQuota") return "its queue admits it; no time limit";
  if (gang.reason === "NeverFits") return "somebody changes it or adds nodes: even the empty cluster could not take it";
  if (gang.reason === "CreatingPods") return "its pods exist; its places are kept";
  if (gang.reason === "GangIncomplete") return "the rest of its pods exist; no time limit";
  if (gang.waitsFor) return `${place(gang.waitsFor)} has room; no time limit`;
  if (gang.state === "Reserved") return "the GPUs reserved for it are free; no time limit";
  const lack = free !== undefined && free < gang.gpus ? `: it asks for ${gang.gpus}, ${free} are free` : "";
  return `GPUs are free for all its pods at once${lack}; no time limit`;
}
