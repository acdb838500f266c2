// Two runs: the heads that changed most, and of the one that is chosen A, B and B − A beside one another.

const SHOWN = [["weight", "A"], ["other", "B"], ["difference", "B − A"]];

register("comparison", (section, data) => {
  const heads = headsOf(data);
  const [a, b] = data.runs;
  const place = element("div", { class: "detail-place" });
  let chosen = null;

  // ---- the heads, most changed first

  const body = element("tbody", {}, heads.map((head) => {
    const button = element("button", { type: "button", class: "link", tabindex: "-1", onclick: () => open(head) }, `${head.kind} ${head.name}`);
    const row = element("tr", { onclick: (event) => { if (event.target !== button) open(head); } },
      element("th", { scope: "row" }, button),
      element("td", {}, decimals(head.change), bar(head.change)),
      ["entropy", "confidence"].map((name) => element("td", {}, both(head.metrics[name]))),
      element("td", {}, head.labels.map((label) => element("span", { class: "label" }, label))));
    row.head = head;
    return row;
  }));
  const list = element("div", { class: "wide changes" }, element("table", {},
    element("caption", {}, `All ${heads.length} heads, the most changed first: the mean over the queries of ½ Σ |B − A|. Choose one to see its maps.`),
    element("thead", {}, element("tr", {}, ["head", "change", "entropy A → B", "confidence A → B", "finding"].map((name) => element("th", { scope: "col" }, name)))),
    body));

  body.addEventListener("keydown", (event) => {
    const buttons = [...body.querySelectorAll("button")];
    const at = buttons.indexOf(event.target);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (next === undefined || at < 0) return;
    event.preventDefault();
    const button = buttons[Math.max(0, Math.min(buttons.length - 1, next))];
    focusable(button);
    button.focus();
  });

  function focusable(button) {
    for (const other of body.querySelectorAll("button")) other.tabIndex = other === button ? 0 : -1;
  }

  // The length of a change, 0 … 1, for the eye.
  function bar(change) {
    const inner = element("i");
    inner.style.width = `${100 * Math.min(1, change)}%`;
    return element("span", { class: "length", "aria-hidden": "true" }, inner);
  }

  function both([before, after]) {
    return `${numberOf(before)} → ${numberOf(after)}`;
  }

  // ---- the head that is chosen

  function open(head, { focus = true, query = 0 } = {}) {
    chosen = head;
    for (const row of body.children) row.classList.toggle("chosen", row.head === head);
    focusable([...body.children].find((row) => row.head === head).querySelector("button"));
    const shown = detail(head, query);
    place.replaceChildren(shown.node);
    shown.redraw();
    if (focus) {
      shown.focus();
      shown.node.scrollIntoView({ block: "start" });
    }
  }

  function detail(head, query) {
    const difference = signedScale(data.scale, `B − A: purple where B has less (−), orange where it has more (+); the same scale for all heads of this part`);
    let [q, k] = [query, query ? head.topOf(query, "difference")[0]?.k ?? 0 : 0];
    const top = element("div", { class: "top" });

    const sentence = (i, j) => {
      const at = i * head.width + j;
      const { weight, other, difference: change } = head.values();
      if (!head.whole) {
        return `${blockSentence(head, i, j, "weight", decimals)} in A, ${decimals(other[at])} in B, B − A = ${signed(change[at])}`;
      }
      const ofA = head.apart ? `${head.name} · ${head.queries[i]} → ${head.keys[j]} = ${decimals(weight[at])}` : sentenceOf(head, i, j);
      return `${ofA} in A; ${decimals(other[at])} in B; B − A = ${signed(change[at])}`;
    };
    const reader = reading(section, head, sentence);

    const maps = SHOWN.map(([name, title]) => heatMap({
      label: `${title}, ${head.kind} ${head.name}: query attends to key`,
      rows: head.rows,
      columns: head.columns,
      cells: head.cells,
      leaks: head.leaks,
      values: () => head.values()[name],
      scale: name === "difference" ? difference : weightScale,
      narrow: true,
      sentence: (i, j) => `${title}, ${sentence(i, j)}`,
      onmove: (i, j) => moved(i, j, name),
      onpin: reader.pin,
      onunpin: reader.unpin,
    }));

    function moved(i, j, from) {
      const before = q;
      if (Math.floor(q / head.down) !== i) q = i * head.down;
      k = j;
      reader.say(q, k);
      SHOWN.forEach(([name], at) => { if (name !== from) maps[at].move(i, j, { tell: false }); });
      if (q !== before) showRow();
    }

    function showRow() {
      reader.showRow(q);
      top.replaceChildren(table(["what changed most for ", isolated(head.queries[q])], ["key", "A", "B", "B − A"],
        head.topOf(q, "difference").map((found) => [keyOf(head, found), decimals(found.weight), decimals(found.other), signed(found.difference)])));
    }

    reader.onrow((chosen) => {
      q = chosen;
      maps.forEach((map) => map.move(Math.floor(q / head.down), k, { tell: false, scroll: true }));
      reader.say(q, k);
      showRow();
    });

    const asTable = tableButton(() => changeTable(head));
    const heading = element("h3", { id: `${section.id}-chosen` }, `${head.kind === "cross" ? "cross-attention" : head.kind}, ${head.name}`);
    const findings = data.findings.filter((f) => f.kind === head.kind && f.layer === head.layer && f.head === head.head);
    const there = data.metrics.filter(({ name }) => head.metrics[name].some((value) => value !== null));
    const node = element("section", { class: "detail", "aria-labelledby": heading.id },
      element("div", { class: "heading" }, heading, element("button", { type: "button", class: "quiet", onclick: () => close() }, "back to the list")),
      element("p", { class: "axes" }, "A is ", isolated(a), ", B is ", isolated(b), ". Each row is a query, named by the token that it ",
        element("em", {}, head.named_by), ", each column a key: the query attends to the key."),
      head.whole ? null : element("p", { class: "reduced" },
        `This head is not on the page in full: a cell of the pictures is the mean of up to ${head.down} × ${head.across} pairs, and of each row ${exactOf(head, "change")} exact.`),
      findings.map((finding) => element("p", { class: "finding" }, finding.sentence)),
      reader.sentences,
      element("div", { class: "three" }, SHOWN.map(([, title], i) => element("figure", { class: "figure" },
        element("h4", {}, title), maps[i].node))),
      element("figure", { class: "legends" }, legend(weightScale, hiddenIn(head)), legend(difference, { future: false, padding: false })),
      reader.rows,
      element("div", { class: "columns even" }, top, table("the metrics of both", ["metric", "A", "B", "B − A"], there.map(({ title, name }) => {
        const [before, after] = head.metrics[name];
        return [title, numberOf(before), numberOf(after), before === null || after === null ? "–" : signed(after - before)];
      }))),
      element("div", { class: "actions" },
        copyButtons({ text: () => changeText(head), CSV: () => changeCsv(head), JSON: () => changeJson(head) }), asTable.button),
      asTable.place);
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      const held = maps.filter((map) => map.pinned());
      if (held.length) held.forEach((map) => map.unpin());
      else close();
      event.preventDefault();
    });
    if (head.T && head.S) {
      showRow();
      maps.forEach((map) => map.move(Math.floor(q / head.down), k, { tell: false }));
      reader.say(q, k);
    }
    return { node, focus: () => maps[2].focus(), redraw: () => maps.forEach((map) => map.redraw()) };
  }

  function close() {
    const row = [...body.children].find((each) => each.head === chosen);
    chosen = null;
    place.replaceChildren();
    row?.classList.remove("chosen");
    row?.querySelector("button").focus();
  }

  focusable(body.querySelector("button"));
  darkness.addEventListener("change", () => { if (chosen) open(chosen, { focus: false }); });
  const first = opened(data, heads) ?? heads[0];
  if (first) open(first, { focus: false, query: data.opened?.query });
  return [
    data.title === document.title ? null : element("h2", {}, isolated(data.title)),
    data.note ? element("p", {}, isolated(data.note)) : null,
    data.reduced ? element("p", { class: "reduced" }, data.reduced) : null,
    list, place,
  ].filter(Boolean);
});

// The pairs to tell: all that may be seen, and of a reduced head the largest changes of each row.
function* pairsOf(head) {
  for (let q = 0; q < head.T; q++) {
    const found = head.topOf(q, "difference", head.S);
    for (const pair of head.whole ? found.sort((x, y) => x.k - y.k) : found) yield { q, ...pair };
  }
}

function changeTable(head) {
  return table(`${head.kind} ${head.name}${head.whole ? "" : ", the largest changes of each query"}`, ["query", "key", "A", "B", "B − A"],
    [...pairsOf(head)].map(({ q, weight, other, difference, ...found }) =>
      [head.queries[q], keyOf(head, found), decimals(weight), decimals(other), signed(difference)]));
}

function changeText(head) {
  const lines = [...pairsOf(head)].map(({ q, weight, other, difference, ...found }) =>
    `${head.queries[q]} → ${keyOf(head, found)}: A ${decimals(weight)}, B ${decimals(other)}, B − A ${signed(difference)}`);
  return [`${head.kind} ${head.name}: query → key`, ...lines].join("\n") + "\n";
}

function changeCsv(head) {
  return csv([["query", "key", "A", "B", "B − A"], ...[...pairsOf(head)].map(({ q, k, weight, other, difference }) =>
    [head.queries[q], head.keys[k], weight.toFixed(6), other.toFixed(6), difference.toFixed(6)])]);
}

function changeJson(head) {
  const { kind, layer, head: number, queries, keys, change, metrics } = head;
  const pairs = [...pairsOf(head)].map(({ q, k, weight, other, difference }) =>
    ({ query: q, key: k, A: Number(weight.toFixed(6)), B: Number(other.toFixed(6)), difference: Number(difference.toFixed(6)) }));
  return JSON.stringify({ kind, layer, head: number, queries, keys, change, metrics, pairs }, null, 1) + "\n";
}
