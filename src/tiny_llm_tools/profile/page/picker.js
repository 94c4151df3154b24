// The choice of layer and head: two lists, and a table of buttons coloured by mean entropy.
const means = data.mean_entropy.flat();
const [lowest, highest] = [Math.min(...means), Math.max(...means)];
const headButtons = [];
const MANY_HEADS = 10; // their buttons are smaller, so that 16 fit side by side

function buildPicker() {
  for (let layer = 0; layer < data.layers; layer++) element("layer").add(new Option(layer, layer));
  for (let head = 0; head < data.heads; head++) element("head").add(new Option(head, head));
  element("layer").addEventListener("change", (event) => choose({ layer: Number(event.target.value) }));
  element("head").addEventListener("change", (event) => choose({ head: Number(event.target.value) }));
  const table = make("table");
  const names = make("tr", {}, make("th"));
  const every = data.heads > MANY_HEADS ? 4 : 1;
  element("picker").classList.toggle("many", data.heads > MANY_HEADS);
  for (let head = 0; head < data.heads; head++) {
    names.append(make("th", { scope: "col", textContent: head % every ? "" : `H${head}` }));
  }
  table.append(make("thead", {}, names));
  for (let layer = 0; layer < data.layers; layer++) {
    const row = make("tr", {}, make("th", { scope: "row", textContent: `L${layer}` }));
    for (let head = 0; head < data.heads; head++) {
      const bits = number(data.mean_entropy[layer][head]);
      const button = make("button", { type: "button", title: `layer ${layer}, head ${head}: ${bits} bits` });
      button.setAttribute("aria-label", button.title);
      button.addEventListener("click", () => choose({ layer, head }));
      button.addEventListener("keydown", (event) => moveInPicker(event, layer, head));
      headButtons.push(button);
      row.append(make("td", {}, button));
    }
    table.append(row);
  }
  element("picker").append(table);
  element("picker-low").textContent = `${number(lowest)} bits`;
  element("picker-high").textContent = `${number(highest)} bits`;
}

function moveInPicker(event, layer, head) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const [down, right] = moves[event.key];
  layer = Math.min(Math.max(layer + down, 0), data.layers - 1);
  head = Math.min(Math.max(head + right, 0), data.heads - 1);
  choose({ layer, head });
  headButtons[headNumber()].focus();
}

function drawPicker() {
  headButtons.forEach((button, at) => {
    const chosen = at === headNumber();
    button.style.background = css(ramp((means[at] - lowest) / (highest - lowest || 1)));
    button.setAttribute("aria-pressed", chosen);
    button.tabIndex = chosen ? 0 : -1;
  });
  element("layer").value = view.layer;
  element("head").value = view.head;
  for (const name of document.querySelectorAll(".chosen")) name.textContent = `layer ${view.layer}, head ${view.head}`;
}
