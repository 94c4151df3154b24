// Which conversations a reader looks for. Pure.

// Whether each word occurs in the title or a turn, in capitals or not.
export function isFound({ title, turns }, query) {
  const texts = [title, ...turns.map(({ text }) => text)].map((text) => text.toLowerCase());
  return query.toLowerCase().split(/\s+/).every((word) => texts.some((text) => text.includes(word)));
}
