// The parts at the sides: conversations on the left; settings or the live panel on the right, one at a time.
import { byId } from "./dom.js";

const NARROW = window.matchMedia("(max-width: 60rem)"); // where drawers lie over the chat
const drawers = new Map();
const sides = { left: null, right: null }; // which one is open

// Make a button open and close a drawer. `onToggle` gets whether it is open.
export function addDrawer(name, side, onToggle = () => {}) {
  const [drawer, button] = [byId(name), byId(`show-${name}`)];
  drawers.set(name, { drawer, button, side, onToggle });
  button.addEventListener("click", () => toggle(name, sides[side] !== name));
  drawer.querySelector(".close")?.addEventListener("click", () => {
    toggle(name, false);
    button.focus();
  });
}

export function toggle(name, open) {
  const { side } = drawers.get(name);
  if (open && NARROW.matches) for (const other of Object.values(sides)) if (other) close(other);
  if (sides[side] && sides[side] !== name) close(sides[side]);
  if (!open) {
    close(name);
    return;
  }
  const { drawer, button, onToggle } = drawers.get(name);
  drawer.hidden = false;
  button.setAttribute("aria-expanded", "true");
  sides[side] = name;
  showBackdrop();
  onToggle(true);
}

function close(name) {
  const { drawer, button, side, onToggle } = drawers.get(name);
  if (drawer.hidden) return;
  drawer.hidden = true;
  button.setAttribute("aria-expanded", "false");
  if (sides[side] === name) sides[side] = null;
  showBackdrop();
  onToggle(false);
}

// Close what lies over the chat; true if there was something.
export function closeOverlays() {
  const open = Object.values(sides).filter(Boolean);
  const closed = NARROW.matches ? open : open.filter((name) => drawers.get(name).side === "right");
  for (const name of closed) {
    close(name);
    drawers.get(name).button.focus();
  }
  return closed.length > 0;
}

export const isNarrow = () => NARROW.matches;

function showBackdrop() {
  byId("backdrop").hidden = !Object.values(sides).some(Boolean);
}

export function startDrawers() {
  byId("backdrop").addEventListener("click", closeOverlays);
  toggle("conversations", !NARROW.matches);
  NARROW.addEventListener("change", () => toggle("conversations", !NARROW.matches));
}
