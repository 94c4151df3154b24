// DOM nodes of a formula. What cannot be read is shown as it was written.
import { make } from "../dom.js";
import { parseTex } from "./tex.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";

export function renderFormula(text, display) {
  const tree = parseTex(text, display);
  return tree ? element(tree) : make("code", { textContent: text });
}

function element({ tag, text, children = [], attributes }) {
  const made = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...(text === undefined ? children.map(element) : [text]));
  return made;
}
