// A matrix of cells with a cursor for pointer and keyboard, and strips of token labels along its sides.
const FONT = 12;
const LABEL_WIDTH = 92;

class Matrix {
  // `label` is for screen readers; `onMove(row, column)` follows the cursor, `onPick(row, column)` a click.
  constructor(label, onMove, onPick = onMove) {
    this.canvas = make("canvas");
    this.cursor = make("div", { className: "cursor" });
    this.box = make("div", { className: "matrix", tabIndex: 0 }, make("div", { className: "back" }), this.canvas, this.cursor);
    this.box.setAttribute("role", "application");
    this.box.setAttribute("aria-label", label);
    this.onMove = onMove;
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const cell = (offset, count) => Math.min(Math.max(Math.floor(offset / this.cell), 0), count - 1);
      return [cell(event.clientY - box.top, this.rows), cell(event.clientX - box.left, this.columns)];
    };
    this.box.addEventListener("pointermove", (event) => event.pointerType === "mouse" && onMove(...at(event)));
    this.box.addEventListener("click", (event) => onPick(...at(event)));
    this.box.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      if (event.key === "Enter" || event.key === " ") onPick(this.row, this.column);
      else if (event.key in moves) this.step(...moves[event.key]);
      else if (event.key === "Home") this.step(0, -this.columns);
      else if (event.key === "End") this.step(0, this.columns);
      else return;
      event.preventDefault();
    });
  }

  step(down, right) {
    const row = Math.min(Math.max(this.row + down, 0), this.rows - 1);
    this.onMove(row, Math.min(Math.max(this.column + right, 0), this.columns - 1));
    this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // `colorOf(row, column)` is [red, green, blue], or null for a cell that shows the hatched ground.
  paint(rows, columns, cell, colorOf) {
    Object.assign(this, { rows, columns, cell });
    Object.assign(this.canvas, { width: columns, height: rows });
    for (const part of [this.box, this.canvas]) {
      Object.assign(part.style, { width: `${columns * cell}px`, height: `${rows * cell}px` });
    }
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const color = colorOf(row, column);
        if (color) image.data.set([...color, 255], (row * columns + column) * 4);
      }
    }
    context.putImageData(image, 0, 0);
  }

  moveTo(row, column) {
    Object.assign(this, { row, column });
    const { cell } = this;
    const edge = Math.max(cell, 6);
    Object.assign(this.cursor.style, {
      left: `${column * cell + (cell - edge) / 2}px`, top: `${row * cell + (cell - edge) / 2}px`,
      width: `${edge}px`, height: `${edge}px`,
    });
  }
}

// A canvas in device pixels, to draw on in CSS pixels.
function drawing(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 8000 / Math.max(width, height));
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}

// The labels of all tokens along one side; if cells are small, of every second or third and so on.
function drawLabels(canvas, cell, vertical, chosen) {
  const long = length * cell;
  const context = vertical ? drawing(canvas, long, LABEL_WIDTH) : drawing(canvas, LABEL_WIDTH, long);
  context.font = `${FONT}px ui-monospace, Menlo, Consolas, monospace`;
  context.textBaseline = "middle";
  context.textAlign = vertical ? "left" : "right";
  const every = Math.ceil((FONT + 1) / cell);
  const crowded = (token) => token !== chosen && Math.abs(token - chosen) < every;
  for (let token = 0; token < length; token++) {
    if (token !== chosen && (token % every !== 0 || crowded(token))) continue;
    context.fillStyle = variable(token === chosen ? "--accent" : "--text");
    const middle = Math.min(Math.max((token + 0.5) * cell, FONT / 2), long - FONT / 2);
    context.save();
    if (vertical) {
      context.translate(middle, LABEL_WIDTH - 4);
      context.rotate(-Math.PI / 2);
    } else {
      context.translate(LABEL_WIDTH - 4, middle);
    }
    context.fillText(shortened(context, shown(tokens[token]), LABEL_WIDTH - 8), 0, 0);
    context.restore();
  }
}
