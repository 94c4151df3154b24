// The online softmax of one row, one tile after the other. All states come with the page.
const lastStep = () => stepsOf(view.row) + 1; // one for each visited tile, then the division

function buildStepper() {
  element("row").max = length - 1;
  element("row").addEventListener("input", (event) => {
    const row = Number(event.target.value);
    choose({ row, step: 0, cursorRow: row, column: Math.min(view.column, row) });
  });
  element("step").addEventListener("input", (event) => choose({ step: Number(event.target.value) }));
  element("restart").addEventListener("click", () => choose({ step: 0 }));
  element("previous").addEventListener("click", () => choose({ step: Math.max(view.step - 1, 0) }));
  element("next").addEventListener("click", () => choose({ step: Math.min(view.step + 1, lastStep()) }));
}

const keysOf = (tile) => [tile * data.step, Math.min((tile + 1) * data.step - 1, length - 1)];

function drawTiles(step) {
  const visited = stepsOf(view.row);
  const kinds = Array.from({ length: Math.ceil(length / data.step) }, (_, tile) => {
    if (tile >= visited) return "hidden-cell";
    if (tile === step - 1) return "loaded";
    return tile < step - 1 ? "integrated" : "untouched";
  });
  element("tiles").replaceChildren(...kinds.map((kind, tile) => {
    const [first, last] = keysOf(tile);
    return make("span", { className: kind, title: `keys ${first} to ${last}` });
  }));
}

function cells(tag, texts) {
  return texts.map((textContent) => make(tag, { textContent }));
}

function drawStates(step) {
  const visited = stepsOf(view.row);
  const outputs = Array.from({ length: data.outputs }, (_, i) => i);
  const zeros = outputs.map(() => number(0));
  const rows = [["0", "–", "−∞", number(0), "–", ...zeros]];
  for (let tile = 0; tile < Math.min(step, visited); tile++) {
    const { m, l, alpha, output } = stateAt(view.row, tile);
    rows.push([tile + 1, keysOf(tile).join("–"), number(m), number(l), number(alpha), ...output.map(number)]);
  }
  if (step > visited) rows.push(["O′ / l", "–", "–", "–", "–", ...resultAt(view.row).map(number)]);
  const head = cells("th", ["step", "keys", "m", "l", "α", ...outputs.map((i) => `O′[${i}]`)]);
  element("states").replaceChildren(
    make("caption", { textContent: "State after each step" }),
    make("thead", {}, make("tr", {}, ...head)),
    ...rows.map((row, at) => make("tr", { className: at === rows.length - 1 ? "now" : "" }, ...cells("td", row))),
  );
}

function drawKeys(step) {
  const tile = Math.min(Math.max(step - 1, 0), stepsOf(view.row) - 1);
  const [first, end] = keysOf(tile);
  const last = Math.min(end, view.row);
  const rows = [];
  for (let key = first; key <= last; key++) {
    rows.push([`${key} ${shown(tokens[key])}`, number(scoreAt(view.row, key)), number(weightAt(view.row, key))]);
  }
  element("keys").replaceChildren(
    make("caption", { textContent: `Keys ${first} to ${last}, in tile ${tile + 1}` }),
    make("thead", {}, make("tr", {}, ...cells("th", ["key", "score", "weight"]))),
    ...rows.map((row) => make("tr", {}, ...cells("td", row))),
  );
}

function stepText(step) {
  const visited = stepsOf(view.row);
  if (step === 0) return "Start: no key has been read, so m is −∞, and l and O′ are 0.";
  if (step > visited) return `End: O = O′ / l, one division for the row. LSE = m + log(l) = ${number(lseAt(view.row))}.`;
  const [first, end] = keysOf(step - 1);
  const last = Math.min(end, view.row);
  const { m, alpha } = stateAt(view.row, step - 1);
  const before = `Tile ${step} of ${visited}, keys ${first} to ${last}: `;
  if (step === 1) return `${before}m becomes ${number(m)}. α is 0, because there was nothing to rescale.`;
  if (alpha === 1) return `${before}no score is above m, so α is 1 and nothing is rescaled.`;
  return `${before}m grows to ${number(m)}, so l and O′ are multiplied by α = ${number(alpha)} first.`;
}

function drawStepper() {
  const step = view.step;
  element("row").value = view.row;
  element("row-name").textContent = `${view.row} “${shown(tokens[view.row])}”`;
  element("step").max = lastStep();
  element("step").value = step;
  element("step-name").textContent = `${step} of ${lastStep()}`;
  element("previous").disabled = element("restart").disabled = step === 0;
  element("next").disabled = step === lastStep();
  element("step-text").textContent = stepText(step);
  drawTiles(step);
  drawStates(step);
  drawKeys(step);
}
