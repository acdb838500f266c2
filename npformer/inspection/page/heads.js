// All heads of an inspection, and below them the one that is chosen.

const VALUES = { weight: "weight", gradient: "∂L/∂P", product: "P·∂L/∂P" };

const AT_ONCE = 5; // findings that stand there without being asked for

register("heads", (section, data) => {
  const heads = headsOf(data);
  const kinds = [...new Set(heads.map((head) => head.kind))];
  const titles = Object.fromEntries(data.metrics.map((metric) => [metric.name, metric.title]));
  const thumbnails = new Map();
  const state = {
    kind: kinds[0], sort: "", descending: true, filter: "", atLeast: true, limit: "", label: "", chosen: null,
  };

  // ---- what stands there

  const tabs = element("div", { role: "tablist", class: "tabs", "aria-label": "kinds of attention" },
    kinds.map((kind) => element("button", {
      type: "button", role: "tab", id: `${section.id}-${kind}`, "data-kind": kind, "aria-controls": `${section.id}-panel`,
      onclick: () => chooseKind(kind),
    }, `${kind} (${heads.filter((head) => head.kind === kind).length})`)));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = event.key === "Home" ? 0 : event.key === "End" ? kinds.length - 1
      : step && (kinds.indexOf(state.kind) + step + kinds.length) % kinds.length;
    if (at === undefined) return;
    event.preventDefault();
    chooseKind(kinds[at]);
    tabs.children[at].focus();
  });

  const named = data.metrics.map(({ name, title }) => [name, title]);
  const labels = [...new Set(heads.flatMap((head) => head.labels))].sort();
  const limit = element("input", {
    type: "number", step: "any", placeholder: "0.5", oninput: () => { state.limit = limit.value; arrange(); },
  });
  const order = choice("order", [["down", "largest first"], ["up", "smallest first"]], (value) => { state.descending = value === "down"; arrange(); });
  const side = choice("is", [["least", "at least"], ["most", "at most"]], (value) => { state.atLeast = value === "least"; arrange(); });
  const bound = element("label", { class: "choice" }, element("span", {}, "number"), limit);
  const controls = element("div", { class: "controls" },
    choice("sort by", [["", "place"], ...named], (value) => { state.sort = value; arrange(); }),
    order,
    choice("only where", [["", "any number"], ...named], (value) => { state.filter = value; arrange(); }),
    side, bound,
    choice("finding", [["", "any or none"], ...labels.map((label) => [label, label])], (value) => { state.label = value; arrange(); }));
  const count = element("p", { class: "count", role: "status" });
  const overview = element("div", { role: "grid", class: "overview" });
  const place = element("div", { class: "detail-place" });
  const panel = element("div", { role: "tabpanel", id: `${section.id}-panel` },
    controls, count, overview, legend(weightScale, { future: false, padding: false }), place);

  // ---- the overview

  function chooseKind(kind) {
    state.kind = kind;
    close(false);
    arrange();
  }

  function shown() {
    const number = state.filter && state.limit !== "" ? Number(state.limit) : null;
    const passes = (head) => {
      if (head.kind !== state.kind || (state.label && !head.labels.includes(state.label))) return false;
      if (number === null) return true;
      const value = head.metrics[state.filter];
      return value !== null && (state.atLeast ? value >= number : value <= number);
    };
    const list = heads.filter(passes);
    if (!state.sort) return list;
    const none = state.descending ? -Infinity : Infinity; // where a metric does not apply, a head comes last
    const value = (head) => head.metrics[state.sort] ?? none;
    return list.sort((a, b) => (value(a) === value(b) ? 0 : (value(a) < value(b) ? 1 : -1) * (state.descending ? 1 : -1)));
  }

  function arrange() {
    for (const tab of tabs.children) {
      const mine = tab.dataset.kind === state.kind;
      tab.setAttribute("aria-selected", String(mine));
      tab.tabIndex = mine ? 0 : -1;
    }
    order.hidden = !state.sort;
    side.hidden = bound.hidden = !state.filter;
    panel.setAttribute("aria-labelledby", `${section.id}-${state.kind}`);
    const list = shown();
    const all = heads.filter((head) => head.kind === state.kind).length;
    count.textContent = `${list.length === all ? `all ${all}` : `${list.length} of ${all}`} heads of the ${state.kind === "cross" ? "cross-attention" : state.kind}`
      + (state.sort ? `, sorted by ${titles[state.sort]}` : "") + (list.length ? "; choose one to see its map" : "");
    const layers = state.sort ? [list] : [...new Set(list.map((head) => head.layer))].map((layer) => list.filter((head) => head.layer === layer));
    overview.setAttribute("aria-label", count.textContent);
    const most = Math.max(...kinds.map((kind) => Math.max(...heads.map((head) => (head.kind === kind ? head.head + 1 : 0)))));
    overview.classList.toggle("many", most > 8);
    overview.replaceChildren(...layers.map((row) => element("div", { role: "row", class: "row" }, row.map(cellOf))));
    focusable(cellNamed(state.chosen) ?? overview.querySelector("[role=gridcell]"));
  }

  function cellOf(head) {
    if (!thumbnails.has(head)) thumbnails.set(head, thumbnail(head, "weight", weightScale));
    const value = state.sort ? `${titles[state.sort]} ${numberOf(head.metrics[state.sort])}` : "";
    const cell = element("div", {
      role: "gridcell", tabindex: "-1", class: "head",
      "aria-label": [`${head.kind} ${head.name}`, ...head.labels, value].filter(Boolean).join(", "),
      "aria-selected": String(head === state.chosen),
      onclick: () => open(head),
    },
    thumbnails.get(head),
    element("span", { class: "name" }, element("span", {}, `layer ${head.layer}`), " ", element("span", {}, `head ${head.head}`)),
    value ? element("span", { class: "value" }, value) : null,
    head.whole ? null : element("span", { class: "label" }, "pooled"),
    head.labels.map((label) => element("span", { class: isFault(label) ? "label fault" : "label" }, label)));
    cell.head = head;
    return cell;
  }

  function isFault(label) {
    return data.findings.some((finding) => finding.label === label && finding.is_fault);
  }

  function cellNamed(head) {
    return head && [...overview.querySelectorAll("[role=gridcell]")].find((cell) => cell.head === head);
  }

  function focusable(cell) {
    for (const other of overview.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
    if (cell) cell.tabIndex = 0;
  }

  // The cell above or below, where rows are folded to the window: the nearest of the next line.
  function beyond(cells, cell, down) {
    const line = (other) => Math.round(other.getBoundingClientRect().top);
    const left = (other) => other.getBoundingClientRect().left;
    const others = cells.filter((other) => (down ? line(other) > line(cell) : line(other) < line(cell)));
    const next = (down ? Math.min : Math.max)(...others.map(line));
    return others.filter((other) => line(other) === next).sort((a, b) => Math.abs(left(a) - left(cell)) - Math.abs(left(b) - left(cell)))[0];
  }

  overview.addEventListener("keydown", (event) => {
    const cell = event.target.closest("[role=gridcell]");
    const cells = [...overview.querySelectorAll("[role=gridcell]")];
    const at = cells.indexOf(cell);
    if (at < 0 || event.altKey || event.metaKey) return;
    const row = [...cell.parentElement.children];
    const moves = {
      ArrowLeft: () => cells[at - 1],
      ArrowRight: () => cells[at + 1],
      ArrowUp: () => beyond(cells, cell, false),
      ArrowDown: () => beyond(cells, cell, true),
      Home: () => (event.ctrlKey ? cells[0] : row[0]),
      End: () => (event.ctrlKey ? cells.at(-1) : row.at(-1)),
    };
    if (event.key in moves) {
      const next = moves[event.key]() ?? cell;
      focusable(next);
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") open(cell.head);
    else if (event.key === "Escape") close(true);
    else return;
    event.preventDefault();
  });

  // ---- the head that is chosen

  function open(head, { focus = true, query = 0 } = {}) {
    if (head.kind !== state.kind) chooseKind(head.kind);
    state.chosen = head;
    for (const cell of overview.querySelectorAll("[role=gridcell]")) cell.setAttribute("aria-selected", String(cell.head === head));
    focusable(cellNamed(head) ?? overview.querySelector("[role=gridcell]"));
    const shown = detail(head, query);
    place.replaceChildren(shown.node);
    shown.redraw();
    if (focus) {
      shown.focus();
      shown.node.scrollIntoView({ block: "start" });
    }
  }

  function close(focus) {
    const cell = cellNamed(state.chosen) ?? overview.querySelector("[tabindex='0']");
    state.chosen = null;
    place.replaceChildren();
    for (const other of overview.querySelectorAll("[aria-selected=true]")) other.setAttribute("aria-selected", "false");
    if (focus) cell?.focus();
  }

  function detail(head, query) {
    const there = Object.keys(VALUES).filter((name) => name in head.values());
    const scales = {
      weight: () => weightScale,
      gradient: () => signedScale(head.most("gradient"), `∂L/∂P${lossName()}: purple below zero (−), orange above (+)`),
      product: () => signedScale(head.most("product"), `P·∂L/∂P${lossName()}: purple below zero (−), orange above (+)`),
    };
    let [name, q, k] = ["weight", query, query ? head.topOf(query, "weight")[0]?.k ?? 0 : 0];
    let map;

    const top = element("div", { class: "top" });
    const figure = element("figure", { class: "figure" });

    const sentence = (i, j) => {
      if (!head.whole) return blockSentence(head, i, j, "weight", decimals);
      const more = there.slice(1).map((x) => ` · ${VALUES[x]} = ${signedNumber(head.values()[x][i * head.S + j], head.most(x))}`);
      return sentenceOf(head, i, j) + more.join("");
    };
    const reader = reading(section, head, sentence);

    function showRow() {
      reader.showRow(q);
      const n = head.visible(q);
      const columns = ["key", ...there.map((x) => VALUES[x])];
      const rows = head.topOf(q, name).map((found) => [
        keyOf(head, found), ...there.map((x) => (x === "weight" ? decimals(found.weight) : signedNumber(found[x], head.most(x)))),
      ]);
      const query = isolated(head.queries[q]);
      const title = n ? ["top keys of ", query, `, of ${n} that it may see; uniform would be ${decimals(1 / n)}`] : [query, " may see no key"];
      top.replaceChildren(table(title, columns, rows));
    }

    function draw() {
      const scale = scales[name]();
      map = heatMap({
        label: `${head.kind} ${head.name}: query attends to key`,
        rows: head.rows,
        columns: head.columns,
        cells: head.cells,
        leaks: head.leaks,
        values: () => head.values()[name],
        scale,
        sentence,
        onmove: (i, j) => {
          const before = q;
          if (Math.floor(q / head.down) !== i) q = i * head.down;
          k = j;
          reader.say(q, k);
          if (q !== before) showRow();
        },
        onpin: reader.pin,
        onunpin: reader.unpin,
      });
      figure.replaceChildren(map.node, legend(scale, hiddenIn(head)));
      map.redraw();
      if (head.T && head.S) {
        map.move(Math.floor(q / head.down), k, { tell: false });
        reader.say(q, k);
        showRow();
      }
    }

    reader.onrow((chosen) => {
      q = chosen;
      map.move(Math.floor(q / head.down), k, { scroll: true });
      showRow();
    });

    const asTable = tableButton(() => tableOf(head, name));
    const findings = data.findings.filter((f) => f.kind === head.kind && f.layer === head.layer && (f.head === null || f.head === head.head));
    const heading = element("h3", { id: `${section.id}-chosen` }, `${head.kind === "cross" ? "cross-attention" : head.kind}, ${head.name}`);
    const node = element("section", { class: "detail", "aria-labelledby": heading.id },
      element("div", { class: "heading" }, heading, element("button", { type: "button", class: "quiet", onclick: () => close(true) }, "back to all heads")),
      element("p", { class: "axes" }, "Each row is a query, named by the token that it ", element("em", {}, head.named_by),
        ", each column a key: the query attends to the key."),
      head.whole ? null : element("p", { class: "reduced" },
        `This head is not on the page in full: a cell of the picture is the mean of up to ${head.down} × ${head.across} pairs, and of each row ${exactOf(head, "weight")} exact.${head.loses_gradient ? " Its ∂L/∂P is not here." : ""}`),
      findings.map((finding) => element("p", { class: finding.is_fault ? "finding fault" : "finding" }, finding.is_fault ? "Fault: " : "", finding.sentence)),
      there.length > 1 ? valueChoice() : null,
      reader.sentences,
      element("div", { class: "columns" },
        figure,
        element("div", { class: "right" },
          reader.rows,
          top,
          metricsTable(head))),
      element("div", { class: "actions" },
        copyButtons({ text: () => textOf(head), CSV: () => csvOf(head, name), JSON: () => jsonOf(head) }),
        asTable.button),
      asTable.place);
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      if (map.pinned()) map.unpin();
      else close(true);
      event.preventDefault();
    });
    draw();

    function valueChoice() {
      return element("fieldset", { class: "values" }, element("legend", {}, "shown"),
        there.map((x) => element("label", {}, element("input", {
          type: "radio", name: `${section.id}-values`, value: x, checked: x === "weight",
          onchange: () => { name = x; reader.unpin(); draw(); asTable.close(); },
        }), ` ${VALUES[x]}`)),
        data.loss_name ? element("span", { class: "note" }, "where L is ", isolated(data.loss_name)) : null);
    }

    return { node, focus: () => map.focus(), redraw: () => map.redraw() };
  }

  function lossName() {
    return data.loss_name ? `, L = ${data.loss_name}` : "";
  }

  function metricsTable(head) {
    const there = data.metrics.filter(({ name }) => head.metrics[name] !== null);
    const shown = table("what this head does, in numbers", ["metric", "value"],
      there.map(({ title, name }) => [title, numberOf(head.metrics[name])]));
    shown.querySelectorAll("tbody tr").forEach((row, i) => row.setAttribute("title", there[i].formula));
    return element("div", {}, shown, element("details", {}, element("summary", {}, "how they are computed"),
      element("dl", {}, there.map(({ title, formula, source }) => [
        element("dt", {}, title), element("dd", {}, formula + (source ? ` (${source})` : "")),
      ]), element("dt", {}, "rank"), element("dd", {},
        "1 is the largest weight of its row; weights that differ by less than 0.00002, which this page cannot tell apart, share a rank"))));
  }

  // ---- the whole view

  const faults = data.said.filter((finding) => finding.is_fault);
  const information = data.said.filter((finding) => !finding.is_fault);
  const sentences = (findings) => element("ul", { class: "findings" }, findings.map((finding) => {
    const head = heads.find((h) => h.kind === finding.kind && h.layer === finding.layer && (finding.head === null || h.head === finding.head));
    const said = (finding.is_fault ? "Fault: " : "") + finding.sentence;
    return element("li", { class: finding.is_fault ? "fault" : "" },
      head ? element("button", { type: "button", class: "link", onclick: () => open(head) }, said) : said);
  }));

  darkness.addEventListener("change", () => {
    thumbnails.clear();
    arrange();
    if (state.chosen) open(state.chosen, { focus: false });
  });
  arrange();
  const first = opened(data, heads) ?? (heads.length === 1 ? heads[0] : null);
  if (first) open(first, { focus: false, query: data.opened?.query });
  return [
    data.title === document.title ? null : element("h2", {}, isolated(data.title)),
    data.note ? element("p", {}, isolated(data.note)) : null,
    data.reduced ? element("p", { class: "reduced" }, data.reduced) : null,
    data.findings.length ? null : element("p", {}, "No findings: no head and no layer has numbers that call for a look."),
    faults.length ? sentences(faults.slice(0, AT_ONCE)) : null,
    faults.length > AT_ONCE ? element("details", {}, element("summary", {}, `${faults.length - AT_ONCE} more faults`), sentences(faults.slice(AT_ONCE))) : null,
    information.length ? element("details", { open: information.length <= AT_ONCE },
      element("summary", {}, `${information.length} ${information.length === 1 ? "observation that is no fault" : "observations, none of them a fault"}`), sentences(information)) : null,
    tabs, panel,
  ].filter(Boolean);
});

// ---- a map as a table, as text, CSV and JSON. Of a reduced head it is what is exact: the top keys.

const isShown = (head, q, k) => head.codes()[q * head.S + k] === VISIBLE || head.leaks(q * head.S + k);

function tableOf(head, name) {
  const format = name === "weight" ? decimals : (value) => signedNumber(value, head.most(name));
  if (!head.whole) {
    return table(`${head.kind} ${head.name}: the exact top keys of each query`, ["query", ...Array.from({ length: head.nExact() }, (_, i) => `${i + 1}`)],
      head.queries.map((query, q) => [query, ...head.topOf(q, "weight").map((found) => `${keyOf(head, found)} ${decimals(found.weight)}`)]));
  }
  const values = head.values()[name];
  return table(`${head.kind} ${head.name}, ${VALUES[name]}: query (row) attends to key (column); – is hidden`, ["query", ...head.keys],
    head.queries.map((query, q) => [query, ...head.keys.map((_, k) => {
      const i = q * head.S + k;
      return isShown(head, q, k) ? format(values[i]) + (head.leaks(i) ? " (hidden!)" : "") : "–";
    })]));
}

function textOf(head) {
  const lines = head.queries.map((query, q) =>
    `${query} → ${head.topOf(q, "weight", head.S).map((found) => `${keyOf(head, found)} ${decimals(found.weight)}`).join(", ") || "no key"}`);
  const title = `${head.kind} ${head.name}: query → the keys that it attends to, largest weight first${head.whole ? "" : `, ${head.nExact()} of each`}`;
  return [title, `a query is named by the token that it ${head.named_by}`, ...lines].join("\n") + "\n";
}

function csvOf(head, name) {
  const rows = [["query", "key", VALUES[name]]];
  head.queries.forEach((query, q) => {
    if (!head.whole) return head.topOf(q, "weight").forEach(({ k, weight }) => rows.push([query, head.keys[k], weight.toFixed(6)]));
    return head.keys.forEach((key, k) => {
      const value = head.values()[name][q * head.S + k];
      if (isShown(head, q, k)) rows.push([query, key, name === "weight" ? value.toFixed(6) : String(value)]);
    });
  });
  return csv(rows);
}

function jsonOf(head) {
  const { kind, layer, head: number, named_by, queries, keys, metrics } = head;
  const said = { kind, layer, head: number, named_by, queries, keys, metrics };
  if (head.whole) {
    for (const [name, values] of Object.entries(head.values())) {
      said[name] = queries.map((_, q) => keys.map((_, k) =>
        (isShown(head, q, k) ? Number(values[q * head.S + k].toPrecision(7)) : null)));
    }
  } else said.top_keys = queries.map((_, q) => head.topOf(q, "weight").map(({ k, weight }) => ({ key: k, weight: Number(weight.toFixed(6)) })));
  return JSON.stringify(said, null, 1) + "\n";
}
