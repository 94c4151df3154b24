// Which blocks of the score matrix a tiled kernel reads.
const KINDS = ["skipped: no key is visible", "computed, without a mask", "computed, with a mask"];
const COLORS = ["--skipped", "--computed", "--diagonal"];
const PATTERN_WIDTH = 420;
const blockLines = make("div", { className: "lines" });
const blockMatrix = new Matrix("Blocks of queries and keys. The arrow keys move between blocks.", (row, column) => showBlock(row, column));

const chosenPattern = () => data.patterns.find(
  (each) => each.kind === element("kind").value && each.block_size === Number(element("block").value));

function buildPattern() {
  for (const kind of new Set(data.patterns.map((each) => each.kind))) element("kind").add(new Option(kind, kind));
  const sizes = [...new Set(data.patterns.map((each) => each.block_size))];
  for (const size of sizes) element("block").add(new Option(size, size));
  element("block").value = sizes.find((size) => length / size <= 16) ?? sizes[0];
  for (const list of ["kind", "block"]) {
    element(list).addEventListener("change", () => { blockMatrix.row = blockMatrix.column = 0; drawPattern(); });
  }
  blockMatrix.row = blockMatrix.column = 0;
  blockMatrix.box.append(blockLines);
  element("blocks").append(blockMatrix.box);
}

function drawPattern() {
  const pattern = chosenPattern();
  const count = pattern.rows.length;
  const room = Math.min(element("blocks").clientWidth || PATTERN_WIDTH, PATTERN_WIDTH);
  const cell = Math.max(Math.floor(room / count), 4);
  const colors = COLORS.map(rgbOf);
  blockMatrix.paint(count, count, cell, (row, column) => colors[pattern.rows[row][column]]);
  blockLines.style.backgroundSize = `${cell}px ${cell}px`;
  const { computed, total, skipped, savings_percent: share } = pattern;
  element("block-count").textContent = `${computed} of ${total} blocks are computed, ${skipped} are skipped (${share} %).`;
  showBlock(blockMatrix.row, blockMatrix.column);
}

function showBlock(row, column) {
  const pattern = chosenPattern();
  blockMatrix.moveTo(row, column);
  const span = (block) => {
    const first = block * pattern.block_size;
    const last = Math.min(first + pattern.block_size, length) - 1;
    return first === last ? `${first}` : `${first} to ${last}`;
  };
  element("block-readout").textContent = `queries ${span(row)}, keys ${span(column)}: ${KINDS[pattern.rows[row][column]]}`;
}
