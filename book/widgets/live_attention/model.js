// What is read off a matrix of attention weights: rows hold the visible keys only, row i has i + 1 of them.

// The keys of a row from the largest weight on, at most `count`, with those that round to 0 % left out.
export function looksAt(row, count) {
  return Array.from(row, (weight, key) => ({ key, weight }))
    .sort((a, b) => b.weight - a.weight || a.key - b.key)
    .slice(0, count)
    .filter(({ weight }) => weight >= 0.005);
}

// How far a row is spread, in bits: 0 for one key, log2(n) for n equal ones.
export function entropy(row) {
  return row.reduce((bits, weight) => (weight > 0 ? bits - weight * Math.log2(weight) : bits), 0);
}

// A token as a label: spaces and line breaks visible, long ones shortened.
export function label(token, longest = 12) {
  const visible = token.replaceAll(" ", "␣").replaceAll("\n", "⏎");
  const letters = Array.from(visible || "∅");
  return letters.length > longest ? `${letters.slice(0, longest - 1).join("")}…` : letters.join("");
}

// The cells that the causal mask hides, as the path of an SVG: row i hides the keys from i + 1 on.
export function hiddenPath(length, cell) {
  const rows = Array.from({ length: length - 1 }, (_, i) => i).reverse();
  const stairs = rows.map((i) => `H${(i + 1) * cell}V${i * cell}`);
  return rows.length ? `M${cell} 0H${length * cell}V${(length - 1) * cell}${stairs.join("")}Z` : "";
}
