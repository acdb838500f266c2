// A head as the views ask it, and the picture of its map in which one pair after another can be read.

const VISIBLE = 0;
const FUTURE = 1;
// Names that stand upright in a column: Chinese, Japanese, Korean, and single characters, with their number.
const UPRIGHT = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]|^.[₀-₉]*$/u;
const LEAK = 1e-6; // a weight where none may be, which is drawn all the same
const [HIDDEN, NO_KEY] = [32768, 65535]; // of the exact keys: a mark, and none

// Whether number i, which has this code, is a weight where none may be, in one run or in the other.
function isLeak(code, values, i) {
  return code !== VISIBLE && (values.weight[i] > LEAK || values.other?.[i] > LEAK);
}

// Runs, as code, length, code, length, …, or two bits for each code in base64.
function decodeMask(runs, length) {
  const codes = new Uint8Array(length);
  if (typeof runs === "string") {
    const raw = bytes(runs);
    return codes.map((_, i) => (raw[i >> 2] >> (2 * (i & 3))) & 3);
  }
  let place = 0;
  for (let i = 0; i < runs.length; i += 2) {
    codes.fill(runs[i], place, place + runs[i + 1]);
    place += runs[i + 1];
  }
  return codes;
}

function weightsOf(base64) {
  const raw = decodeUint16(base64);
  const weights = new Float64Array(raw.length);
  for (let i = 0; i < raw.length; i++) weights[i] = raw[i] / 65535;
  return weights;
}

function once(make) {
  let made;
  return () => (made ??= make());
}

// The heads of a part. `values` of a head gives arrays by name ("weight", "gradient", "product", "difference", "other");
// of a head that was reduced they have a cell for each block of pairs, and `topOf` alone is exact.
function headsOf(data) {
  const masks = new Map(); // heads that share one decode it once
  const maskAt = (place, length) => {
    const name = `${place} ${length}`;
    if (!masks.has(name)) masks.set(name, once(() => decodeMask(data.masks[place], length)));
    return masks.get(name);
  };
  return data.heads.map((entry) => {
    const queries = data.names[entry.queries];
    const keys = data.names[entry.keys];
    const [T, S] = [queries.length, keys.length];
    const whole = !entry.pooled;
    const codes = whole ? maskAt(entry.mask, T * S) : null;
    const source = entry.pooled ?? entry;
    const block = (names, n) => (n === 1 ? names : names.filter((_, i) => i % n === 0).map((name) => `${name} …`));
    const [down, across] = whole ? [1, 1] : source.blocks;
    const [height, width] = [Math.ceil(T / down), Math.ceil(S / across)];
    const values = once(() => valuesOf(source));
    const exact = once(() => ({ keys: decodeUint16(entry.top.keys), values: valuesOf(entry.top) }));
    const counts = once(() => decodeUint16(data.masks[entry.visible]));
    const visible = (q) => (whole ? codes().subarray(q * S, (q + 1) * S).reduce((n, code) => n + (code === VISIBLE), 0) : counts()[q]);
    const cells = maskAt(source.mask, height * width);
    const nExact = () => exact().keys.length / T;
    const greatest = {};
    return {
      ...entry,
      name: `layer ${entry.layer} head ${entry.head}`,
      queries, keys, T, S, whole, down, across, height, width, codes, values, visible, nExact,
      // The largest size of a value of this name.
      most: (name) => (greatest[name] ??= values()[name].reduce((most, value) => Math.max(most, Math.abs(value)), 0)),
      cells,
      leaks: (i) => isLeak(cells()[i], values(), i), // of cell i
      rows: block(queries, down),
      columns: block(keys, across),
      // The keys of row q with the largest values of this name, as {k, leaks, value of each name}.
      topOf: (q, name, n = 8) => {
        const all = whole ? values() : exact().values;
        const wide = whole ? S : nExact();
        const found = [];
        for (let i = 0; i < wide; i++) {
          const at = q * wide + i;
          if (whole) {
            const leaks = isLeak(codes()[at], all, at);
            if (codes()[at] === VISIBLE || leaks) found.push({ k: i, at, leaks });
          } else if (exact().keys[at] !== NO_KEY) {
            const leaks = exact().keys[at] >= HIDDEN;
            found.push({ k: exact().keys[at] - (leaks ? HIDDEN : 0), at, leaks });
          }
        }
        found.sort((a, b) => Math.abs(all[name][b.at]) - Math.abs(all[name][a.at]) || a.k - b.k);
        return found.slice(0, n).map(({ k, at, leaks }) => ({ k, leaks, ...Object.fromEntries(Object.entries(all).map(([x, of]) => [x, of[at]])) }));
      },
    };
  });
}

function valuesOf(source) {
  const values = { weight: weightsOf(source.weights) };
  if (source.gradient) {
    for (const name of ["gradient", "product"]) {
      values[name] = Float64Array.from(decodeFloat32(source[name]), (value) => value * source.unit);
    }
  }
  if (source.difference) {
    values.difference = decodeFloat32(source.difference);
    values.other = values.weight.map((weight, i) => weight + values.difference[i]);
  }
  return values;
}

// A key that topOf found, and whether it is one that may not be seen.
function keyOf(head, { k, leaks }) {
  return head.keys[k] + (leaks ? " (hidden!)" : "");
}

// What is exact in a row of a reduced head: "the 8 largest weights are".
function exactOf(head, what) {
  return head.nExact() === 1 ? `the largest ${what} is` : `the ${head.nExact()} largest ${what}s are`;
}

// The head at which the page is to be opened, if there is one.
function opened({ opened: at }, heads) {
  return at && heads.find((head) => head.kind === at.kind && head.layer === at.layer && head.head === at.head);
}

// The sentence of AttentionMap.sentence, of the weights named `name`.
function sentenceOf(head, q, k, name = "weight") {
  const { S } = head;
  const codes = head.codes();
  const weights = head.values()[name];
  const weight = weights[q * S + k];
  const start = `${head.name} · ${head.queries[q]} → ${head.keys[k]} = ${decimals(weight)}`;
  if (codes[q * S + k] !== VISIBLE) {
    return `${start} (hidden: ${codes[q * S + k] === FUTURE ? "after the query" : "padding or outside the window"})`;
  }
  let [rank, n] = [1, 0];
  for (let i = q * S; i < (q + 1) * S; i++) {
    if (codes[i] !== VISIBLE) continue;
    n += 1;
    rank += weights[i] > weight;
  }
  return `${start} (rank ${rank} of ${n}, uniform ${decimals(1 / n)})`;
}

function span(names, i, block) {
  const last = Math.min(names.length, (i + 1) * block) - 1;
  return block === 1 ? names[i] : `${names[i * block]} … ${names[last]}`;
}

// What one cell of a reduced head says.
function blockSentence(head, i, j, name, format) {
  const place = `${span(head.queries, i, head.down)} → ${span(head.keys, j, head.across)}`;
  const code = head.cells()[i * head.width + j];
  const mean = `mean ${format(head.values()[name][i * head.width + j])}`;
  const hidden = code === FUTURE ? "hidden: after the query" : "hidden: padding or outside the window";
  const leak = head.leaks(i * head.width + j) ? `, ${mean} where there is weight all the same` : "";
  return `${head.name} · ${place} · ${code === VISIBLE ? mean : hidden + leak}`;
}

// A sentence about cell (i, j), with its tokens isolated: two that run from right to left would swap their places otherwise.
function shownSentence(text, head, i, j) {
  const [query, key] = [span(head.queries, i, head.down), span(head.keys, j, head.across)];
  const at = text.indexOf(`${query} → ${key}`);
  return [text.slice(0, at), isolated(query), " → ", isolated(key), text.slice(at + query.length + 3 + key.length)];
}

// What is read of a head beside its map: the sentence of the pair in view and of the one that is pinned, and which row it is.
function reading(section, head, sentence) {
  const live = element("p", { class: "sentence", "aria-live": "polite" });
  const pinned = element("p", { class: "pinned", hidden: true });
  const slider = element("input", { type: "range", min: 0, max: Math.max(0, head.T - 1), step: 1, value: 0, id: `${section.id}-row` });
  const row = element("output", { for: slider.id });
  return {
    sentences: element("div", { class: "said-of-pair" }, live, pinned),
    rows: head.T && head.S ? element("div", { class: "slider" }, element("label", { for: slider.id }, "row"), slider, row) : null,
    say(q, k) {
      const i = Math.floor(q / head.down);
      live.replaceChildren(...shownSentence(sentence(i, k), head, i, k));
    },
    pin(i, j) {
      pinned.replaceChildren(element("b", {}, "pinned "), ...shownSentence(sentence(i, j), head, i, j), element("span", { class: "hint" }, " Escape lets go"));
      pinned.hidden = false;
    },
    unpin() {
      pinned.hidden = true;
    },
    showRow(q) {
      slider.value = q;
      row.replaceChildren(`${q + 1} of ${head.T}, `, isolated(head.queries[q] ?? ""));
      slider.setAttribute("aria-valuetext", `${q + 1} of ${head.T}, ${head.queries[q]}`);
    },
    onrow: (choose) => slider.addEventListener("input", () => choose(Number(slider.value))),
  };
}

// ---- colours of values: the scale is {colour(value), ticks, note}

const SHADES = Array.from({ length: 1025 }, (_, i) => cividis(i / 1024));

const weightScale = {
  colour: (weight) => SHADES[Math.round(Math.sqrt(Math.max(0, Math.min(1, weight))) * 1024)],
  place: (weight) => Math.sqrt(weight),
  ticks: [0, 0.05, 0.25, 1],
  format: (weight) => String(weight),
  signed: false,
  note: "weight; the colour follows its square root, the same in all heads",
};

// One scale for values from −most to +most.
function signedScale(most, note) {
  const end = most || 1;
  return {
    colour: (value) => diverging(value / end),
    place: (value) => (value / end + 1) / 2,
    ticks: [-end, 0, end],
    format: (value) => signedNumber(value, end),
    signed: true,
    note,
  };
}

// Four decimals, or four digits where the largest of such values would show few of them, or too many.
function signedNumber(value, most) {
  if ((most >= 0.01 && most < 1e6) || value === 0) return signed(value);
  return (value > 0 ? "+" : "−") + Math.abs(value).toExponential(3).replace("-", "−").replace("e+", "e");
}

function legend(scale, hidden) {
  const bar = element("canvas", { class: "bar", width: 256, height: 1, "aria-hidden": "true" });
  const pen = bar.getContext("2d");
  for (let x = 0; x < 256; x++) {
    const t = x / 255;
    const [red, green, blue] = scale.signed ? diverging(2 * t - 1) : cividis(t);
    pen.fillStyle = `rgb(${red} ${green} ${blue})`;
    pen.fillRect(x, 0, 1, 1);
  }
  const ticks = scale.ticks.map((value) => {
    const tick = element("span", {}, scale.format(value));
    tick.style.left = `${100 * scale.place(value)}%`;
    return tick;
  });
  const keys = [
    hidden.future && element("span", { class: "key" }, element("i", { class: "swatch future" }), "after the query: hidden"),
    hidden.padding && element("span", { class: "key" }, element("i", { class: "swatch padding" }), "padding or outside the window: hidden"),
    hidden.leak && element("span", { class: "key" }, element("i", { class: "swatch leak" }), "a small square: weight where none may be"),
  ].filter(Boolean);
  return element("figcaption", { class: "legend" },
    element("span", { class: "scale" }, bar, element("span", { class: "ticks" }, ticks)),
    element("span", { class: "note" }, scale.note), keys);
}

function hiddenIn(head) {
  const codes = head.cells();
  return { future: codes.includes(FUTURE), padding: codes.some((code) => code > FUTURE), leak: codes.some((_, i) => head.leaks(i)) };
}

// ---- pictures with a pixel for each pair; the hatching behind them shows through where a pixel is clear

function pixels(width, height, values, cells, leaks, scale) {
  const canvas = element("canvas", { width, height, "aria-hidden": "true" });
  if (!width || !height) return canvas;
  const image = new ImageData(width, height);
  const grey = darkness.matches ? [71, 70, 74] : [212, 208, 200];
  for (let i = 0; i < cells.length; i++) {
    const seen = cells[i] === VISIBLE || leaks(i);
    if (cells[i] === FUTURE && !seen) continue;
    const [red, green, blue] = seen ? scale.colour(values[i]) : grey;
    image.data[4 * i] = red;
    image.data[4 * i + 1] = green;
    image.data[4 * i + 2] = blue;
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function thumbnail(head, name, scale) {
  const canvas = pixels(head.width, head.height, head.values()[name], head.cells(), head.leaks, scale);
  canvas.className = Math.max(head.width, head.height) > 80 ? "thumbnail fine" : "thumbnail";
  canvas.style.aspectRatio = String(Math.max(1 / 2, Math.min(4, head.width / head.height || 1)));
  return canvas;
}

// ---- the map: a canvas, names along two sides, and one cell that moves over it and can be focused

// spec: label, rows and columns (names), cells() (codes), leaks(number of a cell), values() (numbers), scale,
// sentence(i, j), narrow (a third of the width), and what is told: onmove(i, j), onpin(i, j), onunpin().
function heatMap(spec) {
  const [height, width] = [spec.rows.length, spec.columns.length];
  const canvas = element("canvas", { "aria-hidden": "true" });
  const cell = element("div", { role: "gridcell", tabindex: "0", class: "cell" });
  const band = element("div", { class: "band", "aria-hidden": "true" });
  const mark = element("div", { class: "mark", "aria-hidden": "true", hidden: true });
  const grid = element("div", { role: "grid", class: "grid", "aria-label": spec.label, "aria-rowcount": height, "aria-colcount": width },
    canvas, band, mark, element("div", { role: "row" }, cell));
  const rowNames = element("div", { class: "row-names", "aria-hidden": "true" });
  const columnNames = element("div", { class: "column-names", "aria-hidden": "true" });
  const box = element("div", { class: "map" },
    element("div", { class: "corner", "aria-hidden": "true" }, element("span", {}, "query ↓"), " ", element("span", {}, "key →")), columnNames, rowNames, grid);
  let [row, column, size, drawnIn] = [0, 0, 20, 0]; // drawnIn: a width, in pixels
  let pin = null;

  function draw() {
    if (!box.isConnected || !height || !width) return;
    drawnIn = box.clientWidth;
    const em = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    if (!rowNames.hasChildNodes()) names(rowNames, spec.rows, "height");
    const room = box.clientWidth - rowNames.offsetWidth - 8 * em;
    const least = width > 96 || height > 96 ? 5 : spec.narrow ? 11 : 15;
    size = Math.max(least * em, Math.min((spec.narrow ? 26 : 34) * em, Math.floor(room / width), Math.floor((640 * em) / height)));
    const ratio = Math.min(window.devicePixelRatio || 1, 4096 / (Math.max(width, height) * size));
    canvas.width = Math.max(1, Math.round(width * size * ratio));
    canvas.height = Math.max(1, Math.round(height * size * ratio));
    box.style.setProperty("--side", `${size}px`);
    canvas.style.width = grid.style.width = `${width * size}px`;
    canvas.style.height = grid.style.height = `${height * size}px`;
    paint(canvas.getContext("2d"), size * ratio);
    names(rowNames, spec.rows, "height");
    names(columnNames, spec.columns, "width");
    place();
  }

  function paint(pen, side) {
    const values = spec.values();
    const cells = spec.cells();
    if (side < 10) {
      pen.imageSmoothingEnabled = false;
      pen.drawImage(pixels(width, height, values, cells, spec.leaks, spec.scale), 0, 0, canvas.width, canvas.height);
      return;
    }
    const style = getComputedStyle(box);
    const fill = (colour, left, top, wide, high) => {
      pen.fillStyle = colour;
      pen.fillRect(left, top, wide, high);
    };
    const least = 0.02 * spec.scale.ticks.at(-1);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.font = `${Math.round(side * 0.55)}px sans-serif`;
    for (let i = 0; i < height; i++) {
      for (let j = 0; j < width; j++) {
        const [code, value] = [cells[i * width + j], values[i * width + j]];
        const rgb = spec.scale.colour(value);
        const [left, top] = [Math.round(j * side), Math.round(i * side)];
        const [wide, high] = [Math.round((j + 1) * side) - left, Math.round((i + 1) * side) - top];
        if (code !== FUTURE) { // which stays clear, so that the hatching shows
          fill(style.getPropertyValue("--ground"), left, top, wide, high);
          fill(code === VISIBLE ? `rgb(${rgb})` : style.getPropertyValue("--padding"), left, top, wide - 1, high - 1);
        }
        if (spec.leaks(i * width + j)) {
          fill(`rgb(${rgb})`, left + wide / 4, top + high / 4, wide / 2, high / 2);
        }
        if (spec.scale.signed && code === VISIBLE && Math.abs(value) >= least) {
          pen.fillStyle = inkOn(rgb);
          pen.fillText(value > 0 ? "+" : "−", (j + 0.5) * side, (i + 0.5) * side);
        }
      }
    }
  }

  function names(node, all, dimension) {
    const em = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const step = Math.ceil((10.5 * em) / size); // names that stand too close for their letters are left to the sentence
    node.replaceChildren(...all.flatMap((name, i) => {
      if (i % step) return [];
      const label = element("span", { title: name, class: UPRIGHT.test(name) ? "upright-name" : "" }, isolated(name));
      label.style[dimension] = `${size * Math.min(step, all.length - i)}px`;
      return [label];
    }));
  }

  function place() {
    cell.style.width = cell.style.height = `${size}px`;
    cell.style.left = `${column * size}px`;
    cell.style.top = `${row * size}px`;
    band.style.height = `${size}px`;
    band.style.top = `${row * size}px`;
    mark.hidden = !pin;
    mark.style.width = mark.style.height = `${size}px`;
    if (pin) [mark.style.top, mark.style.left] = pin.map((at) => `${at * size}px`);
    cell.setAttribute("aria-rowindex", row + 1);
    cell.setAttribute("aria-colindex", column + 1);
    cell.setAttribute("aria-label", spec.sentence(row, column));
  }

  function move(i, j, { tell = true, scroll = false } = {}) {
    row = Math.max(0, Math.min(height - 1, i));
    column = Math.max(0, Math.min(width - 1, j));
    place();
    if (scroll) reveal();
    if (tell) spec.onmove?.(row, column);
  }

  // Names stick to the edges of the box: the browser's own scrolling would leave a cell behind them.
  function reveal() {
    const [left, top] = [column * size, row * size];
    const [wide, high] = [box.clientWidth - rowNames.offsetWidth, box.clientHeight - columnNames.offsetHeight];
    if (left < box.scrollLeft) box.scrollLeft = left;
    else if (left + size > box.scrollLeft + wide) box.scrollLeft = left + size - wide;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + size > box.scrollTop + high) box.scrollTop = top + size - high;
  }

  function under(event) {
    const edge = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - edge.top) / size), Math.floor((event.clientX - edge.left) / size)];
  }

  function setPin(at) {
    pin = at;
    place();
    if (pin) spec.onpin?.(row, column);
    else spec.onunpin?.();
  }

  const keys = {
    ArrowLeft: () => [row, column - 1],
    ArrowRight: () => [row, column + 1],
    ArrowUp: () => [row - 1, column],
    ArrowDown: () => [row + 1, column],
    Home: (event) => (event.ctrlKey ? [0, 0] : [row, 0]),
    End: (event) => (event.ctrlKey ? [height - 1, width - 1] : [row, width - 1]),
  };

  grid.addEventListener("keydown", (event) => {
    if (event.altKey || event.metaKey) return;
    if (event.key in keys) move(...keys[event.key](event), { scroll: true });
    else if (event.key === "Enter" || event.key === " ") setPin([row, column]);
    else if (event.key === "Escape" && pin) {
      setPin(null);
      event.stopPropagation();
    } else return;
    event.preventDefault();
  });
  cell.addEventListener("focus", () => { reveal(); spec.onmove?.(row, column); });
  grid.addEventListener("pointermove", (event) => {
    const [i, j] = under(event);
    if (i !== row || j !== column) move(i, j);
  });
  grid.addEventListener("click", (event) => {
    move(...under(event));
    cell.focus({ preventScroll: true });
    setPin([row, column]);
  });

  if (height && width) {
    new ResizeObserver(() => requestAnimationFrame(() => { if (box.clientWidth !== drawnIn) draw(); })).observe(box);
  } else box.replaceChildren(element("p", {}, "There are no pairs in this map."));
  return {
    node: box,
    move,
    pinned: () => Boolean(pin),
    unpin: () => setPin(null),
    focus: () => cell.focus(),
    redraw: draw,
  };
}
