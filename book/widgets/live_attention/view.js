// Attention weights of the built-in model: a matrix for a layer and a head, and where one token looks.

import { button, element, slider, svg } from "#widgets/common/dom.js";
import { entropy, hiddenPath, label, looksAt } from "#widgets/live_attention/model.js";
import recorded from "#widgets/live_attention/recorded.json";

const LABELS = 88; // room for the names of tokens, left and above
const [SMALLEST, LARGEST] = [13, 24]; // sides of a cell
const LISTED = 4;

export function mount(place) {
  // The server of the book names the route to the model; pages from files have none.
  const endpoint = document.querySelector("meta[name=attention-endpoint]")?.content;
  let { tokens, weights } = recorded;
  let layer = 3; // whose last query finds the name in the recorded question
  let head = 2;
  let query = tokens.length - 1;

  const controls = element("div", { className: "controls" });
  const matrix = element("div", { className: "matrix", tabIndex: 0, role: "group" });
  const text = element("p", { className: "looks" });
  const sentence = element("p", { className: "sentence", ariaLive: "polite" });
  let rowMark, columnMark, cell;

  // Each prompt has its own number of tokens, so the slider of the query is made again.
  function show(answer) {
    ({ tokens, weights } = answer);
    query = tokens.length - 1;
    const room = Math.floor((matrix.clientWidth - LABELS) / tokens.length);
    cell = Math.min(Math.max(room, SMALLEST), LARGEST);
    controls.replaceChildren(
      slider("layer", [...weights.keys()], layer, (to) => {
        layer = to;
        drawMatrix();
      }),
      slider("head", [...weights[0].keys()], head, (to) => {
        head = to;
        drawMatrix();
      }),
    );
    drawMatrix();
  }

  function drawMatrix() {
    const side = tokens.length * cell;
    const rows = weights[layer][head];
    const cells = rows.flatMap((row, i) =>
      row.map((weight, j) => {
        const place = { x: j * cell, y: i * cell, width: cell, height: cell };
        // The square root keeps small weights visible.
        return svg("rect", { ...place, class: "weight", "fill-opacity": Math.sqrt(weight).toFixed(3) });
      }),
    );
    const names = tokens.flatMap((token, i) => {
      const middle = (i + 0.5) * cell;
      const size = Math.min(11, cell - 3);
      const left = { x: -6, y: middle, "text-anchor": "end", "dominant-baseline": "central", "font-size": size };
      const above = { "dominant-baseline": "central", "font-size": size, transform: `translate(${middle} -6) rotate(-90)` };
      return [svg("text", left, label(token)), svg("text", above, label(token))];
    });
    rowMark = svg("rect", { x: 0, width: side, height: cell, class: "row-mark" });
    columnMark = svg("rect", { y: 0, width: cell, class: "column-mark" });
    const drawing = svg(
      "svg",
      {
        viewBox: `${-LABELS} ${-LABELS} ${side + LABELS + 1} ${side + LABELS + 1}`,
        width: side + LABELS + 1,
        height: side + LABELS + 1,
        "aria-hidden": "true", // the sentence says what a row has
      },
      svg("path", { d: hiddenPath(tokens.length, cell), class: "hidden" }),
      ...cells,
      svg("rect", { x: 0, y: 0, width: side, height: side, class: "frame" }),
      ...names,
      columnMark,
      rowMark,
    );
    const at = (event) => {
      const box = drawing.getBoundingClientRect();
      const scale = (side + LABELS + 1) / box.width;
      const row = Math.floor(((event.clientY - box.top) * scale - LABELS) / cell);
      if (row >= 0 && row < tokens.length) look(row);
    };
    drawing.onpointermove = (event) => event.pointerType === "mouse" && at(event);
    drawing.onclick = at;
    matrix.replaceChildren(drawing);
    matrix.ariaLabel = `weights of layer ${layer}, head ${head}; arrow keys up and down choose a query`;
    look(query);
  }

  function look(at) {
    query = Math.min(Math.max(at, 0), tokens.length - 1);
    const row = weights[layer][head][query];
    rowMark.setAttribute("y", query * cell);
    columnMark.setAttribute("x", query * cell);
    columnMark.setAttribute("height", tokens.length * cell);
    text.replaceChildren(
      ...tokens.map((token, j) => {
        const made = element("span", { className: j === query ? "query" : j > query ? "later" : "" }, token.replaceAll("\n", "⏎\n") || "∅");
        made.style.setProperty("--weight", row[j] ?? 0);
        return made;
      }),
    );
    const found = looksAt(row, LISTED).map(({ key, weight }) => `“${label(tokens[key])}” ${Math.round(100 * weight)} %`);
    sentence.textContent =
      `Token ${query}, “${label(tokens[query])}”, looks at ${found.join(", ")}. ` +
      `It sees ${query + 1} of ${tokens.length} tokens; entropy ${entropy(row).toFixed(2)} bits.`;
  }

  matrix.onkeydown = (event) => {
    const to = { ArrowUp: query - 1, ArrowDown: query + 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    look(to);
  };

  place.replaceChildren(
    element("figcaption", {}, "Attention weights of the built-in model: queries from top to bottom, keys from left to right"),
    endpoint ? promptForm(endpoint, recorded.question, show) : recordedNote(),
    controls,
    matrix,
    element(
      "p",
      { className: "legend" },
      ...[["query", "the query"], ["loaded", "weight: the stronger the colour, the larger"], ["hidden", "hidden by the causal mask"]].map(
        ([kind, text]) => element("span", { className: `key-of ${kind}` }, text),
      ),
    ),
    text,
    sentence,
  );
  place.classList.add("mounted");
  show(recorded);
}

function recordedNote() {
  return element(
    "p",
    { className: "note" },
    "A recorded question, in the chat template. ",
    element("code", {}, "pdm run book"),
    " serves this page with the model, for questions of your own.",
  );
}

function promptForm(endpoint, prompt, show) {
  const input = element("input", { type: "text", value: prompt, maxLength: 1000, spellcheck: false });
  const send = button("Show its attention", () => {});
  const status = element("p", { className: "note", role: "status" }, "Up to 64 tokens with the chat template, which the model always gets around a question.");
  let busy = false;
  send.type = "submit";
  const form = element("form", { className: "prompt" }, element("label", {}, element("span", {}, "Your question"), input), send, status);
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    send.ariaDisabled = "true";
    status.textContent = "The model reads the question (before the first one it is loaded) …";
    try {
      const response = await fetch(endpoint, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ prompt: input.value }),
      });
      const answer = await response.json();
      if (response.ok) show(answer);
      status.textContent = response.ok ? `${answer.tokens.length} tokens.` : answer.error;
    } catch (error) {
      status.textContent = `No answer (${error.message}). Is “pdm run book” still running?`;
    }
    busy = false;
    send.ariaDisabled = "false";
  };
  return form;
}
