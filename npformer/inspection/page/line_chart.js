// Lines over steps. The pictures are those of the static page; here a point of a line is chosen, by the pointer or by keys,
// read in one sentence, and marked in each of them.

const PER_PAGE = 10; // Page Up and Page Down go a tenth of a line

function number(value) {
  const size = Math.abs(value);
  const text = Number.isInteger(value) && size < 1e9 ? String(value)
    : size >= 0.1 && size < 1e6 ? value.toFixed(4)
    : value.toExponential(3).replace("e+", "e");
  return text.replaceAll("-", "−");
}

// The index of the point whose x is nearest.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

// One of the pictures, by the numbers that its axes have in pixels.
function picture(node, log) {
  const [left, top, width, height] = node.dataset.frame.split(" ").map(Number);
  const scaled = log ? Math.log10 : (value) => value;
  const [low, high] = node.dataset.x.split(" ").map(Number);
  const [bottom, up] = node.dataset.y.split(" ").map(Number).map(scaled);
  const mark = (kind) => {
    const rule = svg("path", { class: "chart-rule" }), dot = svg("circle", { class: kind, r: 4.5 });
    const group = svg("g", { display: "none" }, rule, dot);
    node.append(group);
    return (point) => {
      if (!point) return group.setAttribute("display", "none");
      const [x, y] = at(...point);
      group.setAttribute("display", "inline");
      rule.setAttribute("d", `M${x} ${top}V${top + height}`);
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", y ?? top + height);
    };
  };
  const at = (x, y) => [
    left + (x - low) / (high - low) * width,
    y === null ? null : top + height - (scaled(y) - bottom) / (up - bottom) * height,
  ];
  // Where the pointer is, as [x in the data, y in pixels of the picture]; nothing where the picture is not shown.
  const pointed = (event) => {
    const box = node.getBoundingClientRect();
    if (!box.width) return null;
    const scale = node.viewBox.baseVal.width / box.width;
    return [low + ((event.clientX - box.left) * scale - left) / width * (high - low), (event.clientY - box.top) * scale];
  };
  return { at, pointed, chosen: mark("chart-chosen"), pinned: mark("chart-pinned") };
}

register("line_chart", (section, data) => {
  const { lines } = data;
  const chart = section.querySelector(".chart");
  const children = [...section.children];
  const [before, after] = [children.slice(0, children.indexOf(chart)), children.slice(children.indexOf(chart) + 1)];
  const pictures = [...chart.children].map((node) => picture(node, data.log));
  const order = lines.map((_, i) => i).sort((a, b) => last(lines[b].y) - last(lines[a].y)); // as the labels stand
  let line = order[0], i = 0;

  const reading = element("output", { class: "chart-reading", "aria-live": "off" }, "Point at a line, or go along it with the arrow keys.");
  const pinned = element("output", { class: "chart-reading" });

  const restOf = (line, i) => {
    const value = lines[line].y[i];
    return ` · ${data.x} ${number(lines[line].x[i])} · ${data.y} ${value === null ? "cannot be drawn" : number(value)}`;
  };
  const sentence = (line, i) => [isolated(lines[line].name), restOf(line, i)];

  function choose(newLine, newIndex) {
    line = newLine;
    i = Math.max(0, Math.min(lines[line].x.length - 1, newIndex));
    reading.replaceChildren(...sentence(line, i));
    for (const picture of pictures) picture.chosen([lines[line].x[i], lines[line].y[i]]);
    chart.setAttribute("aria-valuemax", lines[line].x.length - 1);
    chart.setAttribute("aria-valuenow", i);
    chart.setAttribute("aria-valuetext", lines[line].name + restOf(line, i));
  }

  function pin() {
    pinned.replaceChildren("pinned: ", ...sentence(line, i));
    for (const picture of pictures) picture.pinned([lines[line].x[i], lines[line].y[i]]);
  }

  function unpin() {
    pinned.replaceChildren();
    for (const picture of pictures) picture.pinned(null);
  }

  function pointAt(event) {
    for (const { at, pointed } of pictures) {
      const place = pointed(event);
      if (!place) continue;
      const candidates = order.map((line) => {
        const i = nearest(lines[line].x, place[0]);
        const [, y] = at(lines[line].x[i], lines[line].y[i]);
        return { line, i, distance: y === null ? Infinity : Math.abs(y - place[1]) };
      });
      const best = candidates.reduce((a, b) => (b.distance < a.distance ? b : a));
      choose(best.line, best.i);
    }
  }

  const next = (step) => {
    const other = order[Math.max(0, Math.min(order.length - 1, order.indexOf(line) + step))];
    choose(other, nearest(lines[other].x, lines[line].x[i]));
  };
  const page = () => Math.max(1, Math.round(lines[line].x.length / PER_PAGE));
  const keys = {
    ArrowLeft: () => choose(line, i - 1),
    ArrowRight: () => choose(line, i + 1),
    ArrowUp: () => next(-1),
    ArrowDown: () => next(1),
    PageUp: () => choose(line, i + page()),
    PageDown: () => choose(line, i - page()),
    Home: () => choose(line, 0),
    End: () => choose(line, lines[line].x.length - 1),
    Enter: pin,
    Escape: unpin,
  };

  filled(chart, {
    tabindex: 0,
    role: "slider",
    "aria-label": `${data.title}: the points of each line`,
    "aria-description": "left and right go along a line, up and down to another line, Enter pins the point, Escape lets go",
    "aria-valuemin": 0,
    onfocus: () => choose(line, i),
    onpointermove: pointAt,
    onclick: (event) => { pointAt(event); pin(); },
    onkeydown: (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    },
  }, []);

  const rows = () => lines.flatMap(({ name, x, y }) => x.map((value, i) => [name, value, y[i] ?? ""]));
  const listed = tableButton(() => table(`${data.y} over ${data.x}`, ["line", data.x, data.y],
    lines.flatMap(({ name, x, y }) => x.map((value, i) => [name, number(value), y[i] === null ? "" : number(y[i])]))));
  const copies = copyButtons({
    CSV: () => csv([["line", data.x, data.y], ...rows()]),
    JSON: () => JSON.stringify(data),
  });
  const buttons = element("div", { class: "buttons" }, copies, listed.button);
  return [...before, chart, reading, pinned, buttons, listed.place, ...after];
});

function last(values) {
  return values.findLast((value) => value !== null);
}
