// The weights of one head: cells, token labels on both axes, the entropy of each row, and the largest weights.
const ENTROPY_WIDTH = 46;
const LARGEST = 8;
const SHORT_PROMPT = 96;
const HEIGHT = 0.85; // of the window; page.css has the same limit
const [SMALLEST_CELL, READABLE_CELL, LARGEST_CELL] = [2, 13, 44];
const topLabels = make("canvas", { className: "strip top" });
const leftLabels = make("canvas", { className: "strip left" });
const entropyStrip = make("canvas", { className: "strip" });
const rowMark = make("div", { className: "row-mark" });
const heatmap = new Matrix("Attention weights. The arrow keys move between cells; Enter chooses the row.",
  (row, column) => showCell(row, column), (row, column) => { choose({ row, step: 0 }); showCell(row, column); });
let cellSize = 0;

function buildHeatmap() {
  heatmap.box.append(rowMark);
  const corner = make("div", { className: "corner" });
  const grid = make("div", { className: "heat-grid" }, corner, topLabels, make("div"), leftLabels, heatmap.box, entropyStrip);
  element("weights").append(grid);
  for (const canvas of [topLabels, leftLabels, entropyStrip]) canvas.setAttribute("aria-hidden", "true");
  element("contrast").addEventListener("change", () => choose({}));
  element("fit").addEventListener("click", () => zoom(fittingCell()));
  element("smaller").addEventListener("click", () => zoom(cellSize / 1.3));
  element("larger").addEventListener("click", () => zoom(cellSize * 1.3));
  // A short prompt starts with readable labels, a long one as a whole.
  cellSize = length <= SHORT_PROMPT ? Math.max(fittingCell(), READABLE_CELL) : fittingCell();
}

function fittingCell() {
  const wide = element("weights").clientWidth - LABEL_WIDTH - ENTROPY_WIDTH - 4;
  const high = HEIGHT * window.innerHeight - LABEL_WIDTH - 4;
  return Math.min(Math.max(Math.floor(Math.min(wide, high) / length), SMALLEST_CELL), LARGEST_CELL);
}

function zoom(cell) {
  cellSize = Math.round(Math.min(Math.max(cell, SMALLEST_CELL), 80));
  choose({});
}

function showCell(row, column) {
  Object.assign(view, { cursorRow: row, column });
  heatmap.moveTo(row, column);
  drawLabels(topLabels, cellSize, true, column);
  drawLabels(leftLabels, cellSize, false, row);
  const pair = `query ${row} “${shown(tokens[row])}” → key ${column} “${shown(tokens[column])}”: `;
  const bits = `entropy of the row ${number(entropyAt(row))} bits`;
  element("weight-readout").textContent = column > row
    ? `${pair}hidden, the key is later than the query`
    : `${pair}weight ${number(weightAt(row, column))}, score ${number(scoreAt(row, column))}; ${bits}`;
}

function drawEntropy() {
  const context = drawing(entropyStrip, ENTROPY_WIDTH, length * cellSize);
  const most = Math.log2(length) || 1;
  context.fillStyle = variable("--integrated");
  for (let row = 0; row < length; row++) {
    const gap = cellSize > 4 ? 1 : 0;
    const wide = (ENTROPY_WIDTH - 8) * (entropyAt(row) / most);
    context.fillRect(6, row * cellSize + gap, Math.max(wide, 1), cellSize - 2 * gap);
  }
}

function drawLargest() {
  const keys = Array.from({ length: view.row + 1 }, (_, key) => key);
  keys.sort((a, b) => weightAt(view.row, b) - weightAt(view.row, a));
  element("largest").replaceChildren(...keys.slice(0, LARGEST).map((key) => {
    const weight = weightAt(view.row, key);
    const bar = make("span", { className: "bar" });
    bar.style.width = `${100 * weight}%`;
    const name = make("code", { textContent: `${key} ${shown(tokens[key])}`, title: shown(tokens[key]) });
    return make("li", {}, name, make("span", {}, bar), make("span", { className: "number", textContent: number(weight) }));
  }));
}

function drawHeatmap() {
  const power = Number(element("contrast").value);
  heatmap.paint(length, length, cellSize, (row, key) => (key > row ? null : ramp(weightAt(row, key) ** power)));
  const [top, height] = [view.row * cellSize, cellSize];
  Object.assign(rowMark.style, { top: `${top}px`, width: `${length * cellSize}px`, height: `${height}px` });
  drawEntropy();
  drawLargest();
  showCell(view.cursorRow ?? view.row, view.column);
}
