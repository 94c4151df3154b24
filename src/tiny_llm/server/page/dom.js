// Makes elements without HTML text. Properties are set as they are; the names of aria- and data- become attributes.
const SVG = "http://www.w3.org/2000/svg";

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A picture of index.html's symbols, for a button that has a label.
export function icon(name) {
  return makeSvg("svg", { class: "icon", "aria-hidden": "true" }, makeSvg("use", { href: `#icon-${name}` }));
}

export function iconButton(name, label, onClick) {
  const button = make("button", { type: "button", className: "icon-button", title: label, "aria-label": label }, icon(name));
  button.addEventListener("click", onClick);
  return button;
}

export const byId = (id) => document.getElementById(id);
