// The roofline explorer: measured rows of a machine under the ceilings that were measured beside each.

import { choices } from "#widgets/common/choices.js";
import { element, number, svg } from "#widgets/common/dom.js";
import measurements from "#widgets/roofline/data.js";
import { axis, decades, extent, roof, share } from "#widgets/roofline/model.js";
import { bytes } from "#widgets/traffic/model.js";

const MARGIN = { top: 30, right: 24, bottom: 46, left: 50 };
const UNKNOWN = 1.05; // a larger share means that the ceiling was measured too low
const NEAR = 1.6; // two slopes closer than this are drawn as one, and rows of such peaks have one kind of mark

export function mount(place) {
  const state = { machine: "epyc-zen4", operation: "dense products", chosen: 0 };
  const chart = svg("svg", {
    class: "roofline",
    role: "application",
    tabindex: 0,
    "aria-label": "rows under their ceilings; arrow keys choose a row",
  });
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  const offered = element("div", { className: "operations" });
  const far = element("span", { className: "key-of far" });
  const rows = element("tbody");
  const box = element("div", {
    className: "rows",
    tabIndex: 0,
    role: "region",
    ariaLabel: "all rows of this operation",
  });
  const head = ["row", "op/byte", "ceiling", "measured", "share"].map((name) =>
    element("th", { scope: "col" }, name),
  );

  const machine = () => measurements[state.machine];
  const points = () => machine().operations[state.operation];

  function chooseMachine(name) {
    state.machine = name;
    const names = Object.keys(machine().operations);
    if (!names.includes(state.operation)) state.operation = names[0];
    const of = (all) => Object.fromEntries(all.map((each) => [each, each]));
    offered.replaceChildren(choices("operation", of(names), state.operation, chooseOperation));
    chooseOperation(state.operation);
  }
  function chooseOperation(name) {
    state.operation = name;
    state.chosen = 0;
    rows.replaceChildren(...points().map(line));
    draw();
  }
  function choose(index) {
    state.chosen = index;
    draw();
  }

  function line(point, index) {
    const { intensity, ceiling } = roof(point);
    const numbers = [intensity, ceiling, point.rate].map((x) => number(x, 3));
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, element("button", { type: "button", onclick: () => choose(index) }, point.row)),
      ...[...numbers, percent(share(point))].map((text) => element("td", {}, text)),
    );
  }

  function draw() {
    const width = Math.max(chart.clientWidth, 280);
    const height = chart.clientHeight || 330;
    const all = Object.values(machine().operations).flat();
    const intensities = extent(all.map((point) => roof(point).intensity));
    const rates = extent(
      all.flatMap(({ rate, peak }) => [rate, peak]),
      1.1,
    );
    const x = axis(intensities, MARGIN.left, width - MARGIN.right);
    const y = axis(rates, height - MARGIN.bottom, MARGIN.top);
    const point = points()[state.chosen];
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.replaceChildren(
      ...frame(intensities, rates, x, y, width, height),
      ...ceilings(point, machine().memory, intensities, rates, x, y),
      ...points().map((each) => mark(each, x, y, alike(each, point) ? "point" : "point other", 4)),
      ...gap(point, x, y),
    );
    chart.onpointermove = (event) => nearest(event, x, y);
    chart.onpointerdown = chart.onpointermove;
    [...rows.children].forEach((row, index) => row.classList.toggle("chosen", index === state.chosen));
    show(rows.children[state.chosen]);
    far.textContent = `from memory, ${number(machine().memory, 3)} GB/s`;
    sentence.textContent = describe(point, machine().runs[point.benchmark]);
  }

  // Scrolls the list, and not the page, to a row; the line with the names stays above it.
  function show({ offsetTop, offsetHeight }) {
    const lowest = offsetTop + offsetHeight - box.clientHeight;
    box.scrollTop = Math.min(Math.max(box.scrollTop, lowest), offsetTop - rows.parentNode.tHead.offsetHeight);
  }

  // Chooses the row whose mark is next to the pointer.
  function nearest({ clientX, clientY }, x, y) {
    const box = chart.getBoundingClientRect();
    const distances = points().map((point) =>
      Math.hypot(x(roof(point).intensity) - (clientX - box.left), y(point.rate) - (clientY - box.top)),
    );
    const index = distances.indexOf(Math.min(...distances));
    if (index !== state.chosen) choose(index);
  }
  chart.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(Math.min(Math.max(state.chosen + step, 0), points().length - 1));
  };

  const names = Object.keys(measurements);
  place.replaceChildren(
    element("figcaption", {}, "Measured rows under their ceilings: two threads, both axes logarithmic"),
    element(
      "div",
      { className: "controls" },
      choices("machine", Object.fromEntries(names.map((name) => [name, name])), state.machine, chooseMachine),
      offered,
    ),
    chart,
    element(
      "p",
      { className: "legend" },
      ...[
        ["slope", "bandwidth × operations per byte"],
        ["flat", "peak of the multiply units"],
        ["measured", "measured; faint: with another peak"],
      ].map(([kind, label]) => element("span", { className: `key-of ${kind}` }, label)),
      far,
    ),
    sentence,
    box,
  );
  box.append(element("table", {}, element("thead", {}, element("tr", {}, ...head)), rows));
  place.classList.add("mounted");
  chooseMachine(state.machine);
  new ResizeObserver(draw).observe(chart);
}

function operations(count) {
  return count < 1e9 ? `${number(count / 1e6, 3)} million operations` : `${number(count / 1e9, 3)} billion operations`;
}

function percent(x) {
  return `${Math.round(100 * x)} %`;
}

function frame(intensities, rates, x, y, width, height) {
  const text = (content, attributes) => svg("text", { class: "axis", ...attributes }, content);
  const bottom = height - MARGIN.bottom;
  const every = width < 420 ? 2 : 1; // labels of neighbouring powers would touch
  return [
    ...decades(intensities).flatMap((value, i) => [
      svg("line", { x1: x(value), x2: x(value), y1: MARGIN.top, y2: bottom, class: "grid" }),
      i % every ? "" : text(number(value), { x: x(value), y: bottom + 21, "text-anchor": "middle" }),
    ]),
    ...decades(rates).flatMap((value) => [
      svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value), class: "grid" }),
      text(number(value), { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }),
    ]),
    text("operations per byte", { x: (MARGIN.left + width) / 2, y: height - 6, "text-anchor": "middle" }),
    text("GFLOP/s", { x: 2, y: 12 }),
  ];
}

// The two ceilings of a row, and the slope of memory where the row's own is another: its data is in a cache.
function ceilings({ peak, bandwidth }, memory, [least, most], [lowest], x, y) {
  const slope = (rate, kind, label) => {
    const first = Math.max(least, lowest / rate);
    const last = peak / rate;
    const [x1, x2, y1, y2] = [x(first), x(last), y(first * rate), y(peak)];
    const angle = (180 / Math.PI) * Math.atan2(y2 - y1, x2 - x1);
    const middle = `translate(${(x1 + x2) / 2} ${(y1 + y2) / 2}) rotate(${angle})`;
    return [
      svg("line", { x1, x2, y1, y2, class: kind }),
      svg("text", { transform: middle, y: -6, class: "label", "text-anchor": "middle" }, label),
    ];
  };
  const own = bandwidth === null ? [] : slope(bandwidth, "slope", `${number(bandwidth, 3)} GB/s`);
  const apart = bandwidth === null || bandwidth / memory > NEAR;
  const far = apart ? slope(memory, "slope far", "") : []; // the legend names it
  const from = bandwidth === null ? least : Math.max(peak / bandwidth, least);
  const right = x(most);
  return [
    ...far,
    ...own,
    svg("line", { x1: x(from), x2: right, y1: y(peak), y2: y(peak), class: "flat" }),
    svg("text", { x: right, y: y(peak) - 6, class: "label", "text-anchor": "end" }, `peak ${number(peak, 3)} GFLOP/s`),
  ];
}

function alike({ peak: one }, { peak: other }) {
  return Math.max(one, other) / Math.min(one, other) < NEAR;
}

function mark(point, x, y, kind, r) {
  return svg("circle", { cx: x(roof(point).intensity), cy: y(point.rate), r, class: kind });
}

// The chosen row, and the line up to its ceiling.
function gap(point, x, y) {
  const { intensity, ceiling } = roof(point);
  const at = x(intensity);
  return [
    svg("line", { x1: at, x2: at, y1: y(point.rate), y2: y(ceiling), class: "gap" }),
    mark(point, x, y, "chosen", 6),
  ];
}

function describe(point, run) {
  const { intensity, ceiling, limit } = roof(point);
  const reached = share(point);
  const rate = (x) => `${number(x, 3)} GFLOP/s`;
  const doubt = reached > UNKNOWN ? " More than 105 %: the ceiling was measured too low, so the share is unknown." : "";
  return (
    `${point.row}: ${operations(point.flops)} over ${bytes(point.bytes)} are ${number(intensity, 3)} per byte. ` +
    `The limit is ${limit}, ${rate(ceiling)}; measured ${rate(point.rate)}, ` +
    `${percent(reached)}.${doubt} (${run})`
  );
}
