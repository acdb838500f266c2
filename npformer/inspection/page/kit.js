// What all views share. A view is a function (section, data) => node or array of nodes, registered by name. `start` calls
// it for each part of the page and puts what it returns in the place of the static HTML, which stays where a view fails.
// The names of this file are seen by all others; those of a view's own file are seen there alone.

const views = new Map();

function register(name, view) {
  views.set(name, view);
}

function start() {
  for (const section of document.querySelectorAll("section[data-script]")) {
    const view = views.get(section.dataset.script);
    const data = document.getElementById(section.id.replace("part", "data"));
    if (!view || !data) continue;
    try {
      section.replaceChildren(...[view(section, JSON.parse(data.textContent))].flat());
      section.dispatchEvent(new CustomEvent("drawn"));
    } catch (error) {
      console.error(error);
    }
  }
}

// ---- elements

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// element("button", {class: "quiet", onclick: () => …}, "text", otherElement)
function element(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// A token or any other text that may run from right to left.
function isolated(text, attributes) {
  return element("bdi", attributes, text);
}

// `head` texts, `rows` arrays of texts or nodes; the first of a row is its header.
function table(caption, head, rows) {
  return element("div", { class: "wide" },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, head.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, rows.map(([first, ...rest]) =>
        element("tr", {}, element("th", { scope: "row" }, isolated(first)), rest.map((cell) => element("td", {}, isolated(cell))))))));
}

// A select with its label; `options` are [value, text].
function choice(label, options, onchange) {
  const select = element("select", { onchange: () => onchange(select.value) },
    options.map(([value, text]) => element("option", { value }, text)));
  return element("label", { class: "choice" }, element("span", {}, label), select);
}

// ---- numbers

function decimals(x, digits = 4) {
  const size = Math.abs(x);
  const scaled = size * 10 ** digits;
  const tie = scaled % 1 === 0.5 && scaled % 2 < 1 && Number.isInteger(size * 2 ** 20); // to even, as Python does: 1/32 is 0.0312
  const text = tie ? (Math.floor(scaled) / 10 ** digits).toFixed(digits) : size.toFixed(digits);
  return x < 0 && Number(text) !== 0 ? "−" + text : text;
}

function signed(x, digits = 4) {
  const text = decimals(x, digits);
  return Number(text) > 0 ? "+" + text : text;
}

// A number that may not be there, and that is not 0 unless it says so.
function numberOf(value) {
  if (value === null || value === undefined) return "–";
  return value !== 0 && Math.abs(value) < 5e-4 ? value.toExponential(3).replaceAll("-", "−") : decimals(value);
}

function bytes(base64) {
  const text = atob(base64);
  const raw = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) raw[i] = text.charCodeAt(i);
  return raw;
}

const littleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

function decodeUint16(base64) {
  const raw = bytes(base64);
  if (littleEndian) return new Uint16Array(raw.buffer);
  const view = new DataView(raw.buffer);
  return Uint16Array.from({ length: raw.length / 2 }, (_, i) => view.getUint16(2 * i, true));
}

function decodeFloat32(base64) {
  const raw = bytes(base64);
  if (littleEndian) return new Float32Array(raw.buffer);
  const view = new DataView(raw.buffer);
  return Float32Array.from({ length: raw.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

// ---- colours, as [red, green, blue]

const darkness = window.matchMedia("(prefers-color-scheme: dark)");

// Cividis, made for eyes with and without colour blindness: Nuñez, Anderton and Renslow 2018, as a polynomial.
function cividis(t) {
  const u = Math.max(0, Math.min(1, t));
  return [
    -4.54 - u * (35.34 - u * (2381.73 - u * (6402.7 - u * (7024.72 - u * 2710.57)))),
    32.49 + u * (170.73 + u * (52.82 - u * (131.46 - u * (176.58 - u * 67.37)))),
    81.24 + u * (442.36 - u * (2482.43 - u * (6167.24 - u * (6614.94 - u * 2475.67)))),
  ].map((c) => Math.max(0, Math.min(255, Math.round(c))));
}

// t in −1 … 1: purple below zero, orange above, the page's own ground at zero.
const DIVERGING = {
  light: [[61, 16, 110], [128, 115, 172], [247, 246, 243], [224, 130, 20], [122, 55, 5]],
  dark: [[205, 190, 250], [128, 105, 190], [38, 37, 41], [200, 105, 15], [255, 203, 128]],
};

function diverging(t) {
  const anchors = DIVERGING[darkness.matches ? "dark" : "light"];
  const place = (Math.max(-1, Math.min(1, t)) + 1) * 2;
  const i = Math.min(3, Math.floor(place));
  return anchors[i].map((c, j) => Math.round(c + (anchors[i + 1][j] - c) * (place - i)));
}

function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111" : "#fff";
}

// ---- copying

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus();
    return done;
  }
}

// Buttons that copy: copyButtons({text: () => …, CSV: () => …, JSON: () => …})
function copyButtons(makers) {
  const said = element("span", { class: "said", role: "status" });
  const buttons = Object.entries(makers).map(([name, make]) =>
    element("button", {
      type: "button",
      onclick: async () => { said.textContent = (await copy(make())) ? `copied as ${name}` : "this browser does not let a page copy"; },
    }, `copy as ${name}`));
  return element("span", { class: "buttons" }, buttons, said);
}

function csv(rows) {
  return rows.map((row) => row.map((cell) => {
    const text = String(cell);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";
}

// A button that puts the table that `make` gives into `place`, and takes it away again, as `close` does.
function tableButton(make) {
  const place = element("div");
  const set = (open) => {
    place.replaceChildren(...(open ? [make()] : []));
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "hide the table" : "show as a table";
  };
  const button = element("button", { type: "button", onclick: () => set(!place.hasChildNodes()) });
  set(false);
  return { button, place, close: () => set(false) };
}
