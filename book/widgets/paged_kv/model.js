// A pool of pages with owners, an index that finds pages by their tokens, and the page tables of requests.
// The rules are those of PagePool, PrefixIndex and PageAllocator in src/tiny_llm; a test drives both alike.

export const PAGES = 12;
export const PAGE_SIZE = 4;
export const RESERVED = 24; // tokens that a dense cache reserves for a request, and doubles when they are full

const COMMON = ["Be", "kind", ".", "Answer", "in", "one", "line", "."];
const QUESTIONS = [
  ["Who", "was", "Ada", "?"],
  ["Why", "is", "the", "sky", "blue", "?"],
  ["What", "is", "a", "page", "?"],
];
const STORY = ["Story", "1", ":", "a", "fox", "and", "a", "crow", "."]; // the number is another one each time
const ANSWER = ["a", "page", "is", "kind", "to", "the", "one", "blue", "fox", "in", "the", "sky", "."];

export const VOCABULARY = [...new Set([...COMMON, ...QUESTIONS.flat(), ...STORY, ...ANSWER])];

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

export function start() {
  return {
    owners: Array(PAGES).fill(0),
    blank: Array.from({ length: PAGES }, (_, i) => PAGES - 1 - i), // a stack: the lowest ids are taken first
    kept: [], // free pages whose content can still be found, in the order of their release
    entries: {}, // name of a full page -> { page, parent, content }
    names: Array(PAGES).fill(null), // of the full pages that can be found
    newest: {}, // name of a page -> the newest page after it
    ends: Array(PAGES).fill(null), // name of the page before, of pages that are not full and can be found
    content: Array.from({ length: PAGES }, () => []), // token ids that were written
    requests: [], // { name, tokens, prompt, choice, pages, registered, cached }
    added: 0, // requests with the common beginning
    stories: 0,
    named: 0, // requests and forks
    said: "All pages are blank.",
  };
}

// Each action returns a new pool, or one that differs only in what it `said` if there is no room.
export function add(pool, kind) {
  const isStory = kind === "story";
  const words = isStory ? STORY : [...COMMON, ...QUESTIONS[pool.added % QUESTIONS.length]];
  const tokens = words.map((word) => VOCABULARY.indexOf(word));
  if (isStory) tokens[1] = VOCABULARY.length + pool.stories;
  const next = copy(pool);
  const found = find(next, tokens, Math.floor((tokens.length - 1) / PAGE_SIZE));
  const fresh = pagesFor(tokens.length) - found.length;
  const revived = found.filter((page) => next.owners[page] === 0).length;
  if (free(next) - revived < fresh) return refuse(pool, `No room: ${fresh} more pages are needed. Finish a request.`);
  for (const page of found) share(next, page);
  const pages = [...found];
  const evicted = [];
  for (let i = 0; i < fresh; i++) pages.push(take(next, evicted));
  const name = newName(next);
  const cached = found.length * PAGE_SIZE;
  const request = { name, tokens, prompt: tokens.length, choice: 0, pages, registered: found.length, cached };
  tokens.forEach((token, place) => {
    if (place >= cached) write(next, request, place, token);
  });
  next.requests.push(request);
  register(next, request);
  next[isStory ? "stories" : "added"]++;
  next.said =
    `${name} starts: ${count(found.length, "page")} of its prompt ${found.length === 1 ? "is" : "are"} found` +
    `${found.length ? ` (${list(found)})` : ""}, ${count(fresh, "page")} ${fresh === 1 ? "is" : "are"} taken.` +
    told(evicted);
  return next;
}

export function append(pool, name) {
  const next = copy(pool);
  const request = of(next, name);
  const place = request.tokens.length;
  const number = Math.floor(place / PAGE_SIZE);
  const old = request.pages[number];
  const evicted = [];
  let said = `${name} writes its token into page ${old}.`;
  if (old === undefined || next.owners[old] > 1) {
    if (free(next) === 0)
      return refuse(pool, `No page is free for the next token of ${name}. A scheduler would preempt the newest request.`);
    const page = take(next, evicted);
    if (old === undefined) {
      request.pages.push(page);
      said = `${name} needs another page and takes ${page}.`;
    } else {
      request.pages[number] = page;
      giveBack(next, old);
      next.content[page] = [...next.content[old]];
      said = `Page ${old} has several owners, so ${name} copies it to page ${page} and writes there: copy on write.`;
    }
  }
  const token = VOCABULARY.indexOf(ANSWER[(place + 5 * request.choice) % ANSWER.length]);
  request.tokens.push(token);
  write(next, request, place, token);
  register(next, request);
  next.said = said + told(evicted);
  return next;
}

export function fork(pool, name) {
  const next = copy(pool);
  const request = of(next, name);
  for (const page of request.pages) share(next, page);
  const other = { ...request, name: newName(next), tokens: [...request.tokens], pages: [...request.pages] };
  other.choice = next.named;
  next.requests.push(other);
  next.said = `${other.name} is a second answer after the tokens of ${name}: its table has the same pages, and nothing is copied yet.`;
  return next;
}

// The last page goes first: the end of a prefix is useless without its beginning.
export function finish(pool, name) {
  const next = copy(pool);
  const request = of(next, name);
  const before = next.kept.length;
  if (request.tokens.length % PAGE_SIZE) remember(next, request, request.tokens.length);
  for (const page of [...request.pages].reverse()) giveBack(next, page);
  next.requests = next.requests.filter((each) => each !== request);
  const kept = next.kept.slice(before);
  next.said =
    `${name} has ended and gives up its pages.` +
    (kept.length ? ` Nobody owns ${list(kept)} now; the content is kept, because it can be found.` : "");
  return next;
}

export const free = (pool) => pool.blank.length + pool.kept.length;

export function state(pool, page) {
  if (pool.owners[page] > 0) return "used";
  return pool.kept.includes(page) ? "kept" : "blank";
}

// Slots of tokens: those of the requests, those of their pages, and those of dense caches.
export function stored({ requests, owners }) {
  return {
    tokens: requests.reduce((sum, each) => sum + each.tokens.length, 0),
    paged: owners.filter((count) => count > 0).length * PAGE_SIZE,
    dense: requests.reduce((sum, { tokens: { length } }) => sum + (length > RESERVED ? 2 : 1) * RESERVED, 0),
  };
}

export const word = (token) => VOCABULARY[token] ?? String(token - VOCABULARY.length + 1);

// FNV-1a in 32 bits over bytes: short names for pages. The real index has 16 bytes of BLAKE2.
export function digest(bytes) {
  let hash = 0x811c9dc5;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return [hash & 255, (hash >>> 8) & 255, (hash >>> 16) & 255, hash >>> 24];
}

export const hex = (bytes) => bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");

// The name of a page is the digest of the name before it and of its tokens, each in 4 bytes.
const ROOT = digest([..."('', '')"].map((letter) => letter.charCodeAt(0)));

function chain(parent, tokens) {
  return digest([...parent, ...tokens.flatMap((token) => [token & 255, token >>> 8, 0, 0])]);
}

function keys(tokens, pages) {
  const found = [ROOT];
  for (let number = 0; number < pages; number++) found.push(chain(found.at(-1), part(tokens, number)));
  return found;
}

const part = (tokens, number) => tokens.slice(number * PAGE_SIZE, (number + 1) * PAGE_SIZE);

function find(pool, tokens, most) {
  const chained = keys(tokens, most);
  const found = [];
  for (let number = 0; number < most; number++) {
    const entry = pool.entries[hex(chained[number + 1])];
    const same = entry && entry.parent === hex(chained[number]) && entry.content === String(part(tokens, number));
    if (!same) break;
    found.push(entry.page);
  }
  return found;
}

function register(pool, request) {
  const full = Math.floor(request.tokens.length / PAGE_SIZE);
  const chained = keys(request.tokens, full);
  for (let number = request.registered; number < full; number++) {
    const [name, page] = [hex(chained[number + 1]), request.pages[number]];
    if (!(name in pool.entries) && pool.names[page] === null) {
      pool.entries[name] = { page, parent: hex(chained[number]), content: String(part(request.tokens, number)) };
      pool.names[page] = name;
    }
    if (canBeFound(pool, page)) remember(pool, request, (number + 1) * PAGE_SIZE);
  }
  request.registered = full;
}

const canBeFound = (pool, page) => pool.names[page] !== null || pool.ends[page] !== null;

// The page of the last of `stop` tokens is the newest after those before it. An end that was becomes blank.
function remember(pool, request, stop) {
  const number = Math.floor((stop - 1) / PAGE_SIZE);
  const page = request.pages[number];
  const parent = hex(keys(request.tokens, number).at(-1));
  const before = pool.newest[parent];
  if (before !== undefined && before !== page && pool.ends[before] !== null) {
    forget(pool, before);
    if (pool.kept.includes(before)) {
      pool.kept = pool.kept.filter((each) => each !== before);
      pool.blank.push(before);
      pool.content[before] = [];
    }
  }
  pool.newest[parent] = page;
  pool.ends[page] = pool.names[page] === null ? parent : null;
}

function forget(pool, page) {
  const name = pool.names[page];
  const parent = name === null ? pool.ends[page] : pool.entries[name].parent;
  if (pool.newest[parent] === page) delete pool.newest[parent];
  if (name !== null) delete pool.entries[name];
  pool.names[page] = pool.ends[page] = null;
}

function take(pool, evicted) {
  let page = pool.blank.pop();
  if (page === undefined) {
    page = pool.kept.shift();
    evicted.push(page);
  }
  forget(pool, page);
  pool.content[page] = [];
  pool.owners[page] = 1;
  return page;
}

function share(pool, page) {
  pool.kept = pool.kept.filter((each) => each !== page);
  pool.owners[page]++;
}

function giveBack(pool, page) {
  if (--pool.owners[page] > 0) return;
  if (canBeFound(pool, page)) pool.kept.push(page);
  else {
    pool.blank.push(page);
    pool.content[page] = [];
  }
}

function write(pool, request, place, token) {
  pool.content[request.pages[Math.floor(place / PAGE_SIZE)]][place % PAGE_SIZE] = token;
}

function newName(pool) {
  const number = pool.named++;
  const round = Math.floor(number / LETTERS.length);
  return LETTERS[number % LETTERS.length] + (round ? round + 1 : "");
}

const pagesFor = (tokens) => Math.ceil(tokens / PAGE_SIZE);
const of = (pool, name) => pool.requests.find((each) => each.name === name);
const refuse = (pool, said) => ({ ...pool, said });
const count = (number, noun) => `${number === 0 ? "no" : number} ${noun}${number === 1 ? "" : "s"}`;
const list = (pages) => (pages.length === 1 ? `page ${pages[0]}` : `pages ${pages.join(", ")}`);
const told = (evicted) =>
  evicted.length ? ` No page is blank, so ${list(evicted)}, the longest unused, ${evicted.length === 1 ? "is" : "are"} evicted.` : "";
const copy = (pool) => structuredClone(pool);
