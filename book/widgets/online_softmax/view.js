// The stepper: keys as cells, the state after each tile, and the one division at the end.

import { button, element, number } from "#widgets/common/dom.js";
import { KEYS, TILE, divide, states } from "#widgets/online_softmax/model.js";

const LAST = KEYS / TILE + 1;

export function mount(place) {
  const all = states();
  let step = 0;

  const cells = Array.from({ length: KEYS }, (_, j) => element("span", { className: "key" }, String(j)));
  const tiles = Array.from({ length: KEYS / TILE }, (_, t) =>
    element("div", { className: "key-tile", role: "group" }, ...cells.slice(t * TILE, (t + 1) * TILE)),
  );
  const counter = element("span", { className: "counter" });
  const back = button("Back", () => go(step - 1));
  const next = button("Next", () => go(step + 1));
  const reset = button("Start again", () => go(0));
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  const table = element("table", { className: "state" });

  function go(to) {
    step = Math.min(Math.max(to, 0), LAST);
    draw();
  }

  function draw() {
    const tilesDone = Math.min(step, LAST - 1);
    const state = all[tilesDone];
    counter.textContent = `step ${step} of ${LAST}`;
    // Not `disabled`: a disabled button loses the focus, and with it the arrow keys.
    back.ariaDisabled = String(step === 0);
    next.ariaDisabled = String(step === LAST);
    tiles.forEach((tile, t) => {
      const kind = step === LAST || t + 1 < step ? "integrated" : t + 1 === step ? "loaded" : "untouched";
      tile.dataset.state = kind;
      tile.setAttribute("aria-label", `keys ${t * TILE} to ${t * TILE + TILE - 1}: ${kind}`);
    });
    cells.forEach((cell, j) => {
      const inTile = step > 0 && step < LAST && Math.floor(j / TILE) === step - 1;
      cell.style.setProperty("--weight", inTile ? state.p[j % TILE] : 0);
      cell.title = inTile ? `score ${number(state.scores[j % TILE])}, p ${number(state.p[j % TILE])}` : "";
    });
    sentence.textContent = describe(step, state, all);
    table.replaceChildren(...rows(step, state));
  }

  place.replaceChildren(
    element("figcaption", {}, "Online softmax: one query, 32 keys in four tiles. q is already multiplied by 1/√d."),
    element("div", { className: "tiles", role: "group", ariaLabel: "tiles of keys" }, ...tiles),
    element(
      "p",
      { className: "legend" },
      ...["untouched", "loaded", "integrated"].map((kind) => element("span", { className: `key-of ${kind}` }, kind)),
    ),
    element("div", { className: "controls" }, back, next, reset, counter),
    sentence,
    table,
  );
  place.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) go(step + by);
  };
  place.classList.add("mounted");
  draw();
}

function rows(step, state) {
  const shown = [
    ["m, the largest score", number(state.m)],
    ["l, the sum of exp(s − m)", number(state.l)],
    ["α, what the old sums were multiplied by", step === LAST ? "–" : number(state.alpha)],
    ["O′, the sum of exp(s − m) · v", state.acc.map((x) => number(x, 4)).join("  ")],
  ];
  if (step === LAST) {
    const { output, lse } = divide(state);
    shown.push(["O = O′ / l", output.map((x) => number(x, 4)).join("  ")], ["LSE = m + log l", number(lse)]);
  }
  return shown.map(([name, value]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)),
  );
}

function describe(step, state, all) {
  if (step === 0) return "Nothing has been read. The maximum is −∞, both sums are zero.";
  if (step === LAST) return "All tiles are in. One division turns the sums into the output.";
  const before = all[step - 1];
  if (before.m === -Infinity)
    return `The first tile brings the maximum ${number(state.m)}. α is exp(−∞) = 0: there was nothing to keep.`;
  if (state.m === before.m)
    return `No score of this tile is above ${number(before.m)}, so α is 1 and the sums are only added to.`;
  return (
    `The maximum rises from ${number(before.m)} to ${number(state.m)}. What was summed so far is too large by ` +
    `exp(${number(state.m - before.m)}), so l and O′ are multiplied by α = ${number(state.alpha, 4)} first.`
  );
}
