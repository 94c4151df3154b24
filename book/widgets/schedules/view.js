// V1 beside V2: the score tiles that are computed, what is on the chip, and what has been moved for it.

import { button, checkbox, element, meter, slider, svg } from "#widgets/common/dom.js";
import { KINDS, counts, sees, steps } from "#widgets/schedules/model.js";

const ORDERS = { V1: "V1: keys outside, queries inside", V2: "V2: queries outside, keys inside" };
const NAMES = { Q: "Q", K: "K", V: "V", state: "state: m, l, O′", O: "O" };
const TILES = [1, 2, 3, 4, 5, 6, 7, 8];
const PAUSE = 700; // milliseconds of a step
const GRID = { x: 44, y: 46, side: 200 };

export function mount(place) {
  const call = { queryTiles: 4, keyTiles: 4, causal: true };
  let all, step, timer;

  const panels = Object.entries(ORDERS).map(([order, title]) => panel(order, title));
  const table = element("table", { className: "moved-tiles" });
  const bars = element("div", { className: "totals", role: "img" });
  const counter = element("output", { className: "counter" });
  const track = element("input", { type: "range", min: 0, ariaLabel: "step", oninput: () => go(Number(track.value)) });
  const back = button("Back", () => go(step - 1));
  const next = button("Next", () => go(step + 1));
  const play = button("Play", () => (timer ? pause() : start()));

  const last = () => all.V1.length;
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");

  function pause() {
    clearInterval(timer);
    timer = undefined;
    draw();
  }

  function start() {
    if (reduced.matches) return go(last());
    if (step === last()) step = 0;
    timer = setInterval(() => {
      step += 1;
      if (step >= last()) pause();
      else draw();
    }, PAUSE);
    draw();
  }

  function go(to) {
    step = Math.min(Math.max(to, 0), last());
    pause();
  }

  function set(change) {
    Object.assign(call, change);
    all = { V1: steps("V1", call), V2: steps("V2", call) };
    track.max = last();
    go(0);
  }

  function draw() {
    const totals = { V1: counts(all.V1.slice(0, step)), V2: counts(all.V2.slice(0, step)) };
    for (const each of panels) each.draw(call, all[each.order], step);
    track.value = step;
    counter.textContent = `step ${step} of ${last()}`;
    play.textContent = timer ? "Pause" : reduced.matches ? "To the end" : "Play";
    // Not `disabled`: a disabled button loses the focus, and with it the arrow keys.
    back.ariaDisabled = String(step === 0);
    next.ariaDisabled = String(step === last());
    for (const each of panels) each.sentence.ariaLive = timer ? "off" : "polite";
    table.replaceChildren(...rows(totals));
    drawBars(bars, totals, Math.max(counts(all.V1).bytes, counts(all.V2).bytes));
  }

  place.replaceChildren(
    element("figcaption", {}, "What two loop orders read and write: one head, tiles of 64 x 64, float32"),
    element(
      "div",
      { className: "controls" },
      slider("tiles of queries", TILES, call.queryTiles, (queryTiles) => set({ queryTiles })),
      slider("tiles of keys", TILES, call.keyTiles, (keyTiles) => set({ keyTiles })),
      checkbox("causal", call.causal, (causal) => set({ causal })),
    ),
    element("div", { className: "orders" }, ...panels.map((each) => each.element)),
    element(
      "p",
      { className: "legend" },
      ...[
        ["query", "queries on the chip"],
        ["loaded", "keys and values on the chip"],
        ["integrated", "score tile computed, now or before; output written"],
        ["stored", "state in memory (scores never are)"],
        ["skipped", "skipped"],
        ["outlined", "moved or computed in this step"],
      ].map(([kind, label]) => element("span", { className: `key-of ${kind}` }, label)),
    ),
    element("div", { className: "controls steps" }, play, back, next, track, counter),
    table,
    bars,
  );
  place.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by && event.target.tagName === "BUTTON") go(step + by);
  };
  set({});
  place.classList.add("mounted");
}

function panel(order, title) {
  const picture = svg("svg", { viewBox: "0 0 300 268", role: "img" });
  const sentence = element("p", { className: "sentence" });
  return {
    order,
    sentence,
    element: element("div", { className: "order" }, element("p", { className: "title" }, title), picture, sentence),
    draw(call, all, step) {
      const now = step > 0 ? all[step - 1] : null;
      const text = describe(order, call, all, step);
      picture.replaceChildren(...shapes(order, call, all, step, now));
      picture.setAttribute("aria-label", `${order}: ${text}`);
      sentence.textContent = text;
    },
  };
}

function shapes(order, call, all, step, now) {
  const { x, y, side } = GRID;
  const width = side / call.keyTiles;
  const height = side / call.queryTiles;
  const done = new Set(all.slice(0, step).flatMap(({ visit }) => (visit ? [String(visit)] : [])));
  const written = new Set(all.slice(0, step).flatMap(({ moves }) => moves.filter(isOutput).map(({ tile }) => tile)));
  const moved = new Set((now?.moves ?? []).map(({ kind, tile }) => `${kind}${tile}`));
  const [i, j] = now?.visit ?? [];
  const ending = step === all.length;
  const made = [];
  const cell = (at, names) => made.push(svg("rect", { ...at, rx: 2, class: names.filter(Boolean).join(" ") }));
  const strip = (kind, tile, at, state) => cell(at, ["strip", `of-${kind}`, state, moved.has(`${kind}${tile}`) && "moved"]);

  for (let column = 0; column < call.keyTiles; column++) {
    const at = { x: x + column * width + 1, width: width - 2, height: 12 };
    for (const [kind, top] of [["K", 12], ["V", 28]]) strip(kind, column, { ...at, y: top }, column === j && "held");
  }
  for (let row = 0; row < call.queryTiles; row++) {
    const at = { y: y + row * height + 1, width: 14, height: height - 2 };
    strip("Q", row, { ...at, x: 24 }, row === i && "held");
    const stored = order === "V1" && step > 0 && !ending;
    strip("state", row, { ...at, x: 254 }, row === i ? "held" : stored && "stored");
    strip("O", row, { ...at, x: 278 }, written.has(row) && "held");
    for (let column = 0; column < call.keyTiles; column++)
      cell({ x: x + column * width + 1, y: at.y, width: width - 2, height: at.height }, [
        "score",
        !sees(row, column, call) ? "skipped" : done.has(String([row, column])) && "computed",
        row === i && column === j && "now",
      ]);
  }
  const label = (text, left, top, anchor) => made.push(svg("text", { x: left, y: top, "text-anchor": anchor }, text));
  label("K", 38, 22, "end");
  label("V", 38, 38, "end");
  label("Q", 31, 260, "middle");
  label("state", 270, 260, "end");
  label("O", 285, 260, "middle");
  return made;
}

const isOutput = ({ way, kind }) => way === "write" && kind === "O";

function describe(order, { queryTiles }, all, step) {
  if (step === 0) return "Nothing has been moved.";
  const { visit, moves } = all[step - 1];
  if (!visit)
    return order === "V1"
      ? "All keys are in. Each state is read once more and divided, and the outputs are written."
      : "Nothing is left to do: each output was written when its queries were finished.";
  const [i, j] = visit;
  const first = (kind) => moves.some((move) => move.way === "read" && move.kind === kind);
  if (order === "V1") {
    const filled = step === 1 ? `${queryTiles} empty ${queryTiles === 1 ? "state goes" : "states go"} to memory. ` : "";
    const keys = first("K") ? `Keys and values ${j + 1} come in. ` : `Keys and values ${j + 1} stay. `;
    return `${filled}${keys}Queries ${i + 1} and their state come in, and the state goes back.`;
  }
  const queries = first("Q") ? `Queries ${i + 1} come in, with an empty state. ` : `Queries ${i + 1} and their state stay. `;
  const end = moves.some((move) => isOutput(move) && move.tile === i) ? " They were the last: the output is written." : "";
  return `${queries}Keys and values ${j + 1} come in.${end}`;
}

function rows(totals) {
  const heads = ["tiles", "V1 read", "V1 written", "V2 read", "V2 written"];
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const numbers = KINDS.map((kind) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, NAMES[kind]),
      ...["V1", "V2"].flatMap((order) =>
        ["read", "written"].map((way) => element("td", {}, String(totals[order][way][kind]))),
      ),
    ),
  );
  return [head, ...numbers];
}

function drawBars(place, totals, most) {
  const kilobytes = (bytes) => `${(bytes / 1000).toFixed(0)} KB`;
  place.replaceChildren(
    ...Object.keys(ORDERS).map((order) =>
      meter(`${order}, bytes`, totals[order].bytes / most, kilobytes(totals[order].bytes)),
    ),
  );
  place.setAttribute("aria-label", `moved so far: V1 ${kilobytes(totals.V1.bytes)}, V2 ${kilobytes(totals.V2.bytes)}`);
}
