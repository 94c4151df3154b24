// A file as Markdown: its name, and its text in a block of code. Pure.

export function quoteFile(name, text) {
  const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map(({ length }) => length));
  const fence = "`".repeat(longest + 1);
  const language = /\.([a-z0-9+]{1,12})$/i.exec(name)?.[1].toLowerCase() ?? "";
  return `File \`${name.replace(/[`\s]+/g, " ")}\`:\n\n${fence}${language}\n${text.replace(/\n$/, "")}\n${fence}`;
}
