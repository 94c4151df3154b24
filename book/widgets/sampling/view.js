// The sampler on recorded logits: sliders in the order in which they act, the distribution, and draws from it.

import { button, element, slider } from "#widgets/common/dom.js";
import { NEUTRAL, distribution, draw, entropy, ranked, softmax, uniforms } from "#widgets/sampling/model.js";
import recorded from "#widgets/sampling/recorded.json";
import { tokenTable } from "#widgets/sampling/table.js";

const SHOWN = 10; // tokens with a row of their own
const OFF = "off"; // of a filter; the model has its neutral value
const PENALTIES = [-2, -1, -0.5, 0, 0.5, 1, 2];
// The name of a parameter, its label, and its values from weak to strong.
const STEPS = [
  [
    "Penalties change logits",
    ["repetition", "repetition", [1, 1.05, 1.1, 1.2, 1.3, 1.5, 2]],
    ["presence", "presence", PENALTIES],
    ["frequency", "frequency", PENALTIES],
  ],
  [
    "Filters remove tokens",
    ["topK", "top-k", [OFF, 1000, 100, 40, 20, 10, 5, 3, 2, 1]],
    ["topP", "top-p", [OFF, 0.99, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1]],
    ["minP", "min-p", [OFF, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]],
  ],
  [
    "The rest is drawn",
    ["temperature", "temperature", Array.from({ length: 21 }, (_, i) => i / 10)],
    ["seed", "seed", Array.from({ length: 20 }, (_, i) => i + 1)],
  ],
];

export function mount(place) {
  let example = recorded.examples[0];
  let parameters, before, rows, seen, now, uniform, counts, total;

  const text = element("p", { className: "text" });
  const controls = element("div", { className: "steps" });
  const { table, show } = tokenTable();
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  const drawn = element("p", { className: "sentence", ariaLive: "polite" });
  const choices = recorded.examples.map((each) => button(each.name, () => choose(each)));

  function choose(to) {
    example = to;
    const logits = Float64Array.from(example.logits);
    before = softmax(logits);
    rows = ranked(logits).slice(0, SHOWN);
    seen = new Set([...example.prompt, ...example.answer]);
    choices.forEach((each) => {
      each.ariaPressed = String(each.textContent === example.name);
    });
    text.replaceChildren(
      element("span", { className: "question" }, example.question),
      element("span", { className: "answer" }, example.answer.map((token) => recorded.tokens[token]).join("")),
      element("span", { className: "next" }, "?"),
    );
    update();
  }

  function reset() {
    parameters = { ...NEUTRAL, seed: 1 };
    controls.replaceChildren(
      ...STEPS.map(([title, ...sliders], number) =>
        element(
          "div",
          { role: "group", ariaLabel: title },
          element("p", { className: "step" }, `${number + 1}. ${title}`),
          ...sliders.map(([name, label, values]) =>
            slider(label, values, values[0] === OFF ? OFF : parameters[name], (value) => {
              parameters[name] = value === OFF ? NEUTRAL[name] : value;
              update();
            }),
          ),
        ),
      ),
    );
    choose(example);
  }

  // Draws belong to one distribution and one seed: with another they start again.
  function update() {
    now = distribution(example, parameters);
    uniform = uniforms(parameters.seed);
    counts = new Map();
    total = 0;
    sentence.textContent = describe(now, before, parameters);
    drawn.textContent = "Nothing has been drawn with these settings. Equal seeds give equal draws.";
    showTable();
  }

  function take(times) {
    let last;
    for (let i = 0; i < times; i++) {
      last = draw(now, uniform());
      counts.set(last, (counts.get(last) ?? 0) + 1);
    }
    total += times;
    const many = total === 1 ? "One token has been drawn" : `${total} tokens have been drawn`;
    drawn.textContent = `${many}, the last is “${recorded.tokens[last].replaceAll(" ", "␣")}”.`;
    showTable();
  }

  function showTable() {
    const lines = rows.map((token) => ({
      name: recorded.tokens[token],
      before: before[token],
      after: now.probabilities[token],
      drawn: counts.get(token) ?? 0,
      removedBy: now.removedBy[token],
      seen: seen.has(token),
    }));
    const rest = (whole, name) => lines.reduce((left, line) => left - line[name], whole);
    const others = {
      name: `${before.length - SHOWN} others`,
      before: rest(1, "before"),
      after: rest(1, "after"),
      drawn: rest(total, "drawn"),
    };
    show(lines, others, total);
  }

  const legend = { before: "softmax of the logits", after: "after all settings", drawn: "share of the draws" };
  place.replaceChildren(
    element("figcaption", {}, "The next token of the built-in model, from its real logits"),
    element("div", { className: "controls", role: "group", ariaLabel: "example" }, ...choices),
    text,
    controls,
    element(
      "p",
      { className: "legend" },
      ...Object.entries(legend).map(([kind, label]) => element("span", { className: `key-of ${kind}` }, label)),
      element("span", {}, "• already in prompt or answer"),
    ),
    table,
    sentence,
    element(
      "div",
      { className: "controls" },
      button("Draw one", () => take(1)),
      button("Draw 100", () => take(100)),
      button("Start again", reset),
    ),
    drawn,
  );
  place.classList.add("mounted");
  reset();
}

function describe({ removedBy, order, probabilities }, before, { temperature }) {
  if (temperature === 0) return "At temperature 0 the most probable token is taken; nothing is drawn.";
  const removed = (filter) => removedBy.filter((by) => by === filter).length;
  const filters = ["top-k", "top-p", "min-p"].filter(removed).map((by) => `${by} removed ${removed(by)}`);
  const left = order.length === before.length ? "All" : order.length;
  const how = filters.length ? ` (${filters.join(", ")})` : "";
  return (
    `${left} of ${before.length} tokens can be drawn${how}. ` +
    `The choice has ${entropy(probabilities).toFixed(2)} bits, without settings ${entropy(before).toFixed(2)}: ` +
    "with b bits it is as open as one of 2^b equal tokens."
  );
}
