// The threads of a threadgroup beside the matrix that they compute. Pointing at either shows the other.

import { choices } from "#widgets/common/choices.js";
import { element, slider, svg } from "#widgets/common/dom.js";
import {
  COLUMNS,
  LANES,
  LIMIT,
  columnsOf,
  keyOf,
  memory,
  threadOfColumn,
  threadOfScore,
} from "#widgets/thread_map/model.js";

const SIDE = 320;
const CELL = SIDE / LANES;
const MARGIN = 16; // on the left and above, for the numbers of rows and columns
const KEYS = 70; // two tiles of 32 keys and one of 6
const SIZES = [16, 40, 64, 80, 96, 128, 256];
const PHASES = { scores: "scores", softmax: "maximum and sum", output: "output" };
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function mount(place) {
  // `at` is the thread, `column` that of the element of O.
  const state = { phase: "scores", at: { group: 5, lane: 7 }, column: 7, tile: 1, E: 128 };
  const threads = panel("32 x 32 threads; arrow keys choose one");
  const matrix = panel("the matrix; arrow keys choose an element");
  const above = element("p", { className: "panel-title" });
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  const arrays = [0, 1].map(() => element("span", { className: "array" }));
  const bar = element("div", { className: "memory-bar", role: "img" }, ...arrays, element("span", { className: "limit" }));
  const room = element("p", { className: "room" });
  const set = (change) => {
    Object.assign(state, change);
    draw();
  };

  // The thread at a place, or that of the element there; each in steps of one, clamped.
  const width = () => ({ scores: LANES, softmax: 2, output: state.E })[state.phase];
  const choose = (group, lane) => set({ at: { group, lane }, column: lane });
  function chooseElement(row, x) {
    if (state.phase === "scores") choose(row, threadOfScore({ row, key: state.tile * LANES + x }).lane);
    if (state.phase === "softmax") choose(row, state.at.lane);
    if (state.phase === "output") set({ at: threadOfColumn({ row, column: x }), column: x });
  }
  const chosenX = () => ({ scores: state.at.lane, softmax: 0, output: state.column })[state.phase];
  follow(threads, () => LANES, choose, () => [state.at.group, state.at.lane]);
  follow(matrix, width, chooseElement, () => [state.at.group, chosenX()]);

  function draw() {
    const { phase, at, tile, E } = state;
    const { bytes, width: stored } = memory(E);
    const key = keyOf(at, tile, KEYS);
    const runs = E <= COLUMNS;
    const mine = phase === "output" ? columnsOf(at, Math.min(E, COLUMNS)).filter(() => runs) : [];
    const keys = Math.min(KEYS - tile * LANES, LANES);

    const busy = phase === "scores" ? keys : LANES;
    threads.replaceChildren(
      ...grid(LANES, busy),
      busy < LANES ? rect(busy, 0, LANES - busy, LANES, "idle") : "",
      rect(0, at.group, LANES, 1, "of-row"),
      phase === "softmax" ? rect(0, at.group, LANES, 1, "row-chosen") : "",
      rect(at.lane, at.group, 1, 1, "thread"),
    );
    if (phase === "scores")
      matrix.replaceChildren(
        ...grid(LANES, keys, tile * LANES),
        rect(0, at.group, keys, 1, "of-row"),
        key === null ? "" : rect(at.lane, at.group, 1, 1, "score"),
      );
    if (phase === "softmax")
      matrix.replaceChildren(
        ...grid(2, 2),
        rect(0, at.group, 2, 1, "row-chosen", 2),
        ...["m", "l"].map((name, x) => svg("text", { x: (x + 0.5) * (SIDE / 2), y: -4, class: "name" }, name)),
      );
    if (phase === "output")
      matrix.replaceChildren(
        ...grid(E, runs ? E : 0),
        rect(0, at.group, E, 1, "of-row", E),
        ...mine.map((column) => rect(column, at.group, 1, 1, "column", E)),
        mine.includes(state.column) ? rect(state.column, at.group, 1, 1, "element", E) : "",
      );
    above.textContent = {
      scores: `S: rows are queries, columns the keys ${tile * LANES} to ${tile * LANES + keys - 1}`,
      softmax: "m and l: one of each for each row",
      output: `O: rows are queries, columns 0 to ${E - 1}`,
    }[phase];
    sentence.textContent = describe(state, key, mine);
    bar.style.setProperty("--part", `${(50 * bytes) / (2 * LIMIT)}%`); // the bar is twice the limit
    bar.style.setProperty("--used", `${(100 * Math.min(E, stored)) / stored}%`);
    bar.dataset.fits = String(bytes <= LIMIT);
    bar.setAttribute("aria-label", `${bytes} bytes of ${LIMIT}`);
    room.textContent = describeMemory(E);
  }

  place.replaceChildren(
    element("figcaption", {}, "One threadgroup: 32 SIMD groups of 32 lanes, for 32 rows of queries and 70 keys"),
    element(
      "div",
      { className: "controls" },
      choices("step", PHASES, state.phase, (phase) => set({ phase })),
      slider("tile of keys", [0, 1, 2], state.tile, (tile) => set({ tile })),
      slider("head size E", SIZES, state.E, (E) => set({ E, column: state.at.lane })),
    ),
    element(
      "div",
      { className: "panels" },
      element(
        "div",
        {},
        element("p", { className: "panel-title" }, "Threads: rows are SIMD groups, columns are lanes"),
        threads,
      ),
      element("div", {}, above, matrix),
    ),
    sentence,
    element(
      "div",
      { className: "memory" },
      element("span", { className: "memory-name" }, "threadgroup memory"),
      bar,
    ),
    room,
  );
  place.classList.add("mounted");
  draw();
}

function panel(label) {
  return svg("svg", {
    viewBox: `${-MARGIN} ${-MARGIN} ${SIDE + MARGIN} ${SIDE + MARGIN}`,
    class: "threads",
    role: "application",
    tabindex: 0,
    "aria-label": label,
  });
}

function rect(x, y, across, down, kind, columns = LANES) {
  const width = SIDE / columns;
  return svg("rect", { x: x * width, y: y * CELL, width: across * width, height: down * CELL, class: kind });
}

// The cells of 32 rows; only the first `used` columns have one. Every eighth row has its number, and as many columns.
function grid(columns, used, firstColumn = 0) {
  const width = SIDE / columns;
  const right = used * width;
  const every = columns > 2 * LANES ? LANES : 1; // lines between narrow columns would hide what is between them
  const down = Array.from({ length: Math.floor(used / every) + 1 }, (_, i) => `M${i * every * width} 0V${SIDE}`);
  const across = Array.from({ length: LANES + 1 }, (_, y) => `M0 ${y * CELL}H${right}`);
  return [
    rect(0, 0, used, LANES, "cells", columns),
    svg("path", { d: [...down, ...across].join(""), class: "lines" }),
    ...[0, 8, 16, 24].map((row) => svg("text", { x: -3, y: (row + 0.8) * CELL, class: "at row" }, String(row))),
    ...[0, 0.25, 0.5, 0.75]
      .map((share) => Math.floor(share * columns))
      .filter((column) => columns > 2 && column < used)
      .map((column) =>
        svg("text", { x: (column + 0.5) * width, y: -4, class: "at column-number" }, String(firstColumn + column)),
      ),
  ];
}

// Calls choose(row, x) for the cell under the pointer, and for the neighbour that an arrow key leads to.
function follow(shown, columns, choose, chosen) {
  const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
  const cell = (share, count) => within(Math.floor(((share * (SIDE + MARGIN) - MARGIN) / SIDE) * count), count);
  const point = ({ clientX, clientY }) => {
    const { left, top, width, height } = shown.getBoundingClientRect();
    choose(cell((clientY - top) / height, LANES), cell((clientX - left) / width, columns()));
  };
  shown.onpointermove = point;
  shown.onpointerdown = point;
  shown.onkeydown = (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, x] = chosen();
    choose(within(row + step[0], LANES), within(x + step[1], columns()));
  };
}

function describe({ phase, at: { group, lane }, tile, E, column }, key, mine) {
  const who = `Lane ${lane} of SIMD group ${group}`;
  if (E > COLUMNS) return `The kernel refuses heads of ${E} columns: its two arrays have ${COLUMNS}.`;
  if (phase === "scores")
    return key === null
      ? `${who} has no key in this tile, which ends at key ${KEYS - 1}: its score is −∞ and its weight 0.`
      : `${who} computes the score of row ${group} and key ${key}: a dot product of ${E} numbers, alone.`;
  if (phase === "softmax")
    return (
      `All 32 lanes of SIMD group ${group} have the same m and l of row ${group} in a register. simd_max and ` +
      `simd_sum combine the scores and the weights of the 32 lanes.`
    );
  if (mine.length === 0) return `${who} has no column of ${E}. It only sends the weight of its key to the others.`;
  const [last, ...first] = mine.map(String).reverse();
  const list = first.length ? `columns ${first.reverse().join(", ")} and ${last}` : `column ${last}`;
  const needs = keyOf({ lane: LANES - 1 }, tile, KEYS) === null ? KEYS - tile * LANES : LANES;
  return (
    `${who} computes ${list} of row ${group}, here O[${group}, ${column}]. For each of the ${needs} keys of the tile, ` +
    `simd_broadcast brings the weight from the lane that computed it.`
  );
}

function describeMemory(E) {
  const { width, bytes, rows } = memory(E);
  const size = `q and o: 2 × 32 × ${width} floats are ${bytes} bytes`;
  if (bytes > LIMIT) return `${size}, but a threadgroup has ${LIMIT}. ${rows} rows would fit.`;
  const unused = E < COLUMNS ? ` Of each row, ${COLUMNS - E} columns are unused.` : "";
  return `${size}, all that a threadgroup has.${unused}`;
}
