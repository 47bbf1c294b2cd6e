// Elements are made here and nowhere else. Texts of the cluster become text nodes and never markup.
const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") made.addEventListener("click", value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A list of terms; those without a value are left out.
export function facts(pairs, name = "facts") {
  const told = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return el("dl", { class: name }, told.flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));
}

export function table(caption, heads, rows) {
  if (!rows.length) return null;
  const cell = (tag, value) => el(tag, typeof value === "number" ? { class: "number" } : {}, typeof value === "number" ? String(value) : value);
  const body = rows.map((row) => el("tr", {}, row.map((value) => cell("td", value))));
  const head = el("tr", {}, heads.map((word) => el("th", { scope: "col" }, word)));
  return el("div", { class: "wide" }, el("h3", {}, caption), el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}
