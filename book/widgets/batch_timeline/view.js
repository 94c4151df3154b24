// Three time lines over one axis: rows are requests, colours say what a step does for each of them.

import { checkbox, element, number, slider, svg } from "#widgets/common/dom.js";
import { bars, budgetSteps, figures, fit, rowsOf, staticSteps, stepAt } from "#widgets/batch_timeline/model.js";
import trace from "#widgets/batch_timeline/trace.json";

const WIDTH = 1000; // of a time line; it is stretched to the page
const HEIGHT = 10; // of a row
const KINDS = [
  ["prompt", "tokens of its prompt"],
  ["decode", "one token of its answer"],
  ["waits", "waits"],
  ["padding", "has ended, and is still computed"],
];

export function mount(place) {
  const { continuous, chunked } = trace.runs;
  const cost = fit([...continuous.steps, ...chunked.steps]);
  const recorded = trace.requests;
  const chosen = { simulated: false, prompt: recorded[trace.long].prompt, budget: chunked.budget, places: trace.places, at: 0.3 };
  const panels = element("div", { className: "panels" });
  const results = element("div", { className: "results" });
  const note = element("p", { className: "sentence" });
  const set = (change) => {
    Object.assign(chosen, change);
    draw();
  };

  function runs() {
    const { simulated, prompt, budget, places } = chosen;
    const most = simulated ? Math.max(budget, places) : chunked.budget; // each place decodes a token
    const requests = recorded.map((each, i) => (simulated && i === trace.long ? { ...each, prompt } : each));
    const made = (steps) => ({ requests, steps, how: "simulated" });
    const seen = ({ steps }) => ({ requests, steps, how: "recorded" });
    return [
      { title: "Static batches", short: "static", ...made(staticSteps(requests, simulated ? places : trace.places, cost)) },
      {
        title: "Continuous, whole prompts",
        short: "whole prompts",
        ...(simulated ? made(budgetSteps(requests, places, Infinity, cost)) : seen(continuous)),
      },
      {
        title: `Continuous, at most ${most} tokens a step`,
        short: `${most} tokens a step`,
        ...(simulated ? made(budgetSteps(requests, places, most, cost)) : seen(chunked)),
      },
    ].map((run) => ({ ...run, ...figures(run.requests, run.steps) }));
  }

  function draw() {
    const all = runs();
    const longest = Math.max(...all.map(({ duration }) => duration));
    const now = chosen.at * longest;
    panels.replaceChildren(...all.map((run) => panel(run, longest, now)));
    results.replaceChildren(table(all));
    note.textContent = chosen.simulated
      ? `All three are simulated. A step takes ${number(cost.base, 3)} ms and ${number(cost.perToken, 3)} ms for each row, ` +
        "which is the line through the recorded steps."
      : `Recorded with ${trace.command} on ${trace.machine}, ${trace.model}. The time of a step is its processor ` +
        `time, the shortest of ${trace.repeats} runs. Static batches are simulated.`;
    for (const control of extras) control.hidden = !chosen.simulated;
  }

  const extras = [
    slider("tokens of E's prompt", [24, 100, 200, 400, 600, 800, 1200, 1600], chosen.prompt, (prompt) => set({ prompt })),
    slider("budget of a step", [8, 16, 32, 64, 128, 256, 512], chosen.budget, (budget) => set({ budget })),
    slider("places", [1, 2, 3, 4, 6, 8], chosen.places, (places) => set({ places })),
  ];
  const time = element("input", {
    type: "range",
    min: 0,
    max: 1000,
    value: 1000 * chosen.at,
    oninput: () => set({ at: time.value / 1000 }),
  });
  // A time line is a slider, too: press or drag.
  for (const kind of ["pointerdown", "pointermove"]) {
    panels.addEventListener(kind, (event) => {
      const box = panels.querySelector("svg").getBoundingClientRect();
      if (event.buttons !== 1 || event.clientX < box.left) return;
      time.value = (1000 * (event.clientX - box.left)) / box.width;
      set({ at: time.value / 1000 });
    });
  }
  place.replaceChildren(
    element("figcaption", {}, `${recorded.length} requests that arrive together: who is computed when`),
    element(
      "p",
      { className: "legend" },
      ...KINDS.map(([kind, label]) => element("span", { className: `key-of ${kind}` }, label)),
    ),
    element("label", { className: "time" }, element("span", {}, "time"), time),
    panels,
    results,
    element(
      "div",
      { className: "controls" },
      checkbox("simulate all three", false, (simulated) => set({ simulated })),
      ...extras,
    ),
    note,
  );
  place.classList.add("mounted");
  draw();
}

function panel({ title, how, requests, steps, duration }, longest, now) {
  const scale = WIDTH / longest;
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT * requests.length}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `${title}, ${how}: all ${requests.length} answers after ${number(duration, 3)} ms`,
  });
  bars(requests, steps).forEach((row, line) =>
    row.forEach(({ from, to, kind }) =>
      picture.append(
        svg("rect", {
          x: from * scale,
          y: line * HEIGHT + 1,
          width: apart((to - from) * scale),
          height: HEIGHT - 2,
          class: `bar-of ${kind}`,
        }),
      ),
    ),
  );
  const x = Math.min(now * scale, WIDTH - 1);
  picture.append(svg("line", { x1: x, x2: x, y1: 0, y2: HEIGHT * requests.length, class: "now" }));
  return element(
    "section",
    { className: "panel" },
    element("p", { className: "title" }, element("b", {}, title), ` (${how})`),
    element("div", { className: "names", ariaHidden: "true" }, ...requests.map(({ name }) => element("span", {}, name))),
    picture,
    element("p", { className: "moment" }, moment(requests, steps, now)),
  );
}

// Steps can be told apart where they are wide enough.
const apart = (width) => (width > 7 ? width - 1.4 : 0.8 * width);

function moment(requests, steps, now) {
  const step = stepAt(steps, now);
  if (step === null) return `${number(now, 3)} ms: all have ended.`;
  const { ms, rows, padding = 0 } = steps[step];
  const decodes = rows.filter((row) => row[2]).map(([each]) => requests[each].name);
  const prompts = rows.filter((row) => !row[2]).map(([each, tokens]) => `${tokens} of ${requests[each].name}`);
  const parts = [];
  if (decodes.length) parts.push(`a token each for ${decodes.join(" ")}`);
  if (prompts.length) parts.push(`prompt tokens: ${prompts.join(", ")}`);
  if (padding) parts.push(`${padding} rows of padding`);
  return `${number(now, 3)} ms, step ${step + 1} of ${steps.length}, ${rowsOf(rows) + padding} rows in ${number(ms, 3)} ms: ${parts.join("; ")}.`;
}

const COLUMNS = [
  ["all answers", "duration", "ms"],
  ["answer tokens", "rate", "/s"],
  ["first token, mean", "meanFirst", "ms"],
  ["largest gap", "largestGap", "ms"],
];

function table(all) {
  const head = element("tr", {}, element("th", { scope: "col" }, "policy"), ...COLUMNS.map(([label]) => element("th", { scope: "col" }, label)));
  const rows = all.map((run) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, run.short),
      ...COLUMNS.map(([, key, unit]) => element("td", {}, `${number(run[key], 3)} ${unit}`)),
    ),
  );
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}
