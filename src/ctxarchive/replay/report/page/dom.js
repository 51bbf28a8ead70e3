// Elements, numbers and times. Text enters the page as text nodes only; no markup is ever parsed.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, values, children) {
  for (const [name, value] of Object.entries(values || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const el = (tag, values, ...children) => fill(document.createElement(tag), values, children);
const svg = (tag, values, ...children) => fill(document.createElementNS(SVG, tag), values, children);
const byId = (id) => document.getElementById(id);
const button = (values, ...children) => el("button", { type: "button", ...values }, ...children);

const whole = new Intl.NumberFormat("en-US");
const number = (value) => whole.format(value);
const counted = (value, one, many) => `${number(value)} ${value === 1 ? one : many || `${one}s`}`;
const rough = (value) => (value >= 10000 ? `${number(Math.round(value / 1000))}k` : value >= 1000 ? `${Math.round(value / 100) / 10}k` : String(value));
const share = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "0 %");

function when(time, parts) {
  if (time === null || time === undefined) return "";
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "";
  const format = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...(parts || { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" }) });
  return format.format(date);
}

const clock = (time) => when(time, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function lasted(milliseconds) {
  const minutes = Math.round(milliseconds / 60000);
  if (minutes < 1) return `${Math.max(1, Math.round(milliseconds / 1000))} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

const codePoints = (text) => (SURROGATE.test(text) ? Array.from(text).length : text.length);
const took = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

function tell(text) {
  byId("told").textContent = text;
}

async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied");
    const before = from.textContent;
    from.textContent = "Copied";
    setTimeout(() => { from.textContent = before; }, 1200);
  } catch {
    tell("This browser does not let a file copy; select the text instead");
  }
}

// Arrow keys, Home and End move the focus within a list; only one of its items is a tab stop.
function roving(list, selector, { across = false, chosen = null } = {}) {
  const items = () => [...list.querySelectorAll(selector)];
  const stop = (item) => items().forEach((other) => { other.tabIndex = other === item ? 0 : -1; });
  stop(chosen || items()[0]);
  list.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (item) stop(item);
  });
  list.addEventListener("keydown", (event) => {
    const all = items();
    const place = all.indexOf(event.target.closest(selector));
    if (place < 0) return;
    const forward = across ? ["ArrowRight", "ArrowDown"] : ["ArrowDown"];
    const back = across ? ["ArrowLeft", "ArrowUp"] : ["ArrowUp"];
    let next = null;
    if (forward.includes(event.key)) next = Math.min(place + 1, all.length - 1);
    else if (back.includes(event.key)) next = place - 1;
    else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = all.length - 1;
    if (next === null || next < 0) return;
    event.preventDefault();
    all[next].focus();
  });
}
