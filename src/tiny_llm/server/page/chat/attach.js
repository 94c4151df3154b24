// Text files in a question.
import { byId } from "../dom.js";
import { notify } from "../notices.js";
import { quoteFile } from "./file.js";

const LARGEST = 256 * 1024; // bytes: more than the context of most models

// `onText` gets each file as a part of a question.
export function startAttach(onText) {
  const input = byId("attached");
  byId("attach").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    const files = [...input.files];
    input.value = ""; // the same file can be chosen again
    for (const file of files) {
      const text = await read(file);
      if (text !== null) onText(quoteFile(file.name, text));
    }
  });
}

async function read(file) {
  if (file.size > LARGEST) {
    notify(`“${file.name}” has ${Math.ceil(file.size / 1024)} kB; the page attaches at most ${LARGEST / 1024}.`);
    return null;
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return text;
  } catch {
    // as for a file with zeros
  }
  notify(`“${file.name}” is not a text in UTF-8.`);
  return null;
}
