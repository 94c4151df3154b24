// A small line of the last values. Times without a value are gaps.
import { makeSvg } from "../dom.js";

const [WIDTH, HEIGHT] = [200, 36];
export const POINTS = 60;

export class Sparkline {
  constructor(lowestTop = 1) {
    this.lowestTop = lowestTop; // the top of the picture is at least this value
    this.values = [];
    this.area = makeSvg("path", { class: "area" });
    this.line = makeSvg("path", { class: "line" });
    const attributes = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "sparkline", "aria-hidden": "true" };
    this.element = makeSvg("svg", attributes, this.area, this.line);
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > POINTS) this.values.shift();
    const { line, area } = paths(this.values, this.lowestTop);
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }
}

// The paths of the line and of the area below it; the last value is at the right edge.
export function paths(values, lowestTop) {
  const top = values.reduce((highest, value) => Math.max(highest, value ?? 0), lowestTop);
  const step = WIDTH / (POINTS - 1);
  const left = WIDTH - (values.length - 1) * step;
  const point = (value, number) =>
    `${(left + number * step).toFixed(1)} ${(HEIGHT - 1 - (value / top) * (HEIGHT - 3)).toFixed(1)}`;
  let [line, area] = ["", ""];
  let start = -1;
  for (let number = 0; number <= values.length; number++) {
    const value = values[number] ?? null;
    if (value !== null && start < 0) start = number;
    if (value !== null || start < 0) continue;
    const points = values.slice(start, number).map((known, offset) => point(known, start + offset));
    line += `M${points.join("L")}${points.length === 1 ? "h0.1" : ""}`;
    const [first, last] = [points[0], points.at(-1)].map((place) => place.split(" ")[0]);
    area += `M${first} ${HEIGHT}L${points.join("L")}L${last} ${HEIGHT}Z`;
    start = -1;
  }
  return { line, area };
}
