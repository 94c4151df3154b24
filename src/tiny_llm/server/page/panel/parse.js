// Reads the text format of Prometheus. Pure.
const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$/;
const LABEL = /\s*([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)/y;
const ESCAPES = { "\\n": "\n", '\\"': '"', "\\\\": "\\" };

// The samples of a text: {name, labels, value}. Comments, and lines of another form, are left out.
export function parseMetrics(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : SAMPLE.exec(line.trim());
    const labels = match && readLabels((match[2] ?? "").trim());
    const value = match && readNumber(match[3]);
    if (labels && value !== null) samples.push({ name: match[1], labels, value });
  }
  return samples;
}

function readLabels(text) {
  const labels = {};
  let at = 0;
  while (at < text.length) {
    LABEL.lastIndex = at;
    const match = LABEL.exec(text);
    if (!match) return null;
    labels[match[1]] = match[2].replace(/\\[n"\\]/g, (escape) => ESCAPES[escape]);
    at = LABEL.lastIndex;
  }
  return labels;
}

function readNumber(text) {
  if (/^[+-]?inf$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  if (/^nan$/i.test(text)) return NaN;
  const value = Number(text);
  return Number.isNaN(value) ? null : value;
}
