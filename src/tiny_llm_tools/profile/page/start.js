// Build all parts, then draw them whenever something is chosen.
const { prompt, ...facts } = data.facts;
element("prompt").textContent = prompt;
element("facts").textContent = [
  ...Object.entries(facts).map(([name, value]) => `${name}: ${value}`),
  `${length} tokens`, `${data.layers} layers`, `${data.heads} heads each`,
].join(" · ");
buildPicker();
buildHeatmap();
buildStepper();
buildPattern();
redraws.push(drawPicker, drawHeatmap, drawStepper, drawPattern);
choose({});
window.addEventListener("resize", () => choose({}));
