// Which addresses a link may have. Everything else stays text.
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const LONGEST = 2000; // characters of an address; also bounds how far the parser looks ahead
// An address in angles, or one without spaces whose brackets close; then a title.
const TARGET = /^\((?:<([^<>\n]*)>|((?:[^()\s<]|\([^()\s]*\))*))(?:\s+(?:"[^"\n]*"|'[^'\n]*'))?\s{0,9}\)/;
const BARE = /https?:\/\/[^\s<>`"[\]]+/y;
const TRAILING = new Set([..."*_~.,;:!?'\""]);

// The address as a browser reads it, or null. A relative one would be one of this server.
export function safeUrl(address) {
  try {
    const url = new URL(address);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// "(address)" or "(address "title")" at `at`: [address, place after it], or null. The title is not used.
export function readTarget(text, at) {
  const match = text[at] === "(" ? TARGET.exec(text.slice(at, at + LONGEST)) : null;
  return match && [match[1] ?? match[2], at + match[0].length];
}

// An address in running text, without the punctuation after it; [address, place after it].
export function readBareUrl(text, at) {
  BARE.lastIndex = at;
  const match = BARE.exec(text.length > at + LONGEST ? text.slice(0, at + LONGEST) : text);
  if (!match) return null;
  let address = match[0];
  let surplus = address.split(")").length - address.split("(").length; // closing brackets without a partner
  for (;;) {
    const last = address.at(-1);
    if (last === ")" && surplus > 0) surplus -= 1;
    else if (!TRAILING.has(last)) break;
    address = address.slice(0, -1);
  }
  return /^https?:\/\/.*\w/.test(address) ? [address, at + address.length] : null;
}
