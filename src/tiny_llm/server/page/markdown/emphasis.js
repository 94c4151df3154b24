// Pairs runs of * _ ~ into em, strong and del.
export const DEEPEST = 20; // emphasis inside of emphasis; deeper runs stay text
const FARTHEST = 32; // open runs that are tried for a closing one, so that time stays linear

// Whether a run may open or close emphasis, from the characters around it.
export function flanking(text, start, end) {
  const [before, after] = [kind(text[start - 1]), kind(text[end])];
  const left = after === "letter" || (after === "mark" && before !== "letter");
  const right = before === "letter" || (before === "mark" && after !== "letter");
  if (text[start] !== "_") return { opens: left, closes: right };
  return { opens: left && (!right || before === "mark"), closes: right && (!left || after === "mark") };
}

function kind(char) {
  if (char === undefined || /\s/.test(char)) return "space";
  return /[\p{P}\p{S}]/u.test(char) ? "mark" : "letter";
}

export class Emphasis {
  // `items` are nodes and runs; `nodes` has the same with no run left.
  constructor(items) {
    this.out = [];
    this.open = []; // open runs, with their places in `out`
    for (const item of items) {
      if (item.type === "run") this.meet({ ...item });
      else if (item.type !== "text" || item.text !== "") this.out.push(item);
    }
    this.nodes = joinTexts(this.out.map((item) => (item.type === "run" ? asText(item) : item)));
  }

  meet(run) {
    while (run.closes && run.count > 0) {
      const place = this.opener(run);
      if (place < 0 || !this.wrap(place, run)) break;
    }
    if (run.count === 0) return;
    if (run.opens) this.open.push({ run, at: this.out.length });
    this.out.push(run);
  }

  // The place in `open` of the nearest run that this one closes, or -1.
  opener(run) {
    const last = Math.max(0, this.open.length - FARTHEST);
    for (let place = this.open.length - 1; place >= last; place--) {
      const other = this.open[place].run;
      if (other.char !== run.char) continue;
      if (run.char === "~" && (other.count !== 2 || run.count !== 2)) continue;
      const inside = other.closes || run.opens; // inside of a word: three marks are not one and two
      if (inside && (other.count + run.count) % 3 === 0 && run.count % 3 !== 0) continue;
      return place;
    }
    return -1;
  }

  // Put what is between two runs into a node; false if that is too deep.
  wrap(place, run) {
    const { run: opener, at } = this.open[place];
    let depth = 0;
    for (let child = at + 1; child < this.out.length; child++) depth = Math.max(depth, this.out[child].depth ?? 0);
    if (depth >= DEEPEST) {
      this.open = []; // every open run has these inside
      return false;
    }
    const children = this.out.splice(at + 1).map((item) => (item.type === "run" ? asText(item) : item));
    this.open.length = place + 1;
    const width = opener.count >= 2 && run.count >= 2 ? 2 : 1;
    const type = run.char === "~" ? "del" : width === 2 ? "strong" : "em";
    opener.count -= width;
    run.count -= width;
    if (opener.count === 0) {
      this.open.pop();
      this.out.pop();
    }
    this.out.push({ type, children: joinTexts(children), depth: depth + 1 });
    return true;
  }
}

const asText = (run) => ({ type: "text", text: run.char.repeat(run.count) });

function joinTexts(nodes) {
  const joined = [];
  for (const node of nodes) {
    const last = joined.at(-1);
    if (node.type === "text" && last?.type === "text") joined[joined.length - 1] = asJoined(last, node);
    else joined.push(node);
  }
  return joined;
}

const asJoined = (first, second) => ({ type: "text", text: first.text + second.text });
