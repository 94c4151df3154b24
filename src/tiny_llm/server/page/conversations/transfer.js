// The buttons that write all conversations to a file, and read them from one.
import { byId, make } from "../dom.js";
import { notify } from "../notices.js";
import { readArchive, writeArchive } from "./archive.js";

// `conversations` gives all of them; `onImport` gets those of a file.
export function startTransfer({ conversations, onImport }) {
  const file = byId("import-file");
  byId("export").addEventListener("click", () => save(writeArchive(conversations())));
  byId("import").addEventListener("click", () => file.click());
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    const archive = readArchive(await chosen.text());
    file.value = ""; // the same file can be chosen again
    if (!archive) return notify(`“${chosen.name}” has no conversations of this page.`);
    onImport(archive.conversations);
    const broken = archive.broken > 0 ? ` ${archive.broken} cannot be read.` : "";
    notify(`${count(archive.conversations.length)} imported.${broken}`);
  });
}

const count = (number) => (number === 1 ? "1 conversation" : `${number} conversations`);

function save(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const day = new Date().toISOString().slice(0, 10);
  make("a", { href: url, download: `tiny-llm-conversations-${day}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still be reading it
}
