// The blocks of a text that grows: those that can no longer change are given once.
import { parseBlocks } from "./blocks.js";

export class GrowingBlocks {
  constructor() {
    this.text = "";
    this.settled = 0; // characters whose blocks were given as final
  }

  // The blocks that became final, and those that may still change. `text` begins with what came before.
  grow(text) {
    this.text = text;
    const rest = text.slice(this.settled);
    const blocks = parseBlocks(rest);
    const starts = lineStarts(rest);
    // A block is final when another one has begun for certain: when that one's first lines are complete.
    let last = blocks.length - 1;
    while (last > 0 && starts[blocks[last].line + headLines(blocks[last])] === undefined) last -= 1;
    if (last > 0) this.settled += starts[blocks[last].line];
    return { final: blocks.slice(0, Math.max(last, 0)), open: blocks.slice(Math.max(last, 0)) };
  }
}

// How many lines say that a block begins.
const headLines = ({ type }) => (type === "table" ? 2 : 1);

// The place of each line's first character.
function lineStarts(text) {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}
